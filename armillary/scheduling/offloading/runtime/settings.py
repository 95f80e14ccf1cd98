"""The settings of Gaia's runtime; defaults are those of the published runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from armillary.parameters import parameter

from . import rules


@dataclass(frozen=True)
class Settings:
    """Thresholds, windows and the parts that can be switched off."""

    upper_ms: float = parameter(1000.0, "the SLO: a 95th percentile above it promotes", range=(0.0, 1e9))
    gap_ms: float = parameter(200.0, "how much faster a backend must be to count as faster", range=(0.0, 1e9))
    guard_per_s: float = parameter(0.1, "below this rate over 1 min no latency decides; 0 needs one request only", range=(0.0, 1e9))
    window_s: float = parameter(600.0, "window of the latencies, and of what counts as a recent change", range=(60.0, 1e7))
    long_window_s: float = parameter(30_000.0, "window of the latency that is stored for a mode that is left", range=(60.0, 1e9))
    settle_s: float = parameter(120.0, "rules 3 and 4 wait so long after a change", range=(0.0, 1e7))
    dwell_s: float = parameter(120.0, "no rule changes a mode again sooner than this (ours)", range=(0.0, 1e7))
    hopeless_ms: float = parameter(100_000.0, "from this latency on, the CPU is given up for good", range=(0.0, 1e9))
    idle_per_s: float = parameter(0.01, "a GPU with a lower rate over 30 min is unused", range=(0.0, 1e9))
    fast_ms: float = parameter(2000.0, "an unused GPU is given back if the CPU's latency was below this", range=(0.0, 1e9))
    interval_s: float = parameter(30.0, "seconds between two looks", range=(1.0, 1e6))
    remember: Literal["max", "last"] = parameter("max", "which stored latency of a mode counts, the largest or the last")
    quantile: Literal["histogram", "exact"] = parameter("histogram", "read the 95th percentile from Knative's buckets, or exactly")
    skip_cold: bool = parameter(False, "leave out requests that waited for their pod to start")
    final: bool = parameter(True, "rule 0: a hopeless CPU makes the GPU final")
    demote: bool = parameter(True, "rule 3: give back a GPU that is not significantly faster")
    again: bool = parameter(True, "rule 4: return to a GPU that was significantly faster")
    give_back: bool = parameter(True, "rule 5: give back a GPU that nobody uses")
    device_loss: bool = parameter(True, "demote at once when the GPU's node vanishes (ours)")

    def compiled(self) -> npt.NDArray[np.float64]:
        """The settings as the compiled rules take them."""
        found = np.zeros(rules.SETTINGS)
        found[rules.UPPER_MS], found[rules.GAP_MS], found[rules.GUARD_PER_S] = self.upper_ms, self.gap_ms, self.guard_per_s
        found[rules.WINDOW_S], found[rules.SETTLE_S], found[rules.HOPELESS_MS] = self.window_s, self.settle_s, self.hopeless_ms
        found[rules.IDLE_PER_S], found[rules.FAST_MS], found[rules.REMEMBER_MAX] = self.idle_per_s, self.fast_ms, self.remember == "max"
        found[rules.USE_FINAL], found[rules.USE_DEMOTE], found[rules.USE_RETURN] = self.final, self.demote, self.again
        found[rules.USE_IDLE], found[rules.DWELL_S] = self.give_back, self.dwell_s
        return found
