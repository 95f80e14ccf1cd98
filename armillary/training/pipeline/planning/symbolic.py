"""Step time and memory as linear expressions of how many layers of each type and recomputation sit on each stage, for an ILP to solve.

Variables n[t, r, q] count the layers of type t with option r on stage q (stages in pipeline order: chunk 0 of all ranks first). With
f_s = Σ n·f_t (the head on the first stage, the tail on the last) and b_s = Σ n·(b_t + extra_{t,r}):

1F1B:         T ≥ Σ_{j<s} f_j + U_s + (m − w_s)·f_s + m·b_s + Σ_{j<s} b_j, with w_s = min(m, p − s),
              U_s ≥ w_s·f_s and U_s ≥ f_s + Σ_{j>s} (f_j + b_j)
interleaved:  T ≥ m·t_s + (1/v)·Σ_{j≠s} t_j over ranks, t = f + b, plus p·(largest chunk − mean chunk without recomputation)
ZB-H1:        T ≥ m·t_s + Σ_{j≠s} (t_j − 2·w_j), where w are the gradients of weights

The first is a true lower bound of 1F1B without transfers; the others are approximate. Memory on rank s: overhead + Σ n·(state_t +
inflight(q)·kept_{t,r}) + the workspace of the options that it uses ≤ capacity, at every moment that may be its worst.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from scipy import sparse
from scipy.optimize import Bounds, LinearConstraint, milp

from ..simulation.schedule import IntArray
from ..simulation.simulator import FloatArray
from .layers import Division, Layers
from .search import Setting

#: How many units a stage may have more, or fewer, than the mean: with one chunk per rank, and with several, which pay for uneven chunks.
SPREAD, SPREAD_OF_CHUNKS = 3, 1


def efficient(kept: FloatArray, extra: FloatArray) -> list[int]:
    """The options on the lower convex hull of (bytes, seconds): a mix of two others beats every other option in both."""
    order = sorted(range(len(kept)), key=lambda r: (-kept[r], extra[r]))
    hull: list[int] = []
    for r in order:
        if hull and (kept[r] >= kept[hull[-1]] or extra[r] < extra[hull[-1]]):
            if extra[r] >= extra[hull[-1]]:
                continue
            while hull and extra[r] <= extra[hull[-1]]:
                hull.pop()
        while len(hull) > 1:
            a, b = hull[-2], hull[-1]
            if (extra[b] - extra[a]) * (kept[a] - kept[r]) >= (extra[r] - extra[a]) * (kept[a] - kept[b]):
                hull.pop()
            else:
                break
        hull.append(r)
    return hull


@dataclass(frozen=True, eq=False)
class Units:
    """Body layers as runs of equal units: `size` layers form one unit (2 where attention and MLP alternate), `count` units one run.

    All arrays have one row per run; the costs of a run are the means over its layers.
    """

    size: int
    count: IntArray
    forward: FloatArray
    backward: FloatArray
    weight: FloatArray
    extra: FloatArray
    kept: FloatArray
    state: FloatArray
    workspace: FloatArray

    @staticmethod
    def of(layers: Layers) -> Units:
        """Runs of layers of one type; a repeating pattern of up to four types forms one unit."""
        types = layers.types[layers.first : layers.first + layers.body]
        size = next((k for k in (1, 2, 3, 4) if len(types) % k == 0 and _runs(types, k) <= max(8, _runs(types, 1) // 4)), 1)
        groups = [tuple(types[i : i + size]) for i in range(0, len(types), size)]
        starts = [i for i in range(len(groups)) if i == 0 or groups[i] != groups[i - 1]]
        stops = [*starts[1:], len(groups)]

        def mean(values: FloatArray) -> FloatArray:
            body = values[layers.first : layers.first + layers.body]
            unit = body.reshape(len(groups), size, *body.shape[1:]).sum(1)
            return np.array([unit[a:b].mean(0) for a, b in zip(starts, stops)])

        space = layers.workspace[layers.first : layers.first + layers.body].reshape(len(groups), size, -1).max(1)
        return Units(
            size, np.array(stops) - np.array(starts), mean(layers.forward), mean(layers.backward), mean(layers.backward_weight),
            mean(layers.extra), mean(layers.kept), mean(layers.state), np.array([space[a:b].max(0) for a, b in zip(starts, stops)]),
        )  # fmt: skip


def _runs(types: tuple[str, ...], size: int) -> int:
    groups = [types[i : i + size] for i in range(0, len(types), size)]
    return 1 + sum(a != b for a, b in itertools.pairwise(groups))


@dataclass(frozen=True)
class Solution:
    """A division of the layers, the step time that the expressions give it, and the gap that the solver left."""

    division: Division
    seconds: float
    gap: float


class Program:
    """The ILP of one kind of schedule."""

    def __init__(self, setting: Setting, *, uniform: bool = False, even: bool = False, bubble: bool = True) -> None:
        self.setting, self.layers = setting, setting.work.layers
        self.units = Units.of(self.layers)
        self.types, self.options, self.stages = len(self.units.count), len(self.layers.options), setting.stages
        self.rows: list[tuple[dict[int, float], float, float]] = []
        self.upper: list[float] = np.repeat(self.units.count, self.options * self.stages).astype(float).tolist()
        self.whole: list[bool] = [True] * len(self.upper)
        for t in range(self.types):
            for r in set(range(self.options)) - set(efficient(self.units.kept[t], self.units.extra[t])) if not uniform else ():
                for q in range(self.stages):
                    self.upper[self.n(t, r, q)] = 0.0
        self._place(even)
        self._order()
        self._memory(uniform)
        self._time(bubble)

    def n(self, t: int, r: int, q: int) -> int:
        """The column of n[t, r, q]."""
        return (t * self.options + r) * self.stages + q

    def column(self, upper: float, integer: bool = False) -> int:
        """A further variable of at least 0."""
        self.upper.append(upper)
        self.whole.append(integer)
        return len(self.upper) - 1

    def at_most(self, row: dict[int, float], most: float) -> None:
        """Adds Σ row·x ≤ most."""
        self.rows.append((row, -np.inf, most))

    def _place(self, even: bool) -> None:
        for t in range(self.types):
            count = float(self.units.count[t])
            self.rows.append(({self.n(t, r, q): 1.0 for r in range(self.options) for q in range(self.stages)}, count, count))
        total = int(self.units.count.sum())
        band = SPREAD if self.setting.chunks == 1 else SPREAD_OF_CHUNKS
        for q in range(self.stages):
            row = {self.n(t, r, q): 1.0 for t in range(self.types) for r in range(self.options)}
            size, mean = total // self.stages + (q < total % self.stages), total / self.stages
            low, high = (size, size) if even else (max(1, math.floor(mean) - band), math.ceil(mean) + band)
            self.rows.append((row, float(low), float(high)))

    def _order(self) -> None:
        """Type t + 1 may sit on stage q only if all of type t sit at or before q."""
        for t in range(self.types - 1):
            before = -1
            for q in range(self.stages):
                done = self.column(1.0, integer=True)
                row = {self.n(t + 1, r, q): 1.0 for r in range(self.options)}
                self.at_most({**row, done: -float(self.units.count[t + 1])}, 0.0)
                later = {self.n(t, r, x): 1.0 for r in range(self.options) for x in range(q + 1, self.stages)}
                self.at_most({**later, done: float(self.units.count[t])}, float(self.units.count[t]))
                if before >= 0:
                    self.at_most({before: 1.0, done: -1.0}, 0.0)
                before = done

    def _memory(self, uniform: bool) -> None:
        work, layers, units = self.setting.work, self.layers, self.units
        ranks = work.ranks
        used = {(r, s): self.column(1.0, integer=True) for r in range(1, self.options) for s in range(1 if uniform else ranks)}
        every = used if not uniform else {(r, s): used[r, 0] for r in range(1, self.options) for s in range(ranks)}
        for (r, s), column in every.items():
            for t in range(self.types):
                row = {self.n(t, r, q): 1.0 for q in range(s, self.stages, ranks)}
                self.at_most({**row, column: -float(units.count[t])}, 0.0)
        if uniform:  # One option for all: at most one is used, and if any is, nothing goes without.
            self.at_most(dict.fromkeys(used.values(), 1.0), 1.0)
            total = float(units.count.sum())
            plain = {self.n(t, 0, q): 1.0 for t in range(self.types) for q in range(self.stages)}
            self.at_most({**plain, **dict.fromkeys(used.values(), total)}, total)
        for s in range(ranks):
            space = self.column(np.inf)
            for r in range(1, self.options):
                self.at_most({every[r, s]: float(units.workspace[:, r].max()) / work.capacity, space: -1.0}, 0.0)
            # Memory is counted in units of the capacity, so that all coefficients are of one size.
            for moment in self.setting.moments[s]:
                row, fixed = {space: 1.0}, work.overhead
                for count, q in zip(moment, range(s, self.stages, ranks)):
                    for t in range(self.types):
                        for r in range(self.options):
                            row[self.n(t, r, q)] = (units.state[t] + count * units.kept[t, r]) / work.capacity
                    for end in _ends(layers, q, self.stages):
                        fixed += layers.state[end] + count * layers.kept[end, 0]
                self.at_most(row, 1 - fixed / work.capacity)

    def _sum(self, q: int, which: str) -> tuple[dict[int, float], float]:
        """(coefficients, constant) of a stage's forward, backward or weight seconds."""
        units, layers = self.units, self.layers
        values = {"forward": units.forward, "backward": units.backward, "weight": units.weight}[which]
        row = {
            self.n(t, r, q): values[t] + (units.extra[t, r] if which == "backward" else 0.0)
            for t in range(self.types)
            for r in range(self.options)
        }
        fixed = {"forward": layers.forward, "backward": layers.backward, "weight": layers.backward_weight}[which]
        return row, float(sum(fixed[end] for end in _ends(layers, q, self.stages)))

    def _time(self, bubble: bool) -> None:
        work = self.setting.work
        m, p, v = work.micros, work.ranks, self.setting.chunks
        self.time = self.column(np.inf)
        self.cost = {self.time: 1.0}
        forward = [self._sum(q, "forward") for q in range(self.stages)]
        backward = [self._sum(q, "backward") for q in range(self.stages)]
        weight = [self._sum(q, "weight") for q in range(self.stages)]
        if not bubble:
            for s in range(p):
                self._below([(e[q], float(m)) for e in (forward, backward) for q in range(s, self.stages, p)])
            return
        whole = float((self.layers.forward + self.layers.backward).sum())
        least, waits = self._least_load(), 0.0 if v == 1 else 1 / v
        self.rows.append(({self.time: 1.0}, (m - waits) * least + waits * whole, np.inf))
        if self.setting.order == "1f1b":
            for s in range(p):
                ahead = min(m, p - s)
                start = self.column(np.inf)
                self._below([(forward[s], float(ahead))], start)
                self._below([(forward[s], 1.0), *[(e[j], 1.0) for e in (forward, backward) for j in range(s + 1, p)]], start)
                early = [(e[j], 1.0) for e in (forward, backward) for j in range(s)]
                self._below([*early, (({start: 1.0}, 0.0), 1.0), (forward[s], float(m - ahead)), (backward[s], float(m))])
            return
        for s in range(p):
            terms = []
            for q in range(self.stages):
                mine = q % p == s
                share = float(m) if mine else 1.0 / v
                terms += [(forward[q], share), (backward[q], share)]
                if self.setting.order == "zb-h1" and not mine:
                    terms.append((weight[q], -2.0))
            self._below(terms)
        if v > 1:
            largest = self.column(np.inf)
            self.cost[largest] = float(p)
            most = -(-int(self.units.count.sum()) // self.stages)
            self.rows.append(({largest: 1.0}, most * float((self.units.forward + self.units.backward).min()), np.inf))
            for q in range(self.stages):
                self._below([(forward[q], 1.0), (backward[q], 1.0)], largest)

    def _least_load(self) -> float:
        """Seconds per micro-batch that the busiest rank takes at least, because layers are whole: the relaxation does not know that.

        It is the smallest load M for which every type alone finds room: Σ_s ⌊(M − head or tail of s)/t⌋ ≥ its count.
        """
        layers, ranks = self.layers, self.setting.work.ranks
        fixed = np.zeros(ranks)
        whole = layers.forward + layers.backward
        if layers.first:
            fixed[0] += whole[0]
        if layers.types[-1] == "tail":
            fixed[-1] += whole[-1]
        least = float(fixed.max())
        for one, count in zip(self.units.forward + self.units.backward, self.units.count):
            loads = np.unique(fixed[:, None] + one * np.arange(1, int(count) + 1)[None, :])
            room = np.array([np.floor((load - fixed) / one + 1e-9).clip(0).sum() for load in loads])
            least = max(least, float(loads[np.argmax(room >= count)]))
        return least

    def _below(self, terms: list[tuple[tuple[dict[int, float], float], float]], bound: int | None = None) -> None:
        """Adds Σ share·expression ≤ x[bound], which is T unless something else is given."""
        row: dict[int, float] = {self.time if bound is None else bound: -1.0}
        fixed = 0.0
        for (values, constant), share in terms:
            fixed += share * constant
            for column, value in values.items():
                row[column] = row.get(column, 0.0) + share * value
        self.at_most(row, -fixed)

    def solutions(self, most: int, gap: float, nodes: int) -> Iterator[Solution]:
        """Up to `most` different solutions, the best first; after each one, plans with the same layers per stage and option are cut off."""
        for _ in range(most):
            found = self._solve(gap, nodes)
            if found is None:
                return
            counts, seconds, left = found
            yield Solution(self.division(counts), seconds, left)
            self._cut_off(counts.sum(0))

    def _solve(self, gap: float, nodes: int) -> tuple[IntArray, float, float] | None:
        scale = max(1e-30, float(self.layers.forward.sum() + self.layers.backward.sum()))
        data, at, lows, highs = [], [], [], []
        for number, (row, low, high) in enumerate(self.rows):
            size = max((abs(value) for value in row.values()), default=1.0) or 1.0
            for column, value in row.items():
                data.append(value / size)
                at.append((number, column))
            lows.append(low / size)
            highs.append(high / size)
        places = np.array(at).T
        matrix = sparse.csr_matrix((data, (places[0], places[1])), shape=(len(self.rows), len(self.upper)))
        cost = np.zeros(len(self.upper))
        for column, value in self.cost.items():
            cost[column] = value / scale
        found = milp(
            cost, integrality=np.array(self.whole), bounds=Bounds(0.0, np.array(self.upper)),
            constraints=LinearConstraint(matrix, np.array(lows), np.array(highs)), options={"mip_rel_gap": gap, "node_limit": nodes},
        )  # fmt: skip
        if found.x is None:
            return None
        size = self.types * self.options * self.stages
        counts = np.rint(found.x[:size]).astype(np.int64).reshape(self.types, self.options, self.stages)
        if not np.array_equal(counts.sum((1, 2)), self.units.count):
            return None
        return counts, float(found.x[self.time]), float(found.mip_gap or 0.0)

    def _cut_off(self, counts: IntArray) -> None:
        """Excludes solutions with these numbers of layers by option and stage: their L1 distance must be at least 2."""
        total, far = float(self.units.count.sum()), {}
        for r in range(self.options):
            for q in range(self.stages):
                side = self.column(1.0, integer=True)
                more, less = self.column(total, integer=True), self.column(total, integer=True)
                row = {self.n(t, r, q): 1.0 for t in range(self.types)}
                self.rows.append(({**row, more: -1.0, less: 1.0}, float(counts[r, q]), float(counts[r, q])))
                self.at_most({more: 1.0, side: -total}, 0.0)
                self.at_most({less: 1.0, side: total}, total)
                far[more] = far[less] = -1.0
        self.at_most(far, -2.0)

    def division(self, counts: IntArray) -> Division:
        """The division that the counts stand for: runs in order, and in each stage the layers of a run by option, most recomputed first."""
        layers, size = self.layers, self.units.size
        sizes, choice = [], np.zeros(len(layers.types), np.int64)
        at = layers.first
        for q in range(self.stages):
            sizes.append(int(counts[:, :, q].sum()) * size)
            for t in range(self.types):
                for r in range(self.options - 1, -1, -1):
                    stop = at + int(counts[t, r, q]) * size
                    choice[at:stop] = r
                    at = stop
        return Division(layers, np.concatenate([[0], np.cumsum(sizes)]), choice)


def _ends(layers: Layers, stage: int, stages: int) -> list[int]:
    """The rows of the head and the tail that sit on a stage."""
    first = [0] if stage == 0 and layers.first else []
    return first + ([len(layers.types) - 1] if stage == stages - 1 and layers.types[-1] == "tail" else [])
