"""A simulated schedule as metrics and as a timeline."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from .schedule import DROP, KINDS, Schedule
from .timing import D2H, H2D, NVME_READ, NVME_WRITE, Timed

if TYPE_CHECKING:
    from armillary.training.offload.workload import OffloadWork

#: Iterations that a price is for.
PRICED = 1000


def metrics(work: OffloadWork, schedule: Schedule, timed: Timed, promised_s: float) -> dict[str, float]:
    """Every metric of a simulated case, as means per iteration; the price only where the GPU has one."""
    machine = work.machine
    price = {"cost_usd": PRICED * timed.iteration_s * machine.price_per_hour / 3600} if machine.price_per_hour else {}
    return price | {
        "iteration_s": timed.iteration_s,
        "stall_s": timed.stall_s,
        "gpu_hit_rate": timed.hit_rate,
        "gpu_hit_rate_bytes": timed.hit_rate_bytes,
        "gpu_utilisation_mem": timed.gpu_bytes / machine.gpu_bytes,
        "cpu_utilisation_mem": schedule.host_bytes / machine.host_bytes,
        "h2d_bytes": float(timed.moved[H2D]),
        "d2h_bytes": float(timed.moved[D2H]),
        "nvme_read_bytes": float(timed.moved[NVME_READ]),
        "nvme_write_bytes": float(timed.moved[NVME_WRITE]),
        "promise_error": abs(promised_s / timed.iteration_s - 1) if timed.iteration_s else 0.0,
    }


def timeline(work: OffloadWork, schedule: Schedule, timed: Timed) -> dict[str, Any]:
    """The passes of the last iteration as trace events: one lane for the GPU's operations and one for each direction of each link."""
    ops, last = work.order.shape[1], work.iterations - 1
    begin = float(timed.op_start[last * ops])
    lanes = ("GPU", "host to GPU", "GPU to host", "drive to host", "host to drive")
    events: list[dict[str, Any]] = [
        {"ph": "M", "name": "thread_name", "pid": 0, "tid": i, "args": {"name": lane}} for i, lane in enumerate(lanes)
    ]
    for j, k in enumerate(work.order[last]):
        n = last * ops + j
        name = work.names[work.used[work.first[k]]] if work.first[k] < work.first[k + 1] else "module"
        what = f"{'forward' if work.phase[k] == 0 else 'backward'} {name.rpartition('.')[0] or name}"
        events.append(_span(what, 0, timed.op_start[n] - begin, timed.op_end[n] - timed.op_start[n]))
    moves = schedule.moves
    for m in np.flatnonzero((moves.slot // (2 * ops) == last) & (moves.kind != DROP)):
        lane = 1 + int(moves.kind[m])
        start = max(float(timed.move_start[m]) - begin, 0.0)
        events.append(_span(f"{KINDS[moves.kind[m]]} {work.names[moves.tensor[m]]}", lane, start, timed.move_end[m] - timed.move_start[m]))
    return {"traceEvents": events, "displayTimeUnit": "ms"}


def _span(name: str, lane: int, start: float, seconds: float) -> dict[str, Any]:
    return {"ph": "X", "name": name, "pid": 0, "tid": lane, "ts": round(1e6 * float(start), 3), "dur": round(1e6 * float(seconds), 3)}
