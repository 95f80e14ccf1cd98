"""Training samples: random applications on random servers in random places, with what the contention model makes of them.

Every server has applications of its own, so that a model cannot remember any. Some servers hold one instance and some a pair, because
the tables ask about pairs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from armillary.scheduling.colocation.placement.packing import Packing, residents
from armillary.scheduling.colocation.placement.rules import lowest, spread_cores, whole_cores
from armillary.scheduling.colocation.placement.scheduler import Scene
from armillary.scheduling.colocation.prediction.predictors import Truth
from armillary.scheduling.colocation.prediction.tokens import COLUMNS, MOST_TOKENS, columns, features, hardware, token_arrays, tokens
from armillary.scheduling.colocation.workload import SHARES, SIZES, noisy, read_off
from armillary.scheduling.contention import Applications, Fleet, Model, Topology, draw_applications
from armillary.scheduling.contention.settled import overlap

Array = npt.NDArray[Any]
POPULATIONS = ("mixed", "sc-heavy", "ss-heavy", "calm")
#: Odds of the populations.
ODDS = (0.4, 0.25, 0.25, 0.1)
#: The share of servers whose applications are all or nothing: very loud or silent, very frail or indifferent.
EXTREME = 0.2
#: Busy shares of threads alone: those of the built-in cases with their diurnal swing, and some more.
LOADS = (0.2, 0.85)
#: Odds of a lone instance, of a pair, and of a filled server.
LONE, PAIR = 0.05, 0.15


@dataclass(frozen=True)
class Samples:
    """Token sets with types and counts, the same as rows for trees, and log(CPU under co-location / CPU alone), [n]."""

    x: Array
    types: Array
    counts: Array
    columns: Array
    target: Array
    #: For the core-level rival: Σ f, Σ f·(CPI + CPI') and Σ f·(MPKI + MPKI') over siblings.
    core: Array

    def __len__(self) -> int:
        return len(self.target)

    def joined(self, other: Samples) -> Samples:
        """Both, one after the other."""
        return Samples(*(np.concatenate([a, b]) for a, b in zip(self.__dict__.values(), other.__dict__.values())))


def server_samples(rng: np.random.Generator, topology: Topology, *, with_hardware: bool = True) -> Samples:
    """The samples of one random server."""
    scene, apps = _server(rng, topology)
    true_cpu = scene.cpu.copy()
    scene.at(float(rng.uniform(0, 24)), noisy(rng, scene.cpu), scene.rps)
    t = topology.threads
    ids, offsets, threads = np.empty(t, np.int64), np.empty(t + 1, np.int64), np.empty(t, np.int64)
    n = int(residents(scene.packing.owner[0, :t], scene.k, ids, offsets, threads))
    ids = ids[:n]
    near, far = np.empty((n, n)), np.empty((n, n))
    overlap(topology.core, topology.members, topology.cores_per_socket, topology.socket, offsets[: n + 1], threads, near, far)
    feats, load = features(scene)
    targets = np.arange(n)
    x, types, counts = token_arrays(n, MOST_TOKENS)
    tokens(ids, near, far, targets, feats, load, hardware(topology), with_hardware, x, types, counts)
    rows = np.empty((n, COLUMNS))
    columns(ids, near, far, targets, feats, load, hardware(topology), rows)
    true = Truth(apps, Model()).inflation(topology, ids, near, far, targets, feats, true_cpu / scene.k, scene.app)
    cpi, mpki = feats[ids, 3], feats[ids, 4]
    core = np.column_stack([near.sum(1), (near * (cpi[:, None] + cpi)).sum(1), (near * (mpki[:, None] + mpki)).sum(1)])
    return Samples(x, types, counts, rows, true, core)


def samples(rng: np.random.Generator, topologies: tuple[Topology, ...], count: int, *, with_hardware: bool = True) -> Samples:
    """At least `count` samples from servers of these kinds in turn, cut to `count`."""
    parts: list[Samples] = []
    held = 0
    while held < count:
        parts.append(server_samples(rng, topologies[len(parts) % len(topologies)], with_hardware=with_hardware))
        held += len(parts[-1])
    whole = [np.concatenate([getattr(part, name) for part in parts])[:count] for name in Samples.__dataclass_fields__]
    return Samples(*whole)


def _server(rng: np.random.Generator, topology: Topology) -> tuple[Scene, Any]:
    """A server with instances in places that some rule or none has chosen."""
    apps = _extreme(rng) if rng.random() < EXTREME else draw_applications(rng, 24, str(rng.choice(POPULATIONS, p=ODDS)))
    luck = rng.random()
    total = topology.threads
    if luck < LONE:
        k = [int(rng.choice(SIZES))]
    elif luck < LONE + PAIR:
        # One of the pair may be large, as where the tables let it have a thread on every core of a socket.
        k = [int(rng.choice(SIZES)), int(rng.integers(1, max(2, total // 4) + 1))]
    else:
        fill, k = rng.uniform(0.3, 1.0) * total, []
        while sum(k) < fill:
            k.append(int(rng.choice(SIZES, p=SHARES)))
    while sum(k) > total and len(k) > 1:
        k.pop()
    k = [min(v, total) for v in k]
    n = len(k)
    packing = Packing(Fleet((topology,), np.zeros(1, np.int64)), np.array(k))
    app = rng.integers(0, len(apps), n)
    style = rng.integers(0, 4)
    for i in range(n):
        packing.put(i, 0, _rows(rng, packing, i, int(style)))
    cpu = packing.k * rng.uniform(*LOADS, n)
    scene = Scene(packing.fleet, app, noisy(rng, read_off(apps)[app]), packing, cpu, cpu / apps.cpu_s[app])
    return scene, apps


def _extreme(rng: np.random.Generator) -> Applications:
    """Applications near the corners of what there can be, each pair of resources alike."""
    drawn = rng.beta(0.4, 0.4, (2, 24, 2))
    pressure, sensitivity = (one[:, [0, 0, 1, 1, 0]] for one in drawn)
    return Applications.of(pressure, sensitivity, 0.004 * rng.lognormal(0.0, 0.8, 24))


def _rows(rng: np.random.Generator, packing: Packing, i: int, style: int) -> Array:
    k = int(packing.k[i])
    if style == 1 and packing.empty[0] * packing.fleet.topologies[0].members.shape[1] >= k:
        rows = whole_cores(packing, 0, k)
        if len(rows) == k:
            return rows
    if style == 2:
        return spread_cores(packing, 0, k)
    if style == 3:
        return lowest(packing, 0, k)
    free = packing.free_rows(0)
    topology = packing.fleet.topologies[0]
    if topology.sockets > 1 and rng.random() < 0.7:
        # Most schedulers keep an instance on one socket.
        own = free[topology.socket[free] == rng.integers(0, topology.sockets)]
        free = own if len(own) >= k else free
    return free[rng.permutation(len(free))[:k]]
