"""What each part of Hestia brings: the same work with one part switched off at a time."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from armillary.scheduling.colocation.hestia import Hestia
from armillary.scheduling.colocation.simulation.play import Played, play
from armillary.scheduling.colocation.workload import ColocationWork

#: Which fields are changed, by name.
PARTS: dict[str, dict[str, Any]] = {
    "hestia": {},
    "tables only": {"top": 0},
    "symmetric tables": {"symmetric": True},
    "symmetric tables only": {"symmetric": True, "top": 0},
    "no hardware token": {"hardware": False},
    "no rescheduling": {"reschedule": False},
}


def ablation(work: ColocationWork, technique: Hestia | None = None) -> dict[str, Played]:
    """Each variant on this work."""
    whole = Hestia() if technique is None else technique
    return {name: play(work, replace(whole, **change)) for name, change in PARTS.items()}
