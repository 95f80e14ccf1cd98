"""Executables by `posix_spawn`, whose ends are events of their pidfds: the backend `local`, and the part of it that `srun` uses.

Each rank is a process in a group of its own, bound to its cores, and told its number by ARMILLARY_RANK and ARMILLARY_RANKS. When one rank
ends badly the others are killed. Output is read while it comes, so that nobody stands still at a full pipe; the first `keep` bytes stay.
"""

from __future__ import annotations

import contextlib
import functools
import os
import select
import shutil
import signal
import time
from typing import TYPE_CHECKING, Any, ClassVar

from armillary.runtime.pilot.agent.task import FAILED, Finished, Live

from .backend import EXECUTABLE, Backend

if TYPE_CHECKING:
    from armillary.runtime.pilot.agent.agent import Agent
    from armillary.runtime.pilot.agent.scheduler import Instance

#: Bytes that are read at a time, as many as a pipe holds.
PIECE = 1 << 16
#: Signals that Python ignores, or that a shell may have ignored, and that tasks must not inherit as ignored.
DEFAULT_SIGNALS = (signal.SIGPIPE, signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)


class Spawner(Backend):
    """Tasks as child processes of the agent."""

    name: ClassVar[str] = "local"
    kinds: ClassVar[frozenset[int]] = frozenset({EXECUTABLE})

    def __init__(self, names: list[str], keep: int) -> None:
        self._names = names
        self._keep = keep
        self._running: dict[int, _Execution] = {}

    def start(self, agent: Agent, instance: Instance) -> None:
        """There is nothing to wait for."""
        self._agent = agent
        self._instance = instance
        self._here = sorted(os.sched_getaffinity(0))
        # More places than cores: then no task has a core of its own.
        self._binds = (instance.high - instance.low) * agent.scheduler.cores <= len(self._here)
        agent.up(instance)

    def commands(self, live: Live) -> list[tuple[list[str], set[int] | None, str]]:
        """(words, cores, devices) of each process of a task."""
        task = live.task
        assert task is not None
        words = [os.fspath(word) for word in task.command]
        if task.cwd is not None:
            words = ["/bin/sh", "-c", 'cd "$0" && exec "$@"', os.fspath(task.cwd), *words]
        found = []
        each = task.ranks // task.nodes
        for node, slots, devices in live.place:
            for i in range(each):
                mine = slots[i * task.cores_per_rank : (i + 1) * task.cores_per_rank]
                base = (node - self._instance.low) * self._agent.scheduler.cores
                cores = {self._here[base + slot] for slot in mine} if self._binds else None
                gpus = devices[i * task.gpus_per_rank : (i + 1) * task.gpus_per_rank]
                found.append((words, cores, ",".join(map(str, gpus))))
        return found

    def launch(self, live: Live) -> None:
        """Starts every rank."""
        self._agent.launching(live)
        execution = _Execution(self, live)
        self._running[live.id] = execution
        try:
            execution.start(self.commands(live))
        except OSError as error:
            execution.kill()
            self._gone(execution, error)

    def _gone(self, execution: _Execution, error: OSError | None = None) -> None:
        """All ranks have ended, or it could not be started: its place is free before its output is looked at."""
        live, now = execution.live, time.monotonic_ns()
        if self._running.pop(live.id, None) is None:
            return
        place, live.place = live.place, []
        self._agent.scheduler.release(place)
        if error is not None:
            self._agent.end(live, FAILED, error=error, at=now, place=place)
            return
        self._settle(live, execution.finished(self._names[place[0][0]]), now, place)

    def _settle(self, live: Live, finished: Finished, now: int, place: Any) -> None:
        if finished.returncode or finished.signal:
            self._agent.end(live, FAILED, finished, at=now, place=place)
        else:
            self._agent.done(live, finished, now, place)

    def lost(self) -> list[Live]:
        """Kills what runs."""
        executions, self._running = list(self._running.values()), {}
        for execution in executions:
            execution.kill()
        return [execution.live for execution in executions]

    def stop(self) -> None:
        """Kills what runs and waits for it."""
        for execution in list(self._running.values()):
            execution.kill()
        self._running.clear()

    def environment(self, live: Live, rank: int, devices: str) -> dict[str, str]:
        """What a rank finds in its environment."""
        task = live.task
        assert task is not None
        nodes = ",".join(self._names[node] for node, _, _ in live.place)
        added = {"ARMILLARY_RANK": str(rank), "ARMILLARY_RANKS": str(task.ranks), "ARMILLARY_NODES": nodes, "ARMILLARY_TASK": str(live.id)}
        if task.gpus_per_rank:
            added["CUDA_VISIBLE_DEVICES"] = added["ROCR_VISIBLE_DEVICES"] = devices
        return {**os.environ, **added, **task.env}


class _Execution:
    """The processes of one task."""

    def __init__(self, owner: Spawner, live: Live) -> None:
        self.live = live
        self._owner = owner
        self._agent = owner._agent
        #: pid to pidfd of those that run.
        self._alive: dict[int, int] = {}
        self._pid = 0
        self._bad = (0, 0)
        self._kept: list[list[bytes]] = [[], []]
        self._sizes = [0, 0]
        self._dropped = 0
        self._pipes: dict[int, int] = {}

    def start(self, commands: list[tuple[list[str], set[int] | None, str]]) -> None:
        for rank, (words, cores, devices) in enumerate(commands):
            self._spawn(words, cores, self._owner.environment(self.live, rank, devices))
        self._agent.running(self.live)

    def _spawn(self, words: list[str], cores: set[int] | None, environment: dict[str, str]) -> None:
        program = words[0] if "/" in words[0] else shutil.which(words[0], path=environment.get("PATH", os.defpath))
        if program is None:
            raise FileNotFoundError(2, "found no such program", words[0])
        ends: list[int] = []
        try:
            for _ in range(2):
                ends += os.pipe2(os.O_CLOEXEC)
            actions = [
                (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                (os.POSIX_SPAWN_DUP2, ends[1], 1),
                (os.POSIX_SPAWN_DUP2, ends[3], 2),
            ]
            before = os.sched_getaffinity(0) if cores else None
            if cores:
                # A child inherits the cores of the thread that makes it, so it never runs elsewhere, nor do its own children.
                os.sched_setaffinity(0, cores)
            try:
                pid = os.posix_spawn(
                    program, words, environment, file_actions=actions, setpgroup=0, setsigmask=(), setsigdef=DEFAULT_SIGNALS
                )
            finally:
                if before:
                    os.sched_setaffinity(0, before)
        except BaseException:
            for end in ends:
                os.close(end)
            raise
        os.close(ends[1])
        os.close(ends[3])
        self._pid = self._pid or pid
        pidfd = os.pidfd_open(pid)
        self._alive[pid] = pidfd
        self._agent.watch(pidfd, lambda _: self._ended(pid))
        for number, end in ((0, ends[0]), (1, ends[2])):
            os.set_blocking(end, False)
            self._pipes[end] = number
            self._agent.watch(end, functools.partial(self._output, end))

    def _output(self, end: int, what: int = 0) -> None:
        number = self._pipes[end]
        try:
            while piece := os.read(end, PIECE):
                room = self._owner._keep - self._sizes[number]
                if room > 0:
                    self._kept[number].append(piece[:room])
                    self._sizes[number] += len(piece[:room])
                self._dropped += max(0, len(piece) - max(0, room))
                if len(piece) < PIECE and not what & select.EPOLLHUP:
                    return
        except BlockingIOError:
            return
        self._close(end)

    def _close(self, end: int) -> None:
        del self._pipes[end]
        self._agent.unwatch(end)
        os.close(end)

    def _ended(self, pid: int) -> None:
        pidfd = self._alive.pop(pid)
        self._agent.unwatch(pidfd)
        os.close(pidfd)
        _, status = os.waitpid(pid, 0)
        code = os.waitstatus_to_exitcode(status)
        if code and self._bad == (0, 0):
            self._bad = (0, -code) if code < 0 else (code, 0)
            for other in self._alive:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(other, signal.SIGKILL)
        if not self._alive:
            self._owner._gone(self)

    def finished(self, node: str) -> Finished:
        """What it left. Output that a process which it left behind might still write is not waited for."""
        for end in list(self._pipes):
            self._output(end, select.EPOLLHUP)
            if end in self._pipes:
                self._close(end)
        out, err = (b"".join(pieces) for pieces in self._kept)
        return Finished(*self._bad, self._pid, out, err, node, self.live.attempt, self._dropped)

    def kill(self) -> None:
        """Kills and reaps its processes, with all of their groups."""
        for pid, pidfd in list(self._alive.items()):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(pid, signal.SIGKILL)
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, 0)
            self._agent.unwatch(pidfd)
            os.close(pidfd)
        self._alive.clear()
        for end in list(self._pipes):
            self._close(end)
