"""How long the operations take: handlers, fills and write-backs in simulated time, event by event.

Every client sends its next operation when its last one is answered. A handler takes the operation (its directory's own handler, or any
that is free), spends the software time and then makes the accesses one after another. A granule that is not cached takes one of the
device's fill slots, and an access to a granule that is being filled waits for it. Background jobs (a journal's commit, a merge) have one
handler of their own and share the device. Times are in microseconds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from armillary.kernels import kernel, part
from armillary.timing import Stopwatch

from .accesses import FENCE, HANDOFF, HINT, LENGTH, WRITE

if TYPE_CHECKING:
    from ..workload import Work
    from .device import Device
    from .engine import Engine

#: Columns of `jobs` (int64): accesses from and before, operation, queue, directory lock, and what changes while it runs.
FIRST, LAST, OPERATION, QUEUE, LOCK, CURSOR, WITHIN, PHASE, AFTER, BACKGROUND, GRANTED = range(11)
#: Columns of `times` (float64): software, time under the global lock, when issued.
SOFTWARE, SERIAL, ISSUED = range(3)
ARRIVES, RUNS, DONE, HANDED = 0, 1, 2, 3
#: Columns of `n`: events, clients without an operation, next job, frames used, most and least recent frame, write-backs, hits, misses,
#: granules, finished operations.
EVENTS, IDLE, NEXT, USED, RECENT, OLDEST, WRITTEN_BACK, HITS, MISSES, GRANULES, FINISHED, TOUCHES = range(12)
#: Columns of `x`: write-back channel free at, global lock free at, now, last finish.
CHANNEL, GLOBAL, NOW, LATEST = range(4)
HANDOFF_US = 0.2
CHUNK = 16_384


class _State(NamedTuple):
    event_at: np.ndarray
    event_job: np.ndarray
    idle_at: np.ndarray
    fill_free: np.ndarray
    frame_of: np.ndarray
    granule_of: np.ndarray
    ready: np.ndarray
    dirty: np.ndarray
    before: np.ndarray
    after: np.ndarray
    stamp: np.ndarray
    free: np.ndarray
    first: np.ndarray
    last: np.ndarray
    lock_first: np.ndarray
    lock_last: np.ndarray
    held: np.ndarray
    n: np.ndarray
    x: np.ndarray
    #: granule, frames, line, next line, miss, write-back of a granule, fence, RPC one way.
    c: np.ndarray


@dataclass(frozen=True)
class Timed:
    """The result of a simulation; `latency_us` and `kind` have one entry per operation after the warm-up, `early_*` one before."""

    ops_per_s: float
    latency_us: np.ndarray
    kind: np.ndarray
    early_latency_us: np.ndarray
    early_kind: np.ndarray
    granules_per_op: float
    hit_ratio: float
    device_bytes_written: int
    engine_s: float

    def mean_latency_us(self, kinds: Sequence[int]) -> float:
        """Returns the mean latency of operations of these kinds after the warm-up, or of all if the warm-up took all of them."""
        late = self.latency_us[np.isin(self.kind, kinds)]
        early = self.early_latency_us[np.isin(self.early_kind, kinds)]
        return float((late if len(late) else early).mean()) if len(late) or len(early) else float("nan")


def simulate(engine: Engine, work: Work, device: Device, *, handlers: int, rpc_us: float = 5.0, warm: float = 0.1) -> Timed:
    """Runs the work's timed operations on an engine that has loaded its tree; the first share `warm` is not counted."""
    start = work.loaded
    total = len(work.ops) - start
    s = _state(engine, device, work.clients, handlers, len(work.directories), rpc_us)
    issued, finished = np.zeros(total), np.zeros(total)
    jobs, times = np.zeros((0, 11), np.int64), np.zeros((0, 3))
    rows = np.zeros((1, 2), np.int64)
    row_base = job_base = 0
    done, engine_s = 0, 0.0
    warm_ops = int(warm * total)
    at_warm = np.zeros(12, np.int64)
    while True:
        if done < total:
            with Stopwatch() as watch:
                engine.pace = done / max(s.x[NOW], 1.0)
                reached, accesses, batch = engine.step(start + done, min(start + total, start + done + CHUNK))
            engine_s += watch.seconds
            alive = np.flatnonzero(jobs[:, PHASE] != DONE)
            kept = int(alive[0]) if len(alive) else len(jobs)
            jobs, times = jobs[kept:], times[kept:]
            job_base += kept
            drop = (int(jobs[0, FIRST]) if len(jobs) else row_base + len(rows)) - row_base
            rows = rows[drop:]
            row_base += drop
            new_jobs, new_times = _jobs(batch, row_base + len(rows), start, handlers)
            jobs, times = np.concatenate([jobs, new_jobs]), np.concatenate([times, new_times])
            rows = np.concatenate([rows, accesses])
            done = reached - start
        _advance(s, jobs, times, rows, job_base, row_base, issued, finished, done >= total)
        if at_warm[FINISHED] == 0 and s.n[FINISHED] >= warm_ops:
            at_warm[:] = s.n
        if done >= total and s.n[EVENTS] == 0:
            break
    counted = finished[warm_ops:]
    span = float(s.x[LATEST] - (finished[:warm_ops].max() if warm_ops else 0.0))
    if span <= 0:
        # Work that is shorter than its warm-up has no steady part, so everything counts.
        counted, span = finished, float(s.x[LATEST])
    touched = s.n[GRANULES]
    used = s.n[HITS] + s.n[MISSES]
    dirty = int(s.dirty[: s.n[USED]].sum()) if device.cache_bytes else 0
    return Timed(
        ops_per_s=len(counted) / max(span, 1e-9) * 1e6,
        latency_us=(finished - issued)[warm_ops:],
        kind=work.ops[start + warm_ops :, 0].astype(np.uint8),
        early_latency_us=(finished - issued)[:warm_ops],
        early_kind=work.ops[start : start + warm_ops, 0].astype(np.uint8),
        granules_per_op=float(touched) / max(1, total),
        hit_ratio=float(s.n[HITS]) / max(1, used),
        device_bytes_written=int(s.n[WRITTEN_BACK] + dirty) * device.granule,
        engine_s=engine_s,
    )


def _state(engine: Engine, device: Device, clients: int, handlers: int, locks: int, rpc_us: float) -> _State:
    granules = len(engine.space) // device.granule + 1
    frames = device.cache_bytes // device.granule
    queues = handlers + 2
    free = np.ones(queues, np.int64)
    free[handlers] = handlers
    wb_us = device.granule / device.write_back_bytes_per_s * 1e6
    n = np.zeros(12, np.int64)
    n[RECENT] = n[OLDEST] = -1
    n[IDLE] = clients
    return _State(
        np.zeros(4 * clients + 4096), np.zeros(4 * clients + 4096, np.int64), np.zeros(clients), np.zeros(device.fills),
        np.zeros(granules, np.int32), np.zeros(frames, np.int64), np.zeros(frames), np.zeros(frames, np.uint8),
        np.full(frames, -1, np.int32), np.full(frames, -1, np.int32), np.zeros(granules, np.int64), free,
        np.full(queues, -1, np.int64), np.full(queues, -1, np.int64), np.full(locks, -1, np.int64), np.full(locks, -1, np.int64),
        np.zeros(locks, np.uint8), n, np.zeros(4),
        np.array([device.granule, frames, device.line_us, device.next_line_us, device.miss_us, wb_us, device.fence_us, rpc_us]),
    )  # fmt: skip


def _jobs(batch: Any, base: int, start: int, handlers: int) -> tuple[np.ndarray, np.ndarray]:
    n = len(batch.first)
    jobs, times = np.zeros((n, 11), np.int64), np.zeros((n, 3))
    jobs[:, FIRST], jobs[:, LAST] = base + batch.first, base + batch.last
    jobs[:, CURSOR] = jobs[:, FIRST]
    jobs[:, OPERATION] = batch.operation - start
    background = batch.operation < 0
    jobs[:, BACKGROUND] = background
    jobs[:, QUEUE] = np.where(background, handlers + 1, np.where(batch.home < 0, handlers, batch.home))
    jobs[:, LOCK] = batch.lock
    jobs[:, AFTER] = -1
    times[:, SOFTWARE], times[:, SERIAL] = batch.software_us, batch.serial_us
    return jobs, times


@part
def _push(s, at, job):
    i = s.n[EVENTS]
    s.n[EVENTS] = i + 1
    while i > 0:
        up = (i - 1) >> 1
        if s.event_at[up] <= at:
            break
        s.event_at[i] = s.event_at[up]
        s.event_job[i] = s.event_job[up]
        i = up
    s.event_at[i] = at
    s.event_job[i] = job


@part
def _pop(s):
    size = s.n[EVENTS] - 1
    s.n[EVENTS] = size
    job = s.event_job[0]
    at, moved = s.event_at[size], s.event_job[size]
    i = 0
    while True:
        child = 2 * i + 1
        if child >= size:
            break
        if child + 1 < size and s.event_at[child + 1] < s.event_at[child]:
            child += 1
        if s.event_at[child] >= at:
            break
        s.event_at[i] = s.event_at[child]
        s.event_job[i] = s.event_job[child]
        i = child
    s.event_at[i] = at
    s.event_job[i] = moved
    return job


@part
def _to_front(s, f):
    """Makes frame f the most recently used."""
    if s.n[RECENT] == f:
        return
    left, right = s.before[f], s.after[f]
    if left >= 0:
        s.after[left] = right
        if right >= 0:
            s.before[right] = left
        else:
            s.n[OLDEST] = left
    s.before[f] = -1
    s.after[f] = s.n[RECENT]
    if s.n[RECENT] >= 0:
        s.before[s.n[RECENT]] = f
    s.n[RECENT] = f
    if s.n[OLDEST] < 0:
        s.n[OLDEST] = f


@kernel
def _fill(s, g, now, whole):
    """Brings granule g into the cache; returns when it is there. A granule that is overwritten whole needs no fill."""
    if s.n[USED] < np.int64(s.c[1]):
        f = s.n[USED]
        s.n[USED] += 1
        free_at = now
    else:
        f = s.n[OLDEST]
        s.frame_of[s.granule_of[f]] = 0
        free_at = max(now, s.ready[f])
        if s.dirty[f]:
            s.n[WRITTEN_BACK] += 1
            s.x[CHANNEL] = max(s.x[CHANNEL], now) + s.c[5]
            free_at = max(free_at, s.x[CHANNEL])
            s.dirty[f] = 0
    done = free_at
    if not whole:
        done = max(max(now, s.fill_free[0]) + s.c[4], free_at)
        i = 0
        while True:
            child = 2 * i + 1
            if child >= len(s.fill_free):
                break
            if child + 1 < len(s.fill_free) and s.fill_free[child + 1] < s.fill_free[child]:
                child += 1
            if s.fill_free[child] >= done:
                break
            s.fill_free[i] = s.fill_free[child]
            i = child
        s.fill_free[i] = done
    s.granule_of[f] = g
    s.frame_of[g] = f + 1
    s.ready[f] = done
    _to_front(s, f)
    return done


@part
def _leave_queue(s, jobs, q, at, job_base):
    """Starts the next job of queue q, because one of its handlers is free."""
    j = s.first[q]
    if j < 0:
        s.free[q] += 1
        return
    s.first[q] = jobs[j - job_base, AFTER]
    if s.first[q] < 0:
        s.last[q] = -1
    jobs[j - job_base, AFTER] = -1
    jobs[j - job_base, PHASE] = RUNS if jobs[j - job_base, PHASE] == HANDED else 4
    _push(s, at, j)


@kernel
def _start_jobs(s, jobs, times, job_base, finishing):
    """Gives idle clients their next operations in order; returns false if none are left in this batch."""
    while s.n[IDLE] > 0:
        j = s.n[NEXT]
        if j - job_base >= len(jobs):
            if finishing:
                s.n[IDLE] = 0
                return True
            return False
        s.n[IDLE] -= 1
        at = s.idle_at[s.n[IDLE]]
        while True:
            jobs[j - job_base, PHASE] = ARRIVES
            times[j - job_base, ISSUED] = at
            _push(s, at + s.c[7], j)
            s.n[NEXT] = j + 1
            # Background jobs stand before the operation that follows them.
            if not jobs[j - job_base, BACKGROUND]:
                break
            j += 1
            if j - job_base >= len(jobs):
                s.idle_at[s.n[IDLE]] = at
                s.n[IDLE] += 1
                break
    return True


@kernel
def _advance(s, jobs, times, rows, job_base, row_base, issued, finished, finishing):
    """Runs events until the batch has no operation for a client that asks, or until nothing is left."""
    granule = np.int64(s.c[0])
    cached = s.c[1] > 0
    while True:
        if s.n[IDLE] > 0 and not _start_jobs(s, jobs, times, job_base, finishing):
            return
        if s.n[EVENTS] == 0:
            return
        now = s.event_at[0]
        j = _pop(s)
        i = j - job_base
        s.x[NOW] = now
        q = jobs[i, QUEUE]
        phase = jobs[i, PHASE]
        t = now
        if phase in (ARRIVES, HANDED):
            if s.free[q] == 0:
                if s.last[q] >= 0:
                    jobs[s.last[q] - job_base, AFTER] = j
                else:
                    s.first[q] = j
                s.last[q] = j
                continue
            s.free[q] -= 1
            phase = RUNS if phase == HANDED else 4
            jobs[i, PHASE] = phase
        if phase == 4:
            t += times[i, SOFTWARE]
            jobs[i, PHASE] = 5
            _push(s, t, j)
            continue
        if phase == 5:
            jobs[i, PHASE] = RUNS
            if times[i, SERIAL] > 0:
                t = max(t, s.x[GLOBAL]) + times[i, SERIAL]
                s.x[GLOBAL] = t
            lock = jobs[i, LOCK]
            if lock >= 0:
                if s.held[lock]:
                    if s.lock_last[lock] >= 0:
                        jobs[s.lock_last[lock] - job_base, AFTER] = j
                    else:
                        s.lock_first[lock] = j
                    s.lock_last[lock] = j
                    continue
                s.held[lock] = 1
        waits = False
        while jobs[i, CURSOR] < jobs[i, LAST]:
            offset = rows[jobs[i, CURSOR] - row_base, 0]
            word = rows[jobs[i, CURSOR] - row_base, 1]
            kind = word >> 32
            if kind == HANDOFF:
                jobs[i, CURSOR] += 1
                if offset != q:
                    _leave_queue(s, jobs, q, t, job_base)
                    jobs[i, QUEUE] = offset
                    jobs[i, PHASE] = HANDED
                    _push(s, t + HANDOFF_US, j)
                    waits = True
                    break
                continue
            end = offset + (word & LENGTH)
            at = offset + jobs[i, WITHIN]
            while at < end:
                g = at // granule
                stop = min(end, (g + 1) * granule)
                if s.stamp[g] != j + 1:
                    s.stamp[g] = j + 1
                    if jobs[i, BACKGROUND] == 0 and kind != HINT:
                        s.n[GRANULES] += 1
                if cached:
                    f = s.frame_of[g] - 1
                    if kind == HINT:
                        if f < 0:
                            s.n[MISSES] += 1
                            _fill(s, g, t, False)
                        at = stop
                        continue
                    # An access that waited for a fill is served by it even if the granule had to leave meanwhile;
                    # otherwise a tiny cache could starve it.
                    served = jobs[i, GRANTED] == g + 1
                    jobs[i, GRANTED] = 0
                    if f < 0 and served:
                        s.n[HITS] += 1
                        if kind & WRITE:
                            s.n[WRITTEN_BACK] += 1
                        lines = (stop - 1) // 64 - at // 64 + 1
                        t += s.c[2] + s.c[3] * (lines - 1)
                        at = stop
                        continue
                    if f < 0:
                        if t > now:
                            jobs[i, WITHIN] = at - offset
                            _push(s, t, j)
                            waits = True
                            break
                        s.n[MISSES] += 1
                        s.n[HITS] -= 1
                        whole = kind & WRITE != 0 and stop - at == granule
                        ready = _fill(s, g, t, whole)
                        if ready > t:
                            jobs[i, WITHIN] = at - offset
                            jobs[i, GRANTED] = g + 1
                            _push(s, ready, j)
                            waits = True
                            break
                        f = s.frame_of[g] - 1
                    elif s.ready[f] > t:
                        jobs[i, WITHIN] = at - offset
                        jobs[i, GRANTED] = g + 1
                        _push(s, s.ready[f], j)
                        waits = True
                        break
                    s.n[HITS] += 1
                    _to_front(s, f)
                    if kind & WRITE:
                        s.dirty[f] = 1
                lines = (stop - 1) // 64 - at // 64 + 1
                t += s.c[2] + s.c[3] * (lines - 1)
                at = stop
            if waits:
                break
            jobs[i, WITHIN] = 0
            jobs[i, CURSOR] += 1
            if kind & FENCE and kind < HINT:
                t += s.c[6]
        if waits:
            continue
        jobs[i, PHASE] = DONE
        lock = jobs[i, LOCK]
        if lock >= 0:
            w = s.lock_first[lock]
            if w < 0:
                s.held[lock] = 0
            else:
                s.lock_first[lock] = jobs[w - job_base, AFTER]
                if s.lock_first[lock] < 0:
                    s.lock_last[lock] = -1
                jobs[w - job_base, AFTER] = -1
                _push(s, t, w)
        _leave_queue(s, jobs, q, t, job_base)
        s.x[LATEST] = max(s.x[LATEST], t)
        if jobs[i, BACKGROUND] == 0:
            o = jobs[i, OPERATION]
            issued[o] = times[i, ISSUED]
            finished[o] = t + s.c[7]
            s.n[FINISHED] += 1
            s.idle_at[s.n[IDLE]] = finished[o]
            s.n[IDLE] += 1
