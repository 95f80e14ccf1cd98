"""If I submit this job now, when will it start, and can I trust the answer?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from armillary.arena import Arena, Artifact, Case, Constant, InputError, Metric, Outcome, Result, parameter
from armillary.wording import counted, listed

if TYPE_CHECKING:
    import numpy as np

    from armillary.cluster import Cluster

    from .judging.forecaster import Forecaster
    from .workload import WaitWork


def _error(name: str, doc: str, **how: Any) -> Metric:
    """A metric whose kind is that of the waits: simulated on a simulated log, measured on a real one."""
    return Metric(name, kind="by case", steady=True, doc=doc, **how)


waittime = Arena(
    "scheduling/waittime",
    question="If I submit this job now, when will it start, and can I trust the answer?",
    metrics=[
        _error("mae_s", "mean absolute error of the predicted wait", unit="s"),
        _error("median_ae_s", "median absolute error of the predicted wait", unit="s"),
        _error("within_10min", "share of jobs that start within 10 minutes of the prediction", better="higher", scale="difference"),
        _error("mae_ratio", "mean absolute error of the scheduler's plan over that of the technique", better="higher"),
        _error("slowdown_mae", "mean absolute error of the bounded slowdown per processor"),
        _error("coverage_90", "share of waits inside their 90 % interval, which should be 0.9", better=None, scale="difference"),
        _error("pinball_90", "mean pinball loss of both ends of the 90 % interval", unit="s"),
        Metric("predict_us", unit="µs", kind="measured", doc="microseconds per answer, with everything that is known at submission"),
    ],
    techniques={
        "scheduler": ".scheduler:Scheduler",
        "slurm-estimate": ".slurm_estimate:SlurmEstimate",
        "forward-sim": ".forward_sim:ForwardSim",
        "forward-easy": ".forward_easy:ForwardEasy",
        "recent-mean": ".recent_mean:RecentMean",
        "qbets": ".qbets:Qbets",
        "learned-wait": ".learned_wait:LearnedWait",
    },
    papers={"learned-wait": "queue-wait-prediction"},
    baseline="scheduler",
    repeats=1,
    telling=("load-0.7", "load-0.85", "load-0.95", "exact", "shuffled"),
    constants=[
        Constant("jobs", "sizes, run times and arrivals", "", "Lublin and Feitelson, JPDC 2003"),
        Constant("scheduler", "EASY backfilling", "", "Lifka, JSSPP 1995; it looks at 500 queued jobs"),
        Constant("slices", "70 / 15 / 15", "%", "of the jobs in the order of submission: learn, tune, judge"),
        Constant("size classes", "1-4, 5-16, 17-64, more", "nodes", "Brevik, Nurmi and Wolski, IISWC 2006"),
    ],
)  # fmt: skip

JOBS = {"tiny": 600, "small": 8000, "large": 500_000}
MACHINE = "hpc-256"
#: Each case with its kind and load.
CASES = {
    "load-0.7": ("estimates", 0.7),
    "load-0.85": ("estimates", 0.85),
    "load-0.95": ("estimates", 0.95),
    "exact": ("exact", 0.85),
    "shuffled": ("shuffled", 0.85),
}
#: Each case is drawn so many times, because the waits of one log hang together; `compare` shows the first.
DRAWS = {"tiny": 1, "small": 4, "large": 4}
#: Jobs of one log from a file.
MOST_JOBS = 1_000_000
#: Steps of planning that one log may need at the most, some minutes.
MOST_STEPS = 1e12
#: Judged jobs that a result shows one by one.
POINTS = 400


@waittime.cases
def cases(scale: str, cluster: Cluster | None = None) -> Iterator[Case]:
    """Logs of the 2003 batch model under EASY backfilling, at three loads, with exact requests, and with models taught on false waits."""
    for draw in range(1, DRAWS[scale] + 1):
        for name, (kind, load) in CASES.items():
            facts = {"jobs": JOBS[scale], "machine": MACHINE, "load": load, "requests": kind, "policy": "easy"}
            kinds = {kind, "simulated"} | ({"misfit"} if kind == "shuffled" else set())
            yield Case(name if draw == 1 else f"{name}-{draw}", _built_in, facts, frozenset(kinds), cluster=cluster)


@dataclass(frozen=True)
class Reading:
    """How a log is read, and how waits are made where it has none."""

    policy: str = parameter(
        "", "simulates the waits under this policy instead of taking those of the log", choices=("", "fcfs", "easy", "conservative")
    )
    nodes: int = parameter(0, "nodes of the machine; 0 takes what the log says", range=(0, 1 << 24))
    first: int = parameter(0, "takes the first jobs only; 0 takes all", range=(0, MOST_JOBS))
    faster: float = parameter(1.0, "divides the time between submissions, for more load; needs --policy", range=(1e-3, 1e3))
    zone: str = parameter("UTC", "time zone of a Slurm text")

    def validate(self) -> None:
        """Waits of a real log belong to its own load."""
        if self.faster != 1.0 and not self.policy:
            raise InputError("found --faster without --policy; expected a policy that makes the waits at that load", where="--faster")


@waittime.read(Reading)
def read(path: Path, how: Reading) -> WaitWork:
    """Reads a log (SWF, `sacct --parsable2` or jobcomp/filetxt) with its waits, or simulates them."""
    from dataclasses import replace

    import numpy as np

    from armillary.scheduling.queueing.play import with_waits
    from armillary.scheduling.swf import read_jobs

    from .workload import WaitWork, planning_steps

    jobs = read_jobs(path, machine_nodes=how.nodes, zone=how.zone)
    if how.first:
        jobs = jobs.take(slice(0, how.first))
    if len(jobs) > MOST_JOBS:
        raise InputError(f"found {len(jobs):,} jobs; expected at most {MOST_JOBS:,} (choose the first with --first)", where=str(path))
    if how.policy:
        start = float(jobs.submit_s[0]) if len(jobs) else 0.0
        jobs = with_waits(replace(jobs, submit_s=start + (jobs.submit_s - start) / how.faster), how.policy)
    elif not jobs.waits_known:
        raise InputError("found a log without waits; expected waits, or --policy easy to simulate them", where=str(path))
    known = ~np.isnan(jobs.wait_s)
    steps = planning_steps(jobs.take(known))
    if steps > MOST_STEPS:
        said = f"found running and queued jobs for up to {steps:.1g} steps of planning"
        raise InputError(f"{said}; expected at most {MOST_STEPS:.0e} (choose the first jobs with --first)", where=str(path))
    dropped = jobs.dropped + int((~known).sum())
    try:
        return WaitWork(replace(jobs.take(known), dropped=dropped))
    except InputError as error:
        raise InputError(str(error), where=str(path)) from None


@waittime.own_cases
def own_cases(loaded: WaitWork, name: str, how: Reading) -> Iterator[Case]:
    """The log as one case; learned techniques learn from its first 70 %."""
    jobs = loaded.jobs
    facts = {
        "jobs": len(jobs), "nodes": jobs.machine_nodes, "dropped": jobs.dropped, "reordered": jobs.reordered, "policy": how.policy,
        "faster": how.faster,
    }  # fmt: skip
    yield Case(name, _own, facts, frozenset({"file", "simulated" if how.policy else "measured"}))


@waittime.example
def example(folder: Path) -> tuple[Path, dict[str, str]]:
    """Writes a log of 400 jobs on 32 nodes with waits in SWF."""
    from armillary.scheduling.swf import Swf
    from armillary.streams import stream

    from .workload import built_in

    path = folder / "log.swf"
    jobs = built_in(stream(0, "scheduling", "waittime", "example"), "estimates", 400, 32, 0.8)
    path.write_text(Swf.of(jobs, notes=["simulated under EASY backfilling"]).text())
    return path, {}


@waittime.warm_up
def warm_up(technique: Forecaster, case: Case) -> None:
    """Compiles the loops on a few jobs."""
    from dataclasses import replace

    from .features.sweep import known_at_submission

    work: WaitWork = case.workload
    few = replace(work, jobs=work.jobs.take(slice(0, 400)))
    if hasattr(technique, "recipes") and not work.taught:
        known_at_submission(few.log)
    else:
        technique.predictions(few)


@waittime.run
def run(technique: Forecaster, case: Case) -> Outcome:
    """Lets the technique learn, answers for the last 30 % of the jobs, and judges the last 15 %."""
    from armillary.timing import Stopwatch

    from .judging.forecaster import with_intervals
    from .judging.score import scores

    work: WaitWork = case.workload
    learned = technique.learn(work)
    with Stopwatch() as watch:
        predicted = technique.predictions(work, learned)
    judged = work.jobs.take(slice(work.test, len(work)))
    point, low, high = with_intervals(work, predicted)
    found = scores(point, low, high, judged.wait_s, judged.run_s, judged.nodes)
    planned = case.once(_planned_mae)
    # Where everybody is right there is nothing to divide by.
    found["mae_ratio"] = planned / found["mae_s"] if found["mae_s"] > 0 else 1.0
    found["predict_us"] = 1e6 * watch.seconds / (len(work) - work.tune)
    artifacts = [
        Artifact.quantiles("error", abs(point - judged.wait_s), "s"),
        Artifact.table("answers", _answers(judged, point, low, high)),
    ]
    if learned is not None:
        artifacts.append(Artifact.table("model", [{"sha256": learned.digest, "bytes": len(learned.to_bytes()), "seed": learned.seed}]))
    return Outcome(found, artifacts)


def _planned_mae(case: Case) -> float:
    """The mean absolute error of the scheduler's plan on the judged jobs."""
    import numpy as np

    from .scheduler import Scheduler

    work: WaitWork = case.workload
    found = Scheduler().predictions(work).point_s[work.test - work.tune :]
    return float(np.abs(found - work.jobs.wait_s[work.test :]).mean())


def _answers(jobs: Any, point: Any, low: Any, high: Any) -> dict[str, Any]:
    """At most `POINTS` judged jobs with their waits and answers, evenly spread."""
    import numpy as np

    at = np.unique(np.linspace(0, len(jobs) - 1, min(POINTS, len(jobs))).astype(int))
    columns = {"job": jobs.job, "nodes": jobs.nodes, "submit_s": jobs.submit_s, "wait_s": jobs.wait_s, "predicted_s": point, "low_s": low}
    return {name: np.asarray(values)[at] for name, values in (columns | {"high_s": np.minimum(high, 1e12)}).items()}


@waittime.answer
def answer(result: Result) -> str:
    """Names the technique with the smallest mean error, and how that compares with the scheduler's plan."""
    if "mae_s" not in result.metrics:
        return "Ask for the metric mae_s to get an answer."
    ranked = {case: found for case in result.cases if (found := result.on(case, "mae_s"))}
    if not ranked:
        return "No technique could run any of the cases."
    places = [next(iter(found)) for found in ranked.values()]
    best = max(dict.fromkeys(places), key=places.count)
    won = [case for case in ranked if next(iter(ranked[case])) == best]
    said = f"{best} errs least on {won[0] if len(ranked) == 1 else f'{len(won)} of {len(ranked)} cases'}"
    said += f", by {_hours(min(ranked[case][best] for case in won))}"
    worst = max(ranked[case][best] for case in won)
    said += f" to {_hours(worst)}" if _hours(worst) != _hours(min(ranked[case][best] for case in won)) else ""
    said += " on average"
    gains = [ratio for case in won if best != "scheduler" and (ratio := result.ratio(case, "mae_s", best, "scheduler"))]
    if gains:
        low, high = f"{min(gains):.1f}", f"{max(gains):.1f}"
        said += f", {low if low == high else f'{low} to {high}'} times less than the scheduler's plan"
    others = sorted(set(places) - {best})
    return said + (f"; elsewhere it is {listed(others)}" if others else "") + "." + _trust(result, best, won)


def _trust(result: Result, best: str, cases: Sequence[str]) -> str:
    """Whether the intervals of the best technique cover what they promise."""
    if "coverage_90" not in result.metrics:
        return ""
    covered = [found[best] for case in cases if best in (found := result.on(case, "coverage_90"))]
    if not covered:
        return ""
    low, high = (f"{100 * end:.0f}" for end in (min(covered), max(covered)))
    return f" Its 90 % intervals cover {low if low == high else f'{low} to {high}'} % of the waits."


def _hours(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 600 else f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


@waittime.plots
def plots(result: Result) -> Sequence[Any]:
    """Errors by case, coverage, and predicted against real waits."""
    drawn: list[Any] = []
    for metric, title in (
        ("mae_s", "Mean absolute error"),
        ("median_ae_s", "Median absolute error"),
        ("coverage_90", "Covered by 90 % intervals"),
    ):
        if metric in result.metrics:
            drawn += result.panels(title, metric, log_y=metric != "coverage_90")
    return drawn + _scatter(result)


def _scatter(result: Result) -> list[Any]:
    """Predicted waits by real ones, as medians over tenths of the jobs, one panel per case."""
    import numpy as np

    from armillary.figures import panels

    lines: dict[str, dict[str, list[tuple[float | str, float]]]] = {}
    for case in result.cases:
        for technique in result.techniques:
            rows = result.artifact_rows(technique, case, "answers")
            if not rows:
                continue
            wait, found = (np.array([float(row[name]) for row in rows]) for name in ("wait_s", "predicted_s"))
            order = np.argsort(wait, kind="stable")
            tenths = [part for part in np.array_split(order, 10) if len(part)]
            points = [(float(np.median(wait[part])) + 1.0, float(np.median(found[part])) + 1.0) for part in tenths]
            lines.setdefault(case, {})[technique] = [(x, y) for x, y in points]
    title = "Predicted against real waits, medians of tenths of the jobs"
    return [panels(lines, title, "wait + 1 s", "predicted wait + 1 s", log_x=True, log_y=True)] if lines else []


def _built_in(case: Case, rng: np.random.Generator) -> WaitWork:
    from armillary.cluster import preset

    from .workload import TAUGHT_NODES, WaitWork, built_in

    p = case.parameters
    cluster = case.cluster if case.cluster is not None else preset(p["machine"])
    nodes = int(cluster.groups[0].count)
    if nodes < 8:
        raise InputError(f"found {counted(nodes, 'node')}; expected at least 8", where="cluster")
    # The shipped models know the machine that they were taught on; on another one a technique learns from the log itself.
    taught = p["requests"] if nodes == TAUGHT_NODES or p["requests"] == "shuffled" else ""
    return WaitWork(built_in(rng, p["requests"], p["jobs"], nodes, p["load"], p["policy"]), taught)


def _own(case: Case, rng: np.random.Generator) -> WaitWork:
    work: WaitWork = case.loaded
    return work
