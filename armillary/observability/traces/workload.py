"""Runs of which the losses are known because they were planted, and runs of a user's own."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from .readers.reading import read_run
from .run.model import Run
from .synthesis.exports import Clock, write_exports
from .synthesis.kineto_json import write_traces
from .synthesis.planting import costs, planted
from .synthesis.programs import CAUSES, KERNELS, Design, Timeline, simulated


@dataclass(frozen=True)
class Truth:
    """What was planted: the share of the elapsed time that each cause costs, and the main one; for a change, what it comes from."""

    shares: Mapping[str, float]
    main: str


@dataclass(frozen=True)
class TraceWork:
    """A run with the clocks as they were recorded; the truth about it; the run before it; and what it was with perfect clocks."""

    run: Run | None
    truth: Truth | None = None
    before: Run | None = None
    perfect: Run | None = None
    #: A program whose exports are still to be written, for conversions.
    program: Timeline | None = None
    clocks: tuple[Clock, ...] = ()
    region: str = ""


#: A cause is main above this share, which is what techniques name too.
LEAST = 0.03


def design_of(facts: Mapping[str, Any], rng: np.random.Generator) -> Design:
    """A program of the wanted size, whose kernels and communication are drawn."""
    kernel_ns = float(rng.uniform(20e3, 80e3))
    communication, jitter = float(rng.uniform(5e3, 40e3)), float(rng.uniform(0.005, 0.03))
    size = {name: facts[name] for name in ("ranks", "iterations", "kernels")}
    return Design(**size, kernel_ns=kernel_ns, communication=communication, jitter=jitter)


def clocks_of(ranks: int, rng: np.random.Generator, drift_ppm: float = 0.0) -> tuple[Clock, ...]:
    """Clocks that are wrong by up to 250 µs, of recordings that began up to 5 ms before the program."""
    return tuple(
        Clock(-int(rng.integers(2_000_000, 5_000_000)), int(rng.integers(-250_000, 250_001)), float(rng.uniform(-drift_ppm, drift_ppm)))
        for _ in range(ranks)
    )


def planted_run(facts: Mapping[str, Any], rng: np.random.Generator) -> TraceWork:
    """A program with the wanted causes, each at about its share, read back from its exports."""
    design, seed = design_of(facts, rng), int(rng.integers(1 << 62))
    decoy = facts.get("decoy", "")
    if decoy:
        design = replace(design, **_decoy(decoy, design))
    for number, cause in enumerate(facts["causes"]):
        low, high = ((0.08, 0.30) if len(facts["causes"]) == 1 else (0.15, 0.25)) if number == 0 else (0.05, 0.10)
        share = float(rng.uniform(low, high))
        if cause == "imbalance":
            design = replace(design, straggler=bool(rng.integers(2)), by_mpi=bool(facts.get("by_mpi")))
        design = planted(design.without(cause), cause, share, seed)
    truth = costs(design, seed)
    main = max(truth, key=lambda cause: truth[cause])
    program = simulated(design, seed)
    clocks = clocks_of(design.ranks, rng, facts.get("drift_ppm", 0.0))
    run = recorded(program, clocks, facts.get("form", "nsys"))
    perfect = recorded(program, (Clock(),) * design.ranks) if facts.get("drift_ppm") else None
    return TraceWork(run, Truth(truth, main if truth[main] >= LEAST else ""), perfect=perfect)


def _decoy(name: str, design: Design) -> dict[str, Any]:
    """Parts that look like a loss in some view and cost nothing."""
    work = design.kernels * design.kernel_ns
    return {
        "hidden-communication": {"overlapped_communication": 0.4 * work}, "hidden-copies": {"overlapped_copies": 0.4 * work},
        "patient-host": {"patient": True, "kernel_ns": 80e3}, "two-streams": {"streams": 2, "kernel_ns": 2 * design.kernel_ns},
    }[name]  # fmt: skip


def changed_runs(facts: Mapping[str, Any], rng: np.random.Generator) -> TraceWork:
    """A program before and after one change: a cause that is planted, or a kernel that became slower."""
    design, seed = design_of(facts, rng), int(rng.integers(1 << 62))
    if facts["change"] == "kernel":
        number = int(rng.integers(len(KERNELS)))
        after = replace(design, slower=number, slower_by=float(rng.uniform(1.3, 2.5)))
        main = KERNELS[number]
    else:
        main = facts["change"]
        after = planted(design, main, float(rng.uniform(0.08, 0.25)), seed)
    programs = simulated(design, seed), simulated(after, seed)
    elapsed = [one.elapsed for one in programs]
    one, two = costs(design, seed), costs(after, seed)
    shares = {cause: two[cause] - one[cause] * elapsed[0] / elapsed[1] for cause in CAUSES}
    shares["compute"] = 1.0 - elapsed[0] / elapsed[1] - sum(shares.values())
    runs = [recorded(program, clocks_of(design.ranks, rng)) for program in programs]
    return TraceWork(runs[1], Truth(shares, main), before=runs[0])


def conversion(facts: Mapping[str, Any], rng: np.random.Generator) -> TraceWork:
    """A program to convert, with copies and collectives beside its kernels."""
    design = replace(design_of(facts, rng), overlapped_copies=1e5, overlapped_communication=1e5, patient=True)
    return TraceWork(None, program=simulated(design, int(rng.integers(1 << 62))), clocks=clocks_of(design.ranks, rng))


def recorded(program: Timeline, clocks: tuple[Clock, ...], form: str = "nsys") -> Run:
    """What reports of a program say, merged by the nodes' clocks as they are."""
    with tempfile.TemporaryDirectory(prefix="armillary-traces-") as room:
        (write_exports if form == "nsys" else write_traces)(program, Path(room), clocks)
        return read_run(room, align=False)


def errors(reported: Mapping[str, float], truth: Mapping[str, float]) -> dict[str, float]:
    """Percentage points between what was reported and what was planted, by cause."""
    return {cause: 100.0 * abs(reported.get(cause, 0.0) - share) for cause, share in truth.items()}
