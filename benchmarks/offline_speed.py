"""How long plans take on this machine, and how near the planner's formula and model are to what they stand for.

python benchmarks/offline_speed.py [limit_s] prints, for the 80 layers of Llama-3-70B on six devices (four V100, two A100) with four
precisions and pairs of layers: seconds of the exact program for one order and one pair of micro-batches by SciPy's HiGHS and by highspy
with a start (skipped where it is not installed), of the heuristic, of the whole enumeration, and of the judge's simulation; the
heuristic's objective over the exact one; and the error of the latency model's fit. The released planner needs a commercial solver's
licence and is not run. Last, one JSON object.
"""

from __future__ import annotations

import importlib.util
import json
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from armillary.serving.offline import OfflineWork, SplitQuant, SplitQuantH, Uniform, heuristic
from armillary.serving.offline.planning.ilp import solve
from armillary.serving.offline.planning.plan import problem_of


def timed(work: Callable[[], Any]) -> tuple[float, Any]:
    """(seconds, result) of one call."""
    start = time.perf_counter()
    found = work()
    return time.perf_counter() - start, found


def main() -> None:
    """Measures and prints."""
    limit = float(sys.argv[1]) if len(sys.argv) > 1 else 60.0
    work = OfflineWork.of("llama-3-70b", "mixed-offline-9", prompt=1024, output=100, batch=96)
    bound = Uniform().plan_for(work).quality_loss
    work = replace(work, quality=bound)
    problem = problem_of(work, work.devices, 2, 16, group=2)
    quick_s, quick = timed(lambda: heuristic(problem, quality=bound))
    print(f"{problem.layers} pairs of layers, {problem.devices} devices, {len(problem.bits)} precisions; sum of omega at most {bound:.2f}")
    print(f"heuristic          {quick_s:7.2f} s: {problem.seconds(quick):.3f} s of work")
    figures: dict[str, Any] = {"heuristic_s": quick_s, "fit_error": work.latency.error}
    for way in ("scipy", "highspy"):
        if not importlib.util.find_spec(way):
            print(f"{way}: not installed, skipped")
            continue
        seconds, found = timed(lambda way=way: solve(problem, quality=bound, start=quick, limit_s=limit, solver=way))
        figures[way] = {"s": seconds, "objective": found.objective, "bound": found.bound, "how": found.solver}
        worse = problem.seconds(quick) / found.objective
        print(f"exact, {way:11s} {seconds:7.2f} s: {found.objective:.3f} s of work, {found.solver}; the heuristic's is {worse:.3f} of it")
    for name, technique in (("splitquant", SplitQuant(limit_s=limit)), ("splitquant-h", SplitQuantH())):
        seconds, plan = timed(lambda technique=technique: technique.plan_for(work))
        judged, ran = timed(plan.simulate)
        figures[name] = {"plan_s": seconds, "simulate_s": judged, "formula_over_simulated": plan.predicted_s / ran.makespan_s}
        near = plan.predicted_s / ran.makespan_s
        print(f"{name:18s} {seconds:7.2f} s for all orders; simulated in {judged:.2f} s; the formula gives {near:.3f} of that")
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
