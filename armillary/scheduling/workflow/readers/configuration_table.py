"""A table of configurations with their makespans, as published: `nodes`, `total` and a column `<stage>_stor` per stage.

Other columns of the published tables (`in_o1`, `exec_o1`, `critical_path`, `read_<stage>` …) are passed over. Without an order of stages,
the stages are taken as a chain in the order of their columns, which only the count of transitions depends on.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from armillary.errors import InputError, one_line
from armillary.files import Column, column_names, read_table
from armillary.scheduling.workflow.planning.configurations import Configurations, Layout
from armillary.scheduling.workflow.stages.workflow import MOST_STAGES, Floats
from armillary.scheduling.workflow.storage.tiers import MOST_NODES, MOST_TIERS

from .shared_tier import by_speed, shared_tier
from .stage_order import read_order

ENDING = "_stor"
LEAST_ROWS = 4
MOST_ROWS = 200_000


@dataclass(frozen=True)
class ConfigurationTable:
    """Configurations and their makespans in seconds."""

    layout: Layout
    configurations: Configurations
    total: Floats


def read_configurations(path: str | Path, order: str | Path = "", *, shared: str = "") -> ConfigurationTable:
    """Reads a table of configurations."""
    where = str(path)
    stages = [name.removesuffix(ENDING) for name in column_names(path, format="csv") if name.endswith(ENDING) and name != ENDING]
    if not 1 <= len(stages) <= MOST_STAGES:
        raise InputError(f"found {len(stages)} columns that end in {ENDING}; expected 1 to {MOST_STAGES}", where=where)
    columns = [
        Column("nodes", "int", least=1, most=MOST_NODES), Column("total", "float", above=0, most=1e12, unit="seconds"),
        *(Column(stage + ENDING, "str") for stage in stages),
    ]  # fmt: skip
    table = read_table(path, columns, format="csv", row_limit=MOST_ROWS)
    if table.rows < LEAST_ROWS:
        raise InputError(f"found {table.rows} rows; expected at least {LEAST_ROWS}", where=where)
    found = [np.asarray(table[stage + ENDING], str) for stage in stages]
    names = list(dict.fromkeys(tier for column in found for tier in np.unique(column).tolist()))
    if not 2 <= len(names) <= MOST_TIERS:
        said = ", ".join(one_line(name, 30) for name in names[:4])
        raise InputError(f"found {len(names)} storage tiers ({said}); expected 2 to {MOST_TIERS}", where=where)
    tiers = by_speed(names, shared_tier(names, shared, where))
    number = {tier: n for n, tier in enumerate(tiers)}
    tier = np.stack([np.array([number[one] for one in column.tolist()], np.int8) for column in found], 1)
    configurations = Configurations(tier, np.asarray(table["nodes"], np.int64))
    return ConfigurationTable(_layout(stages, tiers, order, where), configurations, np.asarray(table["total"], float))


def _layout(stages: list[str], tiers: list[str], order: str | Path, where: str) -> Layout:
    if not order:
        chain: tuple[tuple[int, ...], ...] = tuple((n - 1,) if n else () for n in range(len(stages)))
        initial = tuple(n == 0 for n in range(len(stages)))
        return Layout(tuple(stages), tuple(range(len(stages))), chain, initial, tuple(tiers), 0, (1,) * len(stages))
    known = read_order(order)
    if set(known.stages) != set(stages):
        raise InputError(f"found the stages {', '.join(stages)}; expected those of {order}: {', '.join(known.stages)}", where=where)
    place = [known.stages.index(stage) for stage in stages]
    before = tuple(tuple(sorted(stages.index(known.stages[p]) for p in known.before[n])) for n in place)
    return Layout(
        tuple(stages), tuple(known.order[n] for n in place), before, tuple(known.initial[n] for n in place), tuple(tiers), 0,
        tuple(known.tasks[n] for n in place),
    )  # fmt: skip
