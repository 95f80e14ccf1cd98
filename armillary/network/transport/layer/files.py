"""Files: a transaction waits for disks, and not for its readers."""

from __future__ import annotations

import numpy as np

from armillary.engine import Event, Simulation
from armillary.network.transport.blocks.decomposition import Ints
from armillary.network.transport.simulation.transfers import Floats, Transfers

from .engine import Engine


class FileEngine(Engine):
    """Files: publishers write without waiting for subscribers, who may come later, even after the last publisher has closed."""

    kind = "file"

    def __init__(self, name: str, sim: Simulation, transfers: Transfers, *, shared: bool) -> None:
        super().__init__(name, sim, transfers)
        self.shared = shared
        #: Transactions whose files are written.
        self.written = 0
        self._for_files: list[int] = []
        self._writers: list[int] = []

    def _may_start(self) -> Event | None:
        last = self.opened - 1
        if self.written >= last:
            return None
        self._look()
        return self._event("written", last, f"the files of transaction {last} of {self.name}")

    def _ended(self, publisher: int) -> None:
        self._writers.append(publisher)

    def _write(self) -> None:
        """Starts the writes of publishers that have just ended: one file each, with all that they put."""
        many = np.array(self._writers, np.int64)
        self._writers = []
        total = np.zeros(len(self.publishers))
        for name, who in self._puts.items():
            variable = self.variables[name]
            kept = variable.kept
            putting = np.fromiter((p for p in who if p < len(kept)), np.int64)
            total[putting] += variable.reduction.bytes_of(kept[putting], variable.itemsize, name, self.opened)
        many = many[total[many] > 0.0]
        if len(many):
            self.left += len(many)
            nodes = np.array(self.publishers, np.int64)[many]
            self.transfers.write(nodes, total[many], many, self._stored, shared=self.shared)

    def _stored(self, owners: Ints) -> None:
        self.left -= len(owners)
        self._look()

    def _progress(self) -> None:
        if self._writers:
            self._write()
        if self._arrived and self.completed == self.opened:
            self._arrived = 0
            self.in_progress = False
            self._fire("ended", self.completed)
        if not self.left and self.written < self.completed and not self._arrived:
            self.written = self.completed
            self._fire("written", self.written)
        late = [s for s in self._for_files if self.begun[s] > self.written]
        if len(late) < len(self._for_files):
            self._ready += [s for s in self._for_files if self.begun[s] <= self.written]
            self._for_files = late

    def _asks(self, subscriber: int) -> None:
        self._for_files.append(subscriber)

    def _move(self, source: Ints, target: Ints, nbytes: Floats, owner: Ints) -> None:
        self.transfers.read(source, target, nbytes, owner, self._got, shared=self.shared)
