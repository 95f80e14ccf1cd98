"""Networks of clocks in the usual shapes."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from armillary.errors import InputError, unknown

from .network import ClockNetwork

#: Links of one length have this delay; others have 500 ns and 5 ns per metre, up to 100 m.
CONSTANT_S, SWITCH_S, METRE_S, LONGEST_M = 1e-6, 500e-9, 5e-9, 100.0
SHAPES = ("line", "ring", "grid", "torus", "geometric", "fat-tree", "dragonfly")

_CLUSTER = """armillary = 1
name = "clocks"
[[group]]
name = "host"
count = {hosts}
[[group.node.nic]]
count = 1
rate = "200 Gb/s"
network = "net"
[network.net]
{shape}
rate = "200 Gb/s"
latency.nic = "0.6 us"
latency.switch = "0.13 us"
latency.metre = "5 ns"
length.local = "3 m"
length.global = "30 m"
"""


def shaped(shape: str, nodes: int, rng: np.random.Generator | None = None) -> ClockNetwork:
    """A network of this shape.

    line, ring: `nodes` clocks with links of 1 µs. grid, torus: a square of about as many. geometric: points in a square, joined where they
    are near, with delays by distance, drawn from `rng`. fat-tree: `nodes` hosts (k³/4) and their switches. dragonfly: `nodes` hosts of
    which two share a switch, four switches a group (72 hosts in nine groups).
    """
    if shape not in SHAPES:
        raise unknown("shape", shape, SHAPES)
    if nodes < 2:
        raise InputError(f"found {nodes} clocks; expected at least 2")
    if shape in ("line", "ring"):
        return _line(nodes, shape == "ring")
    if shape in ("grid", "torus"):
        return _grid(max(2, round(nodes**0.5)), shape == "torus")
    if shape == "geometric":
        return _geometric(nodes, np.random.default_rng(0) if rng is None else rng)
    return _of_cluster(shape, nodes)


def _line(nodes: int, closed: bool) -> ClockNetwork:
    at = np.arange(nodes - 1)
    pairs = np.stack([at, at + 1], 1)
    if closed and nodes > 2:
        pairs = np.concatenate([pairs, [[nodes - 1, 0]]])
    return ClockNetwork.of(pairs, nodes, delay=CONSTANT_S)


def _grid(side: int, closed: bool) -> ClockNetwork:
    at = np.arange(side * side).reshape(side, side)
    pairs = [np.stack([at[:, :-1].ravel(), at[:, 1:].ravel()], 1), np.stack([at[:-1].ravel(), at[1:].ravel()], 1)]
    if closed and side > 2:
        pairs += [np.stack([at[:, -1], at[:, 0]], 1), np.stack([at[-1], at[0]], 1)]
    return ClockNetwork.of(np.concatenate(pairs), side * side, delay=CONSTANT_S)


def _geometric(nodes: int, rng: np.random.Generator) -> ClockNetwork:
    place = rng.random((nodes, 2))
    # Rounded, because the last digits of a logarithm depend on the C library.
    radius = round(math.sqrt(2.5 * math.log(nodes) / (math.pi * nodes)), 6)
    apart = np.sqrt(((place[:, None] - place[None]) ** 2).sum(-1))
    near = apart <= radius
    # Points that are out of reach are joined to the nearest of the others, so that the network is connected.
    part = _parts(near)
    while part.max() > 0:
        away = np.where((part == 0)[:, None] & (part > 0)[None], apart, np.inf)
        i, j = np.unravel_index(int(np.argmin(away)), away.shape)
        near[i, j] = near[j, i] = True
        part = _parts(near)
    a, b = np.nonzero(np.triu(near, 1))
    metres = LONGEST_M * np.minimum(1.0, apart[a, b] / radius)
    return ClockNetwork.of(np.stack([a, b], 1), nodes, delay=SWITCH_S + METRE_S * np.maximum(1.0, metres))


def _parts(near: npt.NDArray[np.bool_]) -> npt.NDArray[np.int64]:
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import connected_components

    return np.asarray(connected_components(csr_array(near.astype(np.int8)), directed=False)[1], np.int64)


def _of_cluster(shape: str, hosts: int) -> ClockNetwork:
    from armillary.cluster import loads

    if shape == "fat-tree":
        k = round((4 * hosts) ** (1 / 3))
        k += k % 2
        hosts, said = k**3 // 4, f'topology = "fat-tree"\nk = {k}'
    else:
        groups = max(2, round(hosts / 8))
        hosts = 8 * groups
        ports = -(-(groups - 1) // 4)
        said = f'topology = "dragonfly"\ngroups = {groups}\nswitches_per_group = 4\nendpoints_per_switch = 2\nglobal_ports = {ports}'
    return ClockNetwork.from_cluster(loads(_CLUSTER.format(hosts=hosts, shape=said)))
