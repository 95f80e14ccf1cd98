"""Where units run: in this process, in a pool of processes, or on a Dask cluster.

An engine takes units in order and gives an event for each start and each end. It writes nothing: the coordinator stores what it is
told. Exclusive units run one at a time with nothing beside them. The same unit gives the same simulated values on every engine.
"""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, Pipe, wait
from pathlib import Path
from typing import Any, Protocol

from armillary.errors import InputError
from armillary.study import checks
from armillary.study.execute import TAIL, execute
from armillary.study.plan import Recipe
from armillary.study.quiet import TURN, Say, silent
from armillary.study.store import Report
from armillary.study.unit import Unit

#: (unit, None) when it starts, (unit, report) when it ends, and (unit, text) for something to tell the user between the two.
Event = tuple[Unit, Report | str | None]


#: Processes that `auto` starts at the most; each takes about 150 MB.
MOST_AUTO = 8


class Engine(Protocol):
    """Something that runs units."""

    def run(self, units: Sequence[Unit], recipe: Recipe) -> Iterator[Event]:
        """Runs the units; closing the iterator stops starting new ones and ends what runs."""
        ...


def engine(name: str, *, timeout_s: float | None = None, memory_bytes: int | None = None, parallel: bool = False) -> Engine:
    """The engine of this name: `here`, `processes:N`, `dask`, or a Dask scheduler's address.

    `auto` is one process per core where `parallel` says that this pays, and this process otherwise.
    """
    checks.seconds("--timeout", timeout_s)
    if name == "auto":
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        name = f"processes:{min(cores, MOST_AUTO)}" if parallel and cores > 1 else "here"
    kind, _, rest = name.partition(":")
    if kind == "here" and not rest:
        return Here() if timeout_s is None and memory_bytes is None else Processes(1, timeout_s, memory_bytes)
    if kind == "processes":
        if not rest.isdecimal() or not 1 <= int(rest) <= 1024:
            raise InputError(f'--engine "{name}": expected processes:N with N from 1 to 1024')
        return Processes(int(rest), timeout_s, memory_bytes)
    if name == "dask" or kind in ("tcp", "tls", "ucx", "ws", "wss", "inproc"):
        from armillary.study.dask_engine import Dask

        if timeout_s is not None or memory_bytes is not None:
            raise InputError(f"--engine {name}: --timeout and --memory need processes:N, because Dask does not end a task that runs")
        return Dask(name)
    raise InputError(f'--engine "{name}": expected auto, here, processes:N, dask or an address such as tcp://host:8786')


@dataclass
class Here:
    """This process. Ctrl-C starts nothing new and keeps everything done. `say` is told what the user should know meanwhile."""

    say: Say = silent

    def run(self, units: Sequence[Unit], recipe: Recipe) -> Iterator[Event]:
        """Runs one unit after another."""
        for unit in units:
            yield unit, None
            yield unit, execute(unit, recipe, self.say)


@dataclass
class _Worker:
    """A process that runs units one by one: started → busy ⇄ idle → ended."""

    process: subprocess.Popen[bytes]
    pipe: Connection
    #: Everything it wrote to file descriptor 2, for the report of a unit that dies.
    said: Path
    born: float = field(default_factory=time.monotonic)
    unit: Unit | None = None
    since: float = 0.0
    #: Whether the unit waits until another process has finished measuring; its time does not run meanwhile.
    waits: bool = False
    done: int = 0

    @property
    def running_s(self) -> float:
        """For how many seconds the unit has been running."""
        return 0.0 if self.waits else time.monotonic() - self.since

    def end(self, *, kill: bool = False) -> None:
        self.pipe.close()  # An idle worker reads the end of its pipe and leaves.
        if kill:
            self.process.kill()
        try:
            self.process.wait(5)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.said.unlink(missing_ok=True)


@dataclass
class Processes:
    """A pool of worker processes. One that dies fails its unit only; each is replaced after 50 units and 20 s, or when it grew too large.

    Workers are started as `python -m armillary.study.worker`, not through `multiprocessing`, which would run the caller's own script
    once more in each of them; and `concurrent.futures` gives up the whole pool when one worker is killed.
    """

    count: int
    timeout_s: float | None = None
    memory_bytes: int | None = None
    units_per_worker: int = 50
    #: A worker takes about a second to start, so one that ran fifty tiny units is kept for a while.
    seconds_per_worker: float = 20.0
    #: A moment of the monotonic clock at which nothing more starts and what runs is ended; those units stay to be done.
    until: float = math.inf
    _workers: list[_Worker] = field(default_factory=list)

    def run(self, units: Sequence[Unit], recipe: Recipe) -> Iterator[Event]:
        """Runs shared units in parallel, then exclusive ones alone."""
        shared, exclusive = [u for u in units if not u.exclusive], [u for u in units if u.exclusive]
        try:
            yield from self._side_by_side(deque(shared), recipe, self.count)
            yield from self._side_by_side(deque(exclusive), recipe, 1)
        finally:
            for worker in self._workers:
                worker.end(kill=worker.unit is not None)
            self._workers.clear()

    def _side_by_side(self, waiting: deque[Unit], recipe: Recipe, most: int) -> Iterator[Event]:
        while (waiting or any(w.unit for w in self._workers)) and time.monotonic() < self.until:
            while waiting and sum(w.unit is not None for w in self._workers) < most:
                worker = next((w for w in self._workers if w.unit is None), None) or self._hire(recipe)
                worker.unit, worker.since, worker.waits = waiting.popleft(), time.monotonic(), False
                yield worker.unit, None
                worker.pipe.send(worker.unit)
            busy = {w.pipe: w for w in self._workers if w.unit}
            for ready in wait(list(busy), timeout=self._patience(busy.values())):
                yield self._collect(busy[ready])  # type: ignore[index]
            for worker in busy.values():
                if worker.unit and self.timeout_s is not None and worker.running_s > self.timeout_s:
                    unit, seconds = worker.unit, worker.running_s
                    self._dismiss(worker, kill=True)
                    yield unit, Report("failed", {}, error=f"timeout: still running after {self.timeout_s:g} s", seconds=seconds)

    def _collect(self, worker: _Worker) -> Event:
        unit = worker.unit
        assert unit is not None
        try:
            report: Report | str = worker.pipe.recv()
        except (EOFError, OSError):
            code = worker.process.wait()
            said, seconds = _tail(worker.said), time.monotonic() - worker.since
            self._dismiss(worker, kill=True)
            return unit, Report("failed", {}, error=_how_it_died(code), traceback=said, seconds=seconds)
        if isinstance(report, str):
            worker.waits, worker.since = report != TURN, time.monotonic()
            return unit, report
        if report.state == "failed":
            report = Report(**{**vars(report), "traceback": "\n".join(p for p in (report.traceback, _tail(worker.said)) if p)})
        worker.unit, worker.done = None, worker.done + 1
        old = worker.done >= self.units_per_worker and time.monotonic() - worker.born > self.seconds_per_worker
        if old or (self.memory_bytes and _rss(worker.process.pid) > self.memory_bytes):
            self._dismiss(worker)
        return unit, report

    def _hire(self, recipe: Recipe) -> _Worker:
        ours, theirs = Pipe()
        handle, name = tempfile.mkstemp(prefix="armillary-worker-")
        os.set_blocking(handle, True)
        command = [sys.executable, "-m", "armillary.study.worker", str(theirs.fileno()), str(handle)]
        surroundings = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
        with theirs:
            process = subprocess.Popen(
                command, pass_fds=(theirs.fileno(), handle), stdin=subprocess.DEVNULL, stdout=handle, stderr=handle, env=surroundings
            )
        os.close(handle)
        ours.send(recipe)
        worker = _Worker(process, ours, Path(name))
        self._workers.append(worker)
        return worker

    def _dismiss(self, worker: _Worker, *, kill: bool = False) -> None:
        self._workers.remove(worker)
        worker.end(kill=kill)

    def _patience(self, busy: Any) -> float | None:
        """Seconds after which somebody has to be ended; None if nobody ever has to."""
        left = self.until - time.monotonic()
        if self.timeout_s is not None:
            left = min(left, min(self.timeout_s - w.running_s for w in busy))
        return None if left == math.inf else max(0.0, left) + 0.01


def _how_it_died(code: int | None) -> str:
    if code is not None and code < 0:
        name = signal.Signals(-code).name if -code in signal.valid_signals() else str(-code)
        hint = " (out of memory, or killed by hand)" if -code == signal.SIGKILL else ""
        return f"worker ended by signal {-code} ({name}){hint}"
    return f"worker ended with exit status {code}" + (" (killed for memory)" if code == 137 else "")


def _rss(pid: int | None) -> int:
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return 0


def _tail(path: Path) -> str:
    try:
        with path.open("rb") as file:
            file.seek(0, os.SEEK_END)
            file.seek(max(0, file.tell() - TAIL))
            return file.read().decode(errors="replace")
    except OSError:
        return ""
