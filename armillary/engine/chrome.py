"""A timeline as Chrome/Perfetto JSON, written event by event."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from armillary.errors import InputError

if TYPE_CHECKING:
    from armillary.engine.timeline import Timeline


def write_chrome(timeline: Timeline, path: Path) -> None:
    """Writes `{"displayTimeUnit": "ns", "traceEvents": [...]}`; times are microseconds with three digits."""
    try:
        with path.open("w", encoding="utf-8") as out:
            out.write('{"displayTimeUnit":"ns","traceEvents":[')
            mark = "\n"
            for event in _events(timeline):
                out.write(mark + event)
                mark = ",\n"
            out.write("\n]}\n")
    except OSError as error:
        raise InputError(f"cannot be written: {error.strerror}", where=str(path)) from None


def _micro(seconds: float) -> str:
    return f"{seconds * 1e6:.3f}"


def _events(timeline: Timeline) -> Iterator[str]:
    processes: dict[str, int] = {}
    where: list[str] = []
    for number, track in enumerate(timeline.tracks):
        new = track.process not in processes
        pid = processes.setdefault(track.process, len(processes))
        where.append(f'"pid":{pid},"tid":{number}')
        if new:
            yield _meta(f'"pid":{pid}', "process_name", {"name": track.process})
        yield _meta(where[number], "thread_name", {"name": track.thread})
        yield _meta(where[number], "thread_sort_index", {"sort_index": number})
    quoted = [json.dumps(text) for text in timeline._strings]
    s = timeline.spans
    for t, name, category, args, start, end in zip(
        *(s[k].tolist() for k in ("track", "name", "category", "args", "start", "end")), strict=True
    ):
        # Both ends are rounded before they are subtracted, so that adjacent spans still meet.
        begin, until = round(start * 1e9), round(end * 1e9)
        yield (
            f'{{"ph":"X","name":{quoted[name]},"cat":{quoted[category]},{where[t]},"ts":{begin // 1000}.{begin % 1000:03d},'
            f'"dur":{(until - begin) // 1000}.{(until - begin) % 1000:03d}{_args(timeline, args)}}}'
        )
    i = timeline.instants
    for t, name, category, args, time in zip(*(i[k].tolist() for k in ("track", "name", "category", "args", "time")), strict=True):
        yield f'{{"ph":"i","s":"t","name":{quoted[name]},"cat":{quoted[category]},{where[t]},"ts":{_micro(time)}{_args(timeline, args)}}}'
    c = timeline.counters
    for t, name, time, value in zip(*(c[k].tolist() for k in ("track", "name", "time", "value")), strict=True):
        yield f'{{"ph":"C","name":{quoted[name]},{where[t]},"ts":{_micro(time)},"args":{{"value":{json.dumps(value)}}}}}'
    a = timeline.arrows
    columns = (a[k].tolist() for k in ("from_track", "to_track", "name", "sent", "received", "size"))
    for number, (source, target, name, sent, received, size) in enumerate(zip(*columns, strict=True)):
        args = f',"args":{{"bytes":{json.dumps(size)}}}'
        yield f'{{"ph":"s","id":{number},"name":{quoted[name]},"cat":"arrow",{where[source]},"ts":{_micro(sent)}{args}}}'
        yield f'{{"ph":"f","bp":"e","id":{number},"name":{quoted[name]},"cat":"arrow",{where[target]},"ts":{_micro(received)}{args}}}'


def _args(timeline: Timeline, number: int) -> str:
    return f',"args":{timeline.string(number)}' if number >= 0 else ""


def _meta(where: str, name: str, args: dict[str, Any]) -> str:
    return f'{{"ph":"M","name":"{name}",{where},"args":{json.dumps(args)}}}'
