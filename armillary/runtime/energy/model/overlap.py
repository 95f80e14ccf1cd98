"""How long each type of task ran inside each interval of the meter: A[k, j], exact in whole nanoseconds.

A task adds its share to the first and the last interval that it meets, and a mark for all those between; running sums over the marks then
fill them. So a task costs two searches however many intervals it spans: O(T log K + K p), and the sums do not depend on any order.
"""

from __future__ import annotations

import numpy as np

from armillary.kernels import kernel
from armillary.runtime.energy.traces.tasks import Whole


def overlaps(start: Whole, end: Whole, column: Whole, weight: Whole, first: Whole, last: Whole, columns: int) -> Whole:
    """Nanoseconds of each column inside each interval [first, last), as an array of intervals × columns.

    Intervals increase and do not overlap. A task whose column is negative is left out.
    """
    found = np.zeros((len(first), columns), np.int64)
    marks = np.zeros((len(first) + 1, columns), np.int64)
    _add(start, end, column, weight, first, last, found, marks)
    return found


@kernel
def _search(sorted_, value):  # type: ignore[no-untyped-def]
    """How many entries are at most `value`."""
    low, high = 0, len(sorted_)
    while low < high:
        middle = (low + high) >> 1
        if sorted_[middle] <= value:
            low = middle + 1
        else:
            high = middle
    return low


@kernel
def _add(start, end, column, weight, first, last, found, marks):  # type: ignore[no-untyped-def]
    intervals, columns = found.shape
    for task in range(len(start)):
        j = column[task]
        if j < 0 or end[task] <= start[task]:
            continue
        low = _search(last, start[task])  # The first interval that ends after the task starts.
        high = _search(first, end[task] - 1) - 1  # The last one that starts before the task ends.
        if low > high:
            continue
        found[low, j] += weight[task] * (min(end[task], last[low]) - max(start[task], first[low]))
        if high > low:
            found[high, j] += weight[task] * (min(end[task], last[high]) - first[high])
        if high > low + 1:
            marks[low + 1, j] += weight[task]
            marks[high, j] -= weight[task]
    for j in range(columns):
        running = 0
        for k in range(intervals):
            running += marks[k, j]
            found[k, j] += running * (last[k] - first[k])
