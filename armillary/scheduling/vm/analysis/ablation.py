"""What each part of TRACE brings: the same work with one part switched off at a time."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from armillary.scheduling.vm.simulation.play import Played, play
from armillary.scheduling.vm.trace import Trace
from armillary.scheduling.vm.workload import VmWork

#: Which field of TRACE is changed, by name. The last two have shipped models of their own.
PARTS: dict[str, dict[str, Any]] = {
    "trace": {},
    "no gate": {"gate": False},
    "no mask": {"mask": False},
    "no sets": {"sets": False},
    "no cross layers": {"cross": False},
}


def ablation(work: VmWork, technique: Trace | None = None) -> dict[str, Played]:
    """Each variant on this work."""
    whole = Trace() if technique is None else technique
    return {name: play(work, replace(whole, **change).ranker(work)) for name, change in PARTS.items()}
