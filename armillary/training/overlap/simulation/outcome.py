"""Metrics of a simulated plan, where its time went, and a timeline of some SMs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from armillary.training.overlap.machine.mechanisms import LAUNCH_S
from armillary.training.overlap.workload import Operator

from .schedule import COMPUTE, SEND, SIGNAL, WAIT, Schedule, Timed, simulate

_NAMES = {COMPUTE: "compute", SEND: "send", WAIT: "wait", SIGNAL: "signal"}
#: Lanes of a timeline by device, devices, and operations of a lane.
MOST_LANES, MOST_DEVICES, MOST_SPANS = 12, 2, 200


def disturbed(schedule: Schedule, slow: npt.NDArray[np.float64]) -> Schedule:
    """The schedule on devices whose computation takes `slow` times as long as planned."""
    kind, what, amount, count = schedule.operations
    factor = np.repeat(slow[schedule.task_device], np.diff(schedule.task_at))
    return replace(schedule, operations=(kind, what, np.where(kind == COMPUTE, amount * factor, amount), count))


def metrics(op: Operator, timed: Timed) -> dict[str, float]:
    """Seconds, exposed communication, flop/s and the use of links."""
    free = simulate(timed.schedule, free=True)
    n = op.devices
    used = float(np.maximum(timed.link_bytes[:n], timed.link_bytes[n:]).mean()) if n > 1 else 0.0
    return {
        "op_s": timed.seconds,
        "exposed_comm_fraction": max(0.0, 1 - free.seconds / timed.seconds),
        "tflops_per_device": op.flops / timed.seconds / 1e12,
        "link_utilisation": used / (timed.schedule.gpu.link * timed.seconds),
    }


def decomposition(timed: Timed) -> dict[str, float]:
    """T = T_launch + max(T_compute, T_comm) + T_non-overlapped + T_sync, in seconds.

    T_compute is the work of the busiest SM (a tile takes the longer of its flops and its bytes, so it covers T_memory), T_comm that of
    the busiest link at the rate of the mechanisms used, T_sync what would be saved if signals took no time, T_non-overlapped the rest.
    """
    s = timed.schedule
    kind, what, amount, count = s.operations
    instant = simulate(replace(s, operations=(kind, what, np.where(kind == SIGNAL, 0.0, amount), count)))
    at, link, times, inverse, _ = s.classes
    busy = np.zeros(2 * s.devices)
    sent = np.bincount(what[kind == SEND], weights=amount[kind == SEND], minlength=len(inverse))
    for c in np.flatnonzero(sent):
        for j in range(at[c], at[c + 1]):
            busy[link[j]] += sent[c] * times[j] * inverse[c]
    compute, comm = float(timed.busy(COMPUTE).max(initial=0.0)), float(busy.max(initial=0.0))
    sync = max(0.0, timed.seconds - instant.seconds)
    return {
        "launch_s": LAUNCH_S, "compute_s": compute, "comm_s": comm, "sync_s": sync,
        "non_overlapped_s": timed.seconds - LAUNCH_S - max(compute, comm) - sync, "total_s": timed.seconds,
    }  # fmt: skip


def timeline(timed: Timed) -> dict[str, Any]:
    """Some lanes of the first devices, as trace events: computation, sends and waits of each SM."""
    s = timed.schedule
    kind = s.operations[0]
    events: list[dict[str, Any]] = []
    for dev in range(min(s.devices, MOST_DEVICES)):
        events.append({"ph": "M", "name": "process_name", "pid": dev, "tid": 0, "args": {"name": f"device {dev}"}})
        lanes = [w for w, (d, name) in enumerate(s.lanes) if d == dev and "launch" not in name]
        for w in sorted(sorted(lanes, key=lambda w: (_order(s.lanes[w][1]), w))[:MOST_LANES]):
            events.append({"ph": "M", "name": "thread_name", "pid": dev, "tid": w, "args": {"name": s.lanes[w][1]}})
            mine = [i for t in np.flatnonzero(timed.worker == w) for i in range(int(s.task_at[t]), int(s.task_at[t + 1]))]
            shown = [i for i in mine if timed.end[i] > timed.start[i]][:MOST_SPANS]
            for i in shown:
                t = int(np.searchsorted(s.task_at, i, side="right")) - 1
                name = f"{_NAMES[int(kind[i])]}, {s.roles[s.task_role[t]]} {s.task_number[t]}"
                begin, spent = 1e6 * float(timed.start[i]), 1e6 * float(timed.end[i] - timed.start[i])
                events.append({"ph": "X", "name": name, "pid": dev, "tid": w, "ts": round(begin, 3), "dur": round(spent, 3)})
    return {"traceEvents": events, "displayTimeUnit": "ns"}


def _order(name: str) -> int:
    """Communicators, copy engines and library streams first, then SMs by their number."""
    return 1 if name.startswith("SM") and "communicator" not in name else 0
