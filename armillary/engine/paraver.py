"""A timeline as Paraver files: `.prv` (records by time), `.pcf` (the meaning of the numbers) and `.row` (names).

The processes of the timeline become nodes and tasks, and its threads become threads; each track has its own CPU. Span categories become
states; span names, instants and counters become events; arrows become communications. Times are whole nanoseconds.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from armillary.errors import InputError

if TYPE_CHECKING:
    from armillary.engine.timeline import Columns, Timeline

#: The type of the event that says which span a thread is in; its value is 0 at the end of the span.
SPAN_EVENT = 50_000_001
#: The type of instants; each counter has one of the types after it.
INSTANT_EVENT = 50_000_002
_DATE = re.compile(r"\d\d/\d\d/\d\d at \d\d:\d\d")


def write_paraver(timeline: Timeline, path: Path, date: str) -> None:
    """Writes the three files; `path` names the `.prv`."""
    if not _DATE.fullmatch(date):
        raise InputError(f'date: found "{date}"; expected dd/mm/yy at hh:mm')
    numbering = _Numbering(timeline)
    try:
        for ending, lines in (
            (".prv", _records(timeline, numbering, date)),
            (".pcf", _meanings(timeline)),
            (".row", _names(timeline, numbering)),
        ):
            with path.with_suffix(ending).open("w", encoding="utf-8") as out:
                out.writelines(line + "\n" for line in lines)
    except OSError as error:
        raise InputError(f"cannot be written: {error.strerror}", where=str(path)) from None


class _Numbering:
    """Numbers from 1, as Paraver counts: processes as nodes and tasks, tracks as CPUs, and threads within their task."""

    def __init__(self, timeline: Timeline) -> None:
        self.tasks: dict[str, list[int]] = {}
        for number, track in enumerate(timeline.tracks):
            self.tasks.setdefault(track.process, []).append(number)
        self.cpu: dict[int, int] = {}
        self.thread: dict[int, str] = {}
        for task, numbers in enumerate(self.tasks.values(), 1):
            for thread, number in enumerate(numbers, 1):
                self.cpu[number] = len(self.cpu) + 1
                self.thread[number] = f"{self.cpu[number]}:1:{task}:{thread}"


def _columns(columns: Columns) -> dict[str, np.ndarray]:
    """Each column as an array, made once."""
    return {name: columns[name] for name in columns.names}


def _nano(seconds: np.ndarray) -> np.ndarray:
    return np.rint(seconds * 1e9).astype(np.int64)


def _states(timeline: Timeline) -> dict[int, int]:
    """The number of the state of each category (by its number in the column); 0 is idle."""
    return {int(c): k for k, c in enumerate(np.unique(timeline.spans["category"]).tolist(), 1)}


def _counter_types(timeline: Timeline) -> dict[int, int]:
    return {int(c): INSTANT_EVENT + k for k, c in enumerate(np.unique(timeline.counters["name"]).tolist(), 1)}


def _records(timeline: Timeline, numbering: _Numbering, date: str) -> Iterator[str]:
    sizes = [len(numbers) for numbers in numbering.tasks.values()]
    nodes = f"{len(sizes)}({','.join(map(str, sizes))})" if sizes else "0"
    tasks = f"{len(sizes)}({','.join(f'{n}:{k}' for k, n in enumerate(sizes, 1))})" if sizes else "0"
    whole = int(_nano(np.array([timeline.end]))[0])
    yield f"#Paraver ({date}):{whole}_ns:{nodes}:1:{tasks}"
    s, i, c, a = (_columns(x) for x in (timeline.spans, timeline.instants, timeline.counters, timeline.arrows))
    start, end = _nano(s["start"]), _nano(s["end"])
    sent, received = _nano(a["sent"]), _nano(a["received"])
    times = np.concatenate([start, start, end, _nano(i["time"]), _nano(c["time"]), sent])
    # At equal times the order is states, ends, beginnings, the rest.
    kinds = np.repeat([0, 2, 1, 3, 4, 5], [len(start), len(start), len(end), len(i["time"]), len(c["time"]), len(sent)])
    rows = np.concatenate([np.arange(len(x)) for x in (start, start, end, i["time"], c["time"], sent)])
    at, states, counter_types = numbering.thread, _states(timeline), _counter_types(timeline)
    track, name, category = s["track"], s["name"], s["category"]
    for k in np.lexsort((rows, kinds, times)):
        kind, row, time = int(kinds[k]), int(rows[k]), int(times[k])
        if kind == 0:
            yield f"1:{at[int(track[row])]}:{time}:{end[row]}:{states[int(category[row])]}"
        elif kind == 1:
            yield f"2:{at[int(track[row])]}:{time}:{SPAN_EVENT}:0"
        elif kind == 2:
            yield f"2:{at[int(track[row])]}:{time}:{SPAN_EVENT}:{name[row] + 1}"
        elif kind == 3:
            yield f"2:{at[int(i['track'][row])]}:{time}:{INSTANT_EVENT}:{i['name'][row] + 1}"
        elif kind == 4:
            yield f"2:{at[int(c['track'][row])]}:{time}:{counter_types[int(c['name'][row])]}:{round(c['value'][row])}"
        else:
            source, target = at[int(a["from_track"][row])], at[int(a["to_track"][row])]
            ends = f"{source}:{time}:{time}:{target}:{received[row]}:{received[row]}"
            yield f"3:{ends}:{round(a['size'][row])}:{a['tag'][row]}"


def _plain(text: str) -> str:
    return " ".join(text.split()) or "-"


def _meanings(timeline: Timeline) -> Iterator[str]:
    yield from ("DEFAULT_OPTIONS", "", "LEVEL               THREAD", "UNITS               NANOSEC", "")
    yield "STATES"
    yield "0    Idle"
    for category, number in _states(timeline).items():
        yield f"{number}    {_plain(timeline.string(category))}"
    for kind, title, used in (
        (SPAN_EVENT, "Span", timeline.spans["name"]),
        (INSTANT_EVENT, "Instant", timeline.instants["name"]),
    ):
        yield from ("", "EVENT_TYPE", f"0    {kind}    {title}", "VALUES")
        yield "0      End"
        for name in np.unique(used).tolist():
            yield f"{name + 1}      {_plain(timeline.string(name))}"
    for name, kind in _counter_types(timeline).items():
        yield from ("", "EVENT_TYPE", f"0    {kind}    {_plain(timeline.string(name))}")


def _names(timeline: Timeline, numbering: _Numbering) -> Iterator[str]:
    threads = [number for numbers in numbering.tasks.values() for number in numbers]
    yield f"LEVEL CPU SIZE {len(threads)}"
    yield from (f"CPU {numbering.cpu[number]}" for number in threads)
    for level in ("NODE", "TASK"):
        yield from ("", f"LEVEL {level} SIZE {len(numbering.tasks)}")
        yield from (_plain(process) for process in numbering.tasks)
    yield from ("", f"LEVEL THREAD SIZE {len(threads)}")
    yield from (_plain(f"{timeline.tracks[number].process} {timeline.tracks[number].thread}") for number in threads)
