"""A simulated run as exports of Nsight Systems, one SQLite file per rank, with the tables and columns of schema 3.16.

Each rank's node has a clock of its own: its recording began at another moment, its clock is wrong by so much and runs so much too fast.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from .programs import ALLREDUCE, COLLECTIVE, COPY, HOST_TO_DEVICE, KERNELS, LAUNCH, NCCL, POP, PUSH, SYNC, WAIT, Timeline

VERSION = (3, 16, 0)
BEGAN_NS = 1_760_000_000_000_000_000
COLUMNS = {
    "StringIds": "id INTEGER NOT NULL PRIMARY KEY, value TEXT NOT NULL",
    "META_DATA_EXPORT": "name TEXT NOT NULL, value TEXT",
    "META_DATA_CAPTURE": "name TEXT NOT NULL, value TEXT",
    "TARGET_INFO_SYSTEM_ENV": "globalVid INTEGER, devStateName TEXT NOT NULL, name TEXT NOT NULL, nameEnum INTEGER NOT NULL, "
    "value TEXT NOT NULL",
    "TARGET_INFO_SESSION_START_TIME": "utcEpochNs INTEGER, utcTime TEXT, localTime TEXT",
    "TARGET_INFO_GPU": "vmId INTEGER NOT NULL, id INTEGER NOT NULL, name TEXT, busLocation TEXT, isDiscrete INTEGER, "
    "l2CacheSize INTEGER, totalMemory INTEGER, memoryBandwidth INTEGER, clockRate INTEGER, smCount INTEGER",
    "TARGET_INFO_CUDA_CONTEXT_INFO": "nullStreamId INTEGER NOT NULL, hwId INTEGER NOT NULL, vmId INTEGER NOT NULL, "
    "processId INTEGER NOT NULL, deviceId INTEGER NOT NULL, contextId INTEGER NOT NULL, parentContextId INTEGER, isGreenContext INTEGER",
    "ENUM_CUDA_MEMCPY_OPER": "id INTEGER NOT NULL PRIMARY KEY, name TEXT, label TEXT",
    "ENUM_CUDA_MEM_KIND": "id INTEGER NOT NULL PRIMARY KEY, name TEXT, label TEXT",
    "ENUM_OPENACC_EVENT_KIND": "id INTEGER NOT NULL PRIMARY KEY, name TEXT, label TEXT",
    "CUPTI_ACTIVITY_KIND_RUNTIME": "start INTEGER NOT NULL, end INTEGER NOT NULL, eventClass INTEGER NOT NULL, globalTid INTEGER, "
    "correlationId INTEGER, nameId INTEGER NOT NULL, returnValue INTEGER NOT NULL, callchainId INTEGER",
    "CUPTI_ACTIVITY_KIND_KERNEL": "start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL, contextId INTEGER NOT NULL, "
    "greenContextId INTEGER, streamId INTEGER NOT NULL, correlationId INTEGER, globalPid INTEGER, demangledName INTEGER NOT NULL, "
    "shortName INTEGER NOT NULL, mangledName INTEGER, launchType INTEGER, cacheConfig INTEGER, registersPerThread INTEGER NOT NULL, "
    "gridX INTEGER NOT NULL, gridY INTEGER NOT NULL, gridZ INTEGER NOT NULL, blockX INTEGER NOT NULL, blockY INTEGER NOT NULL, "
    "blockZ INTEGER NOT NULL, staticSharedMemory INTEGER NOT NULL, dynamicSharedMemory INTEGER NOT NULL, "
    "localMemoryPerThread INTEGER NOT NULL, localMemoryTotal INTEGER NOT NULL, gridId INTEGER NOT NULL, sharedMemoryExecuted INTEGER, "
    "graphNodeId INTEGER, sharedMemoryLimitConfig INTEGER",
    "CUPTI_ACTIVITY_KIND_MEMCPY": "start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL, contextId INTEGER NOT NULL, "
    "greenContextId INTEGER, streamId INTEGER NOT NULL, correlationId INTEGER, globalPid INTEGER, bytes INTEGER NOT NULL, "
    "copyKind INTEGER NOT NULL, deprecatedSrcId INTEGER, srcKind INTEGER, dstKind INTEGER, srcDeviceId INTEGER, srcContextId INTEGER, "
    "dstDeviceId INTEGER, dstContextId INTEGER, migrationCause INTEGER, graphNodeId INTEGER, virtualAddress INTEGER, copyCount INTEGER",
    "CUPTI_ACTIVITY_KIND_MEMSET": "start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL, contextId INTEGER NOT NULL, "
    "greenContextId INTEGER, streamId INTEGER NOT NULL, correlationId INTEGER, globalPid INTEGER, value INTEGER NOT NULL, "
    "bytes INTEGER NOT NULL, graphNodeId INTEGER, memKind INTEGER",
    "CUPTI_ACTIVITY_KIND_GRAPH_TRACE": "start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL, graphId INTEGER NOT NULL, "
    "graphExecId INTEGER NOT NULL, contextId INTEGER NOT NULL, greenContextId INTEGER, streamId INTEGER NOT NULL, correlationId INTEGER, "
    "globalPid INTEGER",
    "NVTX_EVENTS": "start INTEGER NOT NULL, end INTEGER, eventType INTEGER NOT NULL, rangeId INTEGER, category INTEGER, color INTEGER, "
    "text TEXT, globalTid INTEGER, endGlobalTid INTEGER, textId INTEGER, domainId INTEGER, uint64Value INTEGER, int64Value INTEGER, "
    "doubleValue REAL, uint32Value INTEGER, int32Value INTEGER, floatValue REAL, jsonTextId INTEGER, jsonText TEXT, binaryData TEXT",
    "MPI_RANKS": "globalTid INTEGER NOT NULL, rank INTEGER NOT NULL",
    "MPI_COLLECTIVES_EVENTS": "start INTEGER NOT NULL, end INTEGER, globalTid INTEGER, textId INTEGER, commHandle INTEGER, "
    "rootRank INTEGER, size INTEGER, recvSize INTEGER",
    "MPI_P2P_EVENTS": "start INTEGER NOT NULL, end INTEGER, globalTid INTEGER, textId INTEGER, commHandle INTEGER, tag INTEGER, "
    "remoteRank INTEGER, size INTEGER, requestHandle INTEGER",
    "MPI_START_WAIT_EVENTS": "start INTEGER NOT NULL, end INTEGER, globalTid INTEGER, textId INTEGER, requestHandle INTEGER",
    "MPI_OTHER_EVENTS": "start INTEGER NOT NULL, end INTEGER, globalTid INTEGER, textId INTEGER",
    "GPU_METRICS": "rawTimestamp INTEGER, timestamp INTEGER NOT NULL, typeId INTEGER NOT NULL, metricId INTEGER NOT NULL, "
    "value INTEGER NOT NULL",
    "TARGET_INFO_GPU_METRICS": "typeId INTEGER NOT NULL, sourceId INTEGER NOT NULL, typeName TEXT NOT NULL, metricId INTEGER NOT NULL, "
    "metricName TEXT NOT NULL",
}  # fmt: skip
COPY_KINDS = (
    (0, "CUDA_MEMCPY_KIND_UNKNOWN", "Unknown"), (1, "CUDA_MEMCPY_KIND_HTOD", "Host-to-Device"),
    (2, "CUDA_MEMCPY_KIND_DTOH", "Device-to-Host"), (8, "CUDA_MEMCPY_KIND_DTOD", "Device-to-Device"),
    (10, "CUDA_MEMCPY_KIND_PTOP", "Peer-to-Peer"),
)  # fmt: skip
MEMORY_KINDS = ((0, "CUDA_MEMOPR_MEMORY_KIND_PAGEABLE", "Pageable"), (1, "CUDA_MEMOPR_MEMORY_KIND_PINNED", "Pinned"),
                (2, "CUDA_MEMOPR_MEMORY_KIND_DEVICE", "Device"))  # fmt: skip
_CALLS = {
    LAUNCH: "cudaLaunchKernel_v7000", COLLECTIVE: "cudaLaunchKernelExC_v11060", COPY: "cudaMemcpyAsync_v3020",
    SYNC: "cudaStreamSynchronize_v3020", WAIT: "cudaStreamWaitEvent_v3020",
}  # fmt: skip
#: Tables that a version of Nsight Systems always writes; the others appear when they have rows.
_ALWAYS = 10


@dataclass(frozen=True)
class Clock:
    """A node's clock: when its recording began in true time, its error (ns), and how much too fast it runs (parts per million)."""

    began_ns: int = 0
    error_ns: int = 0
    drift_ppm: float = 0.0

    def recorded(self, true: Any) -> Any:
        """What the recording says of a true time, in nanoseconds from its start."""
        since = np.asarray(true, np.float64) - self.began_ns
        return np.rint(since * (1.0 + 1e-6 * self.drift_ppm)).astype(np.int64)


class ExportWriter:
    """Writes a SQLite file like `nsys export` does; tables appear when their first row does."""

    def __init__(self, path: Path, host: str, pid: int, device: int = 0, utc_ns: int = BEGAN_NS) -> None:
        self.connection = sqlite3.connect(path)
        for statement in ("journal_mode = OFF", "synchronous = OFF"):
            self.connection.execute(f"PRAGMA {statement}")
        self.made: set[str] = set()
        self.names: dict[str, int] = {}
        self.pid = pid
        for table in list(COLUMNS)[:_ALWAYS]:
            self.rows(table, [])
        parts = zip(("", "_MAJOR", "_MINOR", "_MICRO"), (".".join(map(str, VERSION)), *VERSION))
        self.rows("META_DATA_EXPORT", [(f"EXPORT_SCHEMA_VERSION{part}", str(value)) for part, value in parts])
        self.rows("META_DATA_CAPTURE", [("CAPTURE_MODE", "SINGLE")])
        self.rows("TARGET_INFO_SYSTEM_ENV", [(0, "CpuInfo", "Hostname", 19, host)])
        self.rows("TARGET_INFO_SESSION_START_TIME", [(utc_ns, "", "")])
        self.rows("TARGET_INFO_GPU", [(0, device, "NVIDIA H100 80GB HBM3", "", 1, 0, 0, 0, 0, 132)])
        self.rows("TARGET_INFO_CUDA_CONTEXT_INFO", [(7, 0, 0, pid, device, 1, None, 0)])
        self.rows("ENUM_CUDA_MEMCPY_OPER", COPY_KINDS)
        self.rows("ENUM_CUDA_MEM_KIND", MEMORY_KINDS)
        self.rows("ENUM_OPENACC_EVENT_KIND", [(0, "acc_ev_none", "none")])

    def rows(self, table: str, rows: Any) -> None:
        """Adds rows with all columns of a table, in their order."""
        if table not in self.made:
            self.made.add(table)
            self.connection.execute(f"CREATE TABLE {table} ({COLUMNS[table]})")
        marks = ",".join("?" * (COLUMNS[table].count(",") + 1))
        self.connection.executemany(f"INSERT INTO {table} VALUES ({marks})", rows)

    def text(self, text: str) -> int:
        """The number of a text in StringIds."""
        if text not in self.names:
            self.names[text] = len(self.names) + 1
            self.rows("StringIds", [(self.names[text], text)])
        return self.names[text]

    @property
    def process(self) -> int:
        """The process's globalPid, which names the hardware and the virtual machine in its upper bits."""
        return (1 << 56) | (self.pid << 24)

    def thread(self, number: int) -> int:
        """The globalTid of a thread."""
        return self.process | number

    def close(self) -> None:
        """Ends the file."""
        self.connection.commit()
        self.connection.close()

    # One row of the tables that matter, with the values that matter

    def call(self, start: int, end: int, name: str, correlation: int, thread: int | None = None) -> tuple[Any, ...]:
        """A row of a call."""
        return (start, end, 0, self.thread(thread or self.pid), correlation, self.text(name), 0, None)

    def kernel(
        self, start: int, end: int, name: str, correlation: int, stream: int = 7, device: int = 0,
        grid: Sequence[int] = (8, 1, 1), block: Sequence[int] = (128, 1, 1), registers: int = 32,
    ) -> tuple[Any, ...]:  # fmt: skip
        """A row of a kernel."""
        short = self.text(name)
        return (start, end, device, 1, None, stream, correlation, self.process, short, short, short, None, 0, registers, *grid, *block, 0,
                0, 0, 0, correlation, 0, None, None)  # fmt: skip

    def copy(self, start: int, end: int, nbytes: int, correlation: int, kind: int = 1, stream: int = 7, device: int = 0) -> tuple[Any, ...]:
        """A row of a copy."""
        return (start, end, device, 1, None, stream, correlation, self.process, nbytes, kind, None, 1, 2, *(None,) * 8)

    def range(self, start: int, end: int | None, text: str, *, kind: int = 59, domain: int = 0, thread: int | None = None,
              inline: bool = False) -> tuple[Any, ...]:  # fmt: skip
        """A row of an NVTX range; `inline` puts the text into the row."""
        number = None if inline else self.text(text)
        return (start, end, kind, None, None, None, text if inline else None, self.thread(thread or self.pid), None, number, domain,
                *(None,) * 9)  # fmt: skip


def write_exports(timeline: Timeline, folder: Path, clocks: Sequence[Clock], per_node: int = 1) -> list[Path]:
    """Writes one export per rank of a simulated run; `per_node` ranks share a node's name."""
    paths = []
    for rank, clock in enumerate(clocks):
        path = folder / f"rank{rank:04d}.sqlite"
        writer = ExportWriter(path, f"node{rank // per_node:04d}", 2000 + rank, 0, BEGAN_NS + clock.began_ns + clock.error_ns)
        for table, rows in _tables(writer, timeline, rank, clock):
            writer.rows(table, rows)
        writer.close()
        paths.append(path)
    return paths


def _tables(writer: ExportWriter, timeline: Timeline, rank: int, clock: Clock) -> Iterator[tuple[str, list[tuple[Any, ...]]]]:
    called, returned, began, ended = (
        clock.recorded(times[rank]).tolist()
        for times in (timeline.host_start, timeline.host_end, timeline.device_start, timeline.device_end)
    )
    calls, kernels, copies, ranges, collectives, open_ranges = [], [], [], [], [], []
    names = list(KERNELS)
    for k, (kind, stream, name) in enumerate(zip(timeline.operation.tolist(), timeline.stream.tolist(), timeline.name.tolist())):
        if kind in _CALLS:
            calls.append(writer.call(called[k], returned[k], _CALLS[kind], k + 1))
        if kind == LAUNCH:
            grid = (64 << (name % 3), 1 + name % 2, 1)
            shape: dict[str, Any] = {"grid": grid, "block": (128, 1, 1), "registers": 32 + 8 * name}
            kernels.append(writer.kernel(began[k], ended[k], names[name], k + 1, stream, **shape))
        elif kind == COLLECTIVE:
            kernels.append(writer.kernel(began[k], ended[k], NCCL, k + 1, stream, grid=(24, 1, 1), block=(544, 1, 1), registers=96))
        elif kind == COPY:
            copies.append(writer.copy(began[k], ended[k], 25 * (ended[k] - began[k]), k + 1, stream=stream))
        elif kind == ALLREDUCE:
            collectives.append((called[k], returned[k], writer.thread(writer.pid), writer.text("MPI_Allreduce"), 1, None, 4096, 4096))
        elif kind == PUSH:
            open_ranges.append(called[k])
        elif kind == POP:
            ranges.append(writer.range(open_ranges.pop(), called[k], "step"))
    yield from (("CUPTI_ACTIVITY_KIND_RUNTIME", calls), ("CUPTI_ACTIVITY_KIND_KERNEL", kernels), ("NVTX_EVENTS", ranges))
    if copies:
        yield "CUPTI_ACTIVITY_KIND_MEMCPY", copies
    yield "MPI_RANKS", [(writer.thread(writer.pid), rank)]
    if collectives:
        began_mpi, ended_mpi = clock.recorded(np.array([-1_500_000, 0])).tolist()
        yield "MPI_OTHER_EVENTS", [(began_mpi, ended_mpi, writer.thread(writer.pid), writer.text("MPI_Init"))]
        yield "MPI_COLLECTIVES_EVENTS", collectives


assert HOST_TO_DEVICE.endswith(COPY_KINDS[1][2])
