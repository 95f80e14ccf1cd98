"""What the arena asks of every technique: a client and a server that were set up for the same bases."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from armillary.trust.outsourcing.group.bases import Bases, Scalars, integers
from armillary.trust.outsourcing.group.element import Element


class Session(Protocol):
    """One client and its server. A wrong answer raises `Cheated`, if the technique sees it."""

    #: Bytes that the client keeps from query to query.
    state_bytes: int

    def query(self, x: Scalars) -> Any:
        """What the client sends and keeps for one query."""

    def changed(self, query: Any, x: Scalars) -> Any:
        """The same query for other scalars, as a cheating server would answer it."""

    def ask(self, query: Any) -> bytes:
        """The server's answer."""

    def check(self, query: Any, answer: bytes) -> Element:
        """The client's part, from the bytes of the answer to the sum."""

    def prepare(self, query: Any) -> Callable[[bytes], Element]:
        """What is left of `check` once everything that does not need the answer has been computed."""

    def read_scalars(self, query: Any) -> None:
        """The part of `check` that looks at every scalar, to be timed alone."""


class Alone:
    """A client that asks nobody and computes the sum itself, by `sum_of`."""

    def __init__(self, sum_of: Callable[[Scalars], Element], state_bytes: int) -> None:
        self.sum_of, self.state_bytes = sum_of, state_bytes

    def query(self, x: Scalars) -> Scalars:
        """The scalars."""
        return x

    def changed(self, query: Scalars, x: Scalars) -> Scalars:
        """Other scalars."""
        return x

    def ask(self, query: Scalars) -> bytes:
        """Nothing is asked."""
        return b""

    def check(self, query: Scalars, answer: bytes) -> Element:
        """The sum."""
        return self.sum_of(query)

    def prepare(self, query: Scalars) -> Callable[[bytes], Element]:
        """Nothing is waited for, so everything is still to be done."""
        return lambda answer: self.sum_of(query)

    def read_scalars(self, query: Scalars) -> None:
        """All of `check` looks at the scalars."""
        self.sum_of(query)


def one_by_one(bases: Bases, x: Scalars) -> Element:
    """Σ xᵢ·Pᵢ by one multiplication and one addition per term."""
    total = Element.identity()
    for i, scalar in enumerate(integers(x)):
        total = total + bases.element(i) * scalar
    return total
