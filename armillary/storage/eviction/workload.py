"""The requests to a cache: a trace in memory, made from ids or by a seeded generator.

A trace is a sequence of requests. Clock times are not kept, because no policy here uses them. Files are read by
`armillary.storage.eviction.readers`, which gives the same `Trace`.

A generator is a mixture. Each component (`Zipf`, `OneHit`, `Burst`, `Loop`, `Scan`) has objects of its own and gets a share of the
requests, and the component of each request is drawn independently of all others. `built_in` has the nine named cases.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from armillary.errors import InputError, unknown
from armillary.kernels import loop
from armillary.workloads import cumulative, draw, lognormal, shifted, whole

from ..idmap import IdMap

LOOKUP, INSERT, DELETE = 0, 1, 2
#: Requests in a block, unless asked otherwise.
BLOCK_REQUESTS = 2**22
#: The most bytes of one object; a larger size in a trace is considered a mistake.
MOST_BYTES = 2**40


@dataclass(frozen=True, eq=False)
class Trace:
    """A whole trace in memory, n requests long. The arrays are read-only."""

    #: int32[n]: dense ids 0…distinct-1 in order of first appearance.
    objects: np.ndarray
    distinct: int
    #: int64[n] bytes, or None when every object counts one.
    sizes: np.ndarray | None = None
    #: uint8[n] of LOOKUP, INSERT and DELETE, or None when all are lookups.
    operations: np.ndarray | None = None
    name: str = ""
    #: uint64[distinct]: the original id of each object; None when it was text or a pair.
    keys: np.ndarray | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        for array in (self.objects, self.sizes, self.operations, self.keys):
            if array is not None:
                array.flags.writeable = False

    def __len__(self) -> int:
        return len(self.objects)

    def next_access(self) -> np.ndarray:
        """int64[n]: the index of the next request for the same object, or n if there is none. Computed once."""
        return self._next_access

    @cached_property
    def _next_access(self) -> np.ndarray:
        following = _next_access(self.objects, self.distinct)
        following.flags.writeable = False
        return following

    def blocks(self, requests: int = BLOCK_REQUESTS) -> Iterator[Block]:
        """The trace in consecutive stretches of `requests`; no array is copied."""
        distinct = 0
        for start in range(0, len(self), positive("requests", requests)):
            part = slice(start, start + requests)
            distinct = max(distinct, int(self.objects[part].max()) + 1)
            yield Block(
                self.objects[part],
                distinct,
                None if self.sizes is None else self.sizes[part],
                None if self.operations is None else self.operations[part],
                self.name,
                None if self.keys is None else self.keys[:distinct],
                start=start,
                whole=self,
            )


@dataclass(frozen=True, eq=False)
class Block(Trace):
    """A stretch of a trace: ids are those of the whole trace, and `distinct` counts the objects seen up to its end."""

    #: Index in the whole trace of the first request here.
    start: int = 0
    #: int64[n]: what the file says of the next requests, indices in the whole trace, `NEVER` for none; None where it does not say.
    promised: np.ndarray | None = field(default=None, repr=False)
    whole: Trace | None = field(default=None, repr=False)

    def next_access(self) -> np.ndarray:
        """int64[n]: the index *in the whole trace* of the next request for the same object; at or past its end if there is none."""
        if self.promised is not None:
            return self.promised
        if self.whole is not None:
            return self.whole.next_access()[self.start : self.start + len(self)]
        message = "found no next accesses to rely on in this stream; expected the whole trace, loaded, for a policy that looks ahead"
        raise InputError(message, where=self.name)


#: A promised next access that never comes.
NEVER = 2**63 - 1


@loop
def _next_access(objects, distinct):
    n = len(objects)
    following = np.empty(n, np.int64)
    seen = np.full(distinct, n, np.int64)
    for i in range(n - 1, -1, -1):
        following[i] = seen[objects[i]]
        seen[objects[i]] = i
    return following


def positive(what: str, value: Any) -> int:
    """`value` if it is a whole number of at least one."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
        raise InputError(f"found {what}={value!r}; expected a whole number of at least 1")
    return int(value)


def from_ids(ids: Any, sizes: Any = None, *, name: str = "ids") -> Trace:
    """A trace from ids in memory: an integer array, a Polars series, a list of whole numbers or of strings; bytes in `sizes`."""
    words, whole_numbers = _words(ids, name)
    dense = IdMap()
    objects = dense.map(words)
    of_request = None if sizes is None else _sizes(sizes, len(objects), name)
    return Trace(objects, len(dense), of_request, None, name, dense.keys.copy() if whole_numbers else None)


def _words(ids: Any, name: str) -> tuple[np.ndarray, bool]:
    """One uint64 per id that represents it exactly, and whether it is the id itself."""
    array = _flat(ids, name)
    if array.dtype.kind in "iu":
        if array.dtype.kind == "i" and len(array) and array.min() < 0:
            at = int(np.argmax(array < 0))
            raise InputError(f"id {at}: found {array[at]}; expected a whole number from 0 to 2^63-1", where=name)
        return array.astype(np.uint64), True
    if array.dtype.kind not in "OUST":
        raise InputError(f"found ids of type {array.dtype}; expected whole numbers or strings", where=name)
    dictionary: dict[Any, int] = {}
    kind = type(array[0]) if len(array) else str
    if not issubclass(kind, str | bytes):
        raise InputError(f"id 0: found {array[0]!r}; expected whole numbers from 0 to 2^63-1, or strings", where=name)
    words = np.empty(len(array), np.uint64)
    for i, key in enumerate(array):
        if type(key) is not kind:
            raise InputError(f"id {i}: found {key!r}; expected {kind.__name__} as in id 0", where=name)
        words[i] = dictionary.setdefault(key, len(dictionary))
    return words, False


def _flat(ids: Any, name: str) -> np.ndarray:
    """`ids` as a one-dimensional array, without a copy where possible."""
    if hasattr(ids, "null_count") and ids.null_count():
        raise InputError(f"found {ids.null_count()} missing values; expected an id in every row", where=name)
    if isinstance(ids, str | bytes) or (not hasattr(ids, "__array__") and not isinstance(ids, Sequence)):
        raise InputError(f"found {type(ids).__name__}; expected an array, a series or a list of ids", where=name)
    try:
        if isinstance(ids, Sequence) and not hasattr(ids, "__array__"):
            array = np.array(ids, dtype=object if any(isinstance(i, str | bytes | bool | float) for i in ids) else None)
        else:
            array = np.asarray(ids)
    except (ValueError, TypeError, OverflowError) as error:
        raise InputError(f"found ids that make no array ({error}); expected whole numbers or strings", where=name) from None
    if array.ndim != 1:
        raise InputError(f"found ids with {array.ndim} dimensions; expected one", where=name)
    return array if len(array) else array.astype(np.int64)


def _sizes(sizes: Any, requests: int, name: str) -> np.ndarray:
    array = _flat(sizes, name)
    if array.dtype.kind not in "iu":
        raise InputError(f"found sizes of type {array.dtype}; expected whole numbers of bytes", where=name)
    if len(array) != requests:
        raise InputError(f"found {len(array)} sizes for {requests} ids; expected one size per id", where=name)
    if len(array) and (array.min() < 0 or array.max() > MOST_BYTES):
        raise InputError(f"found a size of {array.min() if array.min() < 0 else array.max()} bytes; expected 0 to 2^40", where=name)
    array = array.astype(np.int64)
    return at_least_one(array, name)


def at_least_one(sizes: np.ndarray, where: str, *, warn: bool = True) -> np.ndarray:
    """`sizes` with every 0 made 1 in place and one warning, because an object of no bytes would fit any cache."""
    empty = sizes == 0
    if empty.any():
        if warn:
            import warnings

            warnings.warn(f"{where}: sizes of 0 bytes are counted as 1", UserWarning, stacklevel=3)
        sizes[empty] = 1
    return sizes


#: The number of random numbers drawn at a time. It must never change, because the trace of a seed depends on it.
_DRAW = 2**18


@dataclass(frozen=True)
class Zipf:
    """Independent references: rank r of `objects` is asked for with probability proportional to r^-alpha.

    With `drift_every` > 0 the map from rank to object shifts by `drift_step` objects each time that many requests of the trace
    have passed: object = (rank + drift_step · ⌊request / drift_every⌋) mod objects. The coldest objects become the hottest, and the rest
    slides down.
    """

    alpha: float
    objects: int
    share: float = 1.0
    drift_every: int = 0
    drift_step: int = 0

    run = 1

    def ids(self, rng: np.random.Generator, turns: np.ndarray) -> tuple[np.ndarray, int]:
        """int32[len(turns)] ids for the requests at the indices `turns`, and how many ids there may be."""
        n = positive("objects", self.objects)
        if not 0 <= self.alpha <= 100:
            raise InputError(f"found a Zipf of alpha {self.alpha}; expected 0 to 100")
        ranks = draw(rng, cumulative(np.arange(1, n + 1, dtype=np.float64) ** -self.alpha), len(turns))
        if self.drift_every > 0:
            ranks = shifted(ranks, turns, n, every=self.drift_every, step=self.drift_step)
        return ranks.astype(np.int32), n


@dataclass(frozen=True)
class OneHit:
    """Fresh objects, each of which is asked for once."""

    share: float

    run = 1

    def ids(self, rng: np.random.Generator, turns: np.ndarray) -> tuple[np.ndarray, int]:
        """One id per request, in order; `rng` is not used."""
        return np.arange(len(turns), dtype=np.int32), len(turns)


@dataclass(frozen=True)
class Burst:
    """Objects that live once: each gets Geometric(1/mean) accesses at exponential gaps of mean window/mean requests, then none.

    At its turn the component serves the access that has been due longest, and a new object appears only when none is due. Its share
    of the requests is therefore exact, and an access may come a few turns later than its gap says.
    """

    share: float
    mean: float
    window: float

    run = 1

    def ids(self, rng: np.random.Generator, turns: np.ndarray) -> tuple[np.ndarray, int]:
        """Ids in order of appearance; gaps are counted in requests of the whole trace."""
        if not self.mean >= 1 or not self.window > 0:
            message = f"found a burst of mean {self.mean} over {self.window} requests; expected a mean of at least 1 and a window above 0"
            raise InputError(message)
        ids = np.empty(len(turns), np.int32)
        due, left, who = np.empty(1024), np.empty(1024, np.int64), np.empty(1024, np.int32)
        waiting = appeared = 0
        for start in range(0, len(ids), _DRAW):
            part = slice(start, start + _DRAW)
            count = len(ids[part])
            if waiting + count > len(due):
                due, left, who = (np.concatenate((array, np.empty(waiting + count, array.dtype))) for array in (due, left, who))
            gaps = rng.exponential(self.window / self.mean, count)
            accesses = rng.geometric(1 / self.mean, count)
            waiting, appeared = _bursts(turns[part], gaps, accesses, ids[part], due, left, who, waiting, appeared)
        return ids, appeared


@dataclass(frozen=True)
class Loop:
    """The same `length` objects in the same order, over and over: a cyclic scan, with other requests in between."""

    length: int
    share: float

    run = 1

    def ids(self, rng: np.random.Generator, turns: np.ndarray) -> tuple[np.ndarray, int]:
        """0, 1, …, length-1, 0, 1, …; `rng` is not used."""
        length = positive("length", self.length)
        return (np.arange(len(turns)) % length).astype(np.int32), length


@dataclass(frozen=True)
class Scan:
    """Passes over `length` objects that nobody asks for again, each pass without another request in between."""

    length: int
    share: float

    @property
    def run(self) -> int:
        """Requests that it keeps the turn for."""
        return positive("length", self.length)

    def ids(self, rng: np.random.Generator, turns: np.ndarray) -> tuple[np.ndarray, int]:
        """One id per request, in order; `rng` is not used."""
        return np.arange(len(turns), dtype=np.int32), len(turns)


Component = Zipf | OneHit | Burst | Loop | Scan


def mixture(
    rng: np.random.Generator, requests: int, components: Sequence[Component], *, name: str = "mixture", bytes: bool = False
) -> Trace:
    """A trace of `requests` drawn from `components` in proportion to their shares; with `bytes`, with `object_sizes`."""
    if isinstance(requests, bool) or not isinstance(requests, int | np.integer) or not 0 <= requests < 2**31:
        raise InputError(f"found requests={requests!r}; expected a whole number from 0 to 2^31-1")
    shares = np.array([component.share for component in components], np.float64)
    if not len(shares) or not np.isfinite(shares).all() or (shares < 0).any() or shares.sum() <= 0:
        raise InputError(f"found shares {shares.tolist()}; expected numbers of at least 0, not all 0")
    turn_of = _turns(rng, int(requests), shares, np.array([component.run for component in components], np.int64))
    objects = np.empty(requests, np.int32)
    below = 0
    for k, component in enumerate(components):
        turns = np.flatnonzero(turn_of == k)
        ids, space = component.ids(rng, turns)
        if below + space >= 2**31:
            raise InputError(f"found more than 2^31-1 objects in {name}; expected fewer")
        objects[turns] = ids + np.int32(below)
        below += space
    distinct = _relabel(objects, below)
    return Trace(objects, distinct, object_sizes(rng, distinct)[objects] if bytes else None, None, name)


def object_sizes(rng: np.random.Generator, objects: int, mu: float = 8.5, sigma: float = 1.4) -> np.ndarray:
    """int64[objects]: bytes of each object, log-normal with ln(bytes) ~ N(mu, sigma²), at least one."""
    return whole(lognormal(rng, objects, mu=mu, sigma=sigma), 1, MOST_BYTES)


def _turns(rng: np.random.Generator, requests: int, shares: np.ndarray, runs: np.ndarray) -> np.ndarray:
    """uint8[requests]: the component of each request. A component that keeps its turn for a run is drawn that much less often."""
    turn_of = np.empty(requests, np.uint8)
    if len(shares) == 1:
        turn_of[:] = 0
        return turn_of
    weights = shares / runs
    below = np.cumsum(weights / weights.sum())
    below[-1] = 1.0
    done = 0
    while done < requests:
        done = _deal(rng.random(_DRAW), below, runs, turn_of, done)
    return turn_of


@loop
def _deal(uniform, below, runs, turn_of, done):
    for u in uniform:
        k = 0
        while u >= below[k]:
            k += 1
        for _ in range(runs[k]):
            if done == len(turn_of):
                return done
            turn_of[done] = k
            done += 1
    return done


@loop
def _bursts(turns, gaps, accesses, ids, due, left, who, waiting, appeared):
    # due/left/who[:waiting] is a binary heap by due time: accesses to come of the bursts that go on.
    for i in range(len(turns)):
        now = float(turns[i])
        if waiting > 0 and due[0] <= now:
            ids[i] = who[0]
            left[0] -= 1
            if left[0] > 0:
                time, rest, one = now + gaps[i], left[0], who[0]
            else:
                waiting -= 1
                time, rest, one = due[waiting], left[waiting], who[waiting]
            at = 0
            while 2 * at + 1 < waiting:
                child = 2 * at + 1
                if child + 1 < waiting and due[child + 1] < due[child]:
                    child += 1
                if due[child] >= time:
                    break
                due[at], left[at], who[at] = due[child], left[child], who[child]
                at = child
        else:
            ids[i] = appeared
            appeared += 1
            if accesses[i] == 1:
                continue
            time, rest, one = now + gaps[i], accesses[i] - 1, appeared - 1
            at = waiting
            waiting += 1
            while at > 0 and due[(at - 1) // 2] > time:
                parent = (at - 1) // 2
                due[at], left[at], who[at] = due[parent], left[parent], who[parent]
                at = parent
        due[at], left[at], who[at] = time, rest, one
    return waiting, appeared


@loop
def _relabel(objects, space):
    # In place: ids in order of first appearance.
    label = np.full(space, -1, np.int32)
    distinct = 0
    for i in range(len(objects)):
        if label[objects[i]] < 0:
            label[objects[i]] = distinct
            distinct += 1
        objects[i] = label[objects[i]]
    return distinct


def _components(scale: float) -> dict[str, list[Component]]:
    """The components of each built-in case, with counts in proportion to `scale`."""

    def size(count: int) -> int:
        return max(1, round(count * scale))

    def bursts(window: int) -> list[Component]:
        return [Zipf(0.9, size(100_000), 0.5), Burst(0.5, 4, max(1.0, window * scale))]

    return {
        "zipf-0.8": [Zipf(0.8, size(300_000))],
        "zipf-1.0": [Zipf(1.0, size(300_000))],
        "cdn": [Zipf(0.8, size(300_000), 0.98, size(100_000), size(3_000)), OneHit(0.02)],
        "block": [Zipf(0.9, size(100_000), 0.6), Loop(size(20_000), 0.25), Scan(size(5_000), 0.15)],
        "scan-mix": [Zipf(0.9, size(100_000), 0.8), Loop(size(400_000), 0.2)],
        "burst-short": bursts(2_000),
        "burst-medium": bursts(20_000),
        "burst-long": bursts(200_000),
        "shift": [Zipf(1.0, size(300_000), 1.0, size(100_000), size(30_000))],
    }


#: The built-in cases, in the order in which a study shows them.
BUILT_IN = tuple(_components(1.0))


def built_in(name: str, rng: np.random.Generator, requests: int, bytes: bool = False) -> Trace:
    """The built-in case `name`, `requests` long; with `bytes`, every object has a log-normal size.

    | case | components: share of the requests |
    |---|---|
    | `zipf-0.8`, `zipf-1.0` | Zipf over 300,000 objects |
    | `cdn` | Zipf 0.8 over 300,000 objects whose map shifts by 3,000 every 100,000 requests: 98 %; one-hit: 2 % |
    | `block` | Zipf 0.9 over 100,000: 60 %; a loop over 20,000: 25 %; scans of 5,000 fresh objects: 15 % |
    | `scan-mix` | Zipf 0.9 over 100,000: 80 %; a cyclic scan (`Loop`) of 400,000: 20 % |
    | `burst-short`, `-medium`, `-long` | Zipf 0.9 over 100,000: 50 %; bursts of mean 4 in 2,000, 20,000, 200,000 requests: 50 % |
    | `shift` | Zipf 1.0 over 300,000 objects whose map shifts by 30,000 every 100,000 requests |

    The counts are those of a trace of one to three million requests. A shorter or longer one has all of them (objects, windows,
    lengths, periods) in proportion, so a case keeps its character at every length. With the 2 % of fresh objects 40 % of the
    objects of a `cdn` trace of a million are asked for once.
    """
    if name not in BUILT_IN:
        raise unknown("built-in trace", str(name), BUILT_IN)
    scale = 1.0
    if isinstance(requests, int | np.integer):
        scale = int(requests) / 1e6 if requests < 1_000_000 else max(1.0, int(requests) / 3e6)
    return mixture(rng, requests, _components(scale)[name], name=name, bytes=bytes)
