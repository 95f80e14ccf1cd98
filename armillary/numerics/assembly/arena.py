"""Which way of assembling the global finite-element matrix is fastest for this mesh on this device?"""

from __future__ import annotations

import functools
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from armillary.arena import Arena, Case, Metric, Outcome

if TYPE_CHECKING:
    import numpy as np

    from armillary.arena import Technique
    from armillary.study import Result

    from .strategy import Problem
    from .table import Seconds

assembly = Arena(
    "numerics/assembly",
    question="Which way of assembling the global finite-element matrix is fastest for this mesh on this device?",
    metrics=[
        Metric("seconds", unit="s", kind="measured", doc="one numeric assembly, the pattern known (coo-sort knows none); median of rounds"),
        Metric(
            "setup_s", unit="s", kind="measured", scale="difference", doc="symbolic phase and the strategy's own preparation, once a mesh"
        ),
        Metric("prediction_s", unit="s", kind="measured", scale="difference", doc="features and inference; nothing for a fixed strategy"),
        Metric(
            "accuracy", better="higher", kind="measured", scale="difference", doc="1 where the strategy is the best or within 5 % of it"
        ),
        Metric("speedup_over_fixed", better="higher", kind="measured", doc="seconds of coo-sort over seconds of the strategy taken"),
        Metric("regret", kind="measured", scale="difference", doc="seconds over those of the best strategy, less one"),
        Metric("gflops", unit="GFLOP/s", better="higher", kind="measured", doc="flops of each element matrix once, over seconds"),
    ],
    techniques={
        "pattern-aware": ".pattern_aware:PatternAware",
        "coo-sort": ".coo_sort:CooSort",
        "scatter-atomic": ".scatter_atomic:ScatterAtomic",
        "coloured": ".coloured:Coloured",
        "row-gather": ".row_gather:RowGather",
        "blocked": ".blocked:Blocked",
        "always-best-on-average": ".always_best_on_average:AlwaysBestOnAverage",
        "rules": ".rules:Rules",
        "features-only": ".features_only:FeaturesOnly",
        "oracle": ".oracle:Oracle",
    },
    papers={"pattern-aware": "pattern-aware-fem"},
    baseline="coo-sort",
    tradeoff=("setup_s", "seconds"),
    repeats=3,
)

#: About how many elements a case has: linear triangles; others fewer, by what an element costs.
ELEMENTS = {"tiny": 400, "small": 60_000, "large": 2_000_000}
#: Meshes of every family: cell, element, physics.
_KINDS = (("triangle", "P1", "poisson"), ("tetra", "P1", "poisson"), ("tetra", "P1", "elasticity"))


@assembly.cases
def cases(scale: str) -> Iterator[Case]:
    """Three meshes of each of the twelve families, drawn anew for every repeat; weights never saw a case's family."""
    from .workload import FAMILIES

    for family in FAMILIES:
        for cell, element, physics in _KINDS:
            shrink = (1 if cell == "triangle" else 2) * (3 if physics == "elasticity" else 1)
            parameters = {"family": family, "cell": cell, "element": element, "physics": physics, "elements": ELEMENTS[scale] // shrink}
            kinds = frozenset({"held-out", family, cell, element, physics})
            yield Case(f"{family}-{cell}-{physics}", _make, parameters, kinds)


@assembly.read
def read(
    path: Path, *, physics: Literal["poisson", "mass", "reaction-diffusion", "elasticity"] = "poisson", allow_inverted: bool = False
) -> Iterator[Case]:
    """A mesh that meshio reads (.msh, .vtk, .vtu, .inp, .xdmf), of one kind of cell."""
    _file(path, allow_inverted, path.stat().st_mtime_ns)
    yield Case(path.name, _load, {"physics": physics, "allow_inverted": allow_inverted}, frozenset({"file", physics}), source=path)


@dataclass(frozen=True)
class Judged:
    """A problem, its family, and what every strategy takes on it, measured once for all techniques that meet it."""

    problem: Problem
    family: str

    @functools.cached_property
    def seconds(self) -> Seconds:
        """Seconds of all strategies, in rounds."""
        from .table import measured

        _compiled()
        return measured(self.problem, rounds=5, min_seconds=0.3)


@assembly.run
def run(technique: Technique, case: Case) -> Outcome:
    """Times every strategy on the mesh in turns, asks the technique which one it takes, and compares."""
    from .elements import flops_per_element
    from .selector import Selector
    from .strategy import STRATEGIES, Strategy, strategy

    judged: Judged = case.workload
    _compiled()
    prediction = 0.0
    if isinstance(technique, Selector):
        technique.pick(judged.problem, judged.family, judged.seconds)  # Loads and learns.
        start = time.perf_counter()
        taken = technique.pick(judged.problem, judged.family, judged.seconds)
        prediction = 0.0 if technique.oracle else time.perf_counter() - start
    else:
        assert isinstance(technique, Strategy)
        taken = technique
    known = judged.seconds
    if taken.name in STRATEGIES and taken == strategy(taken.name):
        seconds, setup, spread = known.numeric[taken.name], known.setup[taken.name], known.spread
    else:
        seconds, setup = _own(taken, judged.problem)
        spread = known.spread
    best = min(known.numeric[known.best], seconds)
    work = judged.problem
    values = {
        "seconds": seconds,
        "setup_s": setup,
        "prediction_s": prediction,
        "accuracy": float(seconds <= 1.05 * best),
        "speedup_over_fixed": known.numeric["coo-sort"] / seconds,
        "regret": seconds / best - 1,
        "gflops": flops_per_element(work.element, work.work.form) * work.elements / seconds / 1e9,
    }
    return Outcome(values, noisy=spread > 4)


@assembly.plots
def plots(result: Result) -> Sequence[Any]:
    """Seconds over the best strategy's, by case: one line a technique."""
    from armillary.figures import panels

    lines = {}
    for technique in result.techniques:
        regrets = result.medians(technique, "regret")
        lines[technique] = [(case, 1 + regrets[case]) for case in result.cases if case in regrets]
    return [panels({"": lines}, "Seconds over those of the best strategy", "mesh", "", log_y=True, columns=1)] if lines else []


def _own(taken: Any, problem: Problem) -> tuple[float, float]:
    """Seconds and preparation of a strategy that is not among the five at their defaults."""
    from armillary.timing import timed

    from .strategy import structure

    start = time.perf_counter()
    prepared = taken.prepare(problem, structure(problem, None) if taken.symbolic else None)
    setup = time.perf_counter() - start
    prepared.numeric(problem.work.coefficients)
    return timed(lambda: prepared.numeric(problem.work.coefficients), min_seconds=0.1, min_calls=5).median, setup


def _make(case: Case, rng: np.random.Generator) -> Judged:
    from .assembler import problem_of
    from .workload import Plan, build

    p = case.parameters
    # Seeds from 1,000 on: none of the meshes that were learned from.
    plan = Plan(p["family"], p["cell"], p["element"], p["physics"], p["elements"], 1000 + int(rng.integers(1_000_000)))
    return Judged(problem_of(build(plan), p["physics"]), p["family"])


def _load(case: Case, rng: np.random.Generator) -> Judged:
    from .assembler import problem_of

    assert case.source is not None
    mesh = _file(case.source, case.parameters["allow_inverted"], case.source.stat().st_mtime_ns)
    return Judged(problem_of(mesh, case.parameters["physics"]), "")


@functools.lru_cache(maxsize=2)
def _file(path: Path, allow_inverted: bool, changed_ns: int) -> Any:
    from .mesh import read_mesh

    return read_mesh(path, allow_inverted=allow_inverted)


@functools.cache
def _compiled() -> None:
    """Compiles every kernel on a mesh of a few elements; one compilation does for all elements and physics."""
    from .assembler import problem_of
    from .features import features
    from .table import measured
    from .workload import Plan, build

    for physics in ("poisson", "elasticity"):
        problem = problem_of(build(Plan("structured", "triangle", "P1", physics, 300)), physics)
        measured(problem, rounds=1)
        features(problem)
