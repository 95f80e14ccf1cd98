"""The coordinator's transfers between threads: the data is copied straight into the other rank's memory, then the signal is raised.

That needs memory that all ranks allocated together (`Coordinator.alloc`), in which a place in one rank's copy names the same place in
every other rank's. Other arrays travel as messages. Small collective calls are one meeting: every rank lays its part open, waits until all
ranks have done so, and combines the parts in the order of the ranks, so that all ranks get the same bits.
"""

from __future__ import annotations

from _thread import allocate_lock
from collections.abc import Callable
from typing import Any

import numpy as np

from armillary.comm.collectives.operations import Op
from armillary.comm.communicator import Communicator
from armillary.comm.coordination.prepared import Call, PreparedTransfers, Remembered, unowned
from armillary.comm.coordination.signals import check_signal
from armillary.comm.coordination.transfers import first
from armillary.comm.failures import Aborted
from armillary.comm.messages.buffers import Array, Buffer, cut, flat, made_like
from armillary.comm.messages.envelope import IN_PLACE, check_rank
from armillary.errors import InputError

#: The most bytes per rank of a collective call that is a meeting. Longer ones use messages, which do not copy every part to every rank.
_MOST_SHARED = 1 << 18
#: The reductions that ufuncs do in place.
_UFUNCS = {"sum": np.add, "prod": np.multiply, "min": np.minimum, "max": np.maximum}


class _Cell:
    """The value that one rank's posts to another have reached at one signal. The other rank waits on the cell as on a request."""

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
    """Where all ranks of a coordinator meet; it counts the ranks that have come and the rounds that are complete."""

    __slots__ = ("count", "lock", "rounds", "seats")

    def __init__(self, size: int) -> None:
        self.lock = allocate_lock()
        self.count = 0
        self.rounds = 0
        self.seats = [_Seat(self) for _ in range(size)]


class _Seat:
    """One rank's place at a meeting, on which the rank waits as on a request."""

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
    """One allocation: the memory of every rank, and the addresses between which this rank's lies."""

    __slots__ = ("begin", "end", "number", "parts")

    def __init__(self, number: int, parts: list[Array], rank: int) -> None:
        self.number = number
        self.parts = parts
        self.begin = parts[rank].ctypes.data
        self.end = self.begin + parts[rank].nbytes


class ThreadTransfers(PreparedTransfers):
    """Transfers of threads, which are one-sided between places that all ranks allocated together."""

    def __init__(self, comm: Communicator, stream: Any = None) -> None:
        super().__init__(comm, stream)
        ranks: Any = comm
        self._world = ranks._world
        self._shared: dict[Any, Any] = self._world.shared
        self._name = ("coordinator", ranks._context, self._number)
        self._blocks: list[_Block] = []
        self._allocated = 0
        self._bind_posts()
        self._bind_meetings()

    def alloc(self, shape: Any, dtype: Any = np.float64) -> Array:
        """Allocate zeros at a place that every rank can write to. All ranks ask for the same shape and type."""
        array: Array = np.zeros(shape, dtype)
        self._allocated += 1
        name = (*self._name, "memory", self._allocated)
        self._shared[(*name, self.comm.rank)] = array
        self._ranks.barrier()
        parts = [self._shared[(*name, rank)] for rank in range(self.comm.size)]
        if any(part.shape != array.shape or part.dtype != array.dtype for part in parts):
            found = ", ".join(f"{part.dtype}{list(part.shape)}" for part in parts[:8])
            raise InputError(f"alloc: found {found} on the ranks; expected the same shape and type on all")
        self._blocks.append(_Block(self._allocated, parts, self.comm.rank))
        return array

    def free(self, array: Array) -> None:
        """Free memory that `alloc` gave. All ranks call it."""
        for block in self._blocks:
            if block.parts[self.comm.rank] is array:
                self._ranks.barrier()
                self._shared.pop((*self._name, "memory", block.number, self.comm.rank), None)
                self._blocks.remove(block)
                return
        raise InputError("free: found an array that alloc did not give; expected a whole array that it gave")

    def _place(self, array: Any) -> tuple[_Block, int] | None:
        """Return the allocation that an array is a contiguous part of, and its offset there in bytes."""
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
            found: _Cell = self._shared.setdefault(key, _Cell(source))
        return found

    def _bind_posts(self) -> None:
        comm, tally, world = self.comm, self.comm._tally, self._world
        by_message, receive, finish, forget_messages = super().post, super().acknowledge, super().wait, super()._forget
        posts, acknowledged = Remembered(), Remembered()
        #: The signals that the open batch waits for and their values; None stands for a message.
        cells: list[_Cell | None] = self._begun
        values: list[int] = []

        def prepare_post(src: Buffer, dst: Buffer, count: int, signal: Any, dest: int) -> tuple[Any, ...]:
            check_signal(signal)
            check_rank(dest, comm.size, "dest")
            data, to, flag = first(src, count, "src"), self._place(dst), self._place(signal)
            if to is None or flag is None or dest < 0:
                return (None,)
            mine = first(dst, count, "dst")
            if mine.dtype != data.dtype:
                raise InputError(f"dst: found an array of {mine.dtype}; expected {data.dtype}, the type of src")
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
            return posts.keep((id(src), id(dst), id(signal), count, dest), (src, dst, signal), entry)

        def post(src: Buffer, dst: Buffer, count: int, signal: Array | None, value: int, dest: int) -> None:
            entry = posts.get((id(src), id(dst), id(signal), count, dest)) or prepare_post(src, dst, count, signal, dest)
            cell = entry[0]
            if cell is None:
                by_message(src, dst, count, signal, value, dest)
                if self._inside:
                    cells.append(None)
                    values.append(0)
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
            if self._place(dst) is None or flag is None or source < 0:
                return (None,)
            return acknowledged.keep((id(dst), id(signal), count, source), (dst, signal), (self._cell(source, comm.rank, flag),))

        def acknowledge(dst: Buffer, count: int, signal: Array | None, value: int, source: int) -> None:
            entry = acknowledged.get((id(dst), id(signal), count, source)) or prepare_acknowledge(dst, count, signal, source)
            cell = entry[0]
            if cell is None:
                receive(dst, count, signal, value, source)
                if self._inside:
                    cells.append(None)
                    values.append(0)
                return
            tally.now.calls += 1
            if self._inside:
                cells.append(cell)
                values.append(value)
            elif cell.value < value:
                _until(comm, cell, value)

        def wait() -> None:
            messages = False
            # The last one comes first, because at one signal it stands for all before it.
            for i in range(len(cells) - 1, -1, -1):
                cell = cells[i]
                if cell is None:
                    messages = True
                elif cell.value < values[i]:
                    _until(comm, cell, values[i])
            cells.clear()
            values.clear()
            if messages:
                finish()

        def forget() -> None:
            cells.clear()
            values.clear()
            forget_messages()

        self.__dict__.update(post=post, acknowledge=acknowledge, wait=wait, _forget=forget)

    def _bind_meetings(self) -> None:
        comm, world, rank, size = self.comm, self._world, self.comm.rank, self.comm.size
        shared, name = self._shared, self._name
        with world.lock:
            meeting: _Meeting = shared.setdefault((*name, "meeting"), _Meeting(size))
        seat = meeting.seats[rank]
        turn = 0

        def laid_open(key: Any, sizes: list[int], dtype: Any) -> list[list[Array]]:
            """Return room for the parts of all ranks in even and in odd turns. A part is reused two turns later, after all have read it."""
            with world.lock:
                found: list[list[Array]] | None = shared.get((*name, key))
                if found is None:
                    found = shared[(*name, key)] = [[np.empty(n, dtype) for n in sizes] for _ in (0, 1)]
            return found

        def meet(both: list[list[Array]], mine: Array) -> int:
            """Lay this rank's part open, wait until all ranks have done so, and return whether the turn is odd."""
            nonlocal turn
            if world.aborted:
                raise Aborted("another rank failed")
            turn ^= 1
            both[turn][rank][...] = mine
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
            return turn

        def reduction(send: Any, recv: Any, op: Op) -> Call | None:
            # Whether the ranks meet depends only on what is the same on all of them.
            if size == 1 or _UFUNCS.get(op.name) is not op.function:
                return None
            mine, answer, made = comm._two(send, recv)
            if mine.nbytes > _MOST_SHARED or mine.dtype.kind not in "iuf":
                return None
            both = laid_open(("allreduce", mine.size, mine.dtype.str), [mine.size] * size, mine.dtype)
            return Call(mine.nbytes, _folded(meet, both, unowned(mine), unowned(answer), op.function), made if recv is None else None)

        def gathering(send: Any, recv: Any, counts: Any, displacements: Any) -> Call | None:
            if size == 1:
                return None
            in_place = send is IN_PLACE
            made = made_like(send, (sum(counts),)) if recv is None and not in_place else None
            blocks = cut(flat(recv if made is None else made, "recv", writable=True), counts, displacements, size, "allgather")
            if max(block.nbytes for block in blocks) > _MOST_SHARED:
                return None
            mine = blocks[rank] if in_place else flat(send, "send")
            comm._same(blocks[rank], mine, "allgather")
            both = laid_open(("allgatherv", tuple(blocks.counts), mine.dtype.str), blocks.counts, mine.dtype)
            moves = [[(unowned(blocks[i]), parts[i]) for i in range(size) if i != rank or not in_place] for parts in both]
            return Call(mine.nbytes, _gathered(meet, both, unowned(mine), moves), made)

        self._bind_collectives(reduction, gathering, in_rank_order=True)


_Meet = Callable[[list[list[Array]], Array], int]


def _folded(meet: _Meet, both: list[list[Array]], mine: Array, answer: Array, ufunc: Any) -> Callable[[], None]:
    def perform() -> None:
        parts = both[meet(both, mine)]
        ufunc(parts[0], parts[1], out=answer)
        for i in range(2, len(parts)):
            ufunc(answer, parts[i], out=answer)

    return perform


def _gathered(meet: _Meet, both: list[list[Array]], mine: Array, moves: list[list[tuple[Array, Array]]]) -> Callable[[], None]:
    def perform() -> None:
        for block, part in moves[meet(both, mine)]:
            block[...] = part

    return perform


def _there(place: tuple[_Block, int], rank: int, mine: Array) -> Array:
    """Return the memory of another rank at the place where this rank has `mine`."""
    block, offset = place
    memory = block.parts[rank].reshape(-1).view(np.uint8)
    return memory[offset : offset + mine.nbytes].view(mine.dtype)


def _closed() -> Any:
    gate = allocate_lock()
    gate.acquire()
    return gate


def _await(comm: Any, thing: _Cell | _Seat) -> None:
    """Block until the thing is done, or the run is aborted."""
    box, world, gate = comm._box, comm._world, thing.gate
    box.waits = (gate, (thing,))
    thing.waker = gate
    # This check follows the assignment of the waker, so no wake-up is lost. One that came too early costs another look.
    while not thing.done:
        if world.aborted:
            raise Aborted("another rank failed")
        gate.acquire()
    box.waits = thing.waker = None


def _until(comm: Any, cell: _Cell, value: int) -> None:
    cell.wanted = value
    _await(comm, cell)
