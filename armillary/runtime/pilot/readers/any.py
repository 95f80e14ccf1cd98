"""Tells the kinds of file apart by their content and reads each with its own reader."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from armillary.errors import InputError
from armillary.files import read_head
from armillary.runtime.pilot.workload import EXECUTABLE, Tasks, Work

from .history import read_sacct
from .profiles import read_profiles
from .tasks import read_tasks

#: Edges between tasks that a file may have.
MOST_EDGES = 20_000_000


def read_work(path: Path, *, nodes: int, cores: int, gpus: int) -> Work:
    """The tasks of a file, or of a folder of profiles, for an allocation of so many nodes."""
    if path.is_dir():
        return read_profiles(path, nodes=nodes, cores=cores, gpus=gpus)
    head = read_head(path, 4096).lstrip(b"\xef\xbb\xbf \t\r\n")
    if head.startswith(b"#time,"):
        return read_profiles(path, nodes=nodes, cores=cores, gpus=gpus)
    first = head.split(b"\n", 1)[0]
    if head.startswith(b"{"):
        if b'"schemaVersion"' in head or b'"workflow"' in head or first.strip() == b"{":
            return read_workflow(path, nodes=nodes, cores=cores, gpus=gpus)
        return read_tasks(path, nodes=nodes, cores=cores, gpus=gpus)
    if b"|" in first:
        return read_sacct(path, nodes=nodes, cores=cores, gpus=gpus)
    raise InputError(
        "found none of the known beginnings; expected JSON Lines of tasks, WfFormat, `sacct --parsable2` or a profile of RADICAL-Pilot",
        where=str(path),
    )


def read_workflow(path: Path, *, nodes: int, cores: int, gpus: int) -> Work:
    """A WfFormat file: every task is an executable of one node."""
    from armillary.tasks.formats import from_wfformat

    graph = from_wfformat(path)
    if not graph.tasks:
        raise InputError("found no tasks; expected at least one", where=str(path))
    if sum(len(task.before) for task in graph.tasks) > MOST_EDGES:
        raise InputError(f"found more than {MOST_EDGES:,} dependencies", where=str(path))
    made = Tasks()
    seconds = np.array([float(task.seconds("cpu") or 0.0) for task in graph.tasks])
    made.add(EXECUTABLE, seconds, cores=[max(1, task.cores) for task in graph.tasks], stage="workflow")
    waits = [(task.id, before) for task in graph.tasks for before in task.before]
    if waits:
        later, earlier = zip(*waits, strict=True)
        made.wait(later, earlier)
    return made.work(nodes, cores, gpus, [task.key for task in graph.tasks])
