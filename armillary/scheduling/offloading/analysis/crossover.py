"""The size from which on a GPU pays: latency as a function of size, fitted online for both backends (our extension).

Each backend's latency is fitted as t(s) = a + b·s³ + c·s² by recursive least squares, which covers products of matrices and data that is
read. `route` sends a request to the backend with the lower predicted latency times price, where both pods are warm.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from armillary.errors import InputError
from armillary.scheduling.offloading.functions.curves import PRICES
from armillary.scheduling.offloading.simulation.policy import CPU, GPU, Floats

#: Sizes are scaled by this, which keeps the fit well conditioned.
_SCALE = 10_000.0
_TERMS = 3


@dataclass
class Crossover:
    """Latency by size of both backends, learned one request at a time; weight is the exponent of the price."""

    weight: float = 0.0
    _inverse: Floats = field(default_factory=lambda: np.stack([1e6 * np.eye(_TERMS)] * 2), repr=False)
    _fit: Floats = field(default_factory=lambda: np.zeros((2, _TERMS)), repr=False)
    _seen: Floats = field(default_factory=lambda: np.zeros(2), repr=False)

    def observe(self, backend: int, size: float, latency_s: float) -> None:
        """A request of this size took so long on a backend (0 is the CPU, 1 the GPU)."""
        if backend not in (CPU, GPU) or not (np.isfinite(size) and size >= 0 and np.isfinite(latency_s) and latency_s >= 0):
            raise InputError(f"found backend {backend}, size {size} and {latency_s} s; expected 0 or 1 and numbers of at least 0")
        x, inverse = _terms(size), self._inverse[backend]
        gain = inverse @ x / (1.0 + x @ inverse @ x)
        self._fit[backend] += gain * (latency_s - x @ self._fit[backend])
        self._inverse[backend] = inverse - np.outer(gain, x @ inverse)
        self._seen[backend] += 1

    def predicted_s(self, backend: int, size: float) -> float:
        """The latency that is expected; NaN before as many requests as the fit has terms."""
        return float(max(0.0, _terms(size) @ self._fit[backend])) if self._seen[backend] >= _TERMS else float("nan")

    def route(self, size: float) -> int:
        """The backend for a request of this size; the one with fewer observations while too little is known."""
        if self._seen.min() < _TERMS:
            return int(np.argmin(self._seen))
        dearer = (PRICES[GPU] / PRICES[CPU]) ** self.weight
        return GPU if dearer * self.predicted_s(GPU, size) < self.predicted_s(CPU, size) else CPU

    def size(self, largest: float = 20_000.0) -> float | None:
        """The smallest size from which on the GPU is taken up to `largest`; None if it never is."""
        sizes = np.linspace(0.0, largest, 2001)
        on_cpu = [k for k, size in enumerate(sizes) if self.route(float(size)) == CPU]
        first = on_cpu[-1] + 1 if on_cpu else 0
        return float(sizes[first]) if first < len(sizes) else None


def crossover(size: Floats, service_s: Floats, weight: float = 0.0) -> Crossover:
    """The fit to requests of which both backends' seconds are known, [2, requests]."""
    made = Crossover(weight)
    for k in range(len(size)):
        for backend in (CPU, GPU):
            made.observe(backend, float(size[k]), float(service_s[backend, k]))
    return made


def _terms(size: float) -> Floats:
    s = size / _SCALE
    return np.array([1.0, s * s, s**3])
