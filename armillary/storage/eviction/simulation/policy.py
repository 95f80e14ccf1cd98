"""What every eviction policy offers: it replays a trace, serves as a mapping in a program, and gives a miss-ratio curve.

A policy is a frozen dataclass of parameters; the capacity goes to its methods. The state of one cache is a `State`: arrays indexed by
dense object number, so a trace streams through it block by block, and one Numba kernel that takes the next block. Whole traces,
streams and the mapping (blocks of one request) all use that kernel.

The rules that all policies share:

- A lookup that misses admits the object. An insertion of a cached object is a use of it, but no hit is counted; if its size differs, the
  object is removed and admitted anew. A deletion removes a cached object, but a policy still remembers objects that left.
- An object keeps the size with which it was admitted; a lookup that names another size does not change it.
- An object larger than the cache, or than the segment that newcomers enter, is not admitted, so each lookup of it misses.
- Sizes are bytes, or every object counts as one (`sizes=None`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from armillary.arena import Technique
from armillary.errors import InputError
from armillary.parameters import with_parameters

from ...queue import empty_queues, grown_queues, kernel, members, part
from ..workload import DELETE, INSERT, LOOKUP, Block, Trace, from_ids

if TYPE_CHECKING:
    from ..sockets.mapping import CacheMapping

#: Entries of `numbers`, the scalars of a state, before a policy's own: capacity, queue writes and evictions logged in this block.
CAPACITY, MOVES, LOGGED, OWN = 0, 1, 2, 3
#: A log entry is request << 36 | place << 32 | object, so a logged block has at most 2^27 requests; 2^22 is the block of a trace.
_REQUEST, _PLACE, _OBJECT = 36, 32, 2**32 - 1

#: Above any cache, and small enough that shares of it stay 64-bit numbers.
MOST_CAPACITY = 2**56
_NO_LOG = np.zeros(0, np.int64)
_NO_OPERATIONS = np.zeros(0, np.uint8)
_NO_OPERATIONS.flags.writeable = False


@dataclass(frozen=True)
class Evictions:
    """Every eviction of a run, in order; positions are request numbers in the whole trace."""

    objects: np.ndarray  #: int32: the object that left.
    inserted: np.ndarray  #: int64: the request that admitted it.
    evicted: np.ndarray  #: int64: the request that pushed it out.
    never_hit: np.ndarray  #: bool: no lookup found it in between.
    place: np.ndarray  #: uint8: the queue or eviction point that it left from, as the policy numbers them.

    def __len__(self) -> int:
        return len(self.objects)


@dataclass(frozen=True)
class CacheOutcome:
    """What a policy did with a trace."""

    hits: np.ndarray  #: bool[n]: lookups that found their object; False for insertions and deletions. Empty if they were not kept.
    lookups: int
    hit_count: int
    moves: int  #: queue insertions, reinsertions and relinkings.
    evictions: Evictions | None  #: None unless asked for.
    capacity: int

    @property
    def misses(self) -> int:
        """Lookups that did not find their object."""
        return self.lookups - self.hit_count

    @property
    def miss_ratio(self) -> float:
        """Misses per lookup; 0 where there is none."""
        return self.misses / self.lookups if self.lookups else 0.0


@dataclass(frozen=True)
class Policy(Technique):
    """An eviction policy. Subclasses give `start`; their fields are their parameters."""

    def start(self, capacity: int, *, sized: bool = False) -> State:
        """An empty cache of `capacity` objects, or bytes if `sized`."""
        raise NotImplementedError

    def simulate(self, trace: Trace | Iterable[Block], capacity: int, *, log: bool = True, keep_hits: bool = True) -> CacheOutcome:
        """Replays a trace, or blocks of one as they come, through an empty cache: hits, moves and, with `log`, every eviction.

        `capacity` counts objects, or bytes where the trace has sizes. With `log=False, keep_hits=False` a stream takes the memory of one
        block and of the policy's arrays, however long it is.
        """
        blocks = trace.blocks() if isinstance(trace, Trace) else trace
        state: State | None = None
        hits: list[np.ndarray] = []
        logs: list[tuple[np.ndarray, ...]] = []
        lives, at, lookups, hit_count = _Lives(), 0, 0, 0
        for block in blocks:
            state = state or self.start(capacity, sized=block.sizes is not None)
            found, left = state.feed(block, log=log)
            hit_count += int(np.count_nonzero(found))
            if keep_hits:
                hits.append(found)
            if log:
                logs.append(lives.follow(block, found, left, at))
            at += len(block)
            lookups += len(block) if block.operations is None else int(np.count_nonzero(block.operations == LOOKUP))
        state = state or self.start(capacity)
        evictions = Evictions(*(_joined([part[k] for part in logs], kind) for k, kind in enumerate(_LIFE))) if log else None
        return CacheOutcome(_joined(hits, np.bool_), lookups, hit_count, state.moves, evictions, state.capacity)

    def run(self, ids: Any, capacity: int, sizes: Any = None) -> np.ndarray:
        """bool[n]: which requests hit in a cache of `capacity` objects (bytes, with `sizes`).

        `ids` is any integer array, Polars series or list, or a `Trace`, which brings its own sizes.
        """
        if not isinstance(ids, Trace):
            ids = from_ids(ids, sizes)
        elif sizes is not None:
            raise InputError("found sizes beside a trace; expected them inside it")
        return self.simulate(ids, capacity, log=False).hits

    def mapping(
        self, capacity: int, *, getsizeof: Callable[[Any], int] | None = None, on_evict: Callable[[Any, Any], object] | None = None
    ) -> CacheMapping:
        """A dictionary that holds at most `capacity` keys (or bytes, with `getsizeof`) and evicts by this policy."""
        from ..sockets.mapping import CacheMapping

        return CacheMapping(self, capacity, getsizeof=getsizeof, on_evict=on_evict)

    def miss_ratio_curve(self, trace: Any, sizes: Sequence[int] | None = None, *, rate: float = 0.01, seed: int = 0) -> Any:
        """Miss ratio at each cache size, from a sample of the objects: see `planning.curves`."""
        from ..planning.curves import miss_ratio_curve

        return miss_ratio_curve(self, trace, sizes, rate=rate, seed=seed)

    def metadata_bytes_per_object(self, capacity: int = 1000) -> float:
        """Bytes of tables and queues that this implementation holds for each object in a full cache of unit objects.

        The memory of objects that left is counted too, and for a ring the cells that are filled.
        """
        return self.start(capacity).bytes_per_object()

    def checked(self, capacity: Any) -> int:
        """`capacity` if it and all parameters can be used."""
        if isinstance(capacity, bool) or not isinstance(capacity, int | np.integer) or not 1 <= capacity < MOST_CAPACITY:
            raise InputError(f"found capacity={capacity!r}; expected a whole number from 1 to 2^56", where=type(self).__name__)
        values = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        with_parameters(type(self), values, where=type(self).__name__)
        return int(capacity)


@dataclass(frozen=True)
class Table:
    """An array with one entry per object, which is `fill` for an object that is not known."""

    kind: Any
    fill: int = 0


@dataclass(frozen=True)
class Ring:
    """A queue of at most `most` unit objects whose cells are noted in the table called `slot`."""

    most: int
    slot: str = "slot"


class State:
    """One cache between two blocks of requests.

    `advance(objects, sizes, operations, hits, log, numbers, held, *tables, cells, queues, *pools, *fixed)` takes a block and changes all
    arrays in place. `pools` have an entry for each object that can be cached, `fixed` do not grow.
    """

    def __init__(
        self,
        advance: Callable[..., None],
        capacity: int,
        *,
        sized: bool,
        tables: Mapping[str, Table],
        rings: Sequence[Ring] = (),
        pools: Mapping[str, Table] | None = None,
        fixed: Sequence[np.ndarray] = (),
        numbers: Sequence[int] = (),
        ghosts: Sequence[int] = (),
        remembered: int = 0,
        entries: int | None = None,
    ) -> None:
        self.capacity = capacity
        self.sized = sized
        self.tables = dict(tables)
        self.rings = tuple(rings)
        self.pools = dict(pools or {})
        self.fixed = tuple(fixed)
        #: Entries of the table `where` that mean remembered, not cached.
        self._ghosts = frozenset(ghosts)
        self.numbers = np.array([capacity, 0, 0, *numbers], np.int64)
        #: Objects that a full cache remembers after they left, and entries of all its queues.
        self.remembered = remembered
        self.entries = (capacity + remembered if rings else 0) if entries is None else entries
        #: Objects that the arrays have room for.
        self.room = 0
        self._advance = advance
        self._held: np.ndarray | None = np.zeros(0, np.int64) if sized else None
        self._arrays = {name: np.zeros(0, table.kind) for name, table in (self.tables | self.pools).items()}
        self._cells, self._queues = empty_queues(self._most(0))

    @property
    def moves(self) -> int:
        """Queue insertions, reinsertions and relinkings so far."""
        return int(self.numbers[MOVES])

    def grow(self, distinct: int) -> None:
        """Makes room for objects 0…distinct-1; known objects stay."""
        if distinct <= self.room:
            return
        self.room = max(distinct, self.room + self.room // 2, 16)
        for name, table in self.tables.items():
            self._arrays[name] = _longer(self._arrays[name], self.room, table)
        if self._held is not None:
            self._held = _longer(self._held, self.room, Table(np.int64))
        for name, pool in self.pools.items():
            self._arrays[name] = _longer(self._arrays[name], self._bound(self.capacity) + 2, pool)
        if self.rings:
            slots = [self._arrays[ring.slot] for ring in self.rings]
            self._cells, self._queues = grown_queues(self._cells, self._queues, slots, self._most(self.room))

    def feed(self, block: Trace, *, log: bool = False) -> tuple[np.ndarray, np.ndarray]:
        """Replays a block: (bool[n] hits, int64 log entries of the evictions)."""
        self._check(block)
        self.grow(block.distinct)
        hits = np.zeros(len(block), np.bool_)
        left = np.empty(self._bound(self.capacity) + len(block), np.int64) if log else _NO_LOG
        self.numbers[LOGGED] = 0
        self.call(block.objects, block.sizes, block.operations, hits, left, block)
        return hits, left[: self.numbers[LOGGED]]

    def call(
        self,
        objects: np.ndarray,
        sizes: np.ndarray | None,
        operations: np.ndarray | None,
        hits: np.ndarray,
        log: np.ndarray,
        block: Trace | None = None,
    ) -> None:
        """Calls the kernel on arrays with enough room; the first three are made read-only, so that there is one signature."""
        self._advance(
            _read_only(objects), None if sizes is None else _read_only(sizes),
            _NO_OPERATIONS if operations is None else _read_only(operations),
            hits, log, self.numbers, self._held, *(self._arrays[name] for name in self.tables),
            *((self._cells, self._queues) if self.rings else ()), *(self._arrays[name] for name in self.pools), *self.fixed,
        )  # fmt: skip

    def holds(self, o: int) -> bool:
        """Whether object o is cached."""
        if "where" in self._arrays:
            return bool(self._arrays["where"][o]) and int(self._arrays["where"][o]) not in self._ghosts
        return bool(self._arrays["slot"][o] >= 0)

    def remembers(self, o: int) -> bool:
        """Whether the policy still knows object o, cached or not; if not, its number may stand for another one."""
        return bool(self._arrays["where"][o]) if "where" in self._arrays else self.holds(o)

    def rename(self, o: int, name: int) -> None:
        """Tells policies that hash object numbers that o stands for `name` from now on."""

    def table(self, name: str) -> np.ndarray:
        """The array of a table or pool, for tests and printouts."""
        return self._arrays[name]

    def queue(self, q: int) -> np.ndarray:
        """The objects of queue q from young to old, for tests and printouts."""
        return members(self._cells, self._queues, q)

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays as they are now."""
        arrays = [*self._arrays.values(), *self.fixed, self._cells, self._queues, self.numbers]
        return sum(array.nbytes for array in arrays) + (0 if self._held is None else self._held.nbytes)

    def bytes_per_object(self) -> float:
        """Bytes of all arrays for each object in a full cache of unit objects."""
        tables = sum(np.dtype(table.kind).itemsize for table in self.tables.values()) * (self.capacity + self.remembered)
        pools = sum(np.dtype(pool.kind).itemsize for pool in self.pools.values()) * self.capacity
        return float(tables + pools + 4 * self.entries + sum(array.nbytes for array in self.fixed)) / self.capacity

    def _check(self, block: Trace) -> None:
        """Checks arrays that do not come from a reader, because kernels trust them."""
        if (block.sizes is not None) != self.sized:
            raise InputError("found a block with sizes after one without, or the reverse; expected all alike", where=block.name)
        if len(block) >= 2**27:
            raise InputError(f"found a block of {len(block)} requests; expected fewer than 2^27", where=block.name)
        expected = {"objects": (np.int32, 0, block.distinct - 1), "sizes": (np.int64, 1, 2**56), "operations": (np.uint8, LOOKUP, DELETE)}
        for name, (kind, low, high) in expected.items():
            array = getattr(block, name)
            if array is None or (array.dtype == kind and array.shape == block.objects.shape and not len(array)):
                continue
            if array.dtype != kind or array.shape != (len(block),) or array.min() < low or array.max() > high:
                found = f"{array.dtype}{list(array.shape)} from {array.min()} to {array.max()}" if array.size else f"{array.dtype}[]"
                legal = f"{np.dtype(kind).name}[{len(block)}] from {low} to {high}"
                raise InputError(f"{name}: found {found}; expected {legal}", where=block.name)

    def _bound(self, most: int) -> int:
        """Objects that can be in a place for `most` unit objects."""
        return self.room if self.sized else min(most, self.room)

    def _most(self, room: int) -> list[int]:
        return [max(1, room if self.sized else min(ring.most, room)) for ring in self.rings]


def whole(share: float, capacity: int) -> int:
    """`share` of the capacity, rounded down, as libCacheSim does, but at least one."""
    return max(1, int(share * capacity))


def _longer(values: np.ndarray, length: int, table: Table) -> np.ndarray:
    longer = np.full(length, table.fill, table.kind)
    longer[: len(values)] = values
    return longer


def _read_only(array: np.ndarray) -> np.ndarray:
    if array.flags.writeable:
        array = array.view()
        array.flags.writeable = False
    return np.ascontiguousarray(array)


def _joined(parts: list[np.ndarray], kind: Any) -> np.ndarray:
    return parts[0] if len(parts) == 1 else np.concatenate(parts) if parts else np.zeros(0, kind)


def evicted_object(entry: int) -> int:
    """The object of a log entry."""
    return entry & _OBJECT


@part
def operation_at(operations, i):
    """The operation of request i."""
    return operations[i] if len(operations) else LOOKUP


@part
def is_use(operation, sizes, held, i, o):
    """Whether request i uses the cached object o as it is, rather than deleting it or bringing it in another size."""
    if operation == LOOKUP:
        return True
    if operation == DELETE:
        return False
    if sizes is None:
        return True
    return sizes[i] == held[o]


@part
def record(log, numbers, i, o, place):
    """Logs that request i evicted object o, if there is a log."""
    if len(log):
        log[numbers[LOGGED]] = (i << _REQUEST) | (place << _PLACE) | o
        numbers[LOGGED] += 1


#: The types of the arrays in `Evictions`.
_LIFE = (np.int32, np.int64, np.int64, np.bool_, np.uint8)


class _Lives:
    """When each object was admitted and whether it was hit since, kept from block to block to turn a log into `Evictions`."""

    def __init__(self) -> None:
        self._since = np.zeros(0, np.int64)
        #: 0 not cached, 1 cached and not hit, 2 hit.
        self._life = np.zeros(0, np.uint8)

    def follow(self, block: Trace, hits: np.ndarray, log: np.ndarray, at: int) -> tuple[np.ndarray, ...]:
        if len(self._since) < block.distinct:
            self._since = _longer(self._since, block.distinct, Table(np.int64))
            self._life = _longer(self._life, block.distinct, Table(np.uint8))
        operations = _NO_OPERATIONS if block.operations is None else _read_only(block.operations)
        out = tuple(np.empty(len(log), kind) for kind in _LIFE)
        _follow(_read_only(block.objects), operations, hits, log, at, self._since, self._life, *out)
        return out


@kernel
def _follow(objects, operations, hits, log, at, since, life, left, inserted, evicted, never_hit, place):
    k = 0
    for i in range(len(objects)):
        o = objects[i]
        operation = operation_at(operations, i)
        if operation == DELETE:
            life[o] = 0
        elif hits[i]:
            life[o] = 2
        elif operation == LOOKUP or life[o] == 0:
            life[o] = 1
            since[o] = at + i
        while k < len(log) and log[k] >> _REQUEST == i:
            v = log[k] & _OBJECT
            left[k] = v
            inserted[k] = since[v]
            evicted[k] = at + i
            never_hit[k] = life[v] != 2
            place[k] = (log[k] >> _PLACE) & 15
            life[v] = 0
            k += 1


__all__ = [
    "CAPACITY", "DELETE", "INSERT", "LOGGED", "LOOKUP", "MOVES", "OWN", "CacheOutcome", "Evictions", "Policy", "Ring", "State", "Table",
    "evicted_object", "is_use", "operation_at", "record", "whole",
]  # fmt: skip
