"""A user's file: a WfFormat workflow, a table of costs per edge, or a table of configurations with makespans."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from armillary.errors import InputError, one_line
from armillary.files import column_names
from armillary.scheduling.workflow.stages.workflow import Workflow

from .configuration_table import ENDING, ConfigurationTable, read_configurations
from .cost_table import NAMES, CostTable, read_costs

KINDS = (
    "a WfFormat workflow (.json), a table of costs per edge (.csv with producer, consumer, producerStorageType, estT_prod …) or a table "
    "of configurations (.csv with nodes, total and <stage>_stor …)"
)


@dataclass(frozen=True)
class Loaded:
    """What a file holds; exactly one of the three is there."""

    workflow: Workflow | None = None
    costs: CostTable | None = None
    table: ConfigurationTable | None = None


def read_work(path: Path, *, order: str = "", shared: str = "") -> Loaded:
    """Reads a file of any kind that is accepted."""
    ending = "".join(Path(path.name.lower().removesuffix(".gz").removesuffix(".zst")).suffixes[-1:])
    if ending == ".json":
        from armillary.tasks.formats import from_wfformat

        for option, value in (("--order", order), ("--shared", shared)):
            if value:
                found = f'found {option} "{one_line(value, 60)}" for a WfFormat workflow'
                raise InputError(f"{found}; expected it for tables only", where=str(path))
        return Loaded(workflow=Workflow.from_graph(from_wfformat(path)))
    if ending != ".csv":
        raise InputError(f'found the ending "{one_line(ending, 20)}"; expected {KINDS}', where=str(path))
    names = set(column_names(path, format="csv"))
    if {"producer", "consumer"} <= names:
        if not order:
            raise InputError("a table of costs needs the order of its stages; give it with --order stages.json", where=str(path))
        missing = sorted(NAMES - names)
        if missing:
            raise InputError(f"the columns {', '.join(missing)} are missing; expected all of {', '.join(sorted(NAMES))}", where=str(path))
        return Loaded(costs=read_costs(path, order, shared=shared))
    if any(name.endswith(ENDING) for name in names) and {"nodes", "total"} <= names:
        return Loaded(table=read_configurations(path, order, shared=shared))
    shown = ", ".join(one_line(name, 30) for name in sorted(names)[:6])
    raise InputError(f"found the columns {shown}; expected {KINDS}", where=str(path))
