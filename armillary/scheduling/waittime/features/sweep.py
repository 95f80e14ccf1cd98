"""One sweep over a log: what could be known at each submission, and what two schedulers would have answered then.

The state at a submission holds every end up to that instant and every start before it, as `squeue` would show it before the scheduler
decides. Jobs that were submitted at the same instant are queued in the order of their numbers. Nothing of a later job is read, and nothing
of the job itself but its request.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from armillary.engine.compiled import heap
from armillary.errors import InputError
from armillary.kernels import loop
from armillary.scheduling.queueing.profile import Profile, from_running, hole
from armillary.scheduling.queueing.state import FREE, HEAD, LEAST_S, QUEUED, RUNNING, enqueue, fresh, leave, occupy, vacate
from armillary.scheduling.swf import Jobs
from armillary.scheduling.waittime.planning.forecast import CORRECTIONS, correct_overdue, plan_queue
from armillary.scheduling.waittime.planning.forward import play_forward

from .logarithm import ln1p, sine
from .names import LOGS, NAMES

Floats = npt.NDArray[np.float64]
DAY_S = 86400.0
#: What a sweep gives: all that is known, plans with predicted run times, or EASY played forward with them.
KNOWN, FORWARD, FORWARD_EASY = range(3)
#: The Unix clock began on a Thursday.
FIRST_WEEKDAY = 3


@dataclass(frozen=True)
class Log:
    """Jobs in queue order as the sweep reads them: times in seconds, infinite where something has not happened yet."""

    submit: Floats
    start: Floats
    end: Floats
    requested: Floats
    nodes: npt.NDArray[np.int64]
    #: Dense numbers of users and of executables of a user; -1 if unknown.
    user: npt.NDArray[np.int64]
    executable: npt.NDArray[np.int64]
    queue: npt.NDArray[np.int64]
    partition: npt.NDArray[np.int64]
    machine_nodes: int
    #: Unix time of second 0; 0 where it is unknown.
    epoch_s: float = 0.0

    def __len__(self) -> int:
        return len(self.submit)

    @staticmethod
    def of(jobs: Jobs, end_s: Floats | None = None) -> Log:
        """A log whose waits are known; `end_s` overrides the ends, and a wait of NaN is a job that still waits."""
        start = np.where(np.isnan(jobs.wait_s), np.inf, jobs.submit_s + jobs.wait_s)
        end = start + jobs.run_s if end_s is None else end_s
        pair = np.stack([jobs.user, jobs.executable])
        return Log(
            jobs.submit_s, start, end, jobs.requested_s, jobs.nodes, _dense(jobs.user, jobs.user < 0),
            _dense(np.unique(pair, axis=1, return_inverse=True)[1].reshape(-1), jobs.executable < 0), jobs.queue, jobs.partition,
            jobs.machine_nodes, jobs.epoch_s or 0.0,
        )  # fmt: skip


def _dense(values: npt.NDArray[np.int64], unknown: npt.NDArray[np.bool_]) -> npt.NDArray[np.int64]:
    found: npt.NDArray[np.int64] = np.unique(values, return_inverse=True)[1].reshape(-1).astype(np.int64)
    return np.where(unknown, -1, found)


@dataclass(frozen=True)
class Known:
    """What was known at each submission from `first` on."""

    first: int
    #: Features [jobs from `first` on, columns of `names.COLUMNS`].
    matrix: Floats
    #: Seconds until the start that planning all queued jobs gives, with requested times.
    planned_s: Floats
    #: Seconds until the start that the running jobs alone give, and the queued node-seconds per node of the machine, in whole minutes.
    unqueued_s: Floats
    backlog_s: Floats

    def part(self, first: int, last: int) -> Known:
        """What was known at the submissions from job number `first` up to `last`."""
        chosen = slice(first - self.first, last - self.first)
        return Known(first, self.matrix[chosen], self.planned_s[chosen], self.unqueued_s[chosen], self.backlog_s[chosen])

    @staticmethod
    def joined(parts: Sequence[Known]) -> Known:
        """The rows of several, one after another."""
        matrix = np.concatenate([part.matrix for part in parts]) if parts else np.zeros((0, len(NAMES)))
        rest = (
            np.concatenate([np.empty(0), *(getattr(part, name) for part in parts)]) for name in ("planned_s", "unqueued_s", "backlog_s")
        )
        return Known(0, matrix, *rest)


def known_at_submission(log: Log, *, first: int = 0, depth: int = 500, half_life: float = 20.0) -> Known:
    """Sweeps over the log and returns what was known at the submissions of the jobs from number `first` on.

    first: a negative number counts from the end. depth: the queued jobs that are planned ahead of each.
    half_life: own jobs after which the weight of a past job has halved.
    """
    first = first + len(log) if first < 0 else first
    raw = np.zeros((len(log) - first, len(NAMES)))
    unqueued = np.zeros(len(log) - first)
    _sweep(*_arrays(log, depth), first, depth, 0.5 ** (1.0 / half_life), KNOWN, raw, unqueued, np.zeros(0))
    planned = raw[:, NAMES.index("forecast")].copy()
    # Slurm counts limits in minutes and drops what is left of the last one.
    backlog = 60.0 * np.floor(raw[:, NAMES.index("queued_node_s")] / (60.0 * log.machine_nodes))
    _angles(raw, log, first)
    for i in LOGS:
        raw[:, i] = ln1p(raw[:, i])
    for name in ("nodes", "requested", "node_s"):
        raw[:, NAMES.index(f"ln_{name}")] = ln1p(raw[:, NAMES.index(name)])
    return Known(first, raw, planned, unqueued, backlog)


def forward_starts(log: Log, *, first: int = 0, depth: int = 500, policy: str = "plan") -> Floats:
    """Seconds until the start if every job ran as long as its user's last two, at most for its request.

    policy: "plan" gives every queued job the earliest hole, "easy" plays EASY backfilling forward from each submission on.

    A user's run times count from their ends on, queued jobs are predicted anew at every submission, and a job that outlives its
    prediction is given more time step by step.
    """
    if policy not in ("plan", "easy"):
        raise InputError(f'found "{policy}"; expected plan or easy', where="policy")
    found = np.zeros(len(log) - first)
    mode = FORWARD if policy == "plan" else FORWARD_EASY
    _sweep(*_arrays(log, depth, twin=mode == FORWARD_EASY), first, depth, 1.0, mode, np.zeros((0, len(NAMES))), np.zeros(0), found)
    return found


def _arrays(log: Log, depth: int, *, twin: bool = False):  # type: ignore[no-untyped-def]
    """The machine's state, a profile with room, the log's arrays, and starts and ends in their order."""
    n = len(log)
    if n and int(log.nodes.max()) > log.machine_nodes:
        raise InputError(f"found a job of {int(log.nodes.max())} nodes; expected at most the machine's {log.machine_nodes}")
    zero = np.zeros(n)
    base = float(log.submit[0]) if n else 0.0
    state = fresh(log.submit - base, log.requested.copy(), log.nodes, zero, zero, log.machine_nodes, np.inf)
    # A log with rounded times may run more jobs at once than the machine has nodes.
    state = state._replace(running=np.empty(n + 1, np.int64))
    most = n + 2 * depth + 16
    steps = Profile(np.empty(most), np.empty(most, np.int64), np.zeros(1, np.int64))
    start, end = log.start - base, log.end - base
    starts = np.argsort(start, kind="stable")[: int(np.isfinite(start).sum())]
    lasting = np.isfinite(end) & (end > start)
    ends = np.argsort(np.where(lasting, end, np.inf), kind="stable")[: int(lasting.sum())]
    room = n if twin else 0
    again = fresh(state.submit[:room], log.requested[:room], log.nodes[:room], zero[:room], zero[:room], log.machine_nodes, np.inf)
    again = again._replace(running=np.empty(room + 1, np.int64))
    count = max(int(log.user.max(initial=-1)), int(log.executable.max(initial=-1))) + 1
    return (
        state, steps, again, heap(room + 1), start, end, log.requested, log.user, log.executable, log.queue,
        log.partition, starts, ends, count, CORRECTIONS,
    )  # fmt: skip


def _angles(raw: Floats, log: Log, first: int) -> None:
    """Writes the hour of the day and the day of the week as sines and cosines."""
    clock = log.epoch_s + log.submit[first:]
    hour = 2 * math.pi * (clock % DAY_S) / DAY_S
    day = 2 * math.pi * ((np.floor(clock / DAY_S) + FIRST_WEEKDAY) % 7) / 7
    for name, angle in (("hour", hour), ("day", day)):
        raw[:, NAMES.index(f"{name}_sin")], raw[:, NAMES.index(f"{name}_cos")] = sine(angle), sine(angle + math.pi / 2)


@loop
def _sweep(  # type: ignore[no-untyped-def]
    s, p, twin, later, start, end, requested, user, executable, queue, partition, starts, ends, count, corrections, first, depth, decay,
    mode, raw, unqueued, found,
):  # fmt: skip
    n, a, b = len(start), 0, 0
    forward = mode != KNOWN
    seconds, planned = requested.copy(), np.zeros(n)
    # [kind of key, key]: decayed sums of waits and of run/request with their weights, jobs queued and running.
    wait, waits = np.zeros((2, count)), np.zeros((2, count))
    share, shares = np.zeros((2, count)), np.zeros((2, count))
    queued, running = np.zeros((2, count)), np.zeros((2, count))
    last, before, runs = np.zeros(count), np.zeros(count), np.zeros(count)
    # Over all jobs: sums of waits and of run/request, and their numbers.
    total = np.zeros(4)
    # Queued nodes and node-seconds.
    waiting = np.zeros(2)
    begun_1h, begun_24h, sent_1h, sent_24h = 0, 0, 0, 0
    for j in range(n):
        now = s.submit[j]
        while True:
            begins = start[starts[a]] if a < len(starts) else np.inf
            over = end[ends[b]] if b < len(ends) else np.inf
            if begins >= now and over > now:
                break
            if over <= begins:
                k = ends[b]
                b += 1
                vacate(s, k)
                _ended(user[k], executable[k], end[k] - start[k], requested[k], share, shares, running, total, decay)
                _ran(user[k], end[k] - start[k], last, before, runs)
                continue
            k = starts[a]
            a += 1
            leave(s, k)
            waiting[0] -= s.nodes[k]
            waiting[1] -= s.nodes[k] * requested[k]
            _began(user[k], executable[k], start[k] - s.submit[k], wait, waits, queued, running, total, decay)
            if end[k] > start[k]:
                if forward:
                    seconds[k] = _predicted(user[k], requested[k], last, before, runs)
                occupy(s, k, start[k] + seconds[k])
            else:
                _ended(user[k], executable[k], 0.0, requested[k], share, shares, running, total, decay)
                _ran(user[k], 0.0, last, before, runs)
        if j >= first:
            from_running(p, s, now)
            if forward:
                correct_overdue(s, p, now, start, requested, corrections)
                k, done = s.counts[HEAD], 0
                while k >= 0 and done < depth:
                    seconds[k] = _predicted(user[k], requested[k], last, before, runs)
                    k = s.following[k]
                    done += 1
                seconds[j] = _predicted(user[j], requested[j], last, before, runs)
            if mode == FORWARD_EASY:
                found[j - first] = play_forward(s, twin, later, now, j, start, requested, seconds, corrections, depth) - now
            lasts = max(seconds[j], LEAST_S)
            alone = hole(p, s.nodes[j], lasts) - now
            done = plan_queue(s, p, depth, seconds, planned)
            begins = hole(p, s.nodes[j], lasts)
            if mode == FORWARD:
                found[j - first] = begins - now
            elif mode == KNOWN:
                while begun_1h < a and start[starts[begun_1h]] < now - 3600.0:
                    begun_1h += 1
                while begun_24h < a and start[starts[begun_24h]] < now - 86400.0:
                    begun_24h += 1
                while s.submit[sent_1h] < now - 3600.0:
                    sent_1h += 1
                while s.submit[sent_24h] < now - 86400.0:
                    sent_24h += 1
                unqueued[j - first] = alone
                row = raw[j - first]
                _machine(row, s, now)
                row[6], row[7], row[8] = s.counts[QUEUED], waiting[0], waiting[1]
                _ahead(row, s, requested, planned, begins, done)
                row[12] = now - s.submit[s.counts[HEAD]] if s.counts[HEAD] >= 0 else 0.0
                row[13], row[14], row[15], row[16] = a - begun_1h, a - begun_24h, j - sent_1h, j - sent_24h
                row[21], row[22], row[23] = s.nodes[j], requested[j], s.nodes[j] * requested[j]
                row[27], row[28] = queue[j], partition[j]
                _past(row, 29, 0, user[j], wait, waits, share, shares, queued, running, total)
                _past(row, 34, 1, executable[j], wait, waits, share, shares, queued, running, total)
                row[39] = begins - now
        enqueue(s, j)
        waiting[0] += s.nodes[j]
        waiting[1] += s.nodes[j] * requested[j]
        if user[j] >= 0:
            queued[0, user[j]] += 1
        if executable[j] >= 0:
            queued[1, executable[j]] += 1


@loop
def _machine(row, s, now):  # type: ignore[no-untyped-def]
    """Free nodes, running jobs, their requested node-seconds that are left, and when 10, 50 and 90 % of busy nodes should be free."""
    row[0] = max(s.counts[FREE], 0)
    row[1] = s.counts[RUNNING]
    work, busy = 0.0, 0
    for i in range(s.counts[RUNNING]):
        k = s.running[i]
        busy += s.nodes[k]
        work += s.nodes[k] * max(s.expected[k] - now, 0.0)
    row[2] = work
    freed, level = 0, 0
    for i in range(s.counts[RUNNING]):
        k = s.running[i]
        freed += s.nodes[k]
        while level < 3 and freed >= (0.1, 0.5, 0.9)[level] * busy:
            row[3 + level] = max(s.expected[k] - now, 0.0)
            level += 1


@loop
def _ahead(row, s, requested, planned, begins, done):  # type: ignore[no-untyped-def]
    """The queued jobs but for those that are planned to start later than this one; jobs that are too many to be planned count too."""
    row[9], row[10], row[11] = row[6], row[7], row[8]
    k = s.counts[HEAD]
    for _ in range(done):
        if planned[k] > begins:
            row[9] -= 1
            row[10] -= s.nodes[k]
            row[11] -= s.nodes[k] * requested[k]
        k = s.following[k]
    # Sums of fractions leave a little.
    row[11] = max(row[11], 0.0)


@loop
def _past(row, at, kind, key, wait, waits, share, shares, queued, running, total):  # type: ignore[no-untyped-def]
    """Decayed means of wait and of run/request, whether there are none, and jobs queued and running; the means over all where unknown."""
    row[at] = total[0] / total[1] if total[1] > 0 else 0.0
    row[at + 1] = total[2] / total[3] if total[3] > 0 else 1.0
    row[at + 2] = 1.0
    if key < 0:
        return
    if waits[kind, key] > 0:
        row[at], row[at + 2] = wait[kind, key] / waits[kind, key], 0.0
    if shares[kind, key] > 0:
        row[at + 1] = share[kind, key] / shares[kind, key]
    row[at + 3], row[at + 4] = queued[kind, key], running[kind, key]


@loop
def _began(user, executable, waited, wait, waits, queued, running, total, decay):  # type: ignore[no-untyped-def]
    total[0] += waited
    total[1] += 1
    for kind in range(2):
        key = user if kind == 0 else executable
        if key >= 0:
            wait[kind, key] = wait[kind, key] * decay + waited
            waits[kind, key] = waits[kind, key] * decay + 1.0
            queued[kind, key] -= 1
            running[kind, key] += 1


@loop
def _ended(user, executable, ran, requested, share, shares, running, total, decay):  # type: ignore[no-untyped-def]
    used = ran / max(requested, 1.0)
    total[2] += used
    total[3] += 1
    for kind in range(2):
        key = user if kind == 0 else executable
        if key >= 0:
            share[kind, key] = share[kind, key] * decay + used
            shares[kind, key] = shares[kind, key] * decay + 1.0
            running[kind, key] -= 1


@loop
def _ran(user, ran, last, before, runs):  # type: ignore[no-untyped-def]
    """Remembers the last two run times of a user."""
    if user >= 0:
        before[user] = last[user]
        last[user] = ran
        runs[user] += 1


@loop
def _predicted(user, requested, last, before, runs):  # type: ignore[no-untyped-def]
    """The mean of the user's last two run times, at most the request; the request where no run has ended."""
    if user < 0 or runs[user] == 0:
        return requested
    return min(requested, last[user] if runs[user] == 1 else (last[user] + before[user]) / 2.0)
