"""Slurm's history, `sacct --parsable2 --format=JobID,JobName,Submit,Start,End,NNodes,NCPUS,State`, replayed as tasks.

Steps that a user started (`7.0`) are the tasks of their job; a job without any is a task itself. `7.batch` and `7.extern` are none. What
has not both begun and ended (`Unknown`, `None`, pending array tasks such as `7_[4-9]`) is left out.
"""

from __future__ import annotations

import datetime
import math
from pathlib import Path

import numpy as np

from armillary.errors import InputError, one_line
from armillary.files import read_lines
from armillary.runtime.pilot.workload import EXECUTABLE, Tasks, Work

NEEDED = ("JobID", "Submit", "Start", "End", "NNodes", "NCPUS")
MOST_ROWS, MOST = 5_000_000, 1 << 20
UNKNOWN = ("", "Unknown", "None")


def read_sacct(path: str | Path, *, nodes: int, cores: int, gpus: int) -> Work:
    """The tasks, each submitted as long after the first as it was."""
    lines = read_lines(path, most=MOST_ROWS)
    _, header = next(lines, (1, ""))
    names = header.rstrip("|").split("|")
    missing = [name for name in NEEDED if name not in names]
    if missing:
        raise InputError(
            f"found no column {missing[0]}; expected a header line with {', '.join(NEEDED)}, separated by |", where=f"{path}:1"
        )
    at = {name: names.index(name) for name in names}
    jobs: dict[str, tuple[float, float, int, int, str]] = {}
    steps: list[tuple[str, tuple[float, float, int, int, str]]] = []
    for number, line in lines:
        if not line.strip():
            continue
        cells = line.split("|")
        if len(cells) < len(names):
            raise InputError(f"found {len(cells)} cells; expected {len(names)}", where=f"{path}:{number}")
        job, _, step = cells[at["JobID"]].partition(".")
        if not job or step in ("batch", "extern", "interactive"):
            continue
        row = _row(cells, at, f"{path}:{number}", step)
        if row is None:
            continue
        if step:
            steps.append((job, row))
        else:
            jobs[job] = row
    with_steps = {job for job, _ in steps}
    rows = [row for _, row in steps] + [row for job, row in jobs.items() if job not in with_steps]
    if not rows:
        raise InputError("found no job that has begun and ended; expected at least one", where=str(path))
    rows.sort(key=lambda row: row[0])
    submitted = np.array([row[0] for row in rows])
    made = Tasks()
    made.add(
        EXECUTABLE, [row[1] for row in rows], width=[row[2] for row in rows], cores=[row[3] for row in rows],
        arrives=submitted - submitted[0], stage="history",
    )  # fmt: skip
    return made.work(nodes, cores, gpus, [row[4] for row in rows])


def _row(cells: list[str], at: dict[str, int], where: str, step: str) -> tuple[float, float, int, int, str] | None:
    """(submitted, seconds, nodes, cores on each node, name), or None for what has not begun and ended."""
    if cells[at["Start"]] in UNKNOWN or cells[at["End"]] in UNKNOWN or "[" in cells[at["JobID"]]:
        return None
    submit = cells[at["Submit"]]
    times = {name: _time(cells[at[name]], where, name) for name in ("Start", "End")}
    submitted = times["Start"] if submit in UNKNOWN or step else _time(submit, where, "Submit")
    if times["End"] < times["Start"]:
        raise InputError(f"found an end {cells[at['End']]} before the start {cells[at['Start']]}", where=where)
    width, cpus = (_whole(cells[at[name]], where, name) for name in ("NNodes", "NCPUS"))
    return submitted, times["End"] - times["Start"], width, max(1, math.ceil(cpus / width)), one_line(cells[at["JobID"]], 60)


def _time(text: str, where: str, column: str) -> float:
    try:
        return datetime.datetime.strptime(text, "%Y-%m-%dT%H:%M:%S").replace(tzinfo=datetime.UTC).timestamp()
    except ValueError:
        raise InputError(f'{column}: found "{one_line(text, 40)}"; expected a time such as 2026-01-31T08:00:00', where=where) from None


def _whole(text: str, where: str, column: str) -> int:
    if not (text.isascii() and text.isdigit()) or len(text) > 8 or not 1 <= int(text) <= MOST:
        raise InputError(f'{column}: found "{one_line(text, 40)}"; expected a whole number from 1 to {MOST:,}', where=where)
    return int(text)
