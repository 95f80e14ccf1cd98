"""A breakdown per device into computing, communicating, copying and idle time with their overlap, as HolisticTraceAnalysis does it.

Moments count once: computing first, then communication that nothing hides, then copies, then idle time. A gap is the *host's* where the
kernel after it was launched only after the gap began, a *kernel wait* where it is shorter than 30 ns, and something else otherwise. Readers
of such a table compare devices: the device that communicates least shows what communication takes, and the others wait beyond that.

HolisticTraceAnalysis 0.5, 2025 (temporal breakdown, idle-time breakdown, communication overlap).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from armillary.arena import parameter

from .analysis.efficiency import kernel_times
from .analysis.intervals import both, either, without
from .analysis.lost import activities
from .analysis.regions import region_of
from .attribution import Analyst, Attribution
from .run.model import Run

Shares = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Breakdown(Analyst):
    """Temporal breakdown per device."""

    kernel_wait_ns: int = parameter(30, "gaps shorter than this are waits between consecutive kernels", range=(0, None))

    def table(self, run: Run) -> Mapping[str, Shares]:
        """Shares of the elapsed time, one per device: compute, communication, copy, and the three kinds of idle time."""
        windows = region_of(run, None).device
        rows = []
        for one in activities(run):
            busy = either(one.computing, one.communicating)
            talk = without(one.communicating, one.computing).length
            gaps = without(windows, either(busy, one.copying))
            length = gaps.end - gaps.start
            at = np.minimum(np.searchsorted(one.next_start, gaps.end), max(0, len(one.next_start) - 1))
            short = length < self.kernel_wait_ns
            late = one.queued[at] > gaps.start if len(one.next_start) else np.zeros(len(length), np.bool_)
            idle = (int(length[chosen].sum()) for chosen in (late & ~short, short, ~late & ~short))
            rows.append((both(one.computing, windows).length, talk, without(one.copying, busy).length, *idle))
        names = ("compute", "communication", "copy", "host wait", "kernel wait", "other wait")
        table = np.array(rows, float).reshape(-1, len(names)) / max(1, windows.length)
        return {name: table[:, k] for k, name in enumerate(names)}

    def attribute(self, run: Run) -> Attribution:
        """The shares of the device time that the breakdown suggests."""
        table = self.table(run)
        elapsed = max(1.0, float(region_of(run, None).device.length))
        if not len(table["compute"]):
            return Attribution(elapsed, {}, 0.0)
        talk = table["communication"]
        shares = {
            "imbalance": float((talk - talk.min()).mean()), "transfers": float(table["copy"].mean()),
            "communication": float(talk.min()),
            "launch": float(table["kernel wait"].mean()), "host": float(table["host wait"].mean()),
            "sync": float(table["other wait"].mean()),
        }  # fmt: skip
        whole = elapsed * len(talk)
        kernels = {name: time / whole for name, time in kernel_times(run).items()}
        return Attribution(elapsed, shares, float(table["compute"].mean()), kernels)
