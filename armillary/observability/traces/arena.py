"""Across these GPUs, how much time is lost to imbalance, to transfers, to the host not feeding the device, and where?"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from armillary.arena import Arena, Artifact, Case, Constant, Metric, NotForThisCase, Outcome, Result, parameter

if TYPE_CHECKING:
    import numpy as np

    from .attribution import Attribution
    from .run.model import Run
    from .workload import TraceWork

PLANTED, MISFIT, CONVERSION, TRUE, READ = map(frozenset, (["planted"], ["misfit"], ["conversion"], ["true"], ["read"]))
JUDGED: dict[str, Any] = {"kind": "measured", "steady": True}

traces = Arena(
    "observability/traces",
    question="Across these GPUs, how much time is lost to imbalance, to transfers, to the host not feeding the device, and where?",
    metrics=[
        Metric(
            "attribution_error", unit="points", scale="difference", on=TRUE, **JUDGED,
            doc="mean absolute difference between planted and reported loss (or change) per cause, in percentage points",
        ),
        Metric(
            "cause_found", better="higher", scale="difference", on=TRUE, **JUDGED,
            doc="whether the planted main cause (or change) is named first; where nothing was planted, whether nothing is named",
        ),
        Metric(
            "beyond_doubt", unit="points", scale="difference", on=MISFIT, **JUDGED,
            doc="by how much the error in imbalance and communication that wrong clocks cause exceeds the reported uncertainty",
        ),
        Metric("wrong_names", scale="difference", on=MISFIT, **JUDGED, doc="causes that are named although less than 3 % was planted"),
        Metric("events_per_s", better="higher", kind="measured", on=CONVERSION, doc="events that are read, merged and written as Paraver"),
        Metric("bytes_per_event", kind="measured", steady=True, on=CONVERSION, unit="B", doc="of Paraver's three files"),
        Metric(
            "peak_memory", unit="MB per million events", kind="measured", on=CONVERSION,
            doc="the most memory that a conversion takes beyond what the process had",
        ),
        Metric("lost", better=None, scale="difference", on=READ, **JUDGED, doc="share of the device time that is reported as lost"),
        Metric("planted", better=None, kind="simulated", scale="difference", on=TRUE, doc="planted share of the time, or its change"),
    ],
    techniques={
        "nsys2prv": ".nsys2prv:Nsys2prv", "stats": ".stats:Stats", "busy": ".busy:Busy", "breakdown": ".breakdown:Breakdown",
        "compare": ".compare:Compare",
    },
    papers={"nsys2prv": "nsys2prv"},
    baseline="breakdown",
    repeats=1,
    telling=("single-*-1", "two-*", "decoy-*-1", "drift-1", "changed-*", "conversion-1"),
    constants=[
        Constant("launch latency", 1.5, "us", "from the end of a launching call to the earliest start on the device (ours)"),
        Constant("call", 2.0, "us", "that a call takes on the host (ours)"),
        Constant("leaving", 0.3, "us", "how much later ranks leave a collective, mean (ours)"),
        Constant("clock error", 250, "us", "of each node, at most (the spec's test)"),
        Constant("launch gap", 20, "us", "below which what is left of a gap is put down to the launch (the spec's)"),
    ],
)  # fmt: skip

CAUSES = ("imbalance", "transfers", "communication", "launch", "host", "sync")
DECOYS = ("hidden-communication", "hidden-copies", "patient-host", "two-streams")
PAIRS = (
    ("imbalance", "transfers"), ("host", "imbalance"), ("communication", "host"), ("transfers", "launch"), ("sync", "communication"),
    ("launch", "imbalance"),
)  # fmt: skip
CHANGES = ("kernel", "kernel", "kernel", "imbalance", "transfers", "host")
#: Ranks, iterations, and kernels per iteration.
SIZES = {"tiny": (4, 4, 30), "small": (8, 10, 120), "large": (64, 20, 120)}
CONVERTED = {"tiny": (4, 4, 40), "small": (64, 10, 120), "large": (1024, 200, 118)}
TINY = {"single-imbalance-1", "single-launch-1", "two-1", "decoy-hidden-copies-1", "drift-1", "changed-1-kernel", "conversion-1"}
#: Parts per million by which clocks drift in misfit cases: in the 60 ms of a built-in run as much as 20 ppm do in some seconds.
DRIFT_PPM = 2_000.0


@traces.cases
def cases(scale: str) -> Iterator[Case]:
    """A planted cause at a time, two at once, decoys without any loss, clocks that drift, changes between two runs, and conversions."""
    return (case for case in _every(scale) if scale != "tiny" or case.name in TINY)


def _every(scale: str) -> Iterator[Case]:
    size = dict(zip(("ranks", "iterations", "kernels"), SIZES[scale]))
    known = {"planted", "true", "read"}
    for cause in CAUSES:
        for draw in (1, 2):
            more = {"by_mpi": cause == "imbalance" and draw == 2, "form": "kineto" if cause == "transfers" and draw == 2 else "nsys"}
            yield Case(f"single-{cause}-{draw}", _planted, {**size, "causes": [cause], **more}, frozenset(known | {"single"}))
    for number, pair in enumerate(PAIRS, 1):
        yield Case(f"two-{number}", _planted, {**size, "causes": list(pair)}, frozenset(known | {"two"}))
    for decoy in DECOYS:
        for draw in (1, 2):
            yield Case(f"decoy-{decoy}-{draw}", _planted, {**size, "causes": [], "decoy": decoy}, frozenset(known | {"decoy"}))
    for draw, cause in enumerate(("host", "transfers", "launch", "sync"), 1):
        facts = {**size, "causes": [cause], "drift_ppm": DRIFT_PPM}
        yield Case(f"drift-{draw}", _planted, facts, frozenset({"misfit", "true", "read"}))
    for number, change in enumerate(CHANGES, 1):
        yield Case(f"changed-{number}-{change}", _changed, {**size, "change": change}, frozenset({"changed", "true"}))
    converted = dict(zip(("ranks", "iterations", "kernels"), CONVERTED[scale]))
    for draw in range(1, 5):
        yield Case(f"conversion-{draw}", _conversion, dict(converted), CONVERSION)


@dataclass(frozen=True)
class Reading:
    """How a run is read."""

    region: str = parameter("", "look at the ranges of NVTX with this name only, such as step")
    before: str = parameter("", "an earlier run of the same program, file or folder, to compare with", file=True)


@traces.read(Reading, folders=True)
def read(path: Path, how: Reading) -> TraceWork:
    """Reads an export of Nsight Systems (SQLite), a trace of PyTorch's profiler, or a folder with those of all processes."""
    from .analysis.regions import region_of
    from .readers.reading import read_run
    from .workload import TraceWork

    run = read_run(path, align=False)
    before = read_run(how.before, align=False) if how.before else None
    for one in (run, before):
        if one is not None and how.region:
            region_of(one, how.region)
    return TraceWork(run, before=before, region=how.region)


@traces.own_cases
def own_cases(loaded: TraceWork, name: str, how: Reading) -> Iterator[Case]:
    """The run; and the change from the earlier run where one is given."""
    del how
    clean = "".join(c if c.isprintable() and c != "|" else "?" for c in name) or "run"
    yield Case(clean, kinds=frozenset({"file", "read"}))
    if loaded.before is not None:
        yield Case(f"{clean}, changed", kinds=frozenset({"file", "changed"}))


@traces.example
def example(folder: Path) -> Path:
    """Writes the exports of two small processes whose host keeps the devices waiting."""
    import numpy as np

    from .synthesis.exports import write_exports
    from .synthesis.programs import Design, simulated
    from .workload import clocks_of

    program = simulated(Design(ranks=2, iterations=3, kernels=6, host=500_000.0), 7)
    (reports := folder / "reports").mkdir()
    write_exports(program, reports, clocks_of(2, np.random.Generator(np.random.PCG64DXSM(7))))
    return reports


@traces.warm_up
def warm_up(technique: Any, case: Case) -> None:
    """Compiles the loops with a tiny run."""
    from .synthesis.exports import Clock, write_exports
    from .synthesis.programs import Design, simulated
    from .workload import recorded

    program = simulated(Design(ranks=2, iterations=2, kernels=4, overlapped_copies=1e4), 1)
    clocks = (Clock(), Clock(5, 7))
    if "conversion" in case.kinds:
        if not hasattr(technique, "convert"):
            return
        with tempfile.TemporaryDirectory(prefix="armillary-traces-") as room:
            technique.convert(write_exports(program, Path(room), clocks), Path(room) / "out")
        return
    run = recorded(program, clocks)
    _ = technique.explain(run, run) if "changed" in case.kinds else technique.attribute(run)


@traces.run
def run(technique: Any, case: Case) -> Outcome | NotForThisCase:
    """Lets a technique say where a run lost its time, what changed between two, or lets it convert one."""
    work: TraceWork = case.workload
    if "conversion" in case.kinds:
        return _converted(technique, work) if hasattr(technique, "convert") else NotForThisCase("writes no traces")
    if "changed" in case.kinds:
        return _explained(technique, work)
    if not hasattr(technique, "attribute"):
        return NotForThisCase("compares two runs; name the earlier one with --before")
    return _attributed(technique, case, work)


def _attributed(technique: Any, case: Case, work: TraceWork) -> Outcome:
    from .workload import LEAST, errors

    assert work.run is not None
    found: Attribution = technique.attribute(work.run) if not work.region else _of_region(technique, work)
    values = {"lost": float(sum(found.shares.values()))}
    if work.truth is not None:
        wrong = errors(found.shares, work.truth.shares)
        values |= {"attribution_error": sum(wrong.values()) / len(wrong), "cause_found": float(found.main == work.truth.main)}
        values["planted"] = float(sum(work.truth.shares.values()))
    if "misfit" in case.kinds:
        assert work.truth is not None
        assert work.perfect is not None
        perfect = technique.attribute(work.perfect)
        off = max(abs(found.shares.get(cause, 0.0) - perfect.shares.get(cause, 0.0)) for cause in ("imbalance", "communication"))
        values["beyond_doubt"] = 100.0 * max(0.0, off - (1.0 if found.uncertainty is None else found.uncertainty))
        values["wrong_names"] = float(sum(work.truth.shares[cause] < LEAST for cause in found.named))
    return Outcome(values, _artifacts(technique, case, work, found))


def _of_region(technique: Any, work: TraceWork) -> Attribution:
    """What the published technique says of a region; others look at whole runs."""
    if not hasattr(technique, "attribute_region"):
        raise NotForThisCase("looks at whole runs, not at regions")
    found: Attribution = technique.attribute_region(work.run, work.region)
    return found


def _explained(technique: Any, work: TraceWork) -> Outcome:
    from .workload import errors

    assert work.run is not None
    assert work.before is not None
    found = technique.explain(work.before, work.run)
    values: dict[str, float] = {}
    if work.truth is not None:
        wrong = errors(found.shares, work.truth.shares)
        values = {"attribution_error": sum(wrong.values()) / len(wrong), "cause_found": float(found.main == work.truth.main)}
        values["planted"] = float(sum(work.truth.shares.values()))
    rows = [{"what": what, "points": 100.0 * share, "main": found.main} for what, share in found.shares.items()]
    artifacts = [Artifact.table("change", rows)]
    if hasattr(technique, "compare"):
        artifacts.append(Artifact.table("differences", technique.compare(work.before, work.run).table))
    return Outcome(values, artifacts)


def _converted(technique: Any, work: TraceWork) -> Outcome:
    from .memory import Peak
    from .synthesis.exports import write_exports

    assert work.program is not None
    with tempfile.TemporaryDirectory(prefix="armillary-traces-") as room:
        reports = write_exports(work.program, Path(room), work.clocks)
        with Peak() as peak:
            begin = time.perf_counter()
            events, written = technique.convert(reports, Path(room) / "run")
            spent = time.perf_counter() - begin
    values = {"events_per_s": events / spent, "bytes_per_event": written / events, "peak_memory": peak.bytes / 1e6 / (events / 1e6)}
    return Outcome(values)


def _artifacts(technique: Any, case: Case, work: TraceWork, found: Attribution) -> list[Artifact]:
    """Losses by cause, and for a user's run also those by device, the efficiencies, notes, and the run as a timeline."""
    truth = work.truth.shares if work.truth is not None else {}
    rows = [{"cause": cause, "share": found.shares.get(cause, 0.0), "planted": truth.get(cause)} for cause in CAUSES]
    made = [Artifact.table("causes", rows)]
    if "file" not in case.kinds or not hasattr(technique, "convert"):
        return made
    from .analysis.aligning import aligned
    from .analysis.lost import lost

    assert work.run is not None
    run = aligned(work.run)
    made.append(Artifact.table("devices", lost(run, region=work.region or None).frame()))
    facts = {
        "computing": found.useful, "elapsed_s": found.elapsed_ns / 1e9, "doubt": found.uncertainty, "events": len(run),
        "nodes": len({one.host for one in run.processes}), "processes": len(run.processes),
        "efficiency": str(run.efficiency(work.region or None)), "notes": " ".join(run.notes), "named": " ".join(found.named),
    }  # fmt: skip
    made.append(Artifact.table("run", [facts]))
    return made + _timeline(run)


def _timeline(run: Run) -> list[Artifact]:
    """The run for Perfetto, where it is small enough to be kept."""
    if len(run) > 30_000:
        return []
    with tempfile.TemporaryDirectory(prefix="armillary-traces-") as room:
        run.to_chrome(Path(room) / "timeline.json")
        data = (Path(room) / "timeline.json").read_bytes()
    return [Artifact("timeline.json", "application/json", data)] if len(data) < 1 << 24 else []


@traces.answer
def answer(result: Result) -> str:
    """Says where a user's run lost its time, or who finds most of what is planted."""
    own = [case for case, facts in result.cases.items() if "file" in facts["kinds"]]
    if own:
        return "\n".join(_about_run(result, case) if "read" in result.cases[case]["kinds"] else _about_change(result, case) for case in own)
    if "cause_found" not in result.metrics:
        return "Ask for the metric cause_found to get an answer."
    planted = [case for case, facts in result.cases.items() if "planted" in facts["kinds"]]
    found = {}
    for name in result.techniques:
        right, wrong = result.medians(name, "cause_found"), result.medians(name, "attribution_error")
        mine = [case for case in planted if case in right]
        if mine:
            error = sum(wrong.get(case, 0.0) for case in mine) / len(mine)
            found[name] = (sum(right[case] for case in mine) / len(mine), -error, len(mine))
    if not found:
        return "No technique looked at a run with a planted cause."
    best, *others = sorted(found, key=lambda name: found[name], reverse=True)
    share, error, many = found[best]
    said = f"{best} names the planted cause first in {100 * share:.0f} % of {many} runs, and its shares are {-error:.1f} points off"
    if others:
        said += f"; {others[0]} does in {100 * found[others[0]][0]:.0f} %, {-found[others[0]][1]:.1f} points off"
    return said + "."


def _about_run(result: Result, case: str) -> str:
    """Where one run lost its time, in words."""
    name = next((one for one in result.techniques if result.artifact_rows(one, case, "run")), "")
    if not name:
        return f"{case}: ask for nsys2prv, which says where the time went."
    facts, devices = result.artifact_rows(name, case, "run")[0], result.artifact_rows(name, case, "devices")
    shares = {row["cause"]: row["share"] for row in result.artifact_rows(name, case, "causes")}
    said = (
        f"{case}: {len(devices)} devices of {facts['processes']} processes on {facts['nodes']} nodes computed during "
        f"{100 * facts['computing']:.0f} % of {facts['elapsed_s']:.3g} s."
    )
    named = str(facts["named"] or "").split()
    for cause in named:
        worst = max(devices, key=lambda row: row[cause])
        said += f" They lost {100 * shares[cause]:.0f} % to {WORDS[cause]}, most on {worst['device']} ({100 * worst[cause]:.0f} %)."
    if not named:
        said += " No cause took 3 % of the time or more."
    if facts["doubt"] is None:
        said += " The reports' clocks could not be compared, so that imbalance and communication are not told apart."
    elif facts["doubt"] >= 0.01:
        said += f" Because of the clocks, imbalance and communication may be wrong by {100 * facts['doubt']:.0f} points."
    return f"{said} {facts['notes'] or ''}".rstrip()


WORDS = {
    "imbalance": "waiting for slower devices", "transfers": "copies that nothing hides",
    "communication": "communication that nothing hides",
    "launch": "launching kernels", "host": "the host's own work", "sync": "waiting for the device on the host",
}  # fmt: skip


def _about_change(result: Result, case: str) -> str:
    rows = result.artifact_rows("compare", case, "differences") if "compare" in result.techniques else []
    if not rows:
        return f"{case}: ask for compare, which says what changed."
    change = sum(float(row["change_us"]) for row in rows)
    most = "; ".join(f"{row['what']} {float(row['change_us']):+,.0f} µs" + (f" ({row['note']})" if row["note"] else "") for row in rows[:3])
    return f"{case}: the run takes {change:+,.0f} µs compared with the earlier one. What changed most: {most}."


@traces.plots
def plots(result: Result) -> Sequence[Any]:
    """Errors, causes found, and speed by case."""
    drawn: list[Any] = []
    titles = {"attribution_error": "Error of attribution", "cause_found": "Cause named first", "lost": "Share reported as lost"}
    for metric, title in titles.items():
        if metric in result.metrics:
            drawn += result.panels(title, metric)
    return drawn


def _planted(case: Case, rng: np.random.Generator) -> TraceWork:
    from .workload import planted_run

    return planted_run(case.parameters, rng)


def _changed(case: Case, rng: np.random.Generator) -> TraceWork:
    from .workload import changed_runs

    return changed_runs(case.parameters, rng)


def _conversion(case: Case, rng: np.random.Generator) -> TraceWork:
    from .workload import conversion

    return conversion(case.parameters, rng)
