"""How should a simulation hand its data to the analysis, where should the analysis run, and what would a perfect transport give?"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from armillary.arena import Arena, Artifact, Case, Constant, InputError, Metric, NotForThisCase, Outcome, Result, parameter
from armillary.wording import listed

if TYPE_CHECKING:
    import numpy as np

    from armillary.cluster import Cluster

    from .real.experiment import Compared
    from .simulation.play import Simulated
    from .simulation.way import Way
    from .workload import TransportWork, Workflow

SIMULATED, REAL, SCALE = frozenset({"simulated"}), frozenset({"real"}), frozenset({"scale"})
PLATFORM = "DTLMod's documentation, platform"

transport = Arena(
    "network/transport",
    question="How should a simulation hand its data to the analysis, where should that run, and what would a perfect transport give?",
    metrics=[
        Metric("makespan", "s", on=SIMULATED, doc="until the last component has ended"),
        Metric("publisher_stall", "s", on=SIMULATED, doc="that a publisher waits for its transport, in the mean"),
        Metric("subscriber_idle", "s", on=SIMULATED, doc="that a subscriber waits for data, in the mean"),
        Metric("bytes_moved", "B", kind="modelled", on=SIMULATED, doc="to and from stores, and between processes"),
        Metric("core_seconds", "s", on=SIMULATED, doc="cores that are held, times how long"),
        Metric("simulation_time", "s", kind="measured", on=SCALE, doc="CPU seconds of one core that the simulation itself takes"),
        Metric("real_makespan", "s", kind="measured", on=REAL, doc="of the workflow really run here"),
        Metric("prediction_error", "%", kind="measured", on=REAL, doc="of its simulated makespan; the worse of both engines for auto"),
        Metric("ranking_agrees", kind="measured", better="higher", on=REAL, doc="1 if BP5 and SST are predicted in the measured order"),
        Metric("regret", "%", kind="measured", on=REAL, scale="difference", doc="by which the engine is slower than the better one"),
    ],
    techniques={
        "file-shared": ".file_shared:FileShared",
        "file-local": ".file_local:FileLocal",
        "staging-colocated": ".staging_colocated:StagingColocated",
        "staging-remote": ".staging_remote:StagingRemote",
        "ideal": ".ideal:Ideal",
        "adios2-bp5": ".adios2_bp5:Adios2Bp5",
        "adios2-sst": ".adios2_sst:Adios2Sst",
        "auto": ".auto:Auto",
    },
    papers=dict.fromkeys(("file-shared", "file-local", "staging-colocated", "staging-remote", "auto"), "simulated-dtl"),
    baseline="file-shared",
    tradeoff=("makespan", "core_seconds"),
    # A simulated workflow comes out the same every time, and a real one has its rounds.
    repeats=1,
    telling=("fan", "pipeline", "grayscott", "md"),
    constants=[
        Constant("crossbar latency", 1e-3, "s", PLATFORM + "; the cluster format has no latency of a switch"),
        Constant("loopback", "1 Gb/s, 1.75 ms, not shared", "", PLATFORM),
        Constant("links of the shared file system", "20 and 10 Gb/s, 1 ms each", "", PLATFORM),
        Constant("Gray-Scott", 30.0, "flop per cell", "the specification's"),
        Constant("real constants", "calibrated here in about ten seconds, by another program and other sizes", "", "measured"),
    ],
)  # fmt: skip

FANS = {"tiny": (8, 4, 32), "small": (64, 16, 64), "large": (64, 16, 64)}
EDGES = {"tiny": 32, "small": 64, "large": 128}
REAL_SIZES = {"grayscott": (48, 64, 80), "pipeline": (64, 96, 128)}
#: Publishers and subscribers of the wide fans.
WIDE = {"small": (200, 50), "large": (20_000, 5_000)}
#: By name: shape, and parts of publishers and of subscribers; none are as near to cubes as can be. The small ones are tenths.
SMALL_SCALED: dict[str, tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]] = {
    "cubes": ((100, 100, 100), (), ()),
    "bricks": ((100, 100, 100), (5, 5, 8), (2, 5, 5)),
    "uneven": ((103, 97, 109), (5, 5, 8), (2, 5, 5)),
    "pencils": ((100, 100, 100), (20, 10, 1), (5, 1, 10)),
    "slabs": ((100, 100, 500), (5, 5, 8), (1, 1, 50)),
}  # fmt: skip
SCALED: dict[str, tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]] = {
    "cubes": ((1000, 1000, 1000), (), ()),
    "bricks": ((1000, 1000, 1000), (20, 25, 40), (10, 20, 25)),
    "uneven": ((1003, 997, 1009), (20, 25, 40), (10, 20, 25)),
    "pencils": ((1000, 1000, 1000), (200, 100, 1), (50, 1, 100)),
    "slabs": ((1000, 1000, 5000), (20, 25, 40), (1, 1, 5000)),
}  # fmt: skip


@transport.cases
def cases(scale: str) -> Iterator[Case]:
    """Fans, pipelines, Gray-Scott and molecular dynamics in simulation; two programs that really run; and at scale, 25,000 processes."""
    for name in ("fan", "pipeline", "grayscott", "md", *(() if scale == "tiny" else ("pipeline-wide", "grayscott-heavy", "md-dense"))):
        yield Case(name, _built_in, {"workflow": name, "scale": scale}, SIMULATED)
    for program, sizes in REAL_SIZES.items():
        for size in sizes[:1] if scale == "tiny" else sizes:
            if scale != "tiny" or program == "grayscott":
                yield Case(
                    f"real-{program}-{size}", _real, {"program": program, "size": size, "quick": scale == "tiny"}, REAL | {"measured"}
                )
    if scale != "tiny":
        for name in SCALED:
            yield Case(f"fan-wide-{name}", _scaled, {"blocks": name, "scale": scale}, SIMULATED | SCALE | {"measured"})
        yield Case("grayscott-large", _built_in, {"workflow": "grayscott-large", "scale": scale}, SIMULATED)


@dataclass(frozen=True)
class Reading:
    """Where a workflow runs."""

    machine: str = parameter("two-clusters-insitu", "a preset of a cluster")
    machine_file: str = parameter("", "a cluster file instead", file=True)
    streams: str = parameter("", "DTLMod's configuration of the streams; it goes before what the workflow says of them", file=True)


@transport.read(Reading)
def read(path: Path, how: Reading) -> TransportWork:
    """Reads a workflow (TOML), its machine, and the configuration of its streams."""
    from dataclasses import replace

    from armillary.cluster import load, preset

    from .readers.streams import read_streams
    from .readers.workflows import read_workflow
    from .simulation.play import placed
    from .workload import TransportWork

    workflow = read_workflow(path)
    if how.streams:
        settings = {s.name: s for s in read_streams(how.streams)}
        if strange := sorted(set(settings) - {s.name for s in workflow.streams}):
            names = ", ".join(s.name for s in workflow.streams)
            raise InputError(f"found stream {strange[0]}; expected one of the workflow: {names}", where=how.streams)
        changed = []
        for s in workflow.streams:
            one = settings.get(s.name)
            own: dict[str, Any] = (
                {} if one is None else {"engine": one.engine, "transport": one.transport, "export_metadata": one.export_metadata}
            )
            if one is not None and one.reduction.kind != "none":
                own["reduction"] = one.reduction
            changed.append(replace(s, **own))
        workflow = replace(workflow, streams=tuple(changed))
    cluster = load(how.machine_file) if how.machine_file else preset(how.machine)
    placed(workflow, cluster, "remote")
    return TransportWork(workflow, cluster)


@transport.own_cases
def own_cases(loaded: Any, name: str, how: Reading) -> Iterator[Case]:
    """The workflow as one case."""
    facts = {"ranks": sum(c.ranks for c in loaded.workflow.components), "steps": loaded.workflow.steps, "cluster": loaded.cluster.name}
    yield Case(name, parameters=facts, kinds=frozenset({"file"}) | SIMULATED)


@transport.example
def example(folder: Path) -> tuple[Path, dict[str, str]]:
    """Writes a simulation of 32 ranks whose field a small analysis takes, and the configuration of its stream."""
    (folder / "coupled.toml").write_text(EXAMPLE)
    (folder / "streams.json").write_text(
        '{"streams": [{"name": "field", "engine": {"type": "Staging", "transport_method": "Mailbox"}, "export_metadata": true}]}\n'
    )
    return folder / "coupled.toml", {"streams": str(folder / "streams.json")}


EXAMPLE = """\
name = "coupled"
steps = 4

[[component]]
name = "simulation"
ranks = 32
group = "a"
compute = 5e9

[[component]]
name = "analysis"
ranks = 4
group = "b"
compute = 2e9

[[stream]]
name = "field"
from = "simulation"
to = "analysis"

[[stream.variable]]
name = "temperature"
shape = [128, 128, 128]
itemsize = 8
publish = [4, 4, 2]
subscribe = [1, 1, 4]
"""


@transport.warm_up
def warm_up(technique: Any, case: Case) -> None:
    """Compiles the loops on a small fan."""
    if "real" not in case.kinds:
        technique.simulate(_work(_workflow("fan", "tiny")))


@transport.run
def run(technique: Any, case: Case) -> Outcome:
    """Plays the workflow, or really runs it."""
    if "real" in case.kinds:
        return _executed(technique, case)
    from .auto import Auto, front

    made, took = [], 0.0

    def simulate(way: Way) -> Simulated:
        nonlocal took
        simulated, seconds = case.once(_timed, way)
        took += seconds
        return simulated

    if isinstance(technique, Auto):
        choices = technique.search(case.workload, simulate)
        found = choices[0].found
        made += [Artifact.table("choices", [c.row() for c in choices]), Artifact.table("tradeoff", [c.row() for c in front(choices)])]
    else:
        try:
            found = simulate(technique.way())
        except InputError as error:
            raise NotForThisCase(str(error)) from None
    values = {
        "makespan": found.makespan, "publisher_stall": found.publisher_stall, "subscriber_idle": found.subscriber_idle,
        "bytes_moved": found.bytes_moved, "core_seconds": found.core_seconds,
    }  # fmt: skip
    if "scale" in case.kinds:
        values["simulation_time"] = took
    events = [
        {"name": what, "ph": "X", "ts": start * 1e6, "dur": (end - start) * 1e6, "pid": 0, "tid": name, "args": {"step": step}}
        for name, step, what, start, end in found.spans
    ]
    ended = Artifact.table("components", [{"name": name, "ended": seconds} for name, seconds in found.ended.items()])
    return Outcome(values, [*made, Artifact.timeline(events), ended])


def _timed(case: Case, way: Way) -> tuple[Simulated, float]:
    """One way, and the CPU seconds of its simulation. The techniques that it belongs to and auto, which plays them all, share it."""
    work: TransportWork = case.workload
    began = time.process_time()
    return way.simulate(work), time.process_time() - began


def _compared(case: Case, rounds: int) -> Compared:
    """Rounds of both engines in turns, which tell auto and the techniques of either engine what they need."""
    from .real.experiment import compared

    return compared(case.workload, rounds)


def _executed(technique: Any, case: Case) -> Outcome:
    from .adios2_bp5 import Adios2Bp5
    from .auto import Auto

    engine = getattr(technique, "engine", "")
    found = case.once(_compared, getattr(technique, "rounds", Adios2Bp5.rounds))
    chosen = engine or min(found.predicted, key=found.predicted.__getitem__)
    error = {name: 100.0 * abs(found.predicted[name] - real) / real for name, real in found.real.items()}
    values = {
        "real_makespan": found.real[chosen],
        "prediction_error": max(error.values()) if isinstance(technique, Auto) else error[chosen],
        "ranking_agrees": float(min(found.predicted, key=found.predicted.__getitem__) == min(found.real, key=found.real.__getitem__)),
        "regret": 100.0 * (found.real[chosen] / min(found.real.values()) - 1.0),
    }
    rows = [{"engine": name, "real": found.real[name], "predicted": found.predicted[name], "ideal": found.ideal} for name in found.real]
    return Outcome(values, [Artifact.table("ranking", rows), Artifact.table("calibration", [found.constants])], noisy=found.noisy)


@transport.answer
def answer(result: Result) -> str:
    """Says which transport finishes first, and how far it is from a perfect one."""
    if "makespan" not in result.metrics:
        return "Ask for the metric makespan to get an answer."
    ranked = {case: found for case in result.cases if (found := result.on(case, "makespan", without={"ideal", "auto"}))}
    if not ranked:
        return "No transport could be played on any of the cases."
    winners = {case: next(iter(found)) for case, found in ranked.items()}
    names = list(winners.values())
    best = max(dict.fromkeys(names), key=names.count)
    won = [case for case, name in winners.items() if name == best]
    where = won[0] if len(ranked) == 1 else f"{len(won)} of {len(ranked)} workflows"
    said = f"{best} finishes first on {where}"
    bound = result.medians("ideal", "makespan")
    over = [ranked[case][winners[case]] / bound[case] for case in ranked if bound.get(case)]
    if over:
        low, high = min(over), max(over)
        said += f"; the first takes {low:.3g}" + (f" to {high:.3g}" if high / low > 1.005 else "")
        said += " times as long as a transport that costs nothing"
    lost = list(dict.fromkeys(name for name in names if name != best))
    return said + (f", and elsewhere the first is {listed(lost)}." if lost else ".")


@transport.plots
def plots(result: Result) -> Sequence[Any]:
    """Makespans and cores by workflow."""
    drawn: list[Any] = []
    for metric, title in (("makespan", "Makespan by transport"), ("core_seconds", "Core-seconds by transport")):
        if metric in result.metrics:
            drawn += result.panels(title, metric, log_y=True)
    return drawn


def _built_in(case: Case, rng: np.random.Generator) -> TransportWork:
    return _work(_workflow(case.parameters["workflow"], case.parameters["scale"]))


def _scaled(case: Case, rng: np.random.Generator) -> TransportWork:
    from .workload import fan

    scale = case.parameters["scale"]
    shape, publish, subscribe = (SCALED if scale == "large" else SMALL_SCALED)[case.parameters["blocks"]]
    return _work(fan(*WIDE[scale], shape, publish, subscribe))


def _real(case: Case, rng: np.random.Generator) -> dict[str, Any]:
    return dict(case.parameters)


def _work(workflow: Workflow, cluster: Cluster | None = None) -> TransportWork:
    from armillary.cluster import preset

    from .workload import TransportWork

    return TransportWork(workflow, cluster or preset("two-clusters-insitu"))


def _workflow(name: str, scale: str) -> Workflow:
    from . import workload

    edge = EDGES[scale]
    if name == "fan":
        publishers, subscribers, side = FANS[scale]
        return workload.fan(publishers, subscribers, (side, side, side))
    if name.startswith("pipeline"):
        return workload.pipeline(edge, wide=name.endswith("wide"))
    if name.startswith("grayscott"):
        return workload.grayscott(edge * (4 if name.endswith("large") else 1), heavy=name.endswith("heavy"))
    return workload.md(dense=name.endswith("dense"))
