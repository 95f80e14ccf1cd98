"""Which way of assembling the global finite-element matrix is fastest for this mesh on this device?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from armillary.arena import Arena, Case, Metric, Outcome, Result, parameter
from armillary.timing import Stopwatch, timed

if TYPE_CHECKING:
    import numpy as np

    from armillary.arena import Technique

    from .assembling.strategy import Problem, Strategy
    from .selecting.table import Seconds

assembly = Arena(
    "numerics/assembly",
    question="Which way of assembling the global finite-element matrix is fastest for this mesh on this device?",
    telling=[
        "structured-tetra-poisson", "renumbered-tetra-poisson", "refined-point-tetra-elasticity",
        "delaunay-uniform-triangle-poisson", "fan-triangle-poisson", "parts-tetra-poisson",
    ],
    metrics=[
        Metric("seconds", unit="s", kind="measured", doc="one numeric assembly with a known pattern (coo-sort has none); median of rounds"),
        Metric("setup_s", unit="s", kind="measured", scale="difference",
               doc="symbolic phase and the strategy's own preparation, once per mesh"),
        Metric("prediction_s", unit="s", kind="measured", scale="difference", doc="features and inference; zero for a fixed strategy"),
        Metric("accuracy", better="higher", kind="measured", scale="difference", doc="1 if the strategy is the best or within 5 % of it"),
        Metric("speedup_over_fixed", better="higher", kind="measured", doc="seconds of coo-sort over seconds of the strategy taken"),
        Metric("regret", kind="measured", scale="difference", doc="seconds over those of the best strategy, less one"),
        Metric("gflops", unit="GFLOP/s", better="higher", kind="measured", doc="flops of all element matrices, each counted once"),
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
)  # fmt: skip

#: About how many linear triangles a case has; there are fewer of other elements, which cost more each.
ELEMENTS = {"tiny": 400, "small": 60_000, "large": 2_000_000}
#: The families of the tiny scale: a structured one, the same with shuffled numbers, and an unstructured one.
TINY = ("structured", "renumbered", "delaunay-clustered")
#: Meshes of every family: cell, element, physics.
_KINDS = (("triangle", "P1", "poisson"), ("tetra", "P1", "poisson"), ("tetra", "P1", "elasticity"))


@assembly.cases
def cases(scale: str) -> Iterator[Case]:
    """Yields three meshes of each of the twelve families, drawn anew for every repeat; the weights never saw the family of a case."""
    from .workload import FAMILIES

    for family in FAMILIES if scale != "tiny" else TINY:
        for cell, element, physics in _KINDS:
            shrink = (1 if cell == "triangle" else 2) * (3 if physics == "elasticity" else 1)
            parameters = {"family": family, "cell": cell, "element": element, "physics": physics, "elements": ELEMENTS[scale] // shrink}
            kinds = frozenset({"held-out", family, cell, element, physics})
            yield Case(f"{family}-{cell}-{physics}", _make, parameters, kinds)


@dataclass(frozen=True)
class Judged:
    """A problem and the family of its mesh, which is empty for a mesh of the user."""

    problem: Problem
    family: str


@dataclass(frozen=True)
class Reading:
    """Options: which equation is assembled on the mesh."""

    physics: Literal["poisson", "mass", "reaction-diffusion", "elasticity"] = parameter("poisson", "the equation that is assembled")
    allow_inverted: bool = parameter(False, "whether inverted and flat elements are kept instead of refused")


@assembly.read(Reading)
def read(path: Path, how: Reading) -> Judged:
    """Reads a mesh of one kind of cell that meshio reads (.msh, .vtk, .vtu, .inp, .xdmf)."""
    from .assembling.assembler import problem_of
    from .meshes.mesh import read_mesh

    return Judged(problem_of(read_mesh(path, allow_inverted=how.allow_inverted), how.physics), "")


@assembly.own_cases
def own_cases(judged: Judged, name: str, how: Reading) -> Iterator[Case]:
    """Yields one case, the mesh with its equation."""
    yield Case(name, parameters={"physics": how.physics, "allow_inverted": how.allow_inverted}, kinds=frozenset({"file", how.physics}))


@assembly.example
def example(folder: Path) -> Path:
    """Writes four triangles around the middle of the unit square, as a Gmsh file of version 2.2."""
    file = folder / "square.msh"
    nodes = ["1 0 0 0", "2 1 0 0", "3 1 1 0", "4 0 1 0", "5 0.5 0.5 0"]
    cells = [f"{k + 1} 2 2 1 1 {k + 1} {(k + 1) % 4 + 1} 5" for k in range(4)]
    sections = {"MeshFormat": ["2.2 0 8"], "Nodes": [str(len(nodes)), *nodes], "Elements": [str(len(cells)), *cells]}
    file.write_text("".join(f"${name}\n" + "\n".join(lines) + f"\n$End{name}\n" for name, lines in sections.items()))
    return file


def _seconds(case: Case) -> Seconds:
    """Measures the seconds of every strategy on the case's mesh, in rounds."""
    from .selecting.table import measured

    return measured(case.workload.problem, rounds=5, min_seconds=0.3)


@assembly.run
def run(technique: Technique, case: Case) -> Outcome:
    """Times every strategy on the mesh in turns, asks the technique which one it takes, and compares."""
    from .assembling.strategy import STRATEGIES, Strategy, strategy
    from .elements.elements import flops_per_element
    from .selecting.selector import Selector

    judged: Judged = case.workload
    known = case.once(_seconds)
    prediction = 0.0
    if isinstance(technique, Selector):
        technique.pick(judged.problem, judged.family, known)  # The first call loads the weights, or learns.
        with Stopwatch() as watch:
            taken = technique.pick(judged.problem, judged.family, known)
        prediction = 0.0 if technique.oracle else watch.seconds
    else:
        assert isinstance(technique, Strategy)
        taken = technique
    if taken.name in STRATEGIES and taken == strategy(taken.name):
        seconds, setup = known.numeric[taken.name], known.setup[taken.name]
    else:
        seconds, setup = _timed(taken, judged.problem)
    best = min(known.numeric[known.best], seconds)
    work = judged.problem
    values = {
        "seconds": seconds, "setup_s": setup, "prediction_s": prediction, "accuracy": float(seconds <= 1.05 * best),
        "speedup_over_fixed": known.numeric["coo-sort"] / seconds, "regret": seconds / best - 1,
        "gflops": flops_per_element(work.element, work.work.form) * work.elements / seconds / 1e9,
    }  # fmt: skip
    return Outcome(values, noisy=known.spread > 4)


@assembly.plots
def plots(result: Result) -> Sequence[Any]:
    """Draws the seconds over those of the best strategy, by case, with one line per technique."""
    from armillary.figures import panels

    lines = {technique: [(case, 1 + regret) for case, regret in points] for technique, points in result.lines("regret").get("", {}).items()}
    return [panels({"": lines}, "Seconds over those of the best strategy", "mesh", "", log_y=True, columns=1)] if lines else []


def _timed(taken: Strategy, problem: Problem) -> tuple[float, float]:
    """Measures the seconds and the preparation of a strategy that is not one of the five at their defaults."""
    from .assembling.strategy import structure

    with Stopwatch() as watch:
        prepared = taken.prepare(problem, structure(problem, None) if taken.symbolic else None)
    prepared.numeric(problem.work.coefficients)
    return timed(lambda: prepared.numeric(problem.work.coefficients), min_seconds=0.1).median, watch.seconds


def _make(case: Case, rng: np.random.Generator) -> Judged:
    from .assembling.assembler import problem_of
    from .workload import Plan, build

    p = case.parameters
    # The network learned from meshes with seeds below 1,000.
    plan = Plan(p["family"], p["cell"], p["element"], p["physics"], p["elements"], 1000 + int(rng.integers(1_000_000)))
    return Judged(problem_of(build(plan), p["physics"]), p["family"])


@assembly.warm_up
def warm_up(technique: Technique, case: Case) -> None:
    """Compiles every kernel on a mesh of a few elements; one compilation serves all elements and physics."""
    from .assembling.assembler import problem_of
    from .selecting.features import features
    from .selecting.table import measured
    from .workload import Plan, build

    for physics in ("poisson", "elasticity"):
        problem = problem_of(build(Plan("structured", "triangle", "P1", physics, 300)), physics)
        measured(problem, rounds=1)
        features(problem)
