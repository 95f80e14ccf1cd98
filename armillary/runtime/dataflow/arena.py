"""My program mixes kernels of several APIs: how do I run them as one data flow without threads that wait or libraries that fight?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from armillary.arena import Arena, Artifact, Case, Constant, Metric, NotForThisCase, Outcome, Result, parameter

if TYPE_CHECKING:
    from armillary.cluster import Cluster

    from .readers.programs import Program
    from .running.laps import Laps
    from .simulation.play import Machine

REAL, APPLICATION, EMPTY = frozenset({"real"}), frozenset({"real", "application"}), frozenset({"real", "empty"})
SIMULATED = frozenset({"simulated"})

dataflow = Arena(
    "runtime/dataflow",
    question="How do I run kernels of several APIs as one data flow, so that no thread waits and no two libraries fight for the cores?",
    metrics=[
        Metric("makespan", "s", kind="measured", on=APPLICATION, doc="median lap of the whole program, the graph's making included"),
        Metric("makespan_p90", "s", kind="measured", on=APPLICATION, doc="90th percentile of the laps"),
        Metric("spread", kind="measured", scale="difference", on=APPLICATION, doc="interquartile range of the laps over their median"),
        Metric("overhead", "µs", kind="measured", scale="difference", on=EMPTY, doc="per kernel that does nothing, over a bare enqueue"),
        Metric("blocked", kind="measured", scale="difference", on=REAL, doc="seconds of host threads in waits for devices, per second"),
        Metric("switches", kind="measured", scale="difference", on=REAL, doc="involuntary context switches of a lap"),
        Metric("threads", kind="measured", scale="difference", on=REAL, doc="the most threads of the process"),
        Metric("makespan_simulated", "s", on=SIMULATED, doc="of a program that is described by its kernels' times"),
        Metric("waited_simulated", scale="difference", on=SIMULATED, doc="seconds of workers in waits for devices, per second"),
    ],
    techniques={
        "sequential": ".sequential:Sequential",
        "forkjoin": ".forkjoin:ForkJoin",
        "blocking": ".blocking:Blocking",
        "single-api": ".single_api:SingleApi",
        "dask": ".dask:Dask",
        "taskaware": ".taskaware:TaskAware",
        "taskaware-shared": ".taskaware_shared:TaskAwareShared",
        "oversubscribed": ".oversubscribed:Oversubscribed",
    },
    papers={"taskaware": "task-aware-dataflow", "taskaware-shared": "task-aware-dataflow"},
    baseline="blocking",
    repeats=3,
    telling=("cholesky-1", "heat-1", "block-1", "mix-1", "far-1"),
    constants=[
        Constant("task, launch, look at an event", "15, 10, 30", "µs", "our design; of the order of what is measured on two cores"),
        Constant("places of a device", 8, "", "our design; as many as streams"),
    ],
)  # fmt: skip


@dataflow.cases
def cases(scale: str, cluster: Cluster | None = None) -> Iterator[Case]:
    """Applications on this machine, and random programs in simulated time."""
    from .workload import built_in

    return built_in(scale)


@dataclass(frozen=True)
class Reading:
    """The machine on which a described program is played."""

    workers: int = parameter(2, "worker threads", range=(1, 4096))
    cores: int = parameter(2, "cores, which is also the number of tokens", range=(1, 4096))
    places: int = parameter(8, "kernels that a device runs at once", range=(1, 65536))
    task_us: float = parameter(15.0, "what a task costs its worker", range=(0.0, 1e6))
    launch_us: float = parameter(10.0, "what a launch costs its worker", range=(0.0, 1e6))
    poll_us: float = parameter(30.0, "how much later than it happened the end of a device kernel is seen", range=(0.0, 1e6))


@dataflow.read(Reading)
def read(path: Path, how: Reading) -> tuple[Program, Machine]:
    """Reads `task,api,us[,width][,after]`."""
    from armillary.errors import InputError

    from .readers.programs import read_program
    from .simulation.play import Machine

    program = read_program(path)
    widest = int(program.width.max())
    if widest > how.cores:
        raise InputError(f"found a kernel of width {widest}; expected at most {how.cores}, the number of tokens", where=str(path))
    ns = [round(1000 * value) for value in (how.task_us, how.launch_us, how.poll_us)]
    return program, Machine(how.workers, how.cores, how.places, *ns)


@dataflow.own_cases
def own_cases(loaded: Any, name: str, how: Reading) -> Iterator[Case]:
    """The program as one case."""
    program: Program = loaded[0]
    facts = {"kernels": program.kernels, "workers": how.workers, "cores": how.cores}
    yield Case(name, _own, facts, frozenset({"file"}) | SIMULATED)


@dataflow.example
def example(folder: Path) -> tuple[Path, dict[str, str]]:
    """Writes a table with six chains that alternate between the host and a device."""
    rows = ["task,api,us,width,after"]
    for step in range(8):
        for chain in range(6):
            after = f"{chain}.{step - 1}" if step else ""
            rows.append(f"{chain}.{step},{('gpu', 'host')[step % 2]},{(900, 120)[step % 2] + 10 * chain},{1 + (step % 4 == 1)},{after}")
    (folder / "program.csv").write_text("\n".join(rows) + "\n")
    return folder / "program.csv", {"workers": "2", "cores": "4"}


@dataflow.warm_up
def warm_up(technique: Any, case: Case) -> None:
    """Imports libraries and compiles kernels: one untimed lap."""
    if "real" in case.kinds:
        app = case.workload.make()
        with technique.lap(app, _setting(case)) as lap:
            lap()


@dataflow.run
def run(technique: Any, case: Case) -> Outcome:
    """Runs an application, or plays a described program."""
    return _played(technique, case) if "simulated" in case.kinds else _measured(technique, case)


def _setting(case: Case) -> Any:
    from .running.technique import Setting, cores

    workers = str(case.parameters["workers"])
    return Setting(cores() if workers == "cores" else int(workers))


def _measured(technique: Any, case: Case) -> Outcome:
    app = case.workload.make()
    found: Laps = technique.run(app, _setting(case), int(case.parameters["laps"]))
    values = {"blocked": found.blocked, "switches": found.switches, "threads": float(found.threads)}
    if "application" in case.kinds:
        values |= {"makespan": found.makespan, "makespan_p90": found.p90, "spread": found.spread}
    else:
        bare = case.once(_bare)
        values["overhead"] = (found.makespan - bare) / len(app.operations) * 1e6
    artifacts = [Artifact.table("laps", [{"lap": i, "seconds": s} for i, s in enumerate(found.seconds)])]
    if found.last is not None:
        artifacts.append(_timeline(found.last[1].trace))
    return Outcome(values, artifacts)


#: Rows of a trace that a timeline shows.
SHOWN = 2000


def _timeline(trace: Any) -> Artifact:
    """When the bodies of the last lap ran, one lane per worker, and when their kernels ended."""
    events = []
    for row in range(min(SHOWN, len(trace))):
        lane = {"ph": "X", "pid": 0, "tid": int(trace["worker"][row]), "name": trace.names[int(trace["task"][row])]}
        started, body, ended = (int(trace[column][row]) / 1000 for column in ("started", "body_ended", "ended"))
        events.append({**lane, "ts": started, "dur": body - started})
        if ended > body:
            events.append({**lane, "pid": 1, "ts": body, "dur": ended - body})
    return Artifact.timeline(events)


def _bare(case: Case) -> float:
    """Seconds of the same kernels enqueued one after the other in one queue, with one wait at the end."""
    import statistics
    import time

    from .running.technique import opened
    from .running.ways import in_queue

    app = case.workload.make()
    with opened(app.apis, _setting(case), threads=1) as apis:
        took = []
        for _ in range(5):
            began = time.perf_counter()
            in_queue(apis, app.operations)
            took.append(time.perf_counter() - began)
    return statistics.median(took)


def _played(technique: Any, case: Case) -> Outcome:
    from .simulation.play import Machine, play

    if technique.rules is None:
        raise NotForThisCase("needs the kernels themselves; a described program has only their times")
    if "file" in case.kinds:
        program, machine = case.workload
    else:
        program, machine = case.workload, Machine(int(case.parameters["workers"]), int(case.parameters["cores"]))
    found = play(program, technique.rules, machine)
    seconds = found.makespan_ns * 1e-9
    values = {"makespan_simulated": seconds, "waited_simulated": found.waited * 1e-9 / seconds if seconds else 0.0}
    return Outcome(values, [Artifact.quantiles("end", found.ended * 1e-9, "s")])


@dataflow.answer
def answer(result: Result) -> str:
    """Says which way is fastest on how many programs, and what task-awareness brings over waiting."""
    said = []
    for metric, where in (("makespan", "On this machine"), ("makespan_simulated", "In simulated time")):
        ranked = {case: found for case in result.cases if (found := result.on(case, metric))} if metric in result.metrics else {}
        if not ranked:
            continue
        winners = [next(iter(found)) for found in ranked.values()]
        best = max(dict.fromkeys(winners), key=winners.count)
        on = next(iter(ranked)) if len(ranked) == 1 else f"{winners.count(best)} of {len(ranked)} programs"
        said.append(f"{where} {best} is fastest on {on}{_lead(ranked, best)}.")
        gains = [found["blocking"] / found["taskaware"] for found in ranked.values() if {"blocking", "taskaware"} <= set(found)]
        if gains:
            low, high = min(gains), max(gains)
            span = f"{low:.2f}" if f"{low:.2f}" == f"{high:.2f}" else f"{low:.2f} to {high:.2f}"
            said.append(f"Task-aware runs are {span} times as fast as tasks that wait for the device.")
    return " ".join(said) or "Ask for makespan or makespan_simulated to get an answer."


def _lead(ranked: dict[str, dict[str, float]], best: str) -> str:
    """By how much the winner leads where it wins, if there is a second one."""
    leads = [list(found.values())[1] / found[best] for found in ranked.values() if next(iter(found)) == best and len(found) > 1]
    if not leads:
        return ""
    second = next(list(found)[1] for found in ranked.values() if next(iter(found)) == best and len(found) > 1)
    if max(leads) < 1.005:
        return f", level with {second}"
    return f", by {100 * (min(leads) - 1):.0f} to {100 * (max(leads) - 1):.0f} % over the next one" if len(leads) > 1 else (
        f", by {100 * (leads[0] - 1):.0f} % over {second}"
    )  # fmt: skip


@dataflow.plots
def plots(result: Result) -> Sequence[Any]:
    """Makespans by application, measured and simulated."""

    def real(case: str, facts: Any) -> tuple[str, str] | None:
        return (str(facts["parameters"]["application"]), case) if "application" in facts["kinds"] else None

    def simulated(case: str, facts: Any) -> tuple[str, str] | None:
        return ("programs", case) if "simulated" in facts["kinds"] else None

    drawn: list[Any] = []
    if "makespan" in result.metrics:
        drawn += result.panels("Makespan on this machine", "makespan", real, log_y=True)
    if "makespan_simulated" in result.metrics:
        drawn += result.panels("Makespan in simulated time", "makespan_simulated", simulated, log_y=True)
    return drawn


def _own(case: Case, rng: Any) -> Any:
    return case.loaded
