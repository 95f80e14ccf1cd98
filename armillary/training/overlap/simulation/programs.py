"""A tile program in simulated time."""

from __future__ import annotations

from armillary.training.overlap.machine.mechanisms import Gpu
from armillary.training.overlap.programs.template import TileProgram

from .schedule import Timed
from .schedule import simulate as simulate_schedule
from .tracing import trace


def simulate(program: TileProgram, *, device: str | Gpu = "h100-80", comm_sms: int = 0) -> Timed:
    """Runs a program without data on `device`; `comm_sms` SMs only communicate, and 0 puts communicators into compute SMs.

    Raises DeadlockFound, with the tasks that wait, if a signal is missing.
    """
    gpu = device if isinstance(device, Gpu) else Gpu.of(device)
    return simulate_schedule(trace(program, gpu, in_sm=comm_sms == 0).schedule(comm_sms))
