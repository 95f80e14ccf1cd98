"""Windows of virtual ranks, whose one-sided transfers take simulated time.

A put reaches the other memory o_s + n·C + L + (n-1)·G after the call. A get reads it o_s + L after the call, and its data is back
L + (n-1)·G later. Transfers that reach a memory at the same instant take effect in the order of the calling ranks.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Any

from armillary.comm.collectives.operations import SUM, Op
from armillary.comm.messages.buffers import Array, Buffer
from armillary.comm.virtual.ghost import Ghost
from armillary.comm.windows import Window

if TYPE_CHECKING:
    from armillary.comm.virtual.rank import Rank
    from armillary.comm.virtual.ranks import VirtualRanks
    from armillary.engine import Simulation


class _Part:
    """The memory of one rank, and the ranks that hold or want its lock."""

    __slots__ = ("holder", "memory", "wanted")

    def __init__(self, memory: Array) -> None:
        self.memory = memory
        self.holder: Rank | None = None
        self.wanted: deque[tuple[Rank, float]] = deque()


class _Exchange:
    """What the ranks of a window share: all parts, and the transfers that will reach them."""

    def __init__(self, sim: Simulation) -> None:
        self._sim = sim
        self.parts: dict[int, _Part] = {}
        self._coming: list[tuple[float, int, int, Callable[[], None]]] = []

    def reach(self, when: float, rank: Rank, call: Callable[[], None]) -> None:
        """Make this call when the loop reaches `when`."""
        rank.seq += 1
        heappush(self._coming, (when, rank.number, rank.seq, call))
        self._sim.at(max(when, self._sim.now), self._due, priority=1)

    def _due(self) -> None:
        coming = self._coming
        while coming and coming[0][0] <= self._sim.now:
            heappop(coming)[3]()


class VirtualWindow(Window):
    """One-sided transfers with the costs of messages."""

    def __init__(self, comm: VirtualRanks, local: Array, number: int) -> None:
        self._comm: VirtualRanks = comm
        self.local = local
        self._state = comm._state
        world = self._state.world
        self._key = (comm._context, "window", number)
        self._exchange = world.shared.setdefault(self._key, _Exchange(world.sim))
        self._exchange.parts[comm.rank] = _Part(local)
        #: The time at which this rank's transfers with each rank are complete.
        self._pending: dict[int, float] = {}
        comm._shadow.barrier()

    def put(self, data: Buffer, rank: int, start: int = 0) -> None:
        array = self._data(data, rank, start)
        nbytes = array.nbytes
        memory = self._exchange.parts[rank].memory
        kept = None if isinstance(array, Ghost) else array.copy()

        def write() -> None:
            if kept is not None:
                memory[start : start + kept.size] = kept

        self._send(rank, nbytes, "put", write)

    def accumulate(self, data: Buffer, rank: int, start: int = 0, op: Op = SUM) -> None:
        array = self._data(data, rank, start)
        memory = self._exchange.parts[rank].memory
        kept = None if isinstance(array, Ghost) else array.copy()

        def combine() -> None:
            if kept is not None:
                part = memory[start : start + kept.size]
                part[...] = op(part, kept)

        self._send(rank, array.nbytes, "accumulate", combine)

    def _send(self, rank: int, nbytes: int, name: str, write: Callable[[], None]) -> None:
        state = self._state
        self._comm._count_message(rank, nbytes)
        price = self._price(rank)
        begin = state.clock
        state.clock = clock = begin + price.send_overhead + (nbytes * price.send_copy if nbytes <= price.eager_limit else 0.0)
        there = clock + price.latency + _wire(price, nbytes)
        self._exchange.reach(there, state, write)
        self._pending[rank] = max(self._pending.get(rank, 0.0), there + price.latency)
        if state.watched:
            state.passed(name, "send", begin, ())

    def get(self, data: Buffer, rank: int, start: int = 0) -> Buffer:
        array = self._data(data, rank, start, writable=True)
        state = self._state
        self._comm._count_message(rank, 0)
        price = self._price(rank)
        begin = state.clock
        state.clock = clock = begin + price.send_overhead
        there = clock + price.latency
        memory = self._exchange.parts[rank].memory

        def read() -> None:
            if not isinstance(array, Ghost):
                array[...] = memory[start : start + array.size]

        self._exchange.reach(there, state, read)
        back = there + price.latency + _wire(price, array.nbytes)
        self._pending[rank] = max(self._pending.get(rank, 0.0), back)
        if state.watched:
            state.passed("get", "send", begin, ())
        return data

    def flush(self, rank: int) -> None:
        self._until(self._pending.pop(rank, 0.0), "flush")

    def fence(self) -> None:
        self._until(max(self._pending.values(), default=0.0), "fence")
        self._pending.clear()
        self._comm._shadow.barrier()
        # Other ranks may have run ahead of this rank's memory.
        self._state.sync("fence")

    def _until(self, when: float, what: str) -> None:
        state = self._state
        begin = state.clock
        state.clock = max(begin, when)
        state.sync(what)
        if state.watched:
            state.passed(what, "wait", begin, ())

    def lock(self, rank: int) -> AbstractContextManager[None]:
        self._check_rank(rank)
        return self._held(rank)

    @contextmanager
    def _held(self, rank: int) -> Iterator[None]:
        state = self._state
        sim = state.world.sim
        part = self._exchange.parts[rank]
        latency = self._price(rank).latency
        begin = state.clock
        state.clock += self._price(rank).send_overhead

        def ask() -> None:
            if part.holder is None:
                part.holder = state
                state.world.wake(state, sim.now + latency)
            else:
                part.wanted.append((state, latency))

        self._exchange.reach(state.clock + latency, state, ask)
        state.park(f"lock(rank={rank})")
        state.clock = max(state.clock, sim.now)
        if state.watched:
            state.passed("lock", "wait", begin, ())
        try:
            yield
        finally:
            self.flush(rank)
            self._exchange.reach(state.clock + latency, state, lambda: _release(part, sim))

    def view(self, rank: int) -> Array | None:
        same = self._comm.nodes[rank] == self._comm.node
        return self._exchange.parts[rank].memory if same else None

    def close(self) -> None:
        self.fence()
        self._state.world.shared.pop(self._key, None)

    def _data(self, data: Any, rank: int, start: int, writable: bool = False) -> Any:
        if isinstance(data, Ghost) and not self._state.world.ghosts:
            self._comm._no_ghosts()
        return self._checked(data, rank, start, writable=writable)

    def _price(self, rank: int) -> Any:
        comm = self._comm
        return self._state.prices[comm._all[comm._members[rank]].site]


def _wire(price: Any, nbytes: int) -> float:
    """Return the seconds that the bytes take on the wire, or in one copy inside a node."""
    if price.shm is not None:
        return float(nbytes * price.shm.copy)
    return float((nbytes - 1) * price.byte_gap) if nbytes > 1 else 0.0


def _release(part: _Part, sim: Simulation) -> None:
    part.holder = None
    if part.wanted:
        part.holder, latency = part.wanted.popleft()
        part.holder.world.wake(part.holder, sim.now + latency)
