"""What if I ask for less? The request of several whose job would be through first, as the model predicts it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np

from armillary.errors import InputError
from armillary.scheduling.swf import Jobs
from armillary.scheduling.waittime.features.state import QueueState
from armillary.scheduling.waittime.learning.fitted import WaitModel

if TYPE_CHECKING:
    import polars as pl

#: Requests that one sweep may have.
MOST = 1000


def what_if(
    model: WaitModel, state: QueueState, requests: Iterable[tuple[int, float, float]], *, user: int = -1, executable: int = -1
) -> pl.DataFrame:  # fmt: skip
    """One row per request, the one that would end first on top.

    requests: (nodes, requested seconds, seconds that the job would run on that many nodes). A request below the run time is refused,
    because the scheduler would kill the job.
    """
    import polars as pl

    wanted = list(requests)
    if not 1 <= len(wanted) <= MOST:
        raise InputError(f"found {len(wanted)} requests; expected 1 to {MOST}", where="requests")
    nodes, requested, run = (np.array(column) for column in zip(*wanted, strict=True))
    if (run > requested).any():
        at = int(np.argmax(run > requested))
        raise InputError(f"found a run of {run[at]:g} s; expected at most the requested {requested[at]:g} s", where=f"requests[{at}]")
    n = len(wanted)
    jobs = Jobs.of(
        np.full(n, state.now_s), run, nodes, requested_s=requested, machine_nodes=state.machine_nodes, user=np.full(n, user),
        executable=np.full(n, executable),
    )  # fmt: skip
    wait = model.predict(jobs, state)
    low, high = model.predict_interval(jobs, state)
    table = {"nodes": nodes, "requested_s": requested, "wait_s": wait, "low_s": low, "high_s": high, "end_s": wait + run}
    return pl.DataFrame(table).sort("end_s", "nodes", maintain_order=True)
