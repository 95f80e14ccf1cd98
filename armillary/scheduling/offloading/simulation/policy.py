"""A technique's decision procedure as the compiled loop takes it, and what a controller sees at a look."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
#: Decision procedures of the compiled loop: a backend for good, one that is taken whenever it is there, and those that look.
FIXED, STATIC, ONE_SHOT, BANDIT, GAIA = 0, 1, 2, 3, 4
#: The backends.
CPU, GPU = 0, 1
#: Room for the state of any procedure.
STATE = 12
#: Places of what a controller sees of the current revision: the time; the backend; completed requests per second over 1 min and 30 min
#: and the 95th percentile in ms over the window (NaN before the first request); requests and their mean latency in ms since the last
#: look, and of the whole revision, without those that waited for a pod to start; and whether there is a GPU now.
NOW_S, BACKEND, RATE_1M, RATE_30M, P95_MS, COUNT, MEAN_MS, COUNT_ALL, MEAN_ALL_MS, GPU_UP = 0, 1, 2, 3, 4, 5, 6, 7, 8, 9
VIEW = 10
_NONE = np.zeros(1)


@dataclass(frozen=True)
class Policy:
    """A decision procedure with its settings; its first state and backend depend on the function's mode (0 to 3).

    `fallback` says whether the platform may put the function on the CPU while there is no GPU.
    """

    code: int
    settings: Floats = field(default_factory=lambda: _NONE)
    interval_s: float = 30.0
    window_s: float = 600.0
    long_window_s: float = 30_000.0
    exact: bool = False
    skip_cold: bool = False
    fallback: bool = True
    #: The backend of each mode, from cpu to gpu.
    start: tuple[int, int, int, int] = (CPU, CPU, GPU, GPU)
