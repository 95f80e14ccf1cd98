"""The built-in work: 20 nodes in 4 racks, stripes placed at random, four kinds of free bandwidth, and four kinds of failure."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from armillary.errors import unknown

from .coding.reed_solomon import ReedSolomon
from .own_placement.bandwidth import Bandwidth
from .own_placement.placement import Placement
from .plans.problem import Fabric, Problem

NODES, RACKS = 20, 4
MEGABIT = 1e6 / 8
#: The rate of a NIC in Mb/s; a rack's uplink has the sum of its nodes' rates divided by the oversubscription.
NIC = 1000.0
BANDWIDTHS = ("uniform", "down-scarce", "hotspot", "drifting")
FAILURES = ("degraded-read", "double", "node", "two-nodes")
REDRAWN_S, REDRAWS = 5.0, 400


@dataclass(frozen=True)
class Work:
    """A problem, the bandwidth that it runs under, and how large a block is when its bytes are really rebuilt."""

    problem: Problem
    bandwidth: Bandwidth
    real_bytes: int
    seed: int


def free_bandwidth(kind: str, rng: np.random.Generator, oversubscription: float = 1.0, nodes: int = NODES, racks: int = RACKS) -> Bandwidth:
    """The free bandwidth of every node; `drifting` is drawn again every 5 s."""
    if kind not in BANDWIDTHS:
        raise unknown("bandwidth", kind, BANDWIDTHS)
    times = np.arange(REDRAWS) * REDRAWN_S if kind == "drifting" else np.zeros(1)
    up, down = rng.uniform(100, NIC, (2, len(times), nodes)) * MEGABIT
    if kind == "down-scarce":
        down = rng.uniform(50, 300, down.shape) * MEGABIT
    if kind == "hotspot":
        hot = rng.choice(nodes, nodes // 5, replace=False)
        up[:, hot] *= 0.15
        down[:, hot] *= 0.15
    rack = np.arange(nodes) * racks // nodes
    uplink = nodes / racks * NIC / oversubscription * MEGABIT
    # Programmable switches add up at line rate, which is that of all their ports together.
    at_switch, at_core = nodes / racks * NIC * MEGABIT + uplink, racks * uplink
    fabric = Fabric.make(up[0], down[0], rack=rack, rack_up=uplink, aggregate=at_switch, core_aggregate=at_core)
    return Bandwidth.over_time(tuple(f"n{i}" for i in range(nodes)), times, up, down, fabric)


def place(code: ReedSolomon, stripes: int, rng: np.random.Generator, nodes: int = NODES) -> Placement:
    """Puts every stripe on n different nodes, drawn at random."""
    holder = rng.permuted(np.tile(np.arange(nodes), (stripes, 1)), axis=1)[:, : code.n]
    return Placement(code, tuple(f"n{i}" for i in range(nodes)), tuple(str(s) for s in range(stripes)), holder)


def built_in(
    n: int, k: int, bandwidth: str, failure: str, oversubscription: float, stripes: int, block: int, real_bytes: int,
    rng: np.random.Generator,
) -> Work:  # fmt: skip
    """One case; the nodes that fail are drawn too."""
    code = ReedSolomon(k, n - k)
    free = free_bandwidth(bandwidth, rng, oversubscription)
    # A block has 1024 slices, as 64 MiB has of 64 KiB.
    slice_bytes = max(block >> 10, 1)
    if failure in ("degraded-read", "double"):
        placement = place(code, 1, rng)
        indices = np.sort(rng.choice(n, 1 if failure == "degraded-read" else 2, replace=False))
        lost = [("0", int(index)) for index in indices]
        # The nodes of lost blocks are gone; a client reads on a node without a block.
        dead = [f"n{placement.holder[0, index]}" for index in indices]
        client = f"n{rng.choice(np.setdiff1d(np.arange(NODES), placement.holder[0]))}" if failure == "degraded-read" else None
        problem = placement.problem(lost if client else dead, free, destination=client, block=block, slice=slice_bytes)
    else:
        placement = place(code, stripes, rng)
        dead = [f"n{i}" for i in rng.choice(np.unique(placement.holder), 1 if failure == "node" else 2, replace=False)]
        problem = placement.problem(dead, free, block=block, slice=slice_bytes)
    return Work(problem, free, min(real_bytes, block), int(rng.integers(2**31)))
