"""`oversubscribed`: task-aware libraries, each of which keeps the full pool of threads that it starts with.

That is what happens to a program that mixes libraries and sets nothing: every worker's call may use all cores.

Álvarez, Sala and Beltran, nOS-V: co-executing HPC applications using system-wide task scheduling, 2022, describe the problem.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from armillary.arena import Claim

from .simulation.play import Rules
from .taskaware import TaskAware


@dataclass(frozen=True)
class Oversubscribed(TaskAware):
    """Task-aware libraries with full pools."""

    rules: ClassVar[Rules | None] = None
    claims: ClassVar[tuple[Claim, ...]] = ()

    def how(self) -> dict[str, Any]:
        """How the APIs are opened: full pools."""
        return {**super().how(), "threads": None}
