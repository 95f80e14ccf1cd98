"""The work of a case: metered runs to learn from, others to predict, and what the domains truly drew."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .model.observed import Metered
from .simulation.metering import drawn, isolated
from .simulation.power import NVML_LIKE, RAPL_LIKE, truth
from .simulation.runs import CORES, GPUS, HYBRID_CORES, Ran, ran


@dataclass(frozen=True)
class EnergyWork:
    """One entry per domain. `fit` is learnt from, `held` is a run like it, or one with another mix of types, and `other` one under another
    policy. `truth` is the true mean watts of each column in `fit`, and `alone` what the meter read while each type ran alone.
    """

    fit: tuple[Metered, ...]
    held: tuple[Metered, ...] = ()
    other: tuple[Metered, ...] = ()
    truth: tuple[dict[str, float], ...] = ()
    alone: tuple[dict[str, float], ...] = ()
    #: What a user's file said, to be told in the answer.
    notes: tuple[str, ...] = field(default=())


def virtual_work(p: Mapping[str, Any], rng: np.random.Generator) -> EnergyWork:
    """Runs of a factorisation on virtual workers, read by a simulated meter."""
    hybrid = bool(p["hybrid"])
    gpu = p["domain"] == "gpu"
    first, second = p["policies"]
    runs = [
        ran(p["graph"], p["tiles"], first, hybrid, 2 * p["draw"]),
        ran(p["graph"], p["held_tiles"], first, hybrid, 2 * p["draw"] + 1, p["held_times"]),
        ran(p["graph"], p["tiles"], second, hybrid, 2 * p["draw"] + 1),
    ]
    return simulated_work(runs, "gpu" if gpu else "cpu", _domains(hybrid, gpu), p["misfit"], rng)


def _domains(hybrid: bool, gpu: bool) -> dict[str, tuple[int, ...]]:
    if gpu:
        return {f"gpu{i}": (HYBRID_CORES + i,) for i in range(GPUS)}
    return {"package-0": tuple(range(HYBRID_CORES if hybrid else CORES))}


def simulated_work(
    runs: list[Ran], kind: str, domains: Mapping[str, tuple[int, ...]], misfit: str, rng: np.random.Generator
) -> EnergyWork:
    """What simulated meters read of runs: the first to fit, the second to predict interval by interval, the third as a whole."""
    true, meter = truth(kind, misfit), NVML_LIKE if kind == "gpu" else RAPL_LIKE
    found = [
        [drawn(one.trace, one.tile, workers, true, meter, name, stream) for name, workers in domains.items()]
        for one, stream in zip(runs, rng.spawn(len(runs)))
    ]
    lone = rng.spawn(1)[0]
    alone = [isolated(runs[0].trace, workers, true, meter, lone) for workers in list(domains.values())[:1]] * len(domains)
    fit, held, other = (tuple(one.run for one in part) for part in found)
    return EnergyWork(fit, held, other, tuple(one.truth for one in found[0]), tuple(alone))


def real_work(p: Mapping[str, Any], rng: np.random.Generator) -> EnergyWork:
    """Factorisations that really ran on two threads, read by a simulated meter: the trace is this machine's, the power is not."""
    from .simulation.real import really_ran

    first, second = p["policies"]
    runs = [Ran(*really_ran(p["graph"], p["tiles"], p["tile"], p["workers"], policy, rng)) for policy in (first, first, second)]
    return simulated_work(runs, "cpu", {"package-0": tuple(range(p["workers"]))}, p["misfit"], rng)


def folds(run: Metered) -> list[tuple[Metered, Metered]]:
    """(to fit, to predict) twice: the blocks of intervals with even numbers, and those with odd ones."""
    count = len(run.intervals)
    block = max(1, min(20, count // 8))
    odd = (np.arange(count) // block) % 2 == 1
    even, others = run.part(np.flatnonzero(~odd)), run.part(np.flatnonzero(odd))
    return [(even, others), (others, even)]
