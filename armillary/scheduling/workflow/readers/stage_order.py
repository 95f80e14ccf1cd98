"""The order of stages as JSON: `{stage: {stage_order, parallelism, num_tasks, predecessors: {...}, outputs}}`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from armillary.errors import InputError, one_line, unknown
from armillary.files import read_json
from armillary.scheduling.workflow.stages.workflow import MOST_STAGES, MOST_TASKS

#: Predecessors that stand for data which is there at the start.
INITIAL = ("initial", "initial_data", "input", "stage_in")


@dataclass(frozen=True)
class StageOrder:
    """Stages by level, with tasks and predecessors; `initial` says which read initial data."""

    stages: tuple[str, ...]
    order: tuple[int, ...]
    tasks: tuple[int, ...]
    before: tuple[tuple[int, ...], ...]
    initial: tuple[bool, ...]


def read_order(path: str | Path) -> StageOrder:
    """Reads and checks the order of stages."""
    document = read_json(path)
    where = str(path)
    if not isinstance(document, dict) or not document or not all(isinstance(one, dict) for one in document.values()):
        raise InputError("expected an object of stages, each with stage_order, num_tasks and predecessors", where=where)
    if len(document) > MOST_STAGES:
        raise InputError(f"found {len(document)} stages; expected at most {MOST_STAGES}", where=where)
    said = {name: _whole(table, "stage_order", f"{where}: {one_line(name, 60)}", 0, 10_000) for name, table in document.items()}
    names = sorted(document, key=lambda name: said[name])
    number = {name: n for n, name in enumerate(names)}
    before, initial, tasks = [], [], []
    for name in names:
        at = f"{where}: {one_line(name, 60)}"
        tasks.append(_whole(document[name], "num_tasks", at, 1, MOST_TASKS))
        given = document[name].get("predecessors", {})
        if not isinstance(given, dict | list) or not all(isinstance(one, str) for one in given):
            raise InputError("predecessors: expected an object or a list with names of stages", where=at)
        found = []
        for one in given:
            if one in number:
                if said[one] >= said[name]:
                    raise InputError(f'predecessor "{one_line(one, 60)}": its stage_order is not lower; there may be a cycle', where=at)
                found.append(number[one])
            elif not one.lower().startswith(INITIAL):
                raise unknown("stage", one, names, where=f"{at}.predecessors")
        before.append(tuple(sorted(set(found))))
        initial.append(not found or any(one not in number for one in given))
    levels = sorted(set(said.values()))
    return StageOrder(tuple(names), tuple(levels.index(said[n]) for n in names), tuple(tasks), tuple(before), tuple(initial))


def _whole(table: dict[str, Any], key: str, where: str, least: int, most: int) -> int:
    value = table.get(key)
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise InputError(f"{key}: found {one_line(repr(value), 40)}; expected a whole number from {least} to {most:,}", where=where)
    return value
