"""What every format turns its rows into: consecutive requests whose ids are not dense yet."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from .fields import Fields

#: What the words of a Memcached-like log do: a get looks up, a write inserts, a delete removes.
WRITES = ("set", "add", "replace", "cas", "append", "prepend", "incr", "decr")
OPERATIONS = {"get": 0, "gets": 0, **dict.fromkeys(WRITES, 1), "delete": 2}


@dataclass(frozen=True)
class Requests:
    """Some requests in order; an object's key is one 64-bit word, or two."""

    first: np.ndarray
    second: np.ndarray | None = None
    #: int64[n] bytes; None when every object counts one.
    sizes: np.ndarray | None = None
    #: uint8[n]; None when all are lookups.
    operations: np.ndarray | None = None
    #: int64[n]: the index of the next request as the file has it; None when the file has none, or cannot be trusted.
    promised: np.ndarray | None = None


class TextFormat(Protocol):
    """How the rows of one text format become requests."""

    @property
    def columns(self) -> tuple[int, ...]:
        """The columns to look at, in the order in which `requests` expects them."""

    @property
    def exactly(self) -> int:
        """How many columns every row has; 0 when others may follow those looked at."""

    @property
    def words(self) -> int:
        """The number of 64-bit words of a key."""

    def requests(self, fields: Fields) -> Iterator[Requests]:
        """The requests of some rows, in order."""
