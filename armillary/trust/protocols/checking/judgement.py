"""What a technique makes of a protocol: whether it accepts it, why not, and the machines that it would run."""

from __future__ import annotations

from dataclasses import dataclass, field

from .machine import Machines


@dataclass(frozen=True)
class Judgement:
    """Accepted or not; `system` are the endpoints that would run, `extra` the labels that the technique added."""

    accepted: bool
    why: str = ""
    system: Machines | None = None
    extra: frozenset[str] = frozenset()
    #: Whether run-time monitors watch the endpoints.
    monitored: bool = False
    #: Configurations that were looked at.
    configurations: int = 0
    faults: tuple[str, ...] = field(default=())
