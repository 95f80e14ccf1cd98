"""Plays a work under a policy, and counts what came of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from armillary.arena import NotForThisCase
from armillary.scheduling.functions.knowledge.store import HEADROOM, STEP_MB, Store, empty
from armillary.scheduling.functions.planning.policy import CHOSEN, LEARNED, TIGHT, TRUTH, TUNED, Policy
from armillary.scheduling.functions.problem.fleet import Floats, Ints
from armillary.scheduling.functions.problem.functions import CONTENTION, CORE_GFLOPS
from armillary.scheduling.functions.workload import NOISE, PEAKS, FunctionsWork

from . import state
from .loop import NO_POD, STUCK, run

#: Of the runs, those that the true minimum of a size serves in time: 95 %, as 1.65 deviations of the noise.
MARGIN = 1 + 1.65 * NOISE


@dataclass(frozen=True)
class Played:
    """What became of every call, in the order of their arrival, and sums."""

    work: FunctionsWork
    start_s: Floats
    end_s: Floats
    core_s: Floats
    money: Floats
    promise_s: Floats
    node: Ints
    #: Indices of `sizes`: the last size of each call.
    size: Ints
    #: Whether its last run was raised, cold starts of all its runs, and whether it was put last.
    raised: Ints
    cold: Ints
    last: Ints
    memory_mb_s: float
    killed: int
    decisions: int
    #: Executions of each function until its estimates stayed right; infinite for never, 0 for those who know.
    converged: Floats
    store: Store

    @property
    def missed(self) -> np.ndarray:
        """Which calls ended after their deadlines."""
        return self.end_s > self.work.calls.deadline_s

    @property
    def latency_s(self) -> Floats:
        """Seconds from arrival to end."""
        return self.end_s - self.work.calls.arrival_s

    @property
    def useful_s(self) -> Floats:
        """CPU seconds that the work of each call takes on its node, without waiting for anything."""
        t = self.work.fleet.node_type[self.node]
        return serial_s(self.work)[self.work.calls.function, t] * self.work.calls.size

    def metrics(self) -> dict[str, float]:
        """The arena's metrics."""
        n = len(self.work.calls)
        in_time = n - int(self.missed.sum())
        cores = float(self.core_s.sum())
        return {
            "deadline_missed": 1 - in_time / n,
            "deadline_met": in_time / n,
            "core_s_allocated": cores,
            "memory_gb_s_allocated": self.memory_mb_s / 1024,
            "core_s_per_met": cores / max(in_time, 1),
            "efficiency": float(self.useful_s.sum()) / cores,
            "cost": float(self.money.sum()),
            "promise_error": float(np.mean(np.abs(self.promise_s - self.latency_s) / self.latency_s)),
            "calls_to_converge": float(np.median(self.converged)),
            "latency_p95": float(np.quantile(self.latency_s, 0.95)),
            "killed": float(self.killed),
        }


def serial_s(work: FunctionsWork) -> Floats:
    """CPU seconds of one call on each node type, `[function, type]`."""
    out = np.empty((len(work.profiles), len(work.fleet.types)))
    for f, profile in enumerate(work.profiles):
        factors = dict(profile.affinity)
        for t, kind in enumerate(work.fleet.types):
            out[f, t] = profile.work_gflop / CORE_GFLOPS / kind.speed * factors.get(kind.name, 1.0)
    return out


def minimum(work: FunctionsWork) -> tuple[Ints, Floats]:
    """The truth that estimates are held against: for each function the least size that meets the median deadline in 95 % of the runs on a
    standard node (−1 for none), and the memory that the rule would give if it knew the distribution of peaks."""
    median, times = work.median_deadline(), work.seconds[:, work.fleet.standard]
    can = work.sizes <= work.fleet.types[work.fleet.standard].cores
    least = np.full(len(work.profiles), -1, np.int64)
    for f in range(len(work.profiles)):
        fits = np.flatnonzero((times[f] * MARGIN <= median[f]) & can)
        if len(fits) and np.isfinite(median[f]):
            least[f] = fits[0]
    high = np.array([profile.memory_mb for profile in work.profiles]) * np.exp(1.87 * PEAKS)  # the expected highest of 20
    return least, STEP_MB * np.ceil(HEADROOM * high / STEP_MB)


def given(work: FunctionsWork, policy: Policy, rng: np.random.Generator, contention: float = CONTENTION) -> state.Given:
    """The work as the compiled loop reads it."""
    fleet = work.fleet
    user = {TUNED: work.tuned, TIGHT: work.tight}.get(policy.size, work.user)
    counts = np.bincount(work.calls.function, minlength=len(work.profiles))
    return state.Given(
        state.calls(work, rng), state.functions(work, user, *minimum(work)), work.seconds, serial_s(work), fleet.node_type,
        fleet.each("cores"), fleet.each("memory_mb"), fleet.each("price"), work.sizes,
        np.concatenate(([0], np.cumsum(counts))).astype(np.int64), int(fleet.standard), float(contention),
    )  # fmt: skip


def play(
    work: FunctionsWork, policy: Policy, rng: np.random.Generator, *, store: Store | None = None, contention: float = CONTENTION
) -> Played:
    """Plays the work; `store` is what is known before the first call (nothing), and is changed."""
    as_compiled: Any = (type(default)(value) for default, value in zip(Policy(), policy))  # whole numbers stay whole
    rules = Policy(*as_compiled)
    known = store if store is not None else empty(len(work.profiles), work.fleet.each("speed"), work.sizes)
    profile, deviation = work.profile() if policy.knowledge != TRUTH else _truth(work, contention)
    x = state.idle(work)
    outcome = run(given(work, rules, rng, contention), rules, known, profile, deviation, x)
    if outcome == STUCK:
        raise NotForThisCase("some call needs more cores and memory than any node has")
    if outcome == NO_POD:
        raise RuntimeError("there are more pods than memory for them")
    if outcome:
        raise NotForThisCase("queues grow so long that the play would take more than a minute")
    runs = x.runs
    return Played(
        work, runs.start, runs.end, runs.core_s, runs.money, runs.promise, runs.node, runs.step, runs.raised, runs.cold, runs.late,
        float(x.memory[0]), int(x.counts[state.KILLED]), int(x.counts[state.DECISIONS]), _converged(policy, work, x.totals), known,
    )  # fmt: skip


def _truth(work: FunctionsWork, contention: float) -> tuple[Floats, Floats]:
    """Times alone, with the most that contention may add."""
    most = np.array([1 + contention * profile.memory_bound for profile in work.profiles])
    return work.seconds * most[:, None, None], np.zeros_like(work.seconds)


def _converged(policy: Policy, work: FunctionsWork, totals: Any) -> Floats:
    """Only functions with calls, and with a size that meets their median deadline, are looked at."""
    least, _ = minimum(work)
    judged = (least >= 0) & (totals.runs > 0)
    if not judged.any():
        return np.full(1, np.inf)
    if policy.size != CHOSEN or policy.knowledge != LEARNED:
        return np.full(int(judged.sum()), np.inf if policy.size != CHOSEN else 0.0)
    # A function whose estimates were right from some run to its last one has converged too, if these are few runs.
    since = np.where(totals.streak > 0, totals.runs - totals.streak + 1, np.inf)
    return np.where(totals.converged >= 0, totals.converged, since)[judged].astype(np.float64)
