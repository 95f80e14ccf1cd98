"""Local with stored copies: because the bases are fixed, 2^(cj)·Pᵢ can be stored, and all digits share one pass of buckets.

One pass leaves a single reduction of buckets and no doubling at all, so wider digits pay off. The copies take at most 2 KB per base; where
that is too little for one pass (below some thousand bases, whose digits are narrow), a few passes remain. Where the plain sum needs fewer
additions, as for short or sparse scalars, that one is taken. This is the strongest rival of asking a server: it has the same setup for
fixed bases, and nobody to trust.

Fast exponentiation with precomputation, E. Brickell et al., EUROCRYPT 1992; how many copies are stored is our design.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from armillary.arena import NotForThisCase, Technique, parameter

from .delegation.session import Alone
from .group.bases import Bases
from .summing.digits import STORED_BYTES
from .summing.msm import FixedBases

#: Bases of which copies are stored: 128 MB.
MOST_STORED = 1 << 16


@dataclass(frozen=True)
class LocalFixed(Technique):
    """Computes the sum here by buckets, with shifted copies of the bases."""

    most_bytes: int = parameter(STORED_BYTES, "bytes of copies per base, those of the base itself included", range=(120, 8192))

    takes: ClassVar[frozenset[str]] = frozenset({"sums"})

    def begin(self, bases: Bases) -> Alone:
        """Computes the copies."""
        if len(bases) > MOST_STORED:
            raise NotForThisCase(f"copies are stored of at most {MOST_STORED:,} bases")
        stored = FixedBases(bases, most_bytes=self.most_bytes)
        return Alone(stored.msm, stored.table.nbytes)
