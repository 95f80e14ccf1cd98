"""An application under load, second by second, with a controller that sets quotas and replicas.

Quotas take effect 0.2 s after a decision, replicas 20 s after it. New replicas are paid from the decision on, and removed ones until they
are gone.
"""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from armillary.engine.stations import stations
from armillary.errors import InputError
from armillary.scheduling.microservices.application.application import LEAST_CORES, MOST_CORES, MOST_REPLICAS

from . import loop
from .loop import BUCKETS, NONE, Calls, Requests, Services, Trees
from .window import Decision, Floats, Window

if TYPE_CHECKING:
    from armillary.scheduling.microservices.workload import MicroservicesWork

WINDOW_S, QUOTA_DELAY_S, REPLICA_DELAY_S, TIMEOUT_S = 1.0, 0.2, 20.0, 5.0
#: The most slots for calls under way.
MOST_SLOTS = 30_000_000
_WANTED = np.array([0.5, 0.99])


class Controller(Protocol):
    """Decides after every window."""

    def decide(self, window: Window) -> Decision:
        """What to set after this window."""
        ...


class Simulation:
    """One application with one stream of requests: `step(decision)` plays a second and returns its window."""

    def __init__(self, work: MicroservicesWork, quotas: Floats | None = None) -> None:
        app = self.app = work.application
        self.work, flat = work, app.flat
        self.quotas = np.array(app.quotas if quotas is None else quotas, np.float64)
        self.replicas, self._ordered = app.replicas.copy(), app.replicas.copy()
        #: (when, replicas) of decisions that have not taken effect.
        self._coming: deque[tuple[float, Any]] = deque()
        self.now, self.core_s, self.changes, self.failed = 0.0, 0.0, 0, 0
        n, many = len(app.services), len(work.arrival_s)
        self._trees = Trees(flat.service, flat.first_group, flat.first_call, flat.calls, flat.root)
        self._requests = Requests(
            work.arrival_s, work.type, work.first, work.demand_s, np.full(many, np.nan), np.empty(many, np.int64)
        )  # fmt: skip
        sizes = np.diff(flat.root)
        #: The most calls of one request: of each service, and in all.
        self._calls_each = np.max([np.bincount(flat.service[a:b], minlength=n) for a, b in zip(flat.root, flat.root[1:])], 0)
        self._calls_all = int(sizes.max())
        self._stations = stations(self._rates(), np.full(n, 16), 1.0)
        self._slots = _no_calls(64)
        self._counts = np.array([0, 0, 0, 0, 0], np.int64)
        self._answering = np.empty(64, np.int64)
        self._services = Services(
            app.threads * self.replicas, np.zeros(n, np.int64), np.full(n, NONE), np.full(n, NONE), np.zeros(n, np.int64),
            np.zeros(n), np.zeros(n), np.zeros(n, np.int64), np.zeros((n, BUCKETS), np.int64),
        )  # fmt: skip
        self._expired = 0

    def _rates(self) -> Floats:
        found: Floats = self.quotas * self.replicas
        return found

    @property
    def calls(self) -> int:
        """Calls that were made so far."""
        return int(self._counts[loop.CALLS])

    @property
    def inside(self) -> int:
        """Requests that were neither answered nor have failed."""
        young = self._requests.arrival[self._expired : self._counts[loop.NEXT]]
        return int(np.isnan(self._requests.end[self._expired : self._expired + len(young)]).sum())

    def step(self, decision: Decision | None = None) -> Window:
        """Plays the next second under a decision (none leaves everything as it is)."""
        start = self.now
        before = self._before()
        quotas = self.quotas if decision is None else np.clip(decision.quotas, LEAST_CORES, MOST_CORES)
        if decision is not None:
            replicas = self._ordered if decision.replicas is None else np.clip(decision.replicas, 1, MOST_REPLICAS).astype(np.int64)
            self.changes += int(((quotas != self.quotas) | (replicas != self._ordered)).sum())
            if (replicas != self._ordered).any():
                self._ordered = replicas
                self._coming.append((start + REPLICA_DELAY_S, replicas))
        if decision is not None and (quotas != self.quotas).any():
            self.advance(start + QUOTA_DELAY_S)
            self.quotas = quotas.astype(np.float64)
            self._resize()
        self.advance(start + WINDOW_S)
        while self._coming and self._coming[0][0] <= self.now:
            self.replicas = self._coming.popleft()[1]
            self._resize()
        return self._window(start, before)

    def _before(self) -> tuple[Any, ...]:
        x = self._services
        x.latencies[:] = 0
        return self._stations.done.copy(), x.taken.copy(), x.arrivals.copy(), int(self._counts[loop.ANSWERED]), int(self._counts[loop.NEXT])

    def advance(self, until: float) -> None:
        """Plays all events before `until`, in seconds, with quotas and replicas as they are."""
        self._make_room(until)
        paid = np.maximum(self.replicas, self._ordered) * self.quotas
        self.core_s += float(paid.sum()) * (until - self.now)
        found = loop.run(
            self._requests, self._slots, self._services, self._trees, self._stations, self._counts, self._answering, TIMEOUT_S, until
        )  # fmt: skip
        self._check(found)
        self.now = until

    def _check(self, found: int) -> None:
        if found == loop.TOO_MANY_INSIDE:
            raise InputError(f"found more than {loop.MOST_INSIDE:,} requests inside at {self.now:g} s; expected fewer", where=self.app.name)
        if found:
            raise InputError(f"found more calls under way than there is room for at {self.now:g} s", where=self.app.name)

    def _resize(self) -> None:
        self._services.threads[:] = self.app.threads * self.replicas
        self._make_room(self.now)
        self._check(loop.resize(
            self._requests, self._slots, self._services, self._trees, self._stations, self._rates(), self.app.threads * self.replicas,
            self.now,
        ))  # fmt: skip

    def _make_room(self, until: float) -> None:
        """Sees to it that all calls that can be under way before `until` have places."""
        arriving = int(np.searchsorted(self._requests.arrival, until)) - int(self._counts[loop.NEXT])
        requests = min(int(self._counts[loop.INSIDE]) + max(arriving, 0), loop.MOST_INSIDE + 1)
        threads = np.maximum(self._services.threads, self._services.used)
        # A call that is under way holds a thread, waits below one that does, or is the first of its request.
        calls = min(requests * self._calls_all, int(threads.sum()) * (1 + self.app.flat.fan) + requests)
        if calls > MOST_SLOTS:
            raise InputError(f"found up to {calls:,} calls under way; expected at most {MOST_SLOTS:,}", where=self.app.name)
        if calls > len(self._slots.call):
            _grow_calls(self, max(calls, 2 * len(self._slots.call)))
        room = np.minimum(threads, requests * self._calls_each)
        have = np.diff(self._stations.first)
        if (room > have).any():
            self._stations = _grown(self._stations, np.where(room > have, np.maximum(room, 2 * have), have))

    def _window(self, start: float, before: tuple[Any, ...]) -> Window:
        done, taken, arrivals, answered, first = before
        x, r = self._services, self._requests
        passed = self.now - start
        services = np.empty((len(done), 2))
        loop.quantiles(x.latencies, _WANTED, services)
        ended = r.answered[answered : self._counts[loop.ANSWERED]]
        took = r.end[ended] - r.arrival[ended]
        ended, took = ended[took <= TIMEOUT_S], took[took <= TIMEOUT_S]
        # Requests that became too old in this window and were not answered in time.
        last = int(np.searchsorted(r.arrival, self.now - TIMEOUT_S, "right"))
        old = np.arange(self._expired, last)
        old = old[~(r.end[old] - r.arrival[old] <= TIMEOUT_S)]
        self._expired = max(last, self._expired)
        self.failed += len(old)
        type_ = np.concatenate([r.type[ended], r.type[old]])
        took = np.concatenate([took, np.full(len(old), TIMEOUT_S)])
        relative = took / self.app.slo_s[type_]
        p50, p99 = _p50_p99(relative)
        if not len(relative) and self._stuck():
            p99 = 2.0  # nothing was answered although something waits for longer than its objective
        by_type = np.array([_p50_p99(took[type_ == k]) for k in range(len(self.app.requests))])
        threads = np.maximum(x.threads, 1)
        return Window(
            (self._stations.done - done) / passed, self._rates(), self.quotas.copy(), self.replicas.copy(), x.queued.astype(np.float64),
            np.minimum((x.taken - taken) / passed / threads, 1.0), services[:, 0], services[:, 1], (x.arrivals - arrivals) / passed,
            by_type[:, 0], by_type[:, 1], p50, p99, int(self._counts[loop.NEXT]) - first, len(ended), len(old), passed,
        )  # fmt: skip

    def _stuck(self) -> bool:
        young = slice(self._expired, int(self._counts[loop.NEXT]))
        r = self._requests
        age = self.now - r.arrival[young]
        return bool((np.isnan(r.end[young]) & (age > self.app.slo_s[r.type[young]])).any())


def _p50_p99(values: Floats) -> tuple[float, float]:
    """The least values that half and 99 % do not exceed; 0 without values."""
    n = len(values)
    if not n:
        return 0.0, 0.0
    at = ((n + 1) // 2 - 1, -(-99 * n // 100) - 1)
    found = np.partition(values, at)
    return float(found[at[0]]), float(found[at[1]])


def _no_calls(n: int) -> Calls:
    whole = [np.zeros(n, np.int64) for _ in range(6)]
    free = np.arange(1, n + 1)
    free[-1] = NONE
    return Calls(whole[0], whole[1], whole[2], whole[3], whole[4], np.zeros(n), free, whole[5])


def _grow_calls(sim: Simulation, n: int) -> None:
    old, made = sim._slots, _no_calls(n)
    many = len(old.call)
    for before, after in zip(old, made):
        after[:many] = before
    # The new slots come before the free ones that were left.
    made.next[-1] = sim._counts[loop.FREE]
    sim._counts[loop.FREE] = many
    sim._slots, sim._answering = made, np.empty(n, np.int64)


def _grown(old: Any, room: Any) -> Any:
    made = stations(old.rate, room, 1.0)
    for name in ("now", "virtual", "done", "held", "departs", "winner"):
        getattr(made, name)[:] = getattr(old, name)
    for i in range(len(room)):
        n, a, b = int(old.held[i]), int(old.first[i]), int(made.first[i])
        made.leaves[b : b + n], made.jobs[b : b + n] = old.leaves[a : a + n], old.jobs[a : a + n]
    return made


@dataclass(frozen=True, eq=False)
class Played:
    """What came of one run."""

    work: MicroservicesWork
    windows: tuple[Window, ...]
    core_s: float
    changes: int
    decided_s: Floats
    promises: Floats
    latency_s: Floats
    calls: int
    inside: int

    @property
    def violations(self) -> Floats:
        """1 for windows that violated the objective, and 0 for the others."""
        return np.array([float(window.violated) for window in self.windows])

    @property
    def violation(self) -> float:
        """The share of windows that violated the objective."""
        return float(self.violations.mean())

    @property
    def score(self) -> float:
        """Core-seconds, times 1 + 10 times what is violated beyond 1 %."""
        return self.core_s * (1 + 10 * max(0.0, self.violation - 0.01))

    def metrics(self) -> dict[str, float]:
        """The arena's metrics."""
        return {
            "score": self.score, "cpu_core_s": self.core_s, "slo_violation": self.violation,
            "p99_ms": 1e3 * float(np.quantile(self.latency_s, 0.99)) if len(self.latency_s) else 0.0,
            "changes": float(self.changes), "brier": float(np.mean((self.promises - self.violations[1:]) ** 2)),
            "decide_ms": 1e3 * float(self.decided_s.mean()),
        }  # fmt: skip


def play(work: MicroservicesWork, controller: Controller, seconds: int | None = None, *, quotas: Floats | None = None) -> Played:
    """Plays a work under a controller, which decides after every second. quotas: at the start, instead of the owner's."""
    sim = Simulation(work, quotas)
    many = work.seconds if seconds is None else seconds
    windows, decided, promises = [sim.step()], [], []
    bad = 0.0
    for k in range(1, many):
        bad += windows[-1].violated
        start = time.perf_counter()
        decision = controller.decide(windows[-1])
        decided.append(time.perf_counter() - start)
        # Whoever promises nothing is scored with the share of violations so far.
        promises.append(bad / k if decision.promise is None else decision.promise)
        windows.append(sim.step(decision))
    r = sim._requests
    known = r.arrival < sim.now
    took = np.where(np.isnan(r.end), np.inf, r.end)[known] - r.arrival[known]
    old = sim.now - r.arrival[known] > TIMEOUT_S
    latency = np.minimum(took, TIMEOUT_S)[np.isfinite(took) | old]
    return Played(
        work, tuple(windows), sim.core_s, sim.changes, np.array(decided or [0.0]), np.array(promises or [0.0]), latency, sim.calls,
        sim.inside,
    )  # fmt: skip
