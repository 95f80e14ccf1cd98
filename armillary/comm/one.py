"""One rank, whose messages to itself are copies. It is the reference for the meaning of the calls."""

from __future__ import annotations

from dataclasses import replace

from armillary.comm.result import Ran
from armillary.comm.task import Task
from armillary.comm.threads.start import run_threads


def run_one(task: Task) -> Ran:
    """Run the program on one rank, on a thread of its own, so that waiting for a message that never comes ends as `Deadlock`."""
    return run_threads(replace(task, ranks=1))
