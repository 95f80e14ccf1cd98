"""Where the time of a Python loop around arrays goes: a host clock around each kind of call that costs time and moves nothing.

    report = overhead_report(step)
    print(report)

The kinds are the six sources of overhead: conversions between libraries, slices, packing, waiting, staging through the host, and launches.
Calls are seen where they are looked up when they are made (`np.from_dlpack(x)`, `tensor[2:4]`, `module.function(x)`), not through names
that were imported from a module before, and not inside compiled code.
"""

from __future__ import annotations

import importlib
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from armillary.errors import InputError, unknown

KINDS = ("convert", "slice", "pack", "wait", "stage", "launch")
#: Calls by kind, as module:attribute; those of modules that are not imported are left out.
CALLS: dict[str, tuple[str, ...]] = {
    "convert": (
        "numpy:from_dlpack", "numpy:asarray", "torch:from_dlpack", "torch:from_numpy", "torch:as_tensor", "torch:Tensor.numpy",
        "torch.utils.dlpack:from_dlpack", "cupy:asarray", "cupy:from_dlpack", "numba.cuda:as_cuda_array",
        "armillary.network.halo.views.libraries:as_library",
    ),
    "slice": ("torch:Tensor.__getitem__",),
    "pack": ("numpy:copyto", "torch:Tensor.copy_", "torch:Tensor.__setitem__"),
    "wait": ("armillary.comm:waitall", "torch.cuda:synchronize", "torch.cuda:Stream.synchronize"),
    "stage": ("torch:Tensor.cpu", "torch:Tensor.cuda", "torch:Tensor.to", "cupy:asnumpy"),
    "launch": ("triton.runtime.jit:JITFunction.run", "numba.cuda.dispatcher:_LaunchConfiguration.__call__"),
}  # fmt: skip
_ROUNDS = 20


@dataclass(frozen=True)
class OverheadReport:
    """What one call of the loop took, in seconds, and how much of it went into calls of each kind; and how many there were."""

    total_s: float
    seconds: Mapping[str, float]
    calls: Mapping[str, float]

    @property
    def other_s(self) -> float:
        """The seconds outside of all these calls."""
        return max(0.0, self.total_s - sum(self.seconds.values()))

    def __str__(self) -> str:
        rows = [f"{1e6 * self.total_s:10.1f} us per call of the loop"]
        rows += [
            f"{1e6 * self.seconds[kind]:10.1f} us in {self.calls[kind]:g} {kind} calls" for kind in KINDS if self.calls[kind]
        ]  # fmt: skip
        return "\n".join([*rows, f"{1e6 * self.other_s:10.1f} us elsewhere"])


class _Clock:
    """Seconds and calls by kind; of nested calls the outermost counts."""

    def __init__(self) -> None:
        self.seconds = dict.fromkeys(KINDS, 0.0)
        self.calls = dict.fromkeys(KINDS, 0)
        self.inside = False

    def around(self, kind: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function with the clock around it."""

        def timed(*arguments: Any, **named: Any) -> Any:
            if self.inside:
                return function(*arguments, **named)
            self.inside = True
            began = time.perf_counter()
            try:
                return function(*arguments, **named)
            finally:
                self.seconds[kind] += time.perf_counter() - began
                self.calls[kind] += 1
                self.inside = False

        return timed


def overhead_report(
    fn: Callable[..., Any], *arguments: Any, rounds: int = _ROUNDS, also: Mapping[str, Sequence[str]] | None = None
) -> OverheadReport:
    """Call `fn` twice `rounds` times, without clocks and with them, and return where its time went, as means per call.

    A first call warms up and does not count. NumPy arrays among the arguments are passed as views that count their slices. `also` names
    further functions by kind, as `module:attribute`, for example `{"launch": ["solver.kernels:advance"]}`. What a clock adds to a call is
    measured and taken off.
    """
    if rounds < 1:
        raise InputError(f"rounds: found {rounds}; expected 1 or more")
    for kind in also or {}:
        if kind not in KINDS:
            raise unknown("kind of call", kind, KINDS)
    for names in (also or {}).values():
        for name in names:
            importlib.import_module(name.partition(":")[0])
    fn(*arguments)
    began = time.perf_counter()
    for _ in range(rounds):
        fn(*arguments)
    total = time.perf_counter() - began
    clock = _Clock()
    with _watched(clock, also or {}):
        given = [_counting(x, clock) if type(x) is np.ndarray else x for x in arguments]
        for _ in range(rounds):
            fn(*given)
    inner = _cost_of_the_clock()
    seconds = {kind: max(0.0, clock.seconds[kind] - clock.calls[kind] * inner) / rounds for kind in KINDS}
    return OverheadReport(total / rounds, seconds, {kind: clock.calls[kind] / rounds for kind in KINDS})


@contextmanager
def _watched(clock: _Clock, also: Mapping[str, Sequence[str]]) -> Iterator[None]:
    """Put clocks around the calls, and take them away again."""
    undo: list[tuple[Any, str, Any, bool]] = []
    try:
        for kind in KINDS:
            for name in (*CALLS[kind], *also.get(kind, ())):
                module, _, path = name.partition(":")
                owner: Any = sys.modules.get(module)
                *parents, last = path.split(".")
                for parent in parents:
                    owner = getattr(owner, parent, None)
                function = getattr(owner, last, None)
                if owner is None or function is None:
                    if name in also.get(kind, ()):
                        raise InputError(f"found no {name}; expected module:attribute of a function", where="also")
                    continue
                undo.append((owner, last, vars(owner).get(last), last in vars(owner)))
                setattr(owner, last, clock.around(kind, function))
        yield
    finally:
        for owner, last, before, own in reversed(undo):
            if own:
                setattr(owner, last, before)
            else:
                delattr(owner, last)


def _counting(x: np.ndarray[Any, Any], clock: _Clock) -> np.ndarray[Any, Any]:
    """A view of an array whose slices are counted."""

    class Counted(np.ndarray):
        __getitem__ = clock.around("slice", np.ndarray.__getitem__)

    return x.view(Counted)


def _cost_of_the_clock(calls: int = 500, rounds: int = 5) -> float:
    """The seconds that a clock adds to what it measures, per call: the least of some rounds, so that nothing real is taken off."""
    found = []
    for _ in range(rounds):
        clock, nothing = _Clock(), int
        timed = clock.around("launch", nothing)
        began = time.perf_counter()
        for _ in range(calls):
            nothing()
        bare = time.perf_counter() - began
        for _ in range(calls):
            timed()
        found.append(max(0.0, (clock.seconds["launch"] - bare) / calls))
    return min(found)
