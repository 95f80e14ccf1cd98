"""The SQLite export of Nsight Systems as a `Run`.

Schemas 3.11 to 3.16 are known; others are read with a note. Tables and columns that an export does not have are simply not there. Names are
stored once, launches of kernels with equal grids and sizes are stored once, and no event becomes a Python object.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt

from armillary.errors import InputError
from armillary.files import parse_json
from armillary.files.nsight import NULL, NsightExport, process_of, thread_of

from ..run.interning import Interner
from ..run.model import (
    CALL,
    GRAPH,
    HOST,
    KERNEL,
    MEMORY,
    METRIC,
    METRICS,
    MPI,
    NVTX,
    Array,
    Gathering,
    Payload,
    Process,
    Run,
    Spans,
    Thread,
    checked,
)
from .mpi_calls import COLLECTIVE, INPUT_OUTPUT, OTHER, POINT_TO_POINT, kind_of_call

Numbers = npt.NDArray[np.int64]
Columns = dict[str, Numbers]

KNOWN = ((3, 11), (3, 16))
#: Events of one export, unless the caller says otherwise.
EVENTS = 200_000_000
LAUNCH = (
    "gridX", "gridY", "gridZ", "blockX", "blockY", "blockZ", "staticSharedMemory", "dynamicSharedMemory", "localMemoryTotal",
    "registersPerThread",
)  # fmt: skip
_STREAM = ("start", "end", "deviceId", "streamId", "correlationId", "globalPid", "contextId")
_ACTIVITY = "CUPTI_ACTIVITY_KIND_"
_VERSION = re.compile(r"_v\d{4,}$")
_PUSHED, _RANGES, _DOMAIN = (59, 70), (60, 71), 75
_NVTX = ("start", "end", "globalTid", "textId", "eventType", "domainId", "jsonTextId", "rowid")
#: Texts of ranges that stand in their rows, and fields of a payload.
_TEXTS, _FIELDS = 5_000_000, 50
_MPI = {
    "MPI_P2P_EVENTS": POINT_TO_POINT, "MPI_START_WAIT_EVENTS": POINT_TO_POINT, "MPI_COLLECTIVES_EVENTS": COLLECTIVE,
    "MPI_OTHER_EVENTS": OTHER,
}  # fmt: skip


def read_nsys(path: str | Path, *, most_events: int = EVENTS) -> Run:
    """Reads an export (`nsys export -t sqlite`); times are nanoseconds from the start of its recording."""
    with NsightExport(path) as export:
        return _Reader(export, most_events).run()


class _Reader:
    """Gathers the spans of one export; lives while the export is open."""

    def __init__(self, export: NsightExport, most_events: int) -> None:
        self.export = export
        self.left = most_events
        self.notes: list[str] = []
        self.keys, strings = export.strings()
        #: The texts of the export, then those that are made here.
        self.texts = [_VERSION.sub("", text) for text in strings]
        self.made: dict[str, int] = {}
        #: (process, device, number) of threads, and the launches, each distinct one once.
        self.threads = Interner(3)
        self.launches = Interner(len(LAUNCH))
        #: Domains of NVTX, what its ranges carry, and ranks of processes by NCCL.
        self.domains: tuple[str, ...] = ("",)
        self.payloads: dict[Payload, int] = {(): 0}
        self.read_payloads: dict[str, int] = {}
        self.nccl_ranks: dict[int, int] = {}
        contexts = export.small("TARGET_INFO_CUDA_CONTEXT_INFO", "processId", "deviceId", "contextId")
        pids = {pid for pid, _, _ in contexts if isinstance(pid, int)}
        #: The process of activities that do not name theirs, as those of old exports.
        self.only = next(iter(pids)) if len(pids) == 1 else 0

    def run(self) -> Run:
        export = self.export
        if not KNOWN[0] <= export.schema[:2] <= KNOWN[1]:
            version = ".".join(map(str, export.schema))
            self.notes.append(f"The export's schema {version} is not one of 3.11 to 3.16, which are known; what is known of it was read.")
        spans = {
            KERNEL: self._gathered(KERNEL, self._kernels()), MEMORY: self._gathered(MEMORY, self._memory()),
            GRAPH: self._gathered(GRAPH, self._graphs()), CALL: self._gathered(CALL, self._calls()), MPI: self._gathered(MPI, self._mpi()),
        }  # fmt: skip
        spans[NVTX] = self._nvtx()
        names, spans[METRIC] = self._metrics()
        spans = {kind: found for kind, found in spans.items() if len(found)}
        rows = self.threads.rows
        used = sorted(set(rows[:, 0].tolist()))
        ranks = self.nccl_ranks | self._ranks()
        processes = tuple(Process(export.host, int(pid), ranks.get(int(pid))) for pid in used)
        number = {pid: place for place, pid in enumerate(used)}
        threads = [Thread(number[p], d, n) for p, d, n in rows.tolist()]
        order = sorted(range(len(threads)), key=lambda k: (threads[k].process, threads[k].device != HOST, *_place(threads[k])))
        renumbered = np.empty(len(order), np.int32)
        renumbered[order] = np.arange(len(order))
        kept, texts = self._used_names(spans)
        for one in spans.values():
            # The columns are this reader's own, so that they can change where they stand.
            np.take(renumbered, one.thread, out=one.thread, mode="clip")
            np.take(kept, one.name, out=one.name, mode="clip")
        return Run(
            processes, tuple(threads[k] for k in order), texts, spans, self.launches.rows.copy(), self.domains,
            tuple(self.payloads), names, (export.session_start_ns,), tuple(self.notes), where=export.where,
        )  # fmt: skip

    def _gathered(self, kind: str, parts: Iterator[Spans]) -> Spans:
        gathering = Gathering(kind)
        for part in parts:
            if len(part):
                gathering.add(part)
        return gathering.done()

    def _rows(self, table: str, columns: tuple[str, ...]) -> Iterator[tuple[Columns, Numbers, str]]:
        """Chunks of a table without rows that have no start, their rows in the file, and where they are."""
        where, first = f"{self.export.where}: {table}", 1
        for chunk in self.export.numbers(table, columns):
            many = len(chunk[columns[0]])
            rows = np.arange(first, first + many)
            first += many
            self.left -= many
            if self.left < 0:
                raise InputError("found more events than are accepted; expected at most as many as most_events says", where=where)
            begun = chunk[columns[0]] != NULL
            if not begun.all():
                chunk, rows = {name: column[begun] for name, column in chunk.items()}, rows[begun]
            yield chunk, rows, where

    def _spans(self, chunk: Columns, rows: Numbers, where: str, thread: Numbers, name: Numbers, **more: Array) -> Spans:
        end = chunk["end"]
        open_ended = end == NULL
        if open_ended.any():
            self._note(f"{where.rpartition(': ')[2]} has events without an end, which are taken to end where they start.")
            end = np.where(open_ended, chunk["start"], end)
        correlation = _filled(chunk.get("correlationId", np.zeros(len(end), np.int64)))
        if len(correlation) and not 0 <= correlation.min() <= correlation.max() < 1 << 32:
            raise InputError("found a correlationId outside of 32 bits; expected one of CUPTI's", where=where)
        made = Spans(chunk["start"].copy(), end.copy(), thread.astype(np.int32), name.astype(np.int32), correlation.astype(np.uint32), more)
        return checked(made, where, rows)

    def _note(self, text: str) -> None:
        if text not in self.notes:
            self.notes.append(text)

    def _text(self, text: str) -> int:
        """The number of a text that is made here."""
        if text not in self.made:
            self.made[text] = len(self.texts)
            self.texts.append(text)
        return self.made[text]

    def _named(self, *columns: Numbers, otherwise: str) -> Numbers:
        """The texts that ids name, of the first column that has one."""
        out = np.full(len(columns[0]), self._text(otherwise), np.int64)
        if not len(self.keys):
            return out
        for ids in reversed(columns):
            place = np.minimum(np.searchsorted(self.keys, ids), len(self.keys) - 1)
            out = np.where(self.keys[place] == ids, place, out)
        return out

    def _pids(self, chunk: Columns) -> Numbers:
        return np.where(chunk["globalPid"] == NULL, self.only, process_of(chunk["globalPid"]))

    def _streams(self, chunk: Columns, where: str) -> Numbers:
        device, stream = _filled(chunk["deviceId"]), _filled(chunk["streamId"])
        if len(device) and (min(device.min(), stream.min()) < 0 or max(device.max(), stream.max()) >= 1 << 32):
            raise InputError("found a device or stream outside of 32 bits; expected one of CUDA's", where=where)
        return self.threads.codes(np.stack([self._pids(chunk), device, stream])).astype(np.int64)

    def _hosts(self, chunk: Columns) -> Numbers:
        identifier = _filled(chunk["globalTid"])
        place = np.stack([process_of(identifier), np.full(len(identifier), HOST), thread_of(identifier)])
        return self.threads.codes(place).astype(np.int64)

    def _kernels(self) -> Iterator[Spans]:
        for chunk, rows, where in self._rows(f"{_ACTIVITY}KERNEL", (*_STREAM, "shortName", "demangledName", *LAUNCH)):
            launch = self.launches.codes(np.stack([_filled(chunk[name]) for name in LAUNCH]))
            name = self._named(chunk["shortName"], chunk["demangledName"], otherwise="a kernel without a name")
            yield self._spans(chunk, rows, where, self._streams(chunk, where), name, launch=launch)

    def _memory(self) -> Iterator[Spans]:
        labels = self.export.labels("ENUM_CUDA_MEMCPY_OPER")
        kinds = {kind: self._text(f"CUDA memcpy {label}") for kind, label in labels.items()}
        unknown = self._text("CUDA memcpy")
        known = np.array(sorted(kinds), np.int64)
        texts = np.array([kinds[kind] for kind in known.tolist()], np.int64)
        for chunk, rows, where in self._rows(f"{_ACTIVITY}MEMCPY", (*_STREAM, "bytes", "copyKind")):
            name = np.full(len(rows), unknown, np.int64)
            if len(known):
                place = np.minimum(np.searchsorted(known, chunk["copyKind"]), len(known) - 1)
                name = np.where(known[place] == chunk["copyKind"], texts[place], unknown)
            yield self._spans(chunk, rows, where, self._streams(chunk, where), name, bytes=_filled(chunk["bytes"]))
        for chunk, rows, where in self._rows(f"{_ACTIVITY}MEMSET", (*_STREAM, "bytes")):
            name = np.full(len(rows), self._text("CUDA memset"), np.int64)
            yield self._spans(chunk, rows, where, self._streams(chunk, where), name, bytes=_filled(chunk["bytes"]))

    def _graphs(self) -> Iterator[Spans]:
        for chunk, rows, where in self._rows(f"{_ACTIVITY}GRAPH_TRACE", (*_STREAM, "graphId", "graphExecId")):
            graph = _filled(chunk["graphId"])
            distinct, place = np.unique(graph, return_inverse=True)
            name = np.array([self._text(f"Graph {one}") for one in distinct.tolist()], np.int64)[place]
            more = {"graph": graph, "execution": _filled(chunk["graphExecId"])}
            yield self._spans(chunk, rows, where, self._streams(chunk, where), name, **more)

    def _calls(self) -> Iterator[Spans]:
        for chunk, rows, where in self._rows(f"{_ACTIVITY}RUNTIME", ("start", "end", "globalTid", "correlationId", "nameId")):
            yield self._spans(chunk, rows, where, self._hosts(chunk), self._named(chunk["nameId"], otherwise="a call without a name"))

    def _mpi(self) -> Iterator[Spans]:
        columns = ("start", "end", "globalTid", "textId", "size", "recvSize")
        for table, usual in _MPI.items():
            for chunk, rows, where in self._rows(table, columns):
                name = self._named(chunk["textId"], otherwise="MPI")
                kinds = {one: kind_of_call(self.texts[one], usual) for one in np.unique(name).tolist()}
                kind = np.vectorize(kinds.__getitem__, otypes=[np.int32])(name) if len(name) else np.empty(0, np.int32)
                collective = (kind == COLLECTIVE) | (kind == INPUT_OUTPUT)
                sent, received = (np.where(collective, _filled(chunk[column]), 0) for column in ("size", "recvSize"))
                yield self._spans(chunk, rows, where, self._hosts(chunk), name, type=kind, sent=sent, received=received)

    def _nvtx(self) -> Spans:
        """Ranges of NVTX; also finds the names of domains, what ranges carry, and the ranks that NCCL says."""
        texts, carried = self._inline("text", self._text), self._inline("jsonText", self._payload)
        pairs, named, last = Interner(2), dict[tuple[int, int], str](), 0
        gathering = Gathering(NVTX)
        for chunk, rows, where in self._rows("NVTX_EVENTS", _NVTX):
            kind = chunk["eventType"]
            name = self._named(chunk["textId"], otherwise="a range without a name")
            name = np.where(chunk["textId"] == NULL, _at_rows(texts, chunk["rowid"], name), name)
            pair = np.stack([process_of(_filled(chunk["globalTid"])), _filled(chunk["domainId"])])
            for k in np.flatnonzero(kind == _DOMAIN).tolist():
                named.setdefault((int(pair[0, k]), int(pair[1, k])), self.texts[int(name[k])])
            mine = np.flatnonzero(np.isin(kind, _PUSHED + _RANGES))
            if not len(mine):
                continue
            last = max(last, int(chunk["start"].max()), int(chunk["end"].max()))
            chunk = {column: values[mine] for column, values in chunk.items()}
            # A range that was never closed lasts until the last event of NVTX, which is known at the end.
            open_ended = chunk["end"] == NULL
            chunk["end"] = np.where(open_ended, chunk["start"], chunk["end"])
            payload = self._by_text(chunk["jsonTextId"], _at_rows(carried, chunk["rowid"], np.zeros(len(mine), np.int64)))
            gathering.add(
                self._spans(
                    chunk, rows[mine], where, self._hosts(chunk), name[mine], domain=pairs.codes(pair[:, mine]),
                    pushed=np.isin(chunk["eventType"], _PUSHED), payload=payload.astype(np.int32), open=open_ended,
                )
            )  # fmt: skip
        spans = gathering.done()
        if len(spans):
            open_ended = spans.more.pop("open")  # type: ignore[attr-defined]
            spans.end[open_ended] = np.maximum(spans.start[open_ended], last)
            self.domains = ("", *sorted(set(named.values()) - {""}))
            of_pair = [self.domains.index(named.get((p, d), "")) for p, d in pairs.rows.tolist()]
            domain = spans.more["domain"]
            np.take(np.array(of_pair, np.int32), domain, out=domain, mode="clip")
            self._ranks_of_nccl(spans)
        return spans

    def _inline(self, column: str, number: Callable[[str], int]) -> tuple[Numbers, Numbers]:
        """The rows of NVTX_EVENTS that have a text of their own in a column, and what number each becomes."""
        if column not in self.export.columns("NVTX_EVENTS"):
            return np.empty(0, np.int64), np.empty(0, np.int64)
        rows = self.export.small("NVTX_EVENTS", "rowid", column, most=_TEXTS, present=column)
        found = {row: number(text) for row, text in rows if isinstance(row, int) and isinstance(text, str)}
        keys = np.array(sorted(found), np.int64)
        return keys, np.array([found[row] for row in keys.tolist()], np.int64)

    def _by_text(self, identifiers: Numbers, otherwise: Numbers) -> Numbers:
        """The payloads that texts of StringIds hold."""
        for one in np.unique(identifiers[identifiers != NULL]).tolist():
            place = int(np.searchsorted(self.keys, one))
            if place < len(self.keys) and self.keys[place] == one:
                otherwise = np.where(identifiers == one, self._payload(self.texts[place]), otherwise)
        return otherwise

    def _payload(self, text: str) -> int:
        """The number of a payload, a JSON object of numbers and texts; 0 for anything else."""
        if text not in self.read_payloads:
            try:
                found = parse_json(text, self.export.where)
            except InputError:
                found = None
            pairs = found.items() if isinstance(found, dict) else ()
            kept = tuple((name, value) for name, value in pairs if _is_payload(value))[:_FIELDS]
            self.read_payloads[text] = self.payloads.setdefault(kept, len(self.payloads))
        return self.read_payloads[text]

    def _ranks_of_nccl(self, spans: Spans) -> None:
        """The rank of each process in the largest communicator that it joined, by the payloads of NCCL's own ranges."""
        if "NCCL" not in self.domains:
            return
        payloads, largest = list(self.payloads), dict[int, int]()
        chosen = np.flatnonzero((spans.more["domain"] == self.domains.index("NCCL")) & (spans.more["payload"] > 0))
        for thread, number in np.unique(np.stack([spans.thread[chosen], spans.more["payload"][chosen]]), axis=1).T.tolist():
            said = {name.lower(): value for name, value in payloads[number]}
            rank, size = said.get("rank"), said.get("no. of ranks", 0)
            pid = int(self.threads.rows[thread, 0])
            if isinstance(rank, int) and isinstance(size, int) and 0 <= rank < 1 << 31 and size >= largest.get(pid, 0):
                largest[pid], self.nccl_ranks[pid] = size, rank

    def _metrics(self) -> tuple[dict[int, str], Spans]:
        rows = self.export.small("TARGET_INFO_GPU_METRICS", "metricId", "metricName")
        names = {number: str(name) for number, name in rows if isinstance(number, int) and 0 <= number < 10_000}
        processes = {d: p for p, d, _ in self.export.small("TARGET_INFO_CUDA_CONTEXT_INFO", "processId", "deviceId", "contextId")}
        parts = []
        for chunk, _, _ in self._rows("GPU_METRICS", ("timestamp", "typeId", "metricId", "value")):
            device, metric = chunk["typeId"] & 0xFF, chunk["metricId"]
            mine = np.isin(device, [d for d in processes if isinstance(d, int)]) & (metric >= 0) & (metric < 10_000)
            if not mine.any():
                continue
            time, device = chunk["timestamp"][mine], device[mine]
            pid = np.vectorize(lambda d: processes[int(d)], otypes=[np.int64])(device)
            thread = self.threads.codes(np.stack([pid, np.full(len(pid), METRICS), device]))
            zero = np.zeros(len(time), np.int32)
            more: dict[str, Array] = {"metric": metric[mine].astype(np.int32), "value": _filled(chunk["value"][mine])}
            parts.append(Spans(time, time.copy(), thread, zero, zero.astype(np.uint32), more))
        return names, self._gathered(METRIC, iter(parts))

    def _ranks(self) -> dict[int, int]:
        """The rank of each process, by MPI."""
        found: dict[int, int] = {}
        for thread, rank in self.export.small("MPI_RANKS", "globalTid", "rank"):
            if isinstance(thread, int) and isinstance(rank, int) and 0 <= rank < 1 << 31:
                found.setdefault(int(process_of(np.array(thread, np.int64))), rank)
        return found

    def _used_names(self, spans: dict[str, Spans]) -> tuple[npt.NDArray[np.int32], tuple[str, ...]]:
        """What each text's number becomes, and the texts that are used, equal ones once."""
        used = np.zeros(len(self.texts), np.bool_)
        for one in spans.values():
            used[one.name] = True
        kept, at, texts = np.zeros(len(self.texts), np.int32), dict[str, int](), list[str]()
        for number in np.flatnonzero(used).tolist():
            text = self.texts[number]
            if text not in at:
                at[text] = len(texts)
                texts.append(text)
            kept[number] = at[text]
        return kept, tuple(texts)


def _place(thread: Thread) -> tuple[bool, int, int]:
    """Where a thread stands among the others of its kind: streams by device, metrics last."""
    return thread.device == METRICS, thread.device, thread.number


def _at_rows(inline: tuple[Numbers, Numbers], rows: Numbers, otherwise: Numbers) -> Numbers:
    """The numbers of the rows that have one."""
    keys, numbers = inline
    if not len(keys):
        return otherwise
    place = np.minimum(np.searchsorted(keys, rows), len(keys) - 1)
    return np.where(keys[place] == rows, numbers[place], otherwise)


def _is_payload(value: object) -> bool:
    return isinstance(value, str) or (isinstance(value, int) and -(1 << 62) < value < 1 << 62)


def _filled(column: Numbers) -> Numbers:
    return np.where(column == NULL, 0, column)
