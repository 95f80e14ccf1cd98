"""The published functions: what a request takes on each backend, and what a start of a pod takes.

Medians of the log that was published with Gaia's artifact, in which six CPU requests of `matmul` (sizes 12,200 to 13,200) failed; values
between sizes are interpolated linearly. Cold starts are the first request less a warm one, one run each. A request and a start vary
around these values by a lognormal factor with a coefficient of variation of 0.05.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from armillary.errors import unknown

Floats = npt.NDArray[np.float64]
#: Dollars per second of a CPU pod and of a GPU pod.
PRICES = (0.000038, 0.000133)
#: The coefficient of variation of requests and starts.
VARIATION = 0.05
#: The sizes that the published script asks for, one after another.
SIZES = np.arange(0.0, 20_001.0, 200.0)


@dataclass(frozen=True)
class Function:
    """Latencies in ms by size for the CPU and the GPU, and seconds of their cold starts; one size where latency does not depend on it."""

    name: str
    sizes: tuple[float, ...]
    cpu_ms: tuple[float, ...]
    gpu_ms: tuple[float, ...]
    cold_s: tuple[float, float]

    @property
    def sized(self) -> bool:
        """Whether the latency depends on the size of a request."""
        return len(self.sizes) > 1

    def service_s(self, size: npt.ArrayLike) -> Floats:
        """Seconds of requests of these sizes on both backends, [2, requests]."""
        asked = np.asarray(size, np.float64)
        return np.stack([np.interp(asked, self.sizes, ms) / 1e3 for ms in (self.cpu_ms, self.gpu_ms)])


_THOUSANDS = tuple(1000.0 * k for k in range(21))
FUNCTIONS = {
    found.name: found
    for found in (
        Function(
            "matmul", _THOUSANDS,
            (110, 110, 144, 212, 324, 552, 763, 1161, 1530, 2123, 2802, 3608, 4698, 6327, 7206, 8908, 10525, 12520, 15028, 17455, 20564),
            (110, 111, 117, 149, 199, 271, 358, 485, 577, 762, 880, 1072, 1279, 1487, 1699, 1872, 2128, 2435, 2669, 2938, 3218),
            (3.2, 2.3),
        ),
        Function("resnet18", (0.0,), (189,), (152,), (3.3, 4.1)),
        Function("tinyllama-short", (0.0,), (600,), (140,), (23.0, 23.0)),
        Function("tinyllama-long", (0.0,), (16_300,), (2_090,), (34.0, 34.0)),
        Function("idle-wait", (0.0,), (2_077,), (2_077,), (2.64, 2.64)),
    )
}  # fmt: skip


def function(name: str) -> Function:
    """The published function of this name."""
    if name not in FUNCTIONS:
        raise unknown("function", name, FUNCTIONS)
    return FUNCTIONS[name]


def varied(rng: np.random.Generator, shape: int | tuple[int, ...], variation: float = VARIATION) -> Floats:
    """Lognormal factors with mean 1 and this coefficient of variation."""
    if variation <= 0:
        return np.ones(shape)
    sigma2 = np.log1p(variation**2)
    return rng.lognormal(-sigma2 / 2, np.sqrt(sigma2), shape)
