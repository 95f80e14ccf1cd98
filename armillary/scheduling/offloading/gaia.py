"""Gaia: a first guess from the code, then latency against the SLO decides, guarded against thrashing.

The device is a decision of the platform. When a function is deployed, its source is read once (nothing is executed) and gives one of four
modes. The two *preferred* modes are then revised every 30 s from what Prometheus says: a 95th percentile above the SLO promotes to the GPU;
a GPU that turns out to be no faster than the CPU was, or that nobody uses, is given back. The hard modes are never revised.

From the paper and its artifact: the four modes, the rules and their settings. Ours: the inspector is a real analysis of the syntax tree,
no rule changes a mode twice within two minutes, and a function whose GPU vanishes goes to the CPU at once.

Gaia: Hybrid Hardware Acceleration for Serverless AI in the 3D Compute Continuum. arXiv 2511.13728, BDCAT 2025.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from armillary.arena import Claim, Gain, Kind, Level, Technique

from .functions.curves import PRICES
from .runtime.settings import Settings
from .simulation.policy import GAIA, Policy

_PAPER, _OURS = "abstract", "ours"
_RIVALS = ("cpu-only", "gpu-only", "static-hint", "one-shot", "bandit")


@dataclass(frozen=True)
class Gaia(Settings, Technique):
    """Starts in the inspector's mode and revises it by latency, every 30 s."""

    claims: ClassVar[tuple[Claim, ...]] = (
        Claim(
            "latency_mean_ms", over="cpu-only", by=Gain(percent=(95, None)), on=Kind("accelerable", "simulated"), aggregate="max",
            circular="the latencies are those of the artifact's log, whose largest gain is 89 %",
            says="up to 95 % lower latency than on the CPU", source=_PAPER,
        ),
        Claim(
            "latency_mean_ms", over="cpu-only", by=Gain(percent=(95, None)), on=Kind("real-gpu"), aggregate="max", honest=(80, 99), part=60,
            why="another CPU and another GPU than the authors'", source=_PAPER,
            says="up to 95 % lower latency than on the CPU, on a real GPU",
        ),
        Claim(
            "captured", by=Level(at_least=0.8), on=Kind("accelerable", "simulated"), honest=(0.8, None), part=0.6,
            why="the paper gives no figure for its choice", source=_PAPER,
            says="selects the best hardware: most of what the GPU would bring",
        ),
        Claim(
            "cost_usd", over=_RIVALS, by=Gain(percent=(0, None)), on=Kind("requests", "simulated"), honest=(-10, None), part=-25,
            why="it pays for looking, and the best rival on each case is known in hindsight only", says="cost-efficient", source=_PAPER,
        ),
        Claim(
            "gpu_share", by=Level(at_most=0.5), on=Kind("idle-wait"), source=_PAPER,
            says="a function that only waits does not keep the GPU",
        ),
        Claim("gpu_share", by=Level(at_most=0.0), on=Kind("resnet18"), says="a function within its SLO gets no GPU", source=_PAPER),
        Claim(
            "latency_mean_ms", over=("one-shot", "bandit", "static-hint"), by=Gain(percent=(-5, None)), on=(Kind("drift"), Kind("bursts")),
            says="no slower than plainer choices where sizes drift or requests come in bursts", source=_OURS,
        ),
    )  # fmt: skip

    def policy(self, prices: tuple[float, float] = PRICES) -> Policy:
        """The rules inside the compiled loop."""
        return Policy(
            GAIA, self.compiled(), interval_s=self.interval_s, window_s=self.window_s, long_window_s=self.long_window_s,
            exact=self.quantile == "exact", skip_cold=self.skip_cold, fallback=self.device_loss,
        )  # fmt: skip
