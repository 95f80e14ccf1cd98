"""What each part of DHRT brings: the same work with one part switched off at a time."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from armillary.scheduling.functions.dhrt import Dhrt
from armillary.scheduling.functions.simulation.play import Played, play
from armillary.scheduling.functions.workload import FunctionsWork

#: Which parameter of DHRT is changed, by name.
PARTS: dict[str, dict[str, Any]] = {
    "dhrt": {},
    "no counters": {"counters": False},
    "no node factors": {"node_factors": False},
    "owners' memory": {"learn_memory": False},
    "no raised quotas": {"raise_quota": False},
    "no admission": {"admission": False},
    "first come, first served": {"latest_start": False},
    "looks at events only": {"look_ms": 0.0},
    "no exploration": {"explore": 0.0},
    "no margin": {"z": 0.0},
}


def ablation(work: FunctionsWork, technique: Dhrt | None = None, seed: int = 0) -> dict[str, Played]:
    """Each variant on this work."""
    whole = Dhrt() if technique is None else technique
    return {name: play(work, replace(whole, **change).policy(work), np.random.default_rng(seed)) for name, change in PARTS.items()}
