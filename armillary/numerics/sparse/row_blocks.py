"""With row blocks, every rank owns whole rows, as PETSc deals them, and entries move to the owner of their new row.

The steps are those of IEB on p × 1 ranks. The difference is the distribution: every rank needs the new place of every
column, so that a vector of n words is gathered on all of them, and a rank with heavy rows has all their entries.

Balay, Gropp, McInnes, Smith: Efficient Management of Parallelism in Object-Oriented Numerical Software Libraries, 1997 (PETSc).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from armillary.arena import Claim

from .ieb import Ieb


@dataclass(frozen=True)
class RowBlocks(Ieb):
    """Identify, exchange and build with whole rows on each rank."""

    claims: ClassVar[tuple[Claim, ...]] = ()
    # Gathering a vector of n words on each of 1,024 virtual ranks takes this process minutes.
    takes: ClassVar[frozenset[str]] = frozenset({"few-ranks"})

    def _grid(self, p: int) -> tuple[int, int] | None:
        return (p, 1)
