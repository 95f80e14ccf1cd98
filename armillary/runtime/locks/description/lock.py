"""What every lock of the arena is: a technique with a description in steps and a pair of compiled parts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

from armillary.arena import Technique
from armillary.runtime.locks.threads.places import Places, Words, places

from .steps import Description


class Compiled(NamedTuple):
    """A lock as two parts of compiled loops: `token = acquire(words, at, thread, lock)` and `release(words, at, thread, lock, token)`."""

    acquire: Callable[..., Any]
    release: Callable[..., Any]


class Space(NamedTuple):
    """Bytes without padding: of one lock, of one thread, and of what all locks of a process share."""

    lock: int
    thread: int
    process: int = 0


@dataclass(frozen=True)
class Lock(Technique):
    """One way to let one thread in at a time."""

    #: Whether threads get in by the order in which they came.
    fifo: ClassVar[bool] = True
    #: Whether a thread may hold several locks of an array at a time; not where its node belongs to one lock as long as it holds it.
    holds_many: ClassVar[bool] = True
    #: Shared words of one lock that have a line each.
    lock_words: ClassVar[int] = 1
    space: ClassVar[Space]

    def occupies(self) -> Space:
        """Bytes with these parameters."""
        return self.space

    def described(self) -> Description | None:
        """The lock in steps, for the checker and the simulator; None where the kernel takes part, which neither plays."""
        raise NotImplementedError

    def compiled(self, policy: str) -> Compiled:
        """The lock for real threads that wait in this way: spin, yield or park."""
        raise NotImplementedError

    def places(self, locks: int, threads: int, policy: str = "spin", *, held: int = 0, pad: bool = True) -> Places:
        """Where its words lie; `held` words of each lock belong to its holder."""
        return places(locks, threads, words_of_a_lock=self.lock_words, parks=policy == "park", held=held, pad=pad)

    def prepare(self, words: Words, at: Places) -> None:
        """Writes the words that are not 0 at first."""
