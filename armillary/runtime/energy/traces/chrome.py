"""Chrome's trace format: complete events (`"ph": "X"`) with times in microseconds, one worker per process and thread."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from armillary.errors import InputError, one_line
from armillary.files import read_json
from armillary.tasks.formats.listing import MOST_FILE_BYTES

from .tasks import MOST_NS, MOST_TASKS, TaskTrace

#: Categories of PyTorch's profiler whose events run on a GPU, and that of its copies.
DEVICE, COPIES = ("kernel", "gpu_memcpy", "gpu_memset"), ("gpu_memcpy",)


def read_chrome(path: str | Path, *, category: str = "") -> TaskTrace:
    """The complete events, or those of one category (`cat`), as tasks named after the event."""
    document = read_json(path, limit=MOST_FILE_BYTES)
    events = document.get("traceEvents") if isinstance(document, dict) else document
    if not isinstance(events, list):
        raise InputError("found no list of events; expected traceEvents", where=str(path))
    base = document.get("baseTimeNanoseconds", 0) if isinstance(document, dict) else 0
    base = base if isinstance(base, int) and not isinstance(base, bool) and 0 <= base < MOST_NS else 0
    rows: list[tuple[str, str, str, int, int]] = []
    for at, event in enumerate(events):
        if not isinstance(event, dict):
            raise InputError(f"found {type(event).__name__}; expected an object", where=f"{path}: traceEvents[{at}]")
        if event.get("ph") != "X" or (category and event.get("cat") != category):
            continue
        if len(rows) >= MOST_TASKS:
            raise InputError(f"found more than {MOST_TASKS:,} events", where=str(path))
        where = f"{path}: traceEvents[{at}]"
        begun, lasts = (_ns(event, key, where) for key in ("ts", "dur"))
        if lasts < 0:
            raise InputError(f"dur: found {event.get('dur')!r}; expected microseconds of 0 or more", where=where)
        kind = str(event.get("cat", ""))
        rows.append((_text(event, "name"), f"{_text(event, 'pid')}/{_text(event, 'tid')}", kind, base + begun, base + begun + lasts))
    if not rows:
        said = f' of category "{one_line(category, 40)}"' if category else ""
        raise InputError(f"found no complete event{said}; expected at least one", where=str(path))
    copies = [row[2] in COPIES for row in rows]
    types = sorted({row[0] for row, copy in zip(rows, copies) if not copy})
    workers = sorted({row[1] for row in rows})
    number, who = ({name: i for i, name in enumerate(names)} for names in (types, workers))
    device = {row[1] for row in rows if row[2] in DEVICE}
    made = TaskTrace(
        np.array([row[3] for row in rows], np.int64), np.array([row[4] for row in rows], np.int64),
        np.array([len(types) if copy else number[row[0]] for row, copy in zip(rows, copies)], np.int64),
        np.array([who[row[1]] for row in rows], np.int64), (*types, *(("copy",) if any(copies) else ())), tuple(workers),
        tuple("gpu" if name in device else "cpu" for name in workers), frozenset({len(types)} if any(copies) else ()),
    )  # fmt: skip
    return made.checked(str(path), "; --category chooses the events of one cat, such as kernel")


def _ns(event: dict[str, Any], key: str, where: str) -> int:
    value = event.get(key)
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < MOST_NS / 4e3:
        raise InputError(f"{key}: found {one_line(repr(value), 40)}; expected microseconds", where=where)
    return round(value * 1000)


def _text(event: dict[str, Any], key: str) -> str:
    value = event.get(key, "")
    return one_line(str(value), 200) if isinstance(value, str | int | float) else ""
