"""A training day as a table of decisions: what the policy would have seen at each of them, and what every action would have cost.

Gaps do not depend on the policy (see `faas.shadow_gaps`), so the reward of every action is known:
`r(a) = −[(1 − λ)·1[g > a]·L/L̄ + λ·P·∫CI dt over min(g, a)/C̄]`. The next decision of a pod is the one after the invocation that it serves
next.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from armillary.kernels import loop
from armillary.scheduling.energy import JOULES_PER_KWH
from armillary.scheduling.faas import shadow_gaps
from armillary.scheduling.faas.pods import grown, pop, push, value_at
from armillary.scheduling.keepalive.simulation.decisions import COUNTS, INPUTS, observation_into
from armillary.scheduling.keepalive.simulation.play import Prices, intensities, odds_of
from armillary.scheduling.keepalive.simulation.reuse import EDGES, KEEPS, PLACES, SHARES, observe
from armillary.scheduling.keepalive.workload import KeepAliveWork

Array = npt.NDArray[Any]
#: The inputs that hold the intensity, its trend, and the log-odds of λ.
INTENSITY, TREND, ODDS = INPUTS - 3, INPUTS - 2, INPUTS - 1


@dataclass(frozen=True)
class Decisions:
    """Decisions in rows. Costs are in units of static-60's means, and the scales bring those of a row's pod near 1 whatever its λ is."""

    #: Inputs [rows, 14]; the last is set by λ.
    seen: npt.NDArray[np.float32]
    #: 1[g > a]·L/L̄ and P·∫CI dt/C̄, [rows, 9].
    late: npt.NDArray[np.float32]
    carbon: npt.NDArray[np.float32]
    #: L/L̄, and the carbon of a minute at the mean intensity over C̄.
    late_scale: npt.NDArray[np.float32]
    carbon_scale: npt.NDArray[np.float32]
    #: The row of the pod's next decision, −1 if there is none; and the pod.
    following: npt.NDArray[np.int64]
    pod: npt.NDArray[np.int64]
    function: npt.NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.seen)

    def rewards(self, rows: Array, lam: Array, dirt: Array | None = None) -> npt.NDArray[np.float32]:
        """The reward of every action at some rows, each at its λ, divided by (1 − λ)·L/L̄ + λ·(a minute's carbon)/C̄.

        The divisor is one number per pod and λ, so the best actions and the recursion between the decisions of one pod stay the same.
        dirt: by which factor the grid is dirtier than it was, at each row.
        """
        weight = np.asarray(lam, np.float32)
        paid = weight if dirt is None else weight * np.asarray(dirt, np.float32)
        cost = (1 - weight)[:, None] * self.late[rows] + paid[:, None] * self.carbon[rows]
        scale = (1 - weight) * self.late_scale[rows] + paid * self.carbon_scale[rows]
        return np.asarray(-cost / scale[:, None], np.float32)

    def inputs(self, rows: Array, lam: Array, dirt: Array | None = None) -> npt.NDArray[np.float32]:
        """The inputs of some rows, each at its λ, on a grid `dirt` times as dirty."""
        x = self.seen[rows]
        x[:, ODDS] = [odds_of(float(one)) for one in lam]
        if dirt is not None:
            x[:, INTENSITY] += np.log(dirt)
            x[:, TREND] *= dirt
        return x

    @staticmethod
    def joined(parts: list[Decisions]) -> Decisions:
        """Several days as one table."""
        offsets = np.cumsum([0, *(len(part) for part in parts)])
        pods = np.cumsum([0, *(int(part.pod.max()) + 1 if len(part) else 0 for part in parts)])
        functions = np.cumsum([0, *(int(part.function.max()) + 1 if len(part) else 0 for part in parts)])
        moved = [np.where(part.following < 0, -1, part.following + offset) for part, offset in zip(parts, offsets)]
        seen, late, carbon, late_scale, carbon_scale = (
            np.concatenate([getattr(part, name) for part in parts]) for name in ("seen", "late", "carbon", "late_scale", "carbon_scale")
        )  # fmt: skip
        return Decisions(
            seen, late, carbon, late_scale, carbon_scale, np.concatenate(moved),
            np.concatenate([part.pod + first for part, first in zip(parts, pods)]),
            np.concatenate([part.function + first for part, first in zip(parts, functions)]),
        )  # fmt: skip


def decisions(work: KeepAliveWork, *, see_reuse: bool = True, see_ci: bool = True) -> Decisions:
    """The table of one day, which must not be streamed."""
    (trace,) = work.parts()
    prices = Prices.of(work, trace, 0.5)
    carbon = work.carbon
    n = len(trace)
    seen, following, pod = np.zeros((n, INPUTS), np.float32), np.full(n, -1, np.int64), np.full(n, -1, np.int64)
    _states(
        trace.offsets, trace.arrival_s, trace.duration_s, carbon.times_s, carbon.values, intensities(carbon, prices), work.knowledge.prior,
        EDGES, PLACES, SHARES, prices.facts, prices.odds, see_reuse, see_ci, seen, following, pod,
    )  # fmt: skip
    function = trace.function
    gaps = shadow_gaps(trace)[:, None]
    end = (trace.arrival_s + trace.duration_s)[:, None]
    cold = trace.cold_s[function] / work.knowledge.latency_s
    per = work.watts(trace)[function] / (JOULES_PER_KWH * work.knowledge.carbon_g)
    idle = carbon.integral(end + np.minimum(gaps, KEEPS)) - carbon.integral(end)
    mean = float(carbon.integral(trace.stop_s) - carbon.integral(trace.start_s)) / max(trace.stop_s - trace.start_s, 1e-9)
    return Decisions(
        seen, (cold[:, None] * (gaps > KEEPS)).astype(np.float32), (per[:, None] * idle).astype(np.float32), cold.astype(np.float32),
        (per * 60.0 * max(mean, 1e-6)).astype(np.float32), following, pod, function,
    )  # fmt: skip


@loop
def _states(
    offsets: Array, arrival: Array, duration: Array, times: Array, values: Array, steps: Array, prior: Array, edges: Array,
    places: Array, shares: Array, facts: Array, odds: float, see_reuse: bool, see_ci: bool, seen: Array, following: Array, pod: Array,
) -> None:  # fmt: skip
    stack, busy = np.empty((8, 2)), np.empty((8, 2))
    counts = np.zeros(COUNTS)
    pods = 0
    for f in range(offsets.shape[0] - 1):
        waiting = running = 0
        counts[:] = 0
        stop = offsets[f + 1]
        for i in range(offsets[f], stop + 1):
            t = arrival[i] if i < stop else np.inf
            while running and busy[0, 0] <= t:
                end, which = busy[0, 0], int(busy[0, 1])
                pop(busy, running)
                running -= 1
                now = value_at(times, values, end)
                trend = (now - value_at(times, values, end - 3600.0)) / 3000.0
                observation_into(
                    counts, prior, places, shares, facts[f], value_at(times, steps, end), trend, odds, see_reuse, see_ci,
                    seen[which],
                )  # fmt: skip
                if waiting == stack.shape[0]:
                    stack = grown(stack)
                stack[waiting, 0], stack[waiting, 1] = end, which
                waiting += 1
            if i == stop:
                break
            if waiting:
                waiting -= 1
                before = int(stack[waiting, 1])
                observe(counts, edges, t - stack[waiting, 0])
                following[before] = i
                pod[i] = pod[before]
            else:
                pod[i] = pods
                pods += 1
            if running == busy.shape[0]:
                busy = grown(busy)
            push(busy, running, t + duration[i], i)
            running += 1
