"""A technique of this arena is one way to write the programs, for the backends on which they run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from armillary.arena import NotForThisCase, Technique


@dataclass(frozen=True)
class Twin(Technique):
    """Programs written for one library or for all; `texts` is the module that has a function for each program."""

    #: The module of the programs.
    texts: ClassVar[str] = ""
    #: The backends on which they run.
    backends: ClassVar[frozenset[str]] = frozenset()

    def check(self, backend: str, program: str) -> None:
        """Raises `NotForThisCase` with the reason if it cannot run this program on this backend."""
        from armillary.comm import backends

        if backend not in self.backends:
            raise NotForThisCase(f"it is written for {', '.join(sorted(self.backends))}, not for {backend}")
        if lacks := backends()[backend]:
            raise NotForThisCase(f"backend {backend}: {lacks}")
        if ":" in program and self.texts:
            raise NotForThisCase(f"a program of your own has no text for {type(self).__name__}")
