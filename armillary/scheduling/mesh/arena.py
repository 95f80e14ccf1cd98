"""Which rank should own which block of an adaptive mesh, now that the blocks' costs differ and change?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from armillary.arena import Arena, Artifact, Case, Constant, InputError, Metric, Outcome, Result, parameter
from armillary.result import Lines
from armillary.wording import counted, listed

if TYPE_CHECKING:
    import numpy as np

    from armillary.cluster import Cluster

    from .readers.block_files import Loaded
    from .simulation.machine import Machine
    from .workload import MeshWork

mesh = Arena(
    "scheduling/mesh",
    question="Which rank should own which mesh block, now that the blocks' costs differ and change?",
    metrics=[
        Metric("step_us", unit="µs", kind="by case", doc="mean microseconds per step, migrations included"),
        Metric("imbalance", kind="modelled", doc="largest over mean cost of a rank, by the step's own costs"),
        Metric("locality", kind="modelled", scale="difference",
               doc="mean over consecutive blocks of 0 (same rank), 1 (adjacent rank), 2 (same node) or 3 (elsewhere)"),
        Metric("remote_bytes", kind="modelled", scale="difference", doc="share of the bytes between blocks that leaves a node"),
        Metric("migration_us", unit="µs", kind="by case", scale="difference", doc="mean microseconds per step for moving blocks"),
        Metric("moved", kind="modelled", better=None, scale="difference", doc="mean share of the blocks that moved before a step"),
        Metric("promise_error", kind="modelled", scale="difference",
               doc="mean of |largest load by the costs known / largest load by the step's own − 1|"),
        Metric("tune_regret", scale="difference", on=frozenset({"dial"}),
               doc="step time after step 10 over that of the best X in hindsight, less 1"),
        Metric("place_ms", unit="ms", kind="measured", doc="mean milliseconds per placement"),
    ],
    techniques={
        "baseline": ".baseline:Baseline",
        "cyclic": ".cyclic:Cyclic",
        "contiguous": ".contiguous:Contiguous",
        "contiguous-best": ".contiguous_best:ContiguousBest",
        "cdp": ".cdp:Cdp",
        "lpt": ".lpt:Lpt",
        "cplx": ".cplx:Cplx",
        "cplx-tuned": ".cplx_tuned:CplxTuned",
        "cplx-online": ".cplx_online:CplxOnline",
        "metis": ".metis:Metis",
        "ilp": ".ilp:Ilp",
    },
    papers={"cplx": "cplx"},
    baseline="baseline",
    tradeoff=("imbalance", "locality"),
    repeats=1,
    telling=("iid-lognormal", "sedov-3d", "orszag-2d", "exact"),
    constants=[
        Constant("block", 2000, "µs", "4,096 cells at two million cell updates per second and core, the order of public AMR codes (ours)"),
        Constant("message in a node", "0.6 µs + bytes / 10 GB/s", "", "the presets amr-512 and amr-4096 (assumed)"),
        Constant("message between nodes", "1.8 µs + bytes / 4 GB/s", "", "the presets, QDR InfiniBand class (assumed)"),
        Constant("overhead", 0.25, "µs", "per message and end, the presets (assumed)"),
        Constant("ghost cells", "4 layers, 8 bytes, 5 or 8 variables", "", "hydrodynamics in space, magnetohydrodynamics in the plane"),
    ],
)  # fmt: skip

#: Ranks of the plain and of the wide cases, and steps.
SIZES = {"tiny": (128, 0, 15), "small": (512, 4096, 40), "large": (512, 4096, 200)}
TINY = ("iid-lognormal", "sedov-3d", "orszag-2d", "misfit-sedov-3d", "exact")
MACHINES = {8: "amr-512", 128: "amr-512", 512: "amr-512", 4096: "amr-4096"}
EXACT_RANKS = 8
REAL_RANKS, REAL_STEPS, REAL_US = 2, 6, 400.0
#: Steps of a mesh that does not change.
IID = {"tiny": 12, "small": 40, "large": 200}


@mesh.cases
def cases(scale: str, cluster: Cluster | None = None) -> Iterator[Case]:
    """Independent costs, a blast wave and vortices, a few blocks for an exact answer, wrong costs, and a run on this machine."""
    for name, make, facts, kinds in _cases(scale):
        if scale != "tiny" or name in TINY:
            yield Case(name, make, facts, frozenset(kinds), cluster=cluster)


def _cases(scale: str) -> Iterator[tuple[str, Any, dict[str, Any], set[str]]]:
    ranks, wide, steps = SIZES[scale]
    for distribution in ("gaussian", "exponential", "power-law", "lognormal"):
        facts = {"costs": distribution, "ranks": ranks, "steps": IID[scale]}
        yield f"iid-{distribution}", _box, facts, {"simulated", "dial", "iid"}
    for name in ("sedov-3d", "orszag-2d"):
        yield name, _scene, {"scene": name.partition("-")[0], "ranks": ranks, "steps": steps}, {"simulated", "dial", "amr"}
    for name in ("sedov-3d", "orszag-2d"):
        facts = {"scene": name.partition("-")[0], "ranks": wide, "steps": steps}
        yield f"{name}-wide", _scene, facts, {"simulated", "dial", "amr", "wide"}
    for distribution in ("exponential", "lognormal"):
        facts = {"costs": distribution, "ranks": wide, "steps": IID[scale]}
        yield f"iid-{distribution}-wide", _box, facts, {"simulated", "iid", "wide"}
    for name, count in (("sedov-3d", ranks), ("orszag-2d", ranks), ("sedov-3d-wide", wide), ("orszag-2d-wide", wide)):
        facts = {"scene": name.partition("-")[0], "ranks": count, "steps": steps, "shuffled": True}
        yield f"misfit-{name}", _scene, facts, {"simulated", "misfit"}
    yield "exact", _box, {"costs": "lognormal", "ranks": EXACT_RANKS, "steps": 5}, {"simulated", "exact"}
    yield "real", _real, {"costs": "lognormal", "ranks": REAL_RANKS, "steps": REAL_STEPS, "mean_us": REAL_US}, {"measured", "exact"}


@dataclass(frozen=True)
class Reading:
    """How the steps of a file are understood."""

    ranks: int = parameter(0, "ranks to place on; 0 takes the number that the file names", range=(0, 1 << 20))
    machine: str = parameter("amr-512", "the cluster, of which the first node, NIC and link are used: a preset or a file", file=True)
    messages: str = parameter(
        "", "a CSV with src_block, dst_block, bytes and perhaps step; without it, neighbours exchange faces", file=True
    )
    profile: str = parameter("", "a profile with costs, for a Parthenon file", file=True)
    face_bytes: float = parameter(0.0, "bytes of a whole face's ghost cells; 0 takes those of blocks of 4,096 cells", range=(0, 1e12))
    block_bytes: float = parameter(0.0, "bytes of a block's cells, which a migration moves; 0 takes those of 4,096 cells", range=(0, 1e12))
    periodic: bool = parameter(False, "whether the domain is periodic")
    real: bool = parameter(False, "whether the steps really run on this machine, with one thread per rank, at most 8")


@mesh.read(Reading)
def read(path: Path, how: Reading) -> Loaded:
    """Reads steps (block tables, profiles of the public tool, Parthenon's files) and proves that they can be placed and played."""
    from .readers.block_files import read_steps

    loaded = read_steps(path, messages=how.messages, profile=how.profile, face=how.face_bytes, periodic=how.periodic)
    _work_of(loaded, how, str(path))
    return loaded


@mesh.own_cases
def own_cases(loaded: Loaded, name: str, how: Reading) -> Iterator[Case]:
    """The file as one case."""
    facts = {"blocks": len(loaded.costs[0]), "steps": len(loaded.costs), "ranks": how.ranks or loaded.ranks, "machine": how.machine,
             "face_bytes": how.face_bytes, "block_bytes": how.block_bytes, "periodic": how.periodic, "real": how.real}  # fmt: skip
    small = len(loaded.costs[0]) <= 64 and (how.ranks or loaded.ranks) <= 16
    kinds = {"file", "measured" if how.real else "simulated", *(["exact"] if small else [])}
    yield Case(name, _own, facts, frozenset(kinds))


@mesh.example
def example(folder: Path) -> tuple[Path, dict[str, str]]:
    """Writes four steps of 4 × 4 × 2 root blocks, of which one is refined after the second step, on 8 ranks."""
    rows = ["step,block,level,i,j,k,cost_us,rank"]
    for step in range(4):
        block = 0
        for i in range(4):
            for j in range(4):
                for k in range(2):
                    if step < 2 or (i, j, k) != (1, 1, 0):
                        hot = 3 if (i - 1) ** 2 + (j - 1) ** 2 <= 1 else 1
                        rows.append(f"{step},{block},0,{i},{j},{k},{400 * hot + 10 * ((7 * block) % 5)},{i * 2 + j // 2}")
                        block += 1
        if step >= 2:
            for n in range(8):
                rows.append(f"{step},{block},1,{2 + n // 4},{2 + n // 2 % 2},{n % 2},{1200 + 10 * n},2")
                block += 1
    path = folder / "blocks.csv"
    path.write_text("\n".join(rows) + "\n")
    return path, {}


@mesh.warm_up
def warm_up(technique: Any, case: Case) -> None:
    """Compiles the loops on a small mesh, so that the first placement is timed without them."""
    import numpy as np

    from .placement.policy import State
    from .simulation.machine import Machine
    from .workload import box_work

    work = box_work("lognormal", EXACT_RANKS, 1, Machine(), np.random.default_rng(0))
    technique.session().place(State(work.costs[0], work.ranks, work.graphs[0], work.machine))


@mesh.run
def run(technique: Any, case: Case) -> Outcome:
    """Plays all steps with the technique's placements."""
    from .analysis.dial import late_us
    from .simulation.play import play

    work: MeshWork = case.workload
    if "measured" in case.kinds:
        done = play(work, technique, step_time=_RealTime(work).step, move_time=_RealTime(work).move)
    else:
        done = play(work, technique)
    values = done.metrics()
    artifacts = [Artifact.quantiles("step", done.step_us, "µs")]
    if "dial" in case.kinds:
        seen = case.once(_dial)
        values["tune_regret"] = late_us(done) / min(seen.values()) - 1
        artifacts.append(Artifact.table("dial", [{"x": x, "step_us": value} for x, value in seen.items()]))
    if done.placement is not None and len(done.placement) <= 20_000:
        artifacts.append(Artifact.table("placement", {"block": range(len(done.placement)), "rank": done.placement}))
    return Outcome(values, artifacts)


class _RealTime:
    """Times of steps and migrations on this machine."""

    def __init__(self, work: MeshWork) -> None:
        self._work = work

    def step(self, costs: Any, placement: Any, graph: Any) -> float:
        from .execution.real import real_step_us

        return real_step_us(costs, placement, graph, self._work.ranks)

    def move(self, change: Any, before: Any, placement: Any) -> float:
        from .execution.real import real_move_us
        from .simulation.step import migrations

        source, target, size = migrations(change, before, placement, self._work.block_bytes, self._work.parts)
        return real_move_us(source, target, size, self._work.ranks)


@mesh.answer
def answer(result: Result) -> str:
    """Names the policy with the shortest steps, by how much, and what it pays for balance in locality."""
    if "step_us" not in result.metrics:
        return "Ask for the metric step_us to get an answer."
    ranked = {case: found for case in result.cases if (found := result.on(case, "step_us"))}
    if not ranked:
        return "No technique could run any of the cases."
    if all(max(found.values()) <= 1.005 * min(found.values()) for found in ranked.values()):
        return "The policies hardly differ in the time of a step."
    near = {case: [t for t, us in found.items() if us <= 1.005 * min(found.values())] for case, found in ranked.items()}
    names = [t for best in near.values() for t in best]
    # Among techniques that are the best equally often, the simplest one stands first in the arena's list.
    best = max((t for t in [*mesh.techniques, *names] if t in names), key=names.count)
    won = [case for case, first in near.items() if best in first]
    said = f"{best} has the shortest steps on {won[0] if len(ranked) == 1 else f'{len(won)} of {len(ranked)} cases'}"
    gains = [100 * (1 - 1 / ratio) for case in won if best != "baseline" and (ratio := result.ratio(case, "step_us", best, "baseline"))]
    if gains:
        low, high = f"{min(gains):.0f}", f"{max(gains):.0f}"
        said += f", {low if low == high else f'{low} to {high}'} % shorter than with unit costs"
    lost = [first[0] for first in near.values() if best not in first]
    if lost:
        said += "; elsewhere it is " + listed([f"{name} ({counted(lost.count(name), 'case')})" for name in dict.fromkeys(sorted(lost))])
    return said + "." + _of_cplx(result, ranked, best)


def _of_cplx(result: Result, ranked: dict[str, dict[str, float]], best: str) -> str:
    """Where CPLX as shipped stands, if it is not the best."""
    if best == "cplx":
        return ""
    ratios = [ratio for case in ranked if (ratio := result.ratio(case, "step_us", best, "cplx"))]
    if not ratios or max(ratios) <= 1.005:
        return ""
    return f" cplx with X = 50 takes up to {100 * (max(ratios) - 1):.0f} % longer than {best}."


@mesh.plots
def plots(result: Result) -> Sequence[Any]:
    """Step times, imbalance and locality by case, and the whole dial of CPLX."""
    from armillary.figures import panels

    drawn = []
    for metric, title in (("step_us", "Microseconds per step"), ("imbalance", "Imbalance"), ("locality", "Locality")):
        if metric in result.metrics:
            drawn += result.panels(title, metric)
    dials: Lines = {}
    for case in result.cases:
        rows = next((found for name in result.techniques if (found := result.artifact_rows(name, case, "dial"))), [])
        if rows:
            dials[case] = {"cplx": [(float(row["x"]), float(row["step_us"])) for row in rows]}
    if dials:
        drawn.append(panels(dials, "CPLX by X, steps after the tenth", x="X in %", y="µs"))
    return drawn


def _dial(case: Case) -> dict[float, float]:
    from .analysis.dial import dial

    return dial(case.workload)


def _machine(case: Case) -> Machine:
    from .simulation.machine import Machine

    return Machine.of(case.cluster if case.cluster is not None else MACHINES.get(case.parameters["ranks"], "amr-512"))


def _scene(case: Case, rng: np.random.Generator) -> MeshWork:
    from .workload import scene_work

    p = case.parameters
    return scene_work(p["scene"], p["ranks"], p["steps"], _machine(case), rng, shuffled=p.get("shuffled", False))


def _box(case: Case, rng: np.random.Generator) -> MeshWork:
    from .workload import box_work

    p = case.parameters
    return box_work(p["costs"], p["ranks"], p["steps"], _machine(case), rng)


def _real(case: Case, rng: np.random.Generator) -> MeshWork:
    from dataclasses import replace

    from .octree.scenes import rounded
    from .workload import box_work

    p = case.parameters
    work = box_work(p["costs"], EXACT_RANKS, p["steps"], _machine(case), rng)
    cost = rounded(work.costs[0] * (p["mean_us"] / work.costs[0].mean()))
    return replace(work, ranks=p["ranks"], costs=(cost,) * len(work.costs))


def _own(case: Case, rng: np.random.Generator) -> MeshWork:
    p = case.parameters
    how = Reading(ranks=p["ranks"], machine=p["machine"], block_bytes=p["block_bytes"], real=p["real"])
    return _work_of(case.loaded, how, case.name)


def _work_of(loaded: Loaded, how: Reading, where: str) -> MeshWork:
    from .execution.real import MOST_BYTES, MOST_RANKS, MOST_SECONDS
    from .octree.scenes import block_bytes
    from .simulation.machine import Machine
    from .workload import given_work

    ranks = how.ranks or loaded.ranks
    if ranks < 1:
        raise InputError("found no ranks in the file; give their number with --ranks", where=where)
    cells = how.block_bytes or block_bytes(loaded.dimensions)
    try:
        work = given_work(
            loaded.graphs, loaded.changes, loaded.mesh_of, loaded.costs, ranks, Machine.of(how.machine), cells, 1 << loaded.dimensions
        )
    except InputError as error:
        raise InputError(error.message, where=error.where or where) from None
    if how.real:
        seconds = 1e-6 * sum(float(cost.sum()) for cost in work.costs)
        most = max(float(graph.size.sum()) for graph in work.graphs) + cells * max(graph.blocks for graph in work.graphs)
        if ranks > MOST_RANKS or seconds > MOST_SECONDS or most > MOST_BYTES:
            raise InputError(
                f"found {ranks} ranks, {seconds:.3g} s of computation and steps of up to {most:.3g} bytes; expected at most {MOST_RANKS}, "
                f"{MOST_SECONDS:g} s and {MOST_BYTES:,} bytes for a real run", where=where,
            )  # fmt: skip
    return work
