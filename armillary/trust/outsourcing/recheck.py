"""Recheck: ask for the sum in two random halves and compute one of them again, as one might do without the paper.

The client gives each term to one of two halves by a coin, asks for both sums, and computes a half of its choice itself. A server that
forges one half cannot know which one is looked at, so it is believed every other time; and the client still computes half of the sum. There
is no setup, no secret to keep, and any group will do.

Computing a part again is the usual check of outsourced work, from which Uncheatable Distributed Computations, P. Golle and I. Mironov,
CT-RSA 2001, sets out; the two halves are our design.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from armillary.arena import InputError, Technique

from .forging import toy
from .group.bases import Bases, Scalars, read_only
from .group.element import ENCODED_BYTES, Element
from .summing.msm import msm
from .two_g2t import Cheated


@dataclass(frozen=True)
class Halves:
    """A query: scalars, which half each belongs to, and which half is computed again. The server learns the first two."""

    x: Scalars
    first: npt.NDArray[np.bool_]
    looked_at: int

    def half(self, number: int) -> Scalars:
        """The scalars of one half, and 0 for the others."""
        return read_only(np.where((self.first if number == 0 else ~self.first)[:, None], self.x, np.uint64(0)))


class Rechecked:
    """A client that computes one of two halves."""

    def __init__(self, bases: Bases) -> None:
        self.bases, self.state_bytes = bases, 32 * len(bases)

    def query(self, x: Scalars) -> Halves:
        """Tosses the coins, with the operating system's generator."""
        bits = np.unpackbits(np.frombuffer(os.urandom(len(x) // 8 + 1), np.uint8))[: len(x)]
        return Halves(x, bits.astype(bool), secrets.randbelow(2))

    def changed(self, query: Halves, x: Scalars) -> Halves:
        """The same halves for other scalars."""
        return Halves(x, query.first, query.looked_at)

    def ask(self, query: Halves) -> bytes:
        """Both halves' sums."""
        return b"".join(bytes(msm(self.bases, query.half(number))) for number in (0, 1))

    def check(self, query: Halves, answer: bytes) -> Element:
        """Computes one half again and adds the other one."""
        return self.prepare(query)(answer)

    def prepare(self, query: Halves) -> Callable[[bytes], Element]:
        """The half that is looked at does not need the answer."""
        own = msm(self.bases, query.half(query.looked_at))

        def check(answer: bytes) -> Element:
            if len(answer) != 2 * ENCODED_BYTES:
                raise Cheated(f"the answer has {len(answer):,} bytes instead of {2 * ENCODED_BYTES}")
            try:
                halves = [Element.from_bytes(answer[:ENCODED_BYTES]), Element.from_bytes(answer[ENCODED_BYTES:])]
            except InputError:
                raise Cheated("the answer is no canonical encoding of two elements") from None
            if halves[query.looked_at] != own:
                raise Cheated("a half is not the sum")
            return halves[0] + halves[1]

        return check

    def read_scalars(self, query: Halves) -> None:
        """The half that is computed again."""
        msm(self.bases, query.half(query.looked_at))


@dataclass(frozen=True)
class Recheck(Technique):
    """Computes a random half of the sum again, and believes the other half."""

    takes: ClassVar[frozenset[str]] = frozenset({"sums", "attacks", "toy"})

    def begin(self, bases: Bases) -> Rechecked:
        """Keeps the encoded bases."""
        return Rechecked(bases)

    def toy_share(self, keys: int, terms: int, rng: np.random.Generator) -> float:
        """The share of queries in which a forger who changes one half is believed."""
        return toy.half_forged_share(keys, terms, rng)
