"""Which arenas' questions arise on a machine and with some files, and why the others do not.

An arena may say more about itself in a file `adoption.py` beside its `arena.py`: `HOW`, a sentence on what it takes to use its techniques;
`NEEDS`, names from the table NEEDS below of what a machine must have for the question to arise; and `NO_ANSWERS`, techniques that only
show what an answer costs, as no checkpoints at all do, and that are never advised.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from armillary import catalogue
from armillary.arena import Arena
from armillary.errors import InputError, unknown

if TYPE_CHECKING:
    from armillary.cluster import Cluster

#: How near the compared work is to the asker's own, nearest first.
FILE, MACHINE, BUILT_IN = "your file", "your machine", "built-in work"
NEARNESS = (FILE, MACHINE, BUILT_IN)
UNREAD = "it does not read the file"

#: What a question may need of a machine: whether a cluster has it, and the sentence for one that does not.
NEEDS: Mapping[str, tuple[Callable[[Cluster], bool], str]] = {
    "nodes": (lambda cluster: cluster.nodes > 1, "it is about several nodes"),
    "gpu": (lambda cluster: cluster.devices("gpu") > 0, "it is about GPUs"),
    "qpu": (lambda cluster: cluster.devices("qpu") > 0, "it is about quantum processors"),
    "dragonfly": (lambda cluster: any(n.topology == "dragonfly" for n in cluster.networks.values()), "it is about a Dragonfly network"),
}
#: What a file may bring along: a log of many nodes' jobs is about those nodes, whatever machine it is read on.
BROUGHT = frozenset({"nodes"})


@dataclass(frozen=True)
class Question:
    """An arena's question that arises, and the words of `planned` that ask it."""

    arena: Arena
    near: str
    words: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class NotAsked:
    """An arena that was not asked, or that could not answer, and why."""

    arena: str
    reason: str


@dataclass(frozen=True)
class Machine:
    """The machine that advice is for; `here` where it is this one, `file` a cluster file with its description."""

    cluster: Cluster
    here: bool
    file: Path


def chosen(runs: Sequence[str]) -> list[Arena]:
    """The arenas that are meant by names of fields and arenas; all by default."""
    known = catalogue.arenas()
    fields = {arena.field for arena in known.values()}
    if not runs:
        return list(known.values())
    found: dict[str, Arena] = {}
    for name in runs:
        if name in fields:
            found |= {path: arena for path, arena in known.items() if arena.field == name}
        elif name in known or name in {arena.name for arena in known.values()}:
            found[catalogue.arena(name).path] = catalogue.arena(name)
        else:
            raise unknown("field or arena", name, [*fields, *known, *(a.name for a in known.values())], where="--runs")
    return list(found.values())


def ask(arenas: Iterable[Arena], machine: Machine, work: Sequence[Path], *, only_files: bool) -> tuple[list[Question], list[NotAsked]]:
    """The questions that arise, and the arenas whose question does not.

    With `only_files`, an arena that reads none of the files of `work` is not asked about its built-in work either.
    """
    found = [_question(arena, machine, work, only_files=only_files) for arena in arenas]
    return [q for q in found if isinstance(q, Question)], [n for n in found if isinstance(n, NotAsked)]


def how_to_adopt(arena: Arena) -> str:
    """What it takes to use this arena's techniques; empty where the arena does not say."""
    return str(getattr(_adoption(arena), "HOW", ""))


def no_answers(arena: Arena) -> tuple[str, ...]:
    """The techniques of this arena that are never advised."""
    return tuple(getattr(_adoption(arena), "NO_ANSWERS", ()))


def _question(arena: Arena, machine: Machine, work: Sequence[Path], *, only_files: bool) -> Question | NotAsked:
    lacking = [name for name in getattr(_adoption(arena), "NEEDS", ()) if not NEEDS[name][0](machine.cluster)]
    refused = []
    for file in work if set(lacking) <= BROUGHT else ():
        options = {"cluster": str(machine.file)} if "cluster" in arena.options() and not lacking else {}
        try:
            arena.from_file(file, options)
        except InputError as error:
            refused.append(error.message)
            continue
        return Question(arena, FILE, {"work": [file], "options": options})
    if lacking and (not refused or not set(lacking) <= BROUGHT):
        return NotAsked(arena.path, f"{NEEDS[lacking[0]][1]}, which {machine.cluster.name} does not have")
    if refused and only_files:
        return NotAsked(arena.path, f"{UNREAD}: {refused[0]}")
    if arena._cases is None:
        return NotAsked(arena.path, "it has no built-in work; give it a file with --work")
    return _built_in(arena, machine)


def _built_in(arena: Arena, machine: Machine) -> Question | NotAsked:
    if not _takes_cluster(arena):
        return _elsewhere(arena, machine)
    return Question(arena, MACHINE, {"cluster": machine.cluster})


def _elsewhere(arena: Arena, machine: Machine) -> Question | NotAsked:
    """The question of an arena whose work does not depend on a cluster: measured here, or simulated on a machine of its own."""
    telling = arena.telling_cases("small")
    cases = [case for case in arena.built_in("small") if telling is None or case.name in telling]
    leading = [next((m for m in arena.metrics.values() if m.better and m.applies(case)), None) for case in cases]
    if all(m is not None and m.needs_quiet(case) for m, case in zip(leading, cases, strict=True)):
        if not machine.here:
            return NotAsked(arena.path, "it measures the machine that it runs on; ask there with --cluster here")
        return Question(arena, MACHINE)
    return Question(arena, BUILT_IN)


def _takes_cluster(arena: Arena) -> bool:
    import inspect

    return arena._cases is not None and "cluster" in inspect.signature(arena._cases).parameters


def _adoption(arena: Arena) -> Any:
    """The arena's `adoption` module, or None."""
    name = f"{arena.package}.adoption"
    return importlib.import_module(name) if arena.package and importlib.util.find_spec(name) is not None else None
