"""Twitter's cache traces: `timestamp,key,key_size,value_size,client,op,ttl`, no header.

get and gets look up; set, add, replace and the other writes (cas, append, prepend, incr, decr) insert; delete removes. An object
has key_size + value_size bytes. Keys are text, which is distinguished by two independent seeded 64-bit hashes.

https://github.com/twitter/cache-trace
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from ..workload import MOST_BYTES
from .fields import Fields, seeds
from .requests import OPERATIONS, Requests


@dataclass(frozen=True)
class Twitter:
    """`TextFormat` of Twitter's traces."""

    columns = (0, 1, 2, 3, 5)
    exactly = 7
    words = 2
    _seeds: tuple[np.uint64, np.uint64] = field(default_factory=seeds, repr=False)

    def requests(self, fields: Fields) -> Iterator[Requests]:
        """One request per row."""
        fields.check_numbers(0, "timestamp")
        fields.check_filled(1, "key")
        first, second = fields.hashes((1,), self._seeds)
        most = MOST_BYTES // 2
        sizes = fields.whole_numbers(2, "key_size", most) + fields.whole_numbers(3, "value_size", most)
        yield Requests(first, second, sizes.astype(np.int64), fields.codes(4, "op", OPERATIONS))


def looks_like(row: list[str]) -> bool:
    """Whether a row could be one of Twitter's."""
    return len(row) == 7 and row[5].strip().lower() in OPERATIONS and row[2].strip().isdigit() and row[3].strip().isdigit()
