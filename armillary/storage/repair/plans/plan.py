"""A repair plan: which bytes of which lost block are rebuilt from which helpers, along which tree, at which destination.

A plan is a list of *sub-repairs*, each of which rebuilds the bytes [start, stop) of a lost block. The helpers multiply their bytes by
their coefficients, and every vertex of the tree XORs what comes in with what it has and passes the sum on, up to the destination.
Vertices are hosts (by their numbers), then rack switches, then the core. Plans of a hundred thousand blocks are arrays; `plan[i]` and
iteration give sub-repairs as objects.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from armillary.errors import InputError

from ..coding import galois
from .problem import Problem

#: Slices flow through a tree, k flows go straight to the destination, or whole blocks are sent round by round.
PIPELINE, STAR, ROUNDS = 0, 1, 2
SHAPES = ("pipeline", "star", "rounds")


@dataclass(frozen=True)
class SubRepair:
    """The repair of bytes [start, stop) of one lost block.

    `helpers` are (node, block index, coefficient), `edges` are (child, parent) vertices, children before parents, and `rate` is the bytes/s
    on which the plan counts.
    """

    stripe: int
    lost: int
    start: int
    stop: int
    helpers: tuple[tuple[int, int, int], ...]
    edges: tuple[tuple[int, int], ...]
    destination: int
    shape: str
    rate: float


@dataclass(frozen=True)
class RepairPlan:
    """Sub-repairs as arrays; sub-repair s has the edges first[s] … first[s + 1], each of which comes before those that need it.

    `least_s` is the time that the busiest link needs for its bytes, and `rate` the rebuilt bytes/s that follow from it. `seconds` is how
    long the plan takes in the simulation, with start-up, fair sharing and the window of blocks that run at once, if the bandwidth stays
    as it is. `source[e]` is the block index that the child of edge e adds itself, or -1 for a vertex that only passes sums on.
    `uplink[s]` is below 1 where one transmission serves several lost blocks.
    """

    problem: Problem
    technique: str
    least_s: float
    block: np.ndarray
    start: np.ndarray
    stop: np.ndarray
    destination: np.ndarray
    shape: np.ndarray
    uplink: np.ndarray
    first: np.ndarray
    child: np.ndarray
    parent: np.ndarray
    source: np.ndarray
    #: Whether the waiting block whose links are idlest starts, rather than the next one.
    fit: bool = False
    #: Whether the ranges of a block keep to rates in proportion to their lengths, so that all of them end together.
    paced: bool = False

    def __len__(self) -> int:
        return len(self.block)

    @functools.cached_property
    def seconds(self) -> float:
        """Seconds until the last byte is rebuilt, simulated under the bandwidth that the plan was made for."""
        from ..simulation.flows import simulate

        return simulate(self).seconds

    @property
    def rate(self) -> float:
        """Rebuilt bytes/s while the busiest link is busy."""
        return float(self.problem.size.sum()) / self.least_s if self.least_s > 0 else np.inf

    @property
    def ranges(self) -> list[tuple[int, int, tuple[int, ...]]]:
        """(start, stop, helper nodes) of every sub-repair."""
        return [(sub.start, sub.stop, tuple(node for node, _, _ in sub.helpers)) for sub in self]

    def __iter__(self) -> Iterator[SubRepair]:
        return (self[s] for s in range(len(self)))

    def __getitem__(self, s: int) -> SubRepair:
        if not -len(self) <= s < len(self):
            raise IndexError(s)
        s %= len(self)
        problem, row = self.problem, int(self.block[s])
        edges = slice(int(self.first[s]), int(self.first[s + 1]))
        adds = self.source[edges] >= 0
        nodes, indices = self.child[edges][adds].tolist(), self.source[edges][adds].tolist()
        lost = int(problem.index[row])
        coefficients = problem.code.coefficients(lost, indices).tolist()
        tree = tuple(zip(self.child[edges].tolist(), self.parent[edges].tolist()))
        length = int(self.stop[s] - self.start[s])
        return SubRepair(
            int(problem.stripe[row]), lost, int(self.start[s]), int(self.stop[s]), tuple(zip(nodes, indices, coefficients)), tree,
            int(self.destination[s]), SHAPES[self.shape[s]], length / self.least_s if self.least_s > 0 else np.inf,
        )  # fmt: skip

    def vertex(self, number: int) -> str:
        """The name of a vertex: a node, `rack 2`, or `core`."""
        fabric = self.problem.fabric
        if number < fabric.nodes:
            return self.problem.node_name(number)
        return f"rack {number - fabric.nodes}" if number < fabric.nodes + fabric.racks else "core"

    def to_json(self, indent: int | None = None) -> str:
        """The plan as JSON for whoever carries it out.

        `{technique, k, m, matrix, seconds, bytes_per_s, sub_repairs: [{stripe, lost, range: [start, stop], to, bytes_per_s, shape,
        helpers: [{helper, index, coefficient, via}], sums: [{at, via}]}]}`; `via` is the vertex that a stream goes to next.
        """
        code, problem = self.problem.code, self.problem
        listed = []
        for sub in self:
            up = dict(sub.edges)
            adding = {node for node, _, _ in sub.helpers}
            passing = [{"at": self.vertex(v), "via": self.vertex(up[v])} for v in up if v not in adding]
            helpers = [
                {"helper": self.vertex(node), "index": index, "coefficient": c, "via": self.vertex(up[node])}
                for node, index, c in sub.helpers
            ]
            stripe = problem.stripe_names[sub.stripe] if problem.stripe_names else sub.stripe
            listed.append({
                "stripe": stripe, "lost": sub.lost, "range": [sub.start, sub.stop], "to": self.vertex(sub.destination),
                "bytes_per_s": sub.rate,
                "shape": sub.shape, "helpers": helpers, "sums": passing,
            })  # fmt: skip
        what = {
            "technique": self.technique,
            "k": code.k,
            "m": code.m,
            "matrix": code.matrix,
            "seconds": self.seconds,
            "bytes_per_s": self.rate,
        }
        return json.dumps({**what, "sub_repairs": listed}, indent=indent)


def along_tree(
    coefficients: np.ndarray, child: np.ndarray, parent: np.ndarray, source: np.ndarray, read: Callable[[int, int], np.ndarray], length: int
) -> np.ndarray:
    """The bytes that the destination gets when helpers scale and add their own bytes and every vertex adds what comes in.

    `read(node, index)` gives a helper's bytes. Edges are in such an order that a vertex has all its input before it sends.
    """
    held: dict[int, list[np.ndarray]] = {}
    place = 0
    for here, above, index in zip(child.tolist(), parent.tolist(), source.tolist()):
        inputs = held.pop(here, [])
        if index >= 0:
            own = read(here, index)
            if len(own) != length:
                raise InputError(f"node {here}: found {len(own)} bytes of block {index}; expected {length}")
            factors = np.ones(len(inputs) + 1, np.uint8)
            factors[0] = coefficients[place]
            place += 1
            # The helper's own bytes and the partial sums that it received, in one pass.
            sent = _combined(factors, [own, *inputs], length)
        elif len(inputs) == 1:
            sent = inputs[0]
        else:
            sent = _combined(np.ones(len(inputs), np.uint8), inputs, length)
        held.setdefault(above, []).append(sent)
    (streams,) = held.values()
    return streams[0] if len(streams) == 1 else _combined(np.ones(len(streams), np.uint8), streams, length)


def _combined(factors: np.ndarray, streams: list[np.ndarray], length: int) -> np.ndarray:
    return galois.combine_rows(factors, streams, length)


def execute(plan: RepairPlan, read: Callable[[int, int, int, int], Any], *, names: bool = False) -> bytes | dict[tuple[int, int], bytes]:
    """Carries a plan out on real bytes along its trees, and returns the lost block, or `{(stripe, index): bytes}` of several.

    `read(node, stripe, a, b)` returns the bytes [a, b) of the block of that stripe on that node. Nodes and stripes are numbers, or names
    with `names`.
    """
    problem = plan.problem
    out = {row: np.zeros(int(problem.size[row]), np.uint8) for row in range(len(problem))}
    filled = np.zeros(len(problem), np.int64)
    for s in range(len(plan)):
        row, a, b = int(plan.block[s]), int(plan.start[s]), int(plan.stop[s])
        edges = slice(int(plan.first[s]), int(plan.first[s + 1]))
        stripe: Any = int(problem.stripe[row])
        if names and problem.stripe_names:
            stripe = problem.stripe_names[stripe]

        def fetch(node: int, index: int, stripe: Any = stripe, a: int = a, b: int = b) -> np.ndarray:
            data = read(problem.node_name(node) if names else node, stripe, a, b)  # type: ignore[arg-type]
            return np.frombuffer(data, np.uint8)

        out[row][a:b] = along_tree(helper_coefficients(plan, s), plan.child[edges], plan.parent[edges], plan.source[edges], fetch, b - a)
        filled[row] += b - a
    if (filled != problem.size).any():
        raise InputError(f"the plan rebuilds {int(filled.sum())} of {int(problem.size.sum())} bytes")
    if len(problem) == 1:
        return out[0].tobytes()
    return {(int(problem.stripe[row]), int(problem.index[row])): data.tobytes() for row, data in out.items()}


def helper_coefficients(plan: RepairPlan, s: int) -> np.ndarray:
    """The coefficients of a sub-repair's helpers in the order of its edges, computed from the code because they are never stored."""
    sources = plan.source[int(plan.first[s]) : int(plan.first[s + 1])]
    return plan.problem.code.coefficients(int(plan.problem.index[plan.block[s]]), sources[sources >= 0].tolist())
