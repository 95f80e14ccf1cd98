"""A unit of a study: one technique with its parameters, on one case, once.

Its name says exactly what it is; its id is a digest of the name, the case's content and the study's seed, so equal units of two
studies are one, and a case that changed under the same name is another. Its code digest says with which source it was run.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.util
from dataclasses import dataclass
from pathlib import Path

import armillary
from armillary.arena import Arena
from armillary.streams import seed32, words

#: The contract: a change here makes every stored unit stale.
CONTRACT = ("armillary.arena", "armillary.claim", "armillary.parameters", "armillary.streams")


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
def code_digest(arena: Arena, target: str | None = None) -> str:
    """SHA-256 over the source of the arena's folder, the contract, the packages it uses and the package version."""
    digest = hashlib.sha256(armillary.__version__.encode())
    modules = {*CONTRACT, arena.package, *arena.uses}
    if target:
        modules.add(target.partition(":")[0])
    for module in sorted(modules):
        for file in _sources(module):
            digest.update(f"{module}/{file.name}\0".encode() + file.read_bytes() + b"\0")
    return digest.hexdigest()


def _sources(module: str) -> list[Path]:
    """The source files of a module, or of a package and everything below it."""
    try:
        spec = importlib.util.find_spec(module)
    except ValueError:
        return []
    if spec is None or spec.origin is None:
        return []
    if spec.submodule_search_locations:
        return sorted(file for folder in spec.submodule_search_locations for file in Path(folder).rglob("*.py"))
    return [Path(spec.origin)] if Path(spec.origin).suffix == ".py" else []
