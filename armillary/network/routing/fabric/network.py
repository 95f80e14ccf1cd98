"""A network of routers in groups, as flat arrays: what every simulation, analysis and export of this arena starts from.

Inside a group every pair of routers has a link, and groups are joined by global channels. Groups may differ in size, links may be
parallel, and global channels may have failed. Links are full duplex, and a directed channel is one direction of a link.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from armillary.errors import InputError

if TYPE_CHECKING:
    import networkx
    import polars as pl

    from .tables import Tables

Ints = npt.NDArray[np.int64]
MOST_NODES, MOST_LINKS, MOST_GROUPS, MOST_ROUTERS = 200_000, 5_000_000, 4_000, 50_000
#: Cells of the table of local ports, which has one per pair of routers in a group.
MOST_CELLS = 100_000_000
MOST_LATENCY = 100_000


@dataclass(frozen=True, eq=False)
class Network:
    """Routers with their groups, nodes with their routers, and links (a, b, latency in cycles), each listed once per parallel link."""

    group: Ints
    node_router: Ints
    a: Ints
    b: Ints
    latency: Ints
    #: Which links have failed; only global ones may.
    dead: npt.NDArray[np.bool_]
    name: str = "network"

    def __post_init__(self) -> None:
        self.check()

    @property
    def routers(self) -> int:
        """The number of routers."""
        return len(self.group)

    @property
    def nodes(self) -> int:
        """The number of nodes."""
        return len(self.node_router)

    @property
    def groups(self) -> int:
        """The number of groups."""
        return int(self.group.max()) + 1

    @property
    def links(self) -> int:
        """The number of links between routers."""
        return len(self.a)

    @cached_property
    def is_global(self) -> npt.NDArray[np.bool_]:
        """Which links join two groups."""
        return self.group[self.a] != self.group[self.b]

    @cached_property
    def tables(self) -> Tables:
        """Ports, channels and paths, as the simulator uses them."""
        from .tables import tables_of

        return tables_of(self)

    @property
    def global_per_router(self) -> int:
        """h: the most global links of one router."""
        ends = np.concatenate([self.a[self.is_global], self.b[self.is_global]])
        return int(np.bincount(ends, minlength=self.routers).max(initial=0))

    @property
    def channels(self) -> pl.DataFrame:
        """Every directed channel between routers, in the order of `Played.channel_load`."""
        import polars as pl

        ports = self.tables.channel_ports
        table = self.tables
        return pl.DataFrame({
            "channel": np.arange(len(ports)), "source": table.router[ports], "target": table.router[table.peer[ports]],
            "source_group": self.group[table.router[ports]], "target_group": self.group[table.router[table.peer[ports]]],
            "latency": table.latency[ports], "is_global": table.kind[ports] == 2, "failed": table.dead[ports],
        })  # fmt: skip

    def fail(self, failed: Sequence[int]) -> Network:
        """The network without these global links, which are numbers of `links`."""
        which = np.asarray(failed, np.int64).reshape(-1)
        if len(which) and (which.min() < 0 or which.max() >= self.links):
            raise InputError(
                f"found link {int(which[(which < 0) | (which >= self.links)][0])}; expected 0 to {self.links - 1}", where="failed"
            )
        if (~self.is_global[which]).any():
            raise InputError(f"link {int(which[~self.is_global[which]][0])} is inside a group; expected global links", where="failed")
        dead = self.dead.copy()
        dead[which] = True
        return replace(self, dead=dead)

    def fail_share(self, share: float, rng: np.random.Generator) -> Network:
        """The network with this share of its global links failed, drawn at random."""
        world = np.flatnonzero(self.is_global)
        return self.fail(np.sort(rng.choice(world, round(share * len(world)), replace=False)).tolist())

    def to_networkx(self) -> networkx.MultiGraph:
        """Routers as vertices 0…, nodes as ("node", i), links with `latency` in cycles; failed links are left out."""
        import networkx

        graph = networkx.MultiGraph(name=self.name)
        graph.add_nodes_from((r, {"group": int(g)}) for r, g in enumerate(self.group))
        for e in np.flatnonzero(~self.dead).tolist():
            kind = "global" if self.is_global[e] else "local"
            graph.add_edge(int(self.a[e]), int(self.b[e]), key=e, latency=int(self.latency[e]), kind=kind)
        for node, router in enumerate(self.node_router.tolist()):
            graph.add_node(("node", node), group=int(self.group[router]))
            graph.add_edge(("node", node), router, latency=0, kind="node")
        return graph

    def write_booksim(self, path: Any) -> list[str]:
        """Writes the network as BookSim2's `anynet` file and a `.cfg` beside it; see `sockets.booksim`."""
        from ..sockets.booksim import write_booksim

        return write_booksim(self, path)

    def check(self) -> None:
        """Raises InputError unless every packet can go by at most two global channels and one local link before, between and after."""
        _check_sizes(self)
        inner = ~self.is_global
        if self.dead[inner].any():
            raise InputError(f"link {int(np.flatnonzero(self.dead & inner)[0])} failed inside a group; only global links may fail")
        _check_local(self)
        _check_global(self)


def _check_sizes(net: Network) -> None:
    for what, found, most in (("nodes", net.nodes, MOST_NODES), ("routers", net.routers, MOST_ROUTERS), ("links", net.links, MOST_LINKS)):
        if not (0 if what == "links" else 1) <= found <= most:
            raise InputError(f"found {found:,} {what}; expected 1 to {most:,}")
    for name, ids in (("router", net.a), ("router", net.b), ("router", net.node_router)):
        if len(ids) and (ids.min() < 0 or ids.max() >= net.routers):
            raise InputError(f"found {name} {int(ids.max())}; expected 0 to {net.routers - 1}")
    if net.group.min() < 0 or net.group.max() >= min(net.routers, MOST_GROUPS):
        raise InputError(f"found group {int(net.group.max()):,}; expected 0 to {min(net.routers, MOST_GROUPS) - 1:,}")
    sizes = np.bincount(net.group)
    if (sizes == 0).any():
        raise InputError(f"group {int(np.flatnonzero(sizes == 0)[0])} has no routers; expected groups without gaps")
    if net.routers * int(sizes.max()) > MOST_CELLS:
        raise InputError(f"found {net.routers:,} routers and a group of {int(sizes.max()):,}; expected at most {MOST_CELLS:,} pairs")
    if len(net.latency) and (net.latency.min() < 1 or net.latency.max() > MOST_LATENCY):
        wrong = net.latency[(net.latency < 1) | (net.latency > MOST_LATENCY)][0]
        raise InputError(f"found a latency of {int(wrong)} cycles; expected 1 to {MOST_LATENCY:,}")
    if (net.a == net.b).any():
        raise InputError(f"link {int(np.flatnonzero(net.a == net.b)[0])} joins a router with itself")


def _check_local(net: Network) -> None:
    inner = ~net.is_global
    low, high = np.minimum(net.a[inner], net.b[inner]), np.maximum(net.a[inner], net.b[inner])
    pairs = np.unique(low * net.routers + high)
    have = np.bincount(net.group[pairs // net.routers], minlength=net.groups)
    sizes = np.bincount(net.group)
    short = np.flatnonzero(have < sizes * (sizes - 1) // 2)
    if len(short):
        group = int(short[0])
        inside = np.flatnonzero(net.group == group)
        known = set(pairs.tolist())
        for i, one in enumerate(inside.tolist()):
            for other in inside[i + 1 :].tolist():
                if one * net.routers + other not in known:
                    raise InputError(
                        f"group {group}: routers {one} and {other} have no link; expected links between all routers of a group"
                    )


def _check_global(net: Network) -> None:
    groups = net.groups
    if groups == 1:
        return
    joined = np.zeros((groups, groups), bool)
    world = net.is_global & ~net.dead
    joined[net.group[net.a[world]], net.group[net.b[world]]] = True
    joined |= joined.T
    with_nodes = np.zeros(groups, bool)
    with_nodes[net.group[net.node_router]] = True
    reach = joined | ((joined.astype(np.float32) @ joined.astype(np.float32)) > 0)
    np.fill_diagonal(reach, True)
    lost = np.argwhere(~reach & with_nodes[:, None] & with_nodes[None, :])
    if len(lost):
        one, other = lost[0].tolist()
        raise InputError(f"groups {one} and {other} are not connected by at most two global channels; expected a connected Dragonfly")
