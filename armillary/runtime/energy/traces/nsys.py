"""Kernels and copies of an Nsight Systems export, by the ground's reader: one worker per device and stream."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from armillary.errors import InputError, one_line
from armillary.files.nsight import NULL, NsightExport

from .tasks import MOST_NS, MOST_TASKS, TaskTrace, in_lanes

KERNELS, COPIES = "CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_MEMCPY"


def read_nsys(path: str | Path) -> TaskTrace:
    """Kernels by their short name, and copies as transfers. Times count from 1970 where the export says when the recording began."""
    parts: dict[str, list[np.ndarray]] = {name: [] for name in ("start", "end", "deviceId", "streamId", "shortName", "copy")}
    with NsightExport(path) as export:
        texts = dict(zip(*(list(one) for one in export.strings())))
        begun = export.session_start_ns or 0
        count = 0
        for table in (KERNELS, COPIES):
            for chunk in export.numbers(table, ("start", "end", "deviceId", "streamId", "shortName")) if table in export.tables else ():
                count += len(chunk["start"])
                if count > MOST_TASKS:
                    raise InputError(f"found more than {MOST_TASKS:,} kernels and copies", where=str(path))
                for name in ("start", "end", "deviceId", "streamId", "shortName"):
                    parts[name].append(np.asarray(chunk[name], np.int64))
                parts["copy"].append(np.full(len(chunk["start"]), table == COPIES))
    if not count:
        raise InputError(f"found no rows in {KERNELS}; expected the kernels of a device", where=str(path))
    start, end, device, stream, shown, copy = (np.concatenate(one) for one in parts.values())
    wrong = np.flatnonzero((start < 0) | (end < start) | (end > MOST_NS // 2) | (device == NULL) | (stream == NULL))
    if wrong.size:
        raise InputError(f"row {int(wrong[0]) + 1}: found no device, no stream or no time from 0 on; expected all three", where=str(path))
    numbers = sorted({int(one) for one in shown[~copy]})
    labels = [one_line(texts.get(one, f"kernel {one}"), 200) for one in numbers]
    types = sorted(set(labels))
    type_of = {one: types.index(label) for one, label in zip(numbers, labels)}
    pairs = sorted({(int(d), int(s)) for d, s in zip(device, stream)})
    place = {pair: i for i, pair in enumerate(pairs)}
    made = TaskTrace(
        start + begun, end + begun,
        np.array([len(types) if c else type_of[int(n)] for n, c in zip(shown, copy)], np.int64),
        np.array([place[int(d), int(s)] for d, s in zip(device, stream)], np.int64), (*types, *(("copy",) if copy.any() else ())),
        tuple(f"gpu{d}/stream{s}" for d, s in pairs), ("gpu",) * len(pairs), frozenset({len(types)} if copy.any() else ()),
    )  # fmt: skip
    return in_lanes(made).checked(str(path))
