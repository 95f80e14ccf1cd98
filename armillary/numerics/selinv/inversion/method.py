"""The methods of every way to compute the wanted entries of an inverse."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from armillary.arena import Technique

from ..blocks.block_arrow import BlockArrow

if TYPE_CHECKING:
    from scipy.sparse import csr_array


class Sparse(Protocol):
    """Something that can be written as a SciPy sparse array."""

    def to_sparse(self) -> csr_array:
        """Returns the entries that were computed; others are zero."""


@dataclass(frozen=True)
class Problem:
    """A matrix, as blocks and as a SciPy sparse array, and how many ranks may work on it."""

    blocks: BlockArrow
    ranks: int = 1

    @functools.cached_property
    def sparse(self) -> csr_array:
        """The matrix without padding; entries that are zero are left out."""
        matrix = self.blocks.to_sparse()
        matrix.eliminate_zeros()
        return matrix


@dataclass(frozen=True)
class Answer:
    """The inverse at the places of the matrix's entries at least, and log det.

    `native_bytes` are bytes that a compiled library held, which Python does not see; `bytes_per_rank` the most that a rank sent to others;
    `simulated_s` seconds on virtual ranks.
    """

    inverse: Sparse
    logdet: float
    native_bytes: int = 0
    bytes_per_rank: int = 0
    simulated_s: float | None = None


@dataclass(frozen=True)
class Entries:
    """An inverse that is a SciPy sparse array already."""

    matrix: Any

    def to_sparse(self) -> csr_array:
        """Returns the array itself."""
        from scipy.sparse import csr_array

        return csr_array(self.matrix)


class Method(Technique):
    """One way to the wanted entries. Subclasses are frozen dataclasses whose fields are the parameters."""

    def invert(self, problem: Problem) -> Answer:
        """Returns the entries of A⁻¹ at the places of A's, and log det A."""
        raise NotImplementedError
