"""The objects of a run and their spans, in columns of a few bytes per event.

A run has nodes, processes with ranks, and threads, which are a process's threads on the host and, after them, one for each stream of each
of its devices. What they did are spans of several kinds. Times are whole nanoseconds from the start of the earliest recording.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from armillary.errors import InputError

if TYPE_CHECKING:
    from pathlib import Path

    import polars

    from ..analysis.aligning import Alignment
    from ..analysis.efficiency import Efficiency
    from ..analysis.lost import Lost

Times = npt.NDArray[np.int64]
Array = npt.NDArray[Any]
#: Named values that a range of NVTX carries.
Payload = tuple[tuple[str, int | str], ...]

#: Kinds of spans: on streams, on host threads, and metrics, which are instants with a value.
KERNEL, MEMORY, GRAPH, CALL, MPI, NVTX, METRIC = KINDS = ("kernel", "memory", "graph", "call", "mpi", "nvtx", "metric")
#: Threads of a run that stand for no thread of the host.
HOST, METRICS = -1, -2


@dataclass(frozen=True)
class Process:
    """A process: its node, its number there, its rank where it is known, and the number of the report that it was recorded in."""

    host: str
    pid: int
    rank: int | None = None
    report: int = 0


@dataclass(frozen=True)
class Thread:
    """A thread of the host (`device` is `HOST`), a stream of a device, or the metrics of a device (`device` is `METRICS`)."""

    process: int
    device: int
    number: int

    @property
    def label(self) -> str:
        """The name of a stream or of a device's metrics; empty for a thread of the host."""
        if self.device >= 0:
            return f"CUDA-D{self.device}.S{self.number}"
        return f"Metrics GPU{self.number}" if self.device == METRICS else ""


@dataclass(frozen=True)
class Spans:
    """Spans of one kind in the order of their starts.

    `name` numbers the run's names, `thread` its threads; `correlation` connects a call with what it launched, and is 0 where nothing does.
    `more` are further columns: `launch` (kernels: a row of the run's launches), `bytes` (memory), `domain`, `pushed` and `payload` (NVTX),
    `type`, `sent` and `received` (MPI), `graph` and `execution` (graphs), `metric` and `value` (metrics).
    """

    start: Times
    end: Times
    thread: npt.NDArray[np.int32]
    name: npt.NDArray[np.int32]
    correlation: npt.NDArray[np.uint32]
    more: Mapping[str, Array] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.start)

    def of(self, chosen: Array | slice) -> Spans:
        """The chosen spans, by a mask, by their numbers or by a slice."""
        more = {name: column[chosen] for name, column in self.more.items()}
        return Spans(self.start[chosen], self.end[chosen], self.thread[chosen], self.name[chosen], self.correlation[chosen], more)

    def in_order(self) -> Spans:
        """The same spans in the order of their starts."""
        if len(self.start) < 2 or (self.start[1:] >= self.start[:-1]).all():
            return self
        return self.of(np.argsort(self.start, kind="stable"))

    def sort(self) -> None:
        """Puts these very columns into the order of their starts, one column after another."""
        if len(self.start) > 1 and not (self.start[1:] >= self.start[:-1]).all():
            order = np.argsort(self.start, kind="stable")
            for column in (*(getattr(self, name) for name in COLUMNS), *self.more.values()):
                column[:] = column[order]

    def shifted(self, by: npt.NDArray[np.int64] | int) -> Spans:
        """The same spans later by `by` nanoseconds, one for all or one for each."""
        return replace(self, start=self.start + by, end=self.end + by)

    @property
    def nbytes(self) -> int:
        """Bytes of all columns."""
        return sum(column.nbytes for column in (*(getattr(self, name) for name in COLUMNS), *self.more.values()))

    @classmethod
    def none(cls, **more: Any) -> Spans:
        """No spans, with further columns of these types."""
        empty = np.empty(0, np.int64)
        rest = {name: np.empty(0, kind) for name, kind in more.items()}
        return cls(empty, empty, empty.astype(np.int32), empty.astype(np.int32), empty.astype(np.uint32), rest)

    @classmethod
    def joined(cls, parts: Sequence[Spans]) -> Spans:
        """Spans of several sources with the same further columns, in the order of their starts."""
        gathering = Gathering("")
        for part in parts:
            gathering.add(part)
        return gathering.done()


#: The columns that every kind has.
COLUMNS = ("start", "end", "thread", "name", "correlation")


#: Rows by which a column grows.
_GROWTH = 1 << 20


class Gathering:
    """Spans of one kind that come in pieces, put in order at the end; memory is little more than that of the columns themselves."""

    def __init__(self, kind: str) -> None:
        self._columns: dict[str, Array] = {}
        self._many, self._kind = 0, kind

    def add(self, piece: Spans) -> None:
        """Takes further spans."""
        many = self._many + len(piece)
        given = {name: getattr(piece, name) for name in COLUMNS} | dict(piece.more)
        if not self._columns:
            self._columns = {name: column.copy() for name, column in given.items()}
        for name, column in given.items() if self._many else ():
            own = self._columns[name]
            if many > len(own):
                # The system moves the pages of a large block, so that no second copy is made.
                own.resize(max(many, len(own) + _GROWTH), refcheck=False)
            own[self._many : many] = column
        self._many = many

    def done(self) -> Spans:
        """All spans in the order of their starts."""
        if not self._columns:
            return Spans.none(**MORE[self._kind])
        columns, self._columns = self._columns, {}
        for column in columns.values():
            column.resize(self._many, refcheck=False)
        own: dict[str, Any] = {name: columns.pop(name) for name in COLUMNS}
        found = Spans(**own, more=columns)
        found.sort()
        return found


#: The further columns of each kind and their types.
MORE: Mapping[str, Mapping[str, Any]] = {
    KERNEL: {"launch": np.int32}, MEMORY: {"bytes": np.int64}, GRAPH: {"graph": np.int64, "execution": np.int64}, CALL: {},
    MPI: {"type": np.int32, "sent": np.int64, "received": np.int64}, NVTX: {"domain": np.int32, "pushed": np.bool_, "payload": np.int32},
    METRIC: {"metric": np.int32, "value": np.int64},
}  # fmt: skip


@dataclass(frozen=True)
class Run:
    """Everything that was recorded of a run."""

    processes: tuple[Process, ...]
    threads: tuple[Thread, ...]
    names: tuple[str, ...]
    spans: Mapping[str, Spans]
    #: Distinct launches of kernels: grid (3), block (3), static and dynamic shared memory, local memory, registers per thread.
    launches: npt.NDArray[np.int64] = field(default_factory=lambda: np.zeros((0, 10), np.int64))
    #: Names of NVTX domains; "" is the default one.
    domains: tuple[str, ...] = ("",)
    #: What ranges carry with them, as (field, value) pairs; the first is nothing.
    payloads: tuple[Payload, ...] = ((),)
    #: Names of GPU metrics by number.
    metrics: Mapping[int, str] = field(default_factory=dict)
    #: For each report, when its clock says that it began, in nanoseconds since 1970; None where it does not.
    began_ns: tuple[int | None, ...] = (None,)
    notes: tuple[str, ...] = ()
    alignment: Alignment | None = None
    where: str = "run"

    def of(self, kind: str) -> Spans:
        """The spans of a kind; none where nothing of it was recorded."""
        return self.spans[kind] if kind in self.spans else Spans.none(**MORE[kind])

    def __len__(self) -> int:
        return sum(len(spans) for spans in self.spans.values())

    @property
    def nbytes(self) -> int:
        """Bytes of all columns."""
        return sum(spans.nbytes for spans in self.spans.values())

    @property
    def start(self) -> int:
        """When the first span starts, in nanoseconds; 0 if there is none."""
        return min((int(spans.start[0]) for spans in self.spans.values() if len(spans)), default=0)

    @property
    def end(self) -> int:
        """When the last span ends, in nanoseconds; 0 if there is none."""
        return max((int(spans.end.max()) for spans in self.spans.values() if len(spans)), default=0)

    def devices(self) -> list[tuple[int, int]]:
        """(process, device) of every device that did something, in the order of processes."""
        return sorted({(one.process, one.device) for one in self.threads if one.device >= 0})

    def device_of_thread(self) -> npt.NDArray[np.int64]:
        """For each thread, the number of its device among `devices`, or -1."""
        numbers = {pair: number for number, pair in enumerate(self.devices())}
        return np.array([numbers.get((one.process, one.device), -1) for one in self.threads], np.int64)

    def process_of_thread(self) -> npt.NDArray[np.int64]:
        """For each thread, the number of its process."""
        return np.array([one.process for one in self.threads], np.int64)

    def named(self, test: Any) -> npt.NDArray[np.bool_]:
        """For each name, whether it passes a test."""
        return np.array([bool(test(name)) for name in self.names], np.bool_)

    def communicates(self) -> npt.NDArray[np.bool_]:
        """For each kernel, whether it is one of NCCL: its name contains "nccl"."""
        return self.named(lambda name: "nccl" in name)[self.of(KERNEL).name] if len(self.of(KERNEL)) else np.zeros(0, np.bool_)

    def device_name(self, number: int) -> str:
        """A device by rank, or by node and process where there are no ranks."""
        process, device = self.devices()[number]
        owner = self.processes[process]
        return f"rank {owner.rank} GPU {device}" if owner.rank is not None else f"{owner.host or 'node'} {owner.pid} GPU {device}"

    # What it answers, and the files that it becomes

    def to_paraver(self, path: str | Path, **options: Any) -> int:
        """Writes Paraver's `.prv`, `.pcf` and `.row`; returns their bytes. See `armillary.observability.traces.write_paraver`."""
        from ..writers.paraver import write_paraver

        return write_paraver(self, path, **options)

    def to_chrome(self, path: str | Path) -> int:
        """Writes JSON for Perfetto and Chrome, packed where the name ends in .gz; returns its bytes."""
        from ..writers.chrome import write_chrome

        return write_chrome(self, path)

    def lost(self, region: str | None = None) -> Lost:
        """Where the devices lost time, by cause and device."""
        from ..analysis.lost import lost

        return lost(self, region=region)

    def efficiency(self, region: str | None = None) -> Efficiency:
        """How efficient hosts and devices were, as factors of which each has a reason."""
        from ..analysis.efficiency import efficiency

        return efficiency(self, region=region)

    def frame(self) -> polars.DataFrame:
        """All spans as a Polars table: kind, process, thread, name, start and end in nanoseconds, and correlation."""
        import polars

        parts = []
        kinds = polars.Enum(list(KINDS))
        names = polars.Series("name", list(self.names), polars.String)
        labels = polars.Series("thread", [one.label or str(one.number) for one in self.threads], polars.String)
        owned = [str(p.rank) if p.rank is not None else f"{p.host}:{p.pid}" for p in self.processes]
        ranks = polars.Series("process", owned, polars.String)
        owners = self.process_of_thread()
        for kind, spans in self.spans.items():
            if len(spans):
                columns = {
                    "kind": polars.repeat(kind, len(spans), dtype=kinds, eager=True), "process": ranks.gather(owners[spans.thread]),
                    "thread": labels.gather(spans.thread), "name": names.gather(spans.name), "start": spans.start, "end": spans.end,
                    "correlation": spans.correlation,
                }  # fmt: skip
                parts.append(polars.DataFrame(columns))
        schema: dict[str, Any] = {
            "kind": kinds, "process": polars.String, "thread": polars.String, "name": polars.String, "start": polars.Int64,
            "end": polars.Int64, "correlation": polars.UInt32,
        }  # fmt: skip
        return polars.concat(parts).sort("start", maintain_order=True) if parts else polars.DataFrame(schema=schema)


def checked(spans: Spans, where: str, rows: Times | None = None) -> Spans:
    """The spans, unless one ends before it starts or lies outside of three centuries; `rows` are their rows in the file."""
    wrong = (spans.end < spans.start) | (spans.start < -(1 << 62)) | (spans.end >= 1 << 62)
    if wrong.any():
        at = int(np.flatnonzero(wrong)[0])
        row = at + 1 if rows is None else int(rows[at])
        what = f"found an end at {int(spans.end[at])} after a start at {int(spans.start[at])}"
        raise InputError(f"row {row}: {what}; expected nanoseconds that do not decrease", where=where)
    return spans


def per_group(groups: npt.NDArray[np.int64], many: int) -> Iterator[npt.NDArray[np.int64]]:
    """For each group from 0 to many - 1, the places at which it stands, in order; a group of -1 is left out."""
    order = np.argsort(groups, kind="stable")
    bounds = np.searchsorted(groups[order], np.arange(many + 1))
    for first, last in itertools.pairwise(bounds):
        yield order[first:last]
