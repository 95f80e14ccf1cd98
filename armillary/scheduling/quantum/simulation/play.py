"""A batch of jobs from the first arrival to the last completion, under one strategy.

Slot strategies start jobs together and get the QPUs back when the slowest job of the slot has ended; the others are asked at every arrival
and every completion. Time comes from one of two clocks: the judge's, which plays every gate with drawn or mean waiting times on shared
communication qubits, or the planner's, by which each job takes what was expected of it alone. The planner's clock gives a plan and its
promised makespan.

A job of thousands of shots is played for a few and stretched: with the factor F = median shots / `shots_simulated`, a job plays
shots / F shots, and every second counts F times.
"""

from __future__ import annotations

import heapq
import math
import time
from collections.abc import Sequence
from typing import Protocol

import numpy as np

from armillary.errors import InputError
from armillary.scheduling.quantum.circuits.circuit import Ints
from armillary.scheduling.quantum.network.network import Network
from armillary.scheduling.quantum.planning.planner import Placement, Planner
from armillary.scheduling.quantum.planning.strategy import State, Strategy

from .batch import MOST_SIMULATED, Job, check_jobs, tables
from .events import Player
from .schedule import Schedule

SHOTS_SIMULATED = 20


class Clock(Protocol):
    """Says when jobs end."""

    def start(self, started: Sequence[tuple[int, Placement]], now_s: float) -> None:
        """Jobs begin."""
        ...

    def advance(self, until_s: float) -> tuple[float, int]:
        """(time, job) of the next completion up to `until_s`, or (until_s, -1)."""
        ...


class Planned:
    """Every job takes what the planner expects."""

    def __init__(self, jobs: Sequence[Job], planner: Planner) -> None:
        self._jobs, self._planner = jobs, planner
        self._ends: list[tuple[float, int]] = []

    def start(self, started: Sequence[tuple[int, Placement]], now_s: float) -> None:
        """See `Clock`."""
        for j, placement in started:
            heapq.heappush(self._ends, (now_s + self._planner.expected_s(self._jobs[j], placement), j))

    def advance(self, until_s: float) -> tuple[float, int]:
        """See `Clock`."""
        return heapq.heappop(self._ends) if self._ends and self._ends[0][0] <= until_s else (until_s, -1)


class Judged:
    """Every job is played gate by gate."""

    def __init__(
        self, jobs: Sequence[Job], network: Network, *, seed: int = 0, expected: bool = False, grouping: bool = False,
        shots_simulated: int = SHOTS_SIMULATED,
    ) -> None:  # fmt: skip
        self.stretch, played = checked_shots(jobs, shots_simulated)
        self.player = Player(tables(jobs, grouping), network, played, seed=seed, expected=expected, grouping=grouping)

    def start(self, started: Sequence[tuple[int, Placement]], now_s: float) -> None:
        """See `Clock`."""
        for j, placement in started:
            self.player.start(j, placement.site, now_s / self.stretch)
        self.player.grant(now_s / self.stretch)

    def advance(self, until_s: float) -> tuple[float, int]:
        """See `Clock`."""
        at, job = self.player.advance(until_s / self.stretch)
        return (at * self.stretch, job) if job >= 0 else (until_s, -1)


def checked_shots(jobs: Sequence[Job], shots_simulated: int) -> tuple[float, Ints]:
    """The factor F and the shots of each job that are played; InputError if that is too much work."""
    shots = np.array([job.shots for job in jobs], np.float64)
    stretch = max(1.0, float(np.median(shots)) / shots_simulated)
    played = np.maximum(1, np.rint(shots / stretch)).astype(np.int64)
    work = float((played * np.array([len(job.circuit) for job in jobs], np.float64)).sum())
    if work > MOST_SIMULATED:
        raise InputError(f"found {work:.3g} operations to simulate; expected at most {MOST_SIMULATED:,}: there are too many jobs, or some "
                         "have far more shots than the median", where="jobs")  # fmt: skip
    return stretch, played


def play(
    jobs: Sequence[Job], network: Network, strategy: Strategy, *, known: Network | None = None, clock: str = "sampled", seed: int = 0,
    grouping: bool = False, shots_simulated: int = SHOTS_SIMULATED, planner: Planner | None = None,
) -> Schedule:  # fmt: skip
    """Runs all jobs and returns when and where each of them ran.

    known: the network as the strategy believes it to be; the true one by default. clock: `sampled` or `expected` waiting times in the
    judge, or `planned`, the strategy's own estimates. grouping: whether consecutive gates with one control and one remote QPU share a pair.
    """
    believed = network if known is None else known
    check_jobs(jobs, network.qubits)
    planner = Planner(believed) if planner is None else planner
    if clock not in ("sampled", "expected", "planned"):
        raise InputError(f'found clock "{clock}"; expected sampled, expected or planned', where="clock")
    judge = None
    if clock != "planned":
        judge = Judged(jobs, network, seed=seed, expected=clock == "expected", grouping=grouping, shots_simulated=shots_simulated)
    run = _Run(jobs, network, believed, planner, strategy, judge or Planned(jobs, planner))
    run.play()
    pairs = None if judge is None else judge.player.state.pairs * judge.stretch
    return Schedule(tuple(jobs), network, planner, tuple(run.placements), run.start, run.finish, run.slot, np.array(run.decided), pairs)


class _Run:
    """The queue, what runs, and what is free."""

    def __init__(
        self, jobs: Sequence[Job], network: Network, believed: Network, planner: Planner, strategy: Strategy, clock: Clock
    ) -> None:
        self.jobs, self.believed, self.planner, self.strategy, self.clock = jobs, believed, planner, strategy, clock
        self.free = network.data.tolist()
        self.arrivals = sorted(range(len(jobs)), key=lambda j: (jobs[j].arrival_s, j))
        self.queue: list[int] = []
        self.placements: list[Placement] = [None] * len(jobs)  # type: ignore[list-item]
        self.start, self.finish = np.zeros(len(jobs)), np.zeros(len(jobs))
        self.slot = np.zeros(len(jobs), np.int64)
        self.running: dict[int, tuple[int, Placement, float]] = {}
        #: Seconds per decision.
        self.decided: list[float] = []
        self.now, self.arrived, self.slots, self.latency, self.done = 0.0, 0, 0, 0.0, 0

    def play(self) -> None:
        """Runs everything."""
        while self.done < len(self.jobs):
            self._admit()
            if self.queue and not (self.strategy.slots and self.running):
                self._begin()
            upcoming = self.jobs[self.arrivals[self.arrived]].arrival_s if self.arrived < len(self.jobs) else math.inf
            if not self.running:
                if upcoming == math.inf:
                    raise RuntimeError(f"{type(self.strategy).__name__} started nothing on an empty machine")
                self.now = upcoming
                continue
            self.now, ended = self.clock.advance(upcoming)
            if ended >= 0:
                self._end(ended)

    def _admit(self) -> None:
        before = self.arrived
        while self.arrived < len(self.jobs) and self.jobs[self.arrivals[self.arrived]].arrival_s <= self.now:
            self.queue.append(self.arrivals[self.arrived])
            self.arrived += 1
        if self.arrived > before:
            self.queue.sort(key=lambda j: (-self.jobs[j].priority, self.jobs[j].arrival_s, j))

    def _begin(self) -> None:
        state = State(
            self.now, self.believed, self.planner, self.jobs, tuple(self.queue), tuple(self.free), tuple(self.running.values()),
            self.latency / self.done if self.done else 0.0,
        )  # fmt: skip
        began = time.perf_counter()
        starts = self.strategy.select(state)
        self.decided.append(time.perf_counter() - began)
        chosen = {j for j, _ in starts}
        if len(chosen) != len(starts) or not chosen <= set(self.queue):
            raise RuntimeError(f"{type(self.strategy).__name__} started a job that does not wait")
        self.slots += bool(starts)
        for j, placement in starts:
            for qpu, size in zip(placement.qpus, placement.sizes):
                self.free[qpu] -= size
                if self.free[qpu] < 0:
                    raise RuntimeError(f"{type(self.strategy).__name__} put more qubits on QPU {qpu} than are free")
            self.placements[j], self.start[j], self.slot[j] = placement, self.now, self.slots
            self.running[j] = (j, placement, self.now + self.planner.expected_s(self.jobs[j], placement))
        self.queue = [j for j in self.queue if j not in chosen]
        self.clock.start(starts, self.now)

    def _end(self, j: int) -> None:
        self.finish[j] = self.now
        self.latency += self.now - self.jobs[j].arrival_s
        self.done += 1
        del self.running[j]
        if not self.strategy.slots:
            self._release(j)
        elif not self.running:
            for other in np.flatnonzero(self.slot == self.slots).tolist():
                self._release(other)

    def _release(self, j: int) -> None:
        for qpu, size in zip(self.placements[j].qpus, self.placements[j].sizes):
            self.free[qpu] += size
