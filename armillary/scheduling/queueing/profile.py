"""Free nodes over time: a step function in which a job finds the earliest hole that takes it."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from armillary.kernels import loop

from .state import RUNNING, State


class Profile(NamedTuple):
    """Steps: `free[i]` nodes from `time[i]` on, until `time[i + 1]`; the last step lasts for ever."""

    time: npt.NDArray[np.float64]
    free: npt.NDArray[np.int64]
    #: [number of steps]
    length: npt.NDArray[np.int64]


def profile(state: State, window: int) -> Profile:
    """An empty profile with room for all running jobs and for `window` reservations, each of which may move once."""
    most = len(state.running) + 4 * window + 8
    return Profile(np.empty(most), np.empty(most, np.int64), np.zeros(1, np.int64))


@loop
def from_running(p, s, now):  # type: ignore[no-untyped-def]
    """The profile of the running jobs alone; an overdue job is expected to end now."""
    p.time[0], p.free[0], p.length[0] = now, np.int64(s.machine[1]), 1
    k = 0
    for i in range(s.counts[RUNNING]):
        j = s.running[i]
        if s.expected[j] <= now:
            continue
        p.free[0] -= s.nodes[j]
    for i in range(s.counts[RUNNING]):
        j = s.running[i]
        end = s.expected[j]
        if end <= now:
            continue
        if end > p.time[k]:
            k += 1
            p.time[k], p.free[k] = end, p.free[k - 1]
        p.free[k] += s.nodes[j]
    p.length[0] = k + 1


@loop
def hole(p, nodes, seconds):  # type: ignore[no-untyped-def]
    """The earliest start of a hole of this many nodes and seconds."""
    steps, i = p.length[0], 0
    while True:
        while p.free[i] < nodes:
            i += 1
        start, k = p.time[i], i + 1
        while k < steps and p.time[k] < start + seconds and p.free[k] >= nodes:
            k += 1
        if k >= steps or p.time[k] >= start + seconds:
            return start
        i = k


@loop
def take(p, nodes, start, end):  # type: ignore[no-untyped-def]
    """Takes nodes from `start` until `end`; a negative number gives them back."""
    if end <= start:
        return
    first = _step_at(p, start)
    last = _step_at(p, end)
    for i in range(first, last):
        p.free[i] -= nodes


@loop
def _step_at(p, time):  # type: ignore[no-untyped-def]
    """The step that begins at `time`, which is made if there is none."""
    low, high = 0, p.length[0]
    while low < high:
        middle = (low + high) >> 1
        if p.time[middle] < time:
            low = middle + 1
        else:
            high = middle
    if low < p.length[0] and p.time[low] == time:
        return low
    for i in range(p.length[0], low, -1):
        p.time[i], p.free[i] = p.time[i - 1], p.free[i - 1]
    p.time[low], p.free[low] = time, p.free[low - 1]
    p.length[0] += 1
    return low
