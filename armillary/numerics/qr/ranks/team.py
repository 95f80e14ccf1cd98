"""The ranks that factor one matrix together, with sums that have the same bits everywhere, the tree, and the costs of the work."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from armillary import arrays

from ..factors.triangles import Array, packed, unpacked
from . import rows as blocks

if TYPE_CHECKING:
    from armillary.comm import Communicator

#: Rates over that of a product, measured for 64 columns on one core with OpenBLAS 0.3.31: a Gram matrix, an LU of 512 rows, and a QR of
#: 1024 rows with its Q.
GRAM_EFFICIENCY, LU_EFFICIENCY, QR_EFFICIENCY = 0.65, 0.4, 0.2


@dataclass
class Team:
    """The ranks of `comm`, or this process alone where it is None.

    `rows` are there in all, and this rank's begin at `offset`. On virtual ranks each row of the block stands for `weight` rows when work
    is charged.
    """

    comm: Communicator | None = None
    weight: float = 1.0
    rows: int = 0
    offset: int = 0

    @property
    def rank(self) -> int:
        """This rank, from 0."""
        return 0 if self.comm is None else self.comm.rank

    @property
    def size(self) -> int:
        """How many ranks there are."""
        return 1 if self.comm is None else self.comm.size

    def work(self, flops: float, nbytes: float = 0.0) -> None:
        """Charges work to simulated time, and does nothing where time is real."""
        if self.comm is not None:
            self.comm.compute(flops=flops, bytes=nbytes)

    def on_rows(self, x: arrays.Array, per_row: float, passes: float, efficiency: float = 1.0) -> None:
        """Charges work on a block: flops of a row at this share of a product's rate, and how often the block is read or written."""
        if self.comm is not None:
            count = x.shape[0] * self.weight
            wide = np.dtype(blocks.host_type(x))
            self.work(per_row / efficiency * count * (4 if wide.kind == "c" else 1), passes * count * x.shape[1] * wide.itemsize)

    def total(self, words: Array) -> Array:
        """Returns the sum over the ranks, by recursive doubling: every backend gives the same bits."""
        if self.comm is None:
            return words
        with _fixed(self.comm):
            found: Array = self.comm.allreduce(np.ascontiguousarray(words))
        return found

    def most(self, words: Array) -> Array:
        """Returns the largest over the ranks, word by word."""
        if self.comm is None:
            return words
        from armillary.comm import MAX

        found: Array = self.comm.allreduce(np.ascontiguousarray(words), op=MAX)
        return found

    def before(self, count: int) -> int:
        """Returns the sum over the ranks before this one."""
        return 0 if self.comm is None else int(self.comm.exscan(np.array([count], np.int64))[0])

    def gathered(self, words: Array) -> Array:
        """Returns one row per rank."""
        if self.comm is None:
            return words[None]
        found: Array = self.comm.allgather(np.ascontiguousarray(words))
        return found

    def up(self, value: Any, combine: Callable[[Any, Any], Any]) -> Any:
        """Returns the values combined along the tree, at rank 0."""
        return value if self.comm is None else self.comm.tree_reduce(value, combine)

    def down(self, value: Any, expand: Callable[[Any], tuple[Any, Any]]) -> Any:
        """Returns what rank 0 has, divided along the tree."""
        return value if self.comm is None else self.comm.tree_down(value, expand)

    def gram(self, x: arrays.Array) -> Array:
        """Returns xᴴ x over all ranks: one allreduce of n(n+1)/2 words."""
        n = x.shape[1]
        self.on_rows(x, n * (n + 1), 1, GRAM_EFFICIENCY)
        return self.whole(blocks.gram(x))

    def whole(self, gram: Array) -> Array:
        """Returns the sum of the ranks' Gram matrices."""
        return unpacked(self.total(packed(gram)), gram.shape[0])

    def divide(self, x: arrays.Array, r: Array) -> None:
        """Divides in place, x ← x r⁻¹, on every rank; nothing is sent."""
        self.on_rows(x, x.shape[1] ** 2, 2)
        blocks.divide(x, r)

    def divide_and_gram(self, x: arrays.Array, r: Array) -> Array:
        """Divides in place, x ← x r⁻¹, and returns xᴴ x of the answer over all ranks, in one pass over the block and one allreduce."""
        n = x.shape[1]
        self.on_rows(x, n**2 + n * (n + 1) / GRAM_EFFICIENCY, 2)
        gram = blocks.divide(x, r, with_gram=True)
        assert gram is not None
        return self.whole(gram)

    def quotient_and_gram(self, x: arrays.Array, factors: Array, r: Array) -> tuple[arrays.Array, Array]:
        """Returns x·diag(factors)·r⁻¹ in a fresh block, and its Gram matrix over all ranks."""
        n = x.shape[1]
        self.on_rows(x, n**2 + n * (n + 1) / GRAM_EFFICIENCY, 2)
        room, gram = blocks.quotient(x, factors, r)
        return room, self.whole(gram)


@contextmanager
def _fixed(comm: Communicator) -> Iterator[None]:
    # A library's own sum adds in an order of its own choice.
    before = comm._chosen
    comm.choose(allreduce="recursive-doubling")
    try:
        yield
    finally:
        comm._chosen = before
