"""Sets of moments as disjoint intervals [start, end) in order: unions, intersections and differences, in time linear in their number."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from armillary.kernels import loop

Numbers = npt.NDArray[np.int64]


class Intervals(NamedTuple):
    """Disjoint intervals in order; neighbours do not touch where they come from `union`."""

    start: Numbers
    end: Numbers

    @property
    def length(self) -> int:
        """Nanoseconds in all intervals together."""
        return int((self.end - self.start).sum())


def intervals(*pairs: tuple[int, int]) -> Intervals:
    """Intervals that are written out, for people and tests."""
    return union(np.array([a for a, _ in pairs], np.int64), np.array([b for _, b in pairs], np.int64))


def union(start: Numbers, end: Numbers) -> Intervals:
    """The moments that are in any of the given intervals, which may overlap and stand in any order."""
    if len(start) > 1 and (start[1:] < start[:-1]).any():
        order = np.argsort(start, kind="stable")
        start, end = start[order], end[order]
    return Intervals(*_union(np.ascontiguousarray(start), np.ascontiguousarray(end)))


def either(a: Intervals, b: Intervals) -> Intervals:
    """The moments in a or b."""
    return union(np.concatenate([a.start, b.start]), np.concatenate([a.end, b.end]))


def both(a: Intervals, b: Intervals) -> Intervals:
    """The moments in a and b."""
    return Intervals(*_both(a.start, a.end, b.start, b.end))


def without(a: Intervals, b: Intervals) -> Intervals:
    """The moments in a that are not in b."""
    return Intervals(*_without(a.start, a.end, b.start, b.end))


def covered(pieces: Intervals, a: Intervals) -> Numbers:
    """For each piece, how many nanoseconds of it are in a."""
    return _covered(pieces.start, pieces.end, a.start, a.end)


@loop
def _union(start: Numbers, end: Numbers) -> tuple[Numbers, Numbers]:
    s, e = np.empty(len(start), np.int64), np.empty(len(start), np.int64)
    n = 0
    for k in range(len(start)):
        if end[k] <= start[k]:
            continue
        if n and start[k] <= e[n - 1]:
            e[n - 1] = max(e[n - 1], end[k])
        else:
            s[n], e[n] = start[k], end[k]
            n += 1
    return s[:n].copy(), e[:n].copy()


@loop
def _both(a: Numbers, b: Numbers, c: Numbers, d: Numbers) -> tuple[Numbers, Numbers]:
    s, e = np.empty(len(a) + len(c), np.int64), np.empty(len(a) + len(c), np.int64)
    i = j = n = 0
    while i < len(a) and j < len(c):
        low, high = max(a[i], c[j]), min(b[i], d[j])
        if low < high:
            s[n], e[n] = low, high
            n += 1
        if b[i] < d[j]:
            i += 1
        else:
            j += 1
    return s[:n].copy(), e[:n].copy()


@loop
def _without(a: Numbers, b: Numbers, c: Numbers, d: Numbers) -> tuple[Numbers, Numbers]:
    s, e = np.empty(len(a) + len(c), np.int64), np.empty(len(a) + len(c), np.int64)
    j = n = 0
    for i in range(len(a)):
        low = a[i]
        while j < len(c) and d[j] <= low:
            j += 1
        k = j
        while k < len(c) and c[k] < b[i]:
            if c[k] > low:
                s[n], e[n] = low, c[k]
                n += 1
            low = max(low, d[k])
            k += 1
        if low < b[i]:
            s[n], e[n] = low, b[i]
            n += 1
    return s[:n].copy(), e[:n].copy()


@loop
def _covered(start: Numbers, end: Numbers, a: Numbers, b: Numbers) -> Numbers:
    out = np.zeros(len(start), np.int64)
    j = 0
    for k in range(len(start)):
        while j < len(a) and b[j] <= start[k]:
            j += 1
        i = j
        while i < len(a) and a[i] < end[k]:
            out[k] += min(b[i], end[k]) - max(a[i], start[k])
            i += 1
    return out
