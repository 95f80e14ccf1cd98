"""Measures work on a device; a launch returns at once, so the clock must synchronise on both sides."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from ..errors import InputError
from .kinds import Array, device_of, kind_of, on_accelerator


def stream(x: Array) -> Any:
    """The current stream for work on `x` (CuPy's or PyTorch's object), or None if `x` is on the host."""
    if not on_accelerator(x):
        return None
    if kind_of(x) == "torch":
        return import_module(f"torch.{x.device.type}").current_stream(x.device)
    with x.device:
        return import_module("cupy").cuda.get_current_stream()


def synchronise(*arrays: Array) -> None:
    """Waits until all work that is queued on the devices of `arrays`, on any stream, is done; on the host it returns at once."""
    for x in arrays:
        device = device_of(x)
        if not on_accelerator(x):
            continue
        if kind_of(x) == "torch":
            import_module(f"torch.{device.type}").synchronize(device)
        else:
            device.synchronize()


@dataclass(frozen=True)
class Elapsed:
    """Seconds of repeated calls, with idle devices before and after each."""

    #: Seconds of the first call, which may compile or allocate and is not part of `seconds`.
    first_s: float
    seconds: tuple[float, ...]

    @property
    def median_s(self) -> float:
        """The median of the seconds."""
        return statistics.median(self.seconds)


def timed(work: Callable[[], Any], *arrays: Array, repeats: int = 5) -> Elapsed:
    """Times `work`, with the devices of `arrays` synchronised on both sides of each call: a first call, and then `repeats` more."""
    if repeats < 1:
        raise InputError(f"found {repeats}; expected at least 1", where="timed: repeats")
    seconds = []
    for _ in range(repeats + 1):
        synchronise(*arrays)
        start = time.perf_counter_ns()
        work()
        synchronise(*arrays)
        seconds.append((time.perf_counter_ns() - start) / 1e9)
    return Elapsed(seconds[0], tuple(seconds[1:]))
