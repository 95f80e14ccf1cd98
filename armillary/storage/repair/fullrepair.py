"""FullRepair: many pipelines at once, so that every free uplink and downlink of every survivor is used.

Helper i sends x_i and receives y_i, and the destination receives y_r:

    maximise R  subject to  sum x_i = kR,  x_i ≤ min(u_i, R),  y_i ≤ min(d_i, (k - 1) x_i),  R ≤ y_r ≤ d_r,  sum y_i + y_r = kR.

Every vertex of the polytope for R = 1 is a tree (k senders, k streams received in all, at least one at the destination), so any
solution is a mixture of trees, which are peeled off one by one. For a given R the best x and y are known in closed form, so R is found by
bisection (`solver="search"`). This gives the same value as HiGHS (`solver="highs"`) a hundred times sooner.

FullRepair: towards optimal repair pipelining in erasure-coded clustered storage systems, IEEE CLUSTER 2023.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from armillary.kernels import loop
from armillary.parameters import parameter

from .plans.plan import PIPELINE
from .plans.planner import DESTINATION, Ends, Part, Planner, Split
from .plans.problem import Fabric

CLOSE = 1e-11
#: Shares of a block that are tried in turn; a tree below the share joins another of the same shape.
LEAST = (0.0, 0.003, 0.01, 0.02)


@dataclass(frozen=True)
class FullRepair(Planner):
    """Several trees at once, in the shares that a linear program gives (CLUSTER 2023)."""

    name: ClassVar[str] = "fullrepair"

    solver: Literal["search", "highs"] = parameter(
        "search", "bisection over the rate, or the linear program by HiGHS, which gives the same", choices=("search", "highs")
    )

    def offers(self, fabric: Fabric, load_up: np.ndarray, load_down: np.ndarray, size: float) -> tuple[np.ndarray, np.ndarray]:
        """What is left of each node until the busiest one has finished, because trees take from all nodes in proportion."""
        with np.errstate(divide="ignore", invalid="ignore"):
            times = np.nan_to_num(np.concatenate([load_up / fabric.up, load_down / fabric.down]))
        until = float(times.max()) + size / float(fabric.up.mean())
        return fabric.up - load_up / until, fabric.down - load_down / until

    def split(self, ends: Ends) -> Split:
        """The rate is the optimum of the linear program."""
        if self.solver == "highs":
            rate, x, y, root = by_highs(ends)
        else:
            rate = best_rate(ends)
            x, y, root = shares(ends, rate) if rate > 0 else (ends.up, ends.down, 0.0)
        if rate <= 0:
            return Split(0.0, PIPELINE, [])
        parts = peel(x / rate, y / rate, root / rate, ends.k)
        # Fewer trees save start-up but shift loads, so the number of trees that finishes first is taken.
        best = min((fewer(parts, least) for least in LEAST), key=lambda some: through_s(some, ends))
        return Split(rate, PIPELINE, best)


def best_rate(ends: Ends) -> float:
    """The largest rate, to the last bits, at which the constraints can be met; whatever is feasible stays feasible at a lower rate."""
    return float(_best_rate(ends.up, ends.down, ends.into, ends.k))


@loop
def _feasible(up, down, into, k, rate):
    sent, received = 0.0, 0.0
    for i in range(len(up)):
        able = min(up[i], rate)
        sent += able
        received += min(down[i], (k - 1) * able)
    # k times the rate and the sum of k rates differ by rounding.
    wanted = k * rate * (1 - 1e-13)
    return rate <= into and sent >= wanted and min((k - 1) * k * rate, received) + min(into, k * rate) >= wanted


@loop
def _best_rate(up, down, into, k):
    low, high = 0.0, min(into, up.sum() / k)
    if _feasible(up, down, into, k, high):
        return high
    for _ in range(100):
        middle = 0.5 * (low + high)
        if middle <= low or middle >= high:
            break
        if _feasible(up, down, into, k, middle):
            low = middle
        else:
            high = middle
    return low


def shares(ends: Ends, rate: float) -> tuple[np.ndarray, np.ndarray, float]:
    """x, y and y_r at a feasible rate; the received streams are spread evenly over all downlinks, including the destination's."""
    k = ends.k
    able = np.minimum(ends.up, rate)
    # Sending more than d / (k - 1) lets nobody receive more, so that much comes first.
    useful = np.minimum(able, ends.down / (k - 1)) if k > 1 else np.zeros_like(able)
    if useful.sum() >= k * rate:
        x = useful * (k * rate / useful.sum())
    else:
        more = able - useful
        x = useful + more * ((k * rate - useful.sum()) / max(float(more.sum()), 1e-300))
    x = np.minimum(x, able)
    room = np.minimum(ends.down, (k - 1) * x)
    direct = min(ends.into, k * rate)
    root = max(direct * min(k * rate / (float(room.sum()) + direct), 1.0), rate)
    through = k * rate - root
    y = room * (through / float(room.sum())) if through > 0 else np.zeros_like(room)
    return x, np.minimum(y, room), root


def by_highs(ends: Ends) -> tuple[float, np.ndarray, np.ndarray, float]:
    """(R, x, y, y_r) of the linear program."""
    from scipy.optimize import linprog

    k, n = ends.k, len(ends.up)
    scale = float(max(ends.up.max(), ends.into, 1e-300))
    # The variables are R, x, y, y_r.
    size = 2 * n + 2
    equal, at_most, bounds = np.zeros((2, size)), [], [(0, ends.into / scale)]
    equal[0, 1 : n + 1], equal[0, 0] = 1, -k
    equal[1, n + 1 :], equal[1, 0] = 1, -k
    for i in range(n):
        for j, entries in ((i, {0: -1.0, 1 + i: 1.0}), (n + i, {1 + i: -(k - 1.0), n + 1 + i: 1.0})):
            row = np.zeros(size)
            for place, value in entries.items():
                row[place] = value
            at_most.append((j, row))
    last = np.zeros(size)
    last[0], last[-1] = 1, -1
    rows = np.array([row for _, row in at_most] + [last])
    bounds += [(0, u / scale) for u in ends.up] + [(0, d / scale) for d in ends.down] + [(0, ends.into / scale)]
    objective = np.zeros(size)
    objective[0] = -1
    found: Any = linprog(objective, A_ub=rows, b_ub=np.zeros(len(rows)), A_eq=equal, b_eq=np.zeros(2), bounds=bounds, method="highs")
    values = found.x * scale
    return float(values[0]), values[1 : n + 1], values[n + 1 : 2 * n + 1], float(values[-1])


def peel(x: np.ndarray, y: np.ndarray, root: float, k: int) -> list[Part]:
    """Trees whose mixture sends x, receives y and gives the destination `root`, all per byte of the block.

    Each step takes a tree that respects every bound that is already tight (who must send, who must have k - 1 children, …), and as much of
    it as possible, until one more bound is tight. There are at most two trees per helper.
    """
    shares, hubs, roots, chosen = _peel(np.array(x, np.float64), np.array(y, np.float64), float(root), k)
    return [Part(share, _tree(helpers, hub, at_root)) for share, hub, at_root, helpers in zip(shares, hubs, roots, chosen.tolist())]


def fewer(parts: list[Part], least: float) -> list[Part]:
    """Merges parts below `least` into the largest with the same children, because every tree costs a slice of start-up on each link."""
    kept: list[Part] = []
    first: dict[tuple[int, ...], int] = {}
    for part in sorted(parts, key=lambda part: -part.share):
        key = tuple(sorted(parent for _, parent in part.edges))
        if key in first and part.share < least:
            kept[first[key]] = kept[first[key]]._replace(share=kept[first[key]].share + part.share)
        else:
            first.setdefault(key, len(kept))
            kept.append(part)
    return kept


def through_s(parts: list[Part], ends: Ends) -> float:
    """Seconds that the busiest link needs, with a slice of start-up on every link of a tree of two levels."""
    up, down, into = np.zeros(len(ends.up)), np.zeros(len(ends.up)), 0.0
    for part in parts:
        work = part.share * ends.size + (ends.slice if any(parent != DESTINATION for _, parent in part.edges) else 0.0)
        for child, parent in part.edges:
            up[child] += work
            if parent == DESTINATION:
                into += work
            else:
                down[parent] += work
    with np.errstate(divide="ignore", invalid="ignore"):
        return float(max(np.nanmax(up / ends.up), np.nanmax(np.append(down / ends.down, 0.0)), into / ends.into))


@loop
def _peel(x, y, root, k):
    n = len(x)
    most = 4 * n + 8
    share, hubs, roots, chosen = np.zeros(most), np.zeros(most, np.int64), np.zeros(most, np.int64), np.zeros((most, k), np.int64)
    left, found = 1.0, 0
    inside = np.zeros(n, np.bool_)
    while left > CLOSE and found < most:
        near = CLOSE * k + 1e-9 * left
        ranked = np.argsort(-x, kind="mergesort")
        inside[:] = False
        hub, at_root, count = -1, k, 0
        for i in range(n):
            # If a helper always has k - 1 children, nobody else has any, so a tree contains at most one such helper.
            if k > 1 and x[i] > near and y[i] > near and y[i] >= (k - 1) * x[i] - near and (hub < 0 or x[i] > x[hub]):
                hub = i
        if hub >= 0:
            at_root = 1
            chosen[found, 0] = hub
            count = 1
            for i in ranked:
                full = x[i] > near and y[i] > near and y[i] >= (k - 1) * x[i] - near
                if count < k and not full:
                    chosen[found, count] = i
                    count += 1
        else:
            for j in range(k):
                chosen[found, j] = ranked[j]
            if y.max() > near:
                at_root = min(max(int(root / left + 1e-9), 1), k)
            if at_root < k:
                best, there = -1.0, False
                for i in range(n):
                    if x[i] > near and y[i] / x[i] > best:
                        hub, best = i, y[i] / x[i]
                for j in range(k):
                    there = there or chosen[found, j] == hub
                if not there:
                    chosen[found, k - 1] = hub
        for j in range(k):
            inside[chosen[found, j]] = True
        step = left
        for i in range(n):
            if inside[i]:
                children = k - at_root if i == hub else 0
                step = min(step, x[i])
                if children > 0:
                    step = min(step, y[i] / children)
                if k > 1 and children < k - 1:
                    step = min(step, ((k - 1) * x[i] - y[i]) / (k - 1 - children))
            else:
                step = min(step, left - x[i])
        if at_root > 1:
            step = min(step, (root - left) / (at_root - 1))
        step = min(max(step, 1e-12), left)
        for i in range(n):
            if inside[i]:
                x[i] = max(x[i] - step, 0.0)
                if i == hub:
                    y[i] = max(y[i] - step * (k - at_root), 0.0)
        root, left = max(root - step * at_root, 0.0), left - step
        share[found], hubs[found], roots[found] = step, hub, at_root
        found += 1
    return share[:found] / share[:found].sum(), hubs[:found], roots[:found], chosen[:found]


def _tree(chosen: list[int], hub: int, at_root: int) -> tuple[tuple[int, int], ...]:
    """A tree in which at most one helper has children, in the order children first.

    That helper hangs on the destination, and so do all helpers that are not its children.
    """
    if at_root == len(chosen):
        return tuple((i, DESTINATION) for i in chosen)
    rest = [i for i in chosen if i != hub]
    below = len(chosen) - at_root
    return (*((i, int(hub)) for i in rest[:below]), *((i, DESTINATION) for i in rest[below:]), (int(hub), DESTINATION))
