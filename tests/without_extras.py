"""Runs some cases of arenas as if no optional package were installed, and prints what does not go well as JSON.

python tests/without_extras.py [ARENA ...]
"""

from __future__ import annotations

import importlib.machinery
import json
import sys
import warnings
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from armillary import catalogue, extras
from armillary.arena import Arena

#: Cases of different kinds that every technique gets.
MOST_CASES = 3


def hide_optional_packages() -> None:
    """Makes every package that an extra brings look as if it were not there."""
    imported = {package: module for module, package in extras.INSTALLED_AS.items()}
    hidden = {imported.get(package, package.replace("-", "_")) for package in extras._extras()}
    find = importlib.machinery.PathFinder.find_spec

    def find_spec(name: str, path: Any = None, target: Any = None) -> Any:
        return None if name.partition(".")[0] in hidden else find(name, path, target)

    importlib.machinery.PathFinder.find_spec = find_spec  # type: ignore[method-assign,assignment]
    assert not {name.partition(".")[0] for name in sys.modules} & hidden, "imported before it was hidden"


def faults(arena: Arena) -> Iterator[str]:
    """What fails, or declines without naming an extra that exists."""
    from armillary.study.execute import execute
    from armillary.study.plan import Recipe, plan

    planned = plan(Recipe(arena.path, "tiny"), repeats=1)
    chosen: dict[frozenset[str], str] = {}
    for name, case in planned.cases.items():
        chosen.setdefault(case.kinds, name)
    some = set(list(chosen.values())[:MOST_CASES])
    ran, wanting = set(), set()
    for unit in planned.units:
        if unit.case not in some:
            continue
        report = execute(replace(unit, exclusive=False), planned.recipe)
        ran |= {unit.technique} if report.state == "done" else set()
        if report.state == "failed":
            yield f"{unit.technique} on {unit.case} failed: {report.error}"
        elif "not installed" in report.reason and "armillary[" not in report.reason:
            yield f"{unit.technique} declines without naming an extra: {report.reason}"
        elif "armillary[" in report.reason:
            wanting.add(unit.technique)
    # Where everything is really trained, nothing runs without PyTorch.
    if not ran and wanting != set(arena.techniques):
        yield "no technique ran"


def main() -> None:
    """Prints a mapping from arena to its faults."""
    warnings.simplefilter("ignore")
    hide_optional_packages()
    found = {}
    for path, arena in catalogue.arenas().items():
        if arena.package.startswith("armillary.") and path in (sys.argv[1:] or [path]):
            try:
                found[path] = list(faults(arena))
            except Exception as error:
                found[path] = [f"the arena fails: {type(error).__name__}: {error}"]
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
