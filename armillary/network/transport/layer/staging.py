"""Staging: both sides come to a transaction, and data move from memory to memory."""

from __future__ import annotations

from collections import Counter

import numpy as np

from armillary.engine import Event, Simulation
from armillary.network.transport.blocks.decomposition import Ints
from armillary.network.transport.simulation.transfers import Floats, Transfers

from .engine import Engine


class StagingEngine(Engine):
    """Memory to memory: both sides must be there, and a transaction begins when both have come to it.

    With `instant`, bytes take no time (DTLMod's message queues).
    """

    kind = "staging"

    def __init__(self, name: str, sim: Simulation, transfers: Transfers, *, instant: bool = False) -> None:
        super().__init__(name, sim, transfers)
        self.instant = instant
        #: By transaction: subscribers that have begun it, and that have asked for their data.
        self._begun_by: Counter[int] = Counter()
        self._asked_by: Counter[int] = Counter()

    def _may_start(self) -> Event | None:
        self._look()
        return self._event("start", self.opened, f"all subscribers of {self.name} to begin transaction {self.opened}")

    def _ended(self, publisher: int) -> None:
        pass

    def open_subscriber(self, node: int) -> int:
        """Adds a subscriber; one that comes late starts with the transaction that is not complete yet."""
        number = super().open_subscriber(node)
        self.begun[number] = self.completed
        return number

    def _begins(self, number: int) -> None:
        self._begun_by[number] += 1

    def _leaves(self, number: int) -> None:
        self._begun_by[number] -= 1

    def _all_begun(self) -> bool:
        if not self.open_subscribers:
            return bool(self.subscribers)
        return self._begun_by[self.opened] >= self.open_subscribers

    def _progress(self) -> None:
        if self.in_progress and not self.left and self._all_begun():
            self._fire("start", self.opened)
        if self._arrived and self.completed == self.opened and self._asked_by[self.opened] >= self._begun_by[self.opened]:
            self._arrived = 0
            self.in_progress = False
            self._fire("ended", self.completed)

    def _asks(self, subscriber: int) -> None:
        self._asked_by[self.begun[subscriber]] += 1
        self._ready.append(subscriber)

    def _move(self, source: Ints, target: Ints, nbytes: Floats, owner: Ints) -> None:
        if self.instant:
            self._missing -= np.bincount(owner, minlength=len(self._missing))
            return
        self.left += len(owner)
        self.transfers.send(source, target, nbytes, owner, self._got)

    def _part_done(self, many: int) -> None:
        self.left -= many
        if not self.left:
            self._look()
