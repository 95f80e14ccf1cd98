"""What each part of DDRM brings: the same work with one part switched off at a time."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from armillary.scheduling.microservices.ddrm import Ddrm
from armillary.scheduling.microservices.simulation.play import Played, play
from armillary.scheduling.microservices.workload import MicroservicesWork

#: Which parameter of DDRM is changed, by name. The last four train a model on first use.
PARTS: dict[str, dict[str, Any]] = {
    "ddrm": {},
    "no shield": {"shield": False},
    "no decider": {"decider": False},
    "raises the busiest": {"by_slope": False},
    "no calm rule": {"calm": False},
    "p_max 0.05": {"p_max": 0.05},
    "p_max 0.2": {"p_max": 0.2},
}
TRAINED: dict[str, dict[str, Any]] = {
    "no relations": {"relations": False},
    "no foresight": {"foresight": False},
    "no lesson": {"lesson": False},
    "no practice": {"practice": False},
}


def ablation(work: MicroservicesWork, technique: Ddrm | None = None, *, trained: bool = False) -> dict[str, Played]:
    """Each variant on this work; with `trained` also those whose models are trained on first use (a minute each)."""
    whole = Ddrm() if technique is None else technique
    variants = PARTS | (TRAINED if trained else {})
    return {name: play(work, replace(whole, **change).controller(work.application)) for name, change in variants.items()}
