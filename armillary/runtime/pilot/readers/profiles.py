"""Profiles of RADICAL-Pilot (`*.prof`): when its components saw each task, replayed as tasks that arrive and run as long as they did.

The first line is `#time,event,comp,thread,uid,state,msg`, which every component that writes to a file repeats; profiles that a task's own
script writes have none. Times are seconds since 1970, or since the profile began; then its `sync_abs` event says, as
`host:ip:t_zero:t_abs:mode`, at which absolute time that was, so several profiles are put on one clock. A message may have commas in it.
"""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np

from armillary.errors import InputError, one_line
from armillary.files import read_lines
from armillary.runtime.pilot.workload import EXECUTABLE, Tasks, Work

HEADER = "#time,event,comp,thread,uid,state,msg"
MOST_LINES, MOST_FILES, MOST_TIME = 20_000_000, 100_000, 1e11
#: Times from here on are since 1970 and need no `sync_abs`.
ABSOLUTE = 1e8
#: Events between which a task runs, the closest to its body first.
SPANS = (("app_start", "app_stop"), ("rank_start", "rank_stop"), ("exec_start", "exec_stop"), ("task_run_start", "task_run_stop"),
         ("launch_submit", "launch_collect"))  # fmt: skip
_WANTED = {event for span in SPANS for event in span}


def read_profiles(path: str | Path, *, nodes: int, cores: int, gpus: int) -> Work:
    """The tasks of one profile, or of all profiles in a folder; they need one core each, which profiles do not say."""
    place = Path(path)
    files = sorted(place.rglob("*.prof"))[: MOST_FILES + 1] if place.is_dir() else [place]
    if not files or len(files) > MOST_FILES:
        raise InputError(f"found {'no' if not files else 'too many'} *.prof; expected 1 to {MOST_FILES:,}", where=str(path))
    seen: dict[str, dict[str, float]] = {}
    for file in files:
        _read(file, seen)
    rows = []
    for uid, events in seen.items():
        span = next(((events[a], events[b]) for a, b in SPANS if a in events and b in events), None)
        if span is not None:
            if span[1] < span[0]:
                raise InputError(f"{one_line(uid, 60)}: found an end before its start", where=str(path))
            rows.append((min(events["first"], span[0]), span[1] - span[0], uid))
    if not rows:
        raise InputError("found no task that began and ended; expected events such as rank_start and rank_stop", where=str(path))
    rows.sort()
    arrives = np.array([row[0] for row in rows])
    made = Tasks()
    made.add(EXECUTABLE, [row[1] for row in rows], arrives=arrives - arrives[0], stage="profile")
    return made.work(nodes, cores, gpus, [one_line(row[2], 60) for row in rows])


def _read(file: Path, seen: dict[str, dict[str, float]]) -> None:
    """Adds the first time of each wanted event of each task, on the absolute clock where the file says what that is."""
    shift: float | None = None
    own = file.name.startswith("task.")
    for number, line in read_lines(file, most=MOST_LINES):
        where = f"{file}:{number}"
        if number == 1:
            bare = line.split(",", 2)[1:2]
            if line.strip() != HEADER and not (own and bare and bare[0].endswith("_start")):
                raise InputError(f'found "{one_line(line, 60)}"; expected the header {HEADER}', where=where)
        if line.startswith("#") or not line.strip():
            continue
        cells = line.split(",", 6)
        if len(cells) < 6:
            raise InputError(f"found {len(cells)} cells; expected at least 6", where=where)
        at, event, uid = _time(cells[0], where), cells[1], cells[4]
        if event == "sync_abs" and shift is None and len(cells) > 6:
            since = _shift(cells[6], at, where)
            shift = since if at < ABSOLUTE else 0.0
        elif uid.startswith("task."):
            at += shift or 0.0
            known = seen.setdefault(uid, {"first": at})
            known["first"] = min(known["first"], at)
            if event in _WANTED:
                first = event.endswith(("start", "submit"))
                known[event] = (min if first else max)(known.get(event, at), at)


def _shift(msg: str, at: float, where: str) -> float:
    parts = msg.split(":")
    if len(parts) < 5:
        raise InputError(f'found "{one_line(msg, 60)}"; expected host:ip:t_zero:t_abs:mode', where=where)
    return _time(parts[-2], where) - at


def _time(text: str, where: str) -> float:
    try:
        found = float(text)
    except ValueError:
        found = math.nan
    if not -MOST_TIME <= found <= MOST_TIME:
        raise InputError(f'found "{one_line(text, 40)}"; expected a time in seconds', where=where)
    return found
