"""Sums per kernel, copy and call, as `nsys stats` gives them for each report.

Durations are added up by name. What overlaps counts twice, and nothing is said about gaps; the rest of the time is what a reader has to
interpret. This is the interpretation of a careful reader who compares the reports of all processes: the slowest report's kernels show an
imbalance, which waits inside NCCL; and time without kernels is put down to waiting calls, then to launching calls, then to the host.

The statistics reports of NVIDIA Nsight Systems, as of 2025.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .analysis.efficiency import kernel_times
from .analysis.regions import region_of
from .analysis.waiting import launches, waits
from .attribution import Analyst, Attribution
from .run.model import CALL, GRAPH, KERNEL, MEMORY, Run, Spans


@dataclass(frozen=True)
class Stats(Analyst):
    """Sums by name."""

    def attribute(self, run: Run) -> Attribution:
        """The shares of the device time that the sums suggest."""
        devices = run.devices()
        many, device, owner = max(1, len(devices)), run.device_of_thread(), run.process_of_thread()
        elapsed = max(1.0, float(region_of(run, None).device.length))
        kernels, calls, talks = run.of(KERNEL), run.of(CALL), run.communicates()
        computing = _sums(kernels.of(~talks), device, many) + _sums(run.of(GRAPH), device, many)
        talking, copying = _sums(kernels.of(talks), device, many), _sums(run.of(MEMORY), device, many)
        idle = np.maximum(0.0, elapsed - computing - talking - copying)
        early = np.minimum(talking, computing.max(initial=0.0) - computing)
        places = np.array([process for process, _ in devices], np.int64)
        waited, launched = (_sums(calls.of(chosen), owner, len(run.processes)) for chosen in (waits(run), launches(run)))
        waited, launched = (one[places] if len(places) else np.zeros(many) for one in (waited, launched))
        sync = np.minimum(idle, waited)
        launch = np.minimum(idle - sync, launched)
        parts = {
            "imbalance": early, "transfers": copying, "communication": talking - early, "launch": launch, "host": idle - sync - launch,
            "sync": sync,
        }  # fmt: skip
        whole = elapsed * many
        shares = {cause: float(part.sum()) / whole for cause, part in parts.items()}
        return Attribution(elapsed, shares, float(computing.sum()) / whole, {k: t / whole for k, t in kernel_times(run).items()})


def _sums(spans: Spans, groups: np.ndarray, many: int) -> np.ndarray:
    """Nanoseconds of spans, added up by what their thread belongs to."""
    if not len(spans):
        return np.zeros(many)
    return np.bincount(groups[spans.thread], (spans.end - spans.start).astype(float), minlength=many)
