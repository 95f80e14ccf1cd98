"""The event loop: submissions, ends of compute segments, ends of I/O phases and ends of jobs, in one compiled loop.

A job with ι > 0 is k equal I/O phases between k + 1 equal compute segments. Active phases share the file system max-min fairly, with the
job's nodes as weight and its bandwidth c as cap. All ends of one instant are handled before its submissions, then the policy decides, and
then jobs and phases begin.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from armillary.engine.compiled import pop, push, share
from armillary.kernels import loop
from armillary.scheduling.batch.bandwidth_license import bandwidth_license
from armillary.scheduling.batch.equilibrio import equilibrio
from armillary.scheduling.batch.fcfs import fcfs
from armillary.scheduling.batch.peak_license import peak_license
from armillary.scheduling.batch.sjf_easy import sjf_easy
from armillary.scheduling.queueing.backfilling import conservative, easy
from armillary.scheduling.queueing.state import DECISIONS, HEAD, STARTED, enqueue, vacate

from .policy import BANDWIDTH_LICENSE, CONSERVATIVE, EASY, FCFS, PEAK_LICENSE, SJF_EASY

#: Events of the heap: the end of a compute segment, and a limit at which a job is killed.
SEGMENT, LIMIT = 0, 1
#: A phase is over when this share of its bytes is left, because sums of rates times seconds round.
ROUNDING = 1e-12
#: Past runs of an executable that are looked at for runs of a similar size.
LOOK_BACK = 200


class Truth(NamedTuple):
    """What really happens when a job runs; no policy sees it."""

    #: Seconds of one compute segment, number of I/O phases, bytes of one phase, bytes per second unthrottled.
    segment: npt.NDArray[np.float64]
    phases: npt.NDArray[np.int64]
    volume: npt.NDArray[np.float64]
    cap: npt.NDArray[np.float64]
    #: The number of (user, executable).
    program: npt.NDArray[np.int64]


class Record(NamedTuple):
    """What happened to each job."""

    start: npt.NDArray[np.float64]
    end: npt.NDArray[np.float64]
    #: Seconds in I/O phases, and bytes that were moved in them.
    io: npt.NDArray[np.float64]
    moved: npt.NDArray[np.float64]
    #: Phases that are over; -1 before the start.
    done: npt.NDArray[np.int64]
    #: The ended run of the same program before this one, and the last ended run of each program.
    earlier: npt.NDArray[np.int64]
    latest: npt.NDArray[np.int64]


class Flows(NamedTuple):
    """The active I/O phases: their jobs, bytes left, rates, and when they began."""

    job: npt.NDArray[np.int64]
    left: npt.NDArray[np.float64]
    rate: npt.NDArray[np.float64]
    since: npt.NDArray[np.float64]
    #: [number of active phases, whether they changed]
    counts: npt.NDArray[np.int64]
    #: [time of the last advance, time of the next end]
    clock: npt.NDArray[np.float64]


@loop
def decide(s, now, kernel, window, numbers, p):  # type: ignore[no-untyped-def]
    """Lets one policy decide."""
    s.counts[DECISIONS] += 1
    if kernel == FCFS:
        fcfs(s, now)
    elif kernel == EASY:
        easy(s, now, window)
    elif kernel == SJF_EASY:
        sjf_easy(s, now, window)
    elif kernel == CONSERVATIVE:
        conservative(s, now, window, p)
    elif kernel == BANDWIDTH_LICENSE:
        bandwidth_license(s, now, window, numbers)
    elif kernel == PEAK_LICENSE:
        peak_license(s, now, window, numbers)
    else:
        equilibrio(s, now, window, numbers)


@loop
def run(s, truth, record, flows, events, p, kernel, window, numbers, history, kill):  # type: ignore[no-untyped-def]
    """Plays all jobs; returns false if the event heap was too small. `history` 0 leaves what is known as it is."""
    n, arrived, capacity = len(s.submit), 0, s.machine[0]
    while True:
        now = flows.clock[1]
        if arrived < n:
            now = min(now, s.submit[arrived])
        if events.held[0] > 0:
            now = min(now, events.time[0])
        if now == np.inf:
            return True
        changed = False
        if flows.clock[1] <= now:
            advance(flows, record, now)
            finish_phases(flows, truth, record, events, now)
        while events.held[0] > 0 and events.time[0] <= now:
            _, kind, j = pop(events)
            if not np.isnan(record.end[j]):
                continue
            if kind == SEGMENT and record.done[j] < truth.phases[j]:
                if flows.counts[1] == 0:
                    advance(flows, record, now)
                add_flow(flows, truth, j, now)
                continue
            if kind == LIMIT:
                drop_flow(flows, record, j, now)
            record.end[j] = now
            vacate(s, j)
            changed = True
            if history > 0:
                learn(s, truth, record, j, history)
        while arrived < n and s.submit[arrived] <= now:
            enqueue(s, arrived)
            if history > 0:
                recall(s, truth, record, arrived, history)
            arrived += 1
            changed = True
        if changed and s.counts[HEAD] >= 0:
            s.counts[STARTED] = 0
            decide(s, now, kernel, window, numbers, p)
            for i in range(s.counts[STARTED]):
                j = s.started[i]
                record.start[j], record.done[j] = now, 0
                if truth.phases[j] > 0 and truth.segment[j] == 0.0:
                    if flows.counts[1] == 0:
                        advance(flows, record, now)
                    add_flow(flows, truth, j, now)
                elif not push(events, now + truth.segment[j], SEGMENT, j):
                    return False
                if kill and not push(events, now + s.requested[j], LIMIT, j):
                    return False
        if flows.counts[1] == 1:
            settle(flows, s.nodes, truth, capacity)


@loop
def advance(flows, record, now):  # type: ignore[no-untyped-def]
    """Moves the bytes of all active phases up to `now`."""
    passed = now - flows.clock[0]
    for i in range(flows.counts[0]):
        step = min(flows.rate[i] * passed, flows.left[i])
        flows.left[i] -= step
        record.moved[flows.job[i]] += step
    flows.clock[0] = now


@loop
def finish_phases(flows, truth, record, events, now):  # type: ignore[no-untyped-def]
    """Ends the phases whose bytes are moved; the next compute segment of each begins."""
    first, least = 0, np.inf
    for i in range(flows.counts[0]):
        if flows.left[i] / flows.rate[i] < least:
            first, least = i, flows.left[i] / flows.rate[i]
    # One of them is due, whatever rounding has left.
    record.moved[flows.job[first]] += flows.left[first]
    flows.left[first] = 0.0
    i = 0
    while i < flows.counts[0]:
        j = flows.job[i]
        if flows.left[i] <= ROUNDING * truth.volume[j]:
            record.io[j] += now - flows.since[i]
            record.done[j] += 1
            # There is room: each running job has at most one event of this kind, and its last one was taken out.
            push(events, now + truth.segment[j], SEGMENT, j)
            remove_flow(flows, i)
        else:
            i += 1


@loop
def add_flow(flows, truth, j, now):  # type: ignore[no-untyped-def]
    k = flows.counts[0]
    flows.job[k], flows.left[k], flows.since[k], flows.rate[k] = j, truth.volume[j], now, 0.0
    flows.counts[0], flows.counts[1] = k + 1, 1


@loop
def remove_flow(flows, i):  # type: ignore[no-untyped-def]
    k = flows.counts[0] - 1
    flows.job[i], flows.left[i], flows.since[i], flows.rate[i] = flows.job[k], flows.left[k], flows.since[k], flows.rate[k]
    flows.counts[0], flows.counts[1] = k, 1


@loop
def drop_flow(flows, record, j, now):  # type: ignore[no-untyped-def]
    """Ends the phase of a job that is killed in it."""
    for i in range(flows.counts[0]):
        if flows.job[i] == j:
            if flows.counts[1] == 0:
                advance(flows, record, now)
            record.io[j] += now - flows.since[i]
            remove_flow(flows, i)
            return


@loop
def settle(flows, nodes, truth, capacity):  # type: ignore[no-untyped-def]
    """Shares the file system among the active phases, and finds the next end."""
    k = flows.counts[0]
    jobs = flows.job[:k]
    total, soonest = 0.0, np.inf
    for i in range(k):
        flows.rate[i] = truth.cap[jobs[i]]
        total += flows.rate[i]
    if total > capacity:
        flows.rate[:k] = share(capacity, nodes[jobs].astype(np.float64), truth.cap[jobs])
    for i in range(k):
        soonest = min(soonest, flows.left[i] / flows.rate[i])
    flows.clock[1] = flows.clock[0] + soonest
    flows.counts[1] = 0


@loop
def learn(s, truth, record, j, history):  # type: ignore[no-untyped-def]
    """Remembers the run that ended, and renews what is known about queued jobs of the same program."""
    program = truth.program[j]
    record.earlier[j] = record.latest[program]
    record.latest[program] = j
    k = s.counts[HEAD]
    while k >= 0:
        if truth.program[k] == program:
            recall(s, truth, record, k, history)
        k = s.following[k]


@loop
def recall(s, truth, record, j, history):  # type: ignore[no-untyped-def]
    """ι and c of a queued job: the means over the last runs of its program on half to twice as many nodes, as they were observed."""
    duty, bandwidth, found, i = 0.0, 0.0, 0, record.latest[truth.program[j]]
    for _ in range(LOOK_BACK):
        if i < 0 or found == history:
            break
        if s.nodes[i] <= 2 * s.nodes[j] and s.nodes[j] <= 2 * s.nodes[i]:
            found += 1
            seconds = record.end[i] - record.start[i]
            if record.io[i] > 0.0 and seconds > 0.0:
                duty += record.io[i] / seconds
                bandwidth += record.moved[i] / record.io[i]
        i = record.earlier[i]
    s.duty[j] = duty / found if found > 0 else 0.0
    s.bandwidth[j] = min(bandwidth / found, s.machine[0]) if found > 0 else 0.0


def room(jobs: int, running: int, programs: int) -> tuple[Record, Flows]:
    """Empty records and flows."""
    nan = np.full(jobs, np.nan)
    record = Record(
        nan, nan.copy(), np.zeros(jobs), np.zeros(jobs), np.full(jobs, -1), np.full(jobs, -1), np.full(max(programs, 1), -1)
    )  # fmt: skip
    most = running + 1
    clock = np.array([0.0, np.inf])
    flows = Flows(np.empty(most, np.int64), np.empty(most), np.empty(most), np.empty(most), np.zeros(2, np.int64), clock)
    return record, flows
