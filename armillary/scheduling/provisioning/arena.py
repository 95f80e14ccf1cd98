"""Which microservice instances go on which edge nodes, and through which of them does each request travel?"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from armillary.arena import Arena, Artifact, Case, Constant, InputError, Metric, NotForThisCase, Outcome, Result, parameter
from armillary.frozen import frozen
from armillary.wording import listed

if TYPE_CHECKING:
    import numpy as np

    from .milp import Solved
    from .problem.problem import Problem
    from .workload import ProvisioningWork

provisioning = Arena(
    "scheduling/provisioning",
    question="Which microservice instances go on which edge nodes, and through which instances does each user's request travel, for the "
    "least cost and latency?",
    metrics=[
        Metric("objective", kind="modelled", doc="α·cost/cost₀ + (1 − α)·latency/latency₀, where cost₀ and latency₀ are joint-greedy's"),
        Metric("cost", kind="modelled", doc="price of all instances"),
        Metric("latency_ms", unit="ms", kind="modelled", doc="expected latency of a request on idle nodes, mean over all requests"),
        Metric("gap", kind="modelled", scale="difference", clocked=True, doc="share of the objective above HiGHS' best bound"),
        Metric("latency_sim_ms", unit="ms", doc="mean latency of 20,000 requests that share the nodes' cores"),
        Metric("late_sim", scale="difference", doc="share of these requests that miss their deadline, which plans keep on average only"),
        Metric("promise_error", scale="difference", doc="|latency_ms − latency_sim_ms| / latency_sim_ms"),
        Metric("instances", better=None, kind="modelled", doc="instances that are placed"),
        Metric("solve_s", unit="s", kind="measured", doc="seconds of planning"),
        Metric("answer_s", unit="s", kind="measured", on=frozenset({"ladder"}), unbounded=True,
               doc="solve_s; the limit for a plan more than 10 % above the bound, infinite for an exact solver that proved nothing"),
    ],
    techniques={
        "milp": ".milp:Milp",
        "milp-10": ".milp:Milp(gap=0.1)",
        "local-search": ".local_search:LocalSearch",
        "lp-round": ".lp_round:LpRound",
        "random": ".random:Random",
        "joint-greedy": ".joint_greedy:JointGreedy",
        "nearest": ".nearest:Nearest",
        "cloud-like": ".cloud_like:CloudLike",
        "genetic": ".genetic:Genetic",
        "socl": ".socl:Socl",
    },
    papers={"socl": "socl"},
    baseline="joint-greedy",
    tradeoff=("cost", "latency_sim_ms"),
    repeats=1,
    telling=("edge-*",),
    constants=[
        Constant("links", 1000, "Mbit/s", "spanning tree and three nearest nodes; a link forwards whole requests (chosen)"),
        Constant("load", 0.4, "of all cores", "what all requests together take; a plan may load 0.8 of a node (chosen)"),
        Constant("cores", "8, 16 or 32", "", "per node (chosen)"),
        Constant("services", "1 to 5, 2 to 10, 0.5 to 2", "price, ms, cores", "drawn uniformly (chosen)"),
        Constant("storage", "0.3 to 0.6", "of all services", "that a node holds (chosen)"),
        Constant("data", "0.1 to 2", "MB", "per request, drawn uniformly (chosen)"),
        Constant("deadlines", "1 to 2", "mean distances", "per link of a chain, beyond the fastest answer (chosen)"),
        Constant("origins", "0.7, 0.3", "", "shares of requests that enter at home and at the three nearest nodes (specified)"),
        Constant("processing", "exponential", "", "times of visits in the simulation, around each service's mean (chosen)"),
    ],
)  # fmt: skip

#: (users, nodes, services) of the cases by name.
SIZES = {
    "tiny": {"edge-20-8": (6, 4, 4), "edge-100-15": (8, 5, 4), "edge-wide": (30, 8, 6)},
    "small": {"edge-20-8": (20, 8, 10), "edge-100-15": (100, 15, 12), "edge-wide": (400, 40, 20)},
    "large": {"edge-20-8": (20, 8, 10), "edge-100-15": (100, 15, 12), "edge-wide": (5000, 125, 30)},
}
MISFIT = {"tiny": (8, 5, 4), "small": (100, 15, 12), "large": (100, 15, 12)}
#: The users of each step by name; a tiny problem has half of the first step's.
STEPS = {10: 10, 20: 20, 30: 30, 40: 40, 60: 60}
LADDER = {"tiny": {10: 5}, "small": STEPS, "large": STEPS}
LADDER_NODES = {"tiny": (4, 4), "small": (8, 10), "large": (8, 10)}
LIMIT_S, LADDER_LIMIT_S = 5.0, 300.0
#: The gap beyond which a plan on the ladder counts with the time limit.
GOOD_GAP = 0.1


@provisioning.cases
def cases(scale: str) -> Iterator[Case]:
    """Cities of three sizes, one whose users are everywhere at once, and a ladder of sizes for the exact solver."""
    for name, (users, nodes, services) in SIZES[scale].items():
        # Tiny programs that HiGHS solves in a fraction of a second, or none: what a limit decides differs from run to run.
        facts = _facts(users, nodes, services, limit_s=LIMIT_S if scale != "tiny" or users < 10 else 0.0)
        yield Case(name, _built_in, facts, frozenset({"edge"}))
    users, nodes, services = MISFIT[scale]
    yield Case("uniform-100-15", _built_in, _facts(users, nodes, services, uniform=True), frozenset({"misfit"}))
    for step, users in LADDER[scale].items():
        nodes, services = LADDER_NODES[scale]
        yield Case(f"ladder-{step}", _built_in, _facts(users, nodes, services, limit_s=LADDER_LIMIT_S), frozenset({"ladder"}))


def _facts(users: int, nodes: int, services: int, *, limit_s: float = LIMIT_S, uniform: bool = False) -> dict[str, Any]:
    return {"users": users, "nodes": nodes, "services": services, "uniform": uniform, "limit_s": limit_s}


@dataclass(frozen=True)
class Reading:
    """How a problem is read; what a list of positions leaves open is drawn."""

    users: str = parameter("", "for a table of sites: the file with the positions of the users", file=True)
    network: str = parameter("", "a GraphML file whose edges are the links", file=True)
    alpha: float = parameter(0.5, "weight of cost against latency", range=(0.0, 1.0))
    services: int = parameter(20, "for a table of sites: services that are drawn", range=(3, 200))
    first_users: int = parameter(0, "for a table of sites: only so many of the users; 0 takes all", range=(0, 100_000))
    limit_s: float = parameter(LIMIT_S, "seconds after which HiGHS stops; 0 does not ask it", range=(0.0, 86_400.0))
    requests: int = parameter(20_000, "requests that are simulated", range=(100, 500_000))


@provisioning.read(Reading)
def read(path: Path, how: Reading) -> Any:
    """Reads a problem (JSON), or the sites of the EUA data set (CSV) with its users."""
    name = path.name.lower().removesuffix(".gz").removesuffix(".zst")
    if name.endswith(".json"):
        from .readers.problem_files import read_problem

        if how.users:
            raise InputError("found a problem, which has its own users; leave --users out", where=str(path))
        return read_problem(path, network=how.network, alpha=how.alpha)
    if not name.endswith(".csv"):
        raise InputError(
            "found another ending; expected .json (a problem) or .csv (sites of the EUA data set, with --users)", where=str(path)
        )
    from .readers.eua import read_people, read_sites

    sites = read_sites(path)
    if not how.users:
        raise InputError("found sites only; name the file with the positions of the users with --users", where=str(path))
    people = read_people(how.users)
    if how.network:
        from .readers.problem_files import read_network

        return sites, people, _ends(read_network(how.network), sites[0], how.network)
    return sites, people, None


def _ends(links: Sequence[dict[str, Any]], names: Sequence[str], where: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    import numpy as np

    index = {name: k for k, name in enumerate(names)}
    for link in links:
        for end in (link["a"], link["b"]):
            if end not in index:
                raise InputError(f'found an edge to "{end}"; expected the SITE_ID of a site', where=where)
    return (np.array([index[link["a"]] for link in links]), np.array([index[link["b"]] for link in links]),
            np.array([link["mbps"] for link in links]))  # fmt: skip


@provisioning.own_cases
def own_cases(loaded: Any, name: str, how: Reading) -> Iterator[Case]:
    """The file as one case."""
    facts = {"alpha": how.alpha, "services": how.services, "first_users": how.first_users, "limit_s": how.limit_s, "requests": how.requests}
    yield Case(name, _own_sites if isinstance(loaded, tuple) else _own_problem, facts, frozenset({"file"}))


@provisioning.example
def example(folder: Path) -> tuple[Path, dict[str, str]]:
    """Writes a line of four nodes with three services and five users."""
    import json

    nodes = [{"id": f"n{k}", "lat": -37.81, "lon": 144.95 + 0.005 * k, "capacity": 4, "storage": 3} for k in range(4)]
    links = [{"a": f"n{k}", "b": f"n{k + 1}", "mbps": 1000} for k in range(3)]
    services = [{"id": name, "price": 2 + m, "cpu": 1, "storage": 1, "ms": 4 + m} for m, name in enumerate(("web", "cart", "pay"))]
    requests = [
        {"user": f"u{u}", "chain": ["web", "cart", "pay"][: 2 + u % 2], "mb": 0.5 + 0.25 * u, "lat": -37.811, "lon": 144.95 + 0.004 * u,
         "rate": 20, "deadline_ms": 120}
        for u in range(5)
    ]  # fmt: skip
    path = folder / "edge.json"
    path.write_text(json.dumps({"nodes": nodes, "links": links, "services": services, "requests": requests}, indent=1) + "\n")
    return path, {"requests": "2000"}


@provisioning.warm_up
def warm_up(technique: Any, case: Case) -> None:
    """Compiles the loops on a problem of four nodes, so that the clock sees planning alone."""
    import numpy as np

    from .problem.drawing import city, drawn

    rng = np.random.default_rng(0)
    # Read-only as a case's arrays are, because loops are compiled for them apart.
    problem = frozen(drawn(rng, *city(rng, 4, 5), 4))
    if hasattr(technique, "limit_s"):
        from .local_search import LocalSearch

        LocalSearch().solve(problem)
    else:
        technique.solve(problem)


@provisioning.run
def run(technique: Any, case: Case) -> Outcome:
    """Plans, checks the plan from scratch, and plays 20,000 requests through it."""
    from armillary.timing import Stopwatch

    from .milp import Milp
    from .simulation.delivery import deliver

    work: ProvisioningWork = case.workload
    problem = work.problem
    _ = problem.scale, problem.simple_bound, problem.neighbours
    exact: Solved = case.once(_exact)
    proved, timed_out = True, False
    if isinstance(technique, Milp):
        found = _by_highs(technique, case, work, exact)
        assert found.plan is not None
        plan, seconds, proved = found.plan, found.seconds, found.proved
        timed_out = not proved
    else:
        with Stopwatch() as watch:
            plan = technique.solve(problem)
        seconds = watch.seconds
    checked = plan.check()
    if not checked.feasible:
        why = checked.faults[0] if checked.faults else _late(problem, checked.late)
        raise NotForThisCase(f"found no plan that keeps every limit: {why}")
    delivered = deliver(plan, work.requests)
    mean = float(delivered.latency.mean())
    gap = max(0.0, 1 - exact.bound / checked.objective)
    values = {
        "objective": checked.objective,
        "cost": checked.cost,
        "latency_ms": checked.latency_ms,
        "gap": gap,
        "latency_sim_ms": mean,
        "late_sim": float((delivered.latency > problem.deadline[work.requests.user]).mean()),
        "promise_error": abs(checked.latency_ms - mean) / mean,
        "instances": float(plan.placed.sum()),
        "solve_s": seconds,
    }
    if "ladder" in case.kinds:
        if isinstance(technique, Milp):
            values["answer_s"] = seconds if proved else math.inf
        else:
            values["answer_s"] = seconds if gap <= GOOD_GAP else work.limit_s
    artifacts = [
        Artifact.quantiles("latency", delivered.latency, "ms"),
        Artifact.table("instances", [{"service": name, "node": node} for name, nodes in plan.instances.items() for node in nodes]),
    ]
    # A plan that the clock has cut short differs from run to run.
    clocked = ("objective", "cost", "latency_ms", "latency_sim_ms", "late_sim", "promise_error", "instances")
    return Outcome(values, artifacts, kinds=dict.fromkeys(clocked, "measured") if timed_out else {})


def _late(problem: Problem, late: tuple[int, ...]) -> str:
    return f"{listed([f'user {problem.users[u]}' for u in late])} would be late"


def _exact(case: Case) -> Solved:
    """HiGHS' plan and bound for the case, found once for all techniques."""
    from .milp import Solved, solved

    work: ProvisioningWork = case.workload
    if work.limit_s <= 0:
        return Solved(None, work.problem.simple_bound, False, 0.0)
    return solved(work.problem, 0.0, work.limit_s)


def _by_highs(technique: Any, case: Case, work: ProvisioningWork, exact: Solved) -> Solved:
    from .milp import MOST_VARIABLES, solved
    from .problem.ilp import variables

    count = variables(work.problem)
    if work.limit_s <= 0:
        raise NotForThisCase("HiGHS is given no time on this case")
    if count > MOST_VARIABLES:
        raise NotForThisCase(f"the integer program has {count:,} variables, of which HiGHS would not solve the first relaxation in time")
    limit_s = work.limit_s if technique.limit_s is None else technique.limit_s
    found = exact if not technique.gap and limit_s == work.limit_s else solved(work.problem, technique.gap, limit_s)
    if found.plan is None:
        raise NotForThisCase(f"HiGHS found no plan within {limit_s:g} s; its bound is {found.bound:.4g}")
    return found


@provisioning.answer
def answer(result: Result) -> str:
    """Names the technique with the lowest objective, what it costs against joint-greedy, and how far from the bound it is."""
    if "objective" not in result.metrics:
        return "Ask for the metric objective to get an answer."
    ranked = {case: found for case in result.cases if (found := result.on(case, "objective"))}
    if not ranked:
        return "No technique found a plan for any of the cases."
    if all(max(found.values()) <= 1.001 * min(found.values()) for found in ranked.values()):
        return "The techniques found plans of the same objective."
    near = {case: [t for t, value in found.items() if value <= 1.001 * min(found.values())] for case, found in ranked.items()}
    names = [t for best in near.values() for t in best]
    best = max(dict.fromkeys(names), key=names.count)
    won = [case for case, first in near.items() if best in first]
    said = f"{best} has the lowest objective on {won[0] if len(ranked) == 1 else f'{len(won)} of {len(ranked)} cases'}"
    ratios = [ratio for case in won if best != "joint-greedy" and (ratio := result.ratio(case, "objective", best, "joint-greedy"))]
    shares = [100 * (1 - 1 / ratio) for ratio in ratios]
    if shares:
        low, high = f"{min(shares):.0f}", f"{max(shares):.0f}"
        said += f", {low if low == high else f'{low} to {high}'} % below joint-greedy's"
    lost = list(dict.fromkeys(near[case][0] for case in ranked if case not in won))
    if lost:
        said += f"; elsewhere it is {listed(lost)}"
    said += "."
    gaps = [gap for case in won if (gap := result.on(case, "gap").get(best)) is not None] if "gap" in result.metrics else []
    if gaps:
        said += f" The best known bound is at most {100 * max(gaps):.0f} % lower."
    return said


@provisioning.plots
def plots(result: Result) -> Sequence[Any]:
    """Objective, simulated latency, cost and planning time, by case."""
    drawn = []
    for metric, title in (
        ("objective", "Objective"), ("latency_sim_ms", "Simulated latency"), ("cost", "Cost"), ("solve_s", "Seconds of planning"),
    ):  # fmt: skip
        if metric in result.metrics:
            drawn += result.panels(title, metric, log_y=metric == "solve_s")
    return drawn


def _built_in(case: Case, rng: np.random.Generator) -> ProvisioningWork:
    from .problem.drawing import city, drawn
    from .workload import work_of

    p = case.parameters
    problem = drawn(rng, *city(rng, p["nodes"], p["users"]), p["services"], uniform=p["uniform"])
    return work_of(problem, rng, limit_s=p["limit_s"])


def _own_problem(case: Case, rng: np.random.Generator) -> ProvisioningWork:
    from .workload import work_of

    p = case.parameters
    return work_of(case.loaded, rng, limit_s=p["limit_s"], requests=p["requests"])


def _own_sites(case: Case, rng: np.random.Generator) -> ProvisioningWork:
    from .problem.drawing import drawn
    from .workload import work_of

    p = case.parameters
    (names, sites), people, links = case.loaded
    chosen = people[: p["first_users"]] if p["first_users"] else people
    problem = drawn(rng, sites, chosen, p["services"], alpha=p["alpha"], names=names, links=links)
    return work_of(problem, rng, limit_s=p["limit_s"], requests=p["requests"])
