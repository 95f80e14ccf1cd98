"""The envelope of a message: its source, its tag, and what a receiver learns about it. The names and meanings are those of MPI."""

from __future__ import annotations

from typing import Final, NamedTuple

from armillary.errors import InputError

#: Receive from any rank.
ANY_SOURCE: Final = -1
#: Receive with any tag.
ANY_TAG: Final = -1
#: The rank that is nobody: messages to it and from it vanish.
PROC_NULL: Final = -2
#: The largest tag that every MPI library takes.
MOST_TAG: Final = 32767


class InPlace:
    """The type of `IN_PLACE`."""

    def __repr__(self) -> str:
        return "IN_PLACE"


#: Given instead of the buffer to send, it says that the data to send is already in the buffer that receives.
IN_PLACE: Final = InPlace()


class Status(NamedTuple):
    """Where a received message came from, its tag, and its length in bytes. MPI ranks give an object with the same three attributes."""

    source: int
    tag: int
    nbytes: int


#: The status of a transfer with nobody, of a cancelled one, and of a send where the backend reports nothing about it.
NOTHING: Final = Status(PROC_NULL, ANY_TAG, 0)


def check_tag(tag: int, wild: bool = False) -> None:
    """Raise `InputError` unless the tag is from 0 to 32767, or `ANY_TAG` where `wild`."""
    if not (0 <= tag <= MOST_TAG or (wild and tag == ANY_TAG)):
        raise InputError(f"tag: found {tag}; expected 0 to {MOST_TAG}" + (", or ANY_TAG" if wild else ""))


def check_rank(rank: int, size: int, what: str, wild: bool = False) -> None:
    """Raise `InputError` unless the rank exists, is `PROC_NULL`, or is `ANY_SOURCE` where `wild`."""
    if not (0 <= rank < size or rank == PROC_NULL or (wild and rank == ANY_SOURCE)):
        raise InputError(f"{what}: found rank {rank}; expected 0 to {size - 1}")


def receive_in_words(call: str, source: int, tag: int) -> str:
    """The call of a receiver as messages about deadlocks show it, such as `recv(source=1, tag=ANY_TAG)`."""
    return f"{call}(source={'ANY_SOURCE' if source == ANY_SOURCE else source}, tag={'ANY_TAG' if tag == ANY_TAG else tag})"


def send_in_words(dest: int, tag: int, nbytes: int) -> str:
    """The call of a sender as messages about deadlocks show it, such as `send(dest=1, tag=0, 8 bytes)`."""
    return f"send(dest={dest}, tag={tag}, {nbytes} bytes)"


def unreceived_in_words(source: int, dest: int, tag: int, nbytes: int) -> str:
    """One entry of `Result.unreceived`."""
    return f"from rank {source} to rank {dest}, tag {tag}, {nbytes} bytes"
