"""Traces of several ranks, put on one clock.

A Chrome or Perfetto trace (`armillary.engine` writes them too) has one process per rank. Its times become common time, and two events of
different ranks are in a certain order only if they are further apart than both clocks may be wrong.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from armillary.errors import InputError
from armillary.files import read_json

from .align import AlignedClock

MOST_BYTES = 1 << 30


def order(clocks: Mapping[int, AlignedClock], a: tuple[int, float], b: tuple[int, float]) -> Literal["before", "after", "uncertain"]:
    """Whether event `a` was before or after `b`; events are (rank, local seconds)."""
    (first, t), (second, u) = a, b
    for rank in (first, second):
        if rank not in clocks:
            raise InputError(f"found an event of rank {rank}; expected one of {sorted(clocks)}")
    apart = float(clocks[second](u) - clocks[first](t))
    unsure = clocks[first].error_at(t) + clocks[second].error_at(u) if first != second else 0.0
    return "uncertain" if abs(apart) <= unsure and first != second else "before" if apart > 0 else "after"


def correct_chrome(path: str | Path, out: str | Path, clocks: Mapping[int, AlignedClock]) -> int:
    """Writes a Chrome trace with all times common; a process is a rank by its `pid`. Returns the number of events that were moved.

    Every event's `args` get `clock_error_us`, what its time may still be wrong by.
    """
    found = read_json(path, limit=MOST_BYTES)
    events = found.get("traceEvents") if isinstance(found, dict) else found
    if not isinstance(events, list):
        raise InputError('found no list of events; expected a Chrome trace with "traceEvents"', where=str(path))
    moved = 0
    for number, event in enumerate(events):
        if not isinstance(event, dict):
            raise InputError(f"found {type(event).__name__}; expected an object", where=f"{path}: event {number}")
        if "ts" not in event:
            continue
        stamp, rank = event["ts"], event.get("pid")
        if isinstance(stamp, bool) or not isinstance(stamp, (int, float)) or not abs(stamp) < 1e18:
            raise InputError(f'found the time "{stamp}"; expected microseconds', where=f"{path}: event {number}")
        if not isinstance(rank, int) or rank not in clocks:
            raise InputError(f"found an event of process {rank!r}; expected a rank among {sorted(clocks)}", where=f"{path}: event {number}")
        clock, local = clocks[rank], stamp * 1e-6
        event["ts"] = round(float(clock(local)) * 1e6, 6)
        extra: Any = event.setdefault("args", {})
        if isinstance(extra, dict):
            extra["clock_error_us"] = round(clock.error_at(local) * 1e6, 6)
        moved += 1
    try:
        Path(out).write_text(json.dumps(found, separators=(",", ":")))
    except OSError as error:
        raise InputError(f"cannot be written: {error.strerror}", where=str(out)) from None
    return moved
