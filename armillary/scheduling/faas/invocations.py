"""Invocations of serverless functions as arrays, which is what a trace becomes when it is read or drawn."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from armillary.errors import InputError

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

#: Bounds on what a trace may say, so that sums stay finite and compiled loops stay inside their arrays. Arrivals may be seconds since 1970.
LATEST_S = 1e10
LONGEST_S, MOST_INVOCATIONS, MOST_FUNCTIONS = 1e9, 1 << 28, 1 << 24


@dataclass(frozen=True)
class Invocations:
    """Invocations grouped by function: those of function f stand at `offsets[f]` to `offsets[f + 1]`, in the order of their arrival.

    Times are seconds on the trace's own clock. `cold_s` is what a cold start of the function takes, `vcpu` and `memory_gb` what one of its
    pods reserves. Nothing is counted beyond `horizon_s`, at which the observation ends.
    """

    offsets: Ints
    arrival_s: Floats
    duration_s: Floats
    cold_s: Floats
    vcpu: Floats
    memory_gb: Floats
    horizon_s: float = math.inf
    names: tuple[str, ...] = ()
    #: Rows of the file that stood in another order.
    reordered: int = 0
    #: Further facts that a reader wants to be shown.
    notes: tuple[str, ...] = field(default=())

    @staticmethod
    def of(
        function: npt.ArrayLike, arrival_s: npt.ArrayLike, duration_s: npt.ArrayLike, *, functions: int, cold_s: npt.ArrayLike,
        vcpu: npt.ArrayLike, memory_gb: npt.ArrayLike, horizon_s: float = math.inf, names: Sequence[str] = (), notes: Sequence[str] = (),
    ) -> Invocations:  # fmt: skip
        """Invocations from rows in any order, checked; per-function values are numbers or arrays with one entry per function."""
        number, arrival, duration = (np.asarray(a) for a in (function, arrival_s, duration_s))
        number, arrival, duration = number.astype(np.int64), arrival.astype(np.float64), duration.astype(np.float64)
        if not number.shape == arrival.shape == duration.shape or number.ndim != 1:
            raise InputError(f"found {number.shape} functions, {arrival.shape} arrivals and {duration.shape} durations; expected equal")
        if not 1 <= functions <= MOST_FUNCTIONS or len(number) > MOST_INVOCATIONS:
            said = f"found {functions:,} functions and {len(number):,} invocations"
            raise InputError(f"{said}; expected 1 to 2^24 functions and at most 2^28 invocations")
        if len(number) and not 0 <= number.min() <= number.max() < functions:
            raise InputError(f"found function {number.max()}; expected 0 to {functions - 1}")
        _check("arrival", arrival, -LATEST_S, LATEST_S)
        _check("duration", duration, 0.0, LONGEST_S)
        facts = {}
        for name, values in (("cold_s", cold_s), ("vcpu", vcpu), ("memory_gb", memory_gb)):
            facts[name] = np.array(np.broadcast_to(np.asarray(values, np.float64), (functions,)))
            _check(name, facts[name], 0.0, LONGEST_S)
        moved = int(np.count_nonzero(np.diff(arrival) < 0))
        order = np.lexsort((arrival, number))
        offsets = np.concatenate(([0], np.cumsum(np.bincount(number, minlength=functions)))).astype(np.int64)
        return Invocations(
            offsets, arrival[order], duration[order], horizon_s=float(horizon_s), names=tuple(names), reordered=moved,
            notes=tuple(notes), **facts,
        )  # fmt: skip

    def __len__(self) -> int:
        return len(self.arrival_s)

    @property
    def functions(self) -> int:
        """The number of functions."""
        return len(self.offsets) - 1

    @property
    def function(self) -> Ints:
        """The function of each invocation."""
        return np.repeat(np.arange(self.functions), np.diff(self.offsets))

    @property
    def start_s(self) -> float:
        """The first arrival."""
        return float(self.arrival_s.min()) if len(self) else 0.0

    @property
    def stop_s(self) -> float:
        """The horizon, or the last end of an invocation where there is none."""
        if math.isfinite(self.horizon_s):
            return self.horizon_s
        return float((self.arrival_s + self.duration_s).max()) if len(self) else 0.0

    def until(self, time_s: float) -> Invocations:
        """Only the invocations that arrive before a time, which becomes the horizon."""
        early = self.arrival_s < time_s
        counts = np.bincount(self.function[early], minlength=self.functions)
        offsets = np.concatenate(([0], np.cumsum(counts))).astype(np.int64)
        return replace(self, offsets=offsets, arrival_s=self.arrival_s[early], duration_s=self.duration_s[early], horizon_s=float(time_s))

    def only(self, functions: npt.ArrayLike) -> Invocations:
        """The invocations of some functions, which are numbered anew."""
        chosen = np.asarray(functions, np.int64)
        rows = np.concatenate([np.arange(self.offsets[f], self.offsets[f + 1]) for f in chosen]) if len(chosen) else np.zeros(0, np.int64)
        counts = (self.offsets[1:] - self.offsets[:-1])[chosen]
        facts: dict[str, Any] = {name: getattr(self, name)[chosen] for name in ("cold_s", "vcpu", "memory_gb")}
        names = tuple(self.names[f] for f in chosen.tolist()) if self.names else ()
        offsets = np.concatenate(([0], np.cumsum(counts))).astype(np.int64)
        return replace(self, offsets=offsets, arrival_s=self.arrival_s[rows], duration_s=self.duration_s[rows], names=names, **facts)


def _check(name: str, values: Floats, least: float, most: float) -> None:
    if len(values) and not (np.isfinite(values).all() and values.min() >= least and values.max() <= most):
        bad = values[~(np.isfinite(values) & (values >= least) & (values <= most))][0]
        raise InputError(f"{name}: found {bad:g}; expected a finite number from {least:g} to {most:g}")
