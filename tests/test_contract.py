"""Every registered arena keeps the contract: it loads, its claims point at what exists, its parameters are documented."""

from __future__ import annotations

import dataclasses
import fnmatch
import inspect
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import grimp
import pytest

from armillary import catalogue, describe
from armillary.arena import NAME, Arena, Technique, canonical, parameters
from armillary.claim import Exponent
from armillary.testing import check_arena
from armillary.testing.battery import TINY_CPU_S

PATHS = sorted(catalogue.arenas())
TECHNIQUES = [(path, name) for path in PATHS for name in catalogue.arenas()[path].techniques]
VALUES = Path(__file__).parent / "values"
#: CPU seconds of the tiny scale where they are not the battery's usual: each of four starts of a real service imports PyTorch.
MOST_CPU_S = {"serving/deployment": 15.0}
HEAVY = ("numba", "scipy", "polars", "plotly", "torch", "pydantic", "dask", "distributed")


@pytest.mark.parametrize("path", PATHS)
def test_an_arena_is_well_formed(path: str) -> None:
    arena = catalogue.arena(path)
    assert isinstance(arena, Arena)
    assert arena.path == path
    assert arena.question.endswith("?")
    assert arena.metrics, "no metric"
    assert all(NAME.fullmatch(name) for name in arena.techniques)
    assert arena.baseline is None or arena.baseline in arena.techniques
    assert all(metric in arena.metrics for metric in arena.tradeoff or ())
    assert set(arena.papers) <= set(arena.techniques)
    assert set(arena.papers.values()) <= set(catalogue.papers())
    tiny, small, large = ([case.name for case in arena.built_in(scale)] for scale in ("tiny", "small", "large"))
    assert len(small) == len(set(small)), "two cases have one name"
    assert small == large, "case names differ between scales"
    assert set(tiny) <= set(small), "the tiny scale has cases that the others do not have"


@pytest.mark.parametrize("path", PATHS)
def test_an_arena_passes_the_battery_on_few_cases(path: str, request: pytest.FixtureRequest) -> None:
    if not request.config.getoption("markexpr"):
        pytest.skip("slow tests run too, and the whole battery is one of them")
    found = check_arena(path, cases=_few(catalogue.arena(path)), processes=False, most_cpu_s=MOST_CPU_S.get(path, TINY_CPU_S)).values
    _compare(_stored(path), found, found)


def _few(arena: Arena) -> list[str]:
    """The names of the first tiny cases, telling ones before others, that give every technique something to do."""
    cases = sorted(arena.built_in("tiny"), key=lambda case: not any(fnmatch.fnmatchcase(case.name, one) for one in arena.telling))
    idle = {name: arena.technique(name).takes for name in arena.techniques}
    chosen = []
    for case in cases:
        busy = [name for name, takes in idle.items() if not takes or takes & case.kinds]
        if busy:
            chosen.append(case.name)
        for name in busy:
            del idle[name]
    return chosen


@pytest.mark.slow
@pytest.mark.parametrize("path", PATHS)
def test_an_arena_passes_the_battery_and_its_values_stay(path: str) -> None:
    """The tiny scale's simulated and modelled values are those that are stored; ARMILLARY_RENEW_VALUES=1 stores them anew."""
    found = check_arena(path, most_cpu_s=MOST_CPU_S.get(path, TINY_CPU_S)).values
    if found and os.environ.get("ARMILLARY_RENEW_VALUES"):
        rows = (f"{json.dumps(unit)}: {json.dumps(found[unit])}" for unit in sorted(found))
        (VALUES / f"{path.replace('/', '-')}.json").write_text("{\n" + ",\n".join(rows) + "\n}\n")
    known = _stored(path)
    assert known or not found or path.startswith(("outside/", "examples/")), "no values are stored"
    _compare(known, found, known)


def _stored(path: str) -> dict[str, dict[str, float]]:
    stored = VALUES / f"{path.replace('/', '-')}.json"
    return json.loads(stored.read_text()) if stored.exists() else {}


def _compare(known: Mapping[str, Any], found: Mapping[str, Any], units: Iterable[str]) -> None:
    for unit in units:
        assert unit in found, f"{unit} is gone; store the values anew"
        for metric, value in known.get(unit, {}).items():
            assert found[unit][metric] == pytest.approx(value, rel=1e-9, abs=1e-12), f"{unit}: {metric}"


def test_no_arena_imports_another() -> None:
    graph = grimp.build_graph("armillary", exclude_type_checking_imports=True)
    homes = [catalogue.arena(path).package for path in PATHS if catalogue.arena(path).package.startswith("armillary.")]
    for home in homes:
        inside = {home, *graph.find_descendants(home)}
        reached = {target for module in inside for target in graph.find_modules_directly_imported_by(module)}
        others = [other for other in homes if other != home and any(t == other or t.startswith(f"{other}.") for t in reached)]
        assert others == [], f"{home} imports another arena"


@pytest.mark.parametrize(("path", "name"), TECHNIQUES)
def test_a_technique_is_well_formed(path: str, name: str) -> None:
    arena = catalogue.arena(path)
    technique = arena.technique(name)
    assert issubclass(technique, Technique)
    assert dataclasses.is_dataclass(technique)
    for parameter in parameters(technique).values():
        assert parameter.default is not dataclasses.MISSING, f"{parameter.name} has no default"
        assert parameter.doc, f"{parameter.name} is not documented"
    made = arena.make(name)
    assert type(arena.make(name, json.loads(canonical(made)))) is technique, "parameters survive their own JSON"
    said = f"{inspect.getdoc(sys.modules[technique.__module__])}\n{inspect.getdoc(technique)}"
    if name in arena.papers:
        title = catalogue.papers()[arena.papers[name]].title
        assert _plain(title) in _plain(said), "the docstring names its paper"
    else:
        assert re.search(r"\b(19|20)\d\d\b", said), "the docstring says where it was published"


@pytest.mark.parametrize(("path", "name"), TECHNIQUES)
def test_claims_name_what_exists(path: str, name: str) -> None:
    arena = catalogue.arena(path)
    cases = arena.built_in("small")
    for number, _, claim in arena.claims([name]):
        assert claim.metric in arena.metrics, number
        assert arena.metrics[claim.metric].better is not None, number
        for baseline in claim.baselines:
            assert not arena.technique(baseline).oracle, f"{number}: an oracle is no baseline"
        for kind in claim.kinds:
            found = [case for case in cases if kind.takes(case.kinds)]
            assert found, f"{number}: no case of kind {kind}"
            if isinstance(claim.by, Exponent):
                assert all(claim.by.variable in case.parameters for case in found), number
        assert claim.says, number


@pytest.mark.parametrize("path", PATHS)
def test_it_can_be_described(path: str) -> None:
    arena = catalogue.arena(path)
    assert arena.question in describe.text(describe.arena(arena))
    for name in arena.techniques:
        text = describe.text(describe.technique(arena, name))
        assert f"{path}/{name}" in text
        assert "Use it:" in text


def test_listing_loads_nothing_heavy() -> None:
    code = f"import sys; from armillary import catalogue; catalogue.arenas(); print([m for m in {HEAVY} if m in sys.modules])"
    assert subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "[]"


def test_a_broken_outside_package_costs_a_warning_only() -> None:
    code = "from armillary import catalogue; print(len(catalogue.arenas()))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert int(run.stdout) >= 3
    assert 'entry point "outside/broken" left out' in run.stderr


def test_no_code_draws_from_the_global_generators() -> None:
    offenders = []
    for file in (Path(catalogue.ROOT)).rglob("*.py"):
        text = file.read_text()
        for match in re.finditer(
            r"np\.random\.(?!Generator|PCG64|SeedSequence|default_rng\(\w)\w+|(?<![\w.])random\.(?!Random\b)[a-z]+\(", text
        ):
            line = text.count("\n", 0, match.start()) + 1
            if file.name != "execute.py":
                offenders.append(f"{file}:{line}: {match.group()}")
    assert offenders == []


def _plain(text: str) -> str:
    return re.sub(r"\W+", " ", text).casefold()
