"""Applications: what each does to its neighbours, and how much it suffers from them.

Pressure p and sensitivity s are in [0, 1] for five resources: execution ports, private caches (L1 and L2), the last-level cache, memory
bandwidth, and input/output. They are drawn independently, so a loud application need not be frail: contention is asymmetric. No formula of
`settled` uses the fifth resource.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from armillary.errors import InputError, unknown

Floats = npt.NDArray[np.float64]
PORTS, PRIVATE, LLC, MEMORY, IO = range(5)
#: Beta parameters of (ports, private caches, last-level cache, memory, input/output) by kind of population. Those of `mixed` are the
#: specification's; the others turn up what a core shares or what a socket shares, and turn down the other (ours).
POPULATIONS: dict[str, tuple[tuple[float, float], ...]] = {
    "mixed": ((2.0, 3.0), (2.0, 3.0), (1.5, 3.0), (1.5, 3.0), (1.5, 3.0)),
    "sc-heavy": ((3.0, 2.0), (3.0, 2.0), (1.0, 4.0), (1.0, 4.0), (1.5, 3.0)),
    "ss-heavy": ((1.0, 4.0), (1.0, 4.0), (2.0, 3.0), (2.0, 3.0), (1.5, 3.0)),
    "calm": ((2.0, 3.0), (2.0, 3.0), (1.5, 3.0), (1.5, 3.0), (1.5, 3.0)),
}
#: CPU-seconds per request: median and spread; coefficients of variation of the service time (ours).
MEDIAN_S, SPREAD, CVS = 0.004, 0.8, (0.5, 1.5)


@dataclass(frozen=True)
class Applications:
    """A applications: `pressure` and `sensitivity` [A, 5] in [0, 1], CPU-seconds per request [A], and the CV of service times [A]."""

    pressure: Floats
    sensitivity: Floats
    cpu_s: Floats
    cv: Floats

    def __post_init__(self) -> None:
        for name in ("pressure", "sensitivity"):
            found = np.ascontiguousarray(getattr(self, name), np.float64)
            if found.ndim != 2 or found.shape[1] != 5 or not len(found) or not ((found >= 0) & (found <= 1)).all():
                raise InputError(f"{name}: found an array of shape {found.shape}; expected [applications, 5] of numbers from 0 to 1")
            object.__setattr__(self, name, found)
        if self.pressure.shape != self.sensitivity.shape:
            raise InputError(f"found {len(self.pressure)} pressures and {len(self.sensitivity)} sensitivities; expected equally many")
        for name, least in (("cpu_s", 1e-9), ("cv", 0.0)):
            found = np.ascontiguousarray(getattr(self, name), np.float64)
            if found.shape != (len(self),) or not ((found >= least) & (found <= 1e6)).all():
                raise InputError(f"{name}: expected {len(self)} numbers from {least:g} to 1e6")
            object.__setattr__(self, name, found)

    def __len__(self) -> int:
        return len(self.pressure)

    @property
    def sigma(self) -> Floats:
        """The spread of lognormal service times with these CVs, [A]."""
        return np.array([math.sqrt(math.log1p(v * v)) for v in self.cv.tolist()])

    @staticmethod
    def of(pressure: Any, sensitivity: Any, cpu_s: Any = 1.0, cv: Any = 1.0) -> Applications:
        """Applications from plain lists; `cpu_s` and `cv` may be one number for all."""
        p = np.atleast_2d(np.asarray(pressure, np.float64))
        full = [np.broadcast_to(np.asarray(v, np.float64), (len(p),)) for v in (cpu_s, cv)]
        return Applications(p, np.atleast_2d(np.asarray(sensitivity, np.float64)), *full)


def draw_applications(rng: np.random.Generator, count: int, population: str = "mixed") -> Applications:
    """Draws `count` applications: pressures, sensitivities (0 in `calm`), CPU-seconds per request, and CVs, in this order."""
    if population not in POPULATIONS:
        raise unknown("population", population, POPULATIONS)
    shapes = POPULATIONS[population]
    pressure = np.stack([rng.beta(a, b, count) for a, b in shapes], axis=1)
    sensitivity = np.stack([rng.beta(a, b, count) for a, b in shapes], axis=1)
    cpu_s = MEDIAN_S * rng.lognormal(0.0, SPREAD, count)
    cv = rng.uniform(*CVS, count)
    return Applications(pressure, np.zeros_like(sensitivity) if population == "calm" else sensitivity, cpu_s, cv)
