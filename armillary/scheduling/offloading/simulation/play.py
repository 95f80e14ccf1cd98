"""Plays a technique's policy on the functions of a work."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from armillary.scheduling.offloading.runtime import rules
from armillary.scheduling.offloading.runtime.histogram import KNATIVE_BOUNDS_MS
from armillary.scheduling.offloading.workload import OffloadingWork

from .platform import DONE, play_function
from .policy import FIXED, GAIA, GPU, STATE, Floats, Policy

#: Switches of one function that are kept with their times; all are counted.
LOGGED = 4096


@dataclass(frozen=True)
class Missing:
    """A time that a run needs and that is not known yet: the service time of a request, or a start of a pod (by its number)."""

    what: str
    number: int
    backend: int


@dataclass(frozen=True)
class Switch:
    """A change of backend, with the number of Gaia's rule: 9 for a lost device, −1 for another policy's decision."""

    function: int
    time_s: float
    backend: int
    rule: int


@dataclass(frozen=True)
class Played:
    """What came of a run: per request its latency in seconds, its backend and whether it waited for a start; pod seconds per backend."""

    latency_s: Floats
    backend: npt.NDArray[np.int64]
    cold: npt.NDArray[np.bool_]
    pod_s: Floats
    switches: int
    log: tuple[Switch, ...]
    end_s: float

    @property
    def gpu_share(self) -> float:
        """The GPU's share of all pod seconds."""
        return float(self.pod_s[GPU] / self.pod_s.sum()) if self.pod_s.sum() > 0 else 0.0

    def cost_usd(self, prices: npt.ArrayLike) -> float:
        """Pod seconds times prices."""
        return float(np.asarray(prices, np.float64) @ self.pod_s)


def play(work: OffloadingWork, policy: Policy) -> Played:
    """Plays all functions of the work. A work with unknown times must be played with `play_known`."""
    played, missing = play_known(work, policy)
    if missing is not None:
        raise ValueError(f"the {missing.what} {missing.number} of backend {missing.backend} is not known")
    return played


def play_known(work: OffloadingWork, policy: Policy) -> tuple[Played, Missing | None]:
    """Plays as far as times are known, and names the first one that is missing."""
    n = len(work)
    latency, backend, cold = np.zeros(n), np.zeros(n, np.int64), np.zeros(n, np.bool_)
    end, arrival, pods = np.full(n, math.inf), work.arrival_s.copy(), np.zeros(2)
    switches, log, last = 0, list[Switch](), 0.0
    for f in range(work.functions):
        rows = slice(int(work.offsets[f]), int(work.offsets[f + 1]))
        mode, entries, pod_s = int(work.mode[f]), np.zeros((LOGGED, 3)), np.zeros(2)
        status, number, on, changed, stop = _play_one(
            work, policy, f, mode, arrival[rows], work.service_s[:, rows].copy(), end[rows], latency[rows], backend[rows],
            cold[rows], pod_s, entries,
        )  # fmt: skip
        if status != DONE:
            missing = Missing("service time" if status == 1 else "start", int(number), int(on))
            return Played(latency, backend, cold, pods, switches, tuple(log), last), missing
        log += [Switch(f, float(t), int(b), int(rule)) for t, b, rule in entries[: min(changed, LOGGED)]]
        switches, last = switches + int(changed), max(last, float(stop))
        pods += pod_s
    return Played(latency, backend, cold, pods, switches, tuple(log), last), None


def _play_one(
    work: OffloadingWork, policy: Policy, f: int, mode: int, arrival: Floats, service: Floats, end: Floats, latency: Floats, backend: Any,
    cold: Any, pod_s: Floats, entries: Floats,
) -> tuple[int, int, int, int, float]:  # fmt: skip
    # Copies, because a case's arrays are read-only, for which the loop would be compiled once more.
    down = work.down_s.copy()
    # A hard mode is never revised, by whatever policy, and a function that must have a GPU does not run without one.
    code = FIXED if mode in (rules.CPU, rules.GPU) else policy.code
    fallback = policy.fallback and mode != rules.GPU
    state = np.full(STATE, math.nan if policy.code == GAIA else 0.0)
    state[rules.MODE] = mode
    found: tuple[int, int, int, int, float] = play_function(
        code, policy.settings, state, policy.interval_s, policy.window_s, policy.long_window_s, policy.exact, policy.skip_cold,
        fallback, policy.start[mode], work.first_look(f, policy.interval_s), work.closed, arrival, service,
        work.start_s[f].copy(), down, work.horizon_s, work.keep_s, KNATIVE_BOUNDS_MS, end, latency, backend, cold,
        pod_s, entries,
    )  # fmt: skip
    return found
