"""Small works that tests build by hand."""

from __future__ import annotations

from typing import Any

import numpy as np

from armillary.scheduling.energy import Carbon
from armillary.scheduling.green import GreenWork, Nodes, Pods, Sunshine
from armillary.scheduling.green.problem.sunshine import CELL, PAST, length

#: 4 cores, 16 GB, 45 W idle, 120 W peak, off 2 W, boot 60 s at 72 W.
SMALL = (4.0, 16.0, 45.0, 120.0, 1.0, 2.0, 60.0, 72.0)


def nodes_of(*rows: tuple[float, ...]) -> Nodes:
    """Nodes with these figures."""
    figures = rows or (SMALL,)
    return Nodes.table([f"n{i}" for i in range(len(figures))], np.array(figures))


def pods_of(*rows: dict[str, Any]) -> Pods:
    """Pods with these fields; the others are those of a batch pod of one core for an hour."""
    usual = {"submit_s": 0.0, "duration_s": 3600.0, "cpu": 1.0, "memory_gb": 1.0, "tier": 2, "app": 0, "slack_s": 0.0}
    made = [usual | row for row in rows]

    def column(name: str, kind: Any = np.float64) -> Any:
        return np.array([row[name] for row in made], kind)

    submit, duration, cpu = column("submit_s"), column("duration_s"), column("cpu")
    declared = np.array([row.get("declared_s", row["duration_s"]) for row in made])
    usage = np.array([row.get("usage", row["cpu"]) for row in made])
    return Pods(submit, duration, declared, cpu, column("memory_gb"), column("tier", np.int64), column("app", np.int64),
                submit + np.maximum(1.1 * duration, duration + 600) + column("slack_s"), usage, np.arange(len(made) + 1)).check()  # fmt: skip


def work_of(nodes: Nodes, pods: Pods, hours: float, sun: Any = None) -> GreenWork:
    """A work over some hours; `sun(hour)` gives watts, none by default."""
    slots = round(60 * hours)
    clock = (np.arange(length(slots)) - PAST + 0.5) / 60
    watts = np.zeros(len(clock)) if sun is None else np.maximum(0.0, np.array([sun(h) for h in clock]))
    assert slots % CELL == 0
    return GreenWork(nodes, pods, Sunshine(watts, watts), Carbon.flat(450.0))


def noon_sun(hour: float) -> float:
    """A clear day with 600 W at noon."""
    return 600 * float(np.sin(np.pi * (hour % 24 - 6) / 12)) if 6 < hour % 24 < 18 else 0.0
