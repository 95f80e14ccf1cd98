"""A timeline records spans, instants, counters and arrows on tracks, in columns that grow.

A track is a thread of a process, such as a rank of a node, a stream of a device or a direction of a link. A span takes 32 bytes; equal
names and arguments are stored once.
"""

from __future__ import annotations

import json
import math
from array import array
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from armillary.errors import InputError

if TYPE_CHECKING:
    import polars


@dataclass(frozen=True)
class Track:
    """A track: a thread of a process."""

    process: str
    thread: str


@dataclass(frozen=True)
class Step:
    """A step of the critical path: what the track did from `start` to `end`, and whether an arrow led to it."""

    track: int
    name: str
    start: float
    end: float
    by_arrow: bool


class Columns:
    """A table of numbers that grows one row at a time and is read as one array per column."""

    def __init__(self, **kinds: str) -> None:
        self._columns = {name: array(kind) for name, kind in kinds.items()}
        self._appends = tuple(column.append for column in self._columns.values())

    def __len__(self) -> int:
        return len(next(iter(self._columns.values())))

    def add(self, *values: Any) -> None:
        """Adds one row, in the order of the columns."""
        for append, value in zip(self._appends, values, strict=True):
            append(value)

    def __getitem__(self, name: str) -> np.ndarray:
        return np.array(self._columns[name])

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the columns, in order."""
        return tuple(self._columns)

    @property
    def nbytes(self) -> int:
        """Bytes of all rows."""
        return sum(len(c) * c.itemsize for c in self._columns.values())


class Timeline:
    """Records what happened, exports it, and answers where the time went.

    `tracks` are (process, thread) pairs, or texts "process/thread", which get the numbers from 0 on; `track` adds more.
    """

    def __init__(self, tracks: Iterable[tuple[str, str] | str] = ()) -> None:
        self.tracks: list[Track] = []
        self._track_numbers: dict[tuple[str, str], int] = {}
        self._strings: list[str] = []
        self._string_numbers: dict[str, int] = {}
        self.spans = Columns(track="i", name="i", category="i", args="i", start="d", end="d")
        self.instants = Columns(track="i", name="i", category="i", args="i", time="d")
        self.counters = Columns(track="i", name="i", time="d", value="d")
        self.arrows = Columns(from_track="i", to_track="i", name="i", tag="i", sent="d", received="d", size="d")
        for track in tracks:
            process, _, thread = track.partition("/") if isinstance(track, str) else (track[0], "", track[1])
            self.track(process, thread)

    # Recording

    def track(self, process: str, thread: str = "") -> int:
        """The number of a track, which is made if it is new."""
        number = self._track_numbers.get((process, thread))
        if number is None:
            number = self._track_numbers[process, thread] = len(self.tracks)
            self.tracks.append(Track(process, thread))
        return number

    def _string(self, text: str) -> int:
        number = self._string_numbers.get(text)
        if number is None:
            number = self._string_numbers[text] = len(self._strings)
            self._strings.append(text)
        return number

    def string(self, number: int) -> str:
        """The text with this `number` in a column; empty for -1."""
        return self._strings[number] if number >= 0 else ""

    def _args(self, args: Mapping[str, Any] | None) -> int:
        return -1 if not args else self._string(json.dumps(args, sort_keys=True))

    def _on(self, track: int) -> int:
        if not 0 <= track < len(self.tracks):
            raise InputError(f"track {track!r} does not exist; there are {len(self.tracks)}")
        return track

    def span(self, track: int, name: str, start: float, end: float, category: str = "", args: Mapping[str, Any] | None = None) -> None:
        """Records something that took from `start` to `end`, in seconds."""
        if not 0.0 <= start <= end < math.inf:
            raise InputError(f"span {name!r}: found {start!r} to {end!r}; expected seconds of 0 or more that do not decrease")
        self.spans.add(self._on(track), self._string(name), self._string(category), self._args(args), start, end)

    def instant(self, track: int, name: str, time: float, category: str = "", args: Mapping[str, Any] | None = None) -> None:
        """Records something that took no time."""
        self.instants.add(self._on(track), self._string(name), self._string(category), self._args(args), _time(time, name))

    def counter(self, track: int, name: str, time: float, value: float) -> None:
        """Records a number that holds from `time` on (bytes in use, rate of a link)."""
        if math.isnan(value):
            raise InputError(f"counter {name!r}: found NaN; expected a number")
        self.counters.add(self._on(track), self._string(name), _time(time, name), value)

    def arrow(
        self, from_track: int, sent: float, to_track: int, received: float, name: str = "message", size: float = 0.0, tag: int = 0
    ) -> None:
        """Records a message of `size` bytes from one track to another."""
        if not 0.0 <= sent <= received < math.inf:
            raise InputError(f"arrow {name!r}: found {sent!r} to {received!r}; expected seconds of 0 or more that do not decrease")
        self.arrows.add(self._on(from_track), self._on(to_track), self._string(name), tag, sent, received, size)

    # Answers

    @property
    def start(self) -> float:
        """When the first entry begins, in seconds; 0 if there is none."""
        return min(self._bounds()[0], default=0.0)

    @property
    def end(self) -> float:
        """When the last entry ends, in seconds; 0 if there is none."""
        return max(self._bounds()[1], default=0.0)

    def _bounds(self) -> tuple[list[float], list[float]]:
        firsts = [self.spans["start"], self.instants["time"], self.counters["time"], self.arrows["sent"]]
        lasts = [self.spans["end"], self.instants["time"], self.counters["time"], self.arrows["received"]]
        return [float(x.min()) for x in firsts if len(x)], [float(x.max()) for x in lasts if len(x)]

    def frame(self) -> polars.DataFrame:
        """The spans as a Polars table: process, thread, name, category, start, end, args."""
        import polars

        s = self.spans
        text = np.array([*self._strings, ""], object)
        track = s["track"]
        columns = {
            "process": [self.tracks[t].process for t in track],
            "thread": [self.tracks[t].thread for t in track],
            "name": text[s["name"]].tolist(),
            "category": text[s["category"]].tolist(),
            "start": s["start"],
            "end": s["end"],
            "args": text[s["args"]].tolist(),
        }
        kinds = {name: polars.Float64 if name in ("start", "end") else polars.String for name in columns}
        return polars.DataFrame(columns, schema=kinds)

    def _of(self, track: int, category: str | None = None) -> np.ndarray:
        """The (start, end) of the spans of a track and category."""
        chosen = self.spans["track"] == self._on(track)
        if category is not None:
            chosen &= self.spans["category"] == self._string_numbers.get(category, -2)
        return np.column_stack([self.spans["start"][chosen], self.spans["end"][chosen]])

    def utilisation(self, track: int, start: float | None = None, end: float | None = None) -> float:
        """The fraction of the time in which the track had a span; by default, of the whole timeline."""
        low, high = self.start if start is None else start, self.end if end is None else end
        if high <= low:
            return 0.0
        covered = _union(np.clip(self._of(track), low, high))
        return float((covered[:, 1] - covered[:, 0]).sum() / (high - low))

    def overlap(self, track: int, category_a: str, category_b: str) -> float:
        """Seconds in which the track had spans of both categories at once, in O(n log n)."""
        a, b = _union(self._of(track, category_a)), _union(self._of(track, category_b))
        ends = np.concatenate([a.ravel(), b.ravel()])
        step = np.concatenate([np.tile([1, -1], len(a)), np.tile([1, -1], len(b))])
        order = np.argsort(ends, kind="stable")
        open_spans = np.cumsum(step[order])
        return float(np.diff(ends[order])[open_spans[:-1] == 2].sum())

    def critical_path(self) -> list[Step]:
        """The critical path, first to last: found backwards from the last span, along arrows and along tracks.

        A span waited for an arrow if the arrow arrived as the span ended (a receive that blocked), or after the previous span ended and no
        later than this one began; otherwise it waited for the previous span on its track. An arrow that arrives in the middle of a span was
        not waited for.
        """
        return list(reversed(list(self._backwards())))

    def _backwards(self) -> Iterator[Step]:
        s = self.spans
        if not len(s):
            return
        track, start, end, name = s["track"], s["start"], s["end"], s["name"]
        order = {t: np.flatnonzero(track == t) for t in np.unique(track).tolist()}
        order = {t: rows[np.lexsort((start[rows], end[rows]))] for t, rows in order.items()}
        a = {key: self.arrows[key] for key in ("from_track", "to_track", "sent", "received")}
        into = {t: np.flatnonzero(a["to_track"] == t) for t in np.unique(a["to_track"]).tolist()}
        into = {t: rows[np.lexsort((a["sent"][rows], a["received"][rows]))] for t, rows in into.items()}
        row = int(np.lexsort((np.arange(len(end)), -end))[0])
        until = float(end[row])
        seen: set[tuple[int, float]] = set()
        while True:
            t = int(track[row])
            if (row, until) in seen:
                return
            seen.add((row, until))
            rows = order[t]
            earlier = rows[(end[rows] <= start[row]) & (rows != row)]
            before = int(earlier[-1]) if len(earlier) else -1
            since = float(end[before]) if before >= 0 else -math.inf
            arrow = _last(a["received"], into.get(t), until)
            if arrow >= 0 and a["received"][arrow] < until:
                arrow = _last(a["received"], into.get(t), float(start[row]))
            if arrow >= 0 and a["received"][arrow] >= since and a["sent"][arrow] < until:
                received, sent, source = float(a["received"][arrow]), float(a["sent"][arrow]), int(a["from_track"][arrow])
                yield Step(t, self.string(int(name[row])), max(received, float(start[row])), until, True)
                row = _running(order.get(source), start, end, sent)
                if row < 0:
                    return
                until = min(sent, float(end[row]))
                continue
            yield Step(t, self.string(int(name[row])), min(float(start[row]), until), until, False)
            if before < 0:
                return
            row, until = before, since

    # Files

    def to_chrome(self, path: str | Path) -> None:
        """Writes Chrome/Perfetto JSON."""
        from armillary.engine.chrome import write_chrome

        write_chrome(self, Path(path))

    def to_paraver(self, path: str | Path, date: str = "01/01/70 at 00:00") -> None:
        """Writes Paraver's `.prv`, `.pcf` and `.row` beside each other; `date` goes into the header."""
        from armillary.engine.paraver import write_paraver

        write_paraver(self, Path(path), date)


def _time(time: float, name: str) -> float:
    if not 0.0 <= time < math.inf:
        raise InputError(f"{name!r}: found {time!r}; expected seconds of 0 or more")
    return time


def _union(intervals: np.ndarray) -> np.ndarray:
    """The union of the intervals, as disjoint intervals in order."""
    if not len(intervals):
        return intervals.reshape(0, 2)
    ordered = intervals[np.argsort(intervals[:, 0], kind="stable")]
    reach = np.maximum.accumulate(ordered[:, 1])
    first = np.concatenate([[True], ordered[1:, 0] > reach[:-1]])
    last = np.concatenate([first[1:], [True]])
    return np.column_stack([ordered[first, 0], reach[last]])


def _last(times: np.ndarray, rows: np.ndarray | None, until: float) -> int:
    if rows is None:
        return -1
    at = int(np.searchsorted(times[rows], until, side="right")) - 1
    return int(rows[at]) if at >= 0 else -1


def _running(rows: np.ndarray | None, start: np.ndarray, end: np.ndarray, time: float) -> int:
    """The innermost span that runs up to `time`, or else the last one that ended before it; -1 if there is none."""
    if rows is None:
        return -1
    rows = rows[start[rows] < time]
    if not len(rows):
        return -1
    inside = rows[end[rows] >= time]
    return int(inside[np.argmax(start[inside])]) if len(inside) else int(rows[np.argmax(end[rows])])
