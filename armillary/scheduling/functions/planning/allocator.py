"""DHRT for a platform of one's own: allocations for real calls on real nodes, learned from what their runs report.

The state is the same store that the play uses, with functions and node types under their names; it grows as they appear.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from armillary.errors import InputError, one_line
from armillary.scheduling.functions.knowledge.store import FIRST_MB, Store, empty, expected, killed, memory_mb, observe_memory, observe_time
from armillary.scheduling.functions.problem.fleet import MENU, Floats

from .choice import HOPELESS, WAIT, choose, explored, raised_size
from .policy import Policy

_NONE = np.zeros((1, 1, 1))


@dataclass(frozen=True)
class Call:
    """A call to be placed. Times are in seconds on any one clock; `vcpu` and `memory_mb` are what its owner asks for, if anything."""

    function: str
    deadline_s: float
    now_s: float = 0.0
    size: float = 1.0
    vcpu: float | None = None
    memory_mb: float | None = None
    cold_s: float = 0.0


@dataclass(frozen=True)
class Worker:
    """A node as it is now. `speed` is relative to the other types, `price` per core and second; `warm` names functions with idle pods."""

    name: str
    type: str
    cores: float
    free: float
    free_mb: float = math.inf
    speed: float = 1.0
    price: float = 1.0
    warm: frozenset[str] = frozenset()


class Allocation(NamedTuple):
    """Where a call goes and with how much; no node where it should wait, because a better place would still be in time."""

    node: str | None
    vcpu: float
    memory_mb: float


class Allocator:
    """DHRT's decisions, with what it has learned so far."""

    def __init__(self, policy: Policy, rng: np.random.Generator, sizes: Sequence[float] = MENU) -> None:
        if not sizes or any(not 0 < v <= 4096 for v in sizes) or list(sizes) != sorted(set(sizes)):
            raise InputError(f"found {list(sizes)}; expected sizes in vCPUs that increase", where="sizes")
        self.policy, self.rng = policy, rng
        self.sizes: Floats = np.array(sizes, np.float64)
        self._function: dict[str, int] = {}
        self._type: dict[str, int] = {}
        self._speed: list[float] = []
        self.store: Store = empty(4, np.ones(2), self.sizes)

    @property
    def dropped(self) -> int:
        """Runs that were not learned from, because their timings were no numbers."""
        return int(self.store.dropped[0])

    def allocate(self, call: Call, nodes: Sequence[Worker]) -> Allocation:
        """(node, vCPUs, MB) for a call; a call that cannot be in time gets the cheapest."""
        f, slack, size = self._f(call.function), float(call.deadline_s - call.now_s), float(call.size)
        if not nodes:
            raise InputError("found no nodes; expected at least one", where="nodes")
        if not (math.isfinite(slack) and slack > 0):
            where = f"call of {one_line(call.function, 40)}"
            raise InputError(f"found a deadline {slack:g} s from now; expected a later time", where=where)
        if not 0 < call.size < 1e12:
            raise InputError(f"size: found {call.size:g}; expected more than 0", where=f"call of {one_line(call.function, 40)}")
        for node in nodes:
            self._t(node)
        asked = float(call.memory_mb or FIRST_MB)
        want = float(memory_mb(self.store, f, asked)) if self.policy.learn_memory else asked
        able = [node for node in nodes if node.free_mb >= want]
        if self.store.own.runs[f] == 0:
            return self._first(call, able, want)
        types = len(self._speed)
        price, cores = np.ones(types), np.zeros(types)
        warm_free, any_free = np.full(types, -1.0), np.full(types, -1.0)
        for node in nodes:
            t = self._type[node.type]
            price[t], cores[t] = node.price, max(cores[t], node.cores)
        for node in able:
            t = self._type[node.type]
            any_free[t] = max(any_free[t], node.free)
            if call.function in node.warm:
                warm_free[t] = max(warm_free[t], node.free)
        for limit in (slack, math.inf):
            t, k, warm = choose(
                self.policy, self.store, _NONE, _NONE, price, cores, self.sizes, f, size, 1.0, limit, float(call.cold_s), warm_free,
                any_free,
                np.zeros((2, types, len(self.sizes))),
            )  # fmt: skip
            if t != HOPELESS:
                break
        if t == WAIT:
            return Allocation(None, 0.0, want)
        free = warm_free[t] if warm else any_free[t]
        if self.policy.explore > 0 and limit == slack:
            k = explored(self.policy, self.store, cores, self.sizes, f, t, k, size, slack, float(free), float(self.rng.random()))
        fits = [n for n in able if self._type[n.type] == t and n.free == free and (not warm or call.function in n.warm)]
        return Allocation(fits[0].name, float(self.sizes[k]), want)

    def _first(self, call: Call, able: Sequence[Worker], want: float) -> Allocation:
        """Nothing is known: what its owner asks for, or one vCPU, on the least loaded node, warm ones first."""
        fits = np.flatnonzero(self.sizes >= (call.vcpu or 1.0) - 1e-9)
        v = float(self.sizes[fits[0]] if len(fits) else self.sizes[-1])
        room = [node for node in able if node.free >= v]
        if not room:
            return Allocation(None, 0.0, want)
        best = max(room, key=lambda node: (call.function in node.warm, node.free / node.cores))
        return Allocation(best.name, v, want)

    def expect(self, function: str, node: Worker, vcpu: float, size: float = 1.0) -> tuple[float, float]:
        """Expected seconds and their standard deviation; infinite for a function that has not run."""
        f, t = self._f(function), self._t(node)
        if self.store.own.runs[f] == 0:
            return math.inf, math.inf
        time, deviation = expected(self.store, f, t, self._k(vcpu), float(size), self.policy.node_factors)
        return float(time), float(deviation)

    def raised(self, call: Call, node: Worker, vcpu: float, *, elapsed_s: float, used: float) -> float:
        """The vCPUs for a call that runs, never fewer than now; `used` is its CPU time so far over that of a whole run, as expected."""
        f, t, k = self._f(call.function), self._t(node), self._k(vcpu)
        if self.store.own.runs[f] == 0:
            return vcpu
        slack = float(call.deadline_s - call.now_s)
        more, _ = raised_size(
            self.policy, self.store, _NONE, _NONE, self.sizes, f, t, k, float(call.size), 1.0, float(elapsed_s), float(used), slack,
            float(node.free),
        )  # fmt: skip
        return float(self.sizes[more])

    def observe(
        self, call: Call, cpu_s: float, wall_s: float, peak_mb: float, node: Worker, vcpu: float, *, throttled_s: float | None = None
    ) -> bool:
        """Learns from a run: CPU, wall and throttled seconds, and the peak in MB. False if one is no number, and the run is dropped."""
        f, t = self._f(call.function), self._t(node)
        if not (math.isfinite(peak_mb) and peak_mb >= 0):
            self.store.dropped[0] += 1
            return False
        throttled = -1.0 if throttled_s is None else throttled_s
        timed = observe_time(
            self.store, f, t, self._k(vcpu), float(wall_s), float(cpu_s), float(throttled), float(call.size), self.policy.counters,
            self.policy.node_factors,
        )  # fmt: skip
        if timed:
            observe_memory(self.store, f, float(peak_mb))
        return bool(timed)

    def killed(self, call: Call, memory_mb: float) -> None:
        """A run exceeded its memory: twice as much is given for the next 50 runs."""
        killed(self.store, self._f(call.function), float(memory_mb))

    def parallel_fraction(self, function: str) -> float:
        """The fitted parallel share b/(a + b); NaN for a function that has not run."""
        f = self._f(function)
        a, b = max(self.store.own.a[f], 0.0), max(self.store.own.b[f], 0.0)
        return float(b / (a + b)) if self.store.own.runs[f] else math.nan

    def _k(self, vcpu: float) -> int:
        found = np.flatnonzero(np.isclose(self.sizes, vcpu))
        if not len(found):
            raise InputError(f"found {vcpu:g} vCPUs; expected one of {', '.join(f'{v:g}' for v in self.sizes)}", where="vcpu")
        return int(found[0])

    def _f(self, name: str) -> int:
        if name not in self._function:
            self._function[name] = len(self._function)
            self._grow(len(self._function), len(self.store.speed))
        return self._function[name]

    def _t(self, node: Worker) -> int:
        if not (0 < node.speed < 1e6 and 0 < node.price < 1e12 and node.cores > 0):
            found = f"found speed {node.speed:g}, price {node.price:g} and {node.cores:g} cores"
            raise InputError(f"{found}; expected more than 0", where=one_line(node.name, 40))
        if node.type not in self._type:
            self._type[node.type] = len(self._type)
            self._speed.append(node.speed)
            self._grow(len(self.store.own), len(self._type))
            self.store.speed[len(self._type) - 1] = node.speed
        return self._type[node.type]

    def _grow(self, functions: int, types: int) -> None:
        """Makes room in the store for more functions and node types."""
        old = self.store
        f, t = len(old.own), len(old.speed)
        if functions <= f and types <= t:
            return
        new = empty(max(functions, 2 * f if functions > f else f), np.ones(max(types, 2 * t if types > t else t)), self.sizes)
        for name in Store._fields:
            before, after = getattr(old, name), getattr(new, name)
            after[tuple(slice(0, n) for n in before.shape)] = before
        self.store = new
