"""Dragonflies by their four numbers: p nodes per router, a routers per group, h global links per router, and g groups.

Routers of a group are joined all to all. A group has a·h global ports, numbered x = r·h + k for link k of its router r, and at most one
port more than there are other groups is needed to join it with all of them. `palmtree`: port x of group i leads to group i − x − 1 (mod g)
and arrives at port a·h − 1 − x there. The other arrangements are those of `armillary.cluster`, with ⌊a·h/(g − 1)⌋ parallel channels between
each pair of groups.

Technology-Driven, Highly-Scalable Dragonfly Topology, ISCA 2008.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from armillary.errors import InputError, unknown

from .network import MOST_LINKS, MOST_NODES, MOST_ROUTERS, Ints, Network

ARRANGEMENTS = ("palmtree", "absolute", "relative", "circulant")
LOCAL_CYCLES, GLOBAL_CYCLES = 10, 15
#: p, a, h, g.
PRESETS = {"df-72": (2, 4, 2, 9), "df-1056": (4, 8, 4, 33), "df-2550": (5, 10, 5, 51), "df-9702": (7, 14, 7, 99)}


def Dragonfly(
    p: int, a: int, h: int, g: int | None = None, *, arrangement: str = "palmtree", local_cycles: int = LOCAL_CYCLES,
    global_cycles: int = GLOBAL_CYCLES, failed: Sequence[int] = (),
) -> Network:  # fmt: skip
    """A Dragonfly; g is a·h + 1 unless given. `failed` are numbers of global links that do not work. Latencies are in cycles."""
    for name, value in (("p", p), ("a", a), ("h", h)):
        if isinstance(value, bool) or not hasattr(value, "__index__") or value < 1:
            raise InputError(f"found {value!r}; expected a whole number of at least 1", where=name)
    if arrangement not in ARRANGEMENTS:
        raise unknown("arrangement", arrangement, ARRANGEMENTS)
    groups = a * h + 1 if g is None else g
    if isinstance(groups, bool) or not hasattr(groups, "__index__") or not 1 <= groups <= a * h + 1:
        raise InputError(f"found {groups!r} groups; expected 1 to a·h + 1 = {a * h + 1}", where="g")
    if p * a * groups > MOST_NODES or a * groups > MOST_ROUTERS or groups * a * (a + h) > MOST_LINKS:
        found = f"{p * a * groups:,} nodes on {a * groups:,} routers"
        raise InputError(f"found {found}; expected at most {MOST_NODES:,} nodes, {MOST_ROUTERS:,} routers and {MOST_LINKS:,} links")
    u, v = np.triu_indices(a, 1)
    base = a * np.arange(groups)[:, None]
    local = (base + u).ravel(), (base + v).ravel()
    world = palmtree(a, h, groups) if arrangement == "palmtree" else ports(a, h, groups, arrangement)
    group = np.repeat(np.arange(groups), a)
    one, other = (np.concatenate([inner, outer]).astype(np.int64) for inner, outer in zip(local, world))
    latency = np.repeat([local_cycles, global_cycles], [len(local[0]), len(world[0])]).astype(np.int64)
    name = next((name for name, shape in PRESETS.items() if shape == (p, a, h, groups)), f"dragonfly({p},{a},{h},{groups})")
    net = Network(group, np.repeat(np.arange(a * groups), p), one, other, latency, np.zeros(len(latency), bool), name)
    return net.fail(failed) if len(failed) else net


def preset(name: str) -> Network:
    """One of the four built-in Dragonflies: df-72, df-1056, df-2550, df-9702."""
    if name not in PRESETS:
        raise unknown("network", name, PRESETS)
    return Dragonfly(*PRESETS[name])


def palmtree(a: int, h: int, groups: int) -> tuple[Ints, Ints]:
    """The routers at both ends of each global link. With g < a·h + 1, ports wrap around, and pairs of groups get parallel links.

    Ports beyond the largest multiple of g − 1 would not agree with their partners on where they lead. So there are no more than that, and
    they are spread evenly over the routers, as `armillary.cluster` does.
    """
    if groups < 2:
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    used = a * h // (groups - 1) * (groups - 1)
    i, x = (q.ravel() for q in np.meshgrid(np.arange(groups), np.arange(used), indexing="ij"))
    other, arrives = (i - x % (groups - 1) - 1) % groups, used - 1 - x
    first = (i < other) | ((i == other) & (x < arrives))
    return (i * a + x * a // used)[first], (other * a + arrives * a // used)[first]


def ports(a: int, h: int, groups: int, arrangement: str) -> tuple[Ints, Ints]:
    """The same for the arrangements of `armillary.cluster`."""
    if groups < 2:
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    parallel = a * h // (groups - 1)
    i, j = np.triu_indices(groups, 1)
    ends = []
    for own, other in ((i, j), (j, i)):
        port = port_to(own, other, groups, arrangement)
        ends.append(np.concatenate([own * a + (k * (groups - 1) + port) * a // (parallel * (groups - 1)) for k in range(parallel)]))
    return ends[0], ends[1]


def port_to(own: Ints, other: Ints, groups: int, arrangement: str) -> Ints:
    """The global port by which a group reaches another one, among the g − 1 ports of one set of parallel links."""
    if arrangement == "absolute":
        return np.where(other < own, other, other - 1)
    ahead = (other - own) % groups
    if arrangement == "relative":
        return ahead - 1
    return np.where(2 * ahead <= groups, 2 * (ahead - 1), 2 * (groups - ahead) - 1)
