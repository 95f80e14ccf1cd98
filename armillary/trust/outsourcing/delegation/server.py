"""The server of 2G2T: the same sum over the bases and over the shifted bases, from one set of digits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from armillary.errors import InputError
from armillary.trust.outsourcing.group.bases import Bases, as_scalars, check_lengths
from armillary.trust.outsourcing.group.element import ENCODED_BYTES
from armillary.trust.outsourcing.summing.msm import sums_over

ANSWER_BYTES = 2 * ENCODED_BYTES


class Server:
    """Answers queries over fixed bases; it holds nothing secret."""

    def __init__(self, bases: Bases, public: Bases, *, threads: int = 1) -> None:
        if len(bases) != len(public):
            raise InputError(f"found {len(public):,} shifted bases for {len(bases):,} bases; expected as many")
        if threads < 1:
            raise InputError(f"found {threads} threads; expected at least one")
        self.bases, self.public, self.threads = bases, public, threads

    def answer(self, x: Any) -> bytes:
        """Σ xᵢ·Pᵢ and Σ xᵢ·Tᵢ in 64 bytes."""
        words = as_scalars(x)
        check_lengths(self.bases, words)
        return b"".join(map(bytes, sums_over([self.bases.ready[None], self.public.ready[None]], words, threads=self.threads)))

    def answer_many(self, queries: Sequence[Any]) -> list[bytes]:
        """The answers to several queries."""
        return [self.answer(x) for x in queries]
