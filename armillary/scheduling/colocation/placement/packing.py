"""Which instance holds which hardware threads of which server."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from armillary.errors import InputError
from armillary.kernels import loop
from armillary.scheduling.contention import Fleet

Array = npt.NDArray[Any]
Ints = npt.NDArray[np.int64]


class Packing:
    """Instances on servers, one at a time put and taken. An instance without a server has −1.

    owner[m, t]: the instance that holds thread t of server m, −1 if none does, −2 where the server has no such thread.
    held[offsets[i]:offsets[i + 1]]: the threads of instance i, ascending.
    """

    def __init__(self, fleet: Fleet, threads: Array) -> None:
        self.fleet = fleet
        self.k: Ints = np.ascontiguousarray(threads, np.int64)
        self.offsets: Ints = np.concatenate(([0], np.cumsum(self.k))).astype(np.int64)
        self.held: Ints = np.full(int(self.offsets[-1]), -1, np.int64)
        self.server: Ints = np.full(len(self.k), -1, np.int64)
        self.owner: Ints = np.where(np.arange(int(fleet.threads.max())) < fleet.threads[:, None], -1, -2).astype(np.int64)
        self.free: Ints = fleet.threads.copy()
        #: Cores without any instance, of each server.
        self.empty: Ints = np.array([t.cores for t in fleet.topologies], np.int64)[fleet.kind]

    def rows(self, i: int) -> Ints:
        """The threads of instance i."""
        return self.held[self.offsets[i] : self.offsets[i + 1]]

    def put(self, i: int, m: int, threads: npt.ArrayLike) -> None:
        """Gives threads of server m to instance i; raises InputError unless they are k different free ones."""
        rows: Ints = np.sort(np.asarray(threads, np.int64))
        width = self.owner.shape[1]
        if self.server[i] >= 0 or len(rows) != self.k[i] or np.any(np.diff(rows) <= 0) or rows[0] < 0 or rows[-1] >= width:
            raise InputError(f"instance {i}: found {len(rows)} threads; expected {self.k[i]} different ones of an instance without a place")
        if np.any(self.owner[m, rows] != -1):
            t = int(rows[np.argmax(self.owner[m, rows] != -1)])
            raise InputError(f"instance {i}: found thread {t} of server {m}, which is not free")
        self.empty[m] -= self._whole(m, rows)
        self.owner[m, rows] = i
        self.held[self.offsets[i] : self.offsets[i + 1]] = rows
        self.server[i] = m
        self.free[m] -= len(rows)

    def take(self, i: int) -> None:
        """Takes instance i away from its server."""
        m, rows = int(self.server[i]), self.rows(i).copy()
        self.owner[m, rows] = -1
        self.free[m] += len(rows)
        self.empty[m] += self._whole(m, rows)
        self.held[self.offsets[i] : self.offsets[i + 1]] = -1
        self.server[i] = -1

    def _whole(self, m: int, rows: Ints) -> int:
        """How many of the cores of these threads are empty now."""
        topology = self.fleet.topology(m)
        return sum(bool((self.owner[m, held[held >= 0]] == -1).all()) for held in topology.members[np.unique(topology.core[rows])])

    def free_rows(self, m: int) -> Ints:
        """The free threads of a server, ascending."""
        return np.flatnonzero(self.owner[m] == -1)

    def copy(self) -> Packing:
        """An independent copy."""
        twin = Packing.__new__(Packing)
        twin.__dict__ = {name: value.copy() if isinstance(value, np.ndarray) else value for name, value in self.__dict__.items()}
        return twin

    def placed(self) -> tuple[Ints, Ints, Ints, Ints]:
        """(instances, their servers, offsets, threads) of all that have a place, as `contention.settle` takes them."""
        ids = np.flatnonzero(self.server >= 0)
        counts = self.k[ids]
        offsets = np.concatenate(([0], np.cumsum(counts))).astype(np.int64)
        pick = np.repeat(self.offsets[ids] - offsets[:-1], counts) + np.arange(offsets[-1])
        return ids, self.server[ids], offsets, self.held[pick]


@loop
def residents(owner, k, ids, offsets, threads):  # type: ignore[no-untyped-def]
    """Lists the instances of one server by their first threads; returns how many. k: threads of every instance.

    owner: the row of one server. ids, threads: as long as `owner`; offsets: one longer.
    """
    n = 0
    for t in range(len(owner)):
        i = owner[t]
        if i < 0:
            continue
        known = False
        for j in range(n):
            if ids[j] == i:
                known = True
                break
        if not known:
            ids[n] = i
            n += 1
    offsets[0] = 0
    for j in range(n):
        offsets[j + 1] = offsets[j] + k[ids[j]]
        place = offsets[j]
        for t in range(len(owner)):
            if owner[t] == ids[j]:
                threads[place] = t
                place += 1
    return n
