"""Kernels, library calls and copies on the streams of each device, as a host that runs ahead would launch them.

Kernels share the SMs: a free SM takes a tile of the first open kernel. A library call holds its SMs until the slowest device has finished,
and moves data through the links with registers; a copy engine needs no SM. Work begins when all events that it depends on have happened.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from armillary.training.overlap.machine.mechanisms import (
    CALL_S,
    CALL_SMS,
    FINE_BYTES,
    LAUNCH_S,
    SIGNAL_S,
    STAGING,
    STREAM_S,
    Gpu,
)
from armillary.training.overlap.simulation.schedule import COMPUTE, SEND, SIGNAL, WAIT, Building, Schedule


@dataclass(frozen=True)
class Event:
    """Something that has happened when a flag has this many signals."""

    flag: int
    count: int


class Streams:
    """Streams of all devices. Events of different devices may be mixed freely in `after`."""

    def __init__(self, gpu: Gpu, devices: int) -> None:
        self.gpu, self.devices = gpu, devices
        self.made = Building(gpu, devices, launch_s=LAUNCH_S)
        #: By device: queues of library calls, which come first, of kernels, and of copies.
        self._calls: list[list[int]] = [[] for _ in range(devices)]
        self._kernels: list[list[int]] = [[] for _ in range(devices)]
        self._copies: list[list[int]] = [[] for _ in range(devices)]
        self._held = 0

    def kernel(self, dev: int, seconds: npt.NDArray[np.float64], after: Iterable[Event] = (), name: str = "kernel") -> Event:
        """A kernel with one tile per entry of `seconds`, which are seconds on one SM."""
        done = self.made.flag(f"{name} of device {dev}")
        gate = self._gate(dev, after, STREAM_S, name)
        n = len(seconds)
        kinds = np.tile(np.array([COMPUTE, SIGNAL], np.int64), n)
        what = np.tile(np.array([0, done], np.int64), n)
        amount = np.column_stack([seconds, np.zeros(n)]).ravel()
        count = np.tile(np.array([0, 1], np.int64), n)
        tasks = self.made.tasks((kinds, what, amount, count), np.full(n, 2), device=dev, role=name)
        self._kernels[dev].append(self.made.queue(tasks, gate, 1))
        return Event(done, n)

    def passes(self, dev: int, moved: float, after: Iterable[Event] = (), name: str = "pass") -> Event:
        """A kernel that only moves bytes in the device's memory."""
        return self.kernel(dev, np.full(self.gpu.sms, self.gpu.tile_seconds(0.0, moved / self.gpu.sms, "bf16")), after, name)

    def library(
        self, kind: str, payload: float, after: Sequence[Sequence[Event]], sends: npt.NDArray[np.float64] | None = None
    ) -> list[Event]:
        """A collective of all devices (or a send to the next one); gives one event per device.

        `payload` is the whole tensor in bytes; `after` has the events of each device; `sends` replaces the payload of an all-to-all by
        the bytes from each device to each. An all-reduce takes the fabric where that is faster than a ring, as NCCL does.
        """
        n = self.devices
        if n == 1:
            return [self._join(0, after[0])]
        met = self.made.flag(f"{kind} entered")
        finished = [self.made.flag(f"{kind} done on device {d}") for d in range(n)]
        transfers = [self._transfers(kind, payload, d, sends) for d in range(n)]
        total = sum(len(mine) for mine in transfers)
        for d in range(n):
            gate = self._gate(d, after[d], CALL_S, kind)
            one = [(SIGNAL, met, SIGNAL_S, 1), (WAIT, finished[d], 0.0, total)]
            tasks = self.made.tasks(one * CALL_SMS, [2] * CALL_SMS, device=d, role=kind)
            self._calls[d].append(self.made.queue(tasks, gate, 1))
            for route, size in transfers[d]:
                moves = [(WAIT, met, 0.0, n * CALL_SMS), (SEND, route, size, 0), *((SIGNAL, f, SIGNAL_S, 1) for f in finished)]
                self.made.worker(f"{kind} stream", d, [self.made.queue(self.made.tasks(moves, device=d, role=kind))])
        self._held = max(self._held, CALL_SMS)
        return [Event(finished[d], total) for d in range(n)]

    def copy(self, dev: int, target: int | None, size: float, after: Sequence[Event]) -> Event:
        """A copy to another device, or to all others; a free engine of the device takes the first copy that may begin."""
        by = self.gpu.copy_engine
        done = self.made.flag(f"copy from device {dev}")
        route = self.made.multicast(dev, by, size, None) if target is None else self.made.p2p(dev, target, by, size, None)
        moves = [(COMPUTE, 0, by.launch_s, 0), (SEND, route, size, 0), (SIGNAL, done, SIGNAL_S, 1)]
        gate = after[0] if len(after) == 1 else self._join(dev, after) if after else Event(-1, 0)
        self._copies[dev].append(self.made.queue(self.made.tasks(moves, device=dev, role="copy"), gate.flag, gate.count))
        return Event(done, 1)

    def schedule(self) -> Schedule:
        """The schedule of everything that was launched."""
        for dev in range(self.devices):
            for sm in range(self.gpu.sms):
                self.made.worker(f"SM {sm}", dev, [*self._calls[dev], *self._kernels[dev]])
            for number in range(min(self.gpu.engines, len(self._copies[dev]))):
                self.made.worker(f"copy engine {number}", dev, self._copies[dev])
        return self.made.schedule(self._held)

    def _transfers(self, kind: str, payload: float, d: int, sends: npt.NDArray[np.float64] | None) -> list[tuple[int, float]]:
        """Routes and bytes of one device's part in a collective."""
        n, by = self.devices, self.gpu.registers
        slow = STAGING if payload / n < FINE_BYTES else 1.0
        following = (d + 1) % n
        if kind == "all-to-all":
            each = np.full((n, n), payload / n) if sends is None else sends
            return [
                (self.made.route({d: 1.0}, {e: 1.0}, by, 1 << 20, None, STAGING if each[d, e] < FINE_BYTES else 1.0), float(each[d, e]))
                for e in range(n) if e != d and each[d, e] > 0
            ]  # fmt: skip
        if kind == "all-reduce":
            if self.gpu.in_fabric and n + 1 < 2 * (n - 1):
                up = {e: 1.0 + (e == d) for e in range(n)}
                return [(self.made.route(up, up, by, 1 << 20, None, slow), payload / n)]
            return [(self.made.route({d: 1.0}, {following: 1.0}, by, 1 << 20, None, slow), 2 * (n - 1) / n * payload)]
        size = payload if kind == "send" else (n - 1) / n * payload
        slow = slow if kind != "send" else STAGING if payload < FINE_BYTES else 1.0
        return [(self.made.route({d: 1.0}, {following: 1.0}, by, 1 << 20, None, slow), size)]

    def _gate(self, dev: int, after: Iterable[Event], seconds: float, name: str) -> int:
        """A flag that is set `seconds` after all events."""
        gate = self.made.flag(f"launch of {name} on device {dev}")
        steps = [(WAIT, e.flag, 0.0, e.count) for e in after]
        steps += [(COMPUTE, 0, seconds, 0), (SIGNAL, gate, 0.0, 1)]
        self.made.worker(f"{name} launch", dev, [self.made.queue(self.made.tasks(steps, device=dev, role="launch"))])
        return gate

    def _join(self, dev: int, after: Iterable[Event]) -> Event:
        return Event(self._gate(dev, after, 0.0, "join"), 1)
