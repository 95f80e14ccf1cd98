"""The coordinator's transfers on virtual ranks: messages in simulated time, and what kernels that communicate themselves would save.

A kernel costs (our design; seconds on the rank's clock, on top of what the kernel computes and what the messages cost):

    host            launch, then synchronise with the stream; the host posts and acknowledges
    partial-device  launch; the kernel moves data (`device.put`), and the host posts and acknowledges only the signal
    full-device     cooperative launch; the kernel moves data, signals and waits (`device.post`, `device.acknowledge`)

A kernel bound for a device mode is called with the device as its first argument.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from armillary.comm.communicator import Communicator
from armillary.comm.coordination.signals import check_signal
from armillary.comm.coordination.transfers import Transfers, first
from armillary.comm.messages.buffers import Array, Buffer

#: Seconds of a launch, of a cooperative launch and of a stream's synchronisation, as CUDA on current GPUs has them, to the microsecond.
LAUNCH_S = 4e-6
COOPERATIVE_LAUNCH_S = 8e-6
SYNCHRONIZE_S = 6e-6
#: The tags of the coordinator's messages: data with its signal, and data that a kernel put.
_POSTED, _PUT = 0, 32_000


class VirtualTransfers(Transfers):
    """Posts as messages. In the device modes the host's calls send only signals, or nothing, because the device does the work."""

    modes = ("host", "partial-device", "full-device")

    def __init__(self, comm: Communicator, stream: Any = None) -> None:
        super().__init__(comm, stream)
        ranks: Any = comm
        self._shared = ranks._state.world.__dict__.setdefault("_coordinated", {})
        self._name = (ranks._context, self._number)

    def set_mode(self, mode: str) -> None:
        """Replace the calls of the host by those that the mode has."""
        if mode == "partial-device":
            self.__dict__.update(post=self._signal, acknowledge=self._acknowledge_put)
        elif mode == "full-device":
            self.__dict__.update(post=_nothing, acknowledge=_nothing)

    def _signal(self, src: Buffer, dst: Buffer, count: int, signal: Array | None, value: int, dest: int) -> None:
        first(src, count, "src")
        super().post(np.zeros(0), dst, 0, signal, value, dest)

    def _acknowledge_put(self, dst: Buffer, count: int, signal: Array | None, value: int, source: int) -> None:
        self._awaited.append((self._ranks.irecv(first(dst, count, "dst"), source, _PUT), None, 0, -1, None))
        super().acknowledge(np.zeros(0), 0, signal, value, source)

    def _acknowledge(self) -> None:
        puts = [entry[0] for entry in self._awaited if entry[4] is None]
        self._awaited = [entry for entry in self._awaited if entry[4] is not None]
        super()._acknowledge()
        for request in puts:
            request.wait()

    def bound(self, kernel: Callable[..., Any], grid: Any, block: Any, args: tuple[Any, ...], mode: str) -> Callable[[], Any]:
        """Return the kernel with the cost of its launch. A function without a grid is the host's own and costs nothing."""
        if mode == "host":
            before, after = (LAUNCH_S, SYNCHRONIZE_S) if grid is not None else (0.0, 0.0)
        else:
            before, after = (LAUNCH_S if mode == "partial-device" else COOPERATIVE_LAUNCH_S), 0.0
            args = (Device(self, mode == "full-device"), *args)

        def launch() -> Any:
            self.comm.compute(seconds=before)
            answer = kernel(*args)
            self.comm.compute(seconds=after)
            return answer

        return launch


class Device:
    """The calls that a kernel on a virtual rank makes; they are the operations of a thread block."""

    def __init__(self, transfers: VirtualTransfers, waits: bool) -> None:
        self._transfers = transfers
        self.comm = transfers.comm
        if waits:
            self.post = self._post
            self.acknowledge = self._wait

    def put(self, src: Buffer, dst: Buffer, count: int, dest: int) -> None:
        """Move data. The host's post says when it has arrived."""
        transfers = self._transfers
        transfers._posted.append(transfers._ranks.isend(first(src, count, "src"), dest, _PUT))

    def _post(self, src: Buffer, dst: Buffer, count: int, signal: Array | None, value: int, dest: int) -> None:
        """Move data and raise the signal."""
        check_signal(signal)
        values = self._transfers._values(self.comm.rank, dest)
        if values is not None:
            values.append(value)
        self._transfers._posted.append(self._transfers._ranks.isend(first(src, count, "src"), dest, _POSTED))

    def _wait(self, dst: Buffer, count: int, signal: Array | None, value: int, source: int) -> None:
        """Wait for the signal; the data has arrived then."""
        Transfers.acknowledge(self._transfers, dst, count, signal, value, source)


def _nothing(*args: Any) -> None:
    """Do nothing, because the device does it."""
