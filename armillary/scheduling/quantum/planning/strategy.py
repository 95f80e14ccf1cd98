"""What every strategy of the arena is: given the state, which jobs start now, and where."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from armillary.arena import Technique
from armillary.scheduling.quantum.circuits.circuit import Circuit
from armillary.scheduling.quantum.network.network import Network
from armillary.scheduling.quantum.simulation.batch import Job

from .planner import Placement, Planner

#: A job's number, and where it starts.
Start = tuple[int, Placement]
Place = Callable[[Planner, Circuit, Sequence[int]], Placement | None]


@dataclass(frozen=True, eq=False)
class State:
    """What is known at one moment: nothing about jobs that have not arrived, and estimates instead of the judge's times."""

    now_s: float
    #: The network as the scheduler believes it to be.
    network: Network
    planner: Planner
    jobs: Sequence[Job]
    #: The numbers of the waiting jobs: by priority, then by arrival.
    queue: Sequence[int]
    #: Free data qubits by QPU.
    free: Sequence[int]
    #: Running jobs: number, placement, expected end.
    running: Sequence[tuple[int, Placement, float]] = ()
    #: The mean latency of the jobs that are done; 0 before the first.
    latency_s: float = 0.0


class Strategy(Technique):
    """Decides which of the waiting jobs start."""

    #: Whether jobs start together in slots, and QPUs are free again when the slowest job of a slot has ended.
    slots: ClassVar[bool] = True

    def select(self, state: State) -> list[Start]:
        """The jobs that start now, with their placements; at least one if nothing runs."""
        raise NotImplementedError


def filled(state: State, order: Iterable[int], place: Place, *, skip: bool = True) -> list[Start]:
    """Takes jobs in this order as long as they fit; with `skip`, one that does not fit lets the next ones try."""
    free = list(state.free)
    room = sum(free)
    starts: list[Start] = []
    for j in order:
        job = state.jobs[j]
        placement = place(state.planner, job.circuit, free) if job.qubits <= room else None
        if placement is None:
            if skip and room > 0:
                continue
            break
        for qpu, size in zip(placement.qpus, placement.sizes):
            free[qpu] -= size
        room -= job.qubits
        starts.append((j, placement))
    return starts
