"""The result of a run on ranks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from armillary.comm.counters import Counters
from armillary.errors import unknown

if TYPE_CHECKING:
    from armillary.engine import Timeline


class Ran(NamedTuple):
    """What a backend hands over when its ranks have ended: the value and the counters of each rank, and the messages nobody received."""

    values: list[Any]
    counters: Sequence[Mapping[str, Counters]]
    unreceived: list[str]
    #: Simulated seconds and their timeline; None on backends whose time is real.
    seconds: float | None = None
    timeline: Timeline | None = None


@dataclass(frozen=True)
class Result:
    """The result of a run: `values[i]` is what rank i returned, and `counters[i]` says by phase what it sent."""

    values: list[Any]
    counters: Sequence[Mapping[str, Counters]]
    #: Wall-clock seconds of the whole run, or simulated seconds on virtual ranks.
    seconds: float
    #: One line of text for each message that nobody received.
    unreceived: list[str]
    backend: str
    #: What happened on each rank, if virtual ranks were asked to record it.
    timeline: Timeline | None = None

    def __getitem__(self, rank: int) -> Any:
        return self.values[rank]

    def __len__(self) -> int:
        return len(self.values)

    def total(self, what: str, phase: str | None = None) -> float:
        """Return one of the counters, summed over the ranks, for one phase or for all phases."""
        if what not in Counters.__slots__:
            raise unknown("counter", what, Counters.__slots__)
        phases = [c for rank in self.counters for name, c in rank.items() if phase is None or name == phase]
        return sum(getattr(c, what) for c in phases)
