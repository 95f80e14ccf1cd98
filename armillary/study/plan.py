"""What a study will run: techniques × cases × repeats of one arena, in the order in which they are run.

A plan is rebuilt from the same words every time, so a study that was killed is planned again and goes on. Workers get its
`Recipe`, not its data: they make the cases themselves from generator and seed, or read the user's file.
"""

from __future__ import annotations

import fnmatch
import functools
import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from armillary import catalogue
from armillary.arena import Arena, Case, Technique, canonical
from armillary.errors import InputError, unknown
from armillary.files.content import content_digest
from armillary.study import checks
from armillary.study.unit import Unit, code_digest


@dataclass(frozen=True)
class Recipe:
    """How to make the cases of a study anew, in any process."""

    arena: str
    scale: str = "small"
    #: Files of the user, absolute; built-in cases when there is none.
    work: tuple[str, ...] = ()
    #: The reader's options as they were given, with absolute files.
    options: tuple[tuple[str, str], ...] = ()
    #: A cluster as TOML text, for arenas whose work can be put on another machine.
    cluster: str | None = None

    def contents(self) -> tuple[str, ...]:
        """A digest of every file that the cases depend on, those that options name included."""
        home = catalogue.arena(self.arena)
        files = [file for path in self.work for file in home.own_files(Path(path), dict(self.options))]
        return tuple(content_digest(file) for file in files)

    def cases(self) -> dict[str, Case]:
        """The cases by name."""
        home = catalogue.arena(self.arena)
        if self.work:
            made = [case for path in self.work for case in home.from_file(Path(path), dict(self.options))]
        else:
            made = home.built_in(self.scale, None if self.cluster is None else _cluster(self.cluster))
        cases = {case.name: case for case in made}
        if len(cases) != len(made):
            raise InputError(f"{self.arena}: two cases have one name")
        return cases

    @property
    def count(self) -> int:
        """How many cases there are to choose from."""
        return len(cases_of(self))


def cases_of(recipe: Recipe) -> dict[str, Case]:
    """The cases of a recipe, made once per process and made again when one of their files changed."""
    return _cases_of(recipe, recipe.contents())


@functools.lru_cache(maxsize=8)
def _cases_of(recipe: Recipe, contents: tuple[str, ...]) -> dict[str, Case]:
    return recipe.cases()


@dataclass(frozen=True)
class Plan:
    """The units of a study, in order, and what they were made from."""

    recipe: Recipe
    seed: int
    repeats: int
    techniques: Mapping[str, Technique]
    cases: Mapping[str, Case]
    metrics: tuple[str, ...]
    units: Sequence[Unit] = field(repr=False)
    #: The techniques whose claims are judged; all when empty.
    judged: tuple[str, ...] = ()

    @property
    def arena(self) -> Arena:
        """The arena that is studied."""
        return catalogue.arena(self.recipe.arena)

    @functools.cached_property
    def json(self) -> str:
        """The plan in words, as stored with the study and as its identity."""
        techniques = {name: json.loads(canonical(technique)) for name, technique in self.techniques.items()}
        what = {"recipe": asdict(self.recipe), "seed": self.seed, "repeats": self.repeats, "techniques": techniques}
        cases = {name: {"digest": c.digest, "kinds": sorted(c.kinds), "parameters": dict(c.parameters)} for name, c in self.cases.items()}
        return json.dumps({**what, "cases": cases, "metrics": self.metrics, "judged": self.judged}, default=str)

    @property
    def identity(self) -> str:
        """What makes two plans the same study."""
        return hashlib.sha256(self.json.encode()).hexdigest()


def plan(
    recipe: Recipe,
    *,
    techniques: Iterable[str | Technique] | None = None,
    settings: Mapping[str, Mapping[str, Any]] | None = None,
    cases: Iterable[str] | None = None,
    metrics: Iterable[str] | None = None,
    repeats: int | None = None,
    seed: int = 0,
    judged: Iterable[str] = (),
) -> Plan:
    """The plan of a study; every name, parameter and range is checked here, before anything is run or written.

    `settings` maps a technique to parameters; `cases` are names or patterns (`zipf-*`); `repeats` None takes the default:
    5 when something is measured, the arena's own otherwise, or 3. A study without measured metrics does not need the machine to itself.
    """
    arena = catalogue.arena(recipe.arena)
    if repeats is not None:
        checks.whole("--repeats", repeats, 1, 100_000)
    checks.whole("--seed", seed, 0, 2**63 - 1)
    wanted_metrics = tuple(metrics or arena.metrics)
    for name in wanted_metrics:
        if name not in arena.metrics:
            raise unknown("metric", name, arena.metrics, where=arena.path)
    made = _techniques(arena, techniques, settings or {})
    chosen = _chosen(cases_of(recipe), cases, arena.path)
    wanted = [arena.metrics[name] for name in wanted_metrics]
    # Only units that measure something need the machine to themselves.
    exclusive = {case.name: any(one.applies(case) and one.needs_quiet(case) for one in wanted) for case in chosen.values()}
    repeats = repeats or (arena.repeats if arena.repeats is not None else 5 if any(exclusive.values()) else 3)
    what = {}
    for name, technique in made.items():
        target = None if arena.techniques[name].startswith(".") else arena.techniques[name]
        what[name] = (canonical(technique), code_digest(arena, name), target)
    units: list[Unit] = []
    for repeat in range(repeats):
        for case in chosen.values():
            here = [
                Unit(arena.path, name, values, case.name, case.digest, repeat, seed, code, exclusive[case.name], target)
                for name, (values, code, target) in what.items()
            ]
            units += sorted(here, key=Unit.order)
    return Plan(recipe, seed, repeats, made, chosen, wanted_metrics, units, tuple(judged))


def _techniques(arena: Arena, wanted: Iterable[str | Technique] | None, settings: Mapping[str, Mapping[str, Any]]) -> dict[str, Technique]:
    """The techniques by name; an object of a class that the arena does not list joins it under its class's name."""
    made: dict[str, Technique] = {}
    for item in wanted if wanted is not None else list(arena.techniques):
        if isinstance(item, str):
            made[item] = arena.make(item, settings.get(item))
            continue
        name = arena.join(type(item))
        item.validate()
        made[name] = item
    for name in settings:
        if name not in made:
            raise unknown("technique", name, made, where="--set")
    if not made:
        raise InputError(f"{arena.path}: no technique was chosen")
    return made


def _chosen(cases: Mapping[str, Case], patterns: Iterable[str] | None, where: str) -> dict[str, Case]:
    """The cases that match any pattern, in their own order."""
    if patterns is None:
        return dict(cases)
    patterns = list(patterns)
    for pattern in patterns:
        if not fnmatch.filter(cases, pattern):
            raise unknown("case", pattern, cases, where=where)
    return {name: case for name, case in cases.items() if any(fnmatch.fnmatchcase(name, p) for p in patterns)}


@functools.lru_cache(maxsize=8)
def _cluster(text: str) -> Any:
    from armillary import cluster

    return cluster.loads(text)
