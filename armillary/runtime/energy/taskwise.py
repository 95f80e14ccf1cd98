"""Taskwise: the power of each type of task from a meter that reads every 10 to 100 ms.

A run has thousands of intervals between two readings and a dozen types of tasks, and the trace says how long each type ran inside each
interval: E_k = Σ_j P_j A[k, j]. So the powers follow from an overdetermined system, although no task is as long as an interval.

    min ‖D(E − A P)‖², P ≥ 0,   D_kk = 1/max(E_k, median E / 10)

A column per type and kind of worker, one for idle workers and one per kind of transfer. A constant power is the sum of all columns, since
busy and idle time make up the workers times the length; so it is left in the P_j (then each has its share of it), or given as `base_w`
from an idle run and subtracted. Types that the intervals cannot tell apart are one group. One pass of Huber's weights takes the force from
intervals in which something else drew power.

Fine-grain energy consumption modeling of HPC task-based programs, IEEE CLUSTER 2025. Only the abstract could be had: the weights, the
grouping, the Huber pass, the QR reduction and the uncertainty are our design.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from armillary.arena import Claim, Gain, Kind, Level, Technique, parameter
from armillary.errors import InputError

from .model.fitted import Fitted
from .model.identifying import groups, merged
from .model.observed import Metered, Observed
from .model.solving import solve


@dataclass(frozen=True)
class Taskwise(Technique):
    """Watts per type of task by constrained least squares over the meter's intervals."""

    weights: bool = parameter(True, "minimise relative errors; false: joules")
    nonnegative: bool = parameter(True, "no power below 0")
    huber: bool = parameter(True, "one pass of Huber's weights against intervals in which something else drew power")
    merging: bool = parameter(True, "report types that cannot be told apart as one group")
    base_w: float = parameter(0.0, "watts of the domain beside its workers, from an idle run; 0 leaves them in the powers", range=(0, 1e6))

    claims = (
        Claim(
            "mape", by=Level(at_most=5.0), on=Kind("cpu", "simulated"), stand_in="meter",
            says="on CPUs the mean absolute percentage error is 0.5 to 5 %", source="abstract",
        ),
        Claim(
            "mape", by=Level(at_most=28.0), on=Kind("gpu", "simulated"), stand_in="meter",
            says="on GPUs the mean absolute percentage error is 10 to 28 %", source="abstract",
        ),
        Claim(
            "mape", by=Level(at_most=5.0), on=Kind("cpu", "meter"), needs="a readable RAPL counter",
            says="on CPUs the mean absolute percentage error is 0.5 to 5 %, with a real meter", source="abstract",
        ),
        Claim(
            "mape", by=Level(at_most=28.0), on=Kind("gpu", "meter"), needs="an NVIDIA GPU and a program of tasks on it",
            says="on GPUs the mean absolute percentage error is 10 to 28 %, with a real meter", source="abstract",
        ),
        Claim(
            "transfer_error", by=Level(at_most=5.0), on=Kind("cpu", "simulated"), stand_in="meter",
            says="a solution from one run predicts runs under other policies, on CPUs", source="abstract",
        ),
        Claim(
            "transfer_error", by=Level(at_most=28.0), on=Kind("gpu", "simulated"), stand_in="meter",
            says="a solution from one run predicts runs under other policies, on GPUs", source="abstract",
        ),
        Claim(
            "task_error", over=("share", "isolated", "average", "counters"), by=Gain(ratio=(2.0, None)),
            on=(Kind("cpu", "simulated"), Kind("gpu", "simulated")), stand_in="meter",
            says="the powers of types are at least twice as exact as by shares, isolated runs, one average or counters", source="ours",
        ),
        Claim(
            "task_error", over=("share", "busy-idle", "isolated", "average", "counters", "ridge", "auto-lag"), by=Gain(ratio=(1.0, None)),
            on=(Kind("cpu", "simulated"), Kind("gpu", "simulated")), stand_in="meter",
            says="no other technique of the arena finds the powers of types more exactly", source="ours",
        ),
        Claim(
            "mape", over="busy-idle", by=Gain(ratio=(1.2, None)), on=Kind("mix"), stand_in="meter",
            says="on runs whose mix of types differs from the fitted one, errors are 1.2 times lower than with busy and idle time alone",
            source="ours",
        ),
    )  # fmt: skip

    def fit(self, run: Metered) -> Fitted:
        """The powers of one domain."""
        return self.fit_observed(run.observed)

    def fit_observed(self, seen: Observed) -> Fitted:
        """The powers from a system that was built already."""
        columns = groups(seen) if self.merging else [[j] for j in range(len(seen.columns))]
        if len(seen.energy) < len(columns):
            raise InputError(f"found {len(seen.energy)} intervals for {len(columns)} columns of types; expected at least as many")
        energy = seen.energy - self.base_w * seen.lengths
        if (energy <= 0).any():
            raise InputError(f"base_w: found {self.base_w:g} W, which is more than an interval's {seen.energy.min():g} J; expected less")
        found = solve(
            merged(seen.seconds, columns), energy, weights=self.weights, nonnegative=self.nonnegative, huber=self.huber
        )  # fmt: skip
        power = {seen.columns[j]: float(found.power[i]) for i, one in enumerate(columns) for j in one}
        named = tuple(tuple(seen.columns[j] for j in one) for one in columns)
        base = f"each power has 1/{seen.workers} of the base in it" if seen.workers > 1 else "the base is in each power"
        base = f"{self.base_w:g} W of base were subtracted" if self.base_w else base
        return Fitted(power, self.base_w, named, found.condition, found, seen, note=f"{base[0].upper()}{base[1:]}.")


def relative(seen: Observed, fitted: Fitted) -> np.ndarray:
    """(E_k − Ê_k)/E_k of each interval."""
    return np.asarray((seen.energy - fitted.predict(seen)) / seen.energy)
