"""Traces of PyTorch's profiler (Kineto), as `export_chrome_trace` writes them, as a `Run`.

Times are microseconds in the file, whole ones in old files and decimal ones in new ones. `distributedInfo` has the rank; without it the
trace is that of one process.
"""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import numpy as np

from armillary.errors import InputError, one_line
from armillary.files import parse_json, read_bytes

from ..run.interning import Interner
from ..run.model import CALL, HOST, KERNEL, MEMORY, MORE, NVTX, Process, Run, Spans, Thread, checked

#: Bytes of a trace after unpacking, unless the caller says otherwise.
BYTES = 1 << 31
_CALLS = frozenset({"cuda_runtime", "cuda_driver", "runtime", "Runtime"})
_RANGES = frozenset({"user_annotation", "cpu_op", "python_function"})
_MEMORY = frozenset({"gpu_memcpy", "gpu_memset", "Memcpy", "Memset"})
_KERNELS = frozenset({"kernel", "Kernel"})
_COPY = re.compile(r"(Memcpy|Memset)\s*(\w+)?")


def read_kineto(path: str | Path, *, ranges: tuple[str, ...] = ("user_annotation",), limit: int = BYTES) -> Run:
    """Reads a trace (`.json`, packed or not). `ranges` are the categories that become ranges, such as "cpu_op" as well."""
    return run_of_trace(parse_json(read_bytes(path, limit=limit), str(path)), str(path), ranges)


def run_of_trace(trace: Any, where: str, ranges: tuple[str, ...] = ("user_annotation",)) -> Run:
    """The run in a trace that is parsed already, an object with `traceEvents` or a list of events."""
    events = trace.get("traceEvents") if isinstance(trace, dict) else trace
    if not isinstance(events, list):
        raise InputError("found no list traceEvents; expected a trace of PyTorch's profiler", where=where)
    unknown = set(ranges) - _RANGES
    if unknown:
        raise InputError(f"found the category {min(unknown)}; expected some of {', '.join(sorted(_RANGES))}")
    reader = _Reader(where, frozenset(ranges))
    for number, event in enumerate(events):
        if isinstance(event, dict) and event.get("ph") == "X":
            reader.add(number, event)
    if not reader.found and isinstance(trace, dict) and not ({"schemaVersion", "deviceProperties"} & trace.keys()):
        raise InputError("found no event of a GPU or of CUDA; expected a trace of PyTorch's profiler", where=where)
    return reader.run(trace if isinstance(trace, dict) else {})


class _Reader:
    """Gathers the events of one trace as rows of numbers."""

    def __init__(self, where: str, ranges: frozenset[str]) -> None:
        self.where, self.ranges = where, ranges
        self.names: dict[str, int] = {}
        self.threads: dict[tuple[int, int], int] = {}
        self.launches = Interner(10)
        #: For each kind: start, end, thread, name, correlation, further value, number of the event.
        self.rows: dict[str, list[tuple[int, ...]]] = {KERNEL: [], MEMORY: [], CALL: [], NVTX: []}
        self.launch_rows: list[tuple[int, ...]] = []

    @property
    def found(self) -> bool:
        return bool(self.rows[KERNEL] or self.rows[MEMORY] or self.rows[CALL])

    def add(self, number: int, event: dict[str, Any]) -> None:
        """Takes one complete event."""
        category = event.get("cat")
        if not isinstance(category, str):
            return
        if category in _KERNELS:
            self._on_device(number, event, KERNEL)
        elif category in _MEMORY:
            self._on_device(number, event, MEMORY)
        elif category in _CALLS:
            self._on_host(number, event, CALL)
        elif category in self.ranges:
            self._on_host(number, event, NVTX)

    def _times(self, number: int, event: dict[str, Any]) -> tuple[int, int]:
        start, took = event.get("ts"), event.get("dur", 0)
        for value in (start, took):
            if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or abs(value) > 4e15:
                raise self._wrong(number, f"found ts {one_line(str(start), 30)} and dur {one_line(str(took), 30)}", "microseconds")
        assert isinstance(start, int | float)
        if took < 0:
            raise self._wrong(number, f"found dur {took}", "0 or more")
        return _nano(start), _nano(start) + _nano(took)

    def _wrong(self, number: int, found: str, expected: str) -> InputError:
        return InputError(f"event {number}: {found}; expected {expected}", where=self.where)

    def _whole(self, number: int, args: dict[str, Any], name: str, most: int = (1 << 32) - 1) -> int:
        value = args.get(name, 0)
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if value is None or value == "":
            return 0
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= most:
            raise self._wrong(number, f"found {name} {one_line(str(value), 30)}", f"a whole number from 0 to {most}")
        return value

    def _name(self, event: dict[str, Any]) -> int:
        text = event.get("name")
        return self.names.setdefault(text if isinstance(text, str) else "an event without a name", len(self.names))

    def _on_device(self, number: int, event: dict[str, Any], kind: str) -> None:
        args = event.get("args")
        args = args if isinstance(args, dict) else {}
        start, end = self._times(number, event)
        place = (self._whole(number, args, "device"), self._whole(number, args, "stream"))
        thread = self.threads.setdefault(place, len(self.threads))
        correlation = self._whole(number, args, "correlation")
        if kind == MEMORY:
            name = self.names.setdefault(_copy_name(event.get("name")), len(self.names))
            more = self._whole(number, args, "bytes", 1 << 62)
        else:
            name = self._name(event)
            more = len(self.launch_rows)
            grid, block = (self._triple(number, args, part) for part in ("grid", "block"))
            shared = self._whole(number, args, "shared memory", 1 << 40)
            self.launch_rows.append((*grid, *block, shared, 0, 0, self._whole(number, args, "registers per thread")))
        self.rows[kind].append((start, end, thread, name, correlation, more, number))

    def _triple(self, number: int, args: dict[str, Any], name: str) -> tuple[int, int, int]:
        value = args.get(name, (0, 0, 0))
        fine = isinstance(value, list | tuple) and len(value) == 3
        if not fine or any(isinstance(v, bool) or not isinstance(v, int) or not 0 <= v < 1 << 32 for v in value):
            raise self._wrong(number, f"found {name} {one_line(str(value), 40)}", "three whole numbers")
        return (value[0], value[1], value[2])

    def _on_host(self, number: int, event: dict[str, Any], kind: str) -> None:
        start, end = self._times(number, event)
        args = event.get("args")
        correlation = self._whole(number, args, "correlation") if isinstance(args, dict) and kind == CALL else 0
        tid = event.get("tid")
        place = (HOST, tid if isinstance(tid, int) and not isinstance(tid, bool) and 0 <= tid < 1 << 53 else 0)
        thread = self.threads.setdefault(place, len(self.threads))
        self.rows[kind].append((start, end, thread, self._name(event), correlation, 0, number))

    def run(self, facts: dict[str, Any]) -> Run:
        """The run of everything that was added; `facts` are the trace's own."""
        distributed = facts.get("distributedInfo")
        rank = distributed.get("rank") if isinstance(distributed, dict) else None
        rank = rank if isinstance(rank, int) and not isinstance(rank, bool) and 0 <= rank < 1 << 31 else None
        base = facts.get("baseTimeNanoseconds")
        began = base if isinstance(base, int) and 0 <= base < 1 << 62 else None
        order = sorted(self.threads, key=lambda place: (place[0] != HOST, place))
        threads = tuple(Thread(0, device, number) for device, number in order)
        moved = np.empty(len(order), np.int32)
        moved[[self.threads[place] for place in order]] = np.arange(len(order))
        launch = self.launches.codes(np.array(self.launch_rows, np.int64).reshape(-1, 10).T)
        # The first event is at 0: `ts` counts from a moment that a trace may not name.
        first = min((row[0] for rows in self.rows.values() for row in rows), default=0)
        spans = {}
        for kind, rows in self.rows.items():
            if not rows:
                continue
            columns = np.array(rows, np.int64).T
            more: dict[str, Any] = {}
            if kind == KERNEL:
                more["launch"] = launch[columns[5]]
            elif kind == MEMORY:
                more["bytes"] = columns[5]
            elif kind == NVTX:
                zeros = np.zeros(len(rows), np.int32)
                more = {"domain": zeros, "pushed": np.ones(len(rows), np.bool_), "payload": zeros.copy()}
            assert more.keys() == MORE[kind].keys()
            one = Spans(
                columns[0] - first, columns[1] - first, moved[columns[2]], columns[3].astype(np.int32), columns[4].astype(np.uint32), more
            )
            spans[kind] = checked(one, self.where, columns[6]).in_order()
        start = first if began is None else began + first
        # Kineto names a process by its rank, and without one by nothing that differs between nodes.
        process = Process("", rank if rank is not None else 0, rank)
        return Run(
            (process,), threads, tuple(self.names), spans, self.launches.rows.copy(), began_ns=(start if start > 0 else None,),
            where=self.where,
        )  # fmt: skip


def _nano(microseconds: float) -> int:
    """Nanoseconds; a decimal number is exact to 1 ns up to some days, and to 0.25 µs where it counts from 1970."""
    return microseconds * 1000 if isinstance(microseconds, int) else round(microseconds * 1000)


def _copy_name(name: Any) -> str:
    """Kineto's "Memcpy HtoD (Pinned -> Device)" in the words of Nsight Systems."""
    found = _COPY.match(name) if isinstance(name, str) else None
    if found is None:
        return "CUDA memcpy"
    if found[1] == "Memset":
        return "CUDA memset"
    ways = {"HtoD": "Host-to-Device", "DtoH": "Device-to-Host", "DtoD": "Device-to-Device", "PtoP": "Peer-to-Peer"}
    return f"CUDA memcpy {ways.get(found[2] or '', '')}".rstrip()


