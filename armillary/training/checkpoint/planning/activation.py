"""When to profile again: as soon as the stall that an old plan has probably cost reaches the cost of a profile.

d is the largest distance over layers between the experts' shares now and at the last profile, d = max ½·Σ|p − p_ref|. The stall of keeping
the plan is predicted as σ̂ = a·max(0, d − d0); (a, d0) come from least squares over the last 64 pairs of distance and stall, with a
prior of a = half an iteration that weighs as much as one pair. This is ski rental: whoever buys when the rent paid equals the price pays at
most twice what hindsight would have paid.
"""

from __future__ import annotations

from collections import deque

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]
WINDOW = 64


def distance(shares: FloatArray, reference: FloatArray) -> float:
    """The largest total variation distance over layers, of shares [M, E]."""
    return float(0.5 * np.abs(shares - reference).sum(axis=1).max()) if shares.size else 0.0


class SpeculativeActivation:
    """Decides after every iteration whether the next one is profiled; a small machine without clocks.

    `kappa_s` is the cost of a profile in seconds, `prior_s` the prior of a: seconds of stall per unit of distance.
    """

    def __init__(self, kappa_s: float, prior_s: float) -> None:
        self.kappa_s, self.prior_s = kappa_s, prior_s
        self.reference: FloatArray | None = None
        #: Predicted stall since the last profile.
        self.owed_s = 0.0
        self._pairs: deque[tuple[float, float]] = deque(maxlen=WINDOW)

    def activated(self, shares: FloatArray) -> None:
        """A profile was taken at these shares."""
        self.reference = np.array(shares)
        self.owed_s = 0.0

    def fit(self) -> tuple[float, float]:
        """(a, d0) of the window and the prior: seconds of stall per unit of distance, and the distance that costs nothing."""
        if not self._pairs:
            return self.prior_s, 0.0
        d, stall = np.array(self._pairs).T
        away, pairs = d - d.mean(), len(d)
        spread = float((away * away).sum())
        fitted = float((away * (stall - stall.mean())).sum()) / spread if spread > 1e-12 else self.prior_s
        a = (pairs * fitted + self.prior_s) / (pairs + 1)
        if a <= 0:
            return 0.0, 0.0
        # A plan's stall at distance 0 is no reason to profile, so the free distance is never below 0.
        return a, max(0.0, float(d.mean()) - float(stall.mean()) / a)

    def expected_s(self, shares: FloatArray) -> float:
        """The predicted stall of an iteration with these shares under the current plan."""
        if self.reference is None:
            return 0.0
        a, free = self.fit()
        return a * max(0.0, distance(shares, self.reference) - free)

    def after(self, shares: FloatArray, stall_s: float) -> bool:
        """Whether to profile the next iteration, after one with these shares, whose stall was `stall_s` beyond what the plan said."""
        if self.reference is None:
            return True
        self._pairs.append((distance(shares, self.reference), stall_s))
        # Load is local in time, so the shares of the next iteration will be about these.
        soon = self.expected_s(shares)
        self.owed_s += soon
        return self.owed_s >= self.kappa_s or soon >= self.kappa_s
