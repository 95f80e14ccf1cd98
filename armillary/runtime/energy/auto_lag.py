"""Auto-lag: the published model after its clocks were set right and the meter's window was found.

A reading that is noted late, or that averages over the last 25 of 100 ms, gives the energy of another stretch of time than the trace's.
Both numbers are those with the least residual: the lag among [−2, 2] periods, on a grid of eighths and then by golden section, because the
profile is piecewise quadratic with one valley per period; the window of a meter that samples power among shares of its period, in the same
way. Counters of energy have no window.

Our design beyond Fine-grain energy consumption modeling of HPC task-based programs, IEEE CLUSTER 2025, which needs aligned clocks.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from armillary.arena import Technique, parameter
from armillary.errors import InputError

from .model.fitted import Fitted
from .model.identifying import groups, merged
from .model.observed import Metered
from .model.solving import solve
from .taskwise import Taskwise

GOLDEN = (math.sqrt(5.0) - 1.0) / 2.0
#: Windows in periods; some meters average over longer than they wait. And a gain in the residual below which the plain reading is kept.
WINDOWS = (1.0, 0.75, 0.5, 0.35, 0.25, 0.15, 0.1, 2.0, 5.0, 10.0)
WORTH = 0.02


@dataclass(frozen=True)
class AutoLag(Technique):
    """Taskwise, with the clock offset and the averaging window estimated first."""

    periods: float = parameter(2.0, "how far clocks may be apart, in periods of the meter", range=(0.1, 20.0))
    windows: bool = parameter(True, "also look for the window that a meter of power averages over")

    def fit(self, run: Metered) -> Fitted:
        """The powers of one domain, and the lag and window with which they were found."""
        period = float(np.median(run.intervals.lengths))

        def residual(lag: float, window: float) -> float:
            try:
                seen = run.observe(round(lag * 1e9), window)
                columns = groups(seen)
                found = solve(merged(seen.seconds, columns), seen.energy, huber=False)
            except InputError:
                return math.inf
            return float(np.median(np.abs(found.residual)))

        sampled = self.windows and run.readings.form == "power"
        shares = WINDOWS if sampled else (1.0,)
        best = (residual(0.0, 0.0), 0.0, 0.0)
        for share in shares:
            window = 0.0 if share == 1.0 else share * period
            steps = np.linspace(-self.periods, self.periods, max(5, round(16 * self.periods) + 1)) * period
            profile = [residual(float(lag), window) for lag in steps]
            at = int(np.argmin(profile))
            around = (float(steps[max(0, at - 1)]), float(steps[min(len(steps) - 1, at + 1)]))
            lag = golden(lambda one, fixed=window: residual(one, fixed), *around)  # type: ignore[misc]
            best = min(best, (residual(lag, window), lag, window))
        plain = residual(0.0, 0.0)
        lag_s, window_s = best[1:] if best[0] < (1.0 - WORTH) * plain else (0.0, 0.0)
        seen = run.observe(round(lag_s * 1e9), window_s)
        found = Taskwise().fit_observed(seen)
        said = f"The meter's clock is {1e3 * lag_s:+.3g} ms off" + (f", its window {1e3 * window_s:.3g} ms" if window_s else "")
        return replace(found, lag_ns=round(lag_s * 1e9), window_s=window_s, note=f"{said}. {found.note}")


def golden(of: Callable[[float], float], low: float, high: float, steps: int = 20) -> float:
    """Where a function with one valley between `low` and `high` is least."""
    a, b = high - GOLDEN * (high - low), low + GOLDEN * (high - low)
    fa, fb = of(a), of(b)
    for _ in range(steps):
        if fa <= fb:
            high, b, fb = b, a, fa
            a = high - GOLDEN * (high - low)
            fa = of(a)
        else:
            low, a, fa = a, b, fb
            b = low + GOLDEN * (high - low)
            fb = of(b)
    return (low + high) / 2.0
