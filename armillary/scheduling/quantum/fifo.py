"""First in, first out: a slot takes the longest prefix of the queue that fits, on the QPUs with the most free qubits.

Parallel job scheduling: a status report, JSSPP 2004, describes this order as the plainest one.
"""

from __future__ import annotations

from dataclasses import dataclass

from .planning.placing import on_most_free
from .planning.strategy import Start, State, Strategy, filled


@dataclass(frozen=True)
class Fifo(Strategy):
    """The longest prefix that fits."""

    def select(self, state: State) -> list[Start]:
        """The jobs that start now."""
        return filled(state, state.queue, on_most_free, skip=False)
