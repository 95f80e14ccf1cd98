"""A coordinator's transfers over a torch.distributed group: NCCL on the device's stream, one NCCL group for a batch; Gloo on the host.

Buffers are tensors of the device (NCCL), or arrays and tensors of the host (Gloo). A post is one call of the group; what the device does is
ordered by the stream, and the host does not wait for it. Signals are not sent: matching orders posts and acknowledgements.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

from armillary.comm.buffers import Buffer
from armillary.comm.communicator import Communicator
from armillary.comm.failures import Aborted
from armillary.comm.message import InPlace, check_rank
from armillary.comm.operations import SUM, Op
from armillary.comm.signals import check_signal
from armillary.comm.transfers import Remembered, Transfers, first, unowned
from armillary.errors import InputError

#: The coordinator's own tag between processes; NCCL has none.
_TAG = 0x60000000
_OPS: dict[str, Any] = {"sum": dist.ReduceOp.SUM, "prod": dist.ReduceOp.PRODUCT, "min": dist.ReduceOp.MIN, "max": dist.ReduceOp.MAX}


class TorchTransfers(Transfers):
    """Transfers of torch.distributed ranks."""

    def __init__(self, comm: Communicator, stream: Any = None) -> None:
        super().__init__(comm, None)
        ranks: Any = comm
        self._group = ranks.native
        self._on_device = "nccl" in str(dist.get_backend(self._group))
        if stream is not None and not self._on_device:
            raise InputError("stream: found one; expected None where ranks have no device")
        self._stream = stream
        self._device = torch.device("cuda", torch.cuda.current_device()) if self._on_device else torch.device("cpu")
        #: The place of each rank in the library's group.
        order = getattr(ranks, "_order", range(comm.size))
        self._places = [list(order).index(rank) for rank in range(comm.size)]
        self._bind_messages()
        self._bind_collectives()

    def alloc(self, shape: Any, dtype: Any = np.float64) -> Any:
        """Zeros: a tensor of the device, an array of the host."""
        if not self._on_device:
            return np.zeros(shape, dtype)
        return torch.zeros(shape, dtype=getattr(torch, np.dtype(dtype).name), device=self._device)

    def _tensor(self, buffer: Buffer, count: int | None, what: str) -> Any:
        """The first elements of a buffer as a tensor; it does not keep an array of the host alive."""
        if isinstance(buffer, torch.Tensor):
            if buffer.device.type != self._device.type:
                raise InputError(f"{what}: found a tensor on {buffer.device.type}; expected {self._device.type} on these ranks")
            if not buffer.is_contiguous():
                raise InputError(f"{what}: found a tensor that is not contiguous; expected a contiguous one")
            whole = buffer.detach().reshape(-1)
            count = whole.numel() if count is None else count
            if not 0 <= count <= whole.numel():
                raise InputError(f"count: found {count}; expected 0 to the {whole.numel()} elements of {what}")
            return whole[:count]
        if self._on_device:
            raise InputError(f"{what}: found {type(buffer).__name__}; expected a tensor of the GPU on these ranks")
        array = first(buffer, np.asarray(buffer).size if count is None else count, what)
        try:
            return torch.from_numpy(unowned(array))
        except TypeError:
            return torch.from_numpy(unowned(array.view(np.uint8)))

    def bound(self, kernel: Callable[..., Any], grid: Any, block: Any, args: tuple[Any, ...], mode: str) -> Callable[[], Any]:
        """The kernel on the coordinator's stream: `kernel[grid](*args)` where it takes a grid so, else `kernel(grid, block, args)`."""
        if grid is None or not self._on_device:
            call: Callable[[], Any] = lambda: kernel(*args)  # noqa: E731
        elif hasattr(kernel, "__getitem__"):
            launcher = kernel[grid] if block is None else kernel[grid, block]
            call = lambda: launcher(*args)  # noqa: E731
        else:
            call = lambda: kernel(grid, block, args)  # noqa: E731
        stream = self._stream

        def launch() -> Any:
            with torch.cuda.stream(stream) if stream is not None else nullcontext():
                return call()

        return launch

    def _bind_messages(self) -> None:
        comm, tally, group, device, places = self.comm, self.comm._tally, self._group, self._device, self._places
        send, recv, coalesced = group.send, group.recv, self._on_device
        tag = 0 if coalesced else _TAG
        sends, recvs = Remembered(), Remembered()
        works: list[Any] = []
        buffers: list[Any] = []
        signals: list[tuple[Any, int]] = []
        inside = opened = False
        stream = self._stream

        def prepare(table: Remembered, buffer: Buffer, what: str, signal: Any, count: int, rank: int) -> tuple[Any, ...]:
            check_signal(signal)
            check_rank(rank, comm.size, "dest" if what == "src" else "source")
            tensor = self._tensor(buffer, count, what)
            other = rank != comm.rank and what == "src"
            nbytes = tensor.numel() * tensor.element_size() if other else 0
            entry = ([tensor], places[rank], int(other), nbytes)
            return table.keep((id(buffer), count, rank), (buffer,), entry)

        def transfer(call: Any, entry: tuple[Any, ...], buffer: Buffer) -> None:
            nonlocal opened
            if not inside:
                try:
                    with torch.cuda.stream(stream) if stream is not None else nullcontext():
                        call(entry[0], entry[1], tag).wait()
                except RuntimeError as error:
                    raise _ended(error) from error
                return
            if coalesced and not opened:
                opened = True
                group._start_coalescing(device)
            work = call(entry[0], entry[1], tag)
            buffers.append(buffer)
            if not coalesced:
                works.append(work)

        def post(src: Buffer, dst: Buffer, count: int, signal: Any, value: int, dest: int) -> None:
            entry = sends.get((id(src), count, dest)) or prepare(sends, src, "src", signal, count, dest)
            counters = tally.now
            counters.calls += 1
            counters.messages += entry[2]
            counters.bytes += entry[3]
            transfer(send, entry, src)

        def acknowledge(dst: Buffer, count: int, signal: Any, value: int, source: int) -> None:
            entry = recvs.get((id(dst), count, source)) or prepare(recvs, dst, "dst", signal, count, source)
            tally.now.calls += 1
            transfer(recv, entry, dst)
            if signal is not None and not coalesced:
                # On a device the stream orders everything; raising the signal would cost a kernel.
                if inside:
                    signals.append((signal, value))
                else:
                    signal[0] = value

        def begin() -> None:
            nonlocal inside
            inside = True

        def end() -> None:
            nonlocal inside
            inside = False
            wait()

        def wait() -> None:
            nonlocal opened
            try:
                if opened:
                    opened = False
                    with torch.cuda.stream(stream) if stream is not None else nullcontext():
                        group._end_coalescing(device).wait()
                for work in works:
                    work.wait()
            except RuntimeError as error:
                raise _ended(error) from error
            finally:
                works.clear()
                buffers.clear()
            for signal, value in signals:
                signal[0] = value
            signals.clear()

        def drop() -> None:
            nonlocal inside
            inside = False
            signals.clear()
            wait()

        self.__dict__.update(post=post, acknowledge=acknowledge, begin=begin, end=end, wait=wait, drop=drop)

    def _bind_collectives(self) -> None:
        comm, tally, group, on_device, wait = self.comm, self.comm._tally, self._group, self._on_device, self.wait
        general_allreduce, general_allgatherv = super().allreduce, super().allgatherv
        reductions, gathers = Remembered(), Remembered()
        in_order = self._places == list(range(comm.size))
        alone = comm.size == 1

        def prepare_reduction(send: Any, recv: Any, op: Op) -> tuple[Any, ...] | None:
            if recv is None or op.name not in _OPS or "allreduce" in comm._chosen:
                return None
            answer = self._tensor(recv, None, "recv")
            if answer.dtype not in (torch.float64, torch.float32, torch.int64, torch.int32):
                return None
            mine = None if isinstance(send, InPlace) or send is recv else self._tensor(send, None, "send")
            if mine is not None and (mine.dtype != answer.dtype or mine.numel() != answer.numel()):
                found = f"{mine.numel()} of {mine.dtype} to send and room for {answer.numel()} of {answer.dtype}"
                raise InputError(f"allreduce: found {found}; expected the same")
            options = dist.AllreduceOptions()
            options.reduceOp = _OPS[op.name]
            entry = (mine, answer, [answer], options, 0 if alone else answer.numel() * answer.element_size())
            return reductions.keep((id(send), id(recv), op.name), (send, recv), entry)

        def allreduce(send: Any, recv: Any = None, op: Op = SUM, order: str | None = None) -> Any:
            known = reductions.get((id(send), id(recv), op.name)) if order is None else None
            if known is None:
                known = prepare_reduction(send, recv, op) if order is None else None
                if known is None:
                    return general_allreduce(send, recv, op, order)
            wait()
            mine, answer, tensors, options, nbytes = known
            counters = tally.now
            counters.calls += 1
            counters.collectives += 1
            counters.bytes += nbytes
            if mine is not None:
                answer.copy_(mine)
            try:
                group.allreduce(tensors, options).wait()
            except RuntimeError as error:
                raise _ended(error) from error
            return recv

        def prepare_gather(send: Any, recv: Any, counts: Any, displacements: Any) -> tuple[Any, ...] | None:
            equal = counts is not None and len(set(counts)) == 1 and displacements is None
            if recv is None or not equal or not in_order or isinstance(send, InPlace) or "allgather" in comm._chosen:
                return None
            room, mine = self._tensor(recv, None, "recv"), self._tensor(send, None, "send")
            if mine.dtype != room.dtype or mine.numel() != counts[comm.rank] or room.numel() != sum(counts):
                raise InputError(f"allgatherv: found {mine.numel()} of {mine.dtype} to send; expected {counts[comm.rank]} of {room.dtype}")
            entry = (counts, room, mine, 0 if alone else mine.numel() * mine.element_size())
            return gathers.keep((id(send), id(recv)), (send, recv), entry) if type(counts) is tuple else entry

        def allgatherv(send: Any, recv: Any = None, counts: Any = None, displacements: Any = None) -> Any:
            known = gathers.get((id(send), id(recv)))
            if known is None or known[0] is not counts:
                known = prepare_gather(send, recv, counts, displacements)
                if known is None:
                    return general_allgatherv(send, recv, counts, displacements)
            wait()
            counters = tally.now
            counters.calls += 1
            counters.collectives += 1
            counters.bytes += known[3]
            try:
                group._allgather_base(known[1], known[2]).wait()
            except RuntimeError as error:
                raise _ended(error) from error
            return recv

        if on_device or dist.get_backend(group) == "gloo":
            self.__dict__.update(allreduce=allreduce, allgatherv=allgatherv)


def _ended(error: RuntimeError) -> Aborted:
    """What the library says when another process is gone."""
    return Aborted(f"another rank failed ({str(error).partition(chr(10))[0]})")
