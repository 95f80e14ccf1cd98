"""A program in a table: one row per kernel, with its API, how long it takes, and which kernels it waits for.

    task,api,us,width,after
    0,host,200,1,
    1,gpu,900,1,0
    2,host,50,2,0 1

`api` is `host` for kernels that compute on this machine's cores and any other name for a device. `after` names earlier rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from armillary.errors import InputError
from armillary.files import Column, read_table

MOST_ROWS, MOST_US, MOST_WIDTH, MOST_APIS, MOST_EDGES = 500_000, 1e12, 4096, 64, 5_000_000
HOST = "host"


@dataclass(frozen=True)
class Program:
    """Kernels in program order. `api[i]` is 0 for the host and otherwise the number of a device; times are whole nanoseconds.

    Kernel `i` waits for `before[first[i]:first[i + 1]]`, all of them earlier ones.
    """

    api: npt.NDArray[np.int64]
    ns: npt.NDArray[np.int64]
    width: npt.NDArray[np.int64]
    first: npt.NDArray[np.int64]
    before: npt.NDArray[np.int64]
    apis: tuple[str, ...] = (HOST,)

    @property
    def kernels(self) -> int:
        """How many kernels there are."""
        return len(self.api)


def read_program(path: str | Path) -> Program:
    """Reads `task,api,us[,width][,after]`; `after` is a list of earlier tasks, with spaces in between."""
    columns = [
        Column("task", "str"),
        Column("api", "str"),
        Column("us", least=0, most=MOST_US, unit="microseconds"),
        Column("width", "int", least=1, most=MOST_WIDTH, default=1),
        Column("after", "str", default=""),
    ]
    table = read_table(path, columns, row_limit=MOST_ROWS)
    if not table.rows:
        raise InputError("found no rows; expected at least one kernel", where=str(path))
    api, names = table.numbered("api")
    order = [HOST, *(name for name in names if name != HOST)]
    if len(order) > MOST_APIS:
        raise InputError(f"found {len(order)} APIs; expected at most {MOST_APIS}", where=str(path))
    number = np.array([order.index(name) for name in names], np.int64)
    row_of: dict[str, int] = {}
    first, before = [0], []
    tasks, after = (table.frame[name].to_list() for name in ("task", "after"))
    for row, (task, names_before) in enumerate(zip(tasks, after)):
        if task in row_of:
            raise table.error(row, f'found "{task}" again; expected each task once', "task")
        for name in dict.fromkeys((names_before or "").split()):
            if name not in row_of:
                raise table.error(row, f'found "{name}"; expected the name of an earlier task', "after")
            before.append(row_of[name])
        if len(before) > MOST_EDGES:
            raise table.error(row, f"found more than {MOST_EDGES:,} dependencies", "after")
        first.append(len(before))
        row_of[task] = row
    ns = np.round(np.asarray(table["us"], float) * 1000).astype(np.int64)
    if float(ns.astype(float).sum()) > 1e17:
        raise InputError(f"found kernels of {float(ns.astype(float).sum()) * 1e-9:.3g} s in all; expected fewer than 1e8", where=str(path))
    return Program(
        number[np.asarray(api, np.int64)], ns, np.asarray(table["width"], np.int64), np.array(first, np.int64),
        np.array(before, np.int64), tuple(order),
    )  # fmt: skip
