"""What each part of EquilibrIO brings: the same work with one part switched off at a time."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from armillary.scheduling.batch.equilibrio import EquilibrIO
from armillary.scheduling.batch.simulation.replay import Played
from armillary.scheduling.batch.workload import BatchWork

#: What is changed of EquilibrIO, by name.
PARTS: dict[str, dict[str, Any]] = {
    "equilibrio": {},
    "no pairs": {"pairs": False},
    "no crowd": {"crowd": False},
    "neither sum (EASY)": {"pairs": False, "crowd": False},
    "tolerance never grows": {"relax_per_h": 0.0},
    "no patience": {"patience_s": 1e9},
    "one past run": {"history": 1},
}


def ablation(work: BatchWork, technique: EquilibrIO | None = None) -> dict[str, Played]:
    """Each variant on this work."""
    whole = EquilibrIO() if technique is None else technique
    return {name: replace(whole, **change).play(work) for name, change in PARTS.items()}
