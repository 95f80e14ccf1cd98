"""Finds the backend on which a program runs fastest, by running its beginning on each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from armillary.comm import backends as known
from armillary.comm.failures import CommError
from armillary.errors import InputError, unknown


@dataclass(frozen=True)
class Fastest:
    """The backend that won, by how much over the next one, and the seconds of each; `left_out` says why others were not run."""

    backend: str
    times_faster: float
    seconds: Mapping[str, float]
    left_out: Mapping[str, str]

    def __str__(self) -> str:
        tried = ", ".join(f"{name} {seconds:.3g} s" for name, seconds in sorted(self.seconds.items(), key=lambda item: item[1]))
        return f"{self.backend}, {self.times_faster:.2f} times as fast as the next ({tried})"


def fastest_backend(
    program: str, backends: Sequence[str] = ("threads", "mpi"), *, ranks: int = 2, rounds: int = 5, options: Mapping[str, Any] | None = None
) -> Fastest:
    """Runs a program (`module:function`, or the name of a built-in one) on each backend that can be used here, and returns the fastest.

    `options` are the program's arguments, and a few iterations are enough. What the program prepares is not timed. A backend that cannot be
    used here, or on which the program fails, is left out with the reason; simulated time (`virtual`) cannot be compared with real time.
    """
    from armillary.network.backends.measurement import measure

    if not backends:
        raise InputError("backends: found none; expected at least one")
    seconds: dict[str, float] = {}
    left_out: dict[str, str] = {}
    for backend in backends:
        if backend not in known():
            raise unknown("backend", backend, known())
        if backend == "virtual":
            raise InputError("backends: found virtual, whose time is simulated; expected backends of real time")
        if known()[backend]:
            left_out[backend] = known()[backend]
            continue
        try:
            found = measure(["armillary.network.backends.programs"], program, options or {}, backend, ranks, max(2, rounds))
            seconds[backend] = next(iter(found.values())).median
        except CommError as error:
            left_out[backend] = str(error)
    if not seconds:
        raise InputError("backends: found none that runs the program: " + "; ".join(f"{k}: {v}" for k, v in left_out.items()))
    order = sorted(seconds, key=seconds.__getitem__)
    ahead = seconds[order[1]] / seconds[order[0]] if len(order) > 1 else 1.0
    return Fastest(order[0], ahead, seconds, left_out)
