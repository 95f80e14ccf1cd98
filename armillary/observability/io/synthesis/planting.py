"""Whole programs with planted faults: how much of each fault it takes to cost a given share of the I/O time, and what is true of the log.

A program has healthy phases, in which a few aggregators write large blocks for all ranks, and faulty phases. With T the seconds of all of
them and L_i what fault i costs, the severity of the fault is L_i/T. The amounts are chosen so that the severities come near what is asked
for, and the truth is computed afterwards from the times of the program as it stands. No rule's threshold takes part.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from ..counters.requests import OPEN, STAT
from .faults import FAULTS, Fault
from .program import MIB, Calls, Phase, Program, metadata, requests
from .timing import phase_seconds

#: Of the share of its own time that a fault can cost at most, the part that is asked for at most.
FEASIBLE = 0.9
#: Of its own time, the part that a fault has to cost to be planted.
LEAST = 0.05
#: Requests of the healthy phases.
MOST_HEALTHY = 15_000


@dataclass(frozen=True)
class Truth:
    """What was planted: the share of the I/O time that each label costs, and labels that follow by themselves."""

    severity: dict[str, float]
    brings: frozenset[str] = frozenset()
    #: Labels each of which names the cause of the largest loss; empty where nothing was planted.
    causes: frozenset[str] = frozenset()
    #: Labels that are known to be absent; None where everything else is.
    absent: frozenset[str] | None = None

    @property
    def labels(self) -> frozenset[str]:
        """The labels that a technique should find."""
        return frozenset(self.severity)


def healthy(program: Program, seconds: float, rng: np.random.Generator, mpi: bool = True) -> list[Phase]:
    """Phases of about `seconds` in which as many aggregators as targets write whole stripes of a shared file."""
    if seconds <= 0:
        return []
    stripe = int(rng.choice([1, 4, 16])) * MIB
    file = program.add("/scratch/run/output.h5", range(program.targets), stripe)
    ranks = range(min(program.targets, program.processes))
    size, count = stripe, 0
    for _ in range(8):
        one = requests(ranks, [file] * len(ranks), True, [rank * size for rank in ranks], 8, size, step=size * len(ranks))
        count = max(1, round(8 * seconds / phase_seconds(program, one)))
        if count * len(ranks) <= MOST_HEALTHY:
            break
        # Longer programs write longer requests instead of ever more of them.
        size *= -(-count * len(ranks) // MOST_HEALTHY)
    calls: tuple[Calls, ...] = ()
    if mpi:
        every = max(1, count // 16)
        calls = (Calls(file, program.processes, True, every, max(1, count * size * len(ranks) // every // program.processes), True),)
    starts = [rank * size for rank in ranks]
    return [requests(ranks, [file] * len(ranks), True, starts, count, size, step=size * len(ranks), calls=calls)]


class TooCheap(Exception):
    """A fault costs next to nothing in this program, so that it cannot be planted in it."""


def planted(
    names: Sequence[str], asked: Sequence[float], processes: int, rng: np.random.Generator, *, least: float = 0.0
) -> tuple[Program, Truth]:
    """A program with these faults, each of which costs about its share of the I/O time; raises `TooCheap` where one cannot, or
    where one would cost less than `least`.
    """
    targets = int(rng.choice([4, 8, 16]))
    program = Program(processes, targets)
    scale = [1.0] * len(names)
    faults: list[Fault] = []
    flawed, lost = list[float](), list[float]()
    seeds = [int(rng.integers(1 << 62)) for _ in names]
    for _ in range(3):
        program.files.clear()
        program.slow.clear()
        faults = [FAULTS[name](program, np.random.Generator(np.random.PCG64DXSM(seed)), s) for name, seed, s in zip(names, seeds, scale)]
        flawed, lost = _times(program, faults)
        own = [loss / spent for loss, spent in zip(lost, flawed)]
        if min(own) < LEAST:
            raise TooCheap(names[int(np.argmin(own))])
        shrink = min(1.0, FEASIBLE / sum(a / o for a, o in zip(asked, own)))
        wanted = [a * shrink for a in asked]
        if min(wanted) < least:
            raise TooCheap("together they cost too little")
        total = max(loss / want for loss, want in zip(lost, wanted))
        scale = [s * want * total / loss for s, want, loss in zip(scale, wanted, lost)]
    phases = healthy(program, total - sum(flawed), rng)
    base = sum(phase_seconds(program, phase) for phase in phases)
    order = rng.permutation(len(faults))
    program.phases = [*phases, *(phase for i in order.tolist() for phase in faults[i].flawed)]
    whole = base + sum(flawed)
    severity: dict[str, float] = {}
    for fault, loss in zip(faults, lost):
        for label in fault.labels:
            severity[label] = severity.get(label, 0.0) + loss / whole
    first = faults[int(np.argmax(lost))]
    brings = frozenset(label for fault in faults for label in fault.brings) - severity.keys()
    return program, Truth(severity, brings, first.causes or first.labels)


def _times(program: Program, faults: Sequence[Fault]) -> tuple[list[float], list[float]]:
    """(seconds of each fault's phases, seconds that it costs)."""
    flawed, lost = [], []
    for fault in faults:
        spent = sum(phase_seconds(program, phase) for phase in fault.flawed)
        well = replace(program, slow={}) if fault.heals else program
        flawed.append(spent)
        lost.append(max(1e-9, spent - sum(phase_seconds(well, phase) for phase in fault.repaired)))
    return flawed, lost


def without_mpi(asked: float, processes: int, rng: np.random.Generator) -> tuple[Program, Truth]:
    """A program of many processes that uses no MPI-IO, so that their requests interleave at the targets."""
    targets = max(1, processes // 16)
    program = Program(processes, targets)
    ranks = range(processes)
    files = [program.add(f"/scratch/run/rank.{rank:05d}", (rank % targets,), MIB) for rank in ranks]
    from .timing import BANDWIDTH, INTERLEAVE_S, REQUEST_S

    share = min(asked, 0.33)
    size = max(2, round(BANDWIDTH * (INTERLEAVE_S * (1 - share) / share - REQUEST_S) / MIB)) * MIB
    phase = requests(ranks, files, True, [0] * processes, int(rng.integers(30, 80)), size)
    program.phases = [phase]
    spent = phase_seconds(program, phase)
    service = REQUEST_S + size / BANDWIDTH
    lost = spent * INTERLEAVE_S / (service + INTERLEAVE_S)
    return program, Truth({"no-mpi": lost / spent}, frozenset(), frozenset({"no-mpi"}))


def decoy(name: str, processes: int, rng: np.random.Generator) -> tuple[Program, Truth]:
    """A healthy program that looks suspicious in one way."""
    targets = int(rng.choice([4, 8, 16]))
    program = Program(processes, targets)
    if name == "few-files":
        ranks = range(min(processes, 8 * targets))
        program.processes = len(ranks)
        files = [program.add(f"/scratch/run/rank.{rank:05d}", (rank % targets,), MIB) for rank in ranks]
        moved = float(np.exp(rng.uniform(np.log(2e8), np.log(3e10))))
        size = int(rng.choice([8, 16, 32])) * MIB
        program.phases = [requests(ranks, files, True, [0] * len(ranks), max(1, round(moved / size / len(ranks))), size)]
        return program, Truth({})
    seconds = float(rng.uniform(20, 200))
    program.phases = healthy(program, seconds, rng)
    ranks = range(min(processes, 32))
    if name == "small-job":
        # Small requests and calls that take a hundredth of the time.
        files = [program.add(f"/home/user/config.{rank:05d}", (rank % targets,), MIB, 4096) for rank in ranks]
        count = int(rng.integers(1200, 6000)) // len(ranks) + 1
        program.phases.append(requests(ranks, files, False, [0] * len(ranks), count, 4096))
    if name == "startup":
        files = [program.add(f"/home/user/lib.{rank:05d}", (rank % targets,), MIB, 4096) for rank in ranks]
        program.phases.append(metadata(ranks, files, [OPEN, STAT] * int(rng.integers(8, 40))))
        text = program.add("/scratch/run/log.txt", (0,), MIB)
        program.phases.append(requests([0], [text], True, [0], int(rng.integers(200, 2000)), 120, library="STDIO"))
    return program, Truth({})
