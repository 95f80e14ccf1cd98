"""What a run on ranks gives back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from armillary.comm.counters import Counters
from armillary.errors import unknown

if TYPE_CHECKING:
    from armillary.engine import Timeline


class Ran(NamedTuple):
    """What a backend hands over when its ranks have ended: what each returned, what each counted, messages that nobody received."""

    values: list[Any]
    counters: Sequence[Mapping[str, Counters]]
    unreceived: list[str]
    #: Simulated seconds, and what happened in them; None where time is real.
    seconds: float | None = None
    timeline: Timeline | None = None


@dataclass(frozen=True)
class Result:
    """What a run gives: `values[i]` is what rank i returned, `counters[i]` what it sent, by phase."""

    values: list[Any]
    counters: Sequence[Mapping[str, Counters]]
    #: Wall seconds of the whole run; simulated seconds on virtual ranks.
    seconds: float
    #: Messages that nobody received, in words.
    unreceived: list[str]
    backend: str
    #: What happened on each rank, where virtual ranks were asked to keep it.
    timeline: Timeline | None = None

    def __getitem__(self, rank: int) -> Any:
        return self.values[rank]

    def __len__(self) -> int:
        return len(self.values)

    def total(self, what: str, phase: str | None = None) -> float:
        """One of the counters, summed over the ranks, of one phase or of all."""
        if what not in Counters.__slots__:
            raise unknown("counter", what, Counters.__slots__)
        phases = [c for rank in self.counters for name, c in rank.items() if phase is None or name == phase]
        return sum(getattr(c, what) for c in phases)
