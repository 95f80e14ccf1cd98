"""Tables of tasks, with the columns of `armillary.tasks` traces: times in ns, and what else a table says of flops and bytes."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from armillary.errors import InputError
from armillary.files import Column, read_table

from .tasks import MOST_NS, MOST_TASKS, TaskTrace

KINDS = ("cpu", "gpu", "link", "host")


def read_tasks(path: str | Path) -> TaskTrace:
    """Reads `name,worker,started,ended` and where present `kind,task,key,body_ended,status,cores,flops,bytes`.

    A row of kind link is a transfer for the task in its column `task`; it counts where that task ran on a GPU.
    """
    columns = [
        Column("name", "str"), Column("worker", "int", least=-1, most=1 << 20), Column("started", "int", least=-MOST_NS, most=MOST_NS),
        Column("ended", "int", least=-MOST_NS, most=MOST_NS), Column("body_ended", "int", least=-MOST_NS, most=MOST_NS, optional=True),
        Column("kind", "str", choices=KINDS, default="cpu"), Column("task", "int", optional=True), Column("key", "str", optional=True),
        Column("status", "str", choices=("done", "failed", "cancelled"), default="done"),
        Column("cores", "int", least=0, most=1 << 16, default=1), Column("flops", least=0, most=1e24, optional=True),
        Column("bytes", least=0, most=1e24, optional=True),
    ]  # fmt: skip
    table = read_table(path, columns, row_limit=MOST_TASKS)
    name, kind, worker = table["name"].astype(str), table["kind"].astype(str), np.asarray(table["worker"], np.int64)
    ran = (kind != "link") & (worker >= 0) & (table["status"].astype(str) != "cancelled")
    if not ran.any():
        raise InputError("found no task that ran on a worker; expected at least one", where=str(path))
    start, end = np.asarray(table["started"], np.int64), np.asarray(table["ended"], np.int64)
    ends = np.asarray(table["body_ended"], np.int64) if "body_ended" in table else end
    wrong = np.flatnonzero(ran & (ends < start))
    if wrong.size:
        row = int(wrong[0])
        column = "body_ended" if "body_ended" in table else "ended"
        raise table.error(row, f"found {ends[row]}, before the task started at {start[row]}", column)
    # A worker is a number and a kind, as two tables may number cores and GPUs apart.
    labels = sorted({(int(w), str(k)) for w, k in zip(worker[ran], kind[ran])})
    distinct = len({w for w, _ in labels}) == len(labels)
    number = {label: i for i, label in enumerate(labels)}
    rows = np.flatnonzero(ran)
    types = sorted(set(name[rows].tolist()))
    type_number = {one: i for i, one in enumerate(types)}
    moved: list[tuple[int, int]] = []
    if "task" in table and (kind == "link").any():
        place = {int(t): number[int(w), str(k)] for t, w, k in zip(table["task"][rows], worker[rows], kind[rows]) if k == "gpu"}
        moved = [(int(row), place[int(table["task"][row])]) for row in np.flatnonzero(kind == "link") if int(table["task"][row]) in place]
    links = np.array([row for row, _ in moved], np.int64)
    at = np.concatenate((rows, links))
    who = np.array([number[int(w), str(k)] for w, k in zip(worker[rows], kind[rows])] + [one for _, one in moved], np.int64)
    work = [np.asarray(table[one], float)[at] if one in table else np.empty(0) for one in ("flops", "bytes")]
    keys = [str(one) for one in table["key"][at]] if "key" in table else []
    made = TaskTrace(
        start[at], np.concatenate((ends[rows], end[links])),
        np.array([type_number[one] for one in name[rows].tolist()] + [len(types)] * len(moved), np.int64), who,
        (*types, *(("copy",) if moved else ())), tuple(str(w) if distinct else f"{k}{w}" for w, k in labels), tuple(k for _, k in labels),
        frozenset({len(types)} if moved else ()),
        np.concatenate((np.maximum(1, np.asarray(table["cores"], np.int64)[rows]), np.ones(len(moved), np.int64))),
        work[0], work[1], keys,
    )  # fmt: skip
    return made.checked(str(path))
