"""Which types to move to which device to save energy: joules per call on each kind of worker, from P times the duration."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from armillary.runtime.energy.model.fitted import Fitted
from armillary.runtime.energy.traces.tasks import TaskTrace


@dataclass(frozen=True)
class Move:
    """A type of task that costs less energy per call elsewhere: joules of a call beyond what an idle worker draws."""

    type: str
    source: str
    target: str
    joules_now: float
    joules_then: float
    calls: int

    def __str__(self) -> str:
        less = 100.0 * (1.0 - self.joules_then / self.joules_now)
        return (
            f"move {self.type} from {self.source} to {self.target}: {self.joules_then:.3g} J per call instead of {self.joules_now:.3g} J "
            f"({less:.0f} % less, {self.calls:,} calls)"
        )


def moves(trace: TaskTrace, models: Mapping[str, Fitted]) -> list[Move]:
    """What would save energy, most first; `models` has a fitted model for each kind of worker (`cpu`, `gpu`).

    A call costs (P_type − P_idle) × its mean duration on that kind, since its worker would otherwise be idle. It says nothing of the time
    that the schedule would then take, nor of the transfers that a move adds.
    """
    per_call: dict[str, dict[str, tuple[float, int]]] = {}
    kind_of = np.array([trace.kinds[int(w)] for w in trace.worker])
    for j, name in enumerate(trace.types):
        for kind, model in models.items():
            rows = (trace.type == j) & (kind_of == kind)
            column = name if name in model.power else f"{name}@{kind}"
            if j in trace.moves or not rows.any() or column not in model.power:
                continue
            seconds = float((trace.end - trace.start)[rows].mean()) * 1e-9
            each = max(0.0, model.power[column] - model.power.get("idle", 0.0)) * seconds
            per_call.setdefault(name, {})[kind] = (each, int(rows.sum()))
    found = []
    for name, kinds in per_call.items():
        best = min(kinds, key=lambda kind: kinds[kind][0])
        found += [Move(name, kind, best, each, kinds[best][0], calls) for kind, (each, calls) in kinds.items() if each > kinds[best][0]]
    return sorted(found, key=lambda one: (one.joules_then - one.joules_now) * one.calls)
