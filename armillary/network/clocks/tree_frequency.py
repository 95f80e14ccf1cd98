"""A tree whose clocks also share the root's frequency, which travels in the signal of the cable: Synchronous Ethernet and White Rabbit.

Without drift between measurements, only the errors of the links add up along the tree. It needs hardware in every node and on every link.

Moreira, Serrano, Włostowski et al., White Rabbit: sub-nanosecond timing distribution over Ethernet, ISPCS 2009.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from armillary.arena import parameter

from .simulation.discipline import Discipline, Synchronised
from .tree import Servos

if TYPE_CHECKING:
    from .workload import ClockWork


@dataclass(frozen=True)
class TreeFrequency(Synchronised):
    """A servo per clock along a tree, with frequencies locked to the root's."""

    gain: float = parameter(0.1, "the part of the measured difference by which a clock moves", range=(0.001, 1.0))

    def start(self, work: ClockWork) -> Discipline:
        """Clocks that follow their parents at the root's frequency."""
        return Servos(work, self.gain, 0.0, locked=True)
