"""Which storage tier for each stage of a workflow, and how many nodes, meet a deadline or a limit?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from armillary.arena import Arena, Artifact, Case, Constant, InputError, Metric, Outcome, Result, parameter
from armillary.wording import counted, listed

if TYPE_CHECKING:
    import numpy as np

    from armillary.cluster import Cluster

    from .readers.files import Loaded
    from .stages.workflow import Workflow
    from .storage.tiers import Machine
    from .workload import WorkflowWork

workflow = Arena(
    "scheduling/workflow",
    question="Which storage tiers and how many nodes meet my workflow's deadline, and which choice matters at all?",
    metrics=[
        Metric("concordance", better="higher", kind="by case", doc="share of pairs of configurations ordered as in the judge; a tie is ½"),
        Metric("first_s", unit="s", kind="by case", doc="the judge's makespan of the configuration that is recommended first"),
        Metric("first_regret", kind="by case", scale="difference", doc="that makespan over the best one, less 1"),
        Metric("qos_met", better="higher", kind="by case", doc="share of 40 questions whose answer holds in the judge"),
        Metric("promise_error", kind="by case", scale="difference", doc="mean of |promised − delivered| / delivered"),
        Metric("regions", kind="by case", better=None, scale="difference", doc="different places in the ranking"),
        Metric("region_cv", kind="by case", better=None, scale="difference", doc="coefficient of variation of makespans of one place"),
        Metric("build_s", unit="s", kind="measured", doc="seconds to rank the configurations"),
    ],
    techniques={
        "all-shared": ".all_shared:AllShared",
        "fsf": ".fsf:Fsf",
        "ltl": ".ltl:Ltl",
        "hybrid": ".hybrid:Hybrid",
        "heft": ".heft:Heft",
        "analytic": ".analytic:AnalyticModel",
        "qosflow": ".qosflow:QoSFlow",
        "random": ".random:Random",
        "exhaustive": ".exhaustive:Exhaustive",
    },
    papers={"qosflow": "qosflow"},
    baseline="ltl",
    tradeoff=("concordance", "qos_met"),
    repeats=1,
    telling=("genome", "genome-*", "montage-*", "ddmd-*", "flat-genome"),
    constants=[
        Constant("tiers", "tmpfs, SSD of 500 MB/s, shared file system of 3 GB/s", "", "the preset tiers-10"),
        Constant("individuals", "2.4 GiB read in operations of 8 KiB", "", "public traces of the 1000-genome workflow"),
        Constant("computation", "lognormal, coefficient of variation 0.1", "", "the judge's noise (chosen)"),
        Constant("read-ahead", 131072, "bytes", "Linux's default for block devices"),
    ],
)  # fmt: skip

NODES = (2, 5, 10)
#: The most tasks per stage, configurations that are judged, and stages of the wide case, by scale.
SIZES = {"tiny": (20, 60, 4), "small": (100, 100, 7), "large": (300, 400, 12)}
TINY = ("genome", "genome-10", "seismology-10", "flat-genome", "wide")
#: Steps of ten nanoseconds or so that judging a user's workflow may take.
MOST_STEPS = 1e10
#: The share of pairs from which on an order is told from chance.
CLEAR = 0.6
REAL_TASKS, REAL_JUDGED, REAL_BYTES, REAL_SECONDS = 10, 8, 1e-3, 5e-4


@workflow.cases
def cases(scale: str, cluster: Cluster | None = None) -> Iterator[Case]:
    """Published workflows at one or three numbers of nodes, tiers that are all alike, many stages, and a run on this machine."""
    for name, make, facts, kinds in _cases(scale):
        if scale != "tiny" or name in TINY:
            yield Case(name, make, facts, frozenset(kinds), cluster=cluster)


def _cases(scale: str) -> Iterator[tuple[str, Any, dict[str, Any], set[str]]]:
    most, judged, stages = SIZES[scale]
    shape = {"most": most, "judged": judged}
    for name in ("genome", "montage", "ddmd"):
        for nodes in NODES:
            yield f"{name}-{nodes}", _built_in, {"workflow": name, "nodes": (nodes,), **shape}, {"simulated", "work", "scaled"}
    for name in ("seismology", "pyflextrkr"):
        yield f"{name}-10", _built_in, {"workflow": name, "nodes": (10,), **shape}, {"simulated", "work", "scaled"}
    for name in ("genome", "montage", "ddmd"):
        yield name, _built_in, {"workflow": name, "nodes": NODES, **shape}, {"simulated", "work", "mixed"}
    for name in ("genome", "montage", "ddmd", "seismology"):
        yield f"flat-{name}", _built_in, {"workflow": name, "nodes": (10,), "flat": True, **shape}, {"simulated", "misfit"}
    wide = {"workflow": "pyflextrkr", "nodes": (10,), "stages": stages, "cross_local": True, **shape}
    yield "wide", _built_in, {**wide, "most": min(most, 48)}, {"simulated", "wide"}
    real = {"workflow": "genome", "most": REAL_TASKS, "judged": REAL_JUDGED, "bytes_scale": REAL_BYTES, "seconds_scale": REAL_SECONDS}
    yield "real", _real, real, {"measured", "real"}


@dataclass(frozen=True)
class Reading:
    """How a workflow, a table of costs or a table of configurations is understood."""

    machine: str = parameter("tiers-10", "the cluster, of which the first nodes and their tiers are used: a preset or a file", file=True)
    nodes: tuple[int, ...] = parameter((2, 5, 10), "numbers of nodes to choose from", range=(1, 4096))
    tiers: str = parameter("", "tiers to choose from, separated by commas; all of the cluster's without it")
    order: str = parameter("", "the order of stages as JSON, for a table", file=True)
    shared: str = parameter("", "the name of the shared tier in a table; found by its name without it")
    judged: int = parameter(100, "configurations that are judged, drawn from all", range=(4, 400))
    sample: int = parameter(0, "configurations to draw where there are more; 0 takes all", range=(0, 1 << 22))
    cross_local: bool = parameter(False, "whether data may move between two different local tiers")
    capacity: bool = parameter(False, "whether configurations that do not fit on a local tier are left out")
    real: bool = parameter(False, "whether a workflow of at most 200 tasks really runs on this machine, which counts as one node")
    directories: str = parameter("", "directories of the tiers for real runs: beegfs=/data,tmpfs=/dev/shm")
    bytes_scale: float = parameter(1e-3, "factor of the sizes of files in real runs", range=(0, 1))
    seconds_scale: float = parameter(1e-3, "factor of the seconds of computation in real runs", range=(0, 1))

    def validate(self) -> None:
        """Raises an InputError if the options do not go together."""
        if not self.nodes or len(set(self.nodes)) < len(self.nodes) or len(self.nodes) > 64:
            raise InputError(f"found {list(self.nodes)}; expected up to 64 different numbers", where="--nodes")


@workflow.read(Reading)
def read(path: Path, how: Reading) -> Loaded:
    """Reads a file and proves that its configurations can be enumerated and judged."""
    from .readers.files import read_work

    loaded = read_work(path, order=how.order, shared=how.shared)
    try:
        _planned(loaded, how)
    except InputError as error:
        own = loaded.workflow is not None and error.where == loaded.workflow.name
        raise InputError(error.message, where=str(path) if own or not error.where else error.where) from None
    return loaded


@workflow.own_cases
def own_cases(loaded: Loaded, name: str, how: Reading) -> Iterator[Case]:
    """The file as one case."""
    from armillary.parameters import parameters

    facts = {key: getattr(how, key) for key in parameters(Reading)}
    for key in ("machine", "order"):
        facts[key] = Path(facts[key]).name if Path(facts[key]).exists() else facts[key]
    measured = how.real or loaded.table is not None
    yield Case(name, _own_work, facts, frozenset({"file", "measured" if measured else "simulated"}))


@workflow.example
def example(folder: Path) -> tuple[Path, dict[str, str]]:
    """Writes a workflow of four stages in WfFormat 1.5: eight tasks split a file, one merges, four analyse, one reports."""
    import json

    tasks, files, ran = [], [{"id": "all.dat", "sizeInBytes": 2 << 30}], []

    def add(kind: str, n: int, parents: list[str], reads: list[str], writes: list[tuple[str, int]], seconds: float) -> str:
        key = f"{kind}_ID{n:07d}"
        files.extend({"id": name, "sizeInBytes": size} for name, size in writes)
        tasks.append({"name": key, "id": key, "parents": parents, "children": [], "inputFiles": reads,
                      "outputFiles": [name for name, _ in writes]})  # fmt: skip
        ran.append({"id": key, "runtimeInSeconds": seconds, "coreCount": 1, "command": {"program": kind, "arguments": []}})
        return key

    parts = [add("split", n, [], ["all.dat"], [(f"part{n}.dat", 200 << 20)], 10.0 + n) for n in range(8)]
    merged = add("merge", 0, parts, [f"part{n}.dat" for n in range(8)], [("merged.dat", 1200 << 20)], 6.0)
    done = [add("analyse", n, [merged], ["merged.dat"], [(f"result{n}.dat", 30 << 20)], 20.0 + n) for n in range(4)]
    add("report", 0, done, [f"result{n}.dat" for n in range(4)], [("report.pdf", 5 << 20)], 2.0)
    path = folder / "survey.json"
    document = {"name": "survey", "schemaVersion": "1.5",
                "workflow": {"specification": {"tasks": tasks, "files": files}, "execution": {"tasks": ran}}}  # fmt: skip
    path.write_text(json.dumps(document, indent=1))
    return path, {"nodes": "2,5"}


@workflow.warm_up
def warm_up(technique: Any, case: Case) -> None:
    """Loads scikit-learn and fits a small tree, so that the first ranking is timed without them."""
    import numpy as np

    from .analysis.measures import planning_of
    from .workload import WorkflowWork, built_in

    if technique.oracle:
        return
    planner = _machine(case)
    small = built_in("seismology", np.random.default_rng(0), 4)
    planning = _plan(small, planner, (1,), {})
    judged = np.arange(1.0, 1.0 + len(planning.configurations))
    work = WorkflowWork("warm", planning.layout, planning.configurations, planning.candidates, judged, planning.costs, planning.statistics)
    technique.rank(planning_of(work, technique))


@workflow.run
def run(technique: Any, case: Case) -> Outcome:
    """Lets a technique rank the configurations of a case, and compares the ranking with the judge."""
    from .analysis.measures import measures

    work: WorkflowWork = case.workload
    done = measures(technique, work, case.stream("questions"))
    artifacts = [_table(work, done)]
    regions = getattr(done.ranking, "found", None)
    if regions is not None:
        artifacts.append(Artifact.table("regions", regions.table()))
    if work.workflow is not None and work.machine is not None and "simulated" in case.kinds and work.workflow.tasks <= 400:
        artifacts.append(_timeline(case, work, int(done.ranking.score.argmin())))
    return Outcome(done.values, artifacts)


def _table(work: WorkflowWork, done: Any) -> Artifact:
    """The candidates in the order of the ranking."""
    import numpy as np

    order = np.argsort(done.ranking.score, kind="stable")
    options = done.planning.options
    rows = []
    for n in order.tolist():
        promised = {} if done.ranking.promise is None else {"promised_s": float(done.ranking.promise[n])}
        rows.append({"judged_s": float(work.judged[n]), **promised, **options.named(n, work.layout)})
    return Artifact.table("ranking", rows)


def _timeline(case: Case, work: WorkflowWork, n: int) -> Artifact:
    """The run of the configuration that is recommended first: a lane per node, a bar for each phase of each task."""
    from .simulation.judge import noise
    from .simulation.play import Player

    assert work.workflow is not None
    assert work.machine is not None
    tier, nodes = work.configurations.tier[work.candidates[n]], int(work.configurations.nodes[work.candidates[n]])
    name = f"{nodes}:{','.join(map(str, tier.tolist()))}"
    played = Player(work.workflow, work.machine, nodes).play(tier, noise(work.workflow.tasks, case.stream("judge", name)))
    events: list[dict[str, Any]] = []
    for t in range(work.workflow.tasks):
        stage = work.workflow.stages[work.workflow.stage[t]]
        for phase, (start, end) in zip(("read", "compute", "write"), zip(played.times[t, 1:4], played.times[t, 2:5])):
            if end > start:
                where = {"pid": int(played.node[t]), "tid": t}
                events.append({"name": f"{phase} {stage}", "ph": "X", "ts": 1e6 * start, "dur": 1e6 * (end - start), **where})
    return Artifact.timeline(events)


@workflow.answer
def answer(result: Result) -> str:
    """Names the technique that orders configurations best, and what QoSFlow's readable rules cost beside the model they rest on."""
    if "concordance" not in result.metrics:
        return "Ask for the metric concordance to get an answer."
    ranked = {case: found for case in result.cases if (found := result.on(case, "concordance", without=("exhaustive",)))}
    if not ranked:
        return "No technique could run any of the cases."
    highest = [max(found.values()) for found in ranked.values()]
    said = _ordered(ranked) if max(highest) >= CLEAR else _by_chance(result, ranked, max(highest))
    asked: dict[str, list[float]] = {}
    for case in ranked if "qos_met" in result.metrics else ():
        for name, share in result.on(case, "qos_met", without=("exhaustive",)).items():
            asked.setdefault(name, []).append(share)
    if asked:
        first = max(asked, key=lambda name: sum(asked[name]) / len(asked[name]))
        said += f". {first} answers most questions about deadlines rightly, {_percent(asked[first])}"
    return said + "."


def _ordered(ranked: dict[str, dict[str, float]]) -> str:
    near = {case: [t for t, share in found.items() if share >= max(found.values()) - 0.005] for case, found in ranked.items()}
    names = [t for best in near.values() for t in best]
    best = max(dict.fromkeys(names), key=names.count)
    won = [case for case, first in near.items() if best in first]
    where = won[0] if len(ranked) == 1 else f"{len(won)} of {len(ranked)} cases"
    said = f"{best} orders configurations best on {where}, with {_percent([ranked[case][best] for case in won])} of the pairs right"
    lost = [first[0] for first in near.values() if best not in first]
    if lost:
        said += "; elsewhere it is " + listed([f"{name} ({counted(lost.count(name), 'case')})" for name in dict.fromkeys(sorted(lost))])
    return said


def _by_chance(result: Result, ranked: dict[str, dict[str, float]], highest: float) -> str:
    """Tossing a coin orders half of the pairs."""
    where = next(iter(ranked)) if len(ranked) == 1 else "any case"
    said = f"No technique orders the configurations of {where} much better than chance"
    said += f": at best {_percent([highest])} of the pairs are right"
    regrets = [share for case in ranked for share in result.on(case, "first_regret").values()] if "first_regret" in result.metrics else []
    return said + (f", and a first choice takes up to {100 * max(regrets):.0f} % longer than the best one" if regrets else "")


def _percent(shares: Sequence[float]) -> str:
    low, high = f"{100 * min(shares):.0f}", f"{100 * max(shares):.0f}"
    return f"{low if low == high else f'{low} to {high}'} %"


@workflow.plots
def plots(result: Result) -> Sequence[Any]:
    """Pairs ordered rightly, questions answered rightly, and the first choice's regret, by case."""
    drawn = []
    for metric, title in (
        ("concordance", "Pairs ordered as in the judge"), ("qos_met", "Questions answered rightly"),
        ("first_regret", "Regret of the first choice"), ("promise_error", "Error of the promised makespan"),
    ):  # fmt: skip
        if metric in result.metrics:
            drawn += result.panels(title, metric)
    return drawn


def _machine(case: Case) -> Machine:
    from .storage.tiers import Machine

    found = Machine.of(case.cluster if case.cluster is not None else "tiers-10")
    return found.flat() if case.parameters.get("flat") else found


def _plan(found: Workflow, machine: Machine, nodes: Sequence[int], options: dict[str, Any], profile: Any = None) -> Any:
    from .planning.planner import plan
    from .stages.statistics import Statistics

    return plan(Statistics.of(found), machine, nodes, profile=profile, **options)


def _judged(case: Case, found: Workflow, machine: Machine, planning: Any, rng: np.random.Generator, most: int) -> WorkflowWork:
    """Plays a seeded choice of configurations."""
    from .simulation.judge import chosen, judge
    from .workload import WorkflowWork

    candidates = chosen(len(planning.configurations), most, rng)
    judged, _ = judge(found, machine, planning.configurations.at(candidates), lambda name: case.stream("judge", name))
    return WorkflowWork(
        case.name, planning.layout, planning.configurations, candidates, judged, planning.costs, planning.statistics, machine, found
    )


def _built_in(case: Case, rng: np.random.Generator) -> WorkflowWork:
    from .workload import built_in

    p = case.parameters
    shape = {"stages": p["stages"]} if "stages" in p else {}
    found, machine = built_in(p["workflow"], rng, p["most"], **shape), _machine(case)
    planning = _plan(found, machine, p["nodes"], {"cross_local": p.get("cross_local", False)})
    return _judged(case, found, machine, planning, rng, p["judged"])


def _real(case: Case, rng: np.random.Generator) -> WorkflowWork:
    from .execution.real import folders_of
    from .workload import built_in

    p, machine = case.parameters, _machine(case)
    found = built_in(p["workflow"], rng, p["most"])
    return _really(case, found, machine, folders_of("", machine.names), p["bytes_scale"], p["seconds_scale"], p["judged"], rng, {})


def _really(
    case: Case, found: Workflow, machine: Machine, folders: dict[str, Path], bytes_scale: float, seconds_scale: float, judged: int,
    rng: np.random.Generator, options: dict[str, Any],
) -> WorkflowWork:  # fmt: skip
    """Runs a seeded choice of configurations on this machine."""
    from .execution.real import check_size, measured_machine, run_all, scaled
    from .simulation.judge import chosen
    from .workload import WorkflowWork

    check_size(found, judged, len(machine.tiers), bytes_scale, seconds_scale)
    here, profile = measured_machine(machine, folders)
    small = replace(scaled(found, bytes_scale, seconds_scale), cores=found.cores.clip(1, here.cores))
    planning = _plan(small, here, (1,), options, profile)
    candidates = chosen(len(planning.configurations), judged, rng)
    makespans = run_all(small, here, planning.configurations.at(candidates), folders)
    return WorkflowWork(
        case.name, planning.layout, planning.configurations, candidates, makespans, planning.costs, planning.statistics, here, small
    )


def _own_work(case: Case, rng: np.random.Generator) -> WorkflowWork:
    import numpy as np

    from .simulation.from_costs import judge_costs
    from .simulation.judge import chosen
    from .workload import WorkflowWork

    loaded: Loaded = case.loaded
    how = _options(case)
    if loaded.table is not None:
        table = loaded.table
        candidates = chosen(len(table.total), how.judged, rng)
        # Only the rows that are judged exist for the techniques, because a tree must not see the others' makespans either.
        return WorkflowWork(
            case.name, table.layout, table.configurations.at(candidates), np.arange(len(candidates)), table.total[candidates], given=True
        )
    planning, machine = _planned(loaded, how)
    if loaded.costs is not None:
        candidates = chosen(len(planning.configurations), how.judged, rng)
        some = planning.configurations.at(candidates)
        judged = judge_costs(planning.layout, planning.costs, some, lambda name: case.stream("judge", name), machine.cores)
        return WorkflowWork(case.name, planning.layout, planning.configurations, candidates, judged, planning.costs)
    assert loaded.workflow is not None
    if how.real:
        from .execution.real import folders_of

        options = {"cross_local": how.cross_local, "capacity": how.capacity, "sample": how.sample}
        folders = folders_of(how.directories, machine.names)
        return _really(case, loaded.workflow, machine, folders, how.bytes_scale, how.seconds_scale, how.judged, rng, options)
    return _judged(case, loaded.workflow, machine, planning, rng, how.judged)


def _options(case: Case) -> Reading:
    """The options with which a file was read; its further files are found by their names."""
    from armillary.parameters import parameters

    facts = {key: case.parameters[key] for key in parameters(Reading)}
    for file in case.files[1:]:
        for key in ("machine", "order"):
            if facts[key] == file.name:
                facts[key] = str(file)
    return Reading(**{**facts, "nodes": tuple(facts["nodes"])})


def _planned(loaded: Loaded, how: Reading) -> tuple[Any, Machine]:
    """Configurations and costs of a file, after counting what the judge would have to do."""
    import numpy as np

    from .execution.real import check_size, folders_of
    from .planning.configurations import enumerate_configurations
    from .planning.ranker import Planning
    from .simulation.from_costs import skeleton
    from .simulation.play import Player, work
    from .storage.tiers import Machine

    machine = Machine.of(how.machine, tuple(filter(None, how.tiers.split(","))))
    if loaded.table is not None:
        return None, machine
    if loaded.costs is not None:
        layout = loaded.costs.layout
        skeleton(layout)
        configurations = enumerate_configurations(layout, how.nodes, cross_local=how.cross_local, sample=how.sample)
        costs = tuple(loaded.costs.at(n, cross_local=how.cross_local) for n in how.nodes)
        return Planning(layout, configurations, np.arange(len(configurations)), costs), machine
    assert loaded.workflow is not None
    if how.real:
        check_size(loaded.workflow, how.judged, len(machine.tiers), how.bytes_scale, how.seconds_scale)
        folders_of(how.directories, machine.names)
        return None, machine
    for nodes in how.nodes:
        Player(loaded.workflow, machine, nodes)
    steps = how.judged * max(work(loaded.workflow, machine, nodes) for nodes in how.nodes)
    if steps > MOST_STEPS:
        raise InputError(f"found a workflow whose judging takes about {steps:.2g} steps; expected at most {MOST_STEPS:.0g}; lower --judged")
    options = {"cross_local": how.cross_local, "capacity": how.capacity, "sample": how.sample}
    planning = _plan(loaded.workflow, machine, how.nodes, options)
    if len(planning.configurations) < 2:
        raise InputError(f"found {len(planning.configurations)} configurations; expected at least 2")
    return planning, machine
