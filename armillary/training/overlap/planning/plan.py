"""A plan: the schedule that a technique chose, the seconds that it promises, and what a kernel author has to write for it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from armillary.training.overlap.machine.mechanisms import Gpu
from armillary.training.overlap.programs.template import TileProgram
from armillary.training.overlap.simulation.schedule import Schedule, Timed, simulate
from armillary.training.overlap.simulation.tracing import Traced, trace

from .promise import fused_seconds


@dataclass(frozen=True)
class Plan:
    """`predicted` in seconds; `program` is None where the technique launches whole kernels, and then `device_lines` is 0."""

    schedule: Schedule
    predicted: float
    comm_sms: int
    program: TileProgram | None = None
    facts: dict[str, float | str] = field(default_factory=dict)
    #: The run that the choice was made with, on the planned costs.
    timed: Timed | None = None

    @property
    def device_lines(self) -> int:
        """Lines of device code."""
        return 0 if self.program is None else self.program.device_lines()


def fused(program: TileProgram, gpu: Gpu, comm_sms: int, traced: Traced | None = None) -> Plan:
    """The plan of a program with this many communicator SMs."""
    found = traced or trace(program, gpu, in_sm=comm_sms == 0)
    schedule = found.schedule(comm_sms)
    return Plan(schedule, fused_seconds(program, gpu, comm_sms), comm_sms, program, {}, simulate(schedule))


def fastest(plans: Iterable[Plan]) -> Plan:
    """The plan with the shortest simulated time; the first of equals."""
    best: Plan | None = None
    for plan in plans:
        if best is None or seconds(plan) < seconds(best):
            best = plan
    assert best is not None
    return best


def seconds(plan: Plan) -> float:
    """Simulated seconds on the planned costs."""
    assert plan.timed is not None
    return plan.timed.seconds


def swept(make: Callable[[int], Schedule], promise: Callable[[int], float], pieces: Iterable[int]) -> Plan:
    """The best number of pieces by simulation."""
    plans = []
    for count in pieces:
        schedule = make(count)
        plans.append(Plan(schedule, promise(count), schedule.comm_sms, None, {"pieces": count}, simulate(schedule)))
    return fastest(plans)
