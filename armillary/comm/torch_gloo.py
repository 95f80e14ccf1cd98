"""Ranks as processes of a torch.distributed group with Gloo: arrays in main memory.

Messages go through `torch_post`, with MPI's matching. Collective calls are the library's own where it has them for the type, with the
same answer; all others run over messages. Sub-communicators are names on the messages, so splitting costs one exchange and `dup` nothing.
A group of the library is made when the first of its collective calls comes, one for each set of ranks: communicators of the same ranks
share it, because programs make blocking collective calls in one order.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
import torch.distributed

from armillary.comm.buffers import Array, Buffer, Parts, incoming, outgoing
from armillary.comm.communicator import Communicator
from armillary.comm.counters import Tally
from armillary.comm.failures import Aborted
from armillary.comm.message import ANY_SOURCE, ANY_TAG, PROC_NULL, Status, check_rank, check_tag
from armillary.comm.operations import Op
from armillary.comm.requests import Done, Request
from armillary.comm.torch_post import Post, context
from armillary.errors import InputError

#: Without its types, which differ from version to version.
dist: Any = torch.distributed
#: What Gloo reduces: the types that NumPy and torch share.
_REDUCED = frozenset(np.dtype(kind) for kind in ("f2", "f4", "f8", "i1", "u1", "i4", "i8"))
_OPS = {"sum": dist.ReduceOp.SUM, "prod": dist.ReduceOp.PRODUCT, "min": dist.ReduceOp.MIN, "max": dist.ReduceOp.MAX}


class GlooRanks(Communicator):
    """The ranks of a Gloo group."""

    def __init__(self, post: Post, members: Sequence[int], rank: int, name: Any, tally: Tally, seed: int) -> None:
        super().__init__(rank, [0] * len(members), tally, seed)
        self._post = post
        #: The place in the group of the post of each rank here.
        self._members = tuple(members)
        self._name = name
        self._context = context(name)
        self._shadow_ranks: GlooRanks | None = None

    @property
    def native(self) -> Any:
        """The torch.distributed group of these ranks; of a sub-communicator a `ProcessGroupGloo`, for which all its ranks must ask."""
        return self._post.group(self._members)

    # Messages

    def isend(self, buf: Buffer, dest: int, tag: int = 0) -> Request:
        check_tag(tag)
        check_rank(dest, self.size, "dest")
        data = outgoing(buf)
        counters = self._tally.now
        counters.calls += 1
        if dest == PROC_NULL:
            return Done()
        if dest != self.rank:
            counters.messages += 1
            counters.bytes += data.nbytes
        return self._post.send(self._context, self.rank, self._members[dest], tag, data)

    def irecv(self, buf: Buffer, source: int = ANY_SOURCE, tag: int = ANY_TAG) -> Request:
        check_tag(tag, wild=True)
        check_rank(source, self.size, "source", wild=True)
        data, after = incoming(buf)
        self._tally.now.calls += 1
        if source == PROC_NULL:
            return Done()
        return self._post.receive(self._context, source, tag, data, after)

    def probe(self, source: int = ANY_SOURCE, tag: int = ANY_TAG) -> Status:
        check_tag(tag, wild=True)
        check_rank(source, self.size, "source", wild=True)
        return self._post.until_peek(self._context, source, tag)

    def iprobe(self, source: int = ANY_SOURCE, tag: int = ANY_TAG) -> Status | None:
        check_tag(tag, wild=True)
        check_rank(source, self.size, "source", wild=True)
        return self._post.peek(self._context, source, tag)

    # Collective calls

    def _run(self, collective: str, nbytes: int, *args: Any) -> None:
        native: Callable[..., bool] | None = getattr(self, f"_native_{collective}", None)
        if native is None or self.size == 1 or collective in self._chosen:
            super()._run(collective, nbytes, *args)
            return
        try:
            done = native(*args)
        except RuntimeError as error:
            raise Aborted(f"another rank failed ({str(error).partition(chr(10))[0]})") from error
        if not done:
            super()._run(collective, nbytes, *args)

    def _native_barrier(self) -> bool:
        self.native.barrier().wait()
        return True

    def _native_bcast(self, whole: Array, root: int) -> bool:
        if not whole.nbytes:
            return False
        # Only the root's may be read-only.
        self.native.broadcast(torch.from_numpy(_writable(whole.view(np.uint8))), root).wait()
        return True

    def _native_allreduce(self, mine: Array, answer: Array, op: Op) -> bool:
        if not _reduced(mine, op):
            return False
        if answer is not mine:
            answer[...] = mine
        options = dist.AllreduceOptions()
        options.reduceOp = _OPS[op.name]
        self.native.allreduce([torch.from_numpy(answer)], options).wait()
        return True

    def _native_reduce(self, mine: Array, answer: Array | None, op: Op, root: int) -> bool:
        if not _reduced(mine, op):
            return False
        held = mine.copy()
        options = dist.ReduceOptions()
        options.reduceOp = _OPS[op.name]
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
        options = dist.ReduceScatterOptions()
        options.reduceOp = _OPS[op.name]
        blocks = [torch.from_numpy(block.copy()) for block in sends]
        self.native.reduce_scatter([torch.from_numpy(answer)], [blocks], options).wait()
        return True

    # Groups

    @property
    def _shadow(self) -> GlooRanks:
        if self._shadow_ranks is None:
            shadow = GlooRanks(self._post, self._members, self.rank, (self._name, "shadow"), Tally(), self._seed)
            shadow._shadow_ranks = shadow
            self._shadow_ranks = shadow
        return self._shadow_ranks

    def _sub(self, members: Sequence[int], name: tuple[Any, ...]) -> GlooRanks:
        places = [self._members[i] for i in members]
        return GlooRanks(self._post, places, list(members).index(self.rank), (self._name, *name), self._tally, self._seed)

    def window(self, nbytes: int, dtype: Any = np.uint8) -> Any:
        raise InputError("window: not offered by gloo; expected backend one, threads or mpi")

    def close(self) -> None:
        """End the messages of these ranks, after all of them: to be called by every rank before an adopted group is destroyed."""
        if self.size > 1:
            self._shadow.barrier()
            self._post.close()
            # Nobody goes while another one still listens.
            self._shadow.barrier()

    def kill(self, rank: int) -> None:
        if rank == self.rank:
            os.kill(os.getpid(), signal.SIGKILL)


def _reduced(array: Array, op: Op) -> bool:
    return op.name in _OPS and array.dtype in _REDUCED and array.dtype.kind in op.native and array.size > 0


def _writable(array: Array) -> Array:
    return array if array.flags.writeable else array.copy()
