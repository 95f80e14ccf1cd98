"""Is a first-order method good enough for my linear program, on a CPU, on a GPU, or in analogue memory, and what would that save?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from armillary.arena import Arena, Case, Constant, Metric, NotForThisCase, Outcome, Result, ValueKind
from armillary.wording import counted

if TYPE_CHECKING:
    import numpy as np

    from .program.method import Method
    from .program.problem import LinearProgram, Solution

_SOLVE = frozenset({"solve"})
_ANALOG = frozenset({"analog"})
DEVICES = ("EpiRAM", "TaOx-HfOx", "Ag-aSi")

lp = Arena(
    "numerics/lp",
    question="Is a first-order method good enough for my linear program, on a CPU, on a GPU, or in analogue memory?",
    telling=["planted", "transportation", "multicommodity", "pagerank", "planted-in-EpiRAM", "staircase-in-TaOx-HfOx"],
    metrics=[
        Metric("objective_error", better="lower", kind="measured", scale="difference", doc="|objective − HiGHS's| / (1 + |HiGHS's|)"),
        Metric("rel_primal_residual", better="lower", kind="measured", doc="‖violation‖₂ / (1 + ‖b‖₂)"),
        Metric("rel_dual_residual", better="lower", kind="measured", doc="‖reduced costs that no bound carries‖₂ / (1 + ‖c‖₂)"),
        Metric("rel_gap", better="lower", kind="measured", doc="|primal − dual| / (1 + |primal| + |dual|)"),
        Metric("iterations", better="lower", kind="measured", doc="iterations of the method's own kind, to be compared within a kind only"),
        Metric("solved", better="higher", kind="measured", scale="difference", doc="1 where the tolerance was reached"),
        Metric("seconds", unit="s", better="lower", kind="measured", on=_SOLVE, doc="time on this machine, without reading the file"),
        Metric("energy_J", unit="J", better="lower", kind="modelled", on=_ANALOG,
               doc="energy of the analogue array with all digital work, of a modelled GPU, or of one core for HiGHS"),
        Metric("latency_s", unit="s", better="lower", kind="modelled", on=_ANALOG,
               doc="time of the analogue array with all digital work, of a modelled GPU, or of one core for HiGHS"),
        Metric("writes", better="lower", kind="simulated", on=_ANALOG, doc="pulses that program cells, which are 0 for digital methods"),
    ],
    techniques={
        "rram-pdhg": ".rram_pdhg:RramPdhg",
        "pdhg": ".pdhg:Pdhg",
        "r2hpdhg": ".r2hpdhg:R2Hpdhg",
        "pdlp-average": ".pdlp_average:PdlpAverage",
        "highs-simplex": ".highs_simplex:HighsSimplex",
        "highs-ipm": ".highs_ipm:HighsIpm",
    },
    papers={"rram-pdhg": "rram-pdhg"},
    baseline="r2hpdhg",
    tradeoff=("seconds", "objective_error"),
    warmup=True,
    constants=[
        Constant("GPU of digital methods", "h200", "", "NVIDIA H200 data sheet: bandwidth and power limit"),
        Constant("launches per iteration", 4, "", "kernels of a fused PDHG step, ours"),
        Constant("seconds per launch", 5e-6, "s", "ours"),
        Constant("share of the power limit", 0.6, "", "what a memory-bound kernel draws, ours"),
        Constant("watts of a core", 10.0, "W", "a 280 W socket of 64 cores and as much again for memory and the rest, ours"),
        Constant("memory cells", ", ".join(DEVICES), "", "conductances, levels, pulses and noise of MELISO+, arXiv 2509.21137"),
        Constant("noise of a read", 0.005, "", "of each cell's current, ours"),
        Constant("ADC conversion", 1.67e-12, "J", "2 mW at 1.2 GS/s and 8 bits, the ADC of MELISO+"),
        Constant("DAC conversion", 1.67e-13, "J", "a tenth of the ADC's, ours"),
        Constant("digital update", 1e-11, "J", "per element, in 1 ns on 32 lanes, ours"),
    ],
)  # fmt: skip

SIZES = {"tiny": 48, "small": 400, "large": 40_000}
ANALOG = {"tiny": 24, "small": 120, "large": 240}
ANALOG_FAMILIES = ("planted", "transportation", "regression", "staircase", "covering")
_ANALOG_TOLERANCE = 1e-3
#: The cases of the tiny scale.
TINY = (
    "transportation", "multicommodity", "regression", "covering",
    "planted-in-EpiRAM", "transportation-in-TaOx-HfOx", "transportation-in-Ag-aSi",
)  # fmt: skip


@lp.cases
def cases(scale: str) -> Iterator[Case]:
    """Yields eight families for the digital methods, and five small ones on three kinds of memory cell for the analogue one."""
    yield from (case for case in _all_cases(scale) if scale != "tiny" or case.name in TINY)


def _all_cases(scale: str) -> Iterator[Case]:
    from .workload import FAMILIES

    for family in FAMILIES:
        yield Case(family, _make, {"family": family, "n": SIZES[scale]}, frozenset({"solve", family}))
    for family in ANALOG_FAMILIES:
        for device in DEVICES:
            parameters = {"family": family, "n": ANALOG[scale], "device": device}
            yield Case(f"{family}-in-{device}", _make, parameters, frozenset({"analog", family, device}))


@dataclass(frozen=True)
class Reading:
    """A program needs no options."""


@lp.read(Reading)
def read(path: Path, how: Reading) -> LinearProgram:
    """Reads a program in an MPS file (fixed or free, plain or gzip), in CPLEX's LP format, or in an `.npz`."""
    from .readers.program_files import read_program

    return read_program(path)


@lp.own_cases
def own_cases(program: LinearProgram, name: str, how: Reading) -> Iterator[Case]:
    """Yields one case, which the digital methods solve."""
    yield Case(name, kinds=frozenset({"solve", "file"}))


@lp.example
def example(folder: Path) -> Path:
    """Writes a free MPS file that minimises x + 2y with x + y at least 1."""
    file = folder / "two.mps"
    file.write_text("NAME TWO\nROWS\n N COST\n G LEAST\nCOLUMNS\n X COST 1 LEAST 1\n Y COST 2 LEAST 1\nRHS\n RHS LEAST 1\nENDATA\n")
    return file


@lp.run
def run(method: Method, case: Case) -> dict[str, float] | Outcome | NotForThisCase:
    """Solves the program and compares the result with HiGHS's optimum."""
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
        # The noise allows the analogue method no more accuracy than this, and a tighter tolerance would only make the GPU look costly.
        # A presolve would make the program smaller for the GPU only, and for one that has highspy beside it.
        same = {"presolve": "off"} if hasattr(method, "presolve") else {}
        method = replace(method, tolerance=max(method.tolerance, _ANALOG_TOLERANCE), **same).with_rng(method.rng)  # type: ignore[type-var,assignment]
    best, status = case.once(_reference)
    found = method.solve(program)
    error = abs(found.objective - best) / (1 + abs(best)) if status == "optimal" else float(found.status != status)
    values = {
        "objective_error": error, "rel_primal_residual": found.primal_residual, "rel_dual_residual": found.dual_residual,
        "rel_gap": found.gap, "iterations": max(1, found.iterations), "solved": float(found.status == status),
    }  # fmt: skip
    # What a simulated device computes is simulated, and must not depend on the machine's BLAS.
    kinds: dict[str, ValueKind] = dict.fromkeys(values, "simulated") if isinstance(method, RramPdhg) else {}
    if not analog:
        return Outcome({**values, "seconds": found.seconds}, kinds=kinds)
    # Pivots and factorisations are not iterations of a GPU, so HiGHS is priced by the seconds that it took on a core of this machine.
    if found.method.startswith("Highs"):
        kinds = {"energy_J": "measured", "latency_s": "measured"}
    return Outcome({**values, **_prices(program, found)}, kinds=kinds)


def _prices(program: LinearProgram, found: Solution) -> dict[str, float]:
    from .costs.gpu_model import CORE_WATTS, iteration_seconds, watts

    if found.energy is not None:
        return {"energy_J": found.energy.joules, "latency_s": found.energy.seconds, "writes": found.energy.pulses}
    if found.method.startswith("Highs"):
        return {"energy_J": found.seconds * CORE_WATTS, "latency_s": found.seconds, "writes": 0.0}
    seconds = max(1, found.iterations) * iteration_seconds(program)
    return {"energy_J": seconds * watts(), "latency_s": seconds, "writes": 0.0}


@lp.answer
def answer(result: Result) -> str:
    """Says which method reached its tolerance first, and how far off the objective of the analogue one is."""
    solved = {name: result.medians(name, "solved") for name in result.techniques}
    seconds = {name: {c: s for c, s in result.medians(name, "seconds").items() if solved[name].get(c) == 1.0} for name in result.techniques}
    cases = sorted({case for times in seconds.values() for case in times})
    said = []
    if cases:
        first = [min((times[case], name) for name, times in seconds.items() if case in times)[1] for case in cases]
        wins = sorted(((first.count(name), name) for name in set(first)), reverse=True)
        counts = ", ".join(f"{name} on {count}" for count, name in wins) if len(cases) > 1 else first[0]
        many = f"Of {len(cases)} programs, the" if len(cases) > 1 else "The"
        said.append(f"{many} first method to reach its own tolerance was {counts} (measured).")
    found = result.medians("rram-pdhg", "objective_error") if "rram-pdhg" in result.techniques else {}
    # Where there is no optimum, the error is 0 for a method that finds that out and 1 for another; noise never gives these numbers.
    without = {case: error for case, error in found.items() if error in (0.0, 1.0)}
    errors = sorted(error for case, error in found.items() if case not in without)
    if errors:
        median, most = 100 * errors[len(errors) // 2], 100 * errors[-1]
        off = f"{median:.3g} % off at the median and {most:.3g} % at most" if len(errors) > 1 else f"{most:.3g} % off"
        said.append(f"In analogue memory the objective is {off} (simulated).")
    if without:
        right = list(without.values()).count(0.0)
        said.append(f"Analogue memory recognised {right} of {counted(len(without), 'program')} without an optimum (simulated).")
    return " ".join(said) or "No method reached its tolerance."


@lp.plots
def plots(result: Result) -> Sequence[Any]:
    """Draws the energy of each program in analogue memory, by kind of cell."""

    def place(case: str, facts: Mapping[str, Any]) -> tuple[str, str]:
        return case.partition("-in-")[2], case.partition("-in-")[0]

    return result.panels("Modelled energy, programming included", "energy_J", place, x="program", y="J", log_y=True)


def _make(case: Case, rng: np.random.Generator) -> LinearProgram:
    from .workload import family

    return family(case.parameters["family"], case.parameters["n"], rng)


def _reference(case: Case) -> tuple[float, str]:
    """Returns HiGHS's optimum and status, which every technique is compared with."""
    from .highs_simplex import HighsSimplex

    found = HighsSimplex().solve(case.workload)
    return found.objective, found.status
