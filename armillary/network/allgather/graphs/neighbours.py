"""Who sends to whom: a directed graph of ranks in which an edge may occur several times, and a rank may be its own neighbour.

Every rank numbers its sources and its destinations in an order of its own. The block of the i-th source goes to the i-th slot of what the
rank receives. If an edge occurs twice, the block is delivered twice, as MPI has it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from armillary.errors import InputError

Ints = npt.NDArray[np.int64]
Ranks = npt.NDArray[np.int32]

#: The most ranks, and the most edges, that a graph may have.
MOST_RANKS = 65_536
MOST_EDGES = 64_000_000


@dataclass(frozen=True, eq=False)
class Neighbours:
    """A graph of ranks as compressed lists: the destinations of each rank, and the sources of each rank."""

    ranks: int
    out_start: Ints
    destinations: Ranks
    in_start: Ints
    sources: Ranks

    @property
    def edges(self) -> int:
        """The number of edges, each counted as often as it occurs."""
        return len(self.sources)

    def out(self, rank: int) -> Ranks:
        """The ranks that this one sends to, in its order."""
        return self.destinations[self.out_start[rank] : self.out_start[rank + 1]]

    def into(self, rank: int) -> Ranks:
        """The ranks that this one receives from, in its order."""
        return self.sources[self.in_start[rank] : self.in_start[rank + 1]]

    @property
    def receiver(self) -> Ranks:
        """The rank behind each slot, parallel to `sources`."""
        return np.repeat(np.arange(self.ranks, dtype=np.int32), np.diff(self.in_start))

    @property
    def sender(self) -> Ranks:
        """The rank behind each entry of `destinations`."""
        return np.repeat(np.arange(self.ranks, dtype=np.int32), np.diff(self.out_start))

    def renumbered(self, new: npt.ArrayLike) -> Neighbours:
        """The same graph with rank i called `new[i]`, its lists sorted."""
        names = np.asarray(new, np.int64)
        return from_edges(self.ranks, names[self.sender], names[self.destinations])


def from_edges(ranks: int, source: npt.ArrayLike, destination: npt.ArrayLike) -> Neighbours:
    """The graph with these edges. Every rank's lists are sorted by neighbour."""
    give, take = np.asarray(source, np.int64), np.asarray(destination, np.int64)
    check_ranks(ranks, give, take)
    out_order = np.argsort(give * ranks + take, kind="stable")
    in_order = np.argsort(take * ranks + give, kind="stable")
    return Neighbours(ranks, _starts(give, ranks), take[out_order].astype(np.int32), _starts(take, ranks), give[in_order].astype(np.int32))


def from_matrix(needs: npt.NDArray[np.bool_]) -> Neighbours:
    """The graph in which rank i sends to rank j where `needs[i, j]`, without the cost of sorting edges."""
    ranks = len(needs)
    rows, columns = np.nonzero(needs)
    takers, givers = np.nonzero(needs.T)
    check_ranks(ranks, rows, columns)
    return Neighbours(ranks, _starts(rows, ranks), columns.astype(np.int32), _starts(takers, ranks), givers.astype(np.int32))


def from_lists(sources: Sequence[Any], destinations: Sequence[Any]) -> Neighbours:
    """The graph in which rank i lists `sources[i]` and `destinations[i]`; both sides must name the same edges."""
    ranks = len(sources)
    if len(destinations) != ranks:
        raise InputError(f"found {ranks} lists of sources and {len(destinations)} of destinations; expected one of each for every rank")
    ins = [_ranks(row, f"sources of rank {i}") for i, row in enumerate(sources)]
    outs = [_ranks(row, f"destinations of rank {i}") for i, row in enumerate(destinations)]
    for what, rows in (("source", ins), ("destination", outs)):
        for i, row in enumerate(rows):
            wrong = (row < 0) | (row >= ranks)
            if wrong.any():
                raise InputError(f"rank {i}: found {what} {row[wrong][0]}; expected ranks from 0 to {ranks - 1}")
    made = Neighbours(ranks, _lengths(outs), _joined(outs), _lengths(ins), _joined(ins))
    _check_agreement(made)
    return made


def check_ranks(ranks: int, give: npt.NDArray[Any], take: npt.NDArray[Any]) -> None:
    """Refuses too many ranks or edges, and neighbours that do not exist."""
    if not 1 <= ranks <= MOST_RANKS:
        raise InputError(f"found {ranks} ranks; expected 1 to {MOST_RANKS}")
    if len(give) > MOST_EDGES:
        raise InputError(f"found {len(give)} edges; expected at most {MOST_EDGES}")
    for what, row in (("source", give), ("destination", take)):
        wrong = (row < 0) | (row >= ranks)
        if wrong.any():
            raise InputError(f"edge {int(np.argmax(wrong))}: found {what} {row[np.argmax(wrong)]}; expected ranks from 0 to {ranks - 1}")


def _check_agreement(graph: Neighbours) -> None:
    """Every edge that a source names must be named by its destination as often, and the other way round."""
    ranks = graph.ranks
    said, heard = (
        np.sort(graph.sender.astype(np.int64) * ranks + graph.destinations),
        np.sort(graph.sources.astype(np.int64) * ranks + graph.receiver),
    )
    if np.array_equal(said, heard):
        return
    pairs = np.union1d(said, heard)
    times = np.searchsorted(said, pairs, "right") - np.searchsorted(said, pairs)
    again = np.searchsorted(heard, pairs, "right") - np.searchsorted(heard, pairs)
    first = int(np.flatnonzero(times != again)[0])
    a, b = divmod(int(pairs[first]), ranks)
    raise InputError(
        f"ranks {a} and {b} disagree: {a} lists {b} as a destination {times[first]}×, and {b} lists {a} as a source {again[first]}×"
    )


def _ranks(row: Any, where: str) -> Ints:
    found = np.asarray(row)
    if found.ndim != 1 or (found.size and found.dtype.kind not in "iu"):
        raise InputError(f"found {found.dtype} of {found.ndim} dimensions; expected a list of ranks", where=where)
    return found.astype(np.int64)


def _starts(sorted_or_not: npt.NDArray[Any], ranks: int) -> Ints:
    return np.concatenate(([0], np.cumsum(np.bincount(sorted_or_not, minlength=ranks)))).astype(np.int64)


def _lengths(rows: Sequence[Ints]) -> Ints:
    return np.concatenate(([0], np.cumsum([len(row) for row in rows]))).astype(np.int64)


def _joined(rows: Sequence[Ints]) -> Ranks:
    return np.concatenate([*rows, np.empty(0, np.int64)]).astype(np.int32)
