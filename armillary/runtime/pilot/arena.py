"""What should launch the tasks of an ensemble, how many will start per second, and how much of the allocation will idle?"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from armillary.arena import Arena, Artifact, Case, Constant, Metric, NotForThisCase, Outcome, Result, parameter
from armillary.wording import counted, listed

if TYPE_CHECKING:
    import numpy as np

    from .running.real import Ran, RealWork
    from .workload import Work

REAL, SIMULATED = frozenset({"measured"}), frozenset({"simulated"})

pilot = Arena(
    "runtime/pilot",
    question="What should launch these tasks on these nodes, how many will start per second, and how much of the allocation will idle?",
    metrics=[
        Metric("makespan", "s", on=SIMULATED, doc="from the begin of the allocation to the last end"),
        Metric("tasks_per_s", "1/s", better="higher", on=SIMULATED, doc="starts in the busiest second"),
        Metric("tasks_per_s_mean", "1/s", better="higher", on=SIMULATED, doc="starts over the seconds from the first start to the last"),
        Metric("utilization", better="higher", on=SIMULATED | {"busy"}, doc="busy core-seconds over those of the span"),
        Metric("launch_latency_p50", "s", on=SIMULATED, doc="from ready to started, the median"),
        Metric("launch_latency_p99", "s", on=SIMULATED, doc="from ready to started, the 99th percentile"),
        Metric("bootstrap", "s", on=SIMULATED, doc="until all runtimes that are used are up"),
        Metric("makespan_here", "s", kind="measured", on=REAL, doc="from the first submission to the last result"),
        Metric("tasks_per_s_here", "1/s", better="higher", kind="measured", on=REAL, doc="tasks over makespan_here"),
        Metric("utilization_here", better="higher", kind="measured", on=REAL | {"busy"}, doc="seconds slept over places × makespan_here"),
        Metric("latency_here_p50", "s", kind="measured", on=REAL | {"functions-only"}, doc="from submission to the body, the median"),
        Metric("latency_here_p99", "s", kind="measured", on=REAL | {"functions-only"}, doc="the 99th percentile"),
        Metric("bootstrap_here", "s", kind="measured", on=REAL, doc="until the first task could start"),
        Metric("prediction_error", "%", kind="measured", on=REAL | {"prediction"}, doc="of a makespan simulated from 100 other tasks"),
    ],
    techniques={
        "hybrid": ".hybrid:Hybrid",
        "flux-n": ".flux_n:FluxN",
        "flux": ".flux:Flux",
        "dragon": ".dragon:Dragon",
        "srun": ".srun:Srun",
        "srun-pool": ".srun_pool:SrunPool",
        "srun-unlimited": ".srun_unlimited:SrunUnlimited",
        "sbatch": ".sbatch:Sbatch",
        "sbatch-array": ".sbatch_array:SbatchArray",
        "local": ".local:Local",
        "pool": ".pool:Pool",
        "dask": ".dask:Dask",
        "parsl": ".parsl:Parsl",
        "ray": ".ray:Ray",
        "radical-pilot": ".radical_pilot:RadicalPilot",
        "auto": ".auto:Auto",
    },
    papers={"hybrid": "rp-flux-dragon", "flux-n": "rp-flux-dragon"},
    baseline="srun",
    repeats=1,
    telling=("dummy/4", "dummy/64", "mixed/4", "mixed/64", "campaign-tenth/64", "quick/*"),
    constants=[
        Constant("agent", "1/1,600", "s per task", "RADICAL-Pilot's scheduler as published"),
        Constant("srun", "(1 + 0.25 log2 nodes)/152", "s per launch", "152 per second as published; the growth is our design"),
        Constant("ceiling of srun", 112, "launches at a time", "the platform's: the published utilization below one half follows"),
        Constant("flux", "1/700 + 0.0002 log2 nodes", "s per launch and instance", "over 700 per second as published; growth: our design"),
        Constant("feed of flux", "1/930", "s per task", "930 per second as published, with partitions"),
        Constant("dragon", "(1 + 0.15 log2 nodes)/620 and /340, feed 1/700", "s per function, executable", "fitted to the published 1,500"),
        Constant("start of flux and dragon", "20 + 0.5 k, 9", "s", "as published"),
        Constant("pool on each node", "1/5,000, start 2", "s", "our design; below what this arena's own pool does on two cores"),
        Constant("spread of launches", 0.2, "coefficient of variation", "our design: lognormal service times"),
    ],
)  # fmt: skip

#: Nodes of the scaling cases.
NODES = {"tiny": (4,), "small": (1, 4, 16, 64, 256, 1024), "large": (1, 4, 16, 64, 256, 1024)}
MIXED = {"tiny": (4,), "small": (4, 8, 16, 32, 64), "large": (4, 8, 16, 32, 64)}
DUMMY_S, HOUR_S = 180.0, 3600.0
#: Simulated ensembles up to which the answer has a sentence for each.
MOST_SENTENCES = 2
#: Spread of the launchers' service times in all built-in cases.
CV = 0.2
#: Null tasks on 1,024 nodes.
MANY = {"small": 100_000, "large": 1_000_000}
#: Sizes of the real cases.
EXECUTABLES = (100, 200, 300, 400)
FUNCTIONS = (1000, 2000, 3000, 4000)
BATCHED = (4000, 8000, 12000, 16000)
VIRTUAL_NODES, SLOTS = 4, 8
#: Tasks that a prediction is made from, and tasks that it is made for.
KNOWN, PREDICTED = 100, 400


@pilot.cases
def cases(scale: str) -> Iterator[Case]:
    """Simulated ensembles on 1 to 1,024 nodes, and small ones that really run on this machine."""
    yield from _simulated(scale)
    yield from _real(scale)


def _simulated(scale: str) -> Iterator[Case]:
    def case(name: str, shape: str, nodes: int, *kinds: str, **facts: Any) -> Case:
        return Case(name, _work, {"shape": shape, "nodes": nodes, "cv": CV, **facts}, frozenset(kinds) | SIMULATED)

    for nodes in NODES[scale]:
        yield case(f"null/{nodes}", "null", nodes, "null", "executables")
    for nodes in NODES[scale]:
        yield case(f"dummy/{nodes}", "dummy", nodes, "dummy", "executables", "busy", *(["ceiling"] if nodes == 4 else []), seconds=DUMMY_S)
    for nodes in MIXED[scale]:
        yield case(f"mixed/{nodes}", "mixed", nodes, "mixed", "executables", "functions", "busy", seconds=DUMMY_S)
    for nodes in () if scale == "tiny" else (256, 1024):
        yield case(f"mixed/{nodes}", "mixed", nodes, "mixed-many", "executables", "functions", "busy", seconds=DUMMY_S)
    both = ("executables", "functions", "busy")
    yield case("campaign-hundredth/8", "campaign", 8, "campaign-part", *both, functions=0.01)
    if scale == "tiny":
        return
    yield case("campaign-tenth/64", "campaign", 64, "campaign-part", *both, functions=0.1)
    for nodes in (256, 1024):
        for draw in (1, 2):
            yield case(f"campaign/{nodes}/{draw}", "campaign", nodes, "campaign", *both, functions=1.0)
    for waves in (1, 2, 3, 4):
        yield case(f"hour/{waves}", "hour", 1, "misfit", "executables", "busy", seconds=HOUR_S, waves=waves)
    yield case("many/1024", "many", 1024, "many", "executables", tasks=MANY[scale])


def _real(scale: str) -> Iterator[Case]:
    def case(name: str, kinds: set[str], nodes: int = VIRTUAL_NODES, slots: int = SLOTS, **facts: Any) -> Case:
        return Case(name, _real_work, {"nodes": nodes, "slots": slots, **facts}, frozenset(kinds) | REAL)

    few, many = (20, 200) if scale == "tiny" else (100, 1000)
    yield case("quick/executables", {"executables", "quick"}, 1, 0, executables=few)
    yield case("quick/functions", {"functions", "functions-only", "quick"}, 1, 0, functions=many)
    if scale == "tiny":
        return
    for count in EXECUTABLES:
        yield case(f"executables/{count}", {"executables", "null-executables"}, executables=count)
    for count in FUNCTIONS:
        yield case(f"functions/{count}", {"functions", "functions-only", "null-functions"}, 1, 0, functions=count)
    for count in BATCHED:
        yield case(f"batched/{count}", {"functions", "functions-only", "batched-functions"}, 1, 0, functions=count, batched=True)
    yield case("sleeping/200", {"executables", "busy", "sleeping"}, executables=200, seconds=DUMMY_S / 100)
    yield case("both/200", {"executables", "functions", "both"}, executables=100, functions=100)
    yield case("prediction/400", {"executables", "prediction"}, executables=PREDICTED)


@dataclass(frozen=True)
class Reading:
    """The allocation on which tasks of a file are played, and how the file is read."""

    nodes: int = parameter(4, "nodes of the allocation", range=(1, 16384))
    cores: int = parameter(56, "usable cores of a node", range=(1, 4096))
    gpus: int = parameter(8, "GPUs of a node", range=(0, 64))
    cv: float = parameter(0.0, "coefficient of variation of the launchers' service times", range=(0.0, 2.0))


@pilot.read(Reading, folders=True)
def read(path: Path, how: Reading) -> Work:
    """Reads JSON Lines of tasks, WfFormat, `sacct --parsable2`, or profiles of RADICAL-Pilot, told apart by their content."""
    from .readers.any import read_work

    work = read_work(path, nodes=how.nodes, cores=how.cores, gpus=how.gpus)
    work.check_fits(how.nodes)
    return work


@pilot.own_cases
def own_cases(loaded: Any, name: str, how: Reading) -> Iterator[Case]:
    """The tasks as one simulated case: nothing that the file names is executed."""
    import numpy as np

    work: Work = loaded
    kinds = {"file"} | ({"executables"} if (work.kind == 0).any() else set()) | ({"functions"} if (work.kind == 1).any() else set())
    kinds |= {"busy"} if float(np.max(work.seconds, initial=0.0)) > 0 else set()
    yield Case(name, parameters={"tasks": work.tasks, "nodes": how.nodes, "cv": how.cv}, kinds=frozenset(kinds) | SIMULATED)


@pilot.example
def example(folder: Path) -> tuple[Path, dict[str, str]]:
    """Writes JSON Lines with docking functions, a scoring run on two nodes that waits for them, and a summary."""
    rows = [
        f'{{"id": "dock-{i}", "kind": "function", "function": "docking:score", "args": [{i}], "seconds": {6 + i % 5}, "stage": "docking"}}'
        for i in range(60)
    ]
    waits = ", ".join(f'"dock-{i}"' for i in range(60))
    rows.append(f'{{"id": "md", "kind": "executable", "command": ["./md"], "nodes": 2, "ranks": 16, "seconds": 90, "after": [{waits}]}}')
    rows.append('{"id": "summary", "kind": "executable", "command": ["./summary"], "seconds": 5, "after": ["md"]}')
    (folder / "tasks.jsonl").write_text("\n".join(rows) + "\n")
    return folder / "tasks.jsonl", {"nodes": "2", "cores": "16", "gpus": "0"}


@pilot.warm_up
def warm_up(technique: Any, case: Case) -> None:
    """Compiles the loops, and lets a real backend start its first tasks."""
    from .simulation.play import simulate
    from .simulation.predict import choose_plan
    from .workload import mixed

    work = mixed(4, 1.0)
    simulate(work, choose_plan(work).plan)


@pilot.run
def run(technique: Any, case: Case) -> Outcome:
    """Plays an ensemble, or starts a small one on this machine."""
    if "simulated" in case.kinds:
        return _played(technique, case)
    reason = technique.declines(case.kinds)
    if reason:
        raise NotForThisCase(reason)
    if "prediction" in case.kinds:
        return _predicted(technique, case)
    ran = technique.run(case.workload)
    return Outcome(_measured(ran, case.workload, case), _tables(ran))


def _played(technique: Any, case: Case) -> Outcome:
    from dataclasses import replace

    import numpy as np

    from .simulation.play import simulate

    work: Work = case.workload
    plan = replace(technique.plan(work), cv=float(case.parameters["cv"]))
    played = simulate(work, plan, case.stream("launches"))
    latency = played.latency
    values = {
        "makespan": played.makespan, "tasks_per_s": played.rate_peak, "tasks_per_s_mean": played.rate_mean, "bootstrap": played.bootstrap,
        "launch_latency_p50": float(np.quantile(latency, 0.5)), "launch_latency_p99": float(np.quantile(latency, 0.99)),
    }  # fmt: skip
    if "busy" in case.kinds:
        values["utilization"] = played.utilization
    artifacts = [Artifact.quantiles("latency", latency, "s"), Artifact.table("stages", played.stages())]
    if technique.__class__.__name__ == "Auto":
        from .simulation.predict import choose_plan

        artifacts.append(Artifact.table("choice", [{"said": choose_plan(work).said()}]))
    return Outcome(values, artifacts)


def _measured(ran: Ran, work: RealWork, case: Case) -> dict[str, float]:
    if ran.done != work.tasks:
        raise RuntimeError(f"{ran.done} of {counted(work.tasks, 'task')} ended well")
    values = {"makespan_here": ran.makespan, "tasks_per_s_here": work.tasks / ran.makespan, "bootstrap_here": ran.bootstrap}
    if "functions-only" in case.kinds:
        import numpy as np

        values |= {f"latency_here_p{q}": float(np.quantile(ran.latency, q / 100)) for q in (50, 99)}
    if "busy" in case.kinds:
        values["utilization_here"] = work.tasks * work.seconds / (work.workers * ran.makespan)
    return values


def _tables(ran: Ran) -> list[Artifact]:
    made = [Artifact.quantiles("latency", ran.latency, "s")] if ran.latency else []
    return [*made, Artifact.table("choice", [ran.said])] if ran.said else made


def _predicted(technique: Any, case: Case) -> Outcome:
    from .running.calibrate import predicted_makespan

    work: RealWork = case.workload
    expected, ran = predicted_makespan(technique, work, KNOWN, case.stream("launches"))
    values = _measured(ran, work, case) | {"prediction_error": 100 * abs(expected - ran.makespan) / ran.makespan}
    return Outcome(values, [Artifact.table("prediction", [{"predicted_s": expected, "measured_s": ran.makespan}])])


@pilot.answer
def answer(result: Result) -> str:
    """Says what ends each simulated ensemble soonest and by how much, what idles, and what is fastest on this machine; in short if many."""
    simulated = {case: facts for case, facts in result.cases.items() if "measured" not in facts["kinds"]}
    measured = {case: facts for case, facts in result.cases.items() if case not in simulated}
    ranked = {case: found for case in simulated if (found := _ranked(result, case, "makespan"))}
    if len(ranked) <= MOST_SENTENCES:
        said = [_ensemble(result, case, found) for case, found in ranked.items()]
    else:
        close = sum(_close(found) for found in ranked.values())
        firsts = Counter(next(iter(found)) for found in ranked.values() if not _close(found)).most_common(2)
        soonest = [f"{name} ends {number} first" for name, number in firsts]
        said = [f"Of {len(ranked)} simulated ensembles {listed([*soonest, f'on {close} no pilot differs by more than 1 %'])}."]
    return " ".join([*said, *_here(result, measured)]) or "Ask for makespan or makespan_here to get an answer."


def _ranked(result: Result, case: str, metric: str) -> dict[str, float]:
    return result.on(case, metric, without=("srun-unlimited",)) if metric in result.metrics else {}


def _close(ranked: dict[str, float]) -> bool:
    first, last = min(ranked.values()), max(ranked.values())
    return len(ranked) > 1 and last - first <= 0.01 * last


def _ensemble(result: Result, case: str, ranked: dict[str, float]) -> str:
    """What ends one simulated ensemble first."""
    (best, seconds), *rest = ranked.items()
    if _close(ranked):
        return f"In {case} no pilot differs by more than 1 %: {_hours(seconds)}."
    used = result.medians(best, "utilization").get(case) if "utilization" in result.metrics else None
    busy = f" with {100 * used:.1f} % of the cores busy" if used is not None else ""
    less = f", {100 * (1 - seconds / rest[-1][1]):.0f} % less than {rest[-1][0]}" if rest else ""
    return f"In {case} {best} ends first, after {_hours(seconds)}{busy}{less}."


def _here(result: Result, measured: dict[str, Any]) -> list[str]:
    """What runs the most executables, functions, and functions in batches per second on this machine, each on its largest case."""
    largest: dict[str, tuple[int, str]] = {}
    for case, facts in measured.items():
        p = facts["parameters"]
        executables, functions = int(p.get("executables", 0)), int(p.get("functions", 0))
        if p.get("seconds") or (executables and functions) or "prediction" in facts["kinds"]:
            continue
        what = "executables" if executables else "functions in batches" if p.get("batched") else "functions"
        largest[what] = max(largest.get(what, (0, "")), (executables + functions, case))
    said = []
    for what, (tasks, case) in largest.items():
        ranked = _ranked(result, case, "makespan_here")
        if ranked:
            best, seconds = next(iter(ranked.items()))
            said.append(f"{best} runs {tasks / seconds:,.0f} {what} per second")
    return [f"On this machine {listed(said)}."] if said else []


def _hours(seconds: float) -> str:
    return f"{seconds:,.1f} s" if seconds < 7200 else f"{seconds / 3600:,.1f} h"


@pilot.plots
def plots(result: Result) -> Sequence[Any]:
    """Start rates, busy cores and makespans by the number of nodes."""

    def by_nodes(case: str, facts: Any) -> tuple[str, float] | None:
        kinds = facts["kinds"]
        if "simulated" not in kinds or "file" in kinds or "misfit" in kinds:
            return None
        return case.split("/")[0], float(facts["parameters"]["nodes"])

    drawn: list[Any] = []
    for title, metric in (("Starts in the busiest second", "tasks_per_s"), ("Busy cores", "utilization"), ("Makespan", "makespan")):
        if metric in result.metrics:
            drawn += result.panels(f"{title} by nodes", metric, by_nodes, x="nodes", log_x=True, log_y=metric != "utilization")
    return drawn


def _work(case: Case, rng: np.random.Generator) -> Work:
    from . import workload

    p = case.parameters
    nodes = int(p["nodes"])
    if p["shape"] == "campaign":
        return workload.campaign(nodes, rng, float(p["functions"]))
    if p["shape"] == "mixed":
        return workload.mixed(nodes, float(p["seconds"]))
    if p["shape"] == "dummy":
        return workload.dummy(nodes, float(p["seconds"]))
    if p["shape"] == "hour":
        return workload.hours(float(p["seconds"]), int(p["waves"]))
    return workload.null(nodes, p.get("tasks"))


def _real_work(case: Case, rng: np.random.Generator) -> RealWork:
    from .running.real import RealWork

    p = case.parameters
    wanted = {name: p[name] for name in ("executables", "functions", "seconds", "batched") if name in p}
    return RealWork(**wanted, nodes=p["nodes"], slots=p["slots"] or len(os.sched_getaffinity(0)))
