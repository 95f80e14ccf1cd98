"""How long the spans of the next iteration will take: profiles of single iterations, and a line through load and seconds of experts."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from .chunks import FloatArray

#: A spread of loads, as a share of their mean, at which the line counts as much as proportion does.
SPREAD = 0.05


class SpanModel:
    """Spans from profiles; between profiles, spans of experts follow the load of the most loaded rank: τ = t0 + slope · load.

    Spans without experts do not depend on the load, so that their mean over all profiles is kept. The line of each pass goes through the
    layers of the last two profiles (our design: layers with equal experts share it). Where their loads hardly differ, the line says little,
    and seconds in proportion to the load take its place.
    """

    def __init__(self, expert: npt.NDArray[np.int64], backward: npt.NDArray[np.bool_]) -> None:
        self._expert, self._passes = expert, [np.flatnonzero((expert >= 0) & (backward == back)) for back in (False, True)]
        self._fixed = expert < 0
        #: The number of profiles so far, the mean of the fixed spans, and the last two (spans, load).
        self.profiles = 0
        self._mean: FloatArray = np.zeros(len(expert))
        self._last: list[tuple[FloatArray, FloatArray]] = []
        #: (t0, slope) of the forward and of the backward pass; None without load.
        self.lines: list[tuple[float, float] | None] = [None, None]

    def profiled(self, spans: FloatArray, load: FloatArray) -> None:
        """Takes the spans of an iteration with this load [M]."""
        self.profiles += 1
        self._mean = self._mean + (spans - self._mean) / self.profiles
        self._last = [*self._last[-1:], (np.array(spans), np.array(load))]
        self.lines = [self._line(rows) for rows in self._passes]

    def _line(self, rows: npt.NDArray[np.int64]) -> tuple[float, float] | None:
        if not len(rows):
            return None
        x = np.concatenate([load[self._expert[rows]] for _, load in self._last])
        y = np.concatenate([spans[rows] for spans, _ in self._last])
        away, mean = x - x.mean(), float(x.mean())
        if mean <= 0:
            return None
        weight = len(x) * (SPREAD * mean) ** 2
        both = float((away * (y - y.mean())).sum()) + weight * float(y.mean()) / mean
        slope = both / (float((away * away).sum()) + weight)
        return float(y.mean()) - slope * mean, slope

    def predicted(self, load: FloatArray | None) -> FloatArray:
        """[S]: seconds for this load [M]; None takes the last profile as it is."""
        spans = self._last[-1][0]
        found = np.where(self._fixed, self._mean, spans)
        if load is not None:
            for rows, line in zip(self._passes, self.lines, strict=True):
                if line is not None:
                    found[rows] = np.maximum(0.0, line[0] + line[1] * load[self._expert[rows]])
        return found
