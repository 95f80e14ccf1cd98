"""Job traces: a table with submit_s, pods, duration_s and, if known, nodes, tenant and claim; or a log in the Standard Workload Format."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from armillary.errors import InputError, one_line
from armillary.files import Column, read_lines, read_table

from ..service.hooks import LABEL
from ..simulation.pods import Floats, Ints
from ..workload import MOST_JOBS, MOST_PODS

#: Seconds beyond which a number is no time, and the widest job.
LONGEST_S, WIDEST = 1e9, 100_000
#: Fields of a line of SWF, and the places of those that are read.
FIELDS, SUBMIT, RUN, PROCS, ASKED, USER = 18, 1, 3, 4, 7, 11
COLUMNS = (
    Column("submit_s", "float", unit="seconds", least=0, most=LONGEST_S),
    Column("nodes", "int", least=1, most=WIDEST, default=1),
    Column("pods", "int", least=1, most=WIDEST),
    Column("duration_s", "float", unit="seconds", least=0, most=LONGEST_S),
    Column("tenant", "str", default=""),
    Column("claim", "str", default=""),
)


@dataclass(frozen=True)
class Trace:
    """Jobs in the order of their submission; seconds from the first one. Tenants are numbers; `claim` is empty where a job joins none."""

    submit_s: Floats
    pods: Ints
    run_s: Floats
    tenant: Ints
    claim: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.submit_s)

    @staticmethod
    def of(
        submit_s: npt.ArrayLike, pods: npt.ArrayLike, run_s: npt.ArrayLike, tenants: Sequence[object], claims: Sequence[str], where: str
    ) -> Trace:
        """The trace of jobs in any order."""
        submit, wide = np.asarray(submit_s, np.float64), np.asarray(pods, np.int64)
        if not 1 <= len(submit) <= MOST_JOBS or int(wide.sum()) > MOST_PODS:
            found = f"found {len(submit):,} jobs with {int(wide.sum()):,} pods"
            raise InputError(f"{found}; expected 1 to {MOST_JOBS:,} jobs with at most {MOST_PODS:,} pods", where=where)
        order = np.argsort(submit, kind="stable")
        known: dict[object, int] = {}
        tenant = np.array([known.setdefault(one, len(known)) for one in tenants], np.int64)
        begun = submit[order] - submit[order[0]]
        named = tuple(claims[place] for place in order.tolist())
        return Trace(begun, wide[order], np.asarray(run_s, np.float64)[order], tenant[order], named)


def read_trace(path: Path) -> Trace:
    """The jobs of a file: SWF by its ending (.swf, .swf.gz), otherwise a table."""
    name = path.name.lower().removesuffix(".gz").removesuffix(".zst")
    return read_swf(path) if name.endswith(".swf") else read_jobs(path)


def read_jobs(path: Path) -> Trace:
    """The jobs of a table."""
    table = read_table(path, COLUMNS, row_limit=MOST_JOBS)
    claims = [str(claim) for claim in table["claim"]]
    for row, claim in enumerate(claims):
        if claim and not LABEL.fullmatch(claim):
            raise InputError(f'column "claim": found "{one_line(claim, 60)}"; expected a DNS label', where=f"{path}, row {row + 1}")
    return Trace.of(table["submit_s"], table["pods"], table["duration_s"], [str(one) for one in table["tenant"]], claims, str(path))


def read_swf(path: Path) -> Trace:
    """The jobs of a log that ran: one pod per processor that they asked for, and one tenant per user."""
    submit: list[float] = []
    pods: list[int] = []
    run: list[float] = []
    users: list[int] = []
    for number, line in read_lines(path):
        text = line.strip()
        if not text or text.startswith(";"):
            continue
        where = f"{path}:{number}"
        cells = text.split()
        if len(cells) != FIELDS:
            raise InputError(f"found {len(cells)} fields; expected {FIELDS}", where=where)
        values = {place: _number(cells[place], where) for place in (SUBMIT, RUN, PROCS, ASKED, USER)}
        wide = values[PROCS] if values[PROCS] > 0 else values[ASKED]
        if values[RUN] < 0 or wide <= 0:
            continue  # it never ran
        if wide > WIDEST or values[SUBMIT] > LONGEST_S or values[RUN] > LONGEST_S or values[SUBMIT] < 0:
            raise InputError(f"found {wide:g} processors at {values[SUBMIT]:g} s; expected at most {WIDEST:,} within 1e9 s", where=where)
        if len(submit) == MOST_JOBS:
            raise InputError(f"found more than {MOST_JOBS:,} jobs; expected at most as many", where=where)
        submit.append(values[SUBMIT])
        pods.append(int(wide))
        run.append(values[RUN])
        users.append(int(values[USER]))
    return Trace.of(submit, pods, run, users, [""] * len(submit), str(path))


def _number(cell: str, where: str) -> float:
    try:
        value = float(cell)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise InputError(f'found "{one_line(cell, 30)}"; expected a number', where=where)
    return value
