"""Failures of ranks as a table `time_s,rank`: the node of a rank fails, and comes back without its memory."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from armillary.errors import InputError
from armillary.files import Column, column_names, read_table
from armillary.training.checkpoint.analysis.interval import mtbf_of
from armillary.training.checkpoint.workload import Outages
from armillary.workloads import Failures

MOST_FAILURES = 1_000_000


def read_outages(path: str | Path, gpus: int, node: int, horizon_s: float) -> Outages:
    """The failures of nodes of `node` GPUs that a trace of ranks tells, up to `horizon_s`; the mean between them is the trace's own."""
    names = column_names(path)
    if not {"time_s", "rank"} <= set(names):
        raise InputError(f"found columns {', '.join(names[:6])}; expected a failure trace with time_s and rank", where=str(path))
    table = read_table(
        path, [Column("time_s", "time", least=0, most=1e10, not_decreasing=True), Column("rank", "int", least=0, most=gpus - 1)],
        row_limit=MOST_FAILURES,
    )  # fmt: skip
    start, part = table["time_s"].astype(np.float64), table["rank"].astype(np.int64) // node
    events = Failures(start, part, np.zeros(len(start)))
    return Outages(events, horizon_s, mtbf_of(start, horizon_s))
