"""Ridge: the same system as the published model with a penalty on large powers instead of P ≥ 0 and of groups.

The penalty's strength is chosen by generalised cross-validation among 25 values, so nobody tunes it. Powers that the intervals cannot tell
apart get similar numbers rather than a common name, and some powers may be negative.

Hoerl and Kennard, Ridge regression: biased estimation for nonorthogonal problems, Technometrics 1970; Golub, Heath and Wahba, Generalized
cross-validation as a method for choosing a good ridge parameter, Technometrics 1979.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from armillary.arena import Technique, parameter
from armillary.runtime.energy.traces.tasks import Real

from .model.fitted import Fitted
from .model.observed import Metered
from .model.solving import reduced, relative_weights, solve, times

GRID = tuple(10.0 ** (-8 + k / 3) for k in range(25))


@dataclass(frozen=True)
class Ridge(Technique):
    """Watts per type by ridge regression."""

    strength: float = parameter(0.0, "the penalty on powers of unit columns; 0 chooses it by cross-validation", range=(0, 1e3))

    def fit(self, run: Metered) -> Fitted:
        """The powers of one domain."""
        seen = run.observed
        weight = relative_weights(seen.energy)
        strength = self.strength or chosen(seen.seconds, seen.energy, weight)
        found = solve(seen.seconds, seen.energy, nonnegative=False, ridge=strength)
        power = {name: float(found.power[j]) for j, name in enumerate(seen.columns)}
        return Fitted(power, condition=found.condition, solution=found, observed=seen, note=f"The penalty is {strength:.3g}.")


def chosen(a: Real, energy: Real, weight: Real) -> float:
    """The strength with the least generalised cross-validation error, n · RSS/(n − degrees of freedom)²."""
    n = len(energy)
    r, right, scale = reduced(a, energy, weight)
    # Residuals of plain least squares are at right angles to the columns, so their square is a constant that all strengths share.
    best = solve(a, energy, nonnegative=False, huber=False, ridge=1e-14).power
    rest = float((((energy - times(a, best)) * weight) ** 2).sum())
    left, singular, _ = np.linalg.svd(r)
    turned = left.T @ right
    del scale

    def error(strength: float) -> float:
        shrunk = strength / (singular**2 + strength)
        return n * (rest + float(((shrunk * turned) ** 2).sum())) / (n - float((1.0 - shrunk).sum())) ** 2

    return min(GRID, key=error)


