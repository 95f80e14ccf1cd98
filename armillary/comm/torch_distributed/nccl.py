"""The communicator over NCCL, in which each rank has a GPU and arrays are those of PyTorch or CuPy on the device.

Calls are queued on the current stream, like the kernels around them, and return at once. Arrays of CuPy travel without a copy (DLPack), on
CuPy's current stream. NCCL matches a send with the next receive of that pair and compares no lengths. It has no tags, no wildcards and no
probe, and a message must be as long as the buffer that receives it. Calls that NCCL lacks (gathers, scans, unequal counts, other
operations) are composed of its sends, receives and gathers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any, ClassVar

import torch

from armillary.comm.collectives.operations import SUM, Op
from armillary.comm.communicator import Communicator
from armillary.comm.counters import Tally
from armillary.comm.messages.buffers import places
from armillary.comm.messages.envelope import ANY_SOURCE, ANY_TAG, IN_PLACE, PROC_NULL, Status, check_rank
from armillary.comm.messages.requests import Done, Request
from armillary.comm.torch_distributed.library import OPS, cuda, dist
from armillary.comm.torch_distributed.wires import TorchWire
from armillary.errors import InputError

#: The types that NCCL reduces.
REDUCED = (torch.int8, torch.uint8, torch.int32, torch.int64, torch.float16, torch.bfloat16, torch.float32, torch.float64)
_FOLDS: dict[str, Any] = {
    "sum": torch.add, "prod": torch.mul, "min": torch.minimum, "max": torch.maximum, "land": torch.logical_and, "lor": torch.logical_or,
    "lxor": torch.logical_xor, "band": torch.bitwise_and, "bor": torch.bitwise_or, "bxor": torch.bitwise_xor,
}  # fmt: skip
_HAS = "expected tag 0 and a rank, because NCCL matches the sends and receives of each pair in order, without tags, wildcards or probes"


class DeviceRequest(Request):
    """A transfer that is queued on a stream."""

    __slots__ = ("_status", "_work")

    def __init__(self, work: Any, status: Status) -> None:
        self._work = work
        self._status = status

    def wait(self) -> Status:
        self._work.wait()
        return self._status

    def test(self) -> Status | None:
        return self._status if self._work.is_completed() else None

    def cancel(self) -> bool:
        return False

    @classmethod
    def wait_any(cls, requests: Sequence[Any]) -> tuple[int, Status]:
        return 0, requests[0].wait()


class DeviceRanks(Communicator):
    """The ranks of an NCCL communicator."""

    _transfers: ClassVar[str] = "armillary.comm.torch_distributed.transfers:NcclTransfers"
    _own_process: ClassVar[bool] = True

    def __init__(self, wire: Any, tally: Tally, seed: int, nodes: Sequence[int] | None = None) -> None:
        self._wire = TorchWire(wire) if isinstance(wire, dist.ProcessGroup) else wire
        super().__init__(self._wire.rank, [0] * self._wire.size if nodes is None else nodes, tally, seed)
        #: The group of torch, or the communicator of CuPy.
        self.native = self._wire.native
        #: The sends and receives of the open batch.
        self._batch: tuple[list[Any], list[Any]] | None = None
        #: One of the buffers of the open batch, whose stream the batch uses.
        self._batch_of: Any = None

    # Messages

    def isend(self, buf: Any, dest: int, tag: int = 0) -> Request:
        data = self._checked_message(buf, dest, tag, "dest")
        self._count_message(dest, data.nbytes)
        return self._start(0, buf, data, dest, Status(self.rank, 0, data.nbytes))

    def irecv(self, buf: Any, source: int = ANY_SOURCE, tag: int = ANY_TAG) -> Request:
        data = self._checked_message(buf, source, 0 if tag == ANY_TAG else tag, "source")
        self._tally.now.calls += 1
        return self._start(1, buf, data, source, Status(source, 0, data.nbytes))

    def _start(self, receives: int, buf: Any, data: Any, peer: int, status: Status) -> Request:
        if peer == PROC_NULL:
            return Done()
        if self._batch is not None:
            self._batch[receives].append((data, peer))
            self._batch_of = buf
            return Done(status)
        if peer == self.rank:
            raise InputError("message: found one to the rank itself; expected it inside `with comm.group():` or as sendrecv on nccl")
        with self._on_stream_of(buf):
            return DeviceRequest((self._wire.recv if receives else self._wire.send)(data, peer), status)

    def sendrecv(self, send: Any, dest: int, recv: Any, source: int = ANY_SOURCE, sendtag: int = 0, recvtag: int = ANY_TAG) -> Status:
        with self.group():
            self.isend(send, dest, sendtag)
            request = self.irecv(recv, source, recvtag)
        return request.wait()

    @contextmanager
    def group(self) -> Iterator[list[Request]]:
        """Open a batch, which is queued as one group at its end. In a batch a rank may send to itself."""
        if self._batch is not None:
            raise InputError("group: found one inside another; expected one at a time")
        batch: tuple[list[Any], list[Any]] = ([], [])
        self._batch = batch
        try:
            yield []
        finally:
            self._batch = None
        if batch[0] or batch[1]:
            with self._on_stream_of(self._batch_of):
                self._wire.exchange(*batch)
        self._batch_of = None

    def probe(self, source: int = ANY_SOURCE, tag: int = ANY_TAG) -> Status:
        raise InputError(f"probe: {_HAS}")

    def iprobe(self, source: int = ANY_SOURCE, tag: int = ANY_TAG) -> Status | None:
        raise InputError(f"iprobe: {_HAS}")

    def window(self, nbytes: int, dtype: Any = None) -> Any:
        raise InputError("window: found backend nccl, which has none; expected backend one, threads, mpi or virtual")

    # Collective calls

    def barrier(self) -> None:
        self._count(0)
        self._wire.barrier()

    def bcast(self, buf: Any, root: int = 0) -> Any:
        self._root(root)
        data = self._tensor(buf, "bcast")
        self._count(data.nbytes if self.rank == root else 0)
        with self._on_stream_of(buf):
            self._wire.bcast(data.view(torch.uint8), root)
        return buf

    def allreduce(self, send: Any, recv: Any = None, op: Op = SUM, order: str | None = None) -> Any:
        mine, answer, recv = self._sent_and_room(send, recv)
        self._count(mine.nbytes)
        with self._on_stream_of(recv):
            if self._ordered(order) or not self._reduces(mine, op):
                answer.copy_(_fold(self._rows(mine), op))
            else:
                if answer is not mine:
                    answer.copy_(mine)
                self._wire.allreduce(_real(answer), op.name)
        return recv

    def reduce(self, send: Any, recv: Any = None, op: Op = SUM, root: int = 0, order: str | None = None) -> Any:
        self._root(root)
        if self.rank == root:
            mine, answer, recv = self._sent_and_room(send, recv)
        else:
            mine = self._tensor(send, "send")
            answer, recv = None, None
        self._count(0 if self.rank == root else mine.nbytes)
        with self._on_stream_of(send if recv is None else recv):
            if self._ordered(order) or not self._reduces(mine, op):
                total = _fold(self._rows(mine), op)
            else:
                total = mine.clone()
                self._wire.allreduce(_real(total), op.name)
            if answer is not None:
                answer.copy_(total)
        return recv

    def scan(self, send: Any, recv: Any = None, op: Op = SUM, order: str | None = None) -> Any:
        mine, answer, recv = self._sent_and_room(send, recv)
        self._ordered(order)
        self._count(mine.nbytes if self.rank + 1 < self.size else 0)
        with self._on_stream_of(recv):
            answer.copy_(_fold(self._rows(mine)[: self.rank + 1], op))
        return recv

    def exscan(self, send: Any, recv: Any = None, op: Op = SUM, order: str | None = None) -> Any:
        given = recv is not None
        mine, answer, recv = self._sent_and_room(send, recv)
        self._ordered(order)
        self._count(mine.nbytes if self.rank + 1 < self.size else 0)
        with self._on_stream_of(recv):
            rows = self._rows(mine)
            if self.rank:
                answer.copy_(_fold(rows[: self.rank], op))
            elif not given:
                answer.zero_()
        return recv

    def reduce_scatter(self, send: Any, recv: Any = None, op: Op = SUM, counts: Any = None, order: str | None = None) -> Any:
        mine = self._tensor(send, "send")
        if counts is None:
            if mine.numel() % self.size:
                raise InputError(f"reduce_scatter: found {mine.numel()} elements; expected a multiple of the {self.size} ranks, or counts")
            counts = [mine.numel() // self.size] * self.size
        blocks = self._cut(mine, counts, None, "reduce_scatter")
        own = blocks[self.rank]
        answer, recv = self._room_for(send, recv, own.numel())
        self._count(mine.nbytes - own.nbytes)
        with self._on_stream_of(recv):
            if not self._ordered(order) and self._reduces(mine, op) and len(set(counts)) == 1 and mine.numel() == sum(counts):
                self._wire.reduce_scatter(_real(answer), _real(mine), op.name)
            else:
                rows = torch.empty((self.size, own.numel()), dtype=mine.dtype, device=mine.device)
                self._exchange_blocks(blocks, list(rows))
                answer.copy_(_fold(rows, op))
        return recv

    def allgather(self, send: Any, recv: Any = None) -> Any:
        if send is IN_PLACE:
            room = self._tensor(recv, "recv")
            mine = room.view(self.size, -1)[self.rank].clone()
        else:
            mine = self._tensor(send, "send")
            if recv is None:
                recv = _made_like(send, (self.size, *send.shape))
            room = self._room_of(recv, mine, self.size * mine.numel())
        self._count(mine.nbytes)
        with self._on_stream_of(recv):
            self._wire.allgather(room.view(torch.uint8), mine.view(torch.uint8))
        return recv

    # The calls that the base class makes with views of NumPy, here with tensors

    def _gather(self, mine: Any, recv: Any, counts: Any, displacements: Any, root: int) -> Any:
        self._root(root)
        self._count(0 if self.rank == root else mine.nbytes)
        sends, recvs = [(mine, root)], []
        if self.rank == root:
            blocks = self._cut(self._room_of(recv, mine), counts, displacements, "gather")
            self._same_count(blocks[root], mine, "gather")
            recvs = [(block, rank) for rank, block in enumerate(blocks)]
        with self._on_stream_of(recv):
            self._wire.exchange(sends, recvs)
        return recv if self.rank == root else None

    def _scatter(self, send: Any, recv: Any, counts: Any, displacements: Any, root: int) -> Any:
        self._root(root)
        room = self._tensor(recv, "recv")
        sends = []
        nbytes = 0
        if self.rank == root:
            blocks = self._cut(self._tensor(send, "send"), counts, displacements, "scatter")
            self._same_count(room, blocks[root], "scatter")
            sends = [(block, rank) for rank, block in enumerate(blocks)]
            nbytes = sum(block.nbytes for rank, block in enumerate(blocks) if rank != root)
        self._count(nbytes)
        with self._on_stream_of(recv):
            self._wire.exchange(sends, [(room, root)])
        return recv

    def _allgather(self, mine: Any, recv: Any, counts: Any, displacements: Any) -> Any:
        blocks = self._cut(self._room_of(recv, mine), counts, displacements, "allgather")
        self._same_count(blocks[self.rank], mine, "allgather")
        self._count(mine.nbytes)
        with self._on_stream_of(recv):
            self._exchange_blocks([mine] * self.size, blocks)
        return recv

    def _alltoall(self, collective: str, mine: Any, counts: Any, starts: Any, recv: Any, recvcounts: Any, recvstarts: Any) -> Any:
        sends = self._cut(mine, counts, starts, "send")
        recvs = self._cut(self._room_of(recv, mine), recvcounts, recvstarts, "recv")
        self._same_count(recvs[self.rank], sends[self.rank], collective)
        self._count_exchange([block.nbytes for block in sends])
        with self._on_stream_of(recv):
            self._exchange_blocks(sends, recvs)
        return recv

    def gather(self, send: Any, recv: Any = None, root: int = 0) -> Any:
        mine = self._tensor(send, "send")
        if self.rank == root and recv is None:
            recv = _made_like(send, (self.size, *send.shape))
        return self._gather(mine, recv, [mine.numel()] * self.size, None, root)

    def gatherv(self, send: Any, recv: Any = None, counts: Any = None, displacements: Any = None, root: int = 0) -> Any:
        mine = self._tensor(send, "send")
        counts = self._lengths_of(mine) if counts is None else counts
        if self.rank == root and recv is None:
            recv = _made_like(send, (sum(counts),))
        return self._gather(mine, recv, counts, displacements, root)

    def scatter(self, send: Any, recv: Any, root: int = 0) -> Any:
        return self._scatter(send, recv, [self._tensor(recv, "recv").numel()] * self.size, None, root)

    def allgatherv(self, send: Any, recv: Any = None, counts: Any = None, displacements: Any = None) -> Any:
        mine = self._tensor(send, "send")
        counts = self._lengths_of(mine) if counts is None else counts
        if recv is None:
            recv = _made_like(send, (sum(counts),))
        return self._allgather(mine, recv, counts, displacements)

    def alltoall(self, send: Any, recv: Any = None) -> Any:
        mine = self._tensor(send, "send")
        if mine.numel() % self.size:
            raise InputError(f"alltoall: found {mine.numel()} elements; expected a multiple of the {self.size} ranks")
        if recv is None:
            recv = _made_like(send, send.shape)
        counts = [mine.numel() // self.size] * self.size
        return self._alltoall("alltoall", mine, counts, None, recv, counts, None)

    def _whole(self, buffer: Any, what: str) -> Any:
        return self._tensor(buffer, what)

    def _made_like(self, buffer: Any, shape: Any) -> Any:
        return _made_like(buffer, shape)

    def _their_counts(self, mine: Any, sendcounts: Any) -> list[int]:
        wanted = torch.tensor([int(n) for n in sendcounts], dtype=torch.int64, device=mine.device)
        theirs = torch.empty_like(wanted)
        self._exchange_blocks(list(wanted.view(-1, 1)), list(theirs.view(-1, 1)))
        found: list[int] = theirs.tolist()
        return found

    def alltoallw(self, send: Any, sendlayouts: Sequence[Any], recv: Any, recvlayouts: Sequence[Any]) -> Any:
        raise InputError("alltoallw: found layouts; expected contiguous arrays, because NCCL has no derived types")

    # Groups

    def split(self, color: int | None, key: int = 0) -> Communicator | None:
        if color is not None and color < 0:
            return super().split(color, key)
        table = self._rows(self._on_device([-1 if color is None else color, key])).tolist()
        colors = sorted({c for c, _ in table if c >= 0})
        parts = [[rank for _, rank in sorted((k, rank) for rank, (c, k) in enumerate(table) if c == one)] for one in colors]
        wire = self._wire.sub(parts)
        return None if color is None else self._child(wire, parts[colors.index(color)])

    def dup(self) -> Communicator:
        everybody = list(range(self.size))
        return self._child(self._wire.sub([everybody]), everybody)

    def _child(self, wire: Any, members: list[int]) -> Communicator:
        return self._inherit(DeviceRanks(wire, self._tally, self._seed, [self.nodes[i] for i in members]))

    @property
    def _shadow(self) -> DeviceRanks:
        # The program cannot catch what a collective call sends, because NCCL orders both on one stream.
        return self

    def alloc(self, shape: Any, dtype: Any = torch.float64) -> Any:
        return torch.zeros(shape, dtype=dtype, device=self._wire.device)

    # Buffers

    def _tensor(self, buffer: Any, what: str) -> Any:
        """Return the buffer as a one-dimensional tensor over the same memory."""
        if isinstance(buffer, torch.Tensor):
            found = buffer.detach()
        elif hasattr(buffer, "__dlpack_device__") and hasattr(buffer, "__cuda_array_interface__"):
            found = torch.utils.dlpack.from_dlpack(buffer)
        else:
            kind = "a buffer with a Layout" if type(buffer) is tuple else type(buffer).__name__
            raise InputError(f"{what}: found {kind}; expected an array of PyTorch or CuPy on {self._wire.device}")
        if found.device != self._wire.device:
            raise InputError(f"{what}: found an array on {found.device}; expected one on {self._wire.device}, the device of this rank")
        if not found.is_contiguous():
            raise InputError(f"{what}: found an array that is not contiguous; expected a contiguous one on nccl")
        return found.view(-1)

    def _checked_message(self, buf: Any, rank: int, tag: int, what: str) -> Any:
        if tag != 0 or rank == ANY_SOURCE:
            raise InputError(f"{what}: found rank {rank} and tag {tag}; {_HAS}")
        check_rank(rank, self.size, what)
        return self._tensor(buf, "send" if what == "dest" else "recv")

    def _on_stream_of(self, buffer: Any) -> Any:
        """Return a context in which arrays of CuPy are used on CuPy's current stream."""
        if isinstance(buffer, torch.Tensor) or not hasattr(buffer, "__cuda_array_interface__"):
            return nullcontext()
        import cupy

        pointer = cupy.cuda.get_current_stream().ptr
        if pointer == cuda.current_stream().cuda_stream:
            return nullcontext()
        return cuda.stream(cuda.ExternalStream(pointer))

    def _sent_and_room(self, send: Any, recv: Any) -> tuple[Any, Any, Any]:
        if send is IN_PLACE:
            answer = self._tensor(recv, "recv")
            return answer, answer, recv
        mine = self._tensor(send, "send")
        if recv is None:
            recv = _made_like(send, send.shape)
        return mine, self._room_of(recv, mine, mine.numel()), recv

    def _room_of(self, recv: Any, mine: Any, count: int | None = None) -> Any:
        room = self._tensor(recv, "recv")
        if room.dtype != mine.dtype:
            raise InputError(f"recv: found an array of {room.dtype}; expected {mine.dtype}, the type of what is sent")
        if count is not None and room.numel() != count:
            raise InputError(f"recv: found {room.numel()} elements; expected {count}")
        return room

    def _room_for(self, send: Any, recv: Any, count: int) -> tuple[Any, Any]:
        if recv is None:
            recv = _made_like(send, (count,))
        return self._room_of(recv, self._tensor(send, "send"), count), recv

    def _cut(self, array: Any, counts: Any, displacements: Any, what: str) -> list[Any]:
        counts, starts = places(array.numel(), counts, displacements, self.size, what)
        return [array[start : start + count] for count, start in zip(counts, starts)]

    def _same_count(self, room: Any, mine: Any, what: str) -> None:
        if room.numel() != mine.numel():
            raise InputError(f"{what}: found {mine.numel()} elements to send and room for {room.numel()}; expected the same")

    def _exchange_blocks(self, sends: Sequence[Any], recvs: Sequence[Any]) -> None:
        """Send block i to rank i and receive block i from it. The rank's own block is copied on the device."""
        recvs[self.rank].copy_(sends[self.rank])
        others = [rank for rank in range(self.size) if rank != self.rank]
        out = [(sends[rank], rank) for rank in others if sends[rank].numel()]
        into = [(recvs[rank], rank) for rank in others if recvs[rank].numel()]
        if out or into:
            self._wire.exchange(out, into)

    def _rows(self, mine: Any) -> Any:
        rows = torch.empty((self.size, mine.numel()), dtype=mine.dtype, device=mine.device)
        self._wire.allgather(rows.view(-1).view(torch.uint8), mine.view(torch.uint8))
        return rows

    def _lengths_of(self, mine: Any) -> list[int]:
        found: list[int] = self._rows(self._on_device([mine.numel()])).view(-1).tolist()
        return found

    def _on_device(self, numbers: list[int]) -> Any:
        return torch.tensor(numbers, dtype=torch.int64, device=self._wire.device)

    def _reduces(self, mine: Any, op: Op) -> bool:
        """Return whether NCCL itself combines such arrays. Raises `InputError` where nothing does."""
        if op.name in OPS and op.native:
            if mine.dtype in REDUCED or (mine.is_complex() and op.name == "sum"):
                return True
            if mine.dtype != torch.bool:
                names = ", ".join(str(kind).removeprefix("torch.") for kind in REDUCED)
                raise InputError(f"{op.name}: found an array of {mine.dtype}; expected one of {names}, or complex for a sum, on nccl")
        return False


def _made_like(buffer: Any, shape: Any) -> Any:
    if isinstance(buffer, torch.Tensor):
        return buffer.new_empty(shape)
    import cupy

    return cupy.empty(shape, buffer.dtype)


def _real(array: Any) -> Any:
    return torch.view_as_real(array).view(-1) if array.is_complex() else array


def _fold(rows: Any, op: Op) -> Any:
    """Combine the rows from the left."""
    function: Any = _FOLDS.get(op.name, op.function) if op.native else op.function
    held = rows[0].clone()
    for row in rows[1:]:
        held = function(held, row).to(rows.dtype)
    return held
