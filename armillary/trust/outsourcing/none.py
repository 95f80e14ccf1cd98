"""None: believes the server, and shows what is believed then. It is not timed, because no check is faster than none.

An answer is one encoded element of 32 bytes. It must be the canonical encoding of an element of the group, and nothing else is looked at.
This is where Delegating Computation, S. Goldwasser, Y. T. Kalai and G. N. Rothblum, STOC 2008, and all work after it begin.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from armillary.arena import InputError, Technique

from .group.bases import Bases, Scalars
from .group.element import ENCODED_BYTES, Element
from .summing.msm import msm
from .two_g2t import Cheated


class Trusting:
    """A client that decodes the answer."""

    state_bytes = 0

    def __init__(self, bases: Bases) -> None:
        self.bases = bases

    def query(self, x: Scalars) -> Scalars:
        """The scalars."""
        return x

    def changed(self, query: Scalars, x: Scalars) -> Scalars:
        """Other scalars."""
        return x

    def ask(self, query: Scalars) -> bytes:
        """The sum in 32 bytes."""
        return bytes(msm(self.bases, query))

    def check(self, query: Scalars, answer: bytes) -> Element:
        """Decodes."""
        if len(answer) != ENCODED_BYTES:
            raise Cheated(f"the answer has {len(answer):,} bytes instead of {ENCODED_BYTES}")
        try:
            return Element.from_bytes(answer)
        except InputError:
            raise Cheated("the answer is no canonical encoding of an element") from None

    def prepare(self, query: Scalars) -> Callable[[bytes], Element]:
        """There is nothing to prepare."""
        return lambda answer: self.check(query, answer)

    def read_scalars(self, query: Scalars) -> None:
        """No scalar is looked at."""


@dataclass(frozen=True)
class Unchecked(Technique):
    """Believes any answer that is an element of the group."""

    takes: ClassVar[frozenset[str]] = frozenset({"attacks", "toy"})

    def begin(self, bases: Bases) -> Trusting:
        """Keeps nothing."""
        return Trusting(bases)

    def toy_share(self, keys: int, terms: int, rng: np.random.Generator) -> float:
        """Every forgery is believed."""
        return 1.0
