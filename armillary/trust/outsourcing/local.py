"""Local: Pippenger's sum on the client, over bases of which nothing is stored but the points.

Scalars are cut into signed digits of c bits, c chosen for the fewest additions. For each digit the bases go into 2^(c − 1) buckets, the
buckets are added up from the top, and c doublings join one digit to the next. Zero digits and leading zeros cost nothing, so sparse and
short scalars are summed much faster than random ones. Below 32 terms a single chain of doublings is used (Straus). Not constant in time.

On the evaluation of powers and related problems, N. Pippenger, FOCS 1976.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from armillary.arena import Technique

from .delegation.session import Alone
from .group.bases import Bases
from .summing.msm import msm


@dataclass(frozen=True)
class Local(Technique):
    """Computes the sum here by buckets."""

    takes: ClassVar[frozenset[str]] = frozenset({"sums"})

    def begin(self, bases: Bases) -> Alone:
        """Keeps the encoded bases."""
        return Alone(lambda x: msm(bases, x), 32 * len(bases))
