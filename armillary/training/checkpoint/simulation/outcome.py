"""A simulated run as metrics and as a timeline."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from armillary.training.checkpoint.workload import WARM_UP

from .failures import survive

if TYPE_CHECKING:
    from armillary.training.checkpoint.workload import CheckpointWork

    from .training import Trained

LANES = ("compute", "collective", "checkpoint")


def metrics(work: CheckpointWork, run: Trained) -> dict[str, float]:
    """Every metric of a simulated case; those of failures only where there are any."""
    plain = float(work.plain_s[WARM_UP:].mean())
    found = {
        "iteration_s": run.iteration_s, "overhead_ratio": run.iteration_s / plain - 1, "stall_s": run.mean_stall_s,
        "checkpoint_interval_iters": run.interval, "profile_activations": run.activations, "partition_error": run.partition_error,
        "promise_error": abs(run.promise_s / run.iteration_s - 1),
    }  # fmt: skip
    if work.outages is not None:
        through = survive(work, run)
        found |= {"goodput": through.goodput, "lost_iterations": through.lost, "recovery_s": through.recovery_s}
    return found


def trace(run: Trained) -> dict[str, Any]:
    """The last iteration as trace events: one lane each for computation, collectives and checkpoint traffic."""
    found: list[dict[str, Any]] = [{"ph": "M", "name": "thread_name", "pid": 0, "tid": i, "args": {"name": x}} for i, x in enumerate(LANES)]
    for lane, name, start, seconds in run.events[:20_000]:
        when = {"ts": round(1e6 * start, 3), "dur": round(1e6 * seconds, 3)}
        found.append({"ph": "X", "name": name, "pid": 0, "tid": LANES.index(lane), **when})
    return {"traceEvents": found, "displayTimeUnit": "ms"}
