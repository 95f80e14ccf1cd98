"""List scheduling: a slot takes every job of the queue that fits, in order, on the QPUs with the most free qubits.

Bounds on multiprocessing timing anomalies, SIAM Journal on Applied Mathematics 1969.
"""

from __future__ import annotations

from dataclasses import dataclass

from .planning.placing import on_most_free
from .planning.strategy import Start, State, Strategy, filled


@dataclass(frozen=True)
class ListScheduling(Strategy):
    """Every job that fits, in queue order."""

    def select(self, state: State) -> list[Start]:
        """The jobs that start now."""
        return filled(state, state.queue, on_most_free)
