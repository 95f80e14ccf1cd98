"""The integer program of provisioning and routing, as sparse matrices for HiGHS and as an MPS file.

x[m, k] ∈ {0, 1} is an instance of service m on node k. z[u, 1, k] ≥ 0 is the share of user u's requests whose first service runs on node k,
and z[u, l, j, k] ≥ 0 the share that goes from service l on node j to service l + 1 on node k. Each user has a unit flow that is conserved
between services, and flows into service l on node k only as far as x[m_l, k] allows. Storage, cores and deadlines bound the rest. The flows
stay continuous: without capacities they are whole at the optimum, and that is what makes the program solvable at all.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from .plan import Plan
from .problem import Problem


def variables(p: Problem) -> int:
    """The number of variables of the integer program."""
    users, nodes, services = p.shape
    return services * nodes + users * nodes + int((p.length - 1).sum()) * nodes * nodes


@dataclass(frozen=True, eq=False)
class IntegerProgram:
    """min cost·v + constant, subject to matrix·v within [low, high] and 0 ≤ v ≤ upper; the first M·K variables are whole."""

    problem: Problem
    cost: np.ndarray
    constant: float
    matrix: Any
    low: np.ndarray
    high: np.ndarray
    upper: np.ndarray
    whole: int
    #: Where the flows of each user begin.
    start: np.ndarray

    def plan(self, values: np.ndarray) -> Plan:
        """The plan in a solution: instances rounded, flows taken apart into paths."""
        p = self.problem
        placed = values[: self.whole].reshape(len(p.services), len(p.nodes)) > 0.5
        users, shares, paths = [], [], []
        longest = int(p.length.max())
        for u in range(len(p.users)):
            for share, path in self._paths(u, values, placed):
                users.append(u)
                shares.append(share)
                paths.append(path + [-1] * (longest - len(path)))
        return Plan(p, placed, np.array(users, np.int64), np.array(shares), np.array(paths, np.int64).reshape(-1, longest))

    def _paths(self, u: int, values: np.ndarray, placed: np.ndarray) -> list[tuple[float, list[int]]]:
        """A user's flow as paths with shares that sum to one; the widest path is taken away until hardly anything is left."""
        p, nodes = self.problem, len(self.problem.nodes)
        chain = p.chain[p.chain_start[u] : p.chain_start[u + 1]]
        at = int(self.start[u])
        entry = np.maximum(values[at : at + nodes], 0) * placed[chain[0]]
        steps = []
        for place in range(1, len(chain)):
            begin = at + nodes + (place - 1) * nodes * nodes
            flow = np.maximum(values[begin : begin + nodes * nodes].reshape(nodes, nodes), 0)
            steps.append(flow * placed[chain[place - 1]][:, None] * placed[chain[place]][None, :])
        found: list[tuple[float, list[int]]] = []
        for _ in range(nodes * nodes * len(chain)):
            width, back = entry.copy(), []
            for flow in steps:
                through = np.minimum(width[:, None], flow)
                back.append(through.argmax(0))
                width = through.max(0)
            end = int(width.argmax())
            share = float(width[end])
            if share <= 1e-7:
                break
            path = [end]
            for came in reversed(back):
                path.append(int(came[path[-1]]))
            path.reverse()
            entry[path[0]] -= share
            for flow, a, b in zip(steps, path, path[1:]):
                flow[a, b] -= share
            found.append((share, path))
        total = sum(share for share, _ in found)
        return [(share / total, path) for share, path in found]

    def values_of(self, plan: Plan) -> np.ndarray:
        """The solution that a plan is, to start a solver from."""
        p, nodes = self.problem, len(self.problem.nodes)
        out = np.zeros(len(self.cost))
        out[: self.whole] = plan.placed.ravel()
        for u, share, path in zip(plan.user.tolist(), plan.share.tolist(), plan.path.tolist()):
            at = int(self.start[u])
            out[at + path[0]] += share
            for place in range(1, int(p.length[u])):
                out[at + nodes + (place - 1) * nodes * nodes + path[place - 1] * nodes + path[place]] += share
        return out

    def write_mps(self, path: str | os.PathLike[str]) -> None:
        """Writes a free MPS file; the constant of the objective stands as the negative right-hand side of its row."""
        columns = self.matrix.tocsc()
        equal = self.low == self.high
        kinds = np.where(equal, "E", "L")
        lines = ["NAME provisioning", "ROWS", " N cost", *(f" {kind} r{i}" for i, kind in enumerate(kinds)), "COLUMNS"]
        lines.append(" M1 'MARKER' 'INTORG'")
        for j in range(len(self.cost)):
            if j == self.whole:
                lines.append(" M2 'MARKER' 'INTEND'")
            if self.cost[j]:
                lines.append(f" v{j} cost {float(self.cost[j])!r}")
            mine = slice(columns.indptr[j], columns.indptr[j + 1])
            lines += [f" v{j} r{row} {value!r}" for row, value in zip(columns.indices[mine].tolist(), columns.data[mine].tolist())]
        if self.whole == len(self.cost):
            lines.append(" M2 'MARKER' 'INTEND'")
        lines += ["RHS", f" rhs cost {-self.constant!r}"]
        lines += [f" rhs r{i} {float(value)!r}" for i, value in enumerate(self.high) if value]
        lines += ["BOUNDS", *(f" UP bound v{j} {float(value)!r}" for j, value in enumerate(self.upper)), "ENDATA"]
        Path(path).write_text("\n".join(lines) + "\n")


def integer_program(p: Problem, near: np.ndarray | None = None) -> IntegerProgram:
    """The integer program of a problem; `near` (U × c) restricts each user to some nodes, which is no longer exact but smaller."""
    from scipy.sparse import coo_array

    users, nodes, services = p.shape
    mine = np.tile(np.arange(nodes), (users, 1)) if near is None else near
    wide = mine.shape[1]
    square = wide * wide
    size = wide + (p.length - 1) * square
    start = services * nodes + np.concatenate([[0], np.cumsum(size)[:-1]])
    total = services * nodes + int(size.sum())
    cost_0, latency_0 = p.scale
    cost = np.zeros(total)
    cost[: services * nodes] = np.repeat(p.alpha * p.price / cost_0, nodes)
    upper = np.ones(total)
    made = _Rows()
    loads: list[tuple[np.ndarray, np.ndarray, float]] = []
    lasting: list[tuple[np.ndarray, np.ndarray, float]] = []
    i = np.arange(wide)
    step_of = np.arange(square).reshape(wide, wide)
    came, goes = np.tile(i[:, None], (1, wide)), np.tile(i, (wide, 1))
    for u in range(users):
        chain, at, k = p.chain[p.chain_start[u] : p.chain_start[u + 1]], int(start[u]), mine[u]
        flows = at + np.arange(int(size[u]))
        travel = np.concatenate([p.access[u, k], np.tile((p.mb[u] * p.distance[np.ix_(k, k)]).ravel(), len(chain) - 1)])
        # A way that does not exist carries nothing.
        upper[flows[~np.isfinite(travel)]] = 0.0
        travel = np.where(np.isfinite(travel), travel, 0.0)
        cost[flows] = (1 - p.alpha) / latency_0 * p.weight[u] * travel
        made.add((np.zeros(wide, int), at + i, 1.0), most=1.0, least=1.0, rows=1)
        made.add((i, at + i, 1.0), (i, chain[0] * nodes + k, -1.0), rows=wide)
        loads.append((k, at + i, float(p.need[p.chain_start[u]])))
        for place in range(1, len(chain)):
            step = at + wide + (place - 1) * square + step_of
            before = (i, at + i, 1.0) if place == 1 else (goes, step - square, 1.0)
            made.add(before, (came, step, -1.0), least=0.0, rows=wide)
            made.add((goes, step, 1.0), (i, chain[place] * nodes + k, -1.0), rows=wide)
            loads.append((k[goes], step, float(p.need[p.chain_start[u] + place])))
        if np.isfinite(p.deadline[u]):
            lasting.append((flows, travel, float(p.deadline[u] - p.processing[u])))
    made.add(*loads, most=p.room, rows=nodes)
    x = np.arange(services * nodes).reshape(services, nodes)
    made.add((np.tile(np.arange(nodes), (services, 1)), x, np.tile(p.space[:, None], (1, nodes))), most=p.storage, rows=nodes)
    for flows, travel, most in lasting:
        # Scaled by the deadline, because HiGHS' tolerances are absolute.
        unit = max(most, 1e-9)
        made.add((np.zeros(len(flows), int), flows, travel / unit), most=most / unit, rows=1)
    constant = (1 - p.alpha) * float((p.weight * p.processing).sum()) / latency_0
    entries = (np.concatenate(made.entries), (np.concatenate(made.rows), np.concatenate(made.columns)))
    matrix = coo_array(entries, shape=(made.count, total)).tocsr()
    return IntegerProgram(p, cost, constant, matrix, np.concatenate(made.low), np.concatenate(made.high), upper, services * nodes, start)


class _Rows:
    """Constraints as they are collected: entries by row and column, and the bounds of the rows."""

    def __init__(self) -> None:
        self.rows: list[np.ndarray] = []
        self.columns: list[np.ndarray] = []
        self.entries: list[np.ndarray] = []
        self.low: list[np.ndarray] = []
        self.high: list[np.ndarray] = []
        self.count = 0

    def add(self, *parts: tuple[Any, Any, Any], rows: int, least: Any = -np.inf, most: Any = 0.0) -> None:
        """Adds `rows` constraints, least ≤ Σ ≤ most, from parts of (row within them, column, value)."""
        for row, column, value in parts:
            self.rows.append(np.ravel(row) + self.count)
            self.columns.append(np.ravel(column))
            self.entries.append(np.broadcast_to(value, np.shape(column)).ravel())
        self.low.append(np.broadcast_to(np.asarray(least, float), rows))
        self.high.append(np.broadcast_to(np.asarray(most, float), rows))
        self.count += rows
