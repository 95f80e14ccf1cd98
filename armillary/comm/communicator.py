"""The communicator: the one interface that every backend offers. Names and meanings are those of MPI.

A backend supplies `isend`, `irecv`, `probe`, `iprobe`, `_sub` and `_make_shadow`. The collective calls that it does not do better itself
run here as algorithms over messages. They run on the *shadow*, a communicator of the same ranks whose messages no receive of the program
can catch.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from armillary.comm.collectives.algorithms import Algorithm, chosen, default
from armillary.comm.collectives.operations import SUM, Op
from armillary.comm.counters import Counters, Tally
from armillary.comm.failures import Killed
from armillary.comm.messages.buffers import Array, Buffer, array_of, cut, flat, made_like
from armillary.comm.messages.envelope import ANY_SOURCE, ANY_TAG, IN_PLACE, PROC_NULL, InPlace, Status, check_rank
from armillary.comm.messages.requests import Request, waitall, waitany
from armillary.comm.plans import Plan
from armillary.errors import InputError, unknown

if TYPE_CHECKING:
    from armillary.comm.topology.neighbours import Graph, Grid, Neighbourhood
    from armillary.comm.topology.process_grid import ProcessGrid
    from armillary.comm.windows import Window

#: Calls that can be prepared: `comm.<call>_init(...)` gives a `Plan`.
_PLANNED = (
    "send", "recv", "barrier", "bcast", "reduce", "allreduce", "scan", "exscan", "gather", "gatherv", "scatter", "scatterv",
    "allgather", "allgatherv", "alltoall", "alltoallv", "alltoallw", "reduce_scatter",
)  # fmt: skip


class Communicator:
    """A group of ranks and this rank's place in it.

    Buffers are contiguous NumPy arrays, bytes, or (array, Layout). A collective call that returns data writes it into `recv`, if that is
    given, and returns it. Every call that sends or receives has a form `call_init(...)` that returns a `Plan`.
    """

    #: `module:class` that makes the transfers of a `Coordinator` on these ranks.
    _transfers: ClassVar[str] = "armillary.comm.coordination.transfers:Transfers"
    #: Whether each rank has a process of its own.
    _own_process: ClassVar[bool] = False

    def __init__(self, rank: int, nodes: Sequence[int], tally: Tally, seed: int = 0) -> None:
        #: The number of this rank, from 0.
        self.rank = rank
        #: The number of ranks.
        self.size = len(nodes)
        #: The number of each rank's node.
        self.nodes = tuple(nodes)
        #: The node of this rank.
        self.node = self.nodes[rank]
        self._tally = tally
        self._seed = seed
        self._rng: np.random.Generator | None = None
        self._chosen: dict[str, Algorithm] = {}
        self._children = 0
        self._shadow_ranks: Any = None

    @property
    def node_rank(self) -> int:
        """The place of this rank among the ranks of its node, from 0."""
        return self.nodes[: self.rank].count(self.node)

    @property
    def node_size(self) -> int:
        """The number of ranks on this rank's node."""
        return self.nodes.count(self.node)

    #: The library's own communicator of these ranks, or None if there is no library.
    native: Any = None

    @staticmethod
    def adopt(native: Any, seed: int = 0) -> Communicator:
        """Return a communicator over the ranks of one that another library made, in its order; `comm.native` gives that one back.

        `native` is an `mpi4py.MPI.Comm`, a `torch.distributed.ProcessGroup` with Gloo or NCCL, or a `cupy.cuda.nccl.NcclCommunicator`.
        Every rank of it makes this call. Messages share the space of those that the program sends through `native` directly; the
        communicator that `dup()` returns keeps its messages apart.
        """
        from armillary.comm.adoption import adopted

        return adopted(native, seed)

    # What a backend supplies

    def isend(self, buf: Buffer, dest: int, tag: int = 0) -> Request:
        """Start sending. The buffer may be used again once the request is done."""
        raise NotImplementedError

    def irecv(self, buf: Buffer, source: int = ANY_SOURCE, tag: int = ANY_TAG) -> Request:
        """Start receiving."""
        raise NotImplementedError

    def probe(self, source: int = ANY_SOURCE, tag: int = ANY_TAG) -> Status:
        """Wait until such a message has arrived and return its status. The message stays to be received."""
        raise NotImplementedError

    def iprobe(self, source: int = ANY_SOURCE, tag: int = ANY_TAG) -> Status | None:
        """Return the status of such a message if one has arrived, else None. The message stays to be received."""
        raise NotImplementedError

    def window(self, nbytes: int, dtype: Any = np.uint8) -> Window:
        """Allocate `nbytes` bytes on every rank, seen as `dtype`, that the other ranks can read and write. Every rank calls it."""
        raise NotImplementedError

    def _sub(self, members: Sequence[int], name: tuple[Any, ...]) -> Communicator:
        """Make the communicator of these members of this one. All of them give the same `name`, which no other call has used."""
        raise NotImplementedError

    def _make_shadow(self) -> Communicator:
        """Make a communicator of the same ranks whose messages meet nobody else's, and which counts nothing here."""
        raise NotImplementedError

    @property
    def _shadow(self) -> Any:
        if self._shadow_ranks is None:
            shadow = self._make_shadow()
            shadow._shadow_ranks = shadow
            self._shadow_ranks = shadow
        return self._shadow_ranks

    def kill(self, rank: int) -> None:
        """End rank `rank` as a fault would, when that rank makes this call; the other ranks go on. It serves to test faults."""
        if rank == self.rank:
            if self._own_process:
                os.kill(os.getpid(), signal.SIGKILL)
            raise Killed(f"rank {rank} was killed")

    # Messages

    def send(self, buf: Buffer, dest: int, tag: int = 0) -> None:
        """Send, and return when the buffer may be used again."""
        self.isend(buf, dest, tag).wait()

    def recv(self, buf: Buffer, source: int = ANY_SOURCE, tag: int = ANY_TAG) -> Status:
        """Receive into `buf`. A shorter message fills the beginning of it; a longer one raises `Truncated`."""
        return self.irecv(buf, source, tag).wait()

    def sendrecv(self, send: Buffer, dest: int, recv: Buffer, source: int = ANY_SOURCE, sendtag: int = 0, recvtag: int = ANY_TAG) -> Status:
        """Send and receive in one call, so that rings and swaps cannot deadlock."""
        incoming = self.irecv(recv, source, recvtag)
        self.isend(send, dest, sendtag).wait()
        return incoming.wait()

    def waitall(self, requests: Sequence[Request]) -> list[Status]:
        """Wait for all requests and return their statuses in order."""
        return waitall(requests)

    def waitany(self, requests: Sequence[Request]) -> tuple[int, Status]:
        """Wait until one of the requests is done and return its index and its status."""
        return waitany(requests)

    @contextmanager
    def group(self) -> Iterator[list[Request]]:
        """Open a batch. Inside the `with` block `send` and `recv` only start, in any order; at its end all of them are done.

        `recv` returns no status inside a batch.
        """
        started: list[Request] = []

        def send(buf: Buffer, dest: int, tag: int = 0) -> None:
            started.append(self.isend(buf, dest, tag))

        def recv(buf: Buffer, source: int = ANY_SOURCE, tag: int = ANY_TAG) -> None:
            started.append(self.irecv(buf, source, tag))

        before: dict[str, Any] = {name: self.__dict__[name] for name in ("send", "recv") if name in self.__dict__}
        self.__dict__.update(send=send, recv=recv)
        try:
            yield started
        finally:
            del self.__dict__["send"], self.__dict__["recv"]
            self.__dict__.update(before)
        waitall(started)

    # Collective calls

    def barrier(self) -> None:
        """Return when every rank has called."""
        self._count(0)
        self._run("barrier", 0)

    def bcast(self, buf: Buffer, root: int = 0) -> Buffer:
        """Copy the root's buffer into the buffer of every rank, and return `buf`."""
        self._root(root)
        if type(buf) is tuple:
            array, layout = buf
            packed = layout.pack(array)
            self.bcast(packed, root)
            if self.rank != root:
                layout.unpack(packed, array)
            return buf
        whole = flat(buf, "bcast", writable=self.rank != root)
        self._count(whole.nbytes if self.rank == root else 0)
        self._run("bcast", whole.nbytes, whole, root)
        return buf

    def reduce(self, send: Buffer | InPlace, recv: Buffer = None, op: Op = SUM, root: int = 0, order: str | None = None) -> Buffer:
        """Combine the buffers of all ranks; returns the result at the root and None elsewhere.

        `order="rank"` combines from the left in the order of the ranks, which gives the same bits on every backend.
        """
        self._root(root)
        if self.rank == root:
            mine, answer, recv = self._two(send, recv)
        else:
            mine, answer, recv = flat(send, "send"), None, None
        self._count(0 if self.rank == root else mine.nbytes)
        if self._ordered(order):
            from armillary.comm.collectives.reductions import linear_reduce

            linear_reduce(self._shadow, mine, answer, op, root)
        else:
            self._reduction("reduce", op, mine, answer, op, root)
        return recv

    def allreduce(self, send: Buffer | InPlace, recv: Buffer = None, op: Op = SUM, order: str | None = None) -> Buffer:
        """Combine the buffers of all ranks and return the result on every rank.

        `order="rank"` combines from the left in the order of the ranks, which gives the same bits on every backend.
        """
        mine, answer, recv = self._two(send, recv)
        self._count(mine.nbytes)
        if self._ordered(order):
            from armillary.comm.collectives.reductions import rank_order

            rank_order(self._shadow, mine, answer, op)
        else:
            self._reduction("allreduce", op, mine, answer, op)
        return recv

    def scan(self, send: Buffer | InPlace, recv: Buffer = None, op: Op = SUM, order: str | None = None) -> Buffer:
        """Combine the buffers of the ranks up to and including this one."""
        mine, answer, recv = self._two(send, recv)
        self._count(mine.nbytes if self.rank + 1 < self.size else 0)
        self._scan("scan", order, op, mine, answer)
        return recv

    def exscan(self, send: Buffer | InPlace, recv: Buffer = None, op: Op = SUM, order: str | None = None) -> Buffer:
        """Combine the buffers of the ranks before this one. At rank 0 `recv` stays as it is, or is all zeros if it was not given."""
        if recv is None and not isinstance(send, InPlace):
            recv = made_like(send)
            flat(recv)[...] = 0
        mine, answer, recv = self._two(send, recv)
        self._count(mine.nbytes if self.rank + 1 < self.size else 0)
        self._scan("exscan", order, op, mine, answer)
        return recv

    def gather(self, send: Buffer, recv: Buffer = None, root: int = 0) -> Buffer:
        """Gather buffers of equal length. Returns one row per rank at the root and None elsewhere."""
        array = array_of(send, "send")
        if self.rank == root and recv is None:
            recv = made_like(send, (self.size, *array.shape))
        return self._gather(flat(send, "send"), recv, [array.size] * self.size, None, root)

    def gatherv(self, send: Buffer, recv: Buffer = None, counts: Any = None, displacements: Any = None, root: int = 0) -> Buffer:
        """Gather buffers of different lengths at the root, `counts[i]` elements from rank i. Counts not given are gathered first."""
        mine = flat(send, "send")
        if counts is None:
            counts = self._lengths(mine.size)
        if self.rank == root and recv is None:
            recv = made_like(send, (sum(counts),))
        return self._gather(mine, recv, counts, displacements, root)

    def scatter(self, send: Buffer, recv: Buffer, root: int = 0) -> Buffer:
        """Send one row of the root's buffer to each rank."""
        room = flat(recv, "recv", writable=True)
        return self._scatter(send, recv, [room.size] * self.size, None, root)

    def scatterv(self, send: Buffer, counts: Any, recv: Buffer, displacements: Any = None, root: int = 0) -> Buffer:
        """Send `counts[i]` elements of the root's buffer to rank i. On the other ranks `send` and `counts` may be None."""
        return self._scatter(send, recv, counts, displacements, root)

    def allgather(self, send: Buffer | InPlace, recv: Buffer = None) -> Buffer:
        """Gather buffers of equal length on every rank; returns one row per rank."""
        if isinstance(send, InPlace):
            mine = np.array_split(flat(recv, "recv", writable=True), self.size)[self.rank].copy()
        else:
            array = array_of(send, "send")
            mine = flat(send, "send")
            if recv is None:
                recv = made_like(send, (self.size, *array.shape))
        return self._allgather(mine, recv, [mine.size] * self.size, None)

    def allgatherv(self, send: Buffer, recv: Buffer = None, counts: Any = None, displacements: Any = None) -> Buffer:
        """Gather buffers of different lengths on every rank, `counts[i]` elements from rank i. Counts not given are gathered first."""
        mine = flat(send, "send")
        if counts is None:
            counts = self._lengths(mine.size)
        if recv is None:
            recv = made_like(send, (sum(counts),))
        return self._allgather(mine, recv, counts, displacements)

    def alltoall(self, send: Buffer, recv: Buffer = None) -> Buffer:
        """Send block i to rank i and receive block i of the answer from rank i. All blocks have the same length."""
        mine = flat(send, "send")
        if mine.size % self.size:
            raise InputError(f"alltoall: found {mine.size} elements; expected a multiple of the {self.size} ranks")
        if recv is None:
            recv = made_like(send)
        counts = [mine.size // self.size] * self.size
        return self._alltoall("alltoall", mine, counts, None, recv, counts, None)

    def alltoallv(
        self,
        send: Buffer,
        sendcounts: Any,
        recv: Buffer = None,
        recvcounts: Any = None,
        senddisplacements: Any = None,
        recvdisplacements: Any = None,
    ) -> Buffer:
        """Do `alltoall` with blocks of the given lengths. If `recvcounts` is not given, the ranks exchange the counts first."""
        mine = self._whole(send, "send")
        if recvcounts is None:
            if len(sendcounts) != self.size:
                raise InputError(f"alltoallv: found {len(sendcounts)} counts; expected one for each of the {self.size} ranks")
            recvcounts = self._their_counts(mine, sendcounts)
        if recv is None:
            recv = self._made_like(send, (sum(recvcounts),))
        return self._alltoall("alltoallv", mine, sendcounts, senddisplacements, recv, recvcounts, recvdisplacements)

    def alltoallw(self, send: Array, sendlayouts: Sequence[Any], recv: Array, recvlayouts: Sequence[Any]) -> Array:
        """Do `alltoall` with one Layout per rank for each array. None stands where there is nothing to send or receive."""
        sizes = self._check_layouts(send, sendlayouts, recv, recvlayouts)
        self._count_exchange(sizes)
        shadow = self._shadow
        requests = [shadow.irecv((recv, layout), i, 0) for i, layout in enumerate(recvlayouts) if layout is not None]
        requests += [shadow.isend((send, layout), i, 0) for i, layout in enumerate(sendlayouts) if layout is not None]
        waitall(requests)
        return recv

    def reduce_scatter(self, send: Buffer, recv: Buffer = None, op: Op = SUM, counts: Any = None, order: str | None = None) -> Buffer:
        """Combine the buffers of all ranks and give block i of the result to rank i: `counts[i]` elements, by default equal shares."""
        mine = flat(send, "send")
        if counts is None:
            if mine.size % self.size:
                raise InputError(f"reduce_scatter: found {mine.size} elements; expected a multiple of the {self.size} ranks, or counts")
            counts = [mine.size // self.size] * self.size
        blocks = cut(mine, counts, None, self.size, "reduce_scatter")
        if recv is None:
            recv = made_like(send, (counts[self.rank],))
        answer = self._room(recv, mine, counts[self.rank])
        self._count(mine.nbytes - blocks[self.rank].nbytes)
        if self._ordered(order):
            from armillary.comm.collectives.reductions import pairwise_reduce_scatter

            pairwise_reduce_scatter(self._shadow, blocks, answer, op)
        else:
            self._reduction("reduce_scatter", op, blocks, answer, op)
        return recv

    def tree_reduce(self, value: Any, combine: Callable[[Any, Any], Any], broadcast: bool = False) -> Any:
        """Combine values pairwise in a fixed binary tree of the ranks; see `armillary.comm.collectives.trees`."""
        from armillary.comm.collectives.trees import tree_reduce

        return tree_reduce(self, value, combine, broadcast)

    def tree_down(self, value: Any, expand: Callable[[Any], tuple[Any, Any]]) -> Any:
        """Walk the same tree back, where every node divides what it got; see `armillary.comm.collectives.trees`."""
        from armillary.comm.collectives.trees import tree_down

        return tree_down(self, value, expand)

    def choose(self, **algorithm: str | Algorithm) -> Communicator:
        """Use these algorithms from now on, given by name or as functions: `comm.choose(allreduce="ring")`.

        All ranks make the same choice, and sub-communicators inherit it.
        """
        self._chosen = {**self._chosen, **chosen(algorithm)}
        return self

    # Groups of ranks

    def split(self, color: int | None, key: int = 0) -> Communicator | None:
        """Return the communicator of the ranks that give the same color, in the order of (key, rank); None for a rank that gives None."""
        mine = np.array([-1 if color is None else color, key], np.int64)
        if color is not None and color < 0:
            raise InputError(f"color: found {color}; expected a whole number from 0, or None")
        table = self._shadow.allgather(mine)
        if color is None:
            self._made()
            return None
        members = sorted((int(table[i, 1]), i) for i in range(self.size) if table[i, 0] == color)
        return self._inherit(self._sub([i for _, i in members], ("split", self._made(), color)))

    def dup(self) -> Communicator:
        """Return a communicator of the same ranks whose messages are kept apart from those of this one."""
        return self._inherit(self._sub(range(self.size), ("dup", self._made())))

    def split_bits(self, mask: int) -> Communicator:
        """Return the communicator of the ranks whose numbers differ from this one's only in the bits of `mask`."""
        found = self.split(self.rank & ~mask)
        assert found is not None
        return found

    def grid(self, rows: int, columns: int) -> ProcessGrid:
        """Arrange the ranks as a matrix, row by row, with `row` and `col` communicators."""
        from armillary.comm.topology.process_grid import ProcessGrid

        return ProcessGrid(self, rows, columns)

    def cart(self, dims: Sequence[int], periodic: Sequence[bool] | bool = False) -> Grid:
        """Arrange the ranks as a box with neighbours along each axis."""
        from armillary.comm.topology.neighbours import Grid

        return Grid(self.dup(), dims, periodic)

    def graph(self, sources: Sequence[int], destinations: Sequence[int], weights: Any = None) -> Graph:
        """Name the neighbours of this rank: the ranks that send to it, and those that it sends to."""
        from armillary.comm.topology.neighbours import Graph

        return Graph(self.dup(), sources, destinations, weights)

    def local_range(self, n: int) -> range:
        """Return which of n items belong to this rank when they are dealt in blocks of ceil(n / size)."""
        block = -(-n // self.size)
        return range(min(n, self.rank * block), min(n, (self.rank + 1) * block))

    def owner(self, i: int, n: int) -> int:
        """Return the rank that has item i of n, dealt as in `local_range`."""
        if not 0 <= i < n:
            raise InputError(f"owner: found item {i}; expected 0 to {n - 1}")
        return i // -(-n // self.size)

    # Time, memory, random numbers, counters

    def now(self) -> float:
        """Return the seconds on this rank's clock."""
        return time.perf_counter()

    def compute(self, seconds: float | None = None, flops: float | None = None, bytes: float | None = None) -> None:
        """Advance simulated time by work of this size. Where time is real it returns at once."""

    def charge(self, measured: bool = True) -> None:
        """Add the CPU time since the last call to simulated time. Where time is real it does nothing."""

    def alloc(self, shape: Any, dtype: Any = np.float64) -> Array:
        """Allocate an array of zeros for transfers; it is symmetric memory if the backend has that."""
        return np.zeros(shape, dtype)

    @property
    def rng(self) -> np.random.Generator:
        """The random number generator of this rank, seeded by the run's seed and the rank."""
        if self._rng is None:
            self._rng = np.random.Generator(np.random.PCG64DXSM(np.random.SeedSequence(self._seed, spawn_key=(self.rank,))))
        return self._rng

    def phase(self, name: str) -> AbstractContextManager[Counters]:
        """Count what happens inside `with comm.phase("exchange"):` under that name."""
        return self._tally.phase(name, self.now)

    @property
    def counters(self) -> Mapping[str, Counters]:
        """The counters of this rank by phase; "" stands for calls outside any phase."""
        return self._tally.phases

    def __getattr__(self, name: str) -> Callable[..., Plan]:
        if name.endswith("_init") and name[:-5] in _PLANNED:
            return partial(self._plan, name[:-5])
        raise AttributeError(f"a communicator has no attribute {name}")

    def _plan(self, call: str, *args: Any, **named: Any) -> Plan:
        if call in ("send", "recv"):
            start = self.isend if call == "send" else self.irecv
            return Plan(lambda: start(*args, **named).wait)
        return Plan(lambda: partial(getattr(self, call), *args, **named))

    # Parts of the calls above

    def _count_message(self, peer: int, nbytes: int) -> None:
        """Count a call that sends `nbytes` bytes to rank `peer`."""
        counters = self._tally.now
        counters.calls += 1
        if peer != self.rank and peer != PROC_NULL:
            counters.messages += 1
            counters.bytes += nbytes

    def _count(self, nbytes: int) -> None:
        """Count a collective call with a payload of `nbytes` bytes."""
        counters = self._tally.now
        counters.calls += 1
        counters.collectives += 1
        if self.size > 1:
            counters.bytes += nbytes

    def _count_exchange(self, sizes: Sequence[int], peers: Sequence[int] | None = None) -> None:
        others = [n for i, n in zip(range(self.size) if peers is None else peers, sizes) if i != self.rank and i >= 0]
        self._count(sum(others))
        self._tally.now.messages += sum(1 for n in others if n)

    def _run(self, collective: str, nbytes: int, *args: Any) -> None:
        algorithm = self._chosen.get(collective) or default(collective, nbytes, self.size)
        algorithm(self._shadow, *args)

    def _reduction(self, collective: str, op: Op, *args: Any) -> None:
        self._run(collective, args[1].nbytes if args[1] is not None else 0, *args)

    def _scan(self, collective: str, order: str | None, op: Op, mine: Array, answer: Array) -> None:
        if self._ordered(order):
            from armillary.comm.collectives.reductions import linear_exscan, linear_scan

            (linear_scan if collective == "scan" else linear_exscan)(self._shadow, mine, answer, op)
        else:
            self._reduction(collective, op, mine, answer, op)

    def _gather(self, mine: Array, recv: Buffer, counts: Any, displacements: Any, root: int) -> Buffer:
        self._root(root)
        blocks = None
        if self.rank == root:
            blocks = cut(self._room(recv, mine), counts, displacements, self.size, "gather")
            self._same(blocks[root], mine, "gather")
        self._count(0 if self.rank == root else mine.nbytes)
        self._run("gather", mine.nbytes, mine, blocks, root)
        return recv if self.rank == root else None

    def _scatter(self, send: Buffer, recv: Buffer, counts: Any, displacements: Any, root: int) -> Buffer:
        self._root(root)
        room = flat(recv, "recv", writable=True)
        blocks = None
        if self.rank == root:
            blocks = cut(flat(send, "send"), counts, displacements, self.size, "scatter")
            self._same(room, blocks[root], "scatter")
        self._count(sum(block.nbytes for i, block in enumerate(blocks) if i != root) if blocks else 0)
        self._run("scatter", room.nbytes, blocks, room, root)
        return recv

    def _allgather(self, mine: Array, recv: Buffer, counts: Any, displacements: Any) -> Buffer:
        blocks = cut(self._room(recv, mine), counts, displacements, self.size, "allgather")
        self._same(blocks[self.rank], mine, "allgather")
        self._count(mine.nbytes)
        self._run("allgather", sum(block.nbytes for block in blocks), mine, blocks)
        return recv

    def _alltoall(self, collective: str, mine: Array, counts: Any, starts: Any, recv: Buffer, recvcounts: Any, recvstarts: Any) -> Buffer:
        sends = cut(mine, counts, starts, self.size, "send")
        recvs = cut(self._room(recv, mine), recvcounts, recvstarts, self.size, "recv")
        self._same(recvs[self.rank], sends[self.rank], collective)
        self._count_exchange([block.nbytes for block in sends])
        self._run(collective, sends[0].nbytes, sends, recvs)
        return recv

    def _two(self, send: Any, recv: Any) -> tuple[Array, Array, Any]:
        if send is IN_PLACE:
            answer = flat(recv, "recv", writable=True)
            return answer, answer, recv
        mine = flat(send, "send")
        if recv is None:
            recv = made_like(send)
        return mine, self._room(recv, mine, mine.size), recv

    def _whole(self, buffer: Buffer, what: str) -> Any:
        """Return a one-dimensional view of a contiguous buffer."""
        return flat(buffer, what)

    def _made_like(self, buffer: Buffer, shape: Any) -> Any:
        """Return an uninitialised buffer of the same library and type."""
        return made_like(buffer, shape)

    def _their_counts(self, mine: Any, sendcounts: Any) -> list[int]:
        """Return how many elements each rank sends to this one, if this one sends so many to each."""
        found: list[int] = self._shadow.alltoall(np.ascontiguousarray(sendcounts, np.int64)).tolist()
        return found

    def _room(self, recv: Buffer, mine: Array, size: int | None = None) -> Array:
        answer = flat(recv, "recv", writable=True)
        if answer.dtype != mine.dtype:
            raise InputError(f"recv: found an array of {answer.dtype}; expected {mine.dtype}, the type of what is sent")
        if size is not None and answer.size != size:
            raise InputError(f"recv: found {answer.size} elements; expected {size}")
        return answer

    def _same(self, room: Array, mine: Array, what: str) -> None:
        if room.size != mine.size or room.dtype != mine.dtype:
            raise InputError(
                f"{what}: found {mine.size} elements of {mine.dtype} to send and room for {room.size} of {room.dtype}; expected the same"
            )

    def _lengths(self, length: int) -> list[int]:
        found: list[int] = self._shadow.allgather(np.array([length], np.int64)).reshape(-1).tolist()
        return found

    def _check_layouts(self, send: Array, sendlayouts: Sequence[Any], recv: Array, recvlayouts: Sequence[Any]) -> list[int]:
        for what, layouts in (("sendlayouts", sendlayouts), ("recvlayouts", recvlayouts)):
            if len(layouts) != self.size:
                raise InputError(f"{what}: found {len(layouts)}; expected one for each of the {self.size} ranks")
        return [0 if layout is None else layout.nbytes(send.dtype) for layout in sendlayouts]

    def _ordered(self, order: str | None) -> bool:
        if order not in (None, "rank"):
            raise unknown("order", str(order), ["rank"])
        return order == "rank"

    def _root(self, root: int) -> None:
        if root < 0:
            raise InputError(f"root: found rank {root}; expected 0 to {self.size - 1}")
        check_rank(root, self.size, "root")

    def _made(self) -> int:
        """Count the communicators that were made from this one; the count is the same on all its ranks."""
        self._children += 1
        return self._children

    def _inherit(self, child: Communicator) -> Communicator:
        child._chosen = dict(self._chosen)
        return child

    def _neighbours(self, around: Neighbourhood) -> Any:
        """Return an object that exchanges between neighbours better than messages do, or None."""
        return None
