"""What each part of LACE-RL brings: the same work with one part switched off at a time."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from armillary.scheduling.keepalive.break_even import BreakEven
from armillary.scheduling.keepalive.lace_rl import LaceRl
from armillary.scheduling.keepalive.simulation.play import play
from armillary.scheduling.keepalive.workload import Counted, KeepAliveWork

#: Which field of LACE-RL is changed, by name. Each has a shipped model of its own except the last, which training does not depend on.
PARTS: dict[str, dict[str, Any]] = {
    "lace-rl": {},
    "blind to carbon": {"see_ci": False},
    "blind to reuse": {"see_reuse": False},
    "textbook DQN": {"full_feedback": False},
    "waits without limit": {"limit_waits": False},
}


def ablation(work: KeepAliveWork, technique: LaceRl | None = None) -> dict[str, Counted]:
    """Each variant on this work, at its λ, and break-even beside them."""
    whole = LaceRl() if technique is None else technique
    found = {name: Counted.of(work, play(work, replace(whole, **change).policy(work), work.lam)) for name, change in PARTS.items()}
    return found | {"break-even": Counted.of(work, play(work, BreakEven().policy(work), work.lam))}
