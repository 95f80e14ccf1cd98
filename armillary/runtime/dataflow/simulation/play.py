"""A described program in simulated time, under the rules of one technique.

Workers submit kernels in the order in which they become ready. A host kernel holds a worker for its time; a device kernel holds a place
of its device, and the worker for the launch alone, or until the end if the technique's bodies wait. Every task costs its worker
`task_ns`, and the end of a device kernel is seen `poll_ns` later. All times are whole nanoseconds, so the result is the same on every
machine.
"""

from __future__ import annotations

import heapq
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from armillary.errors import InputError

if TYPE_CHECKING:
    from armillary.runtime.dataflow.readers.programs import Program


@dataclass(frozen=True)
class Rules:
    """What sets techniques apart: program order, barriers after stages, bodies that hold their worker, tokens for wide kernels."""

    ordered: bool = False
    barriers: bool = False
    holds_worker: bool = False
    tokens: bool = False


@dataclass(frozen=True)
class Machine:
    """Workers, cores, places per device, and what a task, a launch and a look at an event cost."""

    workers: int = 2
    cores: int = 2
    places: int = 8
    task_ns: int = 15_000
    launch_ns: int = 10_000
    poll_ns: int = 30_000


@dataclass(frozen=True)
class Played:
    """When each kernel started and ended on the host or its device, in nanoseconds."""

    started: npt.NDArray[np.int64]
    ended: npt.NDArray[np.int64]
    #: Nanoseconds that workers spent waiting for devices.
    waited: int

    @property
    def makespan_ns(self) -> int:
        """The end of the last kernel."""
        return int(self.ended.max(initial=0))


def play(program: Program, rules: Rules, machine: Machine) -> Played:
    """Plays a program; kernels that are wider than the cores are refused."""
    if int(program.width.max(initial=1)) > machine.cores:
        raise InputError(f"found a kernel of width {int(program.width.max())}; expected at most {machine.cores}, the number of tokens")
    return _Play(program, rules, machine).run()


class _Play:
    def __init__(self, program: Program, rules: Rules, machine: Machine) -> None:
        self.program, self.rules, self.machine = program, rules, machine
        count = program.kernels
        self.api = program.api.tolist()
        self.ns = program.ns.tolist()
        first, before = program.first.tolist(), program.before.tolist()
        self.before = [before[first[i] : first[i + 1]] for i in range(count)]
        self.missing = [len(names) for names in self.before]
        self.after: list[list[int]] = [[] for _ in range(count)]
        for i, names in enumerate(self.before):
            for name in names:
                self.after[name].append(i)
        self.started, self.ended = np.zeros(count, np.int64), np.zeros(count, np.int64)
        self.ready: deque[int] = deque(i for i in range(count) if not self.missing[i])
        self.depth = self._depths() if rules.barriers else []
        self.left_at = np.bincount(self.depth).tolist() if rules.barriers else []
        self.stage = 0
        self.next = 0
        self.workers = 1 if rules.ordered else machine.workers
        self.free_places = [machine.places] * len(program.apis)
        self.queued: list[deque[tuple[int, int]]] = [deque() for _ in program.apis]
        self.tokens = machine.cores
        self.events: list[tuple[int, int, str, int]] = []
        self.waited = 0
        self.count = 0

    def _depths(self) -> list[int]:
        depth: list[int] = []
        for names in self.before:
            depth.append(1 + max((depth[name] for name in names), default=-1))
        return depth

    def run(self) -> Played:
        """Event by event until nothing is left."""
        self._dispatch(0)
        while self.events:
            now, _, what, kernel = heapq.heappop(self.events)
            getattr(self, f"_{what}")(now, kernel)
            self._dispatch(now)
        return Played(self.started, self.ended, self.waited)

    def _at(self, when: int, what: str, kernel: int) -> None:
        self.count += 1
        heapq.heappush(self.events, (when, self.count, what, kernel))

    def _dispatch(self, now: int) -> None:
        while self.workers and (kernel := self._take()) is not None:
            self.workers -= 1
            begin = now + (0 if self.rules.ordered else self.machine.task_ns)
            if self.api[kernel]:
                self._at(begin + self.machine.launch_ns, "launched", kernel)
            else:
                self.started[kernel] = begin
                self._at(begin + self.ns[kernel], "computed", kernel)

    def _take(self) -> int | None:
        if self.rules.ordered:
            # In program order the next kernel is the only candidate, and what it waits for has ended.
            if self.next >= len(self.ns):
                return None
            self.next += 1
            return self.next - 1
        for _ in range(len(self.ready)):
            kernel = self.ready[0]
            if self.rules.barriers and self.depth[kernel] > self.stage:
                return None
            width = int(self.program.width[kernel])
            if self.rules.tokens and not self.api[kernel]:
                if width > self.tokens:
                    return None
                self.tokens -= width
            return self.ready.popleft()
        return None

    def _computed(self, now: int, kernel: int) -> None:
        if self.rules.tokens:
            self.tokens += int(self.program.width[kernel])
        self.workers += 1
        self._end(now, kernel)

    def _launched(self, now: int, kernel: int) -> None:
        if not (self.rules.ordered or self.rules.holds_worker):
            self.workers += 1
        api = self.api[kernel]
        self.queued[api].append((kernel, now))
        self._feed(api, now)

    def _feed(self, api: int, now: int) -> None:
        while self.queued[api] and self.free_places[api]:
            kernel, _ = self.queued[api].popleft()
            self.free_places[api] -= 1
            self.started[kernel] = now
            self._at(now + self.ns[kernel], "finished", kernel)

    def _finished(self, now: int, kernel: int) -> None:
        api = self.api[kernel]
        self.free_places[api] += 1
        self._feed(api, now)
        if self.rules.ordered or self.rules.holds_worker:
            self.workers += 1
            self.waited += now - int(self.started[kernel])
            self._end(now, kernel)
        else:
            self._at(now + (0 if self.rules.barriers else self.machine.poll_ns), "seen", kernel)

    def _seen(self, now: int, kernel: int) -> None:
        self._end(now, kernel)

    def _end(self, now: int, kernel: int) -> None:
        self.ended[kernel] = now
        for follower in self.after[kernel]:
            self.missing[follower] -= 1
            if not self.missing[follower]:
                self.ready.append(follower)
        if self.rules.barriers:
            self.left_at[self.depth[kernel]] -= 1
            while self.stage < len(self.left_at) and not self.left_at[self.stage]:
                self.stage += 1
