"""Local, term by term: n multiplications and n additions, as a program does that has only a library's multiplication.

Our multiplication is the default, because it is the faster one here; `library=libsodium` takes that of libsodium through rbcl, whose every
call encodes its result again. Both are ristretto255 as RFC 9496 (2023) has it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from armillary import extras
from armillary.arena import NotForThisCase, Technique, parameter

from .delegation.session import Alone, one_by_one
from .group.bases import Bases, Scalars
from .group.element import ENCODED_BYTES, Element

MOST_TERMS = 1 << 14


@dataclass(frozen=True)
class LocalNaive(Technique):
    """Computes the sum here by one multiplication per term."""

    library: str = parameter("ours", "whose multiplication and addition", choices=("ours", "libsodium"))

    takes: ClassVar[frozenset[str]] = frozenset({"sums"})

    def begin(self, bases: Bases) -> Alone:
        """Keeps the encoded bases."""
        if len(bases) > MOST_TERMS:
            raise NotForThisCase(f"term by term only up to {MOST_TERMS:,} terms, which take half a second and more")
        if self.library == "ours":
            return Alone(lambda x: one_by_one(bases, x), 32 * len(bases))
        extras.need("rbcl")
        return Alone(lambda x: with_libsodium(bases, x), 32 * len(bases))


def with_libsodium(bases: Bases, x: Scalars) -> Element:
    """The same by libsodium, which refuses scalars that are zero and results that are the identity; so these terms are left out."""
    import rbcl  # type: ignore[import-not-found,unused-ignore]

    points, scalars, total = bytes(bases), x.astype("<u8").tobytes(), None
    for at in range(0, len(points), ENCODED_BYTES):
        point, scalar = points[at : at + ENCODED_BYTES], scalars[at : at + ENCODED_BYTES]
        if any(scalar) and any(point):
            term = rbcl.crypto_scalarmult_ristretto255(scalar, point)
            total = term if total is None else rbcl.crypto_core_ristretto255_add(total, term)
    return Element.identity() if total is None else Element.from_bytes(bytes(total))
