"""One clock for reports of several nodes.

A report counts from the start of its recording, which it states by its node's clock. That clock may be wrong. Where every report has
MPI_Init, its end is taken as one moment. Then the collectives of NCCL, which end everywhere together, show what error is left: the offset
of a report is the median over collectives of how much later than the others' median they end there. Ends are compared and not starts, so
that a rank that is really late stays late.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from ..run.model import KERNEL, MPI, Run, Spans, per_group

Numbers = npt.NDArray[np.int64]

#: An offset is applied where it is more than this many median absolute deviations.
SURE = 3.0
#: How much of a collective's kernels must be running at one moment on all devices for them to be one collective.
OVERLAPPING = 0.9
_BLOCK = 1 << 18


@dataclass(frozen=True)
class Alignment:
    """What was subtracted from each report's times (ns), by what, and the largest disagreement that is left (ns; None: unknown)."""

    offsets_ns: tuple[float, ...]
    by: str
    collectives: int = 0
    uncertainty_ns: float | None = None


@dataclass(frozen=True)
class Matched:
    """Collectives that all devices, or all processes, took part in: arrays (participant, collective) of starts and ends."""

    start: Numbers
    end: Numbers

    @property
    def last_arrival(self) -> Numbers:
        """For each collective, when the last participant arrived."""
        return self.start.max(axis=0)


def aligned(run: Run, *, in_place: bool = False) -> Run:
    """The run with the clocks of its reports aligned, and with the offsets in `alignment`; `in_place` changes the run's own columns."""
    reports = len(run.began_ns)
    if reports < 2:
        return replace(run, alignment=Alignment((0.0,) * reports, "one clock", 0, 0.0))
    offsets, by = np.zeros(reports), "session starts"
    initialised = _end_of_init(run)
    if initialised is not None:
        offsets = initialised - np.median(initialised)
        by = "the end of MPI_Init"
        run = _shifted(run, -np.rint(offsets).astype(np.int64), in_place)
    matched = _meetings(run)
    if matched is None:
        return replace(run, alignment=Alignment(tuple(offsets.tolist()), by))
    found, report_of = matched
    late = found.end - np.median(found.end, axis=0)
    refined = np.zeros(reports)
    for report in np.unique(report_of):
        mine = late[report_of == report].ravel()
        middle = np.median(mine)
        if abs(middle) > SURE * np.median(np.abs(mine - middle)):
            refined[report] = middle
    run = _shifted(run, -np.rint(refined).astype(np.int64), in_place)
    left = float(np.abs(late - refined[report_of][:, None]).max())
    return replace(run, alignment=Alignment(tuple((offsets + refined).tolist()), "collectives", found.end.shape[1], left))


def _meetings(run: Run) -> tuple[Matched, Numbers] | None:
    """Collectives that end everywhere together, those of NCCL or else of MPI, and the report of each participant."""
    found = matched_kernels(run, tolerant=True)
    if found is not None:
        owners = [run.devices()[number][0] for number in devices_with_collectives(run).tolist()]
    else:
        calls = matched_calls(run)
        if calls is None:
            return None
        found, owners = calls
    return found, np.array([run.processes[process].report for process in owners], np.int64)


def _shifted(run: Run, by: Numbers, in_place: bool) -> Run:
    """The run with all times of each report later by so much."""
    report = np.array([run.processes[one.process].report for one in run.threads], np.int64)
    if not in_place:
        spans = {kind: one.shifted(by[report[one.thread]]).in_order() for kind, one in run.spans.items()}
        return replace(run, spans=spans)
    for one in run.spans.values():
        for first in range(0, len(one), _BLOCK):
            piece = slice(first, first + _BLOCK)
            later = by[report[one.thread[piece]]]
            one.start[piece] += later
            one.end[piece] += later
        one.sort()
    return run


def _end_of_init(run: Run) -> npt.NDArray[np.float64] | None:
    """For each report, the end of its first MPI_Init; None unless each has one."""
    spans = run.of(MPI)
    mine = spans.of(run.named(lambda name: name in ("MPI_Init", "MPI_Init_thread"))[spans.name]) if len(spans) else spans
    report = np.array([run.processes[one.process].report for one in run.threads])[mine.thread] if len(mine) else np.empty(0, np.int64)
    found = [mine.end[report == number] for number in range(len(run.began_ns))]
    return np.array([float(ends[0]) for ends in found]) if all(len(ends) for ends in found) else None


def devices_with_collectives(run: Run) -> Numbers:
    """The numbers of the devices that ran kernels of NCCL."""
    spans = run.of(KERNEL)
    return np.unique(run.device_of_thread()[spans.thread[run.communicates()]])


def matched_kernels(run: Run, *, tolerant: bool = False) -> Matched | None:
    """The collectives of NCCL in which all devices that ran any took part, in their order; None where they cannot be told apart.

    Every device must have run the same kernels in the same order, and those of one collective must overlap in time. `tolerant` leaves the
    second condition out, for clocks that are not aligned yet.
    """
    spans = run.of(KERNEL)
    spans = spans.of(run.communicates())
    return _matched(spans, run.device_of_thread()[spans.thread] if len(spans) else np.empty(0, np.int64), len(run.devices()), tolerant)


def matched_calls(run: Run) -> tuple[Matched, list[int]] | None:
    """The collective calls of MPI in which all processes took part, and these processes."""
    spans = run.of(MPI)
    if not len(spans):
        return None
    together = run.named(lambda name: name.startswith("MPI_") and name[4:].lstrip("I").split("_")[0].lower() in _TOGETHER)
    spans = spans.of(together[spans.name])
    owner = run.process_of_thread()[spans.thread]
    found = _matched(spans, owner, len(run.processes), True)
    return None if found is None else (found, np.unique(owner).tolist())


_TOGETHER = {"barrier", "allreduce", "alltoall", "alltoallv", "alltoallw", "allgather", "allgatherv", "reduce"}


def _matched(spans: Spans, groups: Numbers, many: int, tolerant: bool) -> Matched | None:
    parts: Sequence[Numbers] = [place for place in per_group(groups, many) if len(place)]
    if len(parts) < 2 or len({len(place) for place in parts}) != 1:
        return None
    names = np.stack([spans.name[place] for place in parts])
    if (names != names[0]).any():
        return None
    start, end = (np.stack([column[place] for place in parts]) for column in (spans.start, spans.end))
    if not tolerant and np.mean(start.max(axis=0) <= end.min(axis=0)) < OVERLAPPING:
        return None
    return Matched(start, end)
