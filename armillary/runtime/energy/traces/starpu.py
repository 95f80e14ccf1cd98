"""StarPU's tasks.rec, by the ground's reader."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from armillary.tasks.formats import trace_from_rec

from .tasks import MOST_TASKS, TaskTrace, in_lanes


def read_starpu(path: str | Path) -> TaskTrace:
    """The tasks that ran, by their Model or else their Name; flops are GFlop, and bytes are the sum of Sizes.

    Drivers of GPUs start a task while the one before still runs; those stand on lanes of their own.
    """
    found = trace_from_rec(path, max_tasks=MOST_TASKS)
    trace = found.trace
    names = [trace.names[int(i)] for i in trace["task"]]
    types = sorted(set(names))
    number = {name: i for i, name in enumerate(types)}
    known = bool(np.isfinite(found.flops).all()) and bool(np.isfinite(found.bytes).all())
    made = TaskTrace(
        trace["started"].copy(), trace["ended"].copy(), np.array([number[name] for name in names], np.int64), trace["worker"].copy(),
        tuple(types), found.workers, ("cpu",) * len(found.workers), keys=[trace.keys[int(i)] for i in trace["task"]],
        flops=found.flops if known else np.empty(0), bytes=found.bytes if known else np.empty(0),
    )  # fmt: skip
    return in_lanes(made).checked(str(path))
