"""A coordinator's transfers between threads: the data is copied straight into the other's memory, then the signal is raised.

That needs memory that all ranks allocated together (`Coordinator.alloc`): a place in one rank's copy names the same place in every other's.
Arrays from elsewhere travel as messages. Small collective calls meet once: every rank lays its part open, waits until all have, and
combines the parts in the order of the ranks, so that all get the same bits.
"""

from __future__ import annotations

from _thread import allocate_lock
from collections import deque
from typing import Any

import numpy as np

from armillary.comm.buffers import Array, Buffer, cut, flat
from armillary.comm.communicator import Communicator
from armillary.comm.failures import Aborted
from armillary.comm.message import IN_PLACE, check_rank
from armillary.comm.operations import SUM, Op
from armillary.comm.signals import check_signal
from armillary.comm.transfers import Remembered, Transfers, first, unowned
from armillary.errors import InputError

#: Collective calls of more bytes a rank go over messages, which do not copy every part to every rank.
_MOST_SHARED = 1 << 18
#: Reductions that ufuncs do in place.
_UFUNCS = {"sum": np.add, "prod": np.multiply, "min": np.minimum, "max": np.maximum}


class _Cell:
    """How far one rank's posts to another have come at one signal; the other waits on it as on a request."""

    __slots__ = ("gate", "source", "value", "waker", "wanted")

    def __init__(self, source: int) -> None:
        self.source = source
        self.gate = _closed()
        self.value = 0
        self.wanted = 0
        self.waker: Any = None

    @property
    def done(self) -> bool:
        return self.value >= self.wanted

    @property
    def what(self) -> str:
        return f"acknowledge(source={self.source}, value={self.wanted}), where {self.value} was posted"


class _Meeting:
    """Where all ranks of a coordinator meet: how many have come, and how often all had."""

    __slots__ = ("count", "lock", "rounds", "seats")

    def __init__(self, size: int) -> None:
        self.lock = allocate_lock()
        self.count = 0
        self.rounds = 0
        self.seats = [_Seat(self) for _ in range(size)]


class _Seat:
    """One rank's place at a meeting, on which it waits as on a request."""

    __slots__ = ("gate", "meeting", "waker", "wanted")

    def __init__(self, meeting: _Meeting) -> None:
        self.meeting = meeting
        self.gate = _closed()
        self.wanted = 0
        self.waker: Any = None

    @property
    def done(self) -> bool:
        return self.meeting.rounds >= self.wanted

    @property
    def what(self) -> str:
        return "a collective call of the coordinator"


class _Block:
    """One allocation: the memory of every rank."""

    __slots__ = ("begin", "end", "number", "parts")

    def __init__(self, number: int, parts: list[Array], rank: int) -> None:
        self.number = number
        self.parts = parts
        self.begin = parts[rank].ctypes.data
        self.end = self.begin + parts[rank].nbytes


class ThreadTransfers(Transfers):
    """Transfers of threads, one-sided between places that all ranks allocated together."""

    def __init__(self, comm: Communicator, stream: Any = None) -> None:
        super().__init__(comm, stream)
        ranks: Any = comm
        self._world = ranks._world
        # Coordinators of one communicator are made by all ranks in the same order.
        number = comm.__dict__["_coordinators"] = comm.__dict__.get("_coordinators", 0) + 1
        self._name = ("coordinator", ranks._context, number)
        self._blocks: list[_Block] = []
        self._allocated = 0
        self._bind_messages()
        self._bind_collectives()

    def _values(self, source: int, dest: int) -> deque[int] | None:
        found: deque[int] = self._world.shared.setdefault((*self._name, "values", source, dest), deque())
        return found

    def alloc(self, shape: Any, dtype: Any = np.float64) -> Array:
        """Zeros at a place that every rank can write to; all ranks ask for the same shape and type."""
        array: Array = np.zeros(shape, dtype)
        self._allocated += 1
        shared, name = self._world.shared, (*self._name, "memory", self._allocated)
        shared[(*name, self.comm.rank)] = array
        self._ranks.barrier()
        parts = [shared[(*name, rank)] for rank in range(self.comm.size)]
        if any(part.shape != array.shape or part.dtype != array.dtype for part in parts):
            found = ", ".join(f"{part.dtype}{list(part.shape)}" for part in parts[:8])
            raise InputError(f"alloc: found {found} on the ranks; expected the same shape and type on all")
        self._blocks.append(_Block(self._allocated, parts, self.comm.rank))
        return array

    def free(self, array: Array) -> None:
        """Let go of memory that `alloc` gave; all ranks call."""
        for block in self._blocks:
            if block.parts[self.comm.rank] is array:
                self._ranks.barrier()
                self._world.shared.pop((*self._name, "memory", block.number, self.comm.rank), None)
                self._blocks.remove(block)
                return
        raise InputError("free: found an array that alloc did not give; expected one that it did, whole")

    def _place(self, array: Any) -> tuple[_Block, int] | None:
        """The allocation that an array is a contiguous part of, and where in it, in bytes."""
        if not isinstance(array, np.ndarray) or not array.flags.c_contiguous:
            return None
        at = array.ctypes.data
        for block in self._blocks:
            if block.begin <= at and at + array.nbytes <= block.end:
                return block, at - block.begin
        return None

    def _cell(self, source: int, dest: int, place: tuple[_Block, int]) -> _Cell:
        key = (*self._name, "signal", source, dest, place[0].number, place[1])
        with self._world.lock:
            found: _Cell = self._world.shared.setdefault(key, _Cell(source))
        return found

    def _bind_messages(self) -> None:
        comm, tally, world = self.comm, self.comm._tally, self._world
        by_message, receive, finish, forget = super().post, super().acknowledge, super().wait, super().drop
        posts, acknowledged = Remembered(), Remembered()
        #: Signals that the open batch waits for, and their values.
        cells: list[_Cell] = []
        values: list[int] = []
        messages, inside = False, False

        def prepare_post(src: Buffer, dst: Buffer, count: int, signal: Any, dest: int) -> tuple[Any, ...]:
            check_signal(signal)
            check_rank(dest, comm.size, "dest")
            data, to, flag = first(src, count, "src"), self._place(dst), self._place(signal)
            entry: tuple[Any, ...] = (None,)
            if to is not None and flag is not None and dest >= 0:
                mine = first(dst, count, "dst")
                if mine.dtype != data.dtype:
                    raise InputError(f"dst: found an array of {mine.dtype}; expected {data.dtype} as src")
                room = _there(to, dest, mine)
                raised = _there(flag, dest, flat(signal)[:1])
                other = dest != comm.rank
                entry = (
                    self._cell(comm.rank, dest, flag),
                    room.view(np.uint8),
                    unowned(data.view(np.uint8)),
                    raised,
                    int(other),
                    data.nbytes if other else 0,
                )
                posts.keep((id(src), id(dst), id(signal), count, dest), (src, dst, signal), entry)
            return entry

        def post(src: Buffer, dst: Buffer, count: int, signal: Array | None, value: int, dest: int) -> None:
            nonlocal messages
            entry = posts.get((id(src), id(dst), id(signal), count, dest)) or prepare_post(src, dst, count, signal, dest)
            cell = entry[0]
            if cell is None:
                messages = True
                by_message(src, dst, count, signal, value, dest)
                return
            if world.aborted:
                raise Aborted("another rank failed")
            counters = tally.now
            counters.calls += 1
            counters.messages += entry[4]
            counters.bytes += entry[5]
            entry[1][...] = entry[2]
            entry[3][0] = value
            cell.value = value
            waker = cell.waker
            if waker is not None and value >= cell.wanted and waker.locked():
                waker.release()

        def prepare_acknowledge(dst: Buffer, count: int, signal: Any, source: int) -> tuple[Any, ...]:
            check_signal(signal)
            check_rank(source, comm.size, "source")
            first(dst, count, "dst")
            flag = self._place(signal)
            if self._place(dst) is not None and flag is not None and source >= 0:
                entry = (self._cell(source, comm.rank, flag),)
                return acknowledged.keep((id(dst), id(signal), count, source), (dst, signal), entry)
            return (None,)

        def acknowledge(dst: Buffer, count: int, signal: Array | None, value: int, source: int) -> None:
            nonlocal messages
            entry = acknowledged.get((id(dst), id(signal), count, source)) or prepare_acknowledge(dst, count, signal, source)
            cell = entry[0]
            if cell is None:
                messages = True
                receive(dst, count, signal, value, source)
                return
            tally.now.calls += 1
            if inside:
                cells.append(cell)
                values.append(value)
            elif cell.value < value:
                _until(comm, cell, value)

        def begin() -> None:
            nonlocal inside
            inside = self._inside = True

        def end() -> None:
            nonlocal inside
            inside = self._inside = False
            wait()

        def wait() -> None:
            nonlocal messages
            # The last first: at one signal it stands for all before it.
            for i in range(len(cells) - 1, -1, -1):
                if cells[i].value < values[i]:
                    _until(comm, cells[i], values[i])
            cells.clear()
            values.clear()
            if messages:
                messages = False
                finish()

        def drop() -> None:
            nonlocal inside
            inside = False
            cells.clear()
            values.clear()
            forget()

        self.__dict__.update(post=post, acknowledge=acknowledge, begin=begin, end=end, wait=wait, drop=drop)

    def _bind_collectives(self) -> None:
        comm, tally, world, rank, size = self.comm, self.comm._tally, self._world, self.comm.rank, self.comm.size
        with world.lock:
            meeting: _Meeting = world.shared.setdefault((*self._name, "meeting"), _Meeting(size))
        general_allreduce, general_allgatherv = super().allreduce, super().allgatherv
        reductions, gathers = Remembered(), Remembered()
        wait, seat, shared, name, alone = self.wait, meeting.seats[rank], world.shared, self._name, size == 1
        turn = 0

        def laid_open(key: Any, sizes: list[int], dtype: Any) -> list[list[Array]]:
            """Room for the parts of all ranks, for even and odd turns: a part is written again two turns later, when all have read it."""
            with world.lock:
                found: list[list[Array]] | None = shared.get((*name, key))
                if found is None:
                    found = shared[(*name, key)] = [[np.empty(n, dtype) for n in sizes] for _ in (0, 1)]
            return found

        def meet() -> None:
            if world.aborted:
                raise Aborted("another rank failed")
            with meeting.lock:
                seat.wanted = meeting.rounds + 1
                meeting.count += 1
                last = meeting.count == size
                if last:
                    meeting.count = 0
                    meeting.rounds += 1
            if last:
                for other in meeting.seats:
                    waker = other.waker
                    if waker is not None and waker.locked():
                        waker.release()
            elif meeting.rounds < seat.wanted:
                _await(comm, seat)

        def prepare_reduction(send: Any, recv: Any, op: Op) -> tuple[Any, ...] | None:
            # Whether the ranks meet depends on what is the same on all of them alone.
            if alone or _UFUNCS.get(op.name) is not op.function or "allreduce" in comm._chosen:
                return None
            mine, answer, _ = comm._two(send, recv)
            if mine.nbytes > _MOST_SHARED or mine.dtype.kind not in "iuf":
                return None
            parts = laid_open(("allreduce", mine.size, mine.dtype.str), [mine.size] * size, mine.dtype)
            entry = (unowned(mine), unowned(answer), parts, op.function, mine.nbytes)
            return reductions.keep((id(send), id(recv), op.name), (send, recv), entry)

        def allreduce(send: Any, recv: Any = None, op: Op = SUM, order: str | None = None) -> Any:
            nonlocal turn
            if recv is None:
                recv = np.empty_like(send)
            known = reductions.get((id(send), id(recv), op.name)) or prepare_reduction(send, recv, op)
            if known is None:
                return general_allreduce(send, recv, op, order)
            if order is not None:
                comm._ordered(order)
            wait()
            mine, answer, both, ufunc, nbytes = known
            counters = tally.now
            counters.calls += 1
            counters.collectives += 1
            counters.bytes += nbytes
            turn ^= 1
            parts = both[turn]
            parts[rank][...] = mine
            meet()
            ufunc(parts[0], parts[1], out=answer)
            for i in range(2, size):
                ufunc(answer, parts[i], out=answer)
            return recv

        def prepare_gather(send: Any, recv: Any, counts: Any, displacements: Any) -> tuple[Any, ...] | None:
            if alone or counts is None or "allgather" in comm._chosen:
                return None
            in_place = send is IN_PLACE
            if recv is None and not in_place:
                recv = np.empty(sum(counts), flat(send, "send").dtype)
            blocks = cut(flat(recv, "recv", writable=True), counts, displacements, size, "allgather")
            if max(block.nbytes for block in blocks) > _MOST_SHARED:
                return None
            mine = blocks[rank] if in_place else flat(send, "send")
            comm._same(blocks[rank], mine, "allgather")
            both = laid_open(("allgatherv", tuple(blocks.counts), mine.dtype.str), blocks.counts, mine.dtype)
            moves = [[(unowned(blocks[i]), parts[i]) for i in range(size) if i != rank or not in_place] for parts in both]
            entry = (counts, displacements, unowned(mine), moves, both, mine.nbytes, None)
            if type(counts) is not tuple or type(displacements) not in (tuple, type(None)):
                # Something that may change under the same identity is not remembered.
                return (*entry[:6], recv)
            gathers.keep((id(send), id(recv)), (send, recv), entry)
            return (*entry[:6], recv)

        def allgatherv(send: Any, recv: Any = None, counts: Any = None, displacements: Any = None) -> Any:
            nonlocal turn
            known = gathers.get((id(send), id(recv)))
            if known is None or known[0] is not counts or known[1] is not displacements:
                known = prepare_gather(send, recv, counts, displacements)
                if known is None:
                    return general_allgatherv(send, recv, counts, displacements)
            wait()
            counters = tally.now
            counters.calls += 1
            counters.collectives += 1
            counters.bytes += known[5]
            turn ^= 1
            known[4][turn][rank][...] = known[2]
            meet()
            for block, part in known[3][turn]:
                block[...] = part
            return recv if known[6] is None else known[6]

        self.__dict__.update(allreduce=allreduce, allgatherv=allgatherv)


def _there(place: tuple[_Block, int], rank: int, mine: Array) -> Array:
    """What another rank has where this rank has `mine`."""
    block, offset = place
    memory = block.parts[rank].reshape(-1).view(np.uint8)
    return memory[offset : offset + mine.nbytes].view(mine.dtype)


def _closed() -> Any:
    gate = allocate_lock()
    gate.acquire()
    return gate


def _await(comm: Any, thing: _Cell | _Seat) -> None:
    """Block until it is done, or the run is aborted."""
    box, world, gate = comm._box, comm._world, thing.gate
    box.waits = (gate, (thing,))
    thing.waker = gate
    # Looked at after the waker is in place, so no wake-up is lost; one that came too early, or for the wait before, costs a look.
    while not thing.done:
        if world.aborted:
            raise Aborted("another rank failed")
        gate.acquire()
    box.waits = thing.waker = None


def _until(comm: Any, cell: _Cell, value: int) -> None:
    cell.wanted = value
    _await(comm, cell)
