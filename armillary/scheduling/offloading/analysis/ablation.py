"""What each part of Gaia brings: the same work with one part switched off."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from armillary.scheduling.offloading.gaia import Gaia
from armillary.scheduling.offloading.simulation.play import Played, play
from armillary.scheduling.offloading.workload import OffloadingWork

#: The parts and how each is switched off.
PARTS: dict[str, dict[str, Any]] = {
    "gaia": {},
    "without the guard (rule 1)": {"guard_per_s": 0.0},
    "without rule 0": {"final": False},
    "without rule 3": {"demote": False},
    "without rule 4": {"again": False},
    "without rule 5": {"give_back": False},
    "the last latency instead of the largest": {"remember": "last"},
    "exact quantiles": {"quantile": "exact"},
    "exact quantiles without cold requests": {"quantile": "exact", "skip_cold": True},
    "without our two minutes": {"dwell_s": 0.0},
    "without our fallback": {"device_loss": False},
    "the artifact's code defaults": {"interval_s": 60.0, "window_s": 1800.0, "guard_per_s": 0.2},
}


def ablation(work: OffloadingWork) -> dict[str, Played]:
    """Gaia on a work, whole and with each part switched off."""
    return {name: play(work, replace(Gaia(), **change).policy()) for name, change in PARTS.items()}
