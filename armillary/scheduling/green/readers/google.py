"""Google's cluster data as pods: version 2 of 2011 (task_events and task_usage, no header) and 2019 (tables with a header).

2011: a task is submitted (event 0), scheduled (1) and ends (2 to 6: evicted, failed, finished, killed, lost); the last run counts. Times
are µs from 600 s before the trace on; 0 and 2⁶³ − 1 mean before and after it. 2019: an instance runs from its first to its last record of
usage; its request is the largest usage, because requests stand in tables that are not read here. CPU and memory are fractions of the
largest machine.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from armillary.errors import InputError
from armillary.files import Column, column_names, read_table
from armillary.scheduling.green.problem.pods import MOST_PODS, Floats, Ints, Pods

if TYPE_CHECKING:
    from .pods import Assumed

MOST_ROWS = 20_000_000
#: µs that mean after the trace, and of a record of usage.
AFTER, RECORD = 2**63 - 1, 300_000_000
SUBMIT, SCHEDULE, ENDS = 0, 1, (2, 3, 4, 5, 6)
EVENTS = (
    "time", "missing", "job", "task", "machine", "type", "user", "class", "priority", "cpu", "memory", "disk", "different",
)  # fmt: skip
USAGE = (
    "start", "end", "job", "task", "machine", "cpu", "memory", "assigned", "unmapped", "cache", "memory_max", "disk_time", "disk_space",
    "cpu_max", "disk_max", "cpi", "mai", "portion", "aggregation", "sampled",
)  # fmt: skip
_SHARE: dict[str, Any] = {"least": 0, "most": 1e4}


def _int(name: str) -> Column:
    return Column(name, "int", least=0, default=0)


def read_2011(events: Sequence[Path], usage: Sequence[Path], known: Assumed) -> Pods:
    """Tasks of some parts of task_events, with the usage in some parts of task_usage."""
    numbers = {"time": Column("time", "int", least=0), "job": Column("job", "int", least=0), "task": Column("task", "int", least=0),
               "type": Column("type", "int", least=0, most=8), "class": _int("class"), "priority": _int("priority"),
               "cpu": Column("cpu", default=-1.0, most=1e4), "memory": Column("memory", default=0.0, most=1e4)}  # fmt: skip
    columns = [numbers.get(name, Column(name, "str", default="")) for name in EVENTS]
    found = _joined(events, columns, ("time", "job", "task", "type", "class", "priority", "cpu", "memory"))
    keys, task = _tasks(found["job"], found["task"])
    many = len(keys)
    inside = (found["time"] > 0) & (found["time"] < AFTER)
    if not inside.any():
        raise InputError("found no event within the trace; expected times above 0", where=str(events[0]))
    zero, stop = int(found["time"][inside].min()), int(found["time"][inside].max())
    time = np.clip(found["time"], zero, stop)
    submit, start, end = (np.full(many, value, np.int64) for value in (-1, -1, -1))
    cpu, memory = np.full(many, -1.0), np.zeros(many)
    kind, priority = np.zeros(many, np.int64), np.zeros(many, np.int64)
    order = np.lexsort((found["type"], time))
    for event, into in ((SUBMIT, submit), (SCHEDULE, start)):
        rows = order[found["type"][order] == event]
        # The first submission counts, and the last time that it was scheduled.
        rows = rows[::-1] if event == SUBMIT else rows
        into[task[rows]] = time[rows]
    ended = order[np.isin(found["type"][order], ENDS)]
    end[task[ended]] = time[ended]
    said = order[found["cpu"][order] >= 0]
    cpu[task[said]], memory[task[said]] = found["cpu"][said], found["memory"][said]
    kind[task[order]], priority[task[order]] = found["class"][order], found["priority"][order]
    submit = np.where(submit < 0, start, submit)
    end = np.where(end <= start, stop, end)
    kept = np.flatnonzero((start >= 0) & (cpu > 0) & (end > start))
    if not 1 <= len(kept) <= MOST_PODS:
        raise InputError(f"found {len(kept):,} tasks that ran; expected 1 to {MOST_PODS:,}", where=str(events[0]))
    tier = np.where(priority >= 9, 0, np.where(priority <= 1, 3, np.where(kind >= 2, 1, 2)))
    records = _usage_2011(usage)
    return _pods(events[0], keys, kept, submit - zero, start - zero, end - zero, known.machine_cores * cpu,
                 known.machine_memory_gb * memory, tier, keys[:, 0], records, zero, known)  # fmt: skip


def _usage_2011(files: Sequence[Path]) -> dict[str, npt.NDArray[Any]] | None:
    if not files:
        return None
    numbers = {name: Column(name, "int", least=0) for name in ("start", "end", "job", "task")}
    numbers |= {"cpu": Column("cpu", default=0.0, **_SHARE)}
    columns = [numbers.get(name, Column(name, "str", default="")) for name in USAGE[:19]] + [Column("sampled", "str", optional=True)]
    return _joined(files, columns, ("start", "end", "job", "task", "cpu"))


def read_2019(instances: Sequence[Path], collections: Sequence[Path], known: Assumed) -> Pods:
    """Instances of some instance_usage tables, with the priorities of some collection_events tables."""
    columns = [
        Column("start_time", "int", least=0), Column("end_time", "int", least=0), Column("collection_id", "int", least=0),
        Column("instance_index", "int", least=0),
        Column("average_usage.cpus", aliases=("average_usage_cpus", "average_usage_cpu"), default=0.0, **_SHARE),
        Column("maximum_usage.cpus", aliases=("maximum_usage_cpus", "maximum_usage_cpu"), default=0.0, **_SHARE),
        Column("assigned_memory", default=0.0, **_SHARE),
    ]  # fmt: skip
    names = ("start_time", "end_time", "collection_id", "instance_index", "average_usage.cpus", "maximum_usage.cpus", "assigned_memory")
    used = _joined(instances, columns, names)
    keys, task = _tasks(used["collection_id"], used["instance_index"])
    many = len(keys)
    first, last = np.full(many, AFTER, np.int64), np.zeros(many, np.int64)
    peak, memory = np.zeros(many), np.zeros(many)
    np.minimum.at(first, task, used["start_time"])
    np.maximum.at(last, task, np.minimum(used["end_time"], AFTER - 1))
    np.maximum.at(peak, task, np.maximum(used["average_usage.cpus"], used["maximum_usage.cpus"]))
    np.maximum.at(memory, task, used["assigned_memory"])
    priority = _priorities(collections, keys[:, 0])
    tier = np.where(priority >= 120, 0, np.where(priority >= 116, 1, np.where(priority >= 100, 2, 3)))
    kept = np.flatnonzero((last > first) & (peak > 0))
    if not 1 <= len(kept) <= MOST_PODS:
        raise InputError(f"found {len(kept):,} instances that ran; expected 1 to {MOST_PODS:,}", where=str(instances[0]))
    zero = int(first[kept].min())
    records = {"start": used["start_time"], "job": used["collection_id"], "task": used["instance_index"], "cpu": used["average_usage.cpus"]}
    return _pods(instances[0], keys, kept, first - zero, first - zero, last - zero, known.machine_cores * peak,
                 known.machine_memory_gb * memory, tier, keys[:, 0], records, zero, known)  # fmt: skip


def _priorities(files: Sequence[Path], collection: Ints) -> Ints:
    """The priority of each collection; that of the batch tier where none is said."""
    found = np.full(len(collection), 100, np.int64)
    if not files:
        return found
    table = _joined(files, [Column("collection_id", "int", least=0), Column("priority", "int", least=0, most=1000)],
                    ("collection_id", "priority"))  # fmt: skip
    order = np.argsort(table["collection_id"], kind="stable")
    ids = table["collection_id"][order]
    at = np.searchsorted(ids, collection, side="right") - 1
    known = (at >= 0) & (ids[np.maximum(at, 0)] == collection)
    return np.where(known, table["priority"][order][np.maximum(at, 0)], found)


def _joined(files: Sequence[Path], columns: Sequence[Column], names: Sequence[str]) -> dict[str, npt.NDArray[Any]]:
    """Some columns of several tables, one after the other."""
    headless = columns[0].name in ("time", "start")
    tables = []
    for file in files:
        used = list(columns)
        if headless and columns[-1].name == "sampled":
            # The last column came with a later release of the same version.
            used = used if _width(file) == len(USAGE) else used[:-1]
        elif not headless:
            have = set(column_names(file))
            lacking = [c.name for c in columns if c.default is None and not have & set(c.names)]
            if lacking:
                raise InputError(f"found no column {lacking[0]}; expected Google's cluster data of 2019", where=f"{file}:1")
        tables.append(read_table(file, used, header=not headless, row_limit=MOST_ROWS, format=None if not headless else "csv"))
    if sum(table.rows for table in tables) > MOST_ROWS:
        raise InputError(f"found more than {MOST_ROWS:,} rows; expected at most as many", where=str(files[0]))
    return {name: np.concatenate([table[name] for table in tables]) for name in names}


def _width(path: Path) -> int:
    from armillary.files import read_head

    return read_head(path, 4096).split(b"\n")[0].count(b",") + 1


def _tasks(job: Ints, index: Ints) -> tuple[Ints, Ints]:
    """The different (job, index) pairs, [tasks, 2], and which of them each row belongs to."""
    both = np.stack([job, index], 1)
    keys, task = np.unique(both, axis=0, return_inverse=True)
    return keys, task.reshape(-1).astype(np.int64)


def _pods(
    where: Path, keys: Ints, kept: Ints, submit: Ints, start: Ints, end: Ints, cpu: Floats, memory: Floats, tier: Ints, app: Ints,
    records: dict[str, npt.NDArray[Any]] | None, zero: int, known: Assumed,
) -> Pods:  # fmt: skip
    """Pods of the tasks that ran, with usage in steps of five minutes; steps without a record get the task's mean."""
    from .pods import numbered, promised

    # A run that began before the trace is one that is submitted when the trace begins.
    duration = np.maximum((end - start)[kept] / 1e6, 1.0)
    begin = np.maximum(0, submit[kept]) / 1e6
    sizes = np.maximum(1, np.ceil(duration / 300.0)).astype(np.int64)
    if int(sizes.sum()) > 50_000_000:
        raise InputError("found runs of more than 50 million records; expected fewer", where=str(where))
    offsets = np.concatenate(([0], np.cumsum(sizes))).astype(np.int64)
    total, seen = np.zeros(int(offsets[-1])), np.zeros(int(offsets[-1]), np.int64)
    mean = known.usage * cpu[kept]
    if records is not None:
        at = _rank(keys[kept], records["job"], records["task"])
        began = start[kept][np.maximum(at, 0)]
        # A record may begin before the run does, by less than its length.
        step = np.maximum(0, (records["start"].astype(np.int64) - zero - began) // RECORD)
        good = (at >= 0) & (step < sizes[np.maximum(at, 0)])
        place = offsets[:-1][at[good]] + step[good]
        np.add.at(total, place, known.machine_cores * records["cpu"][good])
        np.add.at(seen, place, 1)
        sums, counts = np.add.reduceat(total, offsets[:-1]), np.add.reduceat(seen, offsets[:-1])
        mean = np.where(counts > 0, sums / np.maximum(counts, 1), mean)
    usage = np.where(seen > 0, total / np.maximum(seen, 1), np.repeat(mean, sizes))
    groups = tier[kept]
    try:
        return Pods(
            begin, duration, duration, cpu[kept], memory[kept], groups, numbered([str(a) for a in app[kept].tolist()]),
            promised(begin, duration, groups, known.slack_h), usage, offsets, 300.0,
            tuple(f"{job}-{index}" for job, index in keys[kept].tolist()),
        ).check()  # fmt: skip
    except InputError as error:
        raise InputError(error.message, where=str(where)) from None


def _rank(keys: Ints, job: Ints, index: Ints) -> Ints:
    """Which of the sorted pairs `keys` each (job, index) is; −1 where it is none."""
    pair = np.dtype([("job", np.int64), ("index", np.int64)])
    wanted = np.empty(len(job), pair)
    wanted["job"], wanted["index"] = job, index
    have = np.empty(len(keys), pair)
    have["job"], have["index"] = keys[:, 0], keys[:, 1]
    at = np.minimum(np.searchsorted(have, wanted), len(have) - 1)
    found: Ints = np.where(have[at] == wanted, at, -1)
    return found
