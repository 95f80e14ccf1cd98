"""Node types and how many nodes there are of each."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from armillary.errors import InputError, one_line

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

#: The sizes that a call may get, in vCPUs.
MENU = (0.5, 1.0, 2.0, 4.0, 8.0, 16.0)
MOST_NODES, MOST_TYPES, MOST_CORES = 10_000, 16, 1_000_000


@dataclass(frozen=True)
class NodeType:
    """One kind of node. `speed` is relative to a standard core, `price` per core and hour."""

    name: str
    cores: float
    speed: float
    price: float
    memory_mb: float


@dataclass(frozen=True)
class Fleet:
    """Node types, how many nodes there are of each, and which type is the standard one. Nodes are numbered type by type."""

    types: tuple[NodeType, ...]
    counts: tuple[int, ...]
    standard: int = 0

    def __post_init__(self) -> None:
        if not 1 <= len(self.types) <= MOST_TYPES or len(self.types) != len(self.counts):
            raise InputError(f"found {len(self.types)} node types; expected 1 to {MOST_TYPES}, each with a count")
        if any(count < 0 for count in self.counts) or not 1 <= sum(self.counts) <= MOST_NODES:
            raise InputError(f"found {sum(self.counts):,} nodes; expected 1 to {MOST_NODES:,}")
        largest = max(kind.cores for kind in self.types)
        if sum(self.counts) * largest > MOST_CORES:
            raise InputError(f"found {sum(self.counts):,} nodes of up to {largest:g} cores; expected at most {MOST_CORES:,} cores in all")
        for kind in self.types:
            for what, value, most in (
                ("cores", kind.cores, 4096.0), ("speed", kind.speed, 1e3), ("price", kind.price, 1e6), ("memory_mb", kind.memory_mb, 1e8),
            ):  # fmt: skip
                least = 0.5 if what == "cores" else 1e-3 if what != "memory_mb" else 64.0
                if not least <= value <= most:
                    where = f"node type {one_line(kind.name, 40)}"
                    raise InputError(f"{what}: found {value:g}; expected {least:g} to {most:g}", where=where)

    @property
    def node_type(self) -> Ints:
        """The type of each node."""
        return np.repeat(np.arange(len(self.types)), self.counts).astype(np.int64)

    def each(self, what: str) -> Floats:
        """A property of every type, as an array."""
        return np.array([getattr(kind, what) for kind in self.types], np.float64)

    @property
    def sizes(self) -> Floats:
        """The sizes of the menu that some node can give."""
        most = max(kind.cores for kind, count in zip(self.types, self.counts) if count)
        return np.array([v for v in MENU if v <= most], np.float64)

    @property
    def capacity(self) -> float:
        """Standard cores: cores times speed, over all nodes."""
        return float(sum(kind.cores * kind.speed * count for kind, count in zip(self.types, self.counts)))


#: The built-in nodes. Memory is 4 GB per core, which is ours.
TYPES = (NodeType("old", 16, 0.7, 0.65, 65536), NodeType("standard", 32, 1.0, 1.0, 131072), NodeType("fast", 16, 1.6, 1.9, 65536))


def built_in(times: int = 1) -> Fleet:
    """Three old, four standard and three fast nodes, `times` over."""
    return Fleet(TYPES, (3 * times, 4 * times, 3 * times), standard=1)
