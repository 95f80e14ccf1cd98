"""One rank: every worker role is a thread that follows the program's actions on real data."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import numpy as np

from armillary.errors import InputError
from armillary.training.overlap.programs import primitives as p
from armillary.training.overlap.programs.template import TileProgram

from .memory import Memory

#: Tiles between two roles of one SM.
STAGES = 2


class Stopped(Exception):
    """Another worker has failed."""


class Rank:
    """Runs one device of a program with `sms` compute SMs and `comm_sms` communicators (0: one per compute SM)."""

    def __init__(self, program: TileProgram, dev: int, memory: Memory, sms: int, comm_sms: int, timeout: float) -> None:
        self.program, self.dev, self.memory, self.timeout = program, dev, memory, timeout
        self.sms, self.comm_sms = sms, comm_sms or sms
        self.failures: list[BaseException] = []
        self._deadline = 0.0

    def run(self) -> None:
        """Starts all threads and waits for them; raises the first failure of this rank."""
        self._deadline = time.monotonic() + self.timeout
        threads = [threading.Thread(target=self._guarded, args=(work,), daemon=True) for work in self._works()]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        told = [f for f in self.failures if not isinstance(f, Stopped)]
        if told:
            raise told[0]
        if self.failures:
            raise self.failures[0]

    def _works(self) -> list[Callable[[], None]]:
        works: list[Callable[[], None]] = []
        tasks, moves = self.program.tasks(self.dev), self.program.comm_tasks(self.dev)
        for sm in range(min(self.sms, tasks)):
            mine = [t for t in range(tasks) if self.program.lane(t, self.sms) == sm]
            loaded: queue.Queue[Any] = queue.Queue(STAGES)
            computed: queue.Queue[Any] = queue.Queue(STAGES)
            works += [
                partial(self._role, "loader", _fresh(mine), loaded),
                partial(self._role, "consumer", self._taken(loaded, len(mine)), computed),
                partial(self._role, "storer", self._taken(computed, len(mine)), None),
            ]
        shares = [range(sm, moves, self.comm_sms) for sm in range(min(self.comm_sms, moves))]
        return works + [partial(self._role, "communicator", _fresh(share), None) for share in shares]

    def _taken(self, get: queue.Queue[Any], number: int) -> Iterable[Any]:
        for _ in range(number):
            while True:
                try:
                    yield get.get(timeout=0.05)
                    break
                except queue.Empty:
                    self._check()

    def _role(self, role: str, tasks: Iterable[tuple[int, dict[str, Any]]], out: queue.Queue[Any] | None) -> None:
        follow = getattr(self.program, role)
        for task, tiles in tasks:
            for action in follow(self.dev, task):
                self._do(role, task, action, tiles)
            while out is not None:
                try:
                    out.put((task, tiles), timeout=0.05)
                    break
                except queue.Full:
                    self._check()

    def _do(self, role: str, task: int, action: Any, tiles: dict[str, Any]) -> None:
        arrays, memory, n = self.memory.arrays, self.memory, self.program.devices
        if isinstance(action, p.Compute):
            tiles[action.tile] = action.function(arrays[self.dev])
        elif isinstance(action, p.Load):
            source = arrays[self.dev][action.layout]
            tiles[action.tile] = source[action.rows(arrays[self.dev])] if action.rows is not None else source[_at(action.region)].copy()
        elif isinstance(action, p.Store):
            for dev in range(n) if action.device == p.ALL else (action.device,):
                target = arrays[dev][action.layout][_at(action.region)]
                if action.add:
                    with memory.rows(dev, action.region):
                        target += tiles[action.tile]
                else:
                    target[...] = tiles[action.tile]
        elif isinstance(action, p.Reduce):
            arrays[self.dev][action.target][_at(action.target_region)] = self._sum(action.layout, action.region)
        elif isinstance(action, p.AllReduce):
            total = self._sum(action.layout, action.region)
            for dev in range(n):
                arrays[dev][action.layout][_at(action.region)] = total
        elif isinstance(action, p.Signal):
            for dev in range(n) if action.device == p.ALL else (action.device,):
                memory.add_flag(dev, action.bar, action.coord, action.value)
        elif isinstance(action, p.Wait):
            self._wait(role, task, action.bar, action.coord, action.expected)
        elif isinstance(action, p.Barrier):
            for dev in range(n):
                memory.add_flag(dev, action.bar, action.coord, 1)
            self._wait(role, task, action.bar, action.coord, n)
            memory.add_flag(self.dev, action.bar, action.coord, -n)
        else:
            raise InputError(f"{type(self.program).__name__} yields {action!r}, which is no primitive")

    def _sum(self, layout: str, region: p.Region) -> Any:
        """The sum over all devices, in their order, so that it does not depend on who asks."""
        total = self.memory.arrays[0][layout][_at(region)].copy()
        for dev in range(1, self.program.devices):
            total += self.memory.arrays[dev][layout][_at(region)]
        return total

    def _wait(self, role: str, task: int, bar: str, coord: int, expected: int) -> None:
        # Most signals are near, so the first polls only give way to other threads.
        polls = 0
        while (found := self.memory.flag(self.dev, bar, coord)) < expected:
            self._check()
            if time.monotonic() > self._deadline:
                raise p.DeadlockFound(
                    f"deadlock: {role} of task {task} on device {self.dev} waits for {bar}[{coord}] on device {self.dev}, "
                    f"which has {found} of {expected} signals after {self.timeout:g} s"
                )
            time.sleep(0 if polls < 50 else min(1e-6 * 2 ** (polls - 50), 1e-3) if polls < 62 else 1e-3)
            polls += 1

    def _check(self) -> None:
        if self.memory.stopped[0]:
            raise Stopped("another worker has failed")

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:  # Whatever it is, the other workers must stop waiting.
            self.failures.append(error)
            self.memory.stopped[0] = 1


def _fresh(tasks: Iterable[int]) -> list[tuple[int, dict[str, Any]]]:
    """Tasks that hold no tile yet."""
    return [(task, {}) for task in tasks]


def _at(region: p.Region) -> tuple[slice, ...]:
    return tuple(slice(start, stop) for start, stop in region)


def filled(program: TileProgram, memory: Memory, dev: int, inputs: dict[str, Any]) -> None:
    """Puts a device's input where it belongs; a layout that holds nothing at first is not a number, so that reading too early shows."""
    for name, layout in program.layouts().items():
        target = memory.arrays[dev][name]
        if layout.filled == "nothing":
            target[...] = np.nan
        elif layout.filled == "input":
            given = np.asarray(inputs[name])
            if given.shape != layout.shape:
                raise InputError(f"input {name} of device {dev}: found shape {given.shape}; expected {layout.shape}")
            target[...] = given
