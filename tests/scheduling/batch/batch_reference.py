"""Slow policies in plain Python, written from their definitions: every quantity is computed anew from lists at every instant.

Jobs only compute here (they hold their nodes for their run time), whatever a policy is told about their I/O.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf
from typing import Any

import numpy as np

from armillary.scheduling.batch import BatchWork
from armillary.scheduling.swf import Jobs


@dataclass
class Job:
    number: int
    submit: float
    run: float
    requested: float
    nodes: int
    duty: float
    c: float
    start: float = inf
    reserved: float | None = None

    @property
    def end(self) -> float:
        return self.start + self.run

    @property
    def planned(self) -> float:
        return max(self.requested, 1.0)

    def expected(self, now: float) -> float:
        return max(self.start + self.requested, now)


@dataclass
class Machine:
    nodes: int
    capacity: float
    queue: list[Job] = field(default_factory=list)
    running: list[Job] = field(default_factory=list)
    #: Whether a job ended since the last decision.
    ended: bool = False

    @property
    def free(self) -> int:
        return self.nodes - sum(job.nodes for job in self.running)

    def start(self, job: Job, now: float) -> None:
        assert job.nodes <= self.free
        self.queue.remove(job)
        job.start = now
        self.running.append(job)

    def shadow(self, head: Job, now: float) -> tuple[float, int]:
        """The earliest instant at which expected ends free enough nodes, and the nodes beyond them then."""
        for time in sorted({now, *(job.expected(now) for job in self.running)}):
            free = self.free + sum(job.nodes for job in self.running if job.expected(now) <= time)
            if free >= head.nodes and (time > now or any(job.expected(now) <= now for job in self.running)):
                return time, free - head.nodes
        raise AssertionError


def fcfs(m: Machine, now: float) -> None:
    while m.queue and m.queue[0].nodes <= m.free:
        m.start(m.queue[0], now)


def easy(m: Machine, now: float, window: int = 500, shortest: bool = False) -> None:
    seen = m.queue[:window]
    for job in list(seen):
        if job.nodes > m.free:
            break
        m.start(job, now)
        seen.remove(job)
    if not seen:
        return easy(m, now, window, shortest) if m.queue else None
    head, *rest = seen
    shadow, extra = m.shadow(head, now)
    for job in sorted(rest, key=lambda job: job.requested) if shortest else rest:
        if job.nodes > m.free:
            continue
        if now + job.requested <= shadow:
            m.start(job, now)
        elif job.nodes <= extra:
            extra -= job.nodes
            m.start(job, now)
    return None


def conservative(m: Machine, now: float) -> None:
    def free(time: float, others: list[Job]) -> int:
        used = sum(job.nodes for job in m.running if job.expected(now) > time)
        return m.nodes - used - sum(j.nodes for j in others if j.reserved is not None and j.reserved <= time < j.reserved + j.planned)

    def hole(job: Job) -> float:
        others = [other for other in m.queue if other is not job]
        held = [other for other in others if other.reserved is not None]
        ends = {job.expected(now) for job in m.running} | {j.reserved + j.planned for j in held if j.reserved is not None}
        changes = ends | {j.reserved for j in held if j.reserved is not None}
        for time in sorted({now} | {end for end in ends if end > now}):
            inside = [time, *(change for change in changes if time < change < time + job.planned)]
            if all(free(moment, others) >= job.nodes for moment in inside):
                return time
        raise AssertionError

    broken = any(job.start + job.requested <= now for job in m.running)
    broken = broken or any(job.reserved is not None and job.reserved < now for job in m.queue)
    if broken:
        for job in m.queue:
            job.reserved = None
    for job in m.queue:
        before, was = job.reserved, m.ended
        if before is None or was:
            job.reserved = None
            job.reserved = hole(job)
            assert before is None or broken or job.reserved <= before
    m.ended = False
    for job in list(m.queue):
        if job.reserved is not None and job.reserved <= now and job.nodes <= m.free:
            m.start(job, now)


def delta(job: Job, running: list[Job], capacity: float, *, pairs: bool = True, crowd: bool = True) -> float:
    """Expected added contention, by its definition."""
    if capacity == inf:
        return 0.0
    first = sum(other.duty * max(0.0, other.c + job.c - capacity) for other in running) if pairs else 0.0
    second = sum(other.duty * other.c for other in running) + job.c - capacity if crowd and any(o.duty > 0 for o in running) else 0.0
    return job.duty * max(first, second, 0.0) / capacity


def equilibrio(m: Machine, now: float, phi: float = 0.1, window: int = 500, theta: float = 0.005) -> None:
    patience = inf if phi == 0 else 86400.0 * (1 / phi - 1)
    slope = inf if phi == 1 else 0.1 / 3600 * phi / (1 - phi)

    def tolerates(job: Job) -> bool:
        waited = now - job.submit
        return waited >= patience or delta(job, m.running, m.capacity) <= theta + slope * waited

    seen = m.queue[:window]
    while True:
        seen = [job for job in seen if job in m.queue]
        if not seen:
            return equilibrio(m, now, phi, window, theta) if m.queue else None
        late = [job for job in seen if now - job.submit >= patience]
        head = next(iter(late or [job for job in seen if tolerates(job)]), None)
        if head is None:
            return None
        if head.nodes <= m.free:
            m.start(head, now)
            continue
        shadow, extra = m.shadow(head, now)
        fitting = [job for job in seen if job is not head and job.nodes <= m.free]
        chosen = next((j for j in fitting if (now + j.requested <= shadow or j.nodes <= extra) and tolerates(j)), None)
        if chosen is None:
            return None
        m.start(chosen, now)


def bandwidth_license(m: Machine, now: float) -> None:
    def need(job: Job) -> float:
        return job.duty * job.c if job.duty > 0.02 else 0.0

    def left() -> float:
        return m.capacity * (1 + 1e-12) - sum(map(need, m.running))

    while m.queue and m.queue[0].nodes <= m.free and need(m.queue[0]) <= left():
        m.start(m.queue[0], now)
    if not m.queue:
        return
    head, *rest = m.queue
    for shadow in sorted({now, *(job.expected(now) for job in m.running)}):
        ended = [job for job in m.running if job.expected(now) <= shadow]
        extra = m.free + sum(job.nodes for job in ended) - head.nodes
        spare = left() + sum(map(need, ended)) - need(head)
        if extra >= 0 and spare >= 0:
            break
    for job in rest:
        if job.nodes <= m.free and need(job) <= left():
            if now + job.requested <= shadow:
                m.start(job, now)
            elif job.nodes <= extra and need(job) <= spare:
                extra, spare = extra - job.nodes, spare - need(job)
                m.start(job, now)


def peak_license(m: Machine, now: float) -> None:
    def need(job: Job) -> float:
        return job.c if job.duty > 0.02 else 0.0

    reservation: tuple[float, int] | None = None
    for job in list(m.queue):
        used = sum(map(need, m.running))
        licensed = need(job) == 0 or used == 0 or used + need(job) <= m.capacity * (1 + 1e-12)
        if job.nodes > m.free:
            if reservation is None:
                reservation = m.shadow(job, now)
        elif licensed:
            if reservation is None or now + job.requested <= reservation[0]:
                m.start(job, now)
            elif job.nodes <= reservation[1]:
                reservation = reservation[0], reservation[1] - job.nodes
                m.start(job, now)


def starts(work: BatchWork, decide: Any) -> list[float]:
    """When each job starts under a policy of this module, by a plain loop over instants."""
    jobs = work.jobs
    c = np.minimum(work.told_bandwidth, work.capacity)
    rows = zip(jobs.job, jobs.submit_s, jobs.run_s, jobs.requested_s, jobs.nodes, work.told_duty, c, strict=True)
    made = [Job(int(a), float(b), float(r), float(q), int(n), float(d), float(e)) for a, b, r, q, n, d, e in rows]
    machine, coming, now = Machine(jobs.machine_nodes, work.capacity), list(made), 0.0
    while coming or machine.running:
        now = min([job.submit for job in coming[:1]] + [job.end for job in machine.running])
        ended = [job for job in machine.running if job.end <= now]
        machine.ended |= bool(ended)
        machine.running = [job for job in machine.running if job.end > now]
        while coming and coming[0].submit <= now:
            machine.queue.append(coming.pop(0))
        if machine.queue:
            decide(machine, now)
    return [job.start for job in made]


def told(jobs: Jobs, duty: Any, c: Any, capacity: float) -> BatchWork:
    """Jobs that only compute, about whose I/O policies are told."""
    zero = np.zeros(len(jobs))
    return BatchWork(jobs, zero, zero, np.zeros(len(jobs), np.int64), np.asarray(duty, float), np.asarray(c, float), capacity)
