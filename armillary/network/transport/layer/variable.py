"""A variable of a stream, and which part of it each publisher holds and each subscriber wants."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from armillary.errors import InputError
from armillary.network.transport.blocks.decomposition import Ints, checked_shape
from armillary.network.transport.blocks.redistribution import Redistribution, check_disjoint, checked_blocks, intersections
from armillary.network.transport.reduction.reduction import Reduction


class Variable:
    """A global array in blocks of its publishers; `begin` and `size` have one row per publisher, and an empty block for those without."""

    def __init__(self, name: str, shape: Sequence[int], itemsize: int, reduction: Reduction) -> None:
        self.name = name
        self.shape = checked_shape(shape, f"variable {name}")
        if isinstance(itemsize, bool) or not isinstance(itemsize, int) or not 1 <= itemsize <= 1 << 20:
            raise InputError(f"itemsize: found {itemsize!r}; expected 1 to {1 << 20} bytes", where=f"variable {name}")
        self.itemsize = itemsize
        self.reduction = reduction
        self._rows: dict[int, tuple[Sequence[int], Sequence[int]]] = {}
        self._blocks: tuple[Ints, Ints] | None = None
        self._kept: Ints | None = None
        self._tables: dict[bytes, Redistribution] = {}

    def hold(self, publisher: int, start: Sequence[int], count: Sequence[int]) -> None:
        """Says which block a publisher holds; it is checked with all others when data first move."""
        self._rows[publisher] = (tuple(start), tuple(count))
        self._blocks = self._kept = None
        self._tables.clear()

    def hold_all(self, start: Ints, count: Ints) -> None:
        """The same for publishers 0, 1 and so on at once."""
        self._blocks = checked_blocks(self.shape, start, count, f"variable {self.name}")
        check_disjoint(self._blocks, f"variable {self.name}")
        self._kept = None
        self._tables.clear()

    @property
    def blocks(self) -> tuple[Ints, Ints]:
        """(start, count) of all publishers."""
        if self._blocks is None:
            many = max(self._rows, default=-1) + 1
            none = ((0,) * len(self.shape), (0,) * len(self.shape))
            rows = [self._rows.get(i, none) for i in range(many)]
            self.hold_all(*(np.array([row[k] for row in rows], np.int64).reshape(many, len(self.shape)) for k in (0, 1)))
        assert self._blocks is not None
        return self._blocks

    def held(self, publisher: int) -> int:
        """Elements of one publisher's block."""
        return int(self.blocks[1][publisher].prod()) if publisher < len(self.blocks[1]) else 0

    @property
    def kept(self) -> Ints:
        """Elements that each publisher holds after a decimation at its side."""
        start, count = self.blocks
        if self._kept is None:
            if self.reduction.side == "publisher":
                count = self.reduction.blocks(self.shape, start, count)[1]
            self._kept = count.prod(axis=1)
        return self._kept

    def check_selection(self, start: Sequence[int], count: Sequence[int]) -> None:
        """Refuses a selection outside the variable."""
        first, size = np.asarray([start], np.int64), np.asarray([count], np.int64)
        checked_blocks(self.shape, first, size, f"selection of {self.name}")

    def parts(self, start: Ints, count: Ints) -> Redistribution:
        """Which publishers have parts of these selections, after a decimation at the publishers."""
        key = start.tobytes() + b"|" + count.tobytes()
        found = self._tables.get(key)
        if found is None:
            ours = self.blocks
            if self.reduction.kind == "decimation" and self.reduction.side == "publisher":
                ours = self.reduction.blocks(self.shape, *ours)
                start, count = self.reduction.blocks(self.shape, start, count)
            if len(self._tables) >= 16:
                self._tables.clear()
            found = self._tables[key] = intersections(ours, (start, count))
        return found
