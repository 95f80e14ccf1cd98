"""A Hermitian matrix of blocks in a chain, each coupled to the next, and an arrow of rows that are coupled to all of them.

D0  .   .   .  |             diagonal[i] = D_i (b×b), lower[i] = block (i+1, i) (b×b),
L0  D1  .   .  |             arrow[i] = block (tip, i) (a×b), tip (a×a)
.   L1  D2  .  |
--- arrow ---- tip           what stands above the diagonal is the adjoint of what stands below
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from armillary import arrays
from armillary.arrays.kinds import FLOATING, dtype_name
from armillary.errors import InputError

from .kernels import adjoint

if TYPE_CHECKING:
    from scipy.sparse import csr_array

#: How far a matrix may be from its adjoint, relative to its largest entry, before it is refused.
ASYMMETRY = 1e-10


@dataclass(frozen=True)
class BlockArrow:
    """The blocks: `diagonal` (n, b, b), `lower` (n−1, b, b), `arrow` (n, a, b), `tip` (a, a); NumPy, CuPy or torch, one dtype and device.

    `sizes` are the true sizes of the blocks where they are not all b: a smaller one is padded at its end, with ones on the diagonal and
    zeros elsewhere, which changes neither the inverse of the rest nor the determinant.
    """

    diagonal: arrays.Array
    lower: arrays.Array
    arrow: arrays.Array
    tip: arrays.Array
    sizes: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        parts = {"diagonal": self.diagonal, "lower": self.lower, "arrow": self.arrow, "tip": self.tip}
        arrays.device_of(*parts.values())
        for name, x in parts.items():
            if dtype_name(x) not in FLOATING or x.dtype != self.diagonal.dtype:
                raise InputError(f"found {dtype_name(x)} in {name}; expected one of {', '.join(FLOATING)} for all blocks", where="blocks")
        if self.diagonal.ndim != 3 or self.diagonal.shape[1] != self.diagonal.shape[2] or 0 in self.diagonal.shape:
            raise InputError(f"found a diagonal of shape {tuple(self.diagonal.shape)}; expected (n, b, b), not empty", where="blocks")
        n, b, a = self.n, self.b, self.tip.shape[0] if self.tip.ndim else -1
        for name, expected in (("lower", (n - 1, b, b)), ("arrow", (n, a, b)), ("tip", (a, a))):
            if tuple(parts[name].shape) != expected:
                raise InputError(f"found {name} of shape {tuple(parts[name].shape)}; expected {expected}", where="blocks")
        if self.sizes and (len(self.sizes) != n or not all(1 <= size <= b for size in self.sizes)):
            raise InputError(f"found {len(self.sizes)} sizes; expected one for each of the {n} blocks, 1 to {b}", where="blocks: sizes")

    @property
    def n(self) -> int:
        """Blocks in the chain."""
        return int(self.diagonal.shape[0])

    @property
    def b(self) -> int:
        """Rows of a block, padding included."""
        return int(self.diagonal.shape[1])

    @property
    def a(self) -> int:
        """Rows of the arrow."""
        return int(self.tip.shape[0])

    @property
    def order(self) -> int:
        """Rows of the matrix, without padding."""
        return (sum(self.sizes) if self.sizes else self.n * self.b) + self.a

    @property
    def nbytes(self) -> int:
        """Bytes of all blocks."""
        return sum(int(x.nbytes) for x in (self.diagonal, self.lower, self.arrow, self.tip))

    def check(self) -> BlockArrow:
        """Checks that every number is finite and the diagonal blocks are Hermitian, and returns itself; a device gives a few bytes."""
        xp = arrays.namespace(self.diagonal)
        for name in ("lower", "arrow", "tip"):
            for i, block in enumerate(getattr(self, name) if name != "tip" else [self.tip]):
                if not bool(xp.all(xp.isfinite(block))):
                    raise InputError(f"found an infinity or NaN in {name} block {i}; expected finite numbers", where="blocks")
        for name, blocks in (("diagonal", self.diagonal), ("tip", self.tip[None])):
            for i, block in enumerate(blocks if block_count(blocks) else ()):
                size = float(xp.max(xp.abs(block)))
                if not np.isfinite(size):
                    raise InputError(f"found an infinity or NaN in {name} block {i}; expected finite numbers", where="blocks")
                if float(xp.max(xp.abs(block - adjoint(block)))) > ASYMMETRY * size:
                    raise InputError(f"{name} block {i} differs from its adjoint; expected a Hermitian matrix", where="blocks")
        return self

    def mapped(self, change: Callable[[arrays.Array], arrays.Array]) -> BlockArrow:
        """Returns the same with each array changed: moved to a device, copied, scaled."""
        return BlockArrow(change(self.diagonal), change(self.lower), change(self.arrow), change(self.tip), self.sizes)

    def kept(self) -> np.ndarray[Any, Any]:
        """Says which of the n·b rows of the chain are true ones (bool): padding is not."""
        sizes = np.asarray(self.sizes or [self.b] * self.n)
        return (np.arange(self.b)[None, :] < sizes[:, None]).reshape(-1)

    @classmethod
    def from_sparse(cls, matrix: Any, block: int | str | Sequence[int] = "auto", arrow: int | str = "auto") -> BlockArrow:
        """Returns the blocks of a Hermitian SciPy sparse array, in NumPy.

        `arrow` rows at the end form the tip; "auto" takes trailing rows away while that makes the rest narrower by more than it costs.
        `block` is the size of all blocks, or a sequence of sizes; "auto" is the smallest for which all entries fit (the last block may
        then be smaller). Entries are at most one block away from the diagonal.
        """
        from .sparse_blocks import from_sparse

        return from_sparse(matrix, block, arrow)

    def to_sparse(self) -> csr_array:
        """Returns the matrix as a SciPy sparse array without padding; from a device the blocks are copied to the host."""
        from .sparse_blocks import to_sparse

        return to_sparse(self)

    def to_dense(self) -> np.ndarray[Any, Any]:
        """Returns the whole matrix on the host, zeros included, without padding: for small ones."""
        return np.asarray(self.to_sparse().toarray())


def block_count(blocks: arrays.Array) -> int:
    """Returns how many blocks there are; none where a block is empty."""
    return 0 if 0 in tuple(blocks.shape) else int(blocks.shape[0])


def check_room(nbytes: float, what: str) -> None:
    """Refuses what does not fit into this machine's memory, before it is allocated."""
    there = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if nbytes > there:
        raise InputError(f"{what} take {nbytes / 1e9:.3g} GB; expected at most the {there / 1e9:.3g} GB of this machine", where="blocks")
