"""A run as a Paraver trace: `.prv` with records in the order of time, `.pcf` with their meaning, `.row` with names.

A span is two records, the second of which sets all its types to 0. A line leads from each call to what it launched. Records are made and
sorted for one stretch of time after another; the ends of spans that reach beyond a stretch wait for theirs, so that memory beyond the run
itself does not grow with the run.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from armillary.errors import InputError
from armillary.kernels import loop

from ..analysis.regions import launching
from ..analysis.waiting import waits
from ..run.model import CALL, GRAPH, KERNEL, MEMORY, METRIC, MPI, NVTX, Run, Spans
from . import event_types as types
from .event_types import Values, values_of
from .objects import Objects, meanings
from .records import ENDS, ENDS_OF_MOMENTS, LINE, LINES, STARTS, STATE, STATES, Records, Texts
from .whole import whole_files, write_all

Numbers = npt.NDArray[np.int64]

#: Spans in one stretch of time, about.
STRETCH = 64_000
_SAMPLE = 4096
_DATE = re.compile(r"\d\d/\d\d/\d\d at \d\d:\d\d")


def write_paraver(
    run: Run, path: str | Path, *, lines: bool = True, states: bool = False, packed: bool = False, date: str = "01/01/70 at 00:00"
) -> int:
    """Writes `path`.prv (`.prv.gz` if `packed`), `.pcf` and `.row`; returns their bytes.

    lines: from calls to what they launched. states: running, waiting and group communication. date: in the first line.
    """
    if not _DATE.fullmatch(date):
        raise InputError(f'date: found "{date}"; expected dd/mm/yy at hh:mm')
    path = Path(path)
    stem = path.with_suffix("") if path.suffix in (".prv", ".pcf", ".row") else path
    objects, values = Objects(run), values_of(run)
    base = min(0, run.start)
    prv = stem.with_name(stem.name + (".prv.gz" if packed else ".prv"))
    paths = (prv, stem.with_name(stem.name + ".pcf"), stem.with_name(stem.name + ".row"))
    with whole_files(paths) as (records, *others):
        write_all(records, f"{objects.header(date, run.end - base)}\n".encode())
        maker = _Maker(run, values, objects, base, lines, states)
        buffer = np.empty(1 << 22, np.uint8)
        for part in maker.stretches():
            for piece in part.lines(maker.texts, buffer):
                write_all(records, piece)
        for out, text in zip(others, (meanings(run, values, states), objects.names())):
            write_all(out, ("\n".join(text) + "\n").encode())
    return sum(path.stat().st_size for path in paths)


class _Maker:
    """Makes the records of one stretch of time after another; lives while one file is written."""

    def __init__(self, run: Run, values: Values, objects: Objects, base: int, lines: bool, states: bool) -> None:
        self.run, self.values, self.base, self.with_states = run, values, base, states
        self.texts = Texts()
        self.thread = self.texts.many(objects.prefixes)
        self.spans = {kind: spans for kind, spans in run.spans.items() if len(spans)}
        #: For each kind, the spans whose ends are still to be written.
        self.open = {kind: np.empty(0, np.int64) for kind in self.spans}
        self.done = dict.fromkeys(self.spans, 0)
        self.talking = run.communicates()
        self.waiting = waits(run)
        self._make_texts()
        self.lines = {kind: self._lines(kind) for kind in (KERNEL, MEMORY, GRAPH) if lines and kind in self.spans and CALL in self.spans}

    def _make_texts(self) -> None:
        run, add = self.run, self.texts.add
        zeros = "".join(f":{number}:0" for number in types.LAUNCH)
        self.launch = self.texts.many("".join(f":{t}:{v}" for t, v in zip(types.LAUNCH, row)) for row in run.launches.tolist())
        self.correlation = add(f":{types.CORRELATION}:")
        self.names: dict[str, Any] = {}
        for kind, number in ((CALL, types.CALLS), (MEMORY, types.COPIES), (GRAPH, types.GRAPHS)):
            self.names[kind] = self.texts.many(f":{number}:{value}" for value in self.values.of_name[kind].tolist())
        talk = run.named(lambda name: "nccl" in name).tolist()
        kernels = self.values.of_name[KERNEL].tolist()
        self.names[KERNEL] = self.texts.many(f":{types.NCCL if t else types.KERNELS}:{value}" for t, value in zip(talk, kernels))
        self.size, self.graph, self.execution = (add(f":{t}:") for t in (types.COPY_SIZE, types.GRAPH_ID, types.GRAPH_EXECUTION))
        self.sent, self.received = add(f":{types.MPI_SENT}:"), add(f":{types.MPI_RECEIVED}:")
        fields = [self.values.payload(one) for one in run.payloads]
        self.payloads = np.array([add(text) if text else -1 for text in fields], np.int32)
        self.no_payload = add(self.values.no_payload)
        end = f":{types.CORRELATION}:0"
        self.ends = {
            KERNEL: (add(f":{types.KERNELS}:0{zeros}{end}"), add(f":{types.NCCL}:0{zeros}{end}")), CALL: (add(f":{types.CALLS}:0{end}"),),
            MEMORY: (add(f":{types.COPIES}:0:{types.COPY_SIZE}:0{end}"),),
            GRAPH: (add(f":{types.GRAPHS}:0:{types.GRAPH_ID}:0:{types.GRAPH_EXECUTION}:0"),),
        }  # fmt: skip
        self.tags = {KERNEL: add(f":{types.TAG_LAUNCH}"), MEMORY: add(f":{types.TAG_MEMORY}"), GRAPH: add(f":{types.TAG_LAUNCH}")}

    def _lines(self, kind: str) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]:
        """(calls, activities) that a line connects, in the order of the calls."""
        return _grouped(launching(self.run, self.spans[kind]), len(self.run.of(CALL)))

    def stretches(self) -> Iterator[Records]:
        """The records of the whole run, one stretch of time after another."""
        samples = np.sort(np.concatenate([spans.start[_SAMPLE::_SAMPLE] for spans in self.spans.values()] or [np.empty(0, np.int64)]))
        bounds = np.unique(samples[:: max(1, STRETCH // _SAMPLE)])[1:].tolist()
        before = -(1 << 62)
        for until in [*bounds, 1 << 62]:
            parts = [part for kind in self.spans for part in self._part(kind, until)]
            parts += [part for kind in self.lines for part in self._line_part(kind, before, until)]
            parts = [part for part in parts if len(part.time)]
            before = until
            if parts:
                yield Records.joined(parts)

    def _part(self, kind: str, until: int) -> Iterator[Records]:
        spans = self.spans[kind]
        first = self.done[kind]
        last = self.done[kind] = int(np.searchsorted(spans.start, until))
        rows = slice(first, last)
        yield from self._starts(kind, spans, rows)
        if kind == METRIC:
            return
        mine = np.concatenate([self.open[kind], np.arange(first, last)])
        over = spans.end[mine] < until
        self.open[kind] = mine[~over]
        yield self._ends(kind, spans, mine[over])

    def _starts(self, kind: str, spans: Spans, rows: slice) -> Iterator[Records]:
        time, thread, name = spans.start[rows] - self.base, self.thread[spans.thread[rows]], spans.name[rows]
        correlation = (self.correlation, spans.correlation[rows])
        more = {column: values[rows] for column, values in spans.more.items()}
        numbers: tuple[Any, ...]
        if kind == KERNEL:
            yield Records.of(time, STARTS, thread, self.names[kind][name], self.launch[more["launch"]], numbers=(correlation,))
        elif kind == CALL:
            yield Records.of(time, STARTS, thread, self.names[kind][name], numbers=(correlation,))
        elif kind == MEMORY:
            yield Records.of(time, STARTS, thread, self.names[kind][name], numbers=((self.size, more["bytes"]), correlation))
        elif kind == GRAPH:
            numbers = ((self.graph, more["graph"]), (self.execution, more["execution"]))
            yield Records.of(time, STARTS, thread, self.names[kind][name], numbers=numbers)
        elif kind == METRIC:
            labels = self._labels(types.METRICS + more["metric"])
            yield Records.of(time, STARTS, thread, -1, numbers=((labels, more["value"]),))
        else:
            labels = self._labels(self._types(kind, spans, rows))
            numbers = ((labels, self.values.of_name[kind][name]),)
            if kind == MPI:
                collective = more["type"] == 50_000_002
                numbers += tuple(
                    (np.where(collective, label, -1), more[column]) for label, column in ((self.sent, "sent"), (self.received, "received"))
                )
            carried: Any = self.payloads[more["payload"]] if kind == NVTX else -1
            if kind == NVTX and len(self.payloads) > 1:
                carried = np.where(self._types(kind, spans, rows) == types.NCCL_RANGES, carried, -1)
            yield Records.of(time, STARTS, thread, -1, carried, numbers=numbers)
        if self.with_states:
            yield from self._states(kind, spans, rows)

    def _ends(self, kind: str, spans: Spans, rows: Numbers) -> Records:
        time, thread = spans.end[rows], self.thread[spans.thread[rows]]
        order = np.where(time > spans.start[rows], ENDS, ENDS_OF_MOMENTS)
        if kind == KERNEL:
            text: Any = np.where(self.talking[rows], self.ends[kind][1], self.ends[kind][0])
        elif kind in self.ends:
            text = self.ends[kind][0]
        else:
            labels = self._labels(self._types(kind, spans, rows))
            zero = np.zeros(len(rows), np.int64)
            numbers: tuple[Any, ...] = ((labels, zero),)
            if kind == MPI:
                collective = spans.more["type"][rows] == 50_000_002
                numbers += tuple((np.where(collective, label, -1), zero) for label in (self.sent, self.received))
            text = -1
            if kind == NVTX and self.values.fields:
                text = np.where(self._types(kind, spans, rows) == types.NCCL_RANGES, self.no_payload, -1)
            return Records.of(time - self.base, order, thread, text, numbers=numbers)
        return Records.of(time - self.base, order, thread, text)

    def _types(self, kind: str, spans: Spans, rows: Any) -> Numbers:
        if kind == MPI:
            return spans.more["type"][rows].astype(np.int64)
        of_domain = np.array(self.values.domain_types, np.int64)[spans.more["domain"][rows]]
        return np.where(spans.more["pushed"][rows], of_domain, types.START_END)

    def _labels(self, numbers: Numbers) -> npt.NDArray[np.int32]:
        """The texts of event types."""
        distinct, place = np.unique(numbers, return_inverse=True)
        return self.texts.many(f":{number}:" for number in distinct.tolist())[place.reshape(-1)]

    def _states(self, kind: str, spans: Spans, rows: slice) -> Iterator[Records]:
        if kind == KERNEL:
            state = np.where(self.talking[rows], types.GROUP_COMMUNICATION, types.RUNNING)
            chosen = np.ones(len(state), np.bool_)
        elif kind == CALL:
            chosen = self.waiting[rows]
            state = np.full(len(chosen), types.WAITING)
        else:
            return
        time = spans.start[rows][chosen] - self.base
        numbers = ((-1, spans.end[rows][chosen] - self.base), (-1, state[chosen]))
        yield Records.of(time, STATES, self.thread[spans.thread[rows][chosen]], -1, mode=STATE, numbers=numbers)

    def _line_part(self, kind: str, before: int, until: int) -> Iterator[Records]:
        calls, spans = self.spans[CALL], self.spans[kind]
        source, activity = self.lines[kind]
        low, high = np.searchsorted(calls.start, [before, until])
        first, last = np.searchsorted(source, [low, high])
        call, what = source[first:last], activity[first:last]
        size = spans.more["bytes"][what] if kind == MEMORY else np.zeros(len(what), np.int64)
        # A line cannot arrive before it leaves, whatever the clocks of host and device say.
        arrival = np.maximum(spans.start[what], calls.start[call]) - self.base
        sender, receiver = self.thread[calls.thread[call]], self.thread[spans.thread[what]]
        yield Records.of(
            calls.start[call] - self.base, LINES, sender, self.tags[kind], receiver, mode=LINE, numbers=((-1, arrival), (-1, size))
        )


@loop
def _grouped(source: Any, many: int) -> tuple[Any, Any]:
    """(sources, places) of all entries that have a source below `many`, in the order of the sources."""
    after = np.zeros(many + 1, np.int32)
    for k in range(len(source)):
        if source[k] >= 0:
            after[source[k] + 1] += 1
    for c in range(many):
        after[c + 1] += after[c]
    sources, places = np.empty(after[many], np.int32), np.empty(after[many], np.int32)
    for k in range(len(source)):
        if source[k] >= 0:
            at = after[source[k]]
            sources[at], places[at] = source[k], k
            after[source[k]] += 1
    return sources, places
