"""How fast the planners of scheduling/provisioning are on this machine, against HiGHS, and what each stage of SoCL brings.

python benchmarks/scheduling_provisioning.py prints, on ladders of users on 8 nodes, the seconds and objectives of SoCL and of HiGHS
stopped at a proved gap of 10 % (through SciPy), both in one run and as a ratio; HiGHS started from SoCL's plan and from nothing (through
highspy); the objective of SoCL with each stage switched off, over ten problems; the requests per second of the simulation; and, with
--large, the seconds of 5,000 users, 125 nodes and 30 services (goal 60 s). Last, one JSON object. Seconds are CPU seconds.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from armillary.scheduling.provisioning import (
    JointGreedy,
    LocalSearch,
    Problem,
    Socl,
    ablation,
    city,
    deliver,
    draw_requests,
    drawn,
    solved,
    solved_from,
)


def made(users: int, nodes: int, services: int, seed: int = 0, *, uniform: bool = False) -> Problem:
    """A drawn problem, with its reference plan made."""
    rng = np.random.default_rng(seed)
    problem = drawn(rng, *city(rng, nodes, users), services, uniform=uniform)
    _ = problem.scale
    return problem


def cpu_s(work: Callable[[], Any]) -> tuple[float, Any]:
    """CPU seconds of a call, and what it returns."""
    start = time.process_time()
    found = work()
    return time.process_time() - start, found


def ladder(limit_s: float) -> list[dict[str, float]]:
    """SoCL and HiGHS at a gap of 10 %, by number of users."""
    rows = []
    for users in (10, 20, 40):
        problem = made(users, 8, 10)
        Socl().solve(made(5, 4, 4))
        ours_s, plan = cpu_s(lambda problem=problem: Socl().solve(problem))  # type: ignore[misc]
        theirs_s, theirs = cpu_s(lambda problem=problem: solved(problem, 0.1, limit_s))  # type: ignore[misc]
        best = float("nan") if theirs.plan is None else theirs.plan.check().objective
        rows.append({"users": users, "socl_s": ours_s, "milp10_s": theirs_s, "proved": float(theirs.proved),
                     "socl": plan.check().objective, "milp10": best, "bound": theirs.bound})  # fmt: skip
    return rows


def warm(limit_s: float) -> dict[str, float]:
    """Seconds until HiGHS proves a gap of 1 %, from SoCL's plan and from nothing."""
    problem = made(10, 6, 8)
    plan = Socl().solve(problem)
    from_plan, from_nothing = solved_from(problem, plan, limit_s, 0.01), solved_from(problem, None, limit_s, 0.01)
    return {"from_plan_s": from_plan.seconds, "from_nothing_s": from_nothing.seconds}


def parts(problems: int = 10) -> dict[str, float]:
    """Mean objective of SoCL and of SoCL without each stage, and of local search, on 100 users and 15 nodes."""
    found: dict[str, list[float]] = {}
    for seed in range(problems):
        problem = made(100, 15, 12, seed)
        for name, plan in (*ablation(problem).items(), ("local-search", LocalSearch().solve(problem))):
            found.setdefault(name, []).append(plan.check().objective)
    return {name: float(np.mean(values)) for name, values in found.items()}


def misfit(problems: int = 5) -> float:
    """The worst objective of SoCL over joint greedy's where users are everywhere at once (goal: at most 1.02)."""
    worst = 0.0
    for seed in range(problems):
        problem = made(100, 15, 12, seed, uniform=True)
        worst = max(worst, Socl().solve(problem).check().objective / JointGreedy().solve(problem).check().objective)
    return worst


def simulated_per_s() -> float:
    """Requests per CPU second that are played through a plan."""
    problem = made(100, 15, 12)
    plan, requests = Socl().solve(problem), draw_requests(problem, np.random.default_rng(0), 200_000)
    deliver(plan, draw_requests(problem, np.random.default_rng(0), 100))
    return 200_000 / cpu_s(lambda: deliver(plan, requests))[0]


def main() -> None:
    """Prints every figure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--limit", type=float, default=60.0, help="seconds after which HiGHS stops")
    parser.add_argument("--large", action="store_true", help="plan for 5,000 users on 125 nodes too")
    wanted = parser.parse_args()
    found: dict[str, Any] = {"ladder": ladder(wanted.limit)}
    for row in found["ladder"]:
        proved = "" if row["proved"] else " (not proved)"
        print(
            f"{row['users']:4.0f} users: socl {row['socl_s']:.3f} s, objective {row['socl']:.4f}; HiGHS at 10 % {row['milp10_s']:.2f} s"
            f"{proved}, {row['milp10']:.4f}, bound {row['bound']:.4f}; {row['milp10_s'] / row['socl_s']:.0f} times as fast"
        )
    found["warm"] = warm(wanted.limit)
    print(f"HiGHS to 1 %: {found['warm']['from_plan_s']:.2f} s from SoCL's plan, {found['warm']['from_nothing_s']:.2f} s from nothing")
    found["objective"] = parts()
    for name, value in found["objective"].items():
        print(f"{name:24} {value:8.4f}")
    found["misfit"] = misfit()
    print(f"users everywhere: at most {found['misfit']:.3f} of joint-greedy's objective")
    found["simulated_per_s"] = simulated_per_s()
    print(f"{found['simulated_per_s']:,.0f} requests simulated per second")
    if wanted.large:
        problem = made(5000, 125, 30)
        found["large_s"], plan = cpu_s(lambda: Socl().solve(problem))
        print(f"5,000 users on 125 nodes: {found['large_s']:.1f} s, objective {plan.check().objective:.4f}")
    print(json.dumps(found))


if __name__ == "__main__":
    main()
