"""Is a first-order method good enough for my linear program, on a CPU, on a GPU, or in analogue memory, and what would that save?"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from armillary.arena import Arena, Case, Constant, Metric, NotForThisCase

if TYPE_CHECKING:
    import numpy as np

    from armillary.study import Result

    from .method import Method
    from .problem import LinearProgram, Solution

_SOLVE = frozenset({"solve"})
_ANALOG = frozenset({"analog"})

lp = Arena(
    "numerics/lp",
    question="Is a first-order method good enough for my linear program, on a CPU, on a GPU, or in analogue memory?",
    metrics=[
        Metric("objective_error", better="lower", kind="measured", scale="difference", doc="|objective − HiGHS's| / (1 + |HiGHS's|)"),
        Metric("rel_primal_residual", better="lower", kind="measured", doc="‖violation‖₂ / (1 + ‖b‖₂)"),
        Metric("rel_dual_residual", better="lower", kind="measured", doc="‖reduced costs that no bound carries‖₂ / (1 + ‖c‖₂)"),
        Metric("rel_gap", better="lower", kind="measured", doc="|primal − dual| / (1 + |primal| + |dual|)"),
        Metric("iterations", better="lower", kind="measured", doc="of the method's own kind: compare within a kind"),
        Metric("solved", better="higher", kind="measured", scale="difference", doc="1 where the tolerance was reached"),
        Metric("seconds", unit="s", better="lower", kind="measured", on=_SOLVE, doc="on this machine, reading apart"),
        Metric("energy_J", unit="J", better="lower", kind="modelled", on=_ANALOG, doc="analog in all; else a GPU, a core for HiGHS"),
        Metric("latency_s", unit="s", better="lower", kind="modelled", on=_ANALOG, doc="analog in all; else a GPU, a core for HiGHS"),
        Metric("writes", better="lower", kind="simulated", on=_ANALOG, doc="pulses that program cells; 0 for digital methods"),
    ],
    techniques={
        "rram-pdhg": ".rram_pdhg:RramPdhg",
        "pdhg": ".plain_pdhg:Pdhg",
        "r2hpdhg": ".r2hpdhg:R2Hpdhg",
        "pdlp-average": ".pdlp_average:PdlpAverage",
        "highs-simplex": ".highs:HighsSimplex",
        "highs-ipm": ".highs:HighsIpm",
    },
    papers={"rram-pdhg": "rram-pdhg"},
    baseline="r2hpdhg",
    tradeoff=("seconds", "objective_error"),
    uses=("armillary.crossbar",),
    warmup=True,
    constants=[
        Constant("GPU of digital methods", "h200", "", "NVIDIA H200 data sheet: bandwidth and power limit"),
        Constant("launches an iteration", 4, "", "kernels of a fused PDHG step; stated by the model"),
        Constant("seconds a launch", 5e-6, "s", "stated by the model"),
        Constant("share of the power limit", 0.6, "", "what a memory-bound kernel draws; stated by the model"),
        Constant("ADC", 1.67e-12, "J", "2 mW at 1.2 GS/s, 8 bits"),
    ],
)  # fmt: skip

SIZES = {"tiny": 48, "small": 400, "large": 40_000}
ANALOG = {"tiny": 24, "small": 120, "large": 240}
ANALOG_FAMILIES = ("planted", "transportation", "regression", "staircase", "covering")
DEVICES = ("EpiRAM", "TaOx-HfOx", "Ag-aSi")
_ANALOG_TOLERANCE = 1e-3


@lp.cases
def cases(scale: str) -> Iterator[Case]:
    """Eight families for digital methods, and five small ones on three kinds of cells for the analogue one."""
    from .workload import FAMILIES

    for family in FAMILIES:
        yield Case(family, _make, {"family": family, "n": SIZES[scale]}, frozenset({"solve", family}))
    for family in ANALOG_FAMILIES:
        for device in DEVICES:
            parameters = {"family": family, "n": ANALOG[scale], "device": device}
            yield Case(f"{family}-in-{device}", _make, parameters, frozenset({"analog", family, device}))


@lp.read
def read(path: Path) -> Iterator[Case]:
    """A program in an MPS file, fixed or free, plain or packed by gzip; in CPLEX's LP format; or in an `.npz`."""
    _file(path, path.stat().st_mtime_ns)
    yield Case(path.name, _load, {}, frozenset({"solve", "file"}), source=path)


@lp.run
def run(method: Method, case: Case) -> dict[str, float] | NotForThisCase:
    """Solves, and compares with HiGHS's optimum."""
    from dataclasses import replace

    from .rram_pdhg import RramPdhg

    program = case.workload
    analog = "analog" in case.kinds
    if isinstance(method, RramPdhg):
        if not analog and sum(program.shape) > 1500:
            return NotForThisCase("takes up to 1,500 rows and columns")
        if analog:
            method = replace(method, device=case.parameters["device"]).with_rng(method.rng)  # type: ignore[assignment]
    elif analog and hasattr(method, "tolerance"):
        # As accurate as noise lets the analogue method hope to be: more would only make the GPU look dear.
        method = replace(method, tolerance=max(method.tolerance, _ANALOG_TOLERANCE)).with_rng(method.rng)  # type: ignore[type-var,assignment]
    best, status = _reference(case)
    found = method.solve(program)
    error = abs(found.objective - best) / (1 + abs(best)) if status == "optimal" else float(found.status != status)
    values = {
        "objective_error": error,
        "rel_primal_residual": found.primal_residual,
        "rel_dual_residual": found.dual_residual,
        "rel_gap": found.gap,
        "iterations": max(1, found.iterations),
        "solved": float(found.status == status),
    }
    return {**values, **(_prices(program, found) if analog else {"seconds": found.seconds})}


def _prices(program: LinearProgram, found: Solution) -> dict[str, float]:
    from .gpu_model import CORE_WATTS, iteration_seconds, watts

    if found.energy is not None:
        return {"energy_J": found.energy.joules, "latency_s": found.energy.seconds, "writes": found.energy.pulses}
    if found.method.startswith("Highs"):
        # Pivots and factorisations are no GPU's iterations: the time that a core of this machine took.
        return {"energy_J": found.seconds * CORE_WATTS, "latency_s": found.seconds, "writes": 0.0}
    seconds = max(1, found.iterations) * iteration_seconds(program)
    return {"energy_J": seconds * watts(), "latency_s": seconds, "writes": 0.0}


@lp.answer
def answer(result: Result) -> str:
    """Which method reached its tolerance soonest, and how far off the analogue one ends."""
    solved = {name: result.medians(name, "solved") for name in result.techniques}
    seconds = {name: {c: s for c, s in result.medians(name, "seconds").items() if solved[name].get(c) == 1.0} for name in result.techniques}
    cases = sorted({case for times in seconds.values() for case in times})
    said = []
    if cases:
        first = [min((times[case], name) for name, times in seconds.items() if case in times)[1] for case in cases]
        wins = sorted(((first.count(name), name) for name in set(first)), reverse=True)
        said.append(f"Fastest to its own tolerance: {', '.join(f'{name} on {count} of {len(cases)}' for count, name in wins)}; measured.")
    errors = sorted(result.medians("rram-pdhg", "objective_error").values()) if "rram-pdhg" in result.techniques else []
    if errors:
        said.append(
            f"In analogue memory objectives end {100 * errors[len(errors) // 2]:.2g} % off at the median, {100 * errors[-1]:.2g} % at most."
        )
    return " ".join(said) or "No method reached its tolerance."


@lp.plots
def plots(result: Result) -> Sequence[Any]:
    """Energy over objective error in analogue memory, by kind of cell."""
    from armillary.figures import panels

    lines: dict[str, dict[str, list[tuple[float | str, float]]]] = {}
    for technique in result.techniques:
        energy = result.medians(technique, "energy_J")
        for case in energy:
            lines.setdefault(case.partition("-in-")[2], {}).setdefault(technique, []).append((case.partition("-in-")[0], energy[case]))
    return [panels(lines, "Modelled energy, programming included", "program", "J", log_y=True)] if lines else []


def _make(case: Case, rng: np.random.Generator) -> LinearProgram:
    from .workload import family

    return family(case.parameters["family"], case.parameters["n"], rng)


def _load(case: Case, rng: np.random.Generator) -> LinearProgram:
    assert case.source is not None
    return _file(case.source, case.source.stat().st_mtime_ns)


@functools.lru_cache(maxsize=2)
def _file(path: Path, changed_ns: int) -> LinearProgram:
    from .program_files import read_program

    return read_program(path)


#: HiGHS's optimum of the last case, which every technique is compared with.
_OPTIMUM: dict[tuple[str, int, int], tuple[float, str]] = {}


def _reference(case: Case) -> tuple[float, str]:
    from .highs import HighsSimplex

    key = (case.digest, case.seed, case.repeat)
    if key not in _OPTIMUM:
        _OPTIMUM.clear()
        found = HighsSimplex().solve(case.workload)
        _OPTIMUM[key] = (found.objective, found.status)
    return _OPTIMUM[key]
