"""The messages of a simulated application: who sends how many bytes to whom in each iteration."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from armillary.errors import InputError

#: For each rank the (other rank, bytes) of what it sends, in the order of neighbours.
Table = tuple[tuple[tuple[int, int], ...], ...]


@dataclass(frozen=True)
class Pattern:
    """Messages between ranks that are placed on nodes in blocks of `per_node`; iteration k uses `tables[epochs[k]]`."""

    tables: tuple[Table, ...]
    epochs: tuple[int, ...]
    per_node: int

    def __post_init__(self) -> None:
        if self.per_node < 1 or self.ranks % self.per_node:
            raise InputError(f"decomposition: found {self.ranks} ranks in blocks of {self.per_node}; expected no node without ranks")
        for table in self.tables:
            for rank, sent in enumerate(table):
                for other, nbytes in sent:
                    if nbytes < 0:
                        raise InputError(f"rank {rank}: found {nbytes} bytes to rank {other}; expected 0 or more")
                    if not 0 <= other < self.ranks or other == rank:
                        raise InputError(f"rank {rank}: found a message to rank {other}; expected another of the {self.ranks} ranks")

    @property
    def ranks(self) -> int:
        """The number of ranks."""
        return len(self.tables[0])

    @property
    def nodes(self) -> int:
        """The number of nodes."""
        return self.ranks // self.per_node

    @property
    def iterations(self) -> int:
        """The number of iterations."""
        return len(self.epochs)

    @cached_property
    def received(self) -> tuple[Table, ...]:
        """For each table and rank the (other rank, bytes) of what it receives, by the number of the other rank."""
        found = []
        for table in self.tables:
            into: list[list[tuple[int, int]]] = [[] for _ in table]
            for rank, sent in enumerate(table):
                for other, nbytes in sent:
                    into[other].append((rank, nbytes))
            found.append(tuple(tuple(one) for one in into))
        return tuple(found)

    def near(self, a: int, b: int) -> bool:
        """Return whether two ranks share a node."""
        return a // self.per_node == b // self.per_node


def table_of(sent: Sequence[dict[int, int]]) -> Table:
    """Return a table from one dictionary of bytes by rank for each rank."""
    return tuple(tuple(sorted(one.items())) for one in sent)
