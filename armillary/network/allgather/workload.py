"""The work of a case: a graph with nodes and block sizes, the machine, and for sparse products what is multiplied."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from armillary.arena import Case, InputError
from armillary.comm.virtual.placement import machine

from .graphs.built_in import ROWS_PER_RANK, Matrix, matrix, named, of_matrix, owners, rows_of
from .graphs.neighbours import Neighbours
from .planning.problem import Problem, problem

#: The bytes of a number, and of a number with its column, in a sparse matrix.
NUMBER_BYTES, ENTRY_BYTES = 8, 12


@dataclass(frozen=True, eq=False)
class Work:
    """What one case asks for. `multiply_bytes` are the bytes that each rank reads and writes to multiply, or None."""

    problem: Problem
    cluster: Any
    multiply_bytes: Any = None

    def multiply_s(self) -> float:
        """The seconds in which the slowest rank multiplies, if its share of the node's memory decides."""
        if self.multiply_bytes is None:
            return 0.0
        tier = self.cluster.node(0).memories[0]
        sharing = np.bincount(self.problem.node_of)[self.problem.node_of]
        core = float(tier.copy_bandwidth_per_core or 10e9)
        rate = np.minimum(float(tier.bandwidth or 100e9) * tier.count / sharing, 2 * core)
        return float((self.multiply_bytes / rate).max())


def built_in(case: Case, rng: np.random.Generator) -> Work:
    """The work of a built-in case."""
    said = case.parameters
    nodes, per_node, nbytes = int(said["nodes"]), int(said["per_node"]), int(said["bytes"])
    ranks = nodes * per_node
    graph, product = _graph(str(said["graph"]), ranks, nbytes, rng)
    if said.get("shuffled"):
        graph = graph.renumbered(rng.permutation(ranks))
    cluster = machine_with(case.cluster or str(said["machine"]), nodes)
    return Work(problem(graph, per_node, nbytes), cluster, product)


def _graph(kind: str, ranks: int, nbytes: int, rng: np.random.Generator) -> tuple[Neighbours, Any]:
    family, _, name = kind.partition("-")
    if family != "spmm":
        return named(kind, ranks, rng), None
    rows = min(ROWS_PER_RANK, max(1, nbytes // NUMBER_BYTES))
    found = matrix(name, ranks, rows, rng)
    return of_matrix(found, ranks), multiply_bytes(found, ranks, nbytes // (NUMBER_BYTES * rows))


def multiply_bytes(found: Matrix, ranks: int, columns: int) -> Any:
    """The bytes that each rank moves to multiply its rows: its entries, each row of the dense block that it needs once, and its result."""
    owner = owners(found.rows, ranks)
    mine = owner[found.row]
    needed = np.unique(mine * found.rows + found.column) // found.rows
    dense = np.bincount(needed, minlength=ranks) + rows_of(found.rows, ranks)
    return np.bincount(mine, minlength=ranks) * ENTRY_BYTES + dense * NUMBER_BYTES * columns


def machine_with(cluster: Any, nodes: int) -> Any:
    """The cluster of this name, or itself, which must have so many nodes."""
    made = machine(cluster, 1)
    if made.nodes < nodes:
        raise InputError(f"found {made.nodes} nodes in {made.name}; expected at least {nodes}, or more ranks per node")
    return made


def own(graph: Neighbours, found: Matrix | None, how: Any, number: int) -> Work:
    """The work of a user's file with the `number`-th of its sizes."""
    ranks = graph.ranks
    cluster = machine_with(how.machine, -(-ranks // how.per_node))
    if found is None:
        return Work(problem(graph, how.per_node, int(how.bytes[number])), cluster)
    columns = int(how.columns[number])
    return Work(
        problem(graph, how.per_node, rows_of(found.rows, ranks) * NUMBER_BYTES * columns), cluster, multiply_bytes(found, ranks, columns)
    )
