"""Python's own lock: `threading.Lock`, taken by Python threads.

The work inside and outside the section is compiled and runs without the interpreter's lock, but each acquire and release is Python, and
threads take turns at that: what is measured is what a Python program would see. Waiting for a lock gives the interpreter's lock away.

Van Rossum and others, the Python language reference; threading.Lock since 1998.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from armillary.arena import NotForThisCase

from .description.lock import Compiled, Lock, Space


@dataclass(frozen=True)
class PyLock(Lock):
    """threading.Lock (1998)."""

    fifo: ClassVar[bool] = False
    takes: ClassVar[frozenset[str]] = frozenset({"real"})
    #: The object of CPython 3.11 on Linux and the semaphore behind it.
    space: ClassVar[Space] = Space(72, 0)

    def described(self) -> None:
        """Nothing: the interpreter takes part."""

    def compiled(self, policy: str) -> Compiled:
        """No compiled loop can take it."""
        raise NotForThisCase("a Python lock cannot be taken inside a compiled loop")
