"""The executor `sim`: a program yields its actions, which become operations of workers; no data moves.

A compute SM is a consumer (with its loader, which runs ahead) and a storer that are coupled by buffers for `stages` tiles; communicators
are SMs of their own, or one more warp in each compute SM. What an action costs is decided here, once for all programs.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from armillary.errors import InputError
from armillary.training.overlap.machine.mechanisms import BARRIER_S, FLAG_S, LAUNCH_S, SIGNAL_S, Gpu, Mechanism
from armillary.training.overlap.programs import primitives as p
from armillary.training.overlap.programs.template import BOX, WARP, TileProgram

from .schedule import COMPUTE, FREED, PRODUCED, SEND, SIGNAL, WAIT, Building, Schedule

#: Tiles in shared memory that a storer may hold while the consumer computes the next one.
STAGES = 1


@dataclass(frozen=True)
class Traced:
    """A program's operations, before its tasks are given to SMs."""

    program: TileProgram
    gpu: Gpu
    made: Building
    #: By device: tasks of consumers, of storers (none if the program has no storer), of communicators.
    consumers: list[Any]
    storers: list[Any]
    communicators: list[Any]

    def schedule(self, comm_sms: int) -> Schedule:
        """The schedule with this many communicator SMs; 0 puts a communicator into each compute SM."""
        check_comm_sms(self.program, self.gpu, comm_sms)
        made = copy.copy(self.made)
        for name in ("_flags", "_queues", "_queue_gates", "_workers", "_lanes"):
            setattr(made, name, list(getattr(self.made, name)))
        for dev in range(self.program.devices):
            tasks = self.consumers[dev]
            compute = self.gpu.sms - comm_sms if len(tasks) else 0
            first = dev * self.gpu.sms
            lanes = np.array([self.program.lane(t, compute) for t in range(len(tasks))], np.int64) if compute else np.empty(0, np.int64)
            for sm in range(compute):
                mine = tasks[lanes == sm]
                flags = made.flag(f"tiles of SM {sm} on device {dev}", 2)
                made.worker(f"SM {sm}", dev, [made.queue(mine)], produced=flags, freed=flags + 1, sm=first + sm)
                if len(self.storers[dev]):
                    queue = made.queue(self.storers[dev][lanes == sm])
                    made.worker(f"SM {sm} storer", dev, [queue], produced=flags, freed=flags + 1, sm=first + sm)
            # More warps than saturate the link would only deliver everything later.
            warps = comm_sms or min(compute or self.gpu.sms, self.gpu.tma.sms + 1)
            name = "SM {} communicator" if not comm_sms else "communicator SM {}"
            for sm in range(min(warps, len(self.communicators[dev]))):
                made.worker(name.format(sm), dev, [made.queue(self.communicators[dev][sm::warps])], sm=-1 if comm_sms else first + sm)
        return made.schedule(comm_sms)


def check_comm_sms(program: TileProgram, gpu: Gpu, comm_sms: int) -> None:
    """Raises InputError where the program cannot run with this many communicator SMs."""
    most = gpu.sms - 1 if program.tasks(0) else gpu.sms
    if not 0 <= comm_sms <= most:
        raise InputError(f"{comm_sms} communicator SMs; expected 0 to {most}")


def trace(program: TileProgram, gpu: Gpu, *, in_sm: bool) -> Traced:
    """Collects what all roles do on all devices; `in_sm` says that communicators share the SMs of consumers."""
    program.tile.check(gpu, program.operator.bytes_per_element)
    made = Building(gpu, program.devices, stages=STAGES, launch_s=LAUNCH_S)
    bars = {
        name: [made.flag(f"{name} on device {dev}", count) if count > 1 else made.flag(f"{name}[0] on device {dev}")
               for dev in range(program.devices)]
        for name, count in program.bars().items()
    }  # fmt: skip
    consumers, storers, communicators = [], [], []
    for dev in range(program.devices):
        one = _Device(program, gpu, made, bars, dev, in_sm)
        count, moves = program.tasks(dev), program.comm_tasks(dev)
        consumers.append(one.tasks("consumer", count, one.consume))
        storers.append(one.tasks("storer", count if program.stored else 0, one.store))
        communicators.append(one.tasks("communicator", moves, one.communicate))
    return Traced(program, gpu, made, consumers, storers, communicators)


class _Device:
    """Turns the actions of one device into operations."""

    def __init__(self, program: TileProgram, gpu: Gpu, made: Building, bars: dict[str, list[int]], dev: int, in_sm: bool) -> None:
        self.program, self.gpu, self.made, self.bars, self.dev = program, gpu, made, bars, dev
        self.sizes = program.bars()
        self.width = program.operator.bytes_per_element
        self.dtype = program.operator.dtype
        self.in_sm = in_sm
        self.kind: list[int] = []
        self.what: list[int] = []
        self.amount: list[float] = []
        self.count: list[int] = []
        self.routes: dict[Any, int] = {}
        self.emitters: dict[type, Callable[[Any], None]] = {
            p.Store: self._store, p.Reduce: self._reduce, p.AllReduce: self._all_reduce, p.Signal: self._signal, p.Wait: self._wait,
            p.Barrier: self._barrier, p.Load: self._load, p.Compute: self._compute,
        }  # fmt: skip

    def tasks(self, role: str, number: int, do: Callable[[int], None]) -> Any:
        """All tasks of one role."""
        if number == 0:
            return np.empty(0, np.int64)
        self.kind, self.what, self.amount, self.count = [], [], [], []
        lengths, before = [], 0
        for task in range(number):
            do(task)
            lengths.append(len(self.kind) - before)
            before = len(self.kind)
        columns = (
            np.array(self.kind, np.int64),
            np.array(self.what, np.int64),
            np.array(self.amount, float),
            np.array(self.count, np.int64),
        )
        return self.made.tasks(columns, lengths, device=self.dev, role=role)

    def consume(self, task: int) -> None:
        """Loader and consumer; a finished tile leaves the registers when the storer has a buffer for it."""
        self._do(self.program.loader(self.dev, task))
        self._do(self.program.consumer(self.dev, task))
        if self.program.stored:
            self._add(WAIT, FREED, 0.0, 0)
            self._add(SIGNAL, PRODUCED, BARRIER_S, 1)

    def store(self, task: int) -> None:
        """The storer, after its consumer."""
        self._add(WAIT, PRODUCED, 0.0, 0)
        self._do(self.program.storer(self.dev, task))
        self._add(SIGNAL, FREED, BARRIER_S, 1)

    def communicate(self, task: int) -> None:
        """A communicator."""
        self._do(self.program.communicator(self.dev, task))

    def _do(self, actions: Any) -> None:
        for action in actions:
            emit = self.emitters.get(type(action))
            if emit is None:
                known = "store_async, store_add_async, reduce, all_reduce, signal, signal_all, wait, barrier, load and compute"
                raise InputError(f"{type(self.program).__name__} yields {action!r}, which is no primitive; expected {known}")
            emit(action)

    def _add(self, kind: int, what: int, amount: float, count: int) -> None:
        self.kind.append(kind)
        self.what.append(what)
        self.amount.append(amount)
        self.count.append(count)

    def _flag(self, bar: str, coord: int, dev: int) -> int:
        if bar not in self.bars or not 0 <= coord < self.sizes[bar]:
            raise InputError(f"{type(self.program).__name__}: flag {bar}[{coord}] does not exist; there are {self.sizes}")
        return self.bars[bar][dev] + coord

    def _store(self, action: p.Store) -> None:
        if action.device == self.dev:
            return
        size = self.width * p.elements(action.region)
        if action.device == p.ALL:
            self._send(("all",), size, lambda by, message: self.made.multicast(self.dev, by, message))
        else:
            self._send((action.device,), size, lambda by, message: self.made.p2p(self.dev, action.device, by, message))

    def _reduce(self, action: p.Reduce) -> None:
        self._registers(action.region, False)

    def _all_reduce(self, action: p.AllReduce) -> None:
        self._registers(action.region, True)

    def _registers(self, region: p.Region, store: bool) -> None:
        if self.program.devices == 1:
            return
        if not self.gpu.in_fabric:
            raise InputError(f"{self.gpu.name} has no reduction in the fabric")
        if self.in_sm:
            raise InputError("reductions in the fabric need SMs of their own: a communicator inside a compute SM has no registers for them")
        key = ("fabric", store)
        route = self.routes.get(key)
        if route is None:
            route = self.routes[key] = self.made.in_fabric(self.dev, self.gpu.registers, WARP, store=store)
        self._add(SEND, route, float(self.width * p.elements(region)), 0)

    def _send(self, key: tuple[Any, ...], size: float, make: Callable[[Mechanism, float], int]) -> None:
        if self.program.devices == 1:
            return
        message = min(size, BOX)
        route = self.routes.get((*key, message))
        if route is None:
            route = self.routes[*key, message] = make(self.gpu.tma, message)
        self._add(SEND, route, float(size), 0)

    def _signal(self, action: p.Signal) -> None:
        targets = range(self.program.devices) if action.device == p.ALL else (action.device,)
        for dev in targets:
            self._add(SIGNAL, self._flag(action.bar, action.coord, dev), FLAG_S if dev == self.dev else SIGNAL_S, action.value)

    def _wait(self, action: p.Wait) -> None:
        self._add(WAIT, self._flag(action.bar, action.coord, self.dev), 0.0, action.expected)

    def _barrier(self, action: p.Barrier) -> None:
        self._signal(p.signal_all(action.bar, action.coord))
        self._add(WAIT, self._flag(action.bar, action.coord, self.dev), 0.0, self.program.devices)
        self._add(SIGNAL, self._flag(action.bar, action.coord, self.dev), 0.0, -self.program.devices)

    def _load(self, action: p.Load) -> None:
        """Memory is faster than the link, and a load runs ahead of the store that follows it."""

    def _compute(self, action: p.Compute) -> None:
        self._add(COMPUTE, 0, compute_seconds(self.gpu, action, self.dtype), 0)


def tile_seconds(program: TileProgram, gpu: Gpu, dev: int, task: int) -> float:
    """Seconds of one task's computation on one SM."""
    return sum(compute_seconds(gpu, a, program.operator.dtype) for a in program.consumer(dev, task) if isinstance(a, p.Compute))


def compute_seconds(gpu: Gpu, action: p.Compute, dtype: str) -> float:
    """Seconds of a tile on one SM. The SMs of a wave form a block of tiles that share rows and columns through L2."""
    return gpu.tile_seconds(action.flops, action.reads / math.sqrt(gpu.sms) + action.writes, dtype, action.attention)
