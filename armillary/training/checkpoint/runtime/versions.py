"""Which versions of a state are whole, on one rank and on all: small machines without I/O.

A rank keeps two versions of its own state and of each neighbour's, beside the one under way. A version is promoted without a barrier:
whoever receives counts bytes, and at the last one flips the newest whole version. Recovery takes the newest version that exists whole,
somewhere, for every rank.

When a rank begins version n, all ranks have taken part in the collectives of iteration n, and so had finished version n − 2 before the
update of iteration n − 1. Version n − 1 may be whole on some ranks only. So whatever is older than n − 2 can go, and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from armillary.errors import InputError

#: Versions that a new one leaves in place.
KEPT = 2


@dataclass
class Versions:
    """The versions of one rank's state: the whole ones, the oldest first, and one that is under way."""

    #: Version to (description, bytes).
    whole: dict[int, tuple[Any, Any]] = field(default_factory=dict)
    _arriving: tuple[int, int, Any, Any] | None = None
    _count: int = 0

    def begin(self, version: int, total: int, description: Any, allocate: Callable[[int], Any]) -> Any:
        """A version of `total` bytes begins to arrive; returns the memory for it, which may be that of a version which goes.

        One that was not whole is given up.
        """
        free = [self.whole.pop(old)[1] for old in [known for known in self.whole if known < version - KEPT]]
        data = next((one for one in free if len(one) == total), None)
        data = allocate(total) if data is None else data
        self._arriving, self._count = (version, total, description, data), 0
        if total == 0:
            self._flip()
        return data

    def arrived(self, count: int) -> bool:
        """Counts bytes; True when they make the version whole."""
        if self._arriving is None or self._count + count > self._arriving[1]:
            raise InputError(f"{count} more bytes arrived than the version has")
        self._count += count
        if self._count == self._arriving[1]:
            self._flip()
            return True
        return False

    def _flip(self) -> None:
        assert self._arriving is not None
        version, _, description, data = self._arriving
        self._arriving = None
        self.whole.pop(version, None)
        self.whole[version] = (description, data)

    def forget_after(self, version: int) -> None:
        """Gives up what is newer than the version to which all ranks went back, and whatever was arriving."""
        self._arriving = None
        for newer in [known for known in self.whole if known > version]:
            del self.whole[newer]


def newest_on_all(held: Sequence[Mapping[int, set[int]]]) -> tuple[int, dict[int, int]] | None:
    """(the newest version that exists for every rank, rank to a rank that holds it), or None if memory has no such version.

    `held[r]` says which versions of which owner's state rank r has whole. A rank's own copy is preferred.
    """
    common: set[int] | None = None
    for owner in range(len(held)):
        known: set[int] = set().union(*(held[r].get(owner, set()) for r in range(len(held))))
        common = known if common is None else common & known
    if not common:
        return None
    version = max(common)
    source = {}
    for owner in range(len(held)):
        holders = [r for r in range(len(held)) if version in held[r].get(owner, set())]
        source[owner] = owner if owner in holders else holders[0]
    return version, source
