"""A network of clocks: which nodes exchange time stamps, and what is known of their links."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from armillary.errors import InputError

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
MOST_NODES, MOST_LINKS = 1_000_000, 4_000_000


@dataclass(frozen=True)
class ClockNetwork:
    """Undirected links between `nodes` clocks, one link per pair.

    `delay` is the most seconds that a stamp takes along a link, `asymmetry` the most by which its two directions differ, and `jitter` the
    most that is added to a single passage. A link leads from `a` to `b`; which way that is matters only to adversaries.
    """

    nodes: int
    a: Ints
    b: Ints
    delay: Floats
    asymmetry: Floats
    jitter: Floats
    #: Names as a file had them; nodes of built-in networks have numbers.
    names: tuple[str, ...] = ()
    #: The line of a file in which each link stood, from which messages are made.
    where: tuple[str, ...] = field(default=(), repr=False)

    def __post_init__(self) -> None:
        if not 2 <= self.nodes <= MOST_NODES:
            raise InputError(f"found {self.nodes:,} clocks; expected 2 to {MOST_NODES:,}")
        if not 1 <= len(self.a) <= MOST_LINKS:
            raise InputError(f"found {len(self.a):,} links; expected 1 to {MOST_LINKS:,}")
        for name, column in (("b", self.b), ("delay", self.delay), ("asymmetry", self.asymmetry), ("jitter", self.jitter)):
            if len(column) != len(self.a):
                raise InputError(f"found {len(self.a)} links and {len(column)} values of {name}; expected as many of each")
        ends = np.concatenate([self.a, self.b])
        if ends.min() < 0 or ends.max() >= self.nodes:
            raise InputError(f"found node {int(ends.min() if ends.min() < 0 else ends.max())}; expected 0 to {self.nodes - 1}")
        self._refuse(self.a == self.b, "a link from {a} to itself; expected two clocks")
        for name, column in (("delay", self.delay), ("asymmetry", self.asymmetry), ("jitter", self.jitter)):
            said = f"a {name} of {{{name}}} between {{a}} and {{b}}; expected seconds of at least 0"
            self._refuse(~(np.isfinite(column) & (column >= 0)), said)
        self._refuse(self.delay > 3600, "a delay of {delay} between {a} and {b}; expected at most an hour")
        said = "an asymmetry of {asymmetry} s between {a} and {b}, whose delay is {delay} s; expected at most the delay"
        self._refuse(self.asymmetry > self.delay, said)
        pairs = np.sort(np.stack([self.a, self.b], 1), 1)
        _, first, counts = np.unique(pairs, axis=0, return_index=True, return_counts=True)
        if counts.max() > 1:
            self._refuse(np.arange(len(self.a)) == first[np.argmax(counts)], "two links between {a} and {b}; expected one")
        if (self.levels < 0).any():
            lost = int(np.flatnonzero(self.levels < 0)[0])
            raise InputError(f"found no way from {self.name(0)} to {self.name(lost)}; expected a connected network", where=self._file())

    def _refuse(self, bad: npt.NDArray[np.bool_], said: str) -> None:
        if bad.any():
            i = int(np.flatnonzero(bad)[0])
            facts: dict[str, Any] = {
                "a": self.name(int(self.a[i])), "b": self.name(int(self.b[i])),
                **{name: f"{getattr(self, name)[i]:g}" for name in ("delay", "asymmetry", "jitter")},
            }  # fmt: skip
            raise InputError("found " + said.format(**facts), where=self.where[i] if self.where else None)

    def _file(self) -> str | None:
        return self.where[0].rpartition(":")[0] if self.where else None

    def name(self, node: int) -> str:
        """The name of a node, or its number."""
        return self.names[node] if self.names else str(node)

    @property
    def links(self) -> int:
        """The number of links."""
        return len(self.a)

    @cached_property
    def ways(self) -> tuple[Ints, Ints, Ints, Floats]:
        """The links by node: where each node's begin, the other end, the number of the link, and +1 where the node is its first end."""
        source, other = np.concatenate([self.a, self.b]), np.concatenate([self.b, self.a])
        link = np.concatenate([np.arange(self.links)] * 2)
        sign = np.repeat([1.0, -1.0], self.links)
        order = np.lexsort((other, source))
        start = np.zeros(self.nodes + 1, np.int64)
        np.cumsum(np.bincount(source, minlength=self.nodes), out=start[1:])
        return start, other[order], link[order], sign[order]

    @cached_property
    def levels(self) -> Ints:
        """Hops from node 0; −1 for a node without a way to it."""
        start, other, _, _ = self.ways
        found = np.full(self.nodes, -1, np.int64)
        found[0], front = 0, np.array([0])
        while len(front):
            near = np.concatenate([other[start[v] : start[v + 1]] for v in front.tolist()])
            new = np.unique(near[found[near] < 0])
            found[new] = found[front[0]] + 1
            front = new
        return found

    def tree(self) -> Ints:
        """A breadth-first tree from node 0: for each node the place in `ways` of the link to its parent, −1 for the root."""
        start, other, _, _ = self.ways
        up = np.full(self.nodes, -1, np.int64)
        for v in range(1, self.nodes):
            places = np.arange(start[v], start[v + 1])
            up[v] = places[np.argmax(self.levels[other[places]] == self.levels[v] - 1)]
        return up

    def with_links(self, **columns: Floats | float) -> ClockNetwork:
        """The same links with other delays, asymmetries or jitters; a number holds for all of them."""
        full = {name: np.full(self.links, float(x)) if np.ndim(x) == 0 else np.asarray(x, np.float64) for name, x in columns.items()}
        return replace(self, **full)  # type: ignore[arg-type]

    @staticmethod
    def of(
        links: Sequence[Sequence[int]] | Ints, nodes: int, *, delay: Floats | float = 1e-6, asymmetry: Floats | float = 0.0,
        jitter: Floats | float = 0.0, names: tuple[str, ...] = (), where: tuple[str, ...] = (),
    ) -> ClockNetwork:  # fmt: skip
        """A network of these pairs; delays, asymmetries and jitters in seconds, one for all links or one each."""
        pairs = np.asarray(links, np.int64).reshape(-1, 2)
        a, b = pairs[:, 0].copy(), pairs[:, 1].copy()
        late, apart, shaky = (
            np.full(len(a), float(x)) if np.ndim(x) == 0 else np.asarray(x, np.float64) for x in (delay, asymmetry, jitter)
        )
        return ClockNetwork(nodes, a, b, late, apart, shaky, names, where)

    @staticmethod
    def from_networkx(graph: Any) -> ClockNetwork:
        """From a networkx graph whose edges may have `delay`, `asymmetry` and `jitter` in seconds (1 µs, 0 and 0 by default)."""
        number = {node: i for i, node in enumerate(graph.nodes)}
        edges = [(number[a], number[b], facts) for a, b, facts in graph.edges(data=True)]
        delay, asymmetry, jitter = (
            np.array([float(facts.get(name, usual)) for *_, facts in edges])
            for name, usual in (("delay", 1e-6), ("asymmetry", 0.0), ("jitter", 0.0))
        )
        return ClockNetwork.of(
            [(a, b) for a, b, _ in edges], len(number), delay=delay, asymmetry=asymmetry, jitter=jitter, names=tuple(map(str, number))
        )

    @staticmethod
    def from_cluster(cluster: Any, network: str = "") -> ClockNetwork:
        """The hosts and switches of a cluster's network, with the latencies of its cables; 1 µs where they are unknown."""
        graph = cluster.graph(network or None)
        pairs = np.sort(np.stack([graph.u, graph.v], 1).astype(np.int64), 1)
        unique, first = np.unique(pairs, axis=0, return_index=True)
        delay = np.nan_to_num(np.asarray(graph.latency, np.float64)[first], nan=1e-6)
        return ClockNetwork.of(unique, graph.vertices, delay=np.where(delay > 0, delay, 1e-6))
