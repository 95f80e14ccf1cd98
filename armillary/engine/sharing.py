"""Pools and the activities that share them; links, disks, memory buses and cores are all pools.

An activity has work to do (bytes, flops) and uses one or more pools at one common rate. Rates are weighted max-min fair (`maxmin.py`).
Several changes at one instant are solved once, after everything else of that instant. Between changes the work of an activity shrinks in
proportion to time, so nothing happens until the next one finishes.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from armillary.engine import maxmin
from armillary.engine.events import Event
from armillary.engine.resources import whole
from armillary.errors import InputError, unknown

if TYPE_CHECKING:
    from armillary.engine.simulation import Handle, Simulation

POLICIES = ("shared", "fatpipe")


class LinkDown(Exception):
    """The pool that an activity uses has failed."""

    def __init__(self, pool: str) -> None:
        super().__init__(f"{pool} is down")
        self.pool = pool


def positive(value: object, what: str, *, zero: bool = False, infinite: bool = False) -> float:
    """`value` as a float above 0 (or 0 with `zero`), finite unless `infinite`; anything else raises an `InputError`."""
    try:
        number = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        raise InputError(f"{what}: found {value!r}; expected a number") from None
    if not (number > 0.0 or (zero and number == 0.0)) or (number == math.inf and not infinite):
        raise InputError(f"{what}: found {value!r}; expected {'0 or more' if zero else 'more than 0'}")
    return number


class Pool:
    """A capacity (bytes/s, flop/s) that activities share: a direction of a link, a disk, a memory bus, a group of cores.

    With `shared`, the rates of all activities together stay within the capacity. With `fatpipe`, each rate alone does, so activities do not
    disturb each other.
    """

    def __init__(self, sim: Simulation, capacity: float, name: str = "pool", policy: str = "shared") -> None:
        if policy not in POLICIES:
            raise unknown("policy", str(policy), POLICIES, where=name)
        self.sim = sim
        self.name = name
        self.policy = policy
        number = positive(capacity, f"{name}: capacity", zero=True, infinite=True)
        self._index = sim.sharing._new_pools(np.array([number]), policy == "fatpipe")
        self._capacity_before = number

    @classmethod
    def _existing(cls, sim: Simulation, index: int, name: str) -> Pool:
        pool = cls.__new__(cls)
        pool.sim, pool._index, pool.name, pool.policy = sim, index, name, "shared"
        pool._capacity_before = pool.capacity
        return pool

    @classmethod
    def split(cls, sim: Simulation, capacity: float, name: str = "pool") -> tuple[Pool, Pool]:
        """Two independent directions: (there, back)."""
        return cls(sim, capacity, f"{name} there"), cls(sim, capacity, f"{name} back")

    def __repr__(self) -> str:
        return f"<Pool {self.name}: {self.used:g} of {self.capacity:g}>"

    @property
    def capacity(self) -> float:
        """The current capacity."""
        return float(self.sim.sharing.system.capacity[self._index])

    @property
    def used(self) -> float:
        """The capacity that all activities together use now."""
        return self.sim.sharing._users(self._index)[1]

    @property
    def activities(self) -> list[Activity]:
        """The activities that use the pool now, oldest first."""
        return self.sim.sharing._users(self._index)[0]

    @property
    def down(self) -> bool:
        """Whether the pool has failed and was not restored."""
        return self._index in self.sim.sharing._down

    def use(self, work: float, **how: Any) -> Activity:
        """Starts an activity in this pool alone; the keywords are those of `Activity`."""
        return Activity(self.sim, work, [self], **how)

    def set_capacity(self, capacity: float, at: float | None = None) -> None:
        """Changes the capacity, now or at a later time; 0 stalls the activities until there is more."""
        number = positive(capacity, f"{self.name}: capacity", zero=True, infinite=True)
        if at is None:
            self.sim.sharing._set_capacity(self._index, number)
        else:
            self.sim.at(at, self.sim.sharing._set_capacity, self._index, number)

    def fail(self, at: float | None = None) -> None:
        """Fails the pool: activities that use it fail with `LinkDown`, and so do those that start before `restore()`."""
        if at is None:
            self.sim.sharing._fail(self._index, self.name)
        else:
            self.sim.at(at, self.sim.sharing._fail, self._index, self.name)

    def restore(self, at: float | None = None) -> None:
        """Restores the pool with its current capacity."""
        if at is None:
            self.sim.sharing._down.pop(self._index, None)
        else:
            self.sim.at(at, self.sim.sharing._down.pop, self._index, None)


class Activity(Event):
    """Work that uses pools at one common rate, as an event that happens when all of it is done.

    `work` is in the unit of the pools. `uses` is a pool, several pools, `Uses`, or a mapping from pool to usage factor (an aggregation
    tree of k helpers uses the switch's pool k times). `weight` is its share relative to others, and `cap` limits its rate. Activities of a
    higher `priority` number get only what those of lower numbers leave. The activity starts after `delay` seconds, during which it uses
    nothing.
    With a `count` it stands for that many equal activities of this work, weight and cap each, which begin and end together; its `work` and
    `rate` are those of all of them.
    """

    __slots__ = ("_cap", "_handle", "_order", "_pools", "_priority", "_row", "_uses", "_weight", "work")

    def __init__(
        self,
        sim: Simulation,
        work: float,
        uses: Uses | Pool | Iterable[Pool] | Mapping[Pool, float],
        *,
        weight: float = 1.0,
        cap: float | None = None,
        priority: int = 0,
        delay: float = 0.0,
        name: str | None = None,
        count: int = 1,
    ) -> None:
        pools, factors = checked_uses(sim, uses)
        cap = math.inf if cap is None else positive(cap, "cap", infinite=True)
        work, weight = positive(work, "work", zero=True), positive(weight, "weight")
        if count != 1:
            count = whole(count, "count")
            work, weight, cap = work * count, weight * count, cap * count
            factors = sim.sharing._for_many(pools, factors, count)
        self._begin(sim, work, pools, factors, weight, cap, priority, delay, name)

    def _begin(
        self,
        sim: Simulation,
        work: float,
        pools: tuple[int, ...],
        factors: tuple[float, ...],
        weight: float,
        cap: float,
        priority: int,
        delay: float,
        name: str | None,
    ) -> None:
        super().__init__(sim, name)
        #: The total work.
        self.work = work
        self._pools = pools
        self._uses = factors
        self._weight = weight
        self._cap = cap
        self._priority = priority
        self._row = -1
        self._order = sim._next()
        self._handle: Handle | None = None
        if delay > 0.0:
            self._handle = sim.after(delay, self._start)
        else:
            self._start()

    def _start(self) -> None:
        self._handle = None
        sharing = self.sim.sharing
        if sharing._down:
            for r in self._pools:
                if r in sharing._down:
                    self._failed(LinkDown(sharing._down[r]))
                    return
        if self.work == 0.0:
            self._done()
        else:
            sharing._begin(self)

    def _done(self) -> None:
        self.succeed(self)

    def _failed(self, error: Exception) -> None:
        self.fail(error)

    @property
    def rate(self) -> float:
        """The current work per second; 0 before the activity starts and after it ends."""
        if self._row < 0:
            return 0.0
        sharing = self.sim.sharing
        sharing._settle()
        return float(sharing.system.activity[self._row, maxmin.RATE])

    @property
    def remaining(self) -> float:
        """The remaining work."""
        if self._row < 0:
            return 0.0 if self.callbacks is None and self._error is None else self.work
        sharing = self.sim.sharing
        sharing._settle()
        row = sharing.system.activity[self._row]
        if row[maxmin.RATE] == 0.0:
            return float(row[maxmin.LEFT])
        return max(float(row[maxmin.LEFT] - row[maxmin.RATE] * (self.sim.now - row[maxmin.SINCE])), 0.0)

    def set_cap(self, cap: float | None) -> None:
        """Changes the limit of the rate; None means no limit."""
        self._cap = math.inf if cap is None else positive(cap, "cap", infinite=True)
        self._changed(maxmin.CAP, self._cap)

    def set_weight(self, weight: float) -> None:
        """Changes the weight relative to others."""
        self._weight = positive(weight, "weight")
        self._changed(maxmin.WEIGHT, self._weight)

    def _changed(self, column: int, value: float) -> None:
        if self._row >= 0:
            self.sim.sharing._change(self, column, value)

    def cancel(self) -> None:
        """Stops the activity, which then never happens and frees its pools; it has no effect once the activity has happened."""
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None
        if self._row >= 0:
            self.sim.sharing._end(self)

    def describe(self) -> str:
        """A description for messages."""
        return f"{self.name or 'activity'} ({self.remaining:g} of {self.work:g} left, rate {self.rate:g})"


class Uses:
    """Pools with the usage of each, checked once for many activities that use the same."""

    __slots__ = ("factors", "pools", "sim")

    def __init__(self, sim: Simulation, uses: Pool | Iterable[Pool] | Mapping[Pool, float]) -> None:
        self.sim = sim
        #: The numbers of the pools and the usage of each; a pool that is named twice is used twice.
        self.pools, self.factors = checked_uses(sim, uses)

    @classmethod
    def _existing(cls, sim: Simulation, pools: tuple[int, ...], factors: tuple[float, ...]) -> Uses:
        made = cls.__new__(cls)
        made.sim, made.pools, made.factors = sim, pools, factors
        return made


def checked_uses(sim: Simulation, uses: Uses | Pool | Iterable[Pool] | Mapping[Pool, float]) -> tuple[tuple[int, ...], tuple[float, ...]]:
    """The numbers of the pools and the usage of each; a pool that is named twice is used twice."""
    if isinstance(uses, Uses):
        if uses.sim is not sim:
            raise InputError("uses: found uses of another simulation; expected pools of this one")
        return uses.pools, uses.factors
    if isinstance(uses, Pool):
        return (uses._index,), (1.0,)
    pairs = uses.items() if isinstance(uses, Mapping) else ((pool, 1.0) for pool in uses)
    total: dict[int, float] = {}
    for pool, factor in pairs:
        if not isinstance(pool, Pool) or pool.sim is not sim:
            raise InputError(f"uses: found {pool!r}; expected pools of this simulation")
        total[pool._index] = total.get(pool._index, 0.0) + positive(factor, f"usage of {pool.name}")
    return tuple(total), tuple(total.values())


class Sharing:
    """Computes how activities share the pools of one simulation, which has it as `sim.sharing`."""

    def __init__(self, sim: Simulation) -> None:
        self.sim = sim
        self.system = maxmin.system(64, 64, 8)
        self._pools = 0
        #: By row, the activity in it, or None.
        self._owner: list[Any] = [None] * 64
        self._rows = list(range(63, -1, -1))
        self._begun: list[Activity] = []
        self._lone: list[int] = []
        #: The pools that are not shared.
        self._fatpipes: set[int] = set()
        #: The pools that have failed, with their names.
        self._down: dict[int, str] = {}
        self._dirty = False
        self._asked = False
        self._finishing: Handle | None = None
        self._out = np.zeros(64, np.int64)
        #: The number of times that rates were solved.
        self.solves = 0

    def _new_pools(self, capacities: np.ndarray, fatpipe: bool = False) -> int:
        """Adds pools and returns the number of the first."""
        first, self._pools = self._pools, self._pools + len(capacities)
        if self._pools > len(self.system.capacity):
            activities, width = self.system.pool.shape
            self.system = maxmin.enlarged(self.system, activities, max(2 * len(self.system.capacity), self._pools), width)
        self.system.capacity[first : self._pools] = capacities
        if fatpipe:
            self._fatpipes.update(range(first, self._pools))
        self.system.chain[first : self._pools, maxmin.KIND] = maxmin.FATPIPE if fatpipe else maxmin.SHARED
        return first

    def _for_many(self, pools: tuple[int, ...], uses: tuple[float, ...], count: int) -> tuple[float, ...]:
        """Usage by an activity that stands for `count`: a fatpipe limits each of them, so all together may go `count` times as fast."""
        if self._fatpipes.isdisjoint(pools):
            return uses
        return tuple(use / count if pool in self._fatpipes else use for pool, use in zip(pools, uses, strict=True))

    def _ask(self) -> None:
        self._dirty = True
        if not self._asked:
            self._asked = True
            self.sim._at_last(self._end_of_instant, None)

    def _begin(self, activity: Activity) -> None:
        if not self._rows:
            self._grow(2 * len(self._owner), self.system.pool.shape[1])
        activity._row = row = self._rows.pop()
        self._owner[row] = activity
        self._begun.append(activity)
        self._ask()

    def _grow(self, activities: int, width: int) -> None:
        had = len(self._owner)
        self.system = maxmin.enlarged(self.system, activities, len(self.system.capacity), width)
        self._owner.extend([None] * (activities - had))
        self._rows.extend(range(activities - 1, had - 1, -1))
        self._out = np.zeros(activities, np.int64)

    def _put_in(self) -> None:
        begun = [a for a in self._begun if a._row >= 0]
        self._begun.clear()
        if not begun:
            return
        counts = [len(a._pools) for a in begun]
        if max(counts) > self.system.pool.shape[1]:
            self._grow(len(self._owner), 1 << (max(counts) - 1).bit_length())
        whole = [(a._row, a._order, a._priority) for a in begun]
        rows = np.array(whole, np.int64)
        pools = np.array([r for a in begun for r in a._pools], np.int64)
        uses = np.array([u for a in begun for u in a._uses], np.float64)
        numbers = np.array([(a._weight, a._cap, a.work) for a in begun], np.float64)
        maxmin.begin(self.system, self.sim.now, rows[:, 0], rows[:, 1], rows[:, 2], np.array(counts, np.int64), pools, uses, numbers)
        self._lone += [a._row for a, n in zip(begun, counts, strict=True) if n == 0]

    def _end_of_instant(self, _: object) -> None:
        self._asked = False
        self._settle()

    def _settle(self) -> None:
        """Solves for whatever has changed, so that the rates are current."""
        if not self._dirty:
            return
        self._dirty = False
        self.solves += 1
        self._put_in()
        finish = maxmin.solve(self.system, self.sim.now, np.array(self._lone, np.int64))
        self._lone.clear()
        pending = self._finishing
        if pending is not None and pending._call is not None:
            if pending.time == finish:
                return
            pending.cancel()
        self._finishing = self.sim.at(finish, self._finish) if finish < math.inf else None

    def _finish(self) -> None:
        # Changes of this instant are not in the rates yet, so the previous rates hold up to now.
        self._finishing = None
        count = maxmin.finished(self.system, self.sim.now, self._out)
        done = [self._owner[row] for row in self._out[:count].tolist()]
        for activity in sorted(done, key=_order):
            self._owner[activity._row] = None
            self._rows.append(activity._row)
            activity._row = -1
            activity._done()
        self._ask()

    def _end(self, activity: Activity) -> None:
        row, activity._row = activity._row, -1
        if self.system.state[row, maxmin.PLACE] >= 0:
            maxmin.end(self.system, row)
        self._owner[row] = None
        self._rows.append(row)
        self._ask()

    def _change(self, activity: Activity, column: int, value: float) -> None:
        self._put_in()
        self.system.activity[activity._row, column] = value
        self._lone.append(activity._row)
        self._ask()

    def _set_capacity(self, index: int, capacity: float) -> None:
        self.system.capacity[index] = capacity
        maxmin.touch(self.system, index)
        self._ask()

    def _fail(self, index: int, name: str) -> None:
        self._down[index] = name
        for activity in self._users(index)[0]:
            self._end(activity)
            activity._failed(LinkDown(name))

    def _users(self, index: int) -> tuple[list[Activity], float]:
        self._settle()
        count, used = maxmin.users(self.system, index, self._out)
        found = [self._owner[row] for row in self._out[:count].tolist()]
        return sorted(found, key=_order), float(used)


def _order(activity: Activity) -> int:
    return activity._order


def max_min(
    capacities: np.ndarray,
    pools: Iterable[Iterable[int]],
    *,
    uses: Iterable[Iterable[float]] | None = None,
    weights: np.ndarray | None = None,
    caps: np.ndarray | None = None,
    priorities: np.ndarray | None = None,
    fatpipe: np.ndarray | None = None,
) -> np.ndarray:
    """Weighted max-min fair rates of activities as one array, without a simulation; `pools[a]` lists the indices into `capacities` that
    activity a uses.

    `uses` has the shape of `pools`, and is 1 by default; `caps` are infinite by default; lower `priorities` go first; `fatpipe` says which
    pools are not shared.
    """
    lists = [list(p) for p in pools]
    n = len(lists)
    capacity = np.asarray(capacities, np.float64)
    factors = [[1.0] * len(p) for p in lists] if uses is None else [[positive(u, "uses") for u in x] for x in uses]
    flat = np.array([r for p in lists for r in p], np.int64)
    if np.isnan(capacity).any() or (capacity < 0).any():
        raise InputError("capacities: expected numbers of 0 or more")
    if len(flat) and (flat.min() < 0 or flat.max() >= len(capacity)):
        raise InputError(f"pools: expected numbers from 0 to {len(capacity) - 1}")
    if [len(p) for p in lists] != [len(u) for u in factors]:
        raise InputError("uses: expected one number per pool of each activity")
    weight, cap = (
        np.ones(n) if weights is None else np.asarray(weights, float),
        np.full(n, np.inf) if caps is None else np.asarray(caps, float),
    )
    if not ((weight > 0).all() and (weight < np.inf).all() and (cap > 0).all()):
        raise InputError("weights and caps: expected numbers above 0")
    counts = np.array([len(p) for p in lists], np.int64)
    system = maxmin.system(max(n, 1), max(len(capacity), 1), 1 << max(int(counts.max(initial=1)) - 1, 0).bit_length())
    system.capacity[: len(capacity)] = capacity
    if fatpipe is not None:
        system.chain[: len(capacity), maxmin.KIND] = np.asarray(fatpipe, bool)
    rank = np.zeros(n, np.int64) if priorities is None else np.asarray(priorities, np.int64)
    rows = np.arange(n)
    numbers = np.column_stack([weight, cap, np.ones(n)])
    used = np.array([u for x in factors for u in x], np.float64)
    maxmin.begin(system, 0.0, rows, rows, rank, counts, flat, used, numbers)
    maxmin.solve(system, 0.0, rows)
    return system.activity[:n, maxmin.RATE].copy()
