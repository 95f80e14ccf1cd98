"""A simulated run as traces of PyTorch's profiler, one JSON file per rank, with the keys of schema 1 and times in microseconds."""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .exports import BEGAN_NS, Clock
from .programs import COLLECTIVE, COPY, KERNELS, LAUNCH, NCCL, POP, PUSH, SYNC, WAIT, Timeline

_CALLS = {LAUNCH: "cudaLaunchKernel", COLLECTIVE: "cudaLaunchKernelExC", COPY: "cudaMemcpyAsync", SYNC: "cudaStreamSynchronize",
          WAIT: "cudaStreamWaitEvent"}  # fmt: skip


def write_traces(timeline: Timeline, folder: Path, clocks: Sequence[Clock], packed: bool = False) -> list[Path]:
    """Writes one trace per rank of a simulated run."""
    paths = []
    for rank, clock in enumerate(clocks):
        events = [*_facts(rank), *_events(timeline, rank, clock)]
        trace = {
            "schemaVersion": 1, "deviceProperties": [{"id": 0, "name": "NVIDIA H100 80GB HBM3", "totalGlobalMem": 85_000_000_000}],
            "distributedInfo": {"backend": "nccl", "rank": rank, "world_size": len(clocks)},
            "displayTimeUnit": "ms", "baseTimeNanoseconds": BEGAN_NS + clock.began_ns + clock.error_ns, "traceEvents": events,
            "traceName": f"rank{rank}.json",
        }  # fmt: skip
        path = folder / f"rank{rank:04d}.json{'.gz' if packed else ''}"
        data = json.dumps(trace).encode()
        path.write_bytes(gzip.compress(data, 1, mtime=0) if packed else data)
        paths.append(path)
    return paths


def _facts(rank: int) -> list[dict[str, Any]]:
    return [{"ph": "M", "name": "process_name", "pid": 2000 + rank, "tid": 0, "ts": 0, "args": {"name": "python"}}]


def _events(timeline: Timeline, rank: int, clock: Clock) -> list[dict[str, Any]]:
    times = (timeline.host_start, timeline.host_end, timeline.device_start, timeline.device_end)
    called, returned, began, ended = (clock.recorded(one[rank]).tolist() for one in times)
    pid, out, pushed = 2000 + rank, [], []
    for k, (kind, stream, name) in enumerate(zip(timeline.operation.tolist(), timeline.stream.tolist(), timeline.name.tolist())):
        host = {"ph": "X", "pid": pid, "tid": pid, "ts": called[k] / 1000, "dur": (returned[k] - called[k]) / 1000}
        device = {"ph": "X", "pid": 0, "tid": stream, "ts": began[k] / 1000, "dur": (ended[k] - began[k]) / 1000}
        said: dict[str, Any] = {"External id": k + 1, "device": 0, "context": 1, "stream": stream, "correlation": k + 1}
        if kind in _CALLS:
            numbers = {"External id": k + 1, "cbid": 211, "correlation": k + 1}
            out.append(host | {"cat": "cuda_runtime", "name": _CALLS[kind], "args": numbers})
        if kind in (LAUNCH, COLLECTIVE):
            own = kind == COLLECTIVE
            shape = {"registers per thread": 96 if own else 32 + 8 * name, "shared memory": 0, "grid": [24 if own else 64, 1, 1],
                     "block": [544 if own else 128, 1, 1]}  # fmt: skip
            out.append(device | {"cat": "kernel", "name": NCCL if own else KERNELS[name], "args": said | shape})
        elif kind == COPY:
            copied = {"bytes": 25 * (ended[k] - began[k]), "memory bandwidth (GB/s)": 25.0}
            out.append(device | {"cat": "gpu_memcpy", "name": "Memcpy HtoD (Pinned -> Device)", "args": said | copied})
        elif kind == PUSH:
            pushed.append(called[k])
        elif kind == POP:
            start = pushed.pop()
            out.append({"ph": "X", "cat": "user_annotation", "name": "step", "pid": pid, "tid": pid, "ts": start / 1000,
                        "dur": (called[k] - start) / 1000, "args": {"External id": k + 1}})  # fmt: skip
    return out
