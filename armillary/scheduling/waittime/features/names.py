"""The features in their order, with their units, and which parts of the technique they belong to."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from armillary.learn.features import Feature

Floats = npt.NDArray[np.float64]

#: Columns of the sweep's matrix, in order: (name, unit). "ln" columns hold ln(1 + value).
COLUMNS = (
    ("free_nodes", ""), ("running_jobs", ""), ("running_node_s", "ln node s"), ("remaining_10", "ln s"), ("remaining_50", "ln s"),
    ("remaining_90", "ln s"), ("queued_jobs", ""), ("queued_nodes", ""), ("queued_node_s", "ln node s"), ("ahead_jobs", ""),
    ("ahead_nodes", ""), ("ahead_node_s", "ln node s"), ("head_age", "ln s"), ("starts_1h", ""), ("starts_24h", ""), ("submits_1h", ""),
    ("submits_24h", ""), ("hour_sin", ""), ("hour_cos", ""), ("day_sin", ""), ("day_cos", ""), ("nodes", ""), ("requested", "s"),
    ("node_s", "node s"), ("ln_nodes", "ln"), ("ln_requested", "ln s"), ("ln_node_s", "ln node s"), ("queue", ""), ("partition", ""),
    ("user_wait", "ln s"), ("user_accuracy", ""), ("user_unknown", ""), ("user_queued", ""), ("user_running", ""),
    ("executable_wait", "ln s"), ("executable_accuracy", ""), ("executable_unknown", ""), ("executable_queued", ""),
    ("executable_running", ""), ("forecast", "ln s"),
)  # fmt: skip
NAMES = tuple(name for name, _ in COLUMNS)
LOGS = frozenset(NAMES.index(name) for name, unit in COLUMNS if unit.startswith("ln") and not name.startswith("ln_"))
#: The columns that rest on the scheduler's plan, and those that rest on the past of users and executables.
PLANNED = frozenset({"ahead_jobs", "ahead_nodes", "ahead_node_s", "forecast"})
HISTORY = frozenset(name for name in NAMES if name.startswith(("user_", "executable_")))


def chosen(*, forecast: bool = True, history: bool = True) -> tuple[Feature, ...]:
    """The features that a model reads, with or without the scheduler's plan and with or without history."""
    left_out = (frozenset() if forecast else PLANNED) | (frozenset() if history else HISTORY)
    return tuple(Feature(name=name, unit=unit) for name, unit in COLUMNS if name not in left_out)


def columns(matrix: Floats, features: tuple[Feature, ...]) -> dict[str, Floats]:
    """The named columns of the sweep's matrix [jobs, all columns]."""
    return {one.name: matrix[:, NAMES.index(one.name)] for one in features}
