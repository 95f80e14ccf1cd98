"""How fast the placement policies of scheduling/mesh are on this machine, beside METIS.

python benchmarks/scheduling_mesh.py prints CPU milliseconds of each policy for 10,000 blocks on 4,096 ranks (goals: CDP 20 ms, LPT 5 ms)
and for a million blocks on 131,072 ranks with peak memory (goals: 3 s, 2 GiB); METIS on the same graph of 13,888 blocks and 4,096 ranks
as a ratio (goal: CPLX 5 times as fast), and CPLX's locality at METIS's imbalance (goal: no higher); CPU seconds of a simulated step of
4,096 ranks; and CPLX beside unit costs where the costs known are wrong (goal: at most 5 % slower). Last, one JSON object.
"""

from __future__ import annotations

import json
import resource
import statistics
import time
from collections.abc import Callable

import numpy as np

from armillary.scheduling.mesh import Baseline, Cplx, Graph, Machine, Metis, State, box_work, play, scene_work, simulate_step
from armillary.scheduling.mesh.arena import mesh
from armillary.scheduling.mesh.metis import symmetric
from armillary.scheduling.mesh.octree.scenes import drawn_costs
from armillary.scheduling.mesh.tuning.tune import GRID

POLICIES = ("baseline", "contiguous", "contiguous-best", "cdp", "lpt", "cplx")


def cpu_ms(what: Callable[[], object], turns: int = 7) -> float:
    """The median CPU milliseconds of a call, after one to warm up."""
    what()
    taken = []
    for _ in range(turns):
        start = time.process_time()
        what()
        taken.append(time.process_time() - start)
    return 1e3 * statistics.median(taken)


def policies(blocks: int, ranks: int, turns: int) -> dict[str, float]:
    """CPU milliseconds per placement."""
    costs = drawn_costs("lognormal", blocks, np.random.default_rng(0))
    state = State(costs, ranks, Graph.empty(blocks), Machine())
    return {name: cpu_ms(lambda name=name: mesh.make(name).place(state), turns) for name in POLICIES}  # type: ignore[misc, attr-defined]


def main() -> None:
    """Measures and prints."""
    found: dict[str, object] = {}
    for blocks, ranks, turns in ((10_000, 4096, 15), (1_000_000, 131_072, 3)):
        taken = policies(blocks, ranks, turns)
        found[f"{blocks} blocks"] = taken
        print(f"{blocks:,} blocks on {ranks:,} ranks:", ", ".join(f"{name} {ms:.3g} ms" for name, ms in taken.items()))
    found["peak_gib"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1 << 20)
    print(f"peak memory {found['peak_gib']:.2f} GiB")

    work = box_work("lognormal", 4096, 1, Machine.of("amr-4096"), np.random.default_rng(0))
    state = State(work.costs[0], work.ranks, work.graphs[0], work.machine)
    graph = symmetric(state.graph)
    ours, theirs = cpu_ms(lambda: Cplx().place(state)), cpu_ms(lambda: Metis().partition(state, graph), 3)
    k_way = cpu_ms(lambda: Metis(recursive=False).partition(state, graph), 3)
    found["cplx_ms"], found["metis_ms"], found["metis_k_way_ms"], found["metis_over_cplx"] = ours, theirs, k_way, theirs / ours
    print(f"4,096 ranks: CPLX {ours:.2f} ms, METIS {theirs:.0f} ms ({theirs / ours:.0f} times), its k-way method {k_way:.0f} ms")

    metis = play(work, Metis()).metrics()
    x = next((x for x in GRID if play(work, Cplx(x=x)).metrics()["imbalance"] <= metis["imbalance"]), 100.0)
    cplx = play(work, Cplx(x=x)).metrics()
    found["at_equal_imbalance"] = {"x": x, "cplx": cplx["locality"], "metis": metis["locality"]}
    print(f"at imbalance {metis['imbalance']:.2f}: locality {cplx['locality']:.2f} with X = {x:g}, METIS {metis['locality']:.2f}")

    placement = Cplx().place(state)
    step = cpu_ms(lambda: simulate_step(state.costs, placement, state.graph, state.ranks, state.machine))
    found["step_ms"] = step
    print(f"one simulated step of 4,096 ranks, {len(state.graph.target):,} messages: {step:.1f} ms")

    wrong = scene_work("sedov", 512, 40, Machine.of("amr-512"), np.random.default_rng(0), shuffled=True)
    slower = play(wrong, Cplx()).metrics()["step_us"] / play(wrong, Baseline()).metrics()["step_us"] - 1
    found["misfit_slower"] = slower
    print(f"wrong costs: CPLX takes {100 * slower:.1f} % longer than unit costs")
    print(json.dumps(found))


if __name__ == "__main__":
    main()
