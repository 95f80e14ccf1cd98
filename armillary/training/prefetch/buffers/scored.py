"""The buffer of MassiveGNN and Rudder: which entries are stale, and which missing vertices are hot.

Entries stand in the order of their vertices. Every minibatch multiplies all eviction scores s_e by 1 - α, and the entries that it hits
get that undone, so an entry that k minibatches did not hit has (1 - α)**k of its score, whether these came in a row or not. A vertex of
the halo that is missed gains 1 of access score s_a, which is -1 while it is buffered. A replacement exchanges entries with s_e below
(1 - α)**Δ, rounded to three decimals, for the missing vertices with the highest s_a; newcomers take their s_a as s_e, and those that leave
their s_e as s_a.

Scores are 32-bit floating-point numbers, as in MassiveGNN's public code (Sarkar et al., MassiveGNN: efficient training via prefetching for
massively connected distributed graphs, IEEE CLUSTER 2024).
"""

# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

import copy
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from armillary.errors import InputError
from armillary.kernels import loop, part

Ids = npt.NDArray[np.int64]
Slots = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Found:
    """What a lookup found: the slot of each vertex that was asked for, or -1, and the halo positions of the missing ones."""

    slot: Slots
    #: -1 for a vertex outside the halo.
    missed: Slots

    @property
    def hits(self) -> int:
        """How many were buffered."""
        return len(self.slot) - len(self.missed)


@dataclass(frozen=True)
class Exchange:
    """The candidates of a replacement: slots whose entries leave, halo positions that enter; vacant slots are filled first."""

    out: Slots
    entering: Slots

    def __len__(self) -> int:
        return len(self.entering)


class ScoredBuffer:
    """At most `capacity` vertices of a halo, with their scores.

    halo: vertices, ascending. content: the vertices that it starts with. period: Δ; an entry that more than Δ minibatches
    did not hit is stale. The features of the entry in slot i stand in row `row[i]` of wherever they are kept.
    """

    def __init__(self, capacity: int, halo: npt.ArrayLike, content: npt.ArrayLike = (), *, alpha: float = 0.05, period: int = 25) -> None:
        self.halo: Ids = np.asarray(halo, np.int64)
        if self.halo.ndim != 1 or (np.diff(self.halo) <= 0).any():
            raise InputError("halo: found vertices that are not in ascending order; expected each once")
        if not 0 <= capacity <= max(len(self.halo), 1):
            raise InputError(f"capacity: found {capacity} for a halo of {len(self.halo)}; expected at most as many")
        if not 0 < alpha < 1 or period < 1:
            raise InputError(f"found alpha {alpha:g} and a period of {period}; expected a share below 1 and at least 1")
        self.capacity, self.alpha, self.period = capacity, alpha, period
        self.threshold = round((1 - alpha) ** period, 3)
        self._decay = np.float32(1 - alpha)
        self.ids: Ids = np.unique(np.asarray(content, np.int64))
        at = np.searchsorted(self.halo, self.ids)
        if len(self.ids) > capacity or (at >= len(self.halo)).any() or (self.halo[at] != self.ids).any():
            raise InputError("content: expected vertices of the halo, and no more than the capacity")
        #: s_e of each entry, (entries,), and s_a of each vertex of the halo, (halo,).
        self.score = np.ones(len(self.ids), np.float32)
        self.access = np.zeros(len(self.halo), np.float32)
        self.access[at] = -1
        self.row: Slots = np.arange(len(self.ids))

    def __len__(self) -> int:
        return len(self.ids)

    def copy(self) -> ScoredBuffer:
        """A buffer with the same content and scores that goes its own way."""
        twin = copy.copy(self)
        twin.ids, twin.score, twin.access, twin.row = self.ids.copy(), self.score.copy(), self.access.copy(), self.row.copy()
        return twin

    def look_up(self, asked: npt.NDArray[np.integer]) -> Found:
        """Looks for the vertices of one minibatch, which are ascending, and updates all scores."""
        slot = np.empty(len(asked), np.int64)
        missed = np.empty(len(asked), np.int64)
        count = _look_up(self.ids, self.score, self._decay, self.halo, self.access, asked, slot, missed)
        return Found(slot, missed[:count])

    def candidates(self) -> Exchange:
        """What a replacement would exchange now: min(stale and vacant slots, missing vertices with an access score).

        Slots leave in their order, as in the public code; among missing vertices with equal scores the lower number comes first.
        """
        vacant = np.arange(len(self.ids), self.capacity)
        out = np.concatenate([vacant, np.flatnonzero(self.score < np.float32(self.threshold))])
        entering = highest(self.access, len(out))
        return Exchange(out[: len(entering)], entering)

    def replace(self, exchange: Exchange | None = None) -> Exchange:
        """Makes the exchange, by default that of `candidates`; the caller fetches the features of what entered into `row`.

        Returns the exchange with the rows of the newcomers as `out`.
        """
        made = self.candidates() if exchange is None else exchange
        if not len(made):
            return made
        grown = int((made.out >= len(self.ids)).sum())
        before = len(self.ids)
        ids = np.concatenate([self.ids, np.zeros(grown, np.int64)])
        score = np.concatenate([self.score, np.zeros(grown, np.float32)])
        row = np.concatenate([self.row, np.arange(before, before + grown)])
        old = made.out[made.out < before]
        self.access[np.searchsorted(self.halo, ids[old])] = score[old]
        ids[made.out] = self.halo[made.entering]
        score[made.out] = self.access[made.entering]
        self.access[made.entering] = -1
        rows = row[made.out]
        order = np.argsort(ids)
        self.ids, self.score, self.row = ids[order], score[order], row[order]
        return Exchange(rows, made.entering)


def highest(access: npt.NDArray[np.float32], count: int) -> Slots:
    """The positions of the `count` highest scores above 0, ascending; among equal ones the first positions."""
    hot = np.flatnonzero(access > 0)
    if len(hot) <= count:
        return hot
    if count == 0:
        return hot[:0]
    value = access[hot]
    least = np.partition(value, len(hot) - count)[len(hot) - count]
    above = value > least
    ties = np.flatnonzero(value == least)[: count - int(above.sum())]
    above[ties] = True
    return hot[above]


def hottest(degree: npt.NDArray[np.integer], count: int) -> Slots:
    """The positions of the `count` highest degrees, ascending; among equal ones the first positions."""
    return np.sort(np.argsort(-np.asarray(degree), kind="stable")[:count])


@part
def _at_least(values, wanted, low):
    """The first place from `low` on whose value is not below `wanted`, by steps that double and then halve."""
    step, high = 1, low
    while high < len(values) and values[high] < wanted:
        low = high + 1
        high += step
        step *= 2
    high = min(high, len(values))
    while low < high:
        middle = (low + high) // 2
        if values[middle] < wanted:
            low = middle + 1
        else:
            high = middle
    return low


@loop
def _look_up(ids, score, decay, halo, access, asked, slot, missed):
    for i in range(len(score)):
        score[i] *= decay
    at, there, count = 0, 0, 0
    for j in range(len(asked)):
        wanted = asked[j]
        at = _at_least(ids, wanted, at)
        if at < len(ids) and ids[at] == wanted:
            score[at] /= decay
            slot[j] = at
            continue
        slot[j] = -1
        # Where a halo is numbered from 0 without gaps, as in simulations, the place is the number.
        there = wanted if 0 <= wanted < len(halo) and halo[wanted] == wanted else _at_least(halo, wanted, there)
        inside = there < len(halo) and halo[there] == wanted
        missed[count] = there if inside else -1
        count += 1
        if inside:
            access[there] += np.float32(1.0)
    return count
