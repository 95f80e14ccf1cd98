"""LACE-RL beside a running platform: it is told of ends and arrivals, and says how long a pod stays."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from armillary.errors import InputError
from armillary.learn import Model
from armillary.scheduling.energy import JOULES_PER_KWH, idle_watts
from armillary.scheduling.keepalive.simulation.decisions import COUNTS, INPUTS, NETWORK, OUTPUTS, SWARM_STATE, decide
from armillary.scheduling.keepalive.simulation.play import LEAST_INTENSITY, odds_of
from armillary.scheduling.keepalive.simulation.reuse import EDGES, KEEPS, MEANS, PLACES, SHARES, observe
from armillary.scheduling.keepalive.workload import Knowledge

Floats = npt.NDArray[np.float64]
#: Intensities are compared with those of an hour before.
TREND_S = 3600.0
_NONE = np.zeros(1)


@dataclass
class _Function:
    """What is known of a function: its counts of gaps, its prices and its facts."""

    counts: Floats
    late: float
    dear: float
    facts: Floats


@dataclass
class Controller:
    """Keep-alives for a platform, one decision at a time. It has no clock of its own: times are given in seconds of any clock.

    A function that was not declared has the facts of `declare`'s defaults.
    """

    network: Any
    knowledge: Knowledge
    lam: float
    _functions: dict[str, _Function] = field(default_factory=dict)
    _past: deque[tuple[float, float]] = field(default_factory=deque)

    @staticmethod
    def of(model: Model, lam: float, *, latency_s: float | None = None, carbon_g: float | None = None) -> Controller:
        """A controller with a trained model. latency_s and carbon_g replace the training days' means per invocation."""
        if not 0 <= lam <= 1:
            raise InputError(f"found {lam:g}; expected 0 to 1", where="lam")
        frozen = model.frozen()
        latency, carbon, intensity = (float(value) for value in frozen["scales"])
        for name, given in (("latency_s", latency_s), ("carbon_g", carbon_g)):
            if given is not None and not (math.isfinite(given) and given > 0):
                raise InputError(f"found {given:g}; expected a positive number", where=name)
        known = Knowledge(latency_s or latency, carbon_g or carbon, np.asarray(frozen["prior"], np.float64), intensity)
        return Controller(frozen["q"], known, float(lam))

    def __post_init__(self) -> None:
        self._weights = self.network.compiled
        self._x, self._out, self._scratch = np.zeros(INPUTS, np.float32), np.zeros(OUTPUTS, np.float32), self.network.scratch()
        self._swarm = np.zeros(SWARM_STATE)
        scale = JOULES_PER_KWH * self.knowledge.carbon_g
        self._scale, self._offset, self._odds = scale, math.log(60 / scale), odds_of(self.lam)

    def declare(self, function_id: str, *, cold_s: float = 1.0, vcpu: float = 0.3, memory_gb: float = 0.125) -> None:
        """Says how long a cold start of a function takes and what its pods reserve. What was observed of the function is kept."""
        for name, value in (("cold_s", cold_s), ("vcpu", vcpu), ("memory_gb", memory_gb)):
            if not (math.isfinite(value) and value >= 0):
                raise InputError(f"{name}: found {value:g}; expected a finite number of at least 0", where=function_id)
        facts = np.log(np.maximum(np.array([cold_s / self.knowledge.latency_s, vcpu, memory_gb]), 1e-6))
        late = (1 - self.lam) * cold_s / self.knowledge.latency_s
        dear = self.lam * float(idle_watts(vcpu, memory_gb)) / self._scale
        before = self._functions.get(function_id)
        self._functions[function_id] = _Function(np.zeros(COUNTS) if before is None else before.counts, late, dear, facts)

    def _function(self, function_id: str) -> _Function:
        if function_id not in self._functions:
            self.declare(function_id)
        return self._functions[function_id]

    def observe(self, function_id: str, t_end: float, t_next: float) -> None:
        """A pod of the function ended its work at `t_end`, and the arrival at `t_next` was (or would have been) its next use.

        Pair each arrival with the latest end that is not paired yet, whether that pod is still warm or not.
        """
        gap = t_next - t_end
        if not (math.isfinite(gap) and gap >= 0):
            raise InputError(f"found {gap:g} s from an end to the next arrival; expected a finite time of at least 0 s", where=function_id)
        observe(self._function(function_id).counts, EDGES, gap)

    def keep_alive(self, function_id: str, now: float, ci: float) -> float:
        """Seconds for which the pod that becomes idle now should stay. ci: g/kWh now."""
        if not (math.isfinite(ci) and ci >= 0):
            raise InputError(f"found a carbon intensity of {ci:g}; expected g/kWh of at least 0", where=function_id)
        f = self._function(function_id)
        weights, sizes, activation = self._weights
        _, until = decide(
            NETWORK, 0.0, 0.0, 0.0, f.counts, _NONE, self._swarm, self.knowledge.prior, EDGES, MEANS, PLACES, SHARES, f.late, f.dear * ci,
            f.facts, math.log(max(ci, LEAST_INTENSITY)) + self._offset, self._trend(now, ci), self._odds, True, True, True, weights, sizes,
            activation, KEEPS, self._x, self._out, self._scratch,
        )  # fmt: skip
        return float(until)

    def _trend(self, now: float, ci: float) -> float:
        """The change within the last hour, in the network's unit; intensities are remembered when they change."""
        past = self._past
        if not past or past[-1][1] != ci:
            past.append((now, ci))
        while len(past) > 1 and past[1][0] <= now - TREND_S:
            past.popleft()
        return (ci - past[0][1]) / 3000.0
