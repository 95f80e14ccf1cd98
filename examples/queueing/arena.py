"""Which order of jobs on one machine lets people wait least?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from armillary.arena import Arena, Artifact, Case, Metric, Outcome, Result, parameter
from armillary.files import Column, read_table

queueing = Arena(
    "examples/queueing",
    question="Which order of jobs on one machine lets people wait least?",
    metrics=[
        Metric("mean_wait", unit="s", better="lower", kind="simulated", doc="from a job's arrival until it starts"),
        Metric("longest_wait", unit="s", better="lower", kind="simulated", doc="of the job that waits longest"),
    ],
    techniques={"fcfs": ".fcfs:Fcfs", "shortest-first": ".shortest_first:ShortestFirst"},
    baseline="fcfs",
)
JOBS = {"tiny": 50, "small": 2000, "large": 100_000}


@dataclass(frozen=True)
class Jobs:
    """Jobs in order of arrival: when each arrives and how long it runs, float64[jobs] in seconds."""

    arrival_s: np.ndarray
    length_s: np.ndarray


@queueing.cases
def cases(scale: str) -> Iterator[Case]:
    """Jobs with exponential lengths of one second on average, at three loads."""
    for load in (0.5, 0.8, 0.95):
        yield Case(f"load-{load}", make, {"load": load, "jobs": JOBS[scale]}, frozenset({"random"}))


def make(case: Case, rng: np.random.Generator) -> Jobs:
    """Poisson arrivals at `load` jobs per second."""
    gaps = rng.exponential(1 / case.parameters["load"], case.parameters["jobs"])
    return Jobs(np.cumsum(gaps), rng.exponential(1.0, len(gaps)))


@dataclass(frozen=True)
class Reading:
    """How a job log is read."""

    stretch: float = parameter(1.0, "multiplies the times of arrival: above 1 there is less load", range=(0.001, 1000.0))


@queueing.read(Reading)
def read(path: Path, how: Reading) -> Jobs:
    """A job log, `arrival_s,length_s`, as CSV, JSON lines or Parquet, packed or not."""
    table = read_table(path, [Column("arrival_s", "time", least=0, not_decreasing=True), Column("length_s", least=0, unit="seconds")])
    return Jobs(how.stretch * table["arrival_s"], table["length_s"])


@queueing.example
def example(folder: Path) -> Path:
    """Three jobs, of which the second is long."""
    file = folder / "jobs.csv"
    file.write_text("arrival_s,length_s\n0,1\n0.5,60\n0.6,1\n")
    return file


@queueing.run
def run(technique: Any, case: Case) -> Outcome:
    """Runs the jobs one after another in the technique's order, and leaves a timeline of them."""
    jobs: Jobs = case.workload
    start = served(jobs, technique)
    wait = start - jobs.arrival_s
    bars = [{"ph": "X", "pid": 0, "name": f"job {i}", "ts": 1e6 * start[i], "dur": 1e6 * jobs.length_s[i]} for i in range(len(start))]
    values = {"mean_wait": float(wait.mean()), "longest_wait": float(wait.max())}
    return Outcome(values, [Artifact.timeline(bars[:1000]), Artifact.quantiles("wait", wait, "s")])


def served(jobs: Jobs, technique: Any) -> np.ndarray:
    """When each job starts, float64[jobs]: whenever the machine is free, `technique.choose` picks one of those that wait."""
    start, now, waiting, arrived = np.full(len(jobs.arrival_s), np.nan), 0.0, list[int](), 0
    while arrived < len(start) or waiting:
        if not waiting:
            now = max(now, float(jobs.arrival_s[arrived]))
        while arrived < len(start) and jobs.arrival_s[arrived] <= now:
            waiting.append(arrived)
            arrived += 1
        job = waiting.pop(technique.choose(jobs.length_s[waiting]))
        start[job] = now
        now += float(jobs.length_s[job])
    return start


@queueing.plots
def plots(result: Result) -> Sequence[Any]:
    """The mean wait over the load."""
    return result.panels("Mean wait over load", "mean_wait", lambda case, facts: ("", facts["parameters"].get("load", 0)), x="load")


@queueing.answer
def answer(result: Result) -> str:
    """The order that waits least on most cases."""
    first = result.first_places("mean_wait")
    best, wins = next(iter(first.items()), ("nothing", 0))
    return f"{best} waits least on {wins} of {len(result.cases)} cases."
