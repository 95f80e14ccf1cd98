"""How long a program takes on a small model of a parallel file system.

A data request keeps its storage target busy for

    0.1 ms + bytes / 1.2 GB/s
    + 0.4 ms  if it is not aligned: a lock for writes to a file that several ranks write, a further block for reads
    + 2 ms    if it does not begin where the rank's request before ended
    + 1 ms    if more than eight ranks use that target in the phase, whose requests then interleave

times the target's slowness, and a metadata call keeps the one metadata server busy for 0.3 ms. A rank issues one request at a time. Targets
and the metadata server are pools of `armillary.engine`, which the ranks share max-min fairly; a phase ends when its last rank does.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from armillary.engine import Activity, Event, Pool, Simulation

from ..counters.requests import READ, WRITE, Requests
from .program import Phase, Program

if TYPE_CHECKING:
    import numpy.typing as npt

BANDWIDTH = 1.2e9
REQUEST_S, METADATA_S, LOCK_S, SEEK_S, INTERLEAVE_S = 1e-4, 3e-4, 4e-4, 2e-3, 1e-3
#: Ranks that one target serves without interleaving.
STREAMS = 8


@dataclass(frozen=True)
class Timed:
    """A program's operations with their times, and the seconds of each phase."""

    requests: tuple[Requests, ...]
    phase_s: npt.NDArray[np.float64]

    @property
    def seconds(self) -> float:
        """From the first to the last operation."""
        return float(self.phase_s.sum())


def timed(program: Program, *, gap_s: float = 0.0) -> Timed:
    """Times every operation; phases follow each other with `gap_s` seconds of other work between them."""
    clock, done, spent = 0.0, [], []
    for phase in program.phases:
        start, end, seconds = _phase(program, phase)
        done.append(
            Requests(phase.file.astype(np.uint64), phase.rank, phase.kind, phase.offset, phase.length, start + clock, end + clock)
        )  # fmt: skip
        clock += seconds + gap_s
        spent.append(seconds)
    return Timed(tuple(done), np.array(spent))


def phase_seconds(program: Program, phase: Phase) -> float:
    """The seconds of one phase of a program."""
    return _phase(program, phase)[2]


def service_s(program: Program, phase: Phase) -> tuple[Any, Any]:
    """(seconds that each operation keeps its target busy, the number of that target; -1 is the metadata server)."""
    data = (phase.kind == READ) | (phase.kind == WRITE)
    stripe = np.array([file.stripe for file in program.files], np.int64)[phase.file]
    unit = np.array([file.alignment for file in program.files], np.int64)[phase.file]
    width = np.array([len(file.osts) for file in program.files], np.int64)[phase.file]
    begin = np.concatenate([[0], np.cumsum([len(file.osts) for file in program.files])]).astype(np.int64)
    osts = np.array([ost for file in program.files for ost in file.osts], np.int64)
    target = osts[begin[phase.file] + (phase.offset // stripe) % width]
    seconds = REQUEST_S + phase.length / BANDWIDTH
    order = np.lexsort((phase.kind, phase.rank, phase.file))
    key = (phase.file, phase.rank, phase.kind)
    same = np.logical_and.reduce([column[order][1:] == column[order][:-1] for column in key])
    jump = np.zeros(len(phase), np.bool_)
    jump[order[1:]] = same & (phase.offset[order][1:] != (phase.offset + phase.length)[order][:-1])
    seconds = seconds + SEEK_S * jump
    writers = _users(phase.file, phase.rank, len(program.files))[phase.file]
    unaligned = (phase.offset % unit != 0) | ((phase.offset + phase.length) % unit != 0)
    seconds = seconds + LOCK_S * (unaligned & ((phase.kind == READ) & (phase.length >= unit) | (phase.kind == WRITE) & (writers > 1)))
    # A request over several stripes keeps several targets busy, so each of the file's targets counts as used.
    ranks = _users(target[data], phase.rank[data], program.targets)
    seconds = seconds + INTERLEAVE_S * (ranks[target] > STREAMS)
    factor = np.ones(program.targets)
    for ost, times in program.slow.items():
        factor[ost] = times
    seconds = seconds * factor[target]
    return np.where(data, seconds, METADATA_S), np.where(data, target, -1)


def _users(what: Any, rank: Any, number: int) -> Any:
    """How many ranks use each thing."""
    ranks = int(rank.max()) + 1 if len(rank) else 1
    return np.bincount(np.unique(what * ranks + rank) // ranks, minlength=number)


def _phase(program: Program, phase: Phase) -> tuple[Any, Any, float]:
    """Start and end of each operation, and the phase's seconds."""
    service, target = service_s(program, phase)
    ranks, number = np.unique(phase.rank, return_inverse=True)
    load = np.zeros((len(ranks), program.targets + 1))
    np.add.at(load, (number, target), service)  # The last column is the metadata server.
    ends = _shared(load)
    total = load.sum(axis=1)
    stretch = ends / np.maximum(total, 1e-300)
    order = np.argsort(number, kind="stable")
    spent = service[order] * stretch[number[order]]
    running = np.cumsum(spent)
    first = np.searchsorted(number[order], np.arange(len(ranks)))
    before = np.concatenate([[0.0], running])[first]
    end = np.empty(len(phase))
    end[order] = running - before[number[order]]
    start = np.empty(len(phase))
    start[order] = end[order] - spent
    return start, end, float(ends.max())


def _shared(load: Any) -> Any:
    """When each rank is done, if it uses targets in the proportions of its row and never more than one at a time."""
    kinds, number = np.unique(load, axis=0, return_inverse=True)
    members = np.bincount(number.reshape(-1), minlength=len(kinds))
    simulation = Simulation()
    pools = [Pool(simulation, 1.0, f"target {i}") for i in range(load.shape[1])]
    ends = np.zeros(len(kinds))
    for i, row in enumerate(kinds):
        total = float(row.sum())
        uses = {pools[k]: float(row[k]) / total for k in np.flatnonzero(row).tolist()}

        def done(event: Event, i: int = i) -> None:
            ends[i] = simulation.now

        # Ranks with equal rows begin and end together.
        Activity(simulation, total, uses, cap=1.0, count=int(members[i])).callbacks.append(done)  # type: ignore[union-attr]
    simulation.run()
    return ends[number.reshape(-1)]
