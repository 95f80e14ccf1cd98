"""A trace as a timeline of the engine, with one track per worker, from which Chrome, Perfetto and Paraver files are written."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from armillary.tasks.trace import LINK, STATUSES

if TYPE_CHECKING:
    from armillary.tasks.trace import Trace


def timeline(trace: Trace) -> Any:
    """The rows as spans in seconds, with one process per node and one thread per worker; transfers have a thread of their own."""
    from armillary.engine import Timeline

    line = Timeline()
    for row in range(len(trace)):
        worker, kind = int(trace.rows[row, 1]), int(trace.rows[row, 3])
        if worker < 0:
            continue
        node = trace.nodes[trace["node"][row]]
        track = line.track(node, f"worker {worker}" if kind != LINK else "transfers")
        number = int(trace["task"][row])
        said = {"key": trace.keys[number], "attempt": int(trace["attempt"][row]), "status": STATUSES[int(trace["status"][row])]}
        name = trace.names[number] if kind != LINK else "transfer"
        line.span(track, name, trace["started"][row] / 1e9, trace["body_ended"][row] / 1e9, "task" if kind != LINK else "flow", said)
    return line
