"""One rank: messages to itself are copies. The reference for what the calls mean."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from armillary.comm.result import Ran
from armillary.comm.threads import run_threads


def run_one(program: Callable[..., Any], args: Sequence[Any], named: dict[str, Any], ranks: int, seed: int, choice: dict[str, Any]) -> Ran:
    """Run the program on one rank, on a thread of its own, so that waiting for a message that never comes is found out as `Deadlock`."""
    return run_threads(program, args, named, 1, seed, choice)
