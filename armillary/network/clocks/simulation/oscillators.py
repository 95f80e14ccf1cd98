"""Oscillators: how fast hardware clocks run, and how their frequency wanders.

A hardware clock runs at h(t) in [1, 1 + ρ]. Its frequency is a constant offset, white noise, a random walk and a slow wave of temperature,
clipped to the band, and changes by at most ν per second.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from armillary.errors import InputError, unknown

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Oscillators:
    """What is known of a network's oscillators; `rho` is the width ρ of the band, without unit."""

    rho: float = 1e-5
    #: White frequency noise: the standard deviation of the frequency averaged over one second.
    white: float = 0.0
    #: The standard deviation that the frequency gains per square root of a second.
    walk: float = 0.0
    #: The amplitude of the wave of temperature, and its period in seconds.
    temperature: float = 0.0
    wave_s: float = 600.0
    #: The most that the frequency changes per second.
    nu: float = 1e-6
    #: Each node's frequency above the band's lower end, as a file has it; drawn where it is empty.
    offsets: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        if not 0 < self.rho <= 1e-2:
            raise InputError(f"found a band of {self.rho:g}; expected more than 0 and at most 0.01", where="rho")
        for name in ("white", "walk", "temperature", "nu"):
            value = getattr(self, name)
            if not 0 <= value <= 1:
                raise InputError(f"found {value:g}; expected 0 to 1", where=name)
        if not self.wave_s > 0:
            raise InputError(f"found {self.wave_s:g}; expected more than 0 seconds", where="wave_s")

    @property
    def noisy(self) -> bool:
        """Whether frequencies change during a run."""
        return max(self.white, self.walk, self.temperature) > 0

    def drawn(self, nodes: int, rng: np.random.Generator) -> Floats:
        """Each node's frequency above the band's lower end, from 0 to ρ."""
        if self.offsets:
            return np.asarray(self.offsets, np.float64)
        return rng.random(nodes) * self.rho


#: Bands of the usual kinds, with noise of the size that such parts have: crystals, compensated crystals, ovens, and frequency by cable.
PRESETS = {
    "xo": Oscillators(1e-4, white=1e-9, walk=1e-8, temperature=1e-5, nu=1e-5),
    "tcxo": Oscillators(1e-6, white=1e-10, walk=1e-9, temperature=1e-7, nu=1e-7),
    "ocxo": Oscillators(1e-8, white=1e-12, walk=1e-12, temperature=1e-10, nu=1e-10),
    "synce": Oscillators(1e-11, white=1e-13, walk=1e-14, nu=1e-12),
}


def oscillators(stability: str, **changes: float) -> Oscillators:
    """A preset by name ("xo", "tcxo", "ocxo" or "synce"), with changes."""
    if stability not in PRESETS:
        raise unknown("stability", stability, PRESETS)
    return replace(PRESETS[stability], **changes)  # type: ignore[arg-type]
