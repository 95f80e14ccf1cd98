"""Functions, as their true profiles: how much they compute, how well they scale, and what memory they need."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from armillary.errors import InputError, one_line

from .fleet import Fleet, Floats

#: GFLOP that a standard core computes per second (ours).
CORE_GFLOPS = 10.0
#: Share of the work that each further vCPU adds for coordination.
COORDINATION = 0.005
#: What a node of memory-bound functions alone adds to their times.
CONTENTION = 0.3
#: Parallel efficiency that the owner of a function asks for when he looks at it alone.
EFFICIENT = 0.5
MOST_FUNCTIONS = 100_000
KINDS = ("cpu-bound", "parallel", "memory-bound", "io-bound", "accelerated")


@dataclass(frozen=True)
class Profile:
    """One function. `affinity` multiplies its computing time on a node type; 1 where it is not named."""

    name: str
    work_gflop: float
    parallel_fraction: float
    memory_mb: float
    io_ms: float = 0.0
    memory_bound: bool = False
    affinity: tuple[tuple[str, float], ...] = ()
    cold_s: float = 0.7
    #: What its owner asks for; None: sized for the median deadline, and misjudged.
    vcpu: float | None = None
    #: Whether it gains nothing from fewer than four vCPUs.
    steps: bool = False

    def check(self, fleet: Fleet) -> None:
        """Raises InputError for what no function can be."""
        where = f"function {one_line(self.name, 40)}"
        limits = (
            ("work_gflop", 0.0, 1e6), ("parallel_fraction", 0.0, 1.0), ("memory_mb", 1.0, 1e7), ("io_ms", 0.0, 1e8),
            ("cold_s", 0.0, 3600.0),
        )  # fmt: skip
        for what, least, most in limits:
            value = getattr(self, what)
            if not least <= value <= most:
                raise InputError(f"{what}: found {value:g}; expected {least:g} to {most:g}", where=where)
        if self.work_gflop / CORE_GFLOPS + self.io_ms / 1e3 < 1e-4:
            raise InputError("found less than 0.1 ms of work; expected more", where=where)
        known = [kind.name for kind in fleet.types]
        for kind, factor in self.affinity:
            if kind not in known:
                raise InputError(f'affinity: found the node type "{one_line(kind, 40)}"; expected one of {", ".join(known)}', where=where)
            if not 1e-3 <= factor <= 1e3:
                raise InputError(f"affinity.{kind}: found {factor:g}; expected 0.001 to 1,000", where=where)
        largest = max(kind.memory_mb for kind, count in zip(fleet.types, fleet.counts) if count)
        if self.memory_mb > largest / 4:
            raise InputError(f"memory_mb: found {self.memory_mb:g}; expected at most a quarter of the largest node", where=where)
        if self.vcpu is not None and not 0.1 <= self.vcpu <= 4096:
            raise InputError(f"vcpu: found {self.vcpu:g}; expected 0.1 to 4,096", where=where)


def seconds(profiles: Sequence[Profile], fleet: Fleet, sizes: Floats, coordination: float = COORDINATION) -> Floats:
    """Seconds of each function on each node type with each size, alone: `[function, type, size]`.

    T = io + work·(1 − f + f/v + σ·(v − 1))/speed·affinity,  and T(1)/v for v < 1
    """
    v = np.maximum(sizes, 1.0)
    out = np.empty((len(profiles), len(fleet.types), len(sizes)))
    for number, profile in enumerate(profiles):
        f = profile.parallel_fraction
        wide = np.where(v < 4, 1.0, 4 * np.floor(v / 4)) if profile.steps else v
        share = 1 - f + f / wide + coordination * (v - 1)
        for t, kind in enumerate(fleet.types):
            factor = dict(profile.affinity).get(kind.name, 1.0)
            compute = profile.work_gflop / CORE_GFLOPS * share / kind.speed * factor
            out[number, t] = (profile.io_ms / 1e3 + compute) / np.minimum(sizes, 1.0)
    return out


def alone(profiles: Sequence[Profile], fleet: Fleet, sizes: Floats) -> Floats:
    """p50 alone: seconds on a standard node with the most vCPUs at which at least half of each is put to use; one per function."""
    whole = np.flatnonzero(sizes >= 1)
    if not len(whole):
        return seconds(profiles, fleet, sizes)[:, fleet.standard, -1]
    times = seconds(profiles, fleet, sizes)[:, fleet.standard, whole]
    efficiency = times[:, :1] / times / (sizes[whole] / sizes[whole[0]])
    best = len(whole) - 1 - np.argmax((efficiency >= EFFICIENT)[:, ::-1], axis=1)
    return times[np.arange(len(profiles)), best]


def smallest(times: npt.NDArray[np.float64], limit: float) -> int:
    """The index of the smallest size whose time is at most the limit; the fastest where none is."""
    fits = np.flatnonzero(times <= limit)
    return int(fits[0]) if len(fits) else int(np.argmin(times))


#: Twelve functions (ours): serial, parallel, memory-bound, I/O-bound and accelerator-friendly ones.
PROFILES = {
    "hash": Profile("hash", 20, 0.0, 128),
    "parse": Profile("parse", 10, 0.0, 256),
    "pack": Profile("pack", 40, 0.0, 512),
    "resize": Profile("resize", 30, 0.5, 384),
    "transcode": Profile("transcode", 80, 0.75, 768),
    "simulate": Profile("simulate", 120, 0.9, 1024),
    "render": Profile("render", 240, 0.98, 1536),
    "statistics": Profile("statistics", 60, 0.8, 2048, memory_bound=True),
    "join": Profile("join", 100, 0.9, 3072, memory_bound=True),
    "fetch": Profile("fetch", 3, 0.0, 192, io_ms=1500),
    "ingest": Profile("ingest", 8, 0.5, 320, io_ms=1000),
    "infer": Profile("infer", 60, 0.9, 2048, affinity=(("fast", 0.5), ("old", 1.3))),
}
CPU_BOUND = ("hash", "parse", "pack", "resize", "transcode", "simulate", "render")
