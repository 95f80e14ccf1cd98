"""A unit of a study: one technique with its parameters, on one case, once.

Its name says exactly what it is; its id is a digest of the name, the case's content and the study's seed, so equal units of two
studies are one, and a case that changed under the same name is another. Its code digest says with which source it was run.
"""

from __future__ import annotations

import functools
import hashlib
from dataclasses import dataclass

import armillary
from armillary import sources
from armillary.arena import Arena
from armillary.streams import seed32, words


@dataclass(frozen=True)
class Unit:
    """One piece of a study, named by what it is; everything a worker needs beside the recipe of the cases."""

    arena: str
    technique: str
    #: All parameters, defaults included, as canonical JSON.
    parameters: str
    case: str
    case_digest: str
    repeat: int
    seed: int
    code_digest: str
    #: Whether it must have the machine to itself.
    exclusive: bool = False
    #: Where the class stands when the catalogue does not know the technique: `module:Class`.
    target: str | None = None

    @property
    def name(self) -> str:
        """`arena|technique|parameters|case|repeat`."""
        return f"{self.arena}|{self.technique}|{self.parameters}|{self.case}|{self.repeat}"

    @functools.cached_property
    def id(self) -> str:
        """32 hexadecimal digits: SHA-256 over seed, name and case digest, cut to 16 bytes."""
        return hashlib.sha256(f"{self.seed}|{self.name}|{self.case_digest}".encode()).hexdigest()[:32]

    def seed32(self, library: str) -> int:
        """An integer seed for a library's own generator inside this unit."""
        return seed32(self.seed, "unit", self.name, library)

    def order(self) -> tuple[int, ...]:
        """Where the unit stands among the techniques of its case and repeat: a shuffle that depends on names alone."""
        return words("order", str(self.seed), self.name)


@functools.cache
def code_digest(arena: Arena, technique: str) -> str:
    """Hex SHA-256 over all code and data that one technique of the arena can reach, and the version of the package."""
    module, _, _ = arena.target(technique).partition(":")
    start = [arena.module, module]
    if sources.reached([module]):
        found = b""
    else:
        # A class of a notebook: its own text is all there is to tell it by.
        found = sources.of_class(arena.technique(technique))
    digest = sources.digest(start, armillary.__version__.encode() + found)
    sources.keep()
    return digest
