"""The coordinator's transfers over a torch.distributed group: with Gloo on the host, with NCCL on the device's stream.

Buffers are arrays and tensors of the host (Gloo) or tensors of the device (NCCL). A post is one call of the group, and with NCCL a batch
is one NCCL group. The stream orders what the device does, and the host does not wait for it. Signals are not sent, because matching orders
posts and acknowledgements.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from typing import Any, ClassVar

import numpy as np
import torch

from armillary.comm.collectives.operations import Op
from armillary.comm.communicator import Communicator
from armillary.comm.coordination.prepared import Call, Message, PreparedTransfers, unowned
from armillary.comm.coordination.transfers import check_count, first
from armillary.comm.messages.buffers import Buffer
from armillary.comm.messages.envelope import PROC_NULL, InPlace
from armillary.comm.torch_distributed.library import OPS, dist, lost, reduction
from armillary.errors import InputError

#: The tag of the coordinator's messages over Gloo; NCCL has none.
_TAG = 0x60000000
#: The types that are reduced natively.
_REDUCED = (torch.float64, torch.float32, torch.int64, torch.int32)


class TorchTransfers(PreparedTransfers):
    """Transfers of the ranks of a torch.distributed group; the base of those with Gloo and with NCCL."""

    def __init__(self, comm: Communicator, stream: Any = None) -> None:
        super().__init__(comm, stream)
        self._group = comm.native
        self._stream = stream
        self._device = self._find_device()
        self._bind_messages(self._message, self._finish, (RuntimeError, lost), raises=not self.on_device)
        self._bind_collectives(self._reduction, self._gathering)

    def _find_device(self) -> Any:
        raise NotImplementedError

    def _tensor(self, buffer: Buffer, count: int | None, what: str) -> Any:
        """Return the first elements of a buffer as a tensor that does not keep an array of the host alive; all if `count` is None."""
        if isinstance(buffer, torch.Tensor):
            if buffer.device.type != self._device.type:
                raise InputError(f"{what}: found a tensor on {buffer.device.type}; expected {self._device.type} on these ranks")
            if not buffer.is_contiguous():
                raise InputError(f"{what}: found a tensor that is not contiguous; expected a contiguous one")
            whole = buffer.detach().reshape(-1)
            count = whole.numel() if count is None else count
            check_count(count, whole.numel(), what)
            return whole[:count]
        if self.on_device:
            raise InputError(f"{what}: found {type(buffer).__name__}; expected a tensor of the GPU on these ranks")
        array = first(buffer, np.asarray(buffer).size if count is None else count, what)
        try:
            return torch.from_numpy(unowned(array))
        except TypeError:
            return torch.from_numpy(unowned(array.view(np.uint8)))

    # Messages

    def _message(self, buffer: Buffer, count: int, what: str, rank: int) -> Message:
        tensor = self._tensor(buffer, count, what)
        if rank == PROC_NULL:
            return Message(0, _nothing, _Nothing)
        start = partial(self._group.send if what == "src" else self._group.recv, [tensor], rank, 0 if self.on_device else _TAG)

        def now() -> None:
            try:
                with self._ordered():
                    start().wait()
            except RuntimeError as error:
                raise lost(error) from error

        return Message(_nbytes(tensor), now, self._started(start))

    def _started(self, start: Callable[[], Any]) -> Callable[[], Any]:
        """Return how a message starts inside a batch."""
        return start

    def _finish(self, begun: list[Any]) -> None:
        for work in begun:
            work.wait()

    def _ordered(self) -> Any:
        """Return a context in which calls are ordered on the coordinator's stream."""
        return nullcontext()

    # Collective calls

    def _performed(self, call: Callable[[], Any]) -> Callable[[], None]:
        def perform() -> None:
            try:
                call().wait()
            except RuntimeError as error:
                raise lost(error) from error

        return perform

    def _reduction(self, send: Any, recv: Any, op: Op) -> Call | None:
        if recv is None or op.name not in OPS:
            return None
        answer = self._tensor(recv, None, "recv")
        if answer.dtype not in _REDUCED:
            return None
        mine = None if isinstance(send, InPlace) or send is recv else self._tensor(send, None, "send")
        if mine is not None and (mine.dtype != answer.dtype or mine.numel() != answer.numel()):
            found = f"{mine.numel()} elements of {mine.dtype} to send and room for {answer.numel()} of {answer.dtype}"
            raise InputError(f"allreduce: found {found}; expected the same")
        reduce = partial(self._group.allreduce, [answer], reduction(dist.AllreduceOptions(), op.name))

        def call() -> Any:
            answer.copy_(mine)
            return reduce()

        return Call(_nbytes(answer), self._performed(reduce if mine is None else call))

    def _gathering(self, send: Any, recv: Any, counts: Any, displacements: Any) -> Call | None:
        if recv is None or len(set(counts)) != 1 or displacements is not None or isinstance(send, InPlace):
            return None
        room, mine, count = self._tensor(recv, None, "recv"), self._tensor(send, None, "send"), counts[self.comm.rank]
        if mine.dtype != room.dtype or mine.numel() != count or room.numel() != sum(counts):
            raise InputError(f"allgatherv: found {mine.numel()} elements of {mine.dtype} to send; expected {count} of {room.dtype}")
        return Call(_nbytes(mine), self._performed(partial(self._group._allgather_base, room, mine)))


class GlooTransfers(TorchTransfers):
    """Transfers over Gloo, in main memory."""

    def _find_device(self) -> Any:
        return torch.device("cpu")


class NcclTransfers(TorchTransfers):
    """Transfers over NCCL: tensors of the device, ordered by its stream; a batch is one group of NCCL."""

    on_device: ClassVar[bool] = True

    def __init__(self, comm: Communicator, stream: Any = None) -> None:
        if not hasattr(comm.native, "_start_coalescing"):
            raise InputError("comm: found a communicator of CuPy; expected a group of torch.distributed for a coordinator on nccl")
        #: Whether the open batch has opened its NCCL group.
        self._opened = False
        super().__init__(comm, stream)

    def _find_device(self) -> Any:
        return torch.device("cuda", torch.cuda.current_device())

    def _started(self, start: Callable[[], Any]) -> Callable[[], Any]:
        def begin() -> Any:
            if not self._opened:
                self._opened = True
                self._group._start_coalescing(self._device)
            return start()

        return begin

    def _finish(self, begun: list[Any]) -> None:
        if not self._opened:
            return
        self._opened = False
        with self._ordered():
            self._group._end_coalescing(self._device).wait()

    def _ordered(self) -> Any:
        return nullcontext() if self._stream is None else torch.cuda.stream(self._stream)

    def alloc(self, shape: Any, dtype: Any = np.float64) -> Any:
        """Allocate a tensor of zeros on the device."""
        return torch.zeros(shape, dtype=getattr(torch, np.dtype(dtype).name), device=self._device)

    def bound(self, kernel: Callable[..., Any], grid: Any, block: Any, args: tuple[Any, ...], mode: str) -> Callable[[], Any]:
        """Return the launch of a kernel on the coordinator's stream.

        A kernel that can be indexed is launched as `kernel[grid](*args)` or `kernel[grid, block](*args)`, another one as
        `kernel(grid, block, args)`. A function without a grid is called with `args`.
        """
        if grid is None:
            call = partial(kernel, *args)
        elif hasattr(kernel, "__getitem__"):
            call = partial(kernel[grid] if block is None else kernel[grid, block], *args)
        else:
            call = partial(kernel, grid, block, args)

        def launch() -> Any:
            with self._ordered():
                return call()

        return launch


class _Nothing:
    """The work of a message to or from nobody."""

    def wait(self) -> None:
        """Return at once."""


def _nothing() -> None:
    """Transfer nothing."""


def _nbytes(tensor: Any) -> int:
    return int(tensor.numel() * tensor.element_size())
