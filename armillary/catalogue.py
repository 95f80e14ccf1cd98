"""Every arena and technique there is: those in the tree, and those that other packages add.

An arena inside stands at `armillary/<field>/<arena>/arena.py`, in a variable named after its folder. Another package adds an arena
through the entry-point group `armillary.arenas` (`"field/arena" = "package.module:variable"`) and a technique through
`armillary.techniques` (`"field/arena/technique" = "package.module:Class"`).
"""

from __future__ import annotations

import functools
import importlib
import importlib.metadata
import tomllib
import warnings
from dataclasses import dataclass
from pathlib import Path

from armillary.arena import Arena
from armillary.errors import InputError, one_line, unknown

ROOT = Path(__file__).parent


@dataclass(frozen=True)
class Paper:
    """A paper to cite."""

    key: str
    title: str
    source: str
    authors: str
    arena: str


@functools.cache
def papers() -> dict[str, Paper]:
    """The papers whose systems Armillary holds or will hold, by key."""
    with (ROOT / "papers.toml").open("rb") as file:
        return {key: Paper(key, **facts) for key, facts in tomllib.load(file).items()}


@functools.cache
def arenas() -> dict[str, Arena]:
    """All arenas by path, inside ones first, each with the techniques that other packages add to it."""
    found = {}
    for file in sorted(ROOT.glob("*/*/arena.py")):
        field, name = file.parts[-3:-1]
        module = importlib.import_module(f"armillary.{field}.{name}.arena")
        found[f"{field}/{name}"] = getattr(module, name)
    for entry in sorted(importlib.metadata.entry_points(group="armillary.arenas")):
        _outside(entry, lambda entry=entry: _add_arena(found, entry))
    for entry in sorted(importlib.metadata.entry_points(group="armillary.techniques")):
        _outside(entry, lambda entry=entry: _add_technique(found, entry))
    return found


def arena(path: str) -> Arena:
    """The arena at `field/arena`; the arena's name alone does where only one field has it."""
    known = arenas()
    if path in known:
        return known[path]
    named = [a for p, a in known.items() if p.partition("/")[2] == path]
    if len(named) == 1:
        return named[0]
    if named:
        raise InputError(f'arena "{path}" is in several fields: {", ".join(a.path for a in named)}')
    raise unknown("arena", path, known)


def technique(name: str) -> tuple[Arena, str]:
    """Where a technique stands: by its name, or by `field/arena/technique` where several arenas have the name."""
    known = arenas()
    path, _, last = name.rpartition("/")
    if path:
        home = arena(path)
        if last not in home.techniques:
            raise unknown("technique", last, home.techniques, where=home.path)
        return home, last
    homes = [a for a in known.values() if last in a.techniques]
    if len(homes) == 1:
        return homes[0], last
    if homes:
        raise InputError(f'technique "{last}" is in several arenas: {", ".join(f"{a.path}/{last}" for a in homes)}')
    raise unknown("technique", last, {t for a in known.values() for t in a.techniques})


def _add_arena(found: dict[str, Arena], entry: importlib.metadata.EntryPoint) -> None:
    added = entry.load()
    if not isinstance(added, Arena) or added.path != entry.name or entry.name in found:
        raise InputError(f"expected a new Arena with the path {entry.name}")
    found[entry.name] = added


def _add_technique(found: dict[str, Arena], entry: importlib.metadata.EntryPoint) -> None:
    path, _, name = entry.name.rpartition("/")
    if path not in found:
        raise unknown("arena", path, found)
    found[path].add(name, entry.value)


def _outside(entry: importlib.metadata.EntryPoint, add: object) -> None:
    """Adds one entry point; a broken outside package costs a warning, never the catalogue."""
    try:
        add()  # type: ignore[operator]
    except Exception as error:
        source = entry.dist.name if entry.dist else "an outside package"
        warnings.warn(f'{source}: entry point "{entry.name}" left out: {one_line(str(error))}', stacklevel=2)
