"""Figures per record, file, rank and storage target, from which fragments are made."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import numpy as np

from ..logs.log import Log, Module
from ..logs.modules import BIN_NAMES, PREFIX, SMALL_BINS

if TYPE_CHECKING:
    import numpy.typing as npt

#: (name of the direction, counter of requests, end of the byte counters)
DIRECTIONS = {"read": ("READS", "READ"), "write": ("WRITES", "WRITTEN")}
EMPTY = Module("POSIX", np.empty(0, np.uint64), np.empty(0, np.int64), {})


class Facts:
    """Figures of one log; each is computed when it is first asked for."""

    def __init__(self, log: Log) -> None:
        self.log = log
        self.posix = log.modules.get("POSIX", EMPTY)
        self.stdio = log.modules.get("STDIO", EMPTY)
        self.mpi = log.modules.get("MPI-IO", EMPTY)

    def requests(self, direction: str) -> npt.NDArray[np.float64]:
        """POSIX requests of each record."""
        return self.posix.amount(f"POSIX_{DIRECTIONS[direction][0]}")

    def small(self, direction: str) -> npt.NDArray[np.float64]:
        """POSIX requests of at most 1 MiB of each record."""
        names = [f"POSIX_SIZE_{direction.upper()}_{name}" for name in BIN_NAMES[:SMALL_BINS]]
        return np.sum([self.posix.amount(name) for name in names], axis=0)

    def bytes(self, direction: str, module: Module | None = None) -> npt.NDArray[np.float64]:
        """Bytes of each record of a module, POSIX by default."""
        found = self.posix if module is None else module
        return found.amount(f"{PREFIX[found.name]}BYTES_{DIRECTIONS[direction][1]}")

    def time(self, direction: str, module: Module | None = None) -> npt.NDArray[np.float64]:
        """Seconds that each record's requests took, summed over ranks."""
        found = self.posix if module is None else module
        return found.amount(f"{PREFIX[found.name]}F_{direction.upper()}_TIME")

    @functools.cached_property
    def data_s(self) -> float:
        """Seconds in data requests through POSIX and STDIO, summed over ranks."""
        parts = [self.time(way, module).sum() for way in DIRECTIONS for module in (self.posix, self._named(self.stdio, "STDIO"))]
        return float(sum(parts))

    @functools.cached_property
    def meta_s(self) -> float:
        """Seconds in metadata calls through POSIX, summed over ranks."""
        return float(self.posix.amount("POSIX_F_META_TIME").sum())

    @property
    def io_s(self) -> float:
        """Seconds of I/O, summed over ranks."""
        return self.data_s + self.meta_s

    @functools.cached_property
    def moved(self) -> float:
        """Bytes read and written through POSIX and STDIO."""
        modules = (self.posix, self._named(self.stdio, "STDIO"))
        return float(sum(self.bytes(way, module).sum() for way in DIRECTIONS for module in modules))

    @staticmethod
    def _named(module: Module, name: str) -> Module:
        return module if module.name == name else Module(name, module.ids, module.ranks, {})

    def share(self, seconds: float) -> float:
        """Seconds as a share of the time in data requests."""
        return min(1.0, seconds / self.data_s) if self.data_s > 0 else 0.0

    @functools.cached_property
    def files(self) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.int64]]:
        """(numbers of the files in module POSIX, the place of each record's file among them)."""
        ids, place = np.unique(self.posix.ids, return_inverse=True)
        return ids, place.reshape(-1)

    def by_file(self, values: Any) -> npt.NDArray[np.float64]:
        """Sums of a figure of POSIX records by file."""
        ids, place = self.files
        return np.bincount(place, values, len(ids)).astype(np.float64)

    @functools.cached_property
    def collective(self) -> npt.NDArray[np.bool_]:
        """Whether at least half of a file's MPI-IO calls are collective, for each file of module POSIX."""
        ids, _ = self.files
        numbers, place = np.unique(self.mpi.ids, return_inverse=True)
        if not len(numbers):
            return np.zeros(len(ids), np.bool_)
        together = sum((self.mpi.amount(f"MPIIO_{kind}_{way}") for kind in ("COLL", "SPLIT") for way in ("READS", "WRITES")), np.zeros(1))
        alone = sum((self.mpi.amount(f"MPIIO_{kind}_{way}") for kind in ("INDEP", "NB") for way in ("READS", "WRITES")), np.zeros(1))
        a, b = (np.bincount(place.reshape(-1), part, len(numbers)) for part in (together, alone))
        yes = numbers[(a > 0) & (a >= b)]
        return np.isin(ids, yes)

    @functools.cached_property
    def users(self) -> npt.NDArray[np.float64]:
        """How many ranks moved data of each file, as far as the log tells: all where the fastest rank of a joined record moved some."""
        ids, place = self.files
        active = (self.requests("read") + self.requests("write")) > 0
        joined = self.posix.ranks < 0
        alone = np.bincount(place[active & ~joined], minlength=len(ids)).astype(np.float64)
        fastest = self.posix.column("POSIX_FASTEST_RANK_BYTES") > 0
        slowest, total = self.posix.amount("POSIX_SLOWEST_RANK_BYTES"), self.bytes("read") + self.bytes("write")
        all_of_it = (slowest >= total) & (total > 0)
        number = np.where(fastest, self.log.processes, np.where(all_of_it, 1, 2))
        number = np.where(active & joined, number, 0)
        return np.maximum(alone, np.bincount(place, number, len(ids)))

    @functools.cached_property
    def aggregated(self) -> npt.NDArray[np.bool_]:
        """Whether a file's collective MPI-IO calls are aggregated, for each file of module POSIX.

        They are if at most half of the ranks reach the file, or if the requests that reach it are not the ones that the ranks made.
        """
        ids, _ = self.files
        few = np.maximum(1.0, self.log.processes / 2)
        names = [f"MPIIO_{kind}_{way}" for kind in ("COLL", "SPLIT", "INDEP", "NB") for way in ("READS", "WRITES")]
        calls = sum((self.mpi.amount(name) for name in names), np.zeros(len(self.mpi)))
        numbers, place = np.unique(self.mpi.ids, return_inverse=True)
        asked = np.zeros(len(ids))
        if len(numbers):
            at = np.minimum(np.searchsorted(numbers, ids), len(numbers) - 1)
            asked = np.where(numbers[at] == ids, np.bincount(place.reshape(-1), calls, len(numbers))[at], 0.0)
        made = self.by_file(self.requests("read") + self.requests("write"))
        other = np.abs(made - asked) > 0.1 * np.maximum(made, asked)
        return self.collective & ((self.users <= few) | other)

    @functools.cached_property
    def slowest_s(self) -> npt.NDArray[np.float64]:
        """Seconds that the slowest rank of each file spends on it, for each file of module POSIX."""
        ids, place = self.files
        spent = self.time("read") + self.time("write") + self.posix.amount("POSIX_F_META_TIME")
        spent = np.where(self.posix.ranks < 0, self.posix.amount("POSIX_F_SLOWEST_RANK_TIME"), spent)
        found = np.zeros(len(ids))
        np.maximum.at(found, place, spent)
        return found

    @functools.cached_property
    def critical_s(self) -> float:
        """Seconds of I/O that the job waits for, as far as the log tells: the slowest rank's on shared files and on files of its own."""
        shared = self.posix.ranks < 0
        joined = float(self.posix.amount("POSIX_F_SLOWEST_RANK_TIME")[shared].sum())
        _, _, spent = self.by_rank()
        return joined + (float(spent.max()) if len(spent) else 0.0)

    def by_rank(self, only: npt.NDArray[np.bool_] | None = None) -> tuple[Any, Any, Any]:
        """(ranks with records of their own, bytes of each, seconds of each) over all files, or over those of `only`."""
        _, place = self.files
        mine = self.posix.ranks >= 0
        if only is not None:
            mine = mine & only[place]
        ranks, number = np.unique(self.posix.ranks[mine], return_inverse=True)
        moved = (self.bytes("read") + self.bytes("write"))[mine]
        spent = (self.time("read") + self.time("write") + self.posix.amount("POSIX_F_META_TIME"))[mine]
        number = number.reshape(-1)
        return ranks, np.bincount(number, moved, len(ranks)), np.bincount(number, spent, len(ranks))
