"""What a pilot would take, by a formula: the start of its runtimes and then the slowest of its stations.

makespan ≈ bootstrap + max over stations of load / rate, where the stations are the agent, the feed and the launchers of each runtime, its
ceiling, the cores, the GPUs, and the longest chain of tasks that wait for each other. Equal tasks come in whole waves.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from armillary.kernels import loop

from ..workload import BARRIER, EXECUTABLE, FUNCTION, Work
from .plan import CEILING, Plan, dragon, flux, partitions, pools, srun


@dataclass(frozen=True)
class Predicted:
    """Seconds until all tasks have ended, and which station says so."""

    makespan: float
    slowest: str
    stations: dict[str, float]


def predict(work: Work, plan: Plan) -> Predicted:
    """The formula for one pilot."""
    start, stations = 0.0, {"agent": plan.agent_s * work.tasks}
    for kind in (EXECUTABLE, FUNCTION):
        mine = work.kind == kind
        count = int(mine.sum())
        if not count:
            continue
        runtime = plan.runtimes[plan.route[kind]]
        start = max(start, runtime.start_s)
        launch = count * runtime.service_s(kind == FUNCTION)
        for station, seconds in (
            (f"feed of {runtime.name}", count * runtime.feed_s),
            (f"launchers of {runtime.name}", launch / runtime.parts(work.nodes)),
            (f"ceiling of {runtime.name}", _waves(work.seconds[mine] + runtime.service_s(kind == FUNCTION), runtime.ceiling)),
        ):
            stations[station] = stations.get(station, 0.0) + seconds
    area = work.seconds * work.width
    cores = work.nodes * work.node_cores
    single = (work.width == 1) & (work.cores == 1)
    stations["cores"] = _waves(work.seconds[single], cores) if single.all() else float((area * work.cores).sum()) / cores
    if work.node_gpus:
        stations["GPUs"] = float((area * work.gpus).sum()) / (work.nodes * work.node_gpus)
    stations["chain"] = _chain(work.seconds, work.arrives, work.first, work.after, work.missing.copy())
    slowest = max(stations, key=lambda name: stations[name])
    return Predicted(start + stations[slowest], slowest, stations)


def _waves(seconds: np.ndarray, places: int) -> float:
    """Seconds for tasks of one place each: whole waves where all are equally long, their sum shared out otherwise."""
    if not places or not len(seconds):
        return 0.0
    longest = float(seconds.max())
    if longest <= 1.001 * float(seconds.min()):
        return -(-len(seconds) // places) * longest
    return max(longest, float(seconds.sum()) / places)


def candidates(work: Work) -> dict[str, Plan]:
    """The pilots that one may choose among, by technique and, where there are several, the number of partitions."""
    n = work.nodes
    most = int(work.width[work.kind != BARRIER].max(initial=1))
    found = {"srun": Plan((srun(n),)), "srun-pool": pool_plan(n), "flux": Plan((flux(n),)), "dragon": Plan((dragon(n),))}
    ks = sorted({1 << i for i in range(5)} | {partitions(n)})
    for k in ks:
        if k == 1 or n // k >= most:
            found[f"flux-n, {k}"] = Plan((flux(n, k),))
            found[f"hybrid, {k}"] = hybrid_plan(n, k)
    return found


def pool_plan(nodes: int) -> Plan:
    """`srun` for executables, warm pools for functions. The pools' own `srun` is one of those that may exist at once."""
    return Plan((srun(nodes, CEILING - 1, functions=False), pools(nodes)), route=(0, 1))


def hybrid_plan(nodes: int, instances: int) -> Plan:
    """Flux for executables, Dragon for functions."""
    return Plan((flux(nodes, instances), dragon(nodes)), route=(0, 1))


@dataclass(frozen=True)
class Choice:
    """A pilot, what it is predicted to take, and what the others would."""

    name: str
    plan: Plan
    predicted: Predicted
    others: dict[str, float]

    def said(self) -> str:
        """The choice and its predicted gain, in words."""
        rest = {name: seconds for name, seconds in self.others.items() if name.partition(",")[0] != self.name.partition(",")[0]}
        longest = max(self.others.values())
        if longest - self.predicted.makespan <= 0.01 * longest:
            return f"No pilot differs by more than 1 %, because the {self.predicted.slowest} decide; take {self.name}."
        best, seconds = min(rest.items(), key=lambda item: item[1])
        gain = 100 * (1 - self.predicted.makespan / seconds) if seconds else 0.0
        return (
            f"{self.name}: {self.predicted.makespan:,.0f} s predicted, where the {self.predicted.slowest} decide; "
            f"{gain:.0f} % less than {best}."
        )


def choose_plan(work: Work, among: dict[str, Plan] | None = None) -> Choice:
    """The pilot with the least predicted makespan; of equal ones, the one that is named first."""
    plans = candidates(work) if among is None else among
    made = {name: predict(work, plan) for name, plan in plans.items()}
    best = min(made, key=lambda name: made[name].makespan)
    return Choice(best, plans[best], made[best], {name: one.makespan for name, one in made.items()})


@loop
def _chain(seconds: np.ndarray, arrives: np.ndarray, first: np.ndarray, after: np.ndarray, missing: np.ndarray) -> float:
    """The longest chain of tasks, arrivals included; infinite where tasks wait for each other in a circle."""
    n = len(seconds)
    ends = np.zeros(n)
    stack = np.empty(n, np.int64)
    depth, seen, longest = 0, 0, 0.0
    for i in range(n):
        if missing[i] == 0:
            stack[depth] = i
            depth += 1
    while depth > 0:
        depth -= 1
        t = stack[depth]
        seen += 1
        end = max(ends[t], arrives[t]) + seconds[t]
        longest = max(longest, end)
        for p in range(first[t], first[t + 1]):
            follower = after[p]
            ends[follower] = max(ends[follower], end)
            missing[follower] -= 1
            if missing[follower] == 0:
                stack[depth] = follower
                depth += 1
    return longest if seen == n else math.inf
