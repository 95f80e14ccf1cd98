"""A technique of this arena: one way to write the programs, and the backends that it runs on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from armillary.arena import NotForThisCase, Technique


@dataclass(frozen=True)
class Twin(Technique):
    """Programs written for one library, or for all: `texts` is the module that holds them, a function for each program."""

    #: Module of the programs.
    texts: ClassVar[str] = ""
    #: Backends that they run on.
    backends: ClassVar[frozenset[str]] = frozenset()

    def lacks(self, backend: str) -> str:
        """What is missing here to run on this backend; "" where nothing is."""
        from armillary.comm import backends

        lacks = backends().get(backend, "no such backend")
        if backend == "nccl" and not lacks:
            import torch

            return "" if torch.cuda.is_available() else "found no NVIDIA GPU that torch can use"
        return lacks

    def check(self, backend: str, program: str) -> None:
        """Raises `NotForThisCase` where it cannot run this program on this backend, with the reason."""
        if backend not in self.backends:
            raise NotForThisCase(f"it is written for {', '.join(sorted(self.backends))}, not for {backend}")
        lacks = self.lacks(backend)
        if lacks:
            raise NotForThisCase(f"backend {backend}: {lacks}")
        if ":" in program and self.texts:
            raise NotForThisCase(f"a program of your own has no text for {type(self).__name__}")
