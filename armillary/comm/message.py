"""What a message is called: sources, tags, and what a receiver learns of it. The names and meanings are those of MPI."""

from __future__ import annotations

from typing import Final, NamedTuple

from armillary.errors import InputError

#: Receive from any rank, with any tag; a rank that is nobody: messages to and from it vanish.
ANY_SOURCE: Final = -1
ANY_TAG: Final = -1
PROC_NULL: Final = -2
#: The largest tag that every MPI library takes.
MOST_TAG: Final = 32767


class InPlace:
    """The type of `IN_PLACE`."""

    def __repr__(self) -> str:
        return "IN_PLACE"


#: Given as the buffer to send: what is to be sent stands in the buffer that receives.
IN_PLACE: Final = InPlace()


class Status(NamedTuple):
    """What was received: from which rank, with which tag, how many bytes. MPI ranks give an object with the same three attributes."""

    source: int
    tag: int
    nbytes: int


def check_tag(tag: int, wild: bool = False) -> None:
    """Raise `InputError` unless the tag is from 0 to 32767, or `ANY_TAG` where `wild`."""
    if not (0 <= tag <= MOST_TAG or (wild and tag == ANY_TAG)):
        raise InputError(f"tag: found {tag}; expected 0 to {MOST_TAG}" + (", or ANY_TAG" if wild else ""))


def check_rank(rank: int, size: int, what: str, wild: bool = False) -> None:
    """Raise `InputError` unless the rank exists, is `PROC_NULL`, or is `ANY_SOURCE` where `wild`."""
    if not (0 <= rank < size or rank == PROC_NULL or (wild and rank == ANY_SOURCE)):
        raise InputError(f"{what}: found rank {rank}; expected 0 to {size - 1}")
