"""What each part of GreenK8s brings: the same work with one part switched off at a time."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from armillary.scheduling.green.greenk8s import GreenK8s
from armillary.scheduling.green.simulation.play import Played, play
from armillary.scheduling.green.workload import GreenWork

#: Which parameter of GreenK8s is changed, by name.
PARTS: dict[str, dict[str, Any]] = {
    "greenk8s": {},
    "persistence for a forecast": {"forecast": "persistence"},
    "climatology for a forecast": {"forecast": "climatology"},
    "median forecast": {"caution": 0.5},
    "no oversubscription": {"oversubscribe": False},
    "no deferral": {"defer": False},
    "no consolidation": {"consolidate": False},
    "no sleep": {"sleep": False},
    "no weight of energy": {"w_energy": 0.0},
    "no weight of the sun": {"w_green": 0.0},
    "no weight of packing": {"w_packing": 0.0},
    "no weight of coolness": {"w_cool": 0.0},
}


def ablation(work: GreenWork, technique: GreenK8s | None = None) -> dict[str, Played]:
    """Each variant on this work."""
    whole = GreenK8s() if technique is None else technique
    return {name: play(work, replace(whole, **change).policy(work)) for name, change in PARTS.items()}
