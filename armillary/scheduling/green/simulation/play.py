"""Plays pods on nodes under a technique's rules, and counts energy, sun, waits and missed deadlines."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from armillary.errors import InputError
from armillary.kernels import loop
from armillary.scheduling.energy import JOULES_PER_KWH
from armillary.scheduling.green.problem.sunshine import AHEAD, CELL, SLOT_S
from armillary.scheduling.green.workload import GreenWork

from .loop import advance
from .policy import BUDGET, GREEN, WINDOW, Policy
from .state import DONE, TOO_LARGE, State, given, state

Floats = npt.NDArray[np.float64]
#: Looks at pods and nodes after which a play is refused as one that takes too long.
MOST_STEPS = 3e11


@dataclass(frozen=True)
class Played:
    """What became of a work: watts per slot, those that the sun (or a battery) gave, and the fate of each pod."""

    work: GreenWork
    state: State
    power_w: Floats
    green_w: Floats

    @property
    def brown_w(self) -> Floats:
        """Watts from the grid, per slot."""
        return self.power_w - self.green_w

    @property
    def energy_kwh(self) -> float:
        """Energy of all nodes over the horizon."""
        return float(self.power_w.sum()) * SLOT_S / JOULES_PER_KWH

    @property
    def brown_kwh(self) -> float:
        """Energy from the grid."""
        return float(self.brown_w.sum()) * SLOT_S / JOULES_PER_KWH

    @property
    def start_s(self) -> Floats:
        """When each pod first ran; the horizon if it never did."""
        found: Floats = np.where(self.state.start >= 0, SLOT_S * self.state.start, self.work.slots * SLOT_S)
        return found

    @property
    def end_s(self) -> Floats:
        """When each pod ended; infinite if it did not."""
        found: Floats = np.where(self.state.phase == DONE, SLOT_S * self.state.end, math.inf)
        return found

    @property
    def missed(self) -> npt.NDArray[np.bool_]:
        """Which pods ended after their deadlines, or not at all."""
        # Pods are looked at once a minute, so one that is due within a minute counts as in time.
        found: npt.NDArray[np.bool_] = self.end_s > self.work.pods.deadline_s + SLOT_S
        return found

    @property
    def unschedulable(self) -> list[str]:
        """Pods that are larger than every node."""
        return [self.work.pods.name(int(p)) for p in np.flatnonzero(self.state.phase == TOO_LARGE)]

    def metrics(self) -> dict[str, float]:
        """The arena's metrics, except the forecast's error."""
        work, total = self.work, float(self.power_w.sum())
        wanted = float(self.state.wanted.sum())
        ended = np.minimum(self.end_s, work.slots * SLOT_S)
        taken = np.maximum(ended - work.pods.submit_s, SLOT_S)
        promised = np.where(self.state.promised >= 0, SLOT_S * self.state.promised, ended) - work.pods.submit_s
        moments = SLOT_S * (np.arange(work.slots) + 0.5) + work.carbon_start_s
        carbon = work.carbon.values[np.maximum(np.searchsorted(work.carbon.times_s, moments, side="right") - 1, 0)]
        return {
            "energy_kwh": self.energy_kwh,
            "brown_kwh": self.brown_kwh,
            "green_share": float(self.green_w.sum()) / total if total > 0 else 0.0,
            "carbon_kg": float(self.brown_w @ carbon) * SLOT_S / JOULES_PER_KWH / 1000,
            "wait_p95_s": float(np.quantile(np.maximum(0.0, self.start_s - work.pods.submit_s), 0.95)),
            "deadline_missed": float(self.missed.mean()),
            "cpu_throttled": float(self.state.missing.sum()) / wanted if wanted > 0 else 0.0,
            "promise_error": float((np.abs(promised - taken) / taken).mean()),
        }


def play(work: GreenWork, policy: Policy) -> Played:
    """The work under these rules; the same work and rules give the same numbers."""
    slots, nodes, pods = work.slots, len(work.nodes), len(work.pods)
    steps = slots * (nodes + 0.2 * pods) + pods * nodes
    if steps > MOST_STEPS:
        raise InputError(f"found {pods:,} pods on {nodes:,} nodes over {slots:,} minutes; expected less work for one play")
    if policy.when in (WINDOW, BUDGET) or policy.place == GREEN:
        shape = (-(-slots // CELL), AHEAD)
        if policy.forecast.shape != shape:
            raise InputError(f"found a forecast of the shape {policy.forecast.shape}; expected {shape}")
    classes = 4 * (int(work.pods.app.max()) + 1)
    g = given(work.nodes, work.pods, work.sun.during, classes)
    x = state(nodes, pods, classes, slots, policy.kappa)
    advance(g, x, policy, slots)
    green = np.minimum(x.power, work.sun.during)
    if work.battery_kwh > 0:
        green = with_battery(x.power, work.sun.during, work.battery_kwh * JOULES_PER_KWH / SLOT_S, ROUND_TRIP)
    return Played(work, x, x.power, green)


#: What a battery gives back of what it takes.
ROUND_TRIP = 0.9


@loop
def with_battery(power: Any, sun: Any, capacity: float, round_trip: float) -> Any:
    """Watts per slot that come from the sun, directly or through a battery of `capacity` watt-slots, empty at first."""
    green = np.empty(len(power))
    stored = 0.0
    for t in range(len(power)):
        green[t] = min(power[t], sun[t])
        stored = min(capacity, stored + round_trip * max(0.0, sun[t] - power[t]))
        more = min(stored, power[t] - green[t])
        stored -= more
        green[t] += more
    return green
