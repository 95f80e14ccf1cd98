"""Which queueing policy gives jobs short waits and keeps the parallel file system from choking?"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from armillary.arena import Arena, Artifact, Case, Constant, InputError, Metric, Outcome, Result, parameter
from armillary.wording import counted, listed

if TYPE_CHECKING:
    import numpy as np

    from armillary.cluster import Cluster

    from .simulation.policy import Policy
    from .workload import BatchWork

batch = Arena(
    "scheduling/batch",
    question="Which queueing policy gives my jobs short waits and keeps my parallel file system from choking?",
    metrics=[
        Metric("io_slowdown", scale="ratio", doc="I/O time of all jobs over what it would be if each were alone, less 1"),
        Metric("turnaround_mean_s", unit="s", doc="mean seconds from submission to end"),
        Metric("wait_mean_s", unit="s", doc="mean seconds from submission to start"),
        Metric("wait_p95_s", unit="s", doc="wait that 5 % of the jobs exceed"),
        Metric("bounded_slowdown", doc="mean of turnaround over run time, runs of less than 10 s counted as 10 s"),
        Metric("makespan_s", unit="s", doc="seconds from the first submission to the last end"),
        Metric("node_utilisation", better="higher", scale="difference", doc="share of node-seconds until the last end that jobs held"),
        Metric("fairness", better="higher", doc="1 less the mean share of the queue that was older than a job when the job started"),
        Metric("overruns", better="lower", scale="difference", doc="jobs that passed their requested time because of contention"),
        Metric("promise_error", scale="difference", doc="|promised - delivered| / delivered I/O time; without a promise, no contention"),
        Metric("decisions_per_s", unit="1/s", better="higher", kind="measured", doc="decisions per second of the whole simulation"),
    ],
    techniques={
        "fcfs": ".fcfs:Fcfs",
        "easy": ".easy:Easy",
        "conservative": ".conservative:Conservative",
        "sjf-easy": ".sjf_easy:SjfEasy",
        "bandwidth-license": ".bandwidth_license:BandwidthLicense",
        "peak-license": ".peak_license:PeakLicense",
        "equilibrio": ".equilibrio:EquilibrIO",
        "equilibrio-eager": ".equilibrio_eager:EquilibrIOEager",
    },
    papers={"equilibrio": "equilibrio", "equilibrio-eager": "equilibrio"},
    baseline="easy",
    tradeoff=("turnaround_mean_s", "io_slowdown"),
    repeats=1,
    telling=("calm", "tidal", "storm", "tidal-history", "tidal-quarter-random", "tidal-quarter-heaviest", "tidal-false"),
    constants=[
        Constant("sizes and run times", "two-stage log-uniform, hyper-gamma", "", "Lublin and Feitelson, JPDC 2003"),
        Constant("arrivals", "gamma, daily cycle of 48 half hours", "", "Lublin and Feitelson, JPDC 2003"),
        Constant("load", 0.85, "", "node-seconds of all jobs over those of the machine between the first and last submission (ours)"),
        Constant("data-intensive", 0.30, "of node-seconds", "held by executables with duty 0.8 · Beta(2, 3) (ours)"),
        Constant("I/O phase", 1800, "s", "of a run per phase (ours)"),
        Constant("file system", "0.2, 0.4, 0.5", "", "mean utilisation of calm, tidal and storm, which sets its capacity (ours)"),
    ],
)  # fmt: skip

JOBS = {"tiny": 300, "small": 3000, "large": 200_000}
MACHINE = {"tiny": "hpc-256", "small": "hpc-256", "large": "hpc-4096"}
LOAD = 0.85
#: Each case with the mean utilisation of its file system, and what is known about the jobs.
CASES = {
    "calm": (0.2, "told"),
    "tidal": (0.4, "told"),
    "storm": (0.5, "told"),
    "tidal-history": (0.4, "history"),
    "tidal-quarter-random": (0.4, "quarter-random"),
    "tidal-quarter-heaviest": (0.4, "quarter-heaviest"),
    "tidal-false": (0.4, "false"),
}
#: Each case is drawn so many times, because one draw of executables is one machine's users; `compare` shows the first.
DRAWS = {"tiny": 1, "small": 4, "large": 4}
#: Jobs of one simulation from a file.
MOST_JOBS = 1_000_000
#: The frontier of fairness is drawn for work up to this size.
FRONTIER_JOBS = 20_000


@batch.cases
def cases(scale: str, cluster: Cluster | None = None) -> Iterator[Case]:
    """Jobs of the 2003 batch model with I/O, from calm to storm, and with less or false knowledge about it."""
    for draw in range(1, DRAWS[scale] + 1):
        for name, (target, knowledge) in CASES.items():
            facts = {"jobs": JOBS[scale], "machine": MACHINE[scale], "load": LOAD, "io_load": target, "knowledge": knowledge}
            kinds = {name if knowledge == "told" else knowledge} | ({"misfit"} if knowledge == "false" else set())
            yield Case(name if draw == 1 else f"{name}-{draw}", _built_in, facts, frozenset(kinds), cluster=cluster)


@dataclass(frozen=True)
class Reading:
    """How a log is replayed, and what is known about the I/O of its jobs."""

    io: str = parameter(
        "", "I/O of jobs: a table job,bytes_read,bytes_written,io_time_s[,phases], or a folder of Darshan totals", file=True
    )
    capacity_gb: float = parameter(0.0, "GB per second of the file system; needed with --io", range=(0.0, 1e9))
    io_load: float = parameter(0.0, "gives a log without I/O built-in I/O at this mean utilisation of the file system", range=(0.0, 0.95))
    knowledge: str = parameter(
        "told", "what policies know about I/O", choices=("told", "history", "quarter-random", "quarter-heaviest", "false", "none")
    )
    nodes: int = parameter(0, "nodes of the machine; 0 takes what the log says", range=(0, 1 << 24))
    link_gb: float = parameter(12.5, "GB per second of one node, for built-in I/O", range=(1e-6, 1e6))
    faster: float = parameter(1.0, "divides the time between submissions, for more load", range=(1e-3, 1e3))
    first: int = parameter(0, "replays the first jobs only; 0 takes all", range=(0, MOST_JOBS))
    zone: str = parameter("UTC", "time zone of a Slurm text")
    kill_at_limit: bool = parameter(False, "whether a job ends at its requested time")

    def validate(self) -> None:
        """I/O comes from a file or is built in, and a file needs a capacity."""
        if self.io and self.io_load:
            raise InputError("found both --io and --io-load; expected one of them", where="--io-load")
        if bool(self.io) != (self.capacity_gb > 0):
            raise InputError(
                "found --io without --capacity-gb; expected the file system's rate" if self.io
                else "found --capacity-gb without --io; expected both", where="--capacity-gb",
            )  # fmt: skip


@batch.read(Reading)
def read(path: Path, how: Reading) -> BatchWork:
    """Reads a log (SWF, `sacct --parsable2` or jobcomp/filetxt) and, beside it, the I/O of its jobs."""
    from dataclasses import replace

    import numpy as np

    from armillary.scheduling.swf import read_jobs

    from .readers.io_files import read_io
    from .workload import with_io, without_io

    jobs = read_jobs(path, machine_nodes=how.nodes, zone=how.zone)
    if how.first:
        jobs = jobs.take(slice(0, how.first))
    if not len(jobs):
        raise InputError(f"found no job that ran ({counted(jobs.dropped, 'job')} without a run time or a size)", where=str(path))
    if len(jobs) > MOST_JOBS:
        raise InputError(f"found {len(jobs):,} jobs; expected at most {MOST_JOBS:,} (choose the first with --first)", where=str(path))
    start = float(jobs.submit_s[0])
    jobs = replace(jobs, submit_s=start + (jobs.submit_s - start) / how.faster)
    if not how.io:
        return without_io(jobs, kill_at_limit=how.kill_at_limit)
    io = read_io(how.io)
    if not np.isin(list(io.moved), jobs.job).any():
        raise InputError(f"found {counted(len(io), 'job')}, none of which is in the log; expected its job numbers", where=how.io)
    return with_io(jobs, io, how.capacity_gb * 1e9, kill_at_limit=how.kill_at_limit)


@batch.own_cases
def own_cases(loaded: BatchWork, name: str, how: Reading) -> Iterator[Case]:
    """The log as one case."""
    jobs = loaded.jobs
    facts = {
        "jobs": len(jobs), "nodes": jobs.machine_nodes, "dropped": jobs.dropped, "reordered": jobs.reordered,
        "jobs_with_io": int((loaded.duty > 0).sum()), "io_load": how.io_load, "knowledge": how.knowledge, "link_gb": how.link_gb,
        "capacity_gb": how.capacity_gb, "faster": how.faster, "kill_at_limit": how.kill_at_limit,
    }  # fmt: skip
    yield Case(name, _own, facts, frozenset({"file"}))


@batch.example
def example(folder: Path) -> tuple[Path, dict[str, str]]:
    """Writes a log of 120 jobs on 16 nodes in SWF, and the I/O of every third of them."""
    import numpy as np

    from armillary.scheduling.swf import Jobs, Swf
    from armillary.streams import stream

    rng = stream(0, "scheduling", "batch", "example")
    count = 120
    run = np.round(rng.uniform(60, 3600, count))
    jobs = Jobs.of(
        np.cumsum(np.round(rng.exponential(450, count))), run, 2 ** rng.integers(0, 4, count), requested_s=np.ceil(run / 900) * 1800,
        machine_nodes=16, user=rng.integers(1, 6, count), executable=rng.integers(1, 9, count), status=np.ones(count, int), epoch_s=1.7e9,
    )  # fmt: skip
    path = folder / "log.swf"
    path.write_text(Swf.of(jobs, notes=["made by hand"]).text())
    rows = ["job,bytes_read,bytes_written,io_time_s,phases"]
    for i in range(0, count, 3):
        seconds = round(0.4 * float(run[i]), 1)
        rows.append(f"{jobs.job[i]},{int(2e8 * seconds * jobs.nodes[i])},{int(3e8 * seconds * jobs.nodes[i])},{seconds},{1 + i % 4}")
    (folder / "log.io.csv").write_text("\n".join(rows) + "\n")
    return path, {"io": str(folder / "log.io.csv"), "capacity_gb": "4"}


@batch.warm_up
def warm_up(technique: Policy, case: Case) -> None:
    """Compiles the loop on a few jobs."""
    from armillary.streams import stream

    from .workload import model_jobs, without_io

    technique.play(without_io(model_jobs(stream(0, "warm-up"), 20, 64)))


@batch.run
def run(technique: Policy, case: Case) -> Outcome:
    """Plays the case's jobs under the policy."""
    from .analysis.frontier import frontier
    from .equilibrio import EquilibrIO
    from .simulation.replay import metrics

    work: BatchWork = case.workload
    played = technique.play(work)
    artifacts = [Artifact.quantiles("wait", played.wait_s, "s")]
    if type(technique) is EquilibrIO and len(work) <= FRONTIER_JOBS and work.capacity < math.inf:
        artifacts.append(Artifact.table("frontier", frontier(work)))
    return Outcome(metrics(played), artifacts)


@batch.answer
def answer(result: Result) -> str:
    """Names the policy with the shortest turnaround, and what the least I/O slowdown costs."""
    if "turnaround_mean_s" not in result.metrics or "io_slowdown" not in result.metrics:
        return "Ask for the metrics turnaround_mean_s and io_slowdown to get an answer."
    ranked = {case: found for case in result.cases if (found := result.on(case, "turnaround_mean_s"))}
    if not ranked:
        return "No technique could run any of the cases."
    if all(max(found.values()) <= 1.005 * min(found.values()) for found in ranked.values()):
        return f"The policies hardly differ in mean turnaround.{_calmest(result, list(ranked))}"
    places = [next(iter(found)) for found in ranked.values()]
    best = max(dict.fromkeys(places), key=places.count)
    won = [case for case, found in ranked.items() if next(iter(found)) == best]
    said = f"{best} has the shortest mean turnaround on {won[0] if len(ranked) == 1 else f'{len(won)} of {len(ranked)} cases'}"
    gains = [ratio for case in won if best != "easy" and (ratio := result.ratio(case, "turnaround_mean_s", best, "easy"))]
    if gains:
        low, high = f"{min(gains):.2f}", f"{max(gains):.2f}"
        said += f", by a factor of {low if low == high else f'{low} to {high}'} over easy"
    others = sorted(set(places) - {best})
    said += (f"; elsewhere it is {listed(others)}" if others else "") + "."
    return said + _calmest(result, list(ranked))


def _calmest(result: Result, cases: Sequence[str]) -> str:
    """Which policy disturbs I/O least, and what that costs in turnaround, on the case with the most contention."""
    worst = max(cases, key=lambda case: max(result.on(case, "io_slowdown").values(), default=0.0))
    slowdowns, turnarounds = result.on(worst, "io_slowdown"), result.on(worst, "turnaround_mean_s")
    if not slowdowns or max(slowdowns.values()) < 0.005:
        return " I/O hardly contends."
    calmest = next(iter(slowdowns))
    said = f" On {worst}, {calmest} slows I/O down least, by {100 * slowdowns[calmest]:.0f} %"
    if "easy" in slowdowns and calmest != "easy":
        said += f" instead of {100 * slowdowns['easy']:.0f} % with easy"
        said += f", at {turnarounds[calmest] / turnarounds['easy']:.2f} times its turnaround"
    return said + "."


@batch.plots
def plots(result: Result) -> Sequence[Any]:
    """I/O slowdown, turnaround and wait by case, and what fairness costs."""
    drawn: list[Any] = []
    for metric, title in (("io_slowdown", "I/O slowdown"), ("turnaround_mean_s", "Mean turnaround"), ("wait_p95_s", "95 % of waits")):
        if metric in result.metrics:
            drawn += result.panels(title, metric, log_y=metric != "io_slowdown")
    return drawn + _frontiers(result)


def _frontiers(result: Result) -> list[Any]:
    """I/O slowdown against mean wait over fairness, with both licences as points; one panel per case."""
    from armillary.figures import panels

    lines: dict[str, dict[str, list[tuple[float | str, float]]]] = {}
    for case in result.cases:
        for row in result.artifact_rows("equilibrio", case, "frontier") if "equilibrio" in result.techniques else []:
            lines.setdefault(case, {}).setdefault(str(row["policy"]), []).append((float(row["wait_mean_s"]), float(row["io_slowdown"])))
    title = "Fairness from 0 to 1: I/O slowdown against mean wait"
    return [panels(lines, title, "mean wait (s)", "I/O slowdown", log_x=True)] if lines else []


def _built_in(case: Case, rng: np.random.Generator) -> BatchWork:
    from armillary.cluster import preset

    from .workload import link_of, model_jobs, tidal_work

    p = case.parameters
    nodes, link = link_of(case.cluster if case.cluster is not None else preset(p["machine"]))
    return tidal_work(rng, model_jobs(rng, p["jobs"], nodes, p["load"]), link, p["io_load"]).knowing(p["knowledge"], rng)


def _own(case: Case, rng: np.random.Generator) -> BatchWork:
    from dataclasses import replace

    from .workload import tidal_work

    work: BatchWork = case.loaded
    p = case.parameters
    if p["io_load"]:
        work = replace(tidal_work(rng, work.jobs, 1e9 * p["link_gb"], p["io_load"]), kill_at_limit=p["kill_at_limit"])
    return work.knowing(p["knowledge"], rng)
