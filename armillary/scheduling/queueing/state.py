"""The state of the machine that a policy decides on, as arrays, and what a start does to it.

Jobs are numbered in queue order, by submission and then by job number. The queue is a linked list of these numbers, so that the
oldest `window` of them are found in O(window). Running jobs are kept in the order of their expected ends, which is the order in which a
reservation looks at them. The same state serves the simulator's loop and a policy that is asked about a real queue.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from armillary.kernels import loop

#: Places in `State.counts`.
FREE, QUEUED, HEAD, TAIL, RUNNING, KNOWN, STARTED, ENDED, DECISIONS, STALE = range(10)
#: A reservation in a profile lasts at least this many seconds, because one of no length could not keep its place.
LEAST_S = 1.0


class State(NamedTuple):
    """All that a decision reads, and where it writes the jobs that it starts."""

    #: Of each job: submission (s), requested time (s), nodes.
    submit: npt.NDArray[np.float64]
    requested: npt.NDArray[np.float64]
    nodes: npt.NDArray[np.int64]
    #: What is known of each job: ι, and c in bytes per second, at most the capacity. Values change only while a job is queued.
    duty: npt.NDArray[np.float64]
    bandwidth: npt.NDArray[np.float64]
    #: Neighbours in the queue; -1 at its ends.
    following: npt.NDArray[np.int64]
    previous: npt.NDArray[np.int64]
    #: start + requested of each running job, and the running jobs in this order.
    expected: npt.NDArray[np.float64]
    running: npt.NDArray[np.int64]
    #: The running jobs with ι > 0 by rising c, and the sums of ι and ι·c from each place on.
    known: npt.NDArray[np.int64]
    duty_from: npt.NDArray[np.float64]
    flow_from: npt.NDArray[np.float64]
    #: The jobs that this decision starts, in order.
    started: npt.NDArray[np.int64]
    #: Of each started job: older jobs queued / all others queued, and Δ, both at its start.
    passed: npt.NDArray[np.float64]
    delta: npt.NDArray[np.float64]
    #: Of each queued job: the start that a conservative policy has reserved; NaN if it has none.
    reserved: npt.NDArray[np.float64]
    #: Free nodes, length of the queue, its first and last job, numbers of running, known and started jobs, whether a job has ended, …
    counts: npt.NDArray[np.int64]
    #: [bytes per second of the file system, nodes of the machine]
    machine: npt.NDArray[np.float64]


def fresh(
    submit: npt.NDArray[np.float64], requested: npt.NDArray[np.float64], nodes: npt.NDArray[np.int64], duty: npt.NDArray[np.float64],
    bandwidth: npt.NDArray[np.float64], machine_nodes: int, capacity: float,
) -> State:  # fmt: skip
    """An empty machine; `duty` and `bandwidth` are copied, because knowledge may change."""
    n = len(submit)
    most = min(n, machine_nodes) + 1
    count = np.zeros(10, np.int64)
    count[FREE], count[HEAD], count[TAIL] = machine_nodes, -1, -1
    return State(
        submit, requested, nodes, duty.copy(), np.minimum(bandwidth, capacity), np.full(n, -1), np.full(n, -1), np.full(n, np.inf),
        np.empty(most, np.int64), np.empty(most, np.int64), np.zeros(most + 1), np.zeros(most + 1), np.empty(n + 1, np.int64), np.zeros(n),
        np.zeros(n), np.full(n, np.nan), count, np.array([capacity, float(machine_nodes)]),
    )  # fmt: skip


@loop
def enqueue(s, j):  # type: ignore[no-untyped-def]
    """Appends a job to the queue."""
    last = s.counts[TAIL]
    s.previous[j], s.following[j] = last, -1
    if last >= 0:
        s.following[last] = j
    else:
        s.counts[HEAD] = j
    s.counts[TAIL] = j
    s.counts[QUEUED] += 1


@loop
def last_in_window(s, window):  # type: ignore[no-untyped-def]
    """The number of the last job among the oldest `window` queued ones; -1 if there is none."""
    j = s.counts[HEAD]
    for _ in range(window - 1):
        if j < 0 or s.following[j] < 0:
            break
        j = s.following[j]
    return j


@loop
def begin(s, j, now):  # type: ignore[no-untyped-def]
    """Starts a queued job: it leaves the queue and joins the running ones."""
    older, k = 0, s.previous[j]
    while k >= 0:
        older += 1
        k = s.previous[k]
    others = s.counts[QUEUED] - 1
    s.passed[j] = older / others if others > 0 else 0.0
    leave(s, j)
    s.started[s.counts[STARTED]] = j
    s.counts[STARTED] += 1
    occupy(s, j, now + s.requested[j])


@loop
def leave(s, j):  # type: ignore[no-untyped-def]
    """Takes a job out of the queue."""
    before, after = s.previous[j], s.following[j]
    if before >= 0:
        s.following[before] = after
    else:
        s.counts[HEAD] = after
    if after >= 0:
        s.previous[after] = before
    else:
        s.counts[TAIL] = before
    s.counts[QUEUED] -= 1


@loop
def occupy(s, j, expected):  # type: ignore[no-untyped-def]
    """Gives a job its nodes until its expected end."""
    s.counts[FREE] -= s.nodes[j]
    s.expected[j] = expected
    place = s.counts[RUNNING]
    while place > 0 and s.expected[s.running[place - 1]] > expected:
        s.running[place] = s.running[place - 1]
        place -= 1
    s.running[place] = j
    s.counts[RUNNING] += 1
    if s.duty[j] > 0.0:
        place = s.counts[KNOWN]
        while place > 0 and s.bandwidth[s.known[place - 1]] > s.bandwidth[j]:
            s.known[place] = s.known[place - 1]
            place -= 1
        s.known[place] = j
        s.counts[KNOWN] += 1
        s.counts[STALE] = 1


@loop
def vacate(s, j):  # type: ignore[no-untyped-def]
    """Takes the nodes of a job that ends."""
    s.counts[FREE] += s.nodes[j]
    s.counts[ENDED] = 1
    s.counts[RUNNING] = _without(s.running, s.counts[RUNNING], j)
    if s.duty[j] > 0.0:
        s.counts[KNOWN] = _without(s.known, s.counts[KNOWN], j)
        s.counts[STALE] = 1


@loop
def _without(items, length, j):  # type: ignore[no-untyped-def]
    place = 0
    while items[place] != j:
        place += 1
    for i in range(place, length - 1):
        items[i] = items[i + 1]
    return length - 1
