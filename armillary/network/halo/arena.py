"""How should this stencil code exchange its halos: packed by hand or by datatype, through which call, protocol and, from Python, views?"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from armillary.arena import Arena, Case, Metric, NotForThisCase, Outcome, Result, parameter

if TYPE_CHECKING:
    import numpy as np

    from .measuring.measured import Measured, Strategy

MEASURED = frozenset({"measured"})
EXCHANGE = frozenset({"exchange"})
SURVEY = frozenset({"survey"})
SIMULATED = frozenset({"simulated"})
PROTOCOLS = frozenset({"simulated", "protocols"})
ACCESS = frozenset({"access"})
GPUS = frozenset({"gpus"})

halo = Arena(
    "network/halo",
    question="How should this stencil code exchange its halos: packed by hand or by datatype, through which call, with which protocol, "
    "and, from Python on GPUs, through which access path?",
    metrics=[
        Metric("exchange_ratio", kind="measured", on=EXCHANGE, doc="over the packed loop by hand in the same rounds of the same ranks"),
        Metric("exchange_time", "us", kind="measured", on=EXCHANGE, doc="one exchange on the slowest rank, as the median of the rounds"),
        Metric("step_time", "us", kind="measured", on=EXCHANGE, doc="one step of the code, exchange included"),
        Metric("spread", "%", better=None, kind="measured", on=EXCHANGE, doc="between the quartiles of the rounds' ratios"),
        Metric("fell_back", better=None, kind="measured", steady=True, on=EXCHANGE, doc="1 where the library swaps halos, so messages ran"),
        Metric("correct", better="higher", kind="measured", steady=True, on=EXCHANGE, doc="1: halos equal bit for bit; others fail"),
        Metric("exchange_time_sim", "us", on=PROTOCOLS, doc="one exchange of all ranks, on average over the iterations"),
        Metric("overlap", better="higher", scale="difference", on=SIMULATED,
               doc="hidden share: of the shorter of copies and NIC, or of transfers beside kernels"),
        Metric("promise_error", "%", better=None, on=PROTOCOLS, doc="by how much the exchange takes longer than estimated"),
        Metric("host_overhead", "us", kind="measured", on=ACCESS, doc="Python per exchange of CloverLeaf, outside of kernels and waiting"),
        Metric("clover_step_time", "us", better=None, kind="measured", on=ACCESS, doc="one step of CloverLeaf on the slowest rank"),
        Metric("conversions", kind="measured", better=None, steady=True, on=ACCESS, doc="arrays converted to another library per step"),
        Metric("fraction_of_native", better="higher", kind="measured", on=frozenset({"access", "gpu"}),
               doc="step of the same kernels in a captured graph over this step"),
        Metric("step_time_sim", "us", on=GPUS, doc="one step of CloverLeaf on all simulated GPUs"),
        Metric("issue_time", "us", better=None, on=GPUS, doc="what the busiest host needs to issue a step"),
        Metric("winners", better="higher", kind="measured", on=SURVEY, doc="strategies that win 15 % of the cells by more than 5 %"),
        Metric("packed_wins", better="higher", kind="measured", on=SURVEY, doc="share of pairs that packing wins in the flow solver"),
        Metric("image_parts", better="higher", kind="measured", on=SURVEY, doc="1 if all three parts of the image's claim hold"),
        Metric("rank_agreement", kind="measured", scale="difference", on=SURVEY, doc="Kendall's tau between libraries, for Life"),
    ],
    techniques={
        "packed": ".packed:Packed",
        "packed-persistent": ".packed:Packed(call=p2p-persistent)",
        "packed-neighbourhood": ".packed:Packed(call=neighbourhood)",
        "packed-neighbourhood-persistent": ".packed:Packed(call=neighbourhood-persistent)",
        "packed-partitioned": ".packed:Packed(call=partitioned)",
        "datatype": ".datatype:Datatype",
        "datatype-persistent": ".datatype:Datatype(call=p2p-persistent)",
        "datatype-neighbourhood": ".datatype:Datatype(call=neighbourhood)",
        "datatype-neighbourhood-persistent": ".datatype:Datatype(call=neighbourhood-persistent)",
        "dynamic-protocol": ".dynamic_protocol:DynamicProtocol",
        "static-protocol": ".static_protocol:StaticProtocol",
        "static-cached": ".static_protocol:StaticProtocol(far=rput-cached,chunk=65536,first=true)",
        "static-shared": ".static_protocol:StaticProtocol(near=shared-copy,chunk=65536)",
        "best-static": ".best_static:BestStatic",
        "convert-each-step": ".convert_each_step:ConvertEachStep",
        "views-mpi": ".views_mpi:ViewsMpi",
        "view-streams": ".view_streams:ViewStreams",
        "view-graphs": ".view_graphs:ViewGraphs",
    },
    papers={"datatype": "mpi-derived-datatypes", "dynamic-protocol": "dynamic-stencil-protocols", "view-streams": "multi-gpu-python",
            "views-mpi": "multi-gpu-python"},
    baseline="packed",
    # A measured case starts its processes twice, for several rounds each time, and a simulated one comes out the same every time.
    repeats=1,
    telling=("*/weak/2@mpich", "stencil27/slab/64", "random/slab", "clover/corner/torch/1", "gpus/960/4", "gpus/7680/4"),
)  # fmt: skip

APPLICATIONS = ("cfd", "life", "image")
LIBRARIES = ("mpich", "openmpi", "impi")
RANKS = (1, 2, 4)
#: The cells per side of a rank's block (weak) and of the whole (strong), steps of the code, exchanges per round, and rounds.
SIZES: dict[str, dict[str, int]] = {
    "tiny": {"weak": 48, "strong": 96, "steps": 6, "exchanges": 5, "rounds": 3},
    "small": {"weak": 512, "strong": 1024, "steps": 10, "exchanges": 100, "rounds": 11},
    "large": {"weak": 512, "strong": 1024, "steps": 1000, "exchanges": 100, "rounds": 11},
}
#: Jobs of a measured case, whose rounds are put together: processes that are placed badly stay so until they end.
JOBS = {"tiny": 1, "small": 2, "large": 2}
#: Sides of the surveys' grids as shares of the usual ones.
SURVEYS = {"quarter": 0.25, "half": 0.5, "whole": 1.0, "double": 2.0}
#: Exchanges in one round of a survey.
SURVEYED = 25
SPLITS = {1: (1, 1), 2: (1, 2), 4: (2, 2)}
TINY = {"image/weak/2@mpich", "stencil27/flat/64", "miniamr/slow", "clover/corner/numpy/1", "gpus/960/4"}
#: Boxes of ranks on virtual ranks: 2 nodes of 4, 8 nodes of 12 and 48 nodes of 48 ranks, in blocks by number.
BOXES: dict[str, dict[str, tuple[int, int, int]]] = {
    "tiny": {"flat": (4, 2, 1), "slab": (4, 2, 1), "pencil": (4, 2, 1), "cube": (2, 2, 2)},
    "small": {"flat": (12, 8, 1), "slab": (24, 2, 2), "pencil": (8, 4, 3), "cube": (6, 4, 4)},
    "large": {"flat": (48, 48, 1), "slab": (48, 8, 6), "pencil": (24, 12, 8), "cube": (16, 12, 12)},
}
PER_NODE = {"tiny": 4, "small": 12, "large": 48}
ITERATIONS = {"tiny": 5, "small": 10, "large": 12}
#: Blocks per side of the coarsest mesh and levels of the adaptive mesh.
MESHES = {"tiny": (2, 3), "small": (4, 4), "large": (12, 4)}
#: Where the sphere starts and its direction in radians.
SPHERES = {"slow": (0.4, 0.0), "tilted": (0.3, 0.5), "steep": (0.35, 1.2), "late": (0.6, 2.6)}
CUBES = (32, 64, 128, 256)


@halo.cases
def cases(scale: str) -> Iterator[Case]:
    """Each code at both scalings on two ranks, and on 1 and 4 ranks, of each MPI library; virtual ranks; surveys of all libraries."""
    return (case for case in _every(scale) if scale != "tiny" or case.name in TINY)


def _every(scale: str) -> Iterator[Case]:
    for library, ranks, scaling, application in itertools.product(LIBRARIES, RANKS, ("weak", "strong"), APPLICATIONS):
        if ranks != 2 and scaling == "strong":
            continue
        place = {1: "one", 2: "claimed", 4: "oversubscribed"}[ranks]
        kinds = {"exchange", "measured", application, library, scaling, place}
        rounds, work = SIZES[scale]["rounds"], _code(application, scaling, ranks, scale)
        if ranks > 2:
            # Ranks that share cores wait for each other's turns, so fewer exchanges take as long.
            rounds, work["exchanges"] = min(rounds, 5), min(work["exchanges"], 10)
        what = {"library": library, "ranks": ranks, "rounds": rounds, "jobs": JOBS[scale], "work": work}
        yield Case(f"{application}/{scaling}/{ranks}@{library}", _given, what, frozenset(kinds))
    yield from _virtual(scale)
    from .views.cases import clover_cases

    yield from clover_cases(scale)
    for name, share in SURVEYS.items():
        facts: dict[str, Any] = {"share": share, "rounds": SIZES[scale]["rounds"], "jobs": JOBS[scale], "scale": scale}
        yield Case(f"survey/{name}", _given, facts, frozenset({"survey", "measured"}))


def _virtual(scale: str) -> Iterator[Case]:
    """Stencils by decomposition, cube and points; adaptive meshes; sizes that change at random; and wrong beliefs about the NIC."""
    for box in BOXES[scale]:
        for cells in CUBES:
            yield _stencil(f"stencil27/{box}/{cells}", scale, {"stencil3d"}, box=box, cells=cells)
    for points in (7, 19):
        yield _stencil(f"stencil{points}/cube/128", scale, {"stencil3d"}, box="cube", cells=128, points=points)
    for name, (start, tilt) in SPHERES.items():
        facts: dict[str, Any] = {"pattern": "miniamr", "scale": scale, "start": start, "tilt": tilt, "believed": 1.0}
        yield Case(f"miniamr/{name}", _pattern, facts, PROTOCOLS | {"miniamr"})
    for box in BOXES[scale]:
        yield _stencil(f"random/{box}", scale, {"misfit"}, pattern="random", box=box, cells=64)
    for box, (name, believed) in itertools.product(("flat", "cube"), (("twice", 2.0), ("half", 0.5))):
        yield _stencil(f"{name}-as-fast/{box}", scale, {"misfit"}, box=box, cells=64, believed=believed)


def _stencil(name: str, scale: str, kinds: set[str], **facts: Any) -> Case:
    what = {"pattern": "stencil", "scale": scale, "points": 27, "believed": 1.0, **facts}
    return Case(name, _pattern, what, PROTOCOLS | kinds)


def _pattern(case: Case, rng: np.random.Generator) -> Any:
    from .patterns.amr import miniamr
    from .patterns.stencil import at_random, stencil3d

    p = case.parameters
    scale = p["scale"]
    per_node, iterations = PER_NODE[scale], ITERATIONS[scale]
    if p["pattern"] == "miniamr":
        base, levels = MESHES[scale]
        ranks = math.prod(BOXES[scale]["cube"])
        return miniamr(base, levels, ranks, per_node, iterations, p["start"], p["tilt"])
    box = BOXES[scale][p["box"]]
    if p["pattern"] == "random":
        return at_random(box, p["cells"], per_node, iterations, rng)
    return stencil3d(box, p["cells"], p["points"], per_node, iterations)


def _code(application: str, scaling: str, ranks: int, scale: str, share: float = 1.0) -> dict[str, Any]:
    size, split = SIZES[scale], SPLITS[ranks]
    side = max(8, round(share * size[scaling]))
    shape = [side * parts for parts in split] if scaling == "weak" else [side, side]
    return {
        "application": application, "shape": shape, "decomposition": list(split), "steps": size["steps"], "exchanges": size["exchanges"],
    }  # fmt: skip


@dataclass(frozen=True)
class Reading:
    """Where a case of yours is measured."""

    library: str = parameter("", "the MPI library: mpich, openmpi, impi; the first that is found unless it is given")
    rounds: int = parameter(11, "timed rounds of each of the two jobs", range=(3, 10_000))
    ranks: int = parameter(2, "ranks that share a deck of CloverLeaf; other cases have their decomposition", range=(1, 64))
    owner: str = parameter("numpy", "the library that owns the fields of a deck", choices=("numpy", "torch"))


@halo.read(Reading)
def read(path: Path, how: Reading) -> Any:
    """Reads a TOML case (shape, decomposition, halo, dtype, order, periodic, stencil, iterations, fields) or a deck of CloverLeaf."""
    from .readers.cases import read_case_or_deck

    return read_case_or_deck(path, how.ranks)


@halo.own_cases
def own_cases(loaded: Any, name: str, how: Reading) -> Iterator[Case]:
    """The exchange, or the deck, as one case."""
    if not isinstance(loaded, dict):
        from .views.cases import own_deck

        facts = {
            "ranks": how.ranks, "owner": how.owner, "rounds": how.rounds, "jobs": JOBS["small"], "device": "cpu", "library": how.library
        }  # fmt: skip
        yield Case(name, own_deck, facts, frozenset({"file", "access", "host", "measured"}))
        return
    what = {"library": how.library, "ranks": math.prod(loaded["decomposition"]), "rounds": how.rounds, "jobs": JOBS["small"]}
    yield Case(name, _own, what, frozenset({"file", "exchange", "measured"}))


@halo.example
def example(folder: Path) -> tuple[Path, dict[str, str]]:
    """Writes a small grid of two fields on two ranks."""
    file = folder / "grid.toml"
    file.write_text(
        "shape = [64, 96]\ndecomposition = [1, 2]\nhalo = 2\ndtype = \"float64\"\nperiodic = [false, true]\n"
        'stencil = "faces+corners"\niterations = 5\nfields = 2\n'
    )  # fmt: skip
    return file, {"rounds": "3"}


@halo.run
def run(technique: Any, case: Case) -> Outcome:
    """Measures a strategy beside the loop by hand, or surveys all of them; climbs the ladder; or simulates."""
    if "survey" in case.kinds:
        return _surveyed(technique, case)
    if "access" in case.kinds or "gpus" in case.kinds:
        from .views.cases import run_access, run_gpus

        if "gpus" in case.kinds:
            return run_gpus(technique, case)
        return run_access(technique, case, "" if "gpu" in case.kinds else _library(case.parameters.get("library", "")))
    if "simulated" in case.kinds:
        return _simulated(technique, case)
    library = _library(case.workload["library"])
    strategy = technique.strategy()
    measured = _measured(case, strategy, library)
    values = {
        "exchange_ratio": measured.ratio, "exchange_time": 1e6 * measured.median, "step_time": 1e6 * measured.step,
        "spread": 100 * measured.spread, "fell_back": float(bool(measured.fault)), "correct": 1.0,
    }  # fmt: skip
    return Outcome(values, noisy=measured.noisy)


def _simulated(technique: Any, case: Case) -> Outcome:
    """Plays the pattern on virtual ranks under the technique's choices."""
    from .simulation.machine import CLUSTER, machine_of

    played = technique.played(case.workload, machine_of(CLUSTER).scaled(case.parameters["believed"]))
    values = {"exchange_time_sim": 1e6 * played.seconds, "overlap": played.overlap, "promise_error": played.promise_error}
    return Outcome(values)


def _library(name: str) -> str:
    """The MPI library of this name, or the first that is found."""
    from armillary import comm

    if lacks := comm.backends()["mpi"]:
        raise NotForThisCase(lacks)
    here = [one.name for one in comm.libraries()]
    if not here:
        raise NotForThisCase("found no MPI library")
    if name and name not in here:
        raise NotForThisCase(f"found no {name} (its prefix belongs into ARMILLARY_MPI)")
    return name or here[0]


def _measured(case: Case, strategy: Strategy, library: str) -> Measured:
    """What the strategy's rounds say. All usual strategies are measured in the same jobs; if one is wrong, each has jobs of its own."""
    from armillary.comm import RankFailed

    from .measuring.measured import STRATEGIES

    if strategy in STRATEGIES:
        try:
            return case.once(_together, library)[strategy]
        except RankFailed:
            pass
    return _alone(case, strategy, library)


def _together(case: Case, library: str) -> dict[Strategy, Measured]:
    from .measuring.measured import STRATEGIES

    return _in_jobs(case, STRATEGIES, library)


def _alone(case: Case, strategy: Strategy, library: str) -> Measured:
    return _in_jobs(case, [strategy], library)[strategy]


def _in_jobs(case: Case, strategies: Sequence[Strategy], library: str) -> dict[Strategy, Measured]:
    from .measuring.measured import measure

    work = case.workload
    how = {name: work[name] for name in ("ranks", "rounds", "jobs")}
    return measure([work["work"]], strategies, library=library, **how)[0]


def _surveyed(technique: Any, case: Case) -> Outcome:
    """What all strategies on all codes and libraries say together."""
    from armillary import comm
    from armillary.outcome import Artifact

    from .datatype import Datatype
    from .measuring.survey import image_parts, packed_wins, rank_agreement, winners

    if technique != Datatype():
        raise NotForThisCase("a survey measures all strategies, and is asked for by datatype alone")
    here = {one.name for one in comm.libraries()} if not comm.backends()["mpi"] else set()
    if not set(LIBRARIES) <= here:
        raise NotForThisCase(f"a survey needs {', '.join(LIBRARIES)}; found {', '.join(sorted(here)) or 'none of them'}")
    table, rows, noisy = {}, [], 0
    for library in LIBRARIES:
        # Once, also where most cells are noisy: a second survey of all of them would be no quieter.
        for (application, scaling), found in case.once(_cells, library).items():
            table[application, library, scaling] = {one: cell.ratio for one, cell in found.items()}
            for one, cell in found.items():
                noisy += cell.noisy
                rows.append({
                    "application": application, "scaling": scaling, "library": library, "method": one.method, "call": one.call,
                    "ratio": cell.ratio, "us": 1e6 * cell.median, "spread": cell.spread, "fault": cell.fault,
                })  # fmt: skip
    parts = image_parts(table)
    values = {
        "winners": float(winners(table)), "packed_wins": packed_wins(table, "cfd"), "image_parts": float(all(parts)),
        "rank_agreement": rank_agreement(table, "life"),
    }  # fmt: skip
    names = ("fastest on mpich", "fastest on impi", "slower than packed on openmpi")
    made = [Artifact.table("cells", rows), Artifact.table("image", [{"part": name, "holds": holds} for name, holds in zip(names, parts)])]
    return Outcome(values, made, noisy=2 * noisy > len(rows))


def _cells(case: Case, library: str) -> dict[tuple[str, str], dict[Strategy, Measured]]:
    """All strategies by code and scaling, on two ranks of a library, in the same jobs."""
    from .measuring.measured import STRATEGIES, measure

    facts = case.workload
    cells = list(itertools.product(APPLICATIONS, ("weak", "strong")))
    works = [_code(application, scaling, 2, facts["scale"], facts["share"]) for application, scaling in cells]
    for work in works:
        # A survey has 162 strategies to go through; its rounds are as many as elsewhere, and shorter.
        work["exchanges"] = min(work["exchanges"], SURVEYED)
    found = measure(works, STRATEGIES, library=library, ranks=2, rounds=facts["rounds"], jobs=facts["jobs"])
    return dict(zip(cells, found, strict=True))


def _given(case: Case, rng: np.random.Generator) -> dict[str, Any]:
    return dict(case.parameters)


def _own(case: Case, rng: np.random.Generator) -> dict[str, Any]:
    return {**case.parameters, "work": case.loaded}


@halo.answer
def answer(result: Result) -> str:
    """Says which strategy is fastest for each case, against the loop by hand."""
    from .answering import accesses, exchanges, protocols

    said = [exchanges(result), protocols(result), accesses(result)]
    return " ".join(part for part in said if part) or "No technique could run any of the cases."


@halo.plots
def plots(result: Result) -> Sequence[Any]:
    """The ratio to the loop by hand, simulated times, and what Python costs, by case."""
    drawn: list[Any] = []
    if "exchange_ratio" in result.metrics:
        drawn += result.panels("Exchange over the loop by hand", "exchange_ratio", log_y=True)
    if "exchange_time_sim" in result.metrics:
        drawn += result.panels("Simulated exchange", "exchange_time_sim", log_y=True)
    if "host_overhead" in result.metrics:
        drawn += result.panels("Python per exchange", "host_overhead", log_y=True)
    if "step_time_sim" in result.metrics:
        drawn += result.panels("Step on simulated GPUs", "step_time_sim", log_y=True)
    return drawn
