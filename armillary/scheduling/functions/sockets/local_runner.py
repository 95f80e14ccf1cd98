"""Python callables really run under a technique, in processes of this machine that are pinned to one core or to several.

    with LocalRunner(Dhrt(), cores=(0, 1)) as runner:
        ran = runner.run([LocalCall("hash", digest, (data,), within_s=2.0)])

Each core has a worker process. A call runs in one of them, pinned to as many cores as it was given, which together are nobody else's while
it runs; its wall time, CPU time and peak of memory are measured there and observed. A call that falls behind is pinned to more cores, if
the technique raises quotas. Callables and arguments are pickled to the workers, so they must be importable.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import resource
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from types import TracebackType
from typing import Any

from armillary.errors import InputError
from armillary.scheduling.functions.planning.allocator import Allocation, Allocator, Call, Worker
from armillary.scheduling.functions.planning.policy import CHOSEN, FIRST_COME, LARGEST, LATEST_START, LEARNED
from armillary.scheduling.functions.simulation.state import CHECKS

HERE = "here"
#: Seconds between looks at running calls and at the queue.
LOOK_S = 0.02


@dataclass(frozen=True)
class LocalCall:
    """One call of a callable, which arrives `at_s` seconds after `run` began and is to be over `within_s` seconds later.

    `vcpu` is its owner's size in cores, and `alone_s` the seconds that it takes with them, if the owner knows.
    """

    name: str
    function: Callable[..., Any]
    arguments: tuple[Any, ...] = ()
    within_s: float = 60.0
    size: float = 1.0
    vcpu: float | None = None
    at_s: float = 0.0
    alone_s: float = 0.0


@dataclass(frozen=True)
class Ran:
    """What became of a call. `error` is what it raised, as text."""

    name: str
    value: Any
    error: str
    vcpu: float
    wall_s: float
    cpu_s: float
    peak_mb: float
    #: Seconds from its arrival to its end, and whether that was in time.
    end_s: float
    in_time: bool
    #: Cores times seconds that it held them.
    core_s: float


@dataclass
class _Running:
    """A call in a worker."""

    seat: int
    cores: tuple[int, ...]
    vcpu: float
    begun_s: float
    #: Its CPU seconds, and the worker's when it began.
    cpu_s: float
    expected_s: float
    looks: int = 0
    raised: bool = False
    core_s: float = 0.0
    since_s: float = 0.0


class LocalRunner:
    """Runs callables on this machine's cores, with sizes that the technique chooses. Sizes are whole cores, a power of two each."""

    def __init__(self, technique: Any, cores: Sequence[int] | None = None) -> None:
        mine = tuple(sorted(os.sched_getaffinity(0) if cores is None else set(cores)))
        strange = set(mine) - os.sched_getaffinity(0)
        if not mine or strange:
            raise InputError(f"found the cores {list(cores or ())}; expected some of {sorted(os.sched_getaffinity(0))}", where="cores")
        self.policy = technique.policy(None)
        if self.policy.size == CHOSEN and self.policy.knowledge != LEARNED:
            name = type(technique).__name__
            raise InputError(f"found {name}, which knows run times before a call has run; expected a technique that learns them")
        sizes = [float(2**i) for i in range(20) if 2**i <= len(mine)]
        self.cores = mine
        self.allocator = Allocator(self.policy, technique.rng, sizes)
        #: CPU seconds of the last whole run of a function, by its name and the size of its input.
        self.cpu_s: dict[tuple[str, float], float] = {}
        self._workers: list[tuple[Any, Connection]] = []

    def __enter__(self) -> LocalRunner:
        context = multiprocessing.get_context("spawn")
        for _ in self.cores:
            near, far = context.Pipe()
            process = context.Process(target=_work, args=(far,), daemon=True)
            process.start()
            far.close()
            self._workers.append((process, near))
        for _, line in self._workers:
            line.recv()
        return self

    def __exit__(self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None) -> None:
        for process, line in self._workers:
            line.close()
            process.join(1.0)
            if process.is_alive():
                process.terminate()
                process.join()
        self._workers = []

    def run(self, calls: Sequence[LocalCall]) -> list[Ran]:
        """Runs all calls in the technique's order and returns when all have ended; in the order given."""
        for call in calls:
            if not call.within_s > 0:
                raise InputError(f"found {call.within_s:g} s; expected more than 0", where=f"deadline of {call.name}")
        return _Turn(self, calls).run()


class _Turn:
    """One `run`: the queue, the free cores, and what runs on the others. Times are seconds since it began."""

    def __init__(self, runner: LocalRunner, calls: Sequence[LocalCall]) -> None:
        self.runner, self.calls, self.policy, self.allocator = runner, calls, runner.policy, runner.allocator
        self.free = list(runner.cores)
        self.running: dict[int, _Running] = {}
        self.ran: dict[int, Ran] = {}
        self.begun = time.perf_counter()

    @property
    def now_s(self) -> float:
        return time.perf_counter() - self.begun

    def run(self) -> list[Ran]:
        coming = sorted(range(len(self.calls)), key=lambda i: self.calls[i].at_s)
        waiting: list[int] = []
        while coming or waiting or self.running:
            while coming and self.calls[coming[0]].at_s <= self.now_s:
                waiting.append(coming.pop(0))
            self._start_some(waiting)
            lines = {self.runner._workers[one.seat][1]: i for i, one in self.running.items()}
            pause = min(LOOK_S, max(0.0, self.calls[coming[0]].at_s - self.now_s)) if coming else LOOK_S
            if not lines:
                time.sleep(pause)
            for line in wait(list(lines), pause) if lines else ():
                self._finish(lines[line])  # type: ignore[index]
            if self.policy.raise_quota:
                for i in self.running:
                    self._look(i)
        return [self.ran[i] for i in range(len(self.calls))]

    def _start_some(self, waiting: list[int]) -> None:
        for i in sorted(waiting, key=self._order):
            if not self.free:
                return
            if self._start(i):
                waiting.remove(i)

    def _order(self, i: int) -> tuple[bool, float]:
        """Calls that cannot be in time any more come last; the others by arrival, deadline or latest start."""
        call = self.calls[i]
        deadline, now = call.at_s + call.within_s, self.now_s
        if self.policy.size == CHOSEN:
            quickest = min(self._expected(call, float(v)) for v in self.allocator.sizes)
            late = self.policy.admission and quickest < 1e9 and now + quickest > deadline
            by = deadline - (min(self._expected(call, 1.0), 1e9) if self.policy.order == LATEST_START else 0.0)
            return late, call.at_s if self.policy.order == FIRST_COME else by
        late = self.policy.give_up >= 0 and now + self.policy.give_up * call.alone_s > deadline
        return late, call.at_s if self.policy.order == FIRST_COME else deadline

    def _expected(self, call: LocalCall, vcpu: float) -> float:
        return self.allocator.expect(call.name, self._node(), vcpu, call.size)[0]

    def _node(self, warm: str = "") -> Worker:
        return Worker(HERE, HERE, float(len(self.runner.cores)), float(len(self.free)), warm=frozenset({warm}))

    def _start(self, i: int) -> bool:
        """Starts a call if it gets cores."""
        call = self.calls[i]
        slack = call.at_s + call.within_s - self.now_s
        if self.policy.size == CHOSEN:
            asked = Call(call.name, max(slack, 1e-6), 0.0, call.size, call.vcpu)
            given = self.allocator.allocate(asked, [self._node(call.name)])
            if given.node is None and not self.running:  # nothing that is worth waiting for
                given = Allocation(HERE, float(self.allocator.sizes[0]), given.memory_mb)
        else:
            want = len(self.runner.cores) if self.policy.size == LARGEST else call.vcpu or 1.0
            sizes = [float(v) for v in self.allocator.sizes]
            v = next((v for v in sizes if v >= want), sizes[-1])
            given = Allocation(HERE if v <= len(self.free) else None, v, 0.0)
        if given.node is None:
            return False
        taken = tuple(self.free.pop(0) for _ in range(int(given.vcpu)))
        busy = {one.seat for one in self.running.values()}
        seat = next(s for s in range(len(self.runner._workers)) if s not in busy)
        process, line = self.runner._workers[seat]
        now = self.now_s
        self.running[i] = _Running(seat, taken, given.vcpu, now, _cpu_s(process.pid), self._expected(call, given.vcpu), since_s=now)
        line.send((taken, call.function, call.arguments))
        return True

    def _look(self, i: int) -> None:
        """At a quarter, a half and three quarters of its expected time: whether the call falls behind and could have more cores."""
        one, call = self.running[i], self.calls[i]
        elapsed = self.now_s - one.begun_s
        if one.looks >= len(CHECKS) or not one.expected_s < 1e9 or elapsed < CHECKS[one.looks] * one.expected_s:
            return
        one.looks += 1
        process, _ = self.runner._workers[one.seat]
        whole = self.runner.cpu_s.get((call.name, call.size), 0.0)
        used = (_cpu_s(process.pid) - one.cpu_s) / whole if whole > 0 else 0.0
        asked = Call(call.name, call.at_s + call.within_s, self.now_s, call.size)
        more = self.allocator.raised(asked, self._node(), one.vcpu, elapsed_s=elapsed, used=used)
        if more > one.vcpu:
            self._hold(one)
            one.cores += tuple(self.free.pop(0) for _ in range(int(more - one.vcpu)))
            one.vcpu, one.raised, one.looks = more, True, len(CHECKS)
            _pin(one.cores, process.pid)

    def _hold(self, one: _Running) -> None:
        now = self.now_s
        one.core_s += one.vcpu * (now - one.since_s)
        one.since_s = now

    def _finish(self, i: int) -> None:
        one, call = self.running.pop(i), self.calls[i]
        try:
            value, error, wall_s, cpu_s, peak_mb = self.runner._workers[one.seat][1].recv()
        except (EOFError, ConnectionError):
            raise RuntimeError(f"the process that ran {call.name} has ended") from None
        self._hold(one)
        self.free += one.cores
        end = self.now_s - call.at_s
        if not error:
            self.runner.cpu_s[call.name, call.size] = cpu_s
        if not error and not one.raised:  # a run with two sizes says nothing about either
            self.allocator.observe(Call(call.name, call.within_s, 0.0, call.size), cpu_s, wall_s, peak_mb, self._node(), one.vcpu)
        self.ran[i] = Ran(
            call.name, value, error, one.vcpu, wall_s, cpu_s, peak_mb, end, end <= call.within_s and not error, one.core_s
        )  # fmt: skip


def _work(line: Connection) -> None:
    """A worker: pins itself, calls, and measures, until its pipe is closed."""
    line.send(None)
    while True:
        try:
            cores, function, arguments = line.recv()
        except EOFError:
            return
        _pin(cores)
        _forget_peak()
        wall, cpu = time.perf_counter(), time.process_time()
        value, error = None, ""
        try:
            value = function(*arguments)
        except Exception as problem:
            error = f"{type(problem).__name__}: {problem}"
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        line.send((value, error, wall, cpu, _peak_mb()))


def _cpu_s(pid: int) -> float:
    """CPU seconds of a process so far; 0 where the system does not say."""
    with contextlib.suppress(OSError), open(f"/proc/{pid}/stat") as file:
        facts = file.read().rpartition(")")[2].split()
        return (int(facts[11]) + int(facts[12])) / os.sysconf("SC_CLK_TCK")
    return 0.0


def _pin(cores: tuple[int, ...], pid: int | str = "self") -> None:
    """Pins every thread of a process, because a library's threads were pinned when they were made."""
    for thread in os.listdir(f"/proc/{pid}/task"):
        with contextlib.suppress(ProcessLookupError):  # It may have ended meanwhile.
            os.sched_setaffinity(int(thread), cores)


def _forget_peak() -> None:
    """Starts the peak of memory anew, where the kernel lets us."""
    with contextlib.suppress(OSError), open("/proc/self/clear_refs", "w") as file:
        file.write("5")


def _peak_mb() -> float:
    with contextlib.suppress(OSError), open("/proc/self/status") as file:
        for row in file:
            if row.startswith("VmHWM:"):
                return int(row.split()[1]) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
