"""Python callables really run under DHRT, in processes of this machine that are pinned to one core or to several.

    with LocalRunner(Dhrt(), cores=(0, 1)) as runner:
        ran = runner.run([LocalCall("hash", digest, (data,), within_s=2.0)])

Each core has a worker process. A call runs in one of them, pinned to as many cores as it was given, which together are nobody else's while
it runs; its wall time, CPU time and peak of memory are measured there and observed. Callables and arguments are pickled to the workers,
so they must be importable.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import resource
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from types import TracebackType
from typing import Any

from armillary.errors import InputError
from armillary.scheduling.functions.dhrt import Dhrt
from armillary.scheduling.functions.planning.allocator import Allocation, Allocator, Call, Worker

HERE = "here"


@dataclass(frozen=True)
class LocalCall:
    """One call of a callable, to be over `within_s` seconds after it was given to `run`."""

    name: str
    function: Callable[..., Any]
    arguments: tuple[Any, ...] = ()
    within_s: float = 60.0
    size: float = 1.0
    vcpu: float | None = None


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
    #: Seconds from `run` to its end, and whether that was in time.
    end_s: float
    in_time: bool


@dataclass
class _Seat:
    """A worker process and its end of a pipe."""

    process: Any
    line: Connection
    cores: tuple[int, ...] = ()
    call: LocalCall | None = None
    vcpu: float = 0.0
    given: Allocation | None = field(default=None)


class LocalRunner:
    """Runs callables on this machine's cores, with sizes that DHRT chooses and learns. Sizes are whole cores, a power of two each."""

    def __init__(self, dhrt: Dhrt, cores: Sequence[int] | None = None) -> None:
        mine = tuple(sorted(os.sched_getaffinity(0) if cores is None else set(cores)))
        strange = set(mine) - os.sched_getaffinity(0)
        if not mine or strange:
            raise InputError(f"found the cores {list(cores or ())}; expected some of {sorted(os.sched_getaffinity(0))}", where="cores")
        sizes = [float(2**i) for i in range(20) if 2**i <= len(mine)]
        self.cores = mine
        self.allocator = Allocator(dhrt.policy(), dhrt.rng, sizes)
        self._seats: list[_Seat] = []

    def __enter__(self) -> LocalRunner:
        context = multiprocessing.get_context("spawn")
        for _ in self.cores:
            near, far = context.Pipe()
            process = context.Process(target=_work, args=(far,), daemon=True)
            process.start()
            far.close()
            self._seats.append(_Seat(process, near))
        for seat in self._seats:
            seat.line.recv()
        return self

    def __exit__(self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None) -> None:
        for seat in self._seats:
            seat.line.close()
            seat.process.join(1.0)
            if seat.process.is_alive():
                seat.process.terminate()
                seat.process.join()
        self._seats = []

    def run(self, calls: Sequence[LocalCall]) -> list[Ran]:
        """Runs all calls, the one with the earliest deadline first, and returns when all have ended; in the order given."""
        for call in calls:
            if not call.within_s > 0:
                raise InputError(f"found {call.within_s:g} s; expected more than 0", where=f"deadline of {call.name}")
        begun = time.perf_counter()
        waiting = sorted(range(len(calls)), key=lambda i: calls[i].within_s)
        free = list(self.cores)
        ran: dict[int, Ran] = {}
        seated: dict[int, int] = {}
        while waiting or seated:
            started = True
            while started and waiting and free:
                started = False
                for i in waiting:
                    if self._start(calls[i], begun, free, bool(seated), i, seated):
                        waiting.remove(i)
                        started = True
                        break
            lines = {self._seats[s].line: s for s in seated.values()}
            for line in wait(list(lines), 0.1) if lines else ():
                s = lines[line]  # type: ignore[index]
                i = next(i for i, at in seated.items() if at == s)
                ran[i] = self._finish(self._seats[s], begun)
                free += self._seats[s].cores
                del seated[i]
        return [ran[i] for i in range(len(calls))]

    def _start(self, call: LocalCall, begun: float, free: list[int], busy: bool, i: int, seated: dict[int, int]) -> bool:
        """Starts a call if DHRT gives it cores; nothing else runs, and so nothing is worth waiting for, if `busy` is false."""
        node = Worker(HERE, HERE, float(len(self.cores)), float(len(free)), warm=frozenset({call.name}))
        slack = begun + call.within_s - time.perf_counter()
        asked = Call(call.name, max(slack, 1e-6), 0.0, call.size, call.vcpu)
        given = self.allocator.allocate(asked, [node])
        if given.node is None:
            if busy:
                return False
            given = Allocation(HERE, float(self.allocator.sizes[0]), given.memory_mb)
        taken = tuple(free.pop(0) for _ in range(int(given.vcpu)))
        s = next(s for s in range(len(self._seats)) if s not in seated.values())
        seat = self._seats[s]
        seat.cores, seat.call, seat.vcpu, seat.given = taken, call, given.vcpu, given
        seat.line.send((taken, call.function, call.arguments))
        seated[i] = s
        return True

    def _finish(self, seat: _Seat, begun: float) -> Ran:
        call = seat.call
        assert call is not None
        try:
            value, error, wall_s, cpu_s, peak_mb = seat.line.recv()
        except (EOFError, ConnectionError):
            raise RuntimeError(f"the process that ran {call.name} has ended") from None
        end = time.perf_counter() - begun
        if not error:
            node = Worker(HERE, HERE, float(len(self.cores)), 0.0)
            self.allocator.observe(Call(call.name, call.within_s, 0.0, call.size), cpu_s, wall_s, peak_mb, node, seat.vcpu)
        return Ran(call.name, value, error, seat.vcpu, wall_s, cpu_s, peak_mb, end, end <= call.within_s and not error)


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


def _pin(cores: tuple[int, ...]) -> None:
    """Pins every thread of this process, because a library's threads were pinned when they were made."""
    for thread in os.listdir("/proc/self/task"):
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
