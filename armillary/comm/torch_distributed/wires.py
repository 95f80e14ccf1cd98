"""Wires carry the calls of ranks with a device: a group of torch.distributed, or CuPy's NCCL communicator.

Both offer the same few calls over one-dimensional tensors. The calls are queued on the current stream.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from armillary.comm.torch_distributed.library import cuda, dist, reduction
from armillary.errors import InputError

#: A tensor and the rank that it goes to or comes from.
Transfer = tuple[Any, int]


class TorchWire:
    """A group of torch.distributed."""

    def __init__(self, native: Any) -> None:
        self.native = native
        self.rank: int = native.rank()
        self.size: int = native.size()
        #: The global ranks, by which torch addresses peers.
        self._there: list[int] = dist.get_process_group_ranks(native)
        on_gpu = "nccl" in str(dist.get_backend(native))
        self.device = torch.device("cuda", cuda.current_device()) if on_gpu else torch.device("cpu")

    def send(self, data: Any, dest: int) -> Any:
        """Start sending."""
        return self.native.send([data], dest, 0)

    def recv(self, data: Any, source: int) -> Any:
        """Start receiving."""
        return self.native.recv([data], source, 0)

    def exchange(self, sends: Sequence[Transfer], recvs: Sequence[Transfer]) -> None:
        """Make all these transfers as one group."""
        if self.device.type == "cpu":
            sends, recvs = _without_own(self.rank, sends, recvs)
        there, native = self._there, self.native
        operations = [dist.P2POp(dist.isend, data, there[dest], native) for data, dest in sends]
        operations += [dist.P2POp(dist.irecv, data, there[source], native) for data, source in recvs]
        if operations:
            for work in dist.batch_isend_irecv(operations):
                work.wait()

    def barrier(self) -> None:
        """Return when all ranks have called."""
        dist.barrier(self.native)

    def bcast(self, data: Any, root: int) -> None:
        """Copy the root's bytes to all ranks."""
        self.native.broadcast(data, root).wait()

    def allreduce(self, data: Any, op: str) -> None:
        """Combine the tensors of all ranks in place."""
        self.native.allreduce([data], reduction(dist.AllreduceOptions(), op)).wait()

    def allgather(self, room: Any, data: Any) -> None:
        """Gather equal parts of all ranks, one after the other."""
        self.native._allgather_base(room, data).wait()

    def reduce_scatter(self, answer: Any, data: Any, op: str) -> None:
        """Combine the tensors of all ranks and give each rank an equal part."""
        self.native._reduce_scatter_base(answer, data, reduction(dist.ReduceScatterOptions(), op)).wait()

    def sub(self, parts: list[list[int]]) -> TorchWire | None:
        """Return the wire of the part to which this rank belongs, or None. Every rank calls it."""
        if self.size == 1:
            return TorchWire(self.native) if parts else None
        if any(part != sorted(part) for part in parts):
            raise InputError(f"split: found the order {parts}; expected ascending ranks, because torch orders its groups by rank")
        lists = [[self._there[i] for i in part] for part in parts]
        if self.device.type == "cuda":
            made = [dist.split_group(self.native, lists)]
        else:
            made = [dist.new_group(ranks) for ranks in lists]
        own = [group for group in made if isinstance(group, dist.ProcessGroup)]
        return TorchWire(own[0]) if own else None


class CupyWire:
    """A communicator of `cupy.cuda.nccl`, on torch's current stream."""

    def __init__(self, native: Any) -> None:
        from cupy.cuda import nccl

        self.native = native
        self._nccl = nccl
        self.rank: int = native.rank_id()
        self.size: int = native.size()
        self.device = torch.device("cuda", native.device_id())
        self._types = {
            torch.int8: nccl.NCCL_INT8, torch.uint8: nccl.NCCL_UINT8, torch.int32: nccl.NCCL_INT32, torch.int64: nccl.NCCL_INT64,
            torch.float16: nccl.NCCL_FLOAT16, torch.float32: nccl.NCCL_FLOAT32, torch.float64: nccl.NCCL_FLOAT64,
            torch.bfloat16: getattr(nccl, "NCCL_BFLOAT16", 9),
        }  # fmt: skip
        self._ops = {"sum": nccl.NCCL_SUM, "prod": nccl.NCCL_PROD, "min": nccl.NCCL_MIN, "max": nccl.NCCL_MAX}

    def send(self, data: Any, dest: int) -> Any:
        """Queue a send."""
        self.native.send(data.data_ptr(), data.nbytes, self._nccl.NCCL_UINT8, dest, _stream())
        return _Queued(data)

    def recv(self, data: Any, source: int) -> Any:
        """Queue a receive."""
        self.native.recv(data.data_ptr(), data.nbytes, self._nccl.NCCL_UINT8, source, _stream())
        return _Queued(data)

    def exchange(self, sends: Sequence[Transfer], recvs: Sequence[Transfer]) -> None:
        """Make all these transfers as one group."""
        self._nccl.groupStart()
        for data, dest in sends:
            self.send(data, dest)
        for data, source in recvs:
            self.recv(data, source)
        self._nccl.groupEnd()

    def barrier(self) -> None:
        """Return when all ranks have called."""
        self.allreduce(torch.zeros(1, device=self.device), "sum")
        cuda.current_stream().synchronize()

    def bcast(self, data: Any, root: int) -> None:
        """Copy the root's bytes to all ranks."""
        self.native.broadcast(data.data_ptr(), data.data_ptr(), data.nbytes, self._nccl.NCCL_UINT8, root, _stream())

    def allreduce(self, data: Any, op: str) -> None:
        """Combine the tensors of all ranks in place."""
        self.native.allReduce(data.data_ptr(), data.data_ptr(), data.numel(), self._types[data.dtype], self._ops[op], _stream())

    def allgather(self, room: Any, data: Any) -> None:
        """Gather equal parts of all ranks, one after the other."""
        self.native.allGather(data.data_ptr(), room.data_ptr(), data.nbytes, self._nccl.NCCL_UINT8, _stream())

    def reduce_scatter(self, answer: Any, data: Any, op: str) -> None:
        """Combine the tensors of all ranks and give each rank an equal part."""
        kind = self._types[data.dtype]
        self.native.reduceScatter(data.data_ptr(), answer.data_ptr(), answer.numel(), kind, self._ops[op], _stream())

    def sub(self, parts: list[list[int]]) -> CupyWire | None:
        """Refuse, because CuPy has no call that divides a communicator."""
        if self.size > 1:
            raise InputError("split: found a communicator of CuPy, which cannot be divided; expected a group of torch.distributed")
        return CupyWire(self.native) if parts else None


class _Queued:
    """A transfer that is queued on the stream. It keeps the memory alive."""

    def __init__(self, data: Any) -> None:
        self._data = data
        self._event = cuda.Event()
        self._event.record()

    def wait(self) -> None:
        """Return at once, because what follows on the stream waits."""

    def is_completed(self) -> bool:
        """Return whether the stream has passed the transfer."""
        return bool(self._event.query())


def _stream() -> int:
    return int(cuda.current_stream().cuda_stream)


def _without_own(rank: int, sends: Sequence[Transfer], recvs: Sequence[Transfer]) -> tuple[list[Transfer], list[Transfer]]:
    """Copy what a rank sends itself, because Gloo, with which this layer is tested, cannot send it."""
    own = [data for data, dest in sends if dest == rank]
    for room, data in zip([room for room, source in recvs if source == rank], own):
        room.copy_(data)
    return [(d, r) for d, r in sends if r != rank], [(d, r) for d, r in recvs if r != rank]
