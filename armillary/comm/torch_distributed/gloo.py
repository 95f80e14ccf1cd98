"""The communicator over a torch.distributed group with Gloo, for arrays in main memory.

Messages go through `post`, which gives them MPI's matching. A collective call is the library's own if the library has it for the type with
the same answer; all others run over messages. Sub-communicators are names on the messages, so splitting costs one exchange and `dup` costs
nothing. The library's group of a set of ranks is made when the first of its collective calls is made. Communicators of the same ranks
share it, because programs make blocking collective calls in one order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np
import torch

from armillary.comm.collectives.operations import Op
from armillary.comm.communicator import Communicator
from armillary.comm.counters import Tally
from armillary.comm.messages.buffers import Array, Buffer, Parts, incoming, outgoing
from armillary.comm.messages.envelope import ANY_SOURCE, ANY_TAG, PROC_NULL, Status, check_rank, check_tag
from armillary.comm.messages.requests import Done, Request
from armillary.comm.torch_distributed import renewal
from armillary.comm.torch_distributed.library import OPS, dist, lost, reduction
from armillary.comm.torch_distributed.post import Post, context
from armillary.errors import InputError

#: The types that Gloo reduces and that NumPy and PyTorch share.
_REDUCED = frozenset(np.dtype(kind) for kind in ("f2", "f4", "f8", "i1", "u1", "i4", "i8"))


class GlooRanks(Communicator):
    """The ranks of a Gloo group."""

    _transfers: ClassVar[str] = "armillary.comm.torch_distributed.transfers:GlooTransfers"
    _own_process: ClassVar[bool] = True

    def __init__(self, post: Post, members: Sequence[int], rank: int, name: Any, tally: Tally, seed: int) -> None:
        super().__init__(rank, [0] * len(members), tally, seed)
        self._post = post
        #: The place of each rank in the group of the post.
        self._members = tuple(members)
        self._name = name
        self._context = context(name)

    @property
    def native(self) -> Any:
        """The torch.distributed group of these ranks. For a sub-communicator it is a `ProcessGroupGloo`, for which all ranks must ask."""
        return self._post.group(self._members)

    # Messages

    def isend(self, buf: Buffer, dest: int, tag: int = 0) -> Request:
        check_tag(tag)
        check_rank(dest, self.size, "dest")
        data = outgoing(buf)
        self._count_message(dest, data.nbytes)
        if dest == PROC_NULL:
            return Done()
        return self._post.send(self._context, self.rank, self._members[dest], tag, data)

    def irecv(self, buf: Buffer, source: int = ANY_SOURCE, tag: int = ANY_TAG) -> Request:
        return self._receive(buf, source, tag, postman=True)

    def send(self, buf: Buffer, dest: int, tag: int = 0) -> None:
        post, place = self._post, self._members[dest] if 0 <= dest < self.size else -1
        if place in (-1, post.place):
            self.isend(buf, dest, tag).wait()
            return
        check_tag(tag)
        data = outgoing(buf)
        self._count_message(dest, data.nbytes)
        post.send_now(self._context, self.rank, place, tag, data)

    def recv(self, buf: Buffer, source: int = ANY_SOURCE, tag: int = ANY_TAG) -> Status:
        return self._receive(buf, source, tag, postman=False).wait()

    def _receive(self, buf: Buffer, source: int, tag: int, postman: bool) -> Request:
        check_tag(tag, wild=True)
        check_rank(source, self.size, "source", wild=True)
        data, after = incoming(buf)
        self._tally.now.calls += 1
        if source == PROC_NULL:
            return Done()
        return self._post.receive(self._context, source, tag, data, after, self._place(source), postman)

    def _place(self, source: int) -> int:
        """Return the place of a rank in the group of the post; -1 for any rank."""
        return self._members[source] if source >= 0 else -1

    def probe(self, source: int = ANY_SOURCE, tag: int = ANY_TAG) -> Status:
        check_tag(tag, wild=True)
        check_rank(source, self.size, "source", wild=True)
        return self._post.until_peek(self._context, source, tag, self._place(source))

    def iprobe(self, source: int = ANY_SOURCE, tag: int = ANY_TAG) -> Status | None:
        check_tag(tag, wild=True)
        check_rank(source, self.size, "source", wild=True)
        return self._post.peek(self._context, source, tag, self._place(source))

    # Collective calls

    def _run(self, collective: str, nbytes: int, *args: Any) -> None:
        native: Callable[..., bool] | None = getattr(self, f"_native_{collective}", None)
        if native is None or self.size == 1 or collective in self._chosen:
            super()._run(collective, nbytes, *args)
            return
        try:
            done = native(*args)
        except RuntimeError as error:
            raise lost(error) from error
        if not done:
            super()._run(collective, nbytes, *args)

    def _native_barrier(self) -> bool:
        self.native.barrier().wait()
        return True

    def _native_bcast(self, whole: Array, root: int) -> bool:
        if not whole.nbytes:
            return False
        # Only the root's buffer may be read-only.
        self.native.broadcast(torch.from_numpy(_writable(whole.view(np.uint8))), root).wait()
        return True

    def _native_allreduce(self, mine: Array, answer: Array, op: Op) -> bool:
        if not _reduced(mine, op):
            return False
        if answer is not mine:
            answer[...] = mine
        self.native.allreduce([torch.from_numpy(answer)], reduction(dist.AllreduceOptions(), op.name)).wait()
        return True

    def _native_reduce(self, mine: Array, answer: Array | None, op: Op, root: int) -> bool:
        if not _reduced(mine, op):
            return False
        held = mine.copy()
        options = reduction(dist.ReduceOptions(), op.name)
        options.rootRank = root
        self.native.reduce([torch.from_numpy(held)], options).wait()
        if answer is not None:
            answer[...] = held
        return True

    def _native_allgather(self, mine: Array, blocks: Parts) -> bool:
        if not mine.nbytes or len(set(blocks.counts)) > 1:
            return False
        rooms = [np.empty(mine.nbytes, np.uint8) for _ in blocks]
        send = np.ascontiguousarray(mine).view(np.uint8)
        self.native.allgather([[torch.from_numpy(room) for room in rooms]], [torch.from_numpy(_writable(send))]).wait()
        for block, room in zip(blocks, rooms):
            block[...] = room.view(mine.dtype)
        return True

    def _native_alltoall(self, sends: Parts, recvs: Parts) -> bool:
        if not sends[0].nbytes:
            return False
        return self._native_alltoallv(sends, recvs)

    def _native_alltoallv(self, sends: Parts, recvs: Parts) -> bool:
        side_by_side = np.concatenate(sends).view(np.uint8)
        out, into = [block.nbytes for block in sends], [block.nbytes for block in recvs]
        room = np.empty(sum(into), np.uint8)
        self.native.alltoall_base(torch.from_numpy(room), torch.from_numpy(side_by_side), into, out).wait()
        at = 0
        for block in recvs:
            block[...] = room[at : at + block.nbytes].view(block.dtype)
            at += block.nbytes
        return True

    def _native_reduce_scatter(self, sends: Parts, answer: Array, op: Op) -> bool:
        if not _reduced(answer, op) or len(set(sends.counts)) > 1:
            return False
        blocks = [torch.from_numpy(block.copy()) for block in sends]
        options = reduction(dist.ReduceScatterOptions(), op.name)
        self.native.reduce_scatter([torch.from_numpy(answer)], [blocks], options).wait()
        return True

    # Groups

    def _make_shadow(self) -> GlooRanks:
        return GlooRanks(self._post, self._members, self.rank, (self._name, "shadow"), Tally(), self._seed)

    def _sub(self, members: Sequence[int], name: tuple[Any, ...]) -> GlooRanks:
        places = [self._members[i] for i in members]
        return GlooRanks(self._post, places, list(members).index(self.rank), (self._name, *name), self._tally, self._seed)

    def window(self, nbytes: int, dtype: Any = np.uint8) -> Any:
        raise InputError("window: found backend gloo, which has none; expected backend one, threads, mpi or virtual")

    @property
    def generation(self) -> int:
        """The number of processes of this run that were replaced before these ranks met."""
        return renewal.generation()

    def renewed(self) -> GlooRanks:
        """Return all ranks of the run over new connections, after a process has gone and another one has taken its place.

        Every rank calls it on the communicator of all ranks, when a call has raised `Aborted`; a process that takes another's place begins
        with the new ranks. Messages under way are lost, and the old communicators cannot be used any more.
        """
        found = renewal.renewed(self._post, self._seed)
        found._tally = self._tally
        return found

    def close(self) -> None:
        """End the messages of these ranks. Every rank calls it before an adopted group is destroyed."""
        if self.size > 1:
            self._shadow.barrier()
            self._post.close()
            # No rank leaves while another one still listens.
            self._shadow.barrier()


def _reduced(array: Array, op: Op) -> bool:
    return op.name in OPS and array.dtype in _REDUCED and array.dtype.kind in op.native and array.size > 0


def _writable(array: Array) -> Array:
    return array if array.flags.writeable else array.copy()
