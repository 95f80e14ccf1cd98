"""Serverless traces with a deadline rule: Azure 2019 and 2021, Huawei 2025, or a table that may have a column of deadlines.

A trace says how long calls took and not why. Each function becomes one of its median duration on a standard core, with a parallel
fraction that the user states; what a call's duration differs from the median is the size of its input, which planners are not told.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from armillary.errors import InputError
from armillary.files import Column, column_names, read_table
from armillary.scheduling.faas import Invocations, read_invocations
from armillary.scheduling.functions.problem.fleet import Fleet, Floats
from armillary.scheduling.functions.problem.functions import CORE_GFLOPS, Profile

from .documents import Listed, Read

#: Shorter calls count as this long, and inputs differ by at most this factor.
SHORTEST_S, MOST_SIZE = 1e-3, 1e6
MOST_ROWS = 5_000_000


def read_trace(path: str | Path, fleet: Fleet, parallel: float, files: Mapping[str, Any]) -> Read:
    """The calls of a trace on a fleet; `files` are further files of Azure 2019 and Huawei, as `read_invocations` takes them."""
    place = Path(path)
    deadlines = None
    if place.is_file() and {"function", "arrival_s", "duration_s", "deadline_s"} <= {
        name.strip() for name in column_names(place, format="csv")
    }:
        trace, deadlines = _with_deadlines(place)
    else:
        trace = read_invocations(path, **files)
    if len(trace) > MOST_ROWS or not len(trace):
        raise InputError(f"found {len(trace):,} calls; expected 1 to {MOST_ROWS:,}", where=str(path))
    duration = np.maximum(trace.duration_s, SHORTEST_S)
    usual = np.ones(trace.functions)
    for f in range(trace.functions):
        part = duration[trace.offsets[f] : trace.offsets[f + 1]]
        if len(part):
            usual[f] = np.median(part)
    vcpu = np.clip(trace.vcpu, 0.1, 4096.0)
    profiles = tuple(
        Profile(
            trace.names[f] if trace.names else f"f{f}", CORE_GFLOPS * float(usual[f]), parallel, max(float(1024 * trace.memory_gb[f]), 1.0),
            cold_s=float(trace.cold_s[f]), vcpu=float(vcpu[f]),
        )
        for f in range(trace.functions)
    )  # fmt: skip
    for profile in profiles:
        profile.check(fleet)
    order = np.argsort(trace.arrival_s, kind="stable")
    function = trace.function
    size = np.clip(duration / usual[function], 1 / MOST_SIZE, MOST_SIZE)
    zero = trace.start_s
    listed = Listed(
        function[order], trace.arrival_s[order] - zero, None if deadlines is None else deadlines[order] - zero, size[order], told=False
    )
    return Read(fleet, profiles, listed)


def _with_deadlines(path: Path) -> tuple[Invocations, Floats]:
    """Our table with deadlines, on the clock of the arrivals."""
    columns = [
        Column("function", "str"), Column("arrival_s", "time"), Column("duration_s", unit="seconds", least=0, most=1e7),
        Column("deadline_s", unit="seconds", least=-1e9, most=1e9), Column("memory_mb", unit="MB", above=0, most=1e8, default=128.0),
        Column("vcpu", above=0, most=1e5, default=0.3), Column("cold_s", unit="seconds", least=0, most=3600, default=1.0),
    ]  # fmt: skip
    table = read_table(path, columns, format="csv", row_limit=MOST_ROWS)
    late = np.flatnonzero(table["deadline_s"] <= table["arrival_s"])
    if len(late):
        row = int(late[0])
        found = f"found {table['deadline_s'][row]:g} with the arrival {table['arrival_s'][row]:g}"
        raise table.error(row, f"{found}; expected a later time", "deadline_s")
    number, names = table.numbered("function")
    first = np.unique(number, return_index=True)[1]
    trace = Invocations.of(
        number, table["arrival_s"], table["duration_s"], functions=len(names), cold_s=table["cold_s"][first], vcpu=table["vcpu"][first],
        memory_gb=table["memory_mb"][first] / 1024, names=[str(name) for name in names],
    )  # fmt: skip
    return trace, table["deadline_s"][np.lexsort((table["arrival_s"], number))]
