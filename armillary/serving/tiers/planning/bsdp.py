"""Cuts a model over tiers with the least bound on the slowest stage, by bisection over a feasibility programme (BSDP)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from armillary.errors import InputError

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
#: The relative slack with which sums of costs are compared.
SLACK = 1e-12


def bsdp(
    cost: npt.ArrayLike,
    memory: npt.ArrayLike,
    capacity: npt.ArrayLike,
    budget: npt.ArrayLike,
    *,
    transfer: npt.ArrayLike | None = None,
    eps: float = 1e-4,
    skip_tiers: bool = False,
) -> tuple[tuple[int, ...], float]:
    """Returns (cuts, bound): the blocks before each boundary, and the seconds of the slowest stage.

    cost [blocks] is the work of each block, capacity [tiers] work per second, and memory [blocks] and budget [tiers] are bytes. Tier j
    takes blocks cuts[j−1] to cuts[j]. Among cuts with the least bound, those with the least transfers are preferred, where transfer[j][i]
    is the seconds of the boundary after tier j with i blocks before it, and then those with the least sum of stages. With `skip_tiers` a
    tier may be empty.

    Bisection on the bound stops at a relative width of `eps`. Then the bound is lowered to the next possible one until there is none, so
    the answer is exact.
    """
    f, m, c, b = _checked(cost, memory, capacity, budget, skip_tiers)
    n, tiers = len(f), len(c)
    sums, held = np.concatenate([[0.0], np.cumsum(f)]), np.concatenate([[0.0], np.cumsum(m)])
    cost_of_cut = np.zeros((tiers, n + 1))
    if transfer is not None:
        given = np.asarray(transfer, float)
        if given.shape != (tiers - 1, n + 1) or not (given >= 0).all():
            raise InputError(f"transfer: found shape {given.shape}; expected ({tiers - 1}, {n + 1}) seconds of 0 or more")
        cost_of_cut[:-1] = given
    first = 0 if skip_tiers else 1
    by_room = [_earliest(held, room) for room in b]
    ends = np.maximum(np.arange(n + 1) + 1 - first, 0)

    def starts(bound: float) -> list[Ints]:
        """Returns, for each tier and end, the first start from which the tier can take the blocks within the bound."""
        return [np.maximum(_earliest(sums, bound * c[j]), by_room[j]) for j in range(tiers)]

    def reached(bound: float) -> list[npt.NDArray[np.bool_]] | None:
        """Returns which prefixes each number of tiers can hold, or None if all of them together cannot hold everything."""
        found = [np.arange(n + 1) == 0]
        counted = np.zeros(n + 2, np.int64)
        for low in starts(bound):
            found[-1].cumsum(out=counted[1:])
            found.append(counted[ends] > counted[np.minimum(low, ends)])
        return found if found[-1][n] else None

    if reached(np.inf) is None:
        raise InputError(_too_little(held, b, skip_tiers))
    low, high = max(float(f.max() / c.max()), float(f.sum() / c.sum())), float(f.sum() / c.min())
    # No stage takes longer than the whole model on the slowest tier.
    while high - low > eps * high:
        middle = (low + high) / 2
        low, high = (low, middle) if reached(middle) is not None else (middle, high)
    found = reached(high)
    while found is not None:
        bound = _bound(_any_cuts(found, starts(high), first), sums, c)
        high = bound * (1 - 4 * SLACK)
        found = reached(high)
    return _best_cuts(reached(bound), starts(bound), sums, c, cost_of_cut, first), bound


def stages(cuts: Sequence[int], blocks: int) -> list[tuple[int, int]]:
    """Returns (first block, one past the last) of each tier."""
    return list(pairwise((0, *cuts, blocks)))


def robust_bsdp(
    cost: npt.ArrayLike,
    memory: npt.ArrayLike,
    capacities: npt.ArrayLike,
    budget: npt.ArrayLike,
    transfers: npt.ArrayLike,
    weights: npt.ArrayLike | None = None,
) -> tuple[tuple[int, ...], float]:
    """Returns (cuts, mean seconds) of one cut for many scenarios, such as the hours of a day.

    capacities is [scenarios, tiers] and transfers [scenarios, tiers − 1, blocks + 1]. The slowest stage and the transfers are summed and
    averaged by `weights`. Candidates are the best cut of each scenario and of their mean, improved by moving single boundaries.
    """
    c, t = np.atleast_2d(np.asarray(capacities, float)), np.asarray(transfers, float)
    w = np.full(len(c), 1 / len(c)) if weights is None else np.asarray(weights, float) / np.sum(weights)
    f, m, _, b = _checked(cost, memory, c[0], budget, False)
    sums, held = np.concatenate([[0.0], np.cumsum(f)]), np.concatenate([[0.0], np.cumsum(m)])

    def mean(cuts: tuple[int, ...]) -> float:
        edges = [0, *cuts, len(f)]
        if any(hi <= lo or held[hi] - held[lo] > b[j] * (1 + SLACK) for j, (lo, hi) in enumerate(pairwise(edges))):
            return np.inf
        work = np.diff(sums[edges])
        slowest = (work / c).max(axis=1)
        return float(w @ (slowest + sum(t[:, j, cut] for j, cut in enumerate(cuts))))

    starts = {bsdp(f, m, c[s], b, transfer=t[s])[0] for s in range(len(c))} | {bsdp(f, m, w @ c, b)[0]}
    best = min(sorted(starts), key=mean)
    improved = True
    while improved:
        moves = [tuple(x + (d if j == k else 0) for k, x in enumerate(best)) for j in range(len(best)) for d in (-1, 1)]
        found = min(moves, key=mean, default=best)
        improved = mean(found) < mean(best) * (1 - SLACK)
        best = found if improved else best
    return best, mean(best)


def _earliest(sums: Floats, most: float) -> Ints:
    """Returns, for each end i, the first start from which the blocks up to i sum to at most `most`."""
    return sums.searchsorted(sums - (most * (1 + SLACK) + SLACK))


def _any_cuts(found: list[npt.NDArray[np.bool_]], low: list[Ints], first: int) -> tuple[int, ...]:
    """Returns some cuts within the bound, filling each tier from the last one down."""
    cuts: list[int] = []
    i = len(found[0]) - 1
    for j in range(len(low) - 1, 0, -1):
        start = int(low[j][i])
        i = start + int(np.argmax(found[j][start : i + 1 - first]))
        cuts.append(i)
    return tuple(reversed(cuts))


def _best_cuts(
    found: list[npt.NDArray[np.bool_]] | None, low: list[Ints], sums: Floats, c: Floats, transfer: Floats, first: int
) -> tuple[int, ...]:
    """Returns the cuts within the bound with the least transfers, then the least sum of stages."""
    assert found is not None
    n, tiers = len(sums) - 1, len(c)
    # These are the prefixes after which the rest fits, too; near the best bound they are few.
    useful = [np.zeros(n + 1, bool) for _ in range(tiers)] + [np.arange(n + 1) == n]
    for j in reversed(range(tiers)):
        for i in np.flatnonzero(useful[j + 1]):
            useful[j][low[j][i] : i + 1 - first] = True
        useful[j] &= found[j]
    moved, spent, came = np.zeros(n + 1), np.zeros(n + 1), np.zeros((tiers, n + 1), np.int64)
    for j in range(tiers):
        next_moved, next_spent = np.full(n + 1, np.inf), np.full(n + 1, np.inf)
        for i in np.flatnonzero(useful[j + 1]):
            starts = low[j][i] + np.flatnonzero(useful[j][low[j][i] : i + 1 - first])
            if len(starts) == 0:
                continue
            sent = moved[starts] + (transfer[j - 1][starts] if j else 0.0)
            took = spent[starts] + (sums[i] - sums[starts]) / c[j]
            cheap = np.flatnonzero(sent <= sent.min() * (1 + SLACK))
            best = cheap[np.argmin(took[cheap])]
            next_moved[i], next_spent[i], came[j, i] = sent[best], took[best], starts[best]
        moved, spent = next_moved, next_spent
    cuts: list[int] = []
    last = n
    for j in range(tiers - 1, 0, -1):
        last = int(came[j, last])
        cuts.append(last)
    return tuple(reversed(cuts))


def _bound(cuts: Sequence[int], sums: Floats, c: Floats) -> float:
    return float((np.diff(sums[[0, *cuts, len(sums) - 1]]) / c).max())


def _checked(cost: Any, memory: Any, capacity: Any, budget: Any, skip_tiers: bool) -> tuple[Floats, Floats, Floats, Floats]:
    f, m, c, b = (np.atleast_1d(np.asarray(x, float)) for x in (cost, memory, capacity, budget))
    if len(f) == 0 or f.shape != m.shape or c.shape != b.shape or len(c) == 0:
        raise InputError(f"found {f.shape} costs, {m.shape} memories, {c.shape} capacities, {b.shape} budgets; expected blocks and tiers")
    if not (np.isfinite(f).all() and (f > 0).all() and np.isfinite(m).all() and (m >= 0).all()):
        raise InputError("cost and memory: expected finite numbers, costs above 0")
    if not (np.isfinite(c).all() and (c > 0).all()):
        raise InputError(f"capacity: found {c.min():g}; expected more than 0 for every tier")
    if np.isnan(b).any() or (b < 0).any():
        raise InputError("budget: expected 0 bytes or more for every tier")
    if len(c) > len(f) and not skip_tiers:
        raise InputError(f"found {len(c)} tiers for {len(f)} blocks; expected at least one block per tier (or skip_tiers)")
    return f, m, c, b


def _too_little(held: Floats, b: Floats, skip_tiers: bool) -> str:
    """Raises the error that says by what factor every tier's memory would have to grow."""
    n, tiers = len(held) - 1, len(b)
    first = 0 if skip_tiers else 1

    def holds(factor: float) -> bool:
        end = 0
        for j in range(tiers):
            reach = int(np.searchsorted(held, held[end] + b[j] * factor * (1 + SLACK), side="right")) - 1
            if reach < end + first:
                return False
            end = min(reach, n - (tiers - 1 - j) * first)
        return end == n

    low, high = 1.0, 2.0
    if not (b > 0).all() and not skip_tiers:
        return f"tier {int(np.argmin(b))} has no memory; expected room for a block on every tier"
    while not holds(high):
        high *= 2
    while high - low > 1e-3 * high:
        middle = (low + high) / 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return f"{held[-1]:.4g} bytes of blocks do not fit on the tiers; expected budgets of at least {high:.3g} times as much"
