"""network/allgather: live ranks beside the library's own calls, seconds of planning and simulation, and what each part of Cascade brings.

    python benchmarks/network_allgather.py [mpi] [plans] [parts] [promises]

Seconds of plans are CPU seconds. On MPI, techniques and the library's calls take turns on the same ranks, so ratios hold on a busy machine.
"""

from __future__ import annotations

import resource
import statistics
import sys
import time

import numpy as np

from armillary.cluster import preset
from armillary.comm import libraries
from armillary.network.allgather import Auto, Cascade, CommonNeighbour, Direct, DistanceHalving, NodeAware, grid, random, replay, simulated
from armillary.network.allgather.execution.measured import measure
from armillary.network.allgather.planning.prices import prices_of
from armillary.network.allgather.planning.problem import problem

TECHNIQUES = {
    "direct": Direct(), "node-aware": NodeAware(), "common-neighbour": CommonNeighbour(), "distance-halving": DistanceHalving(),
    "cascade": Cascade(), "auto": Auto(),
}  # fmt: skip


def mpi() -> None:
    """One call on two ranks, over the faster one of the library's plain and persistent Neighbor_allgatherv."""
    for library in libraries():
        for nbytes in (64, 1 << 16):
            found = measure(TECHNIQUES, 2, nbytes, 300, library.name)
            for name, rounds in found.items():
                ratio = statistics.median(a / b for a, b in zip(rounds.own, found["direct"].own))
                print(
                    f"{library.name:8} {nbytes:6} B  {name:17} {rounds.median_us:8.1f} us  {rounds.over_native:5.2f}x the library  "
                    f"{ratio:5.2f}x direct{'  noisy' if rounds.noisy else ''}"
                )


def plans() -> None:
    """Planning for 4,096 ranks at density 0.1, and one simulated call by the compiled loop and by virtual ranks."""
    graph, cluster = random(4096, 0.1, np.random.default_rng(0)), preset("slingshot-200")
    prices = prices_of(cluster)
    for name, technique in TECHNIQUES.items():
        technique.schedule(problem(random(64, 0.3, np.random.default_rng(0)), 8, 64), prices)  # type: ignore[attr-defined]
        start = time.process_time()
        schedule = technique.schedule(problem(graph, 64, 64), prices)  # type: ignore[attr-defined]
        planned = time.process_time()
        replay(schedule, prices)
        played = time.process_time()
        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1 << 20)
        print(
            f"{graph.edges} edges  {name:17} plan {planned - start:6.2f} s  compiled loop {played - planned:6.2f} s  "
            f"{schedule.messages} messages  at most {most:.2f} GiB so far"
        )
    for ranks, local in ((256, 16), (1024, 32)):
        few = random(ranks, 0.1, np.random.default_rng(0))
        schedule = Direct().schedule(problem(few, local, 64), prices)
        start = time.process_time()
        simulated(schedule, cluster)
        virtual = time.process_time()
        replay(schedule, prices)
        print(
            f"{schedule.messages} messages: virtual ranks {virtual - start:.2f} s, the compiled loop "
            f"{(virtual - start) / (time.process_time() - virtual):.0f} times as fast"
        )


def parts() -> None:
    """The time of Cascade with one part switched off, on machines with many and with single ranks per node."""
    variants = {
        "cascade": Cascade(), "2 paths": Cascade(paths=2), "4 paths": Cascade(paths=4), "no handing on": Cascade(paths=1 << 20),
        "2 paths, no combining": Cascade(paths=2, combine=False), "2 paths, no pruning": Cascade(paths=2, prune=False),
        "2 paths, one leader": Cascade(paths=2, leaders=False), "2 paths, no window": Cascade(paths=2, window=False),
        "one leader": Cascade(leaders=False), "no window": Cascade(window=False), "node-aware": NodeAware(), "direct": Direct(),
        "distance-halving": DistanceHalving(),
    }  # fmt: skip
    works = [
        (f"{nodes}x{local} {name} {nbytes} B", graph(nodes * local), local, nbytes)
        for nodes, local in ((32, 32), (64, 1), (64, 4))
        for name, graph in (
            ("random:0.5", lambda ranks: random(ranks, 0.5, np.random.default_rng(0))),
            ("moore:2,3", lambda ranks: grid(ranks, 2, 3, corners=True)),
        )
        for nbytes in (64, 4096)
    ]
    prices = prices_of("slingshot-200")
    for title, graph, local, nbytes in works:
        what = problem(graph, local, nbytes)
        print(title)
        for name, technique in variants.items():
            schedule = technique.schedule(what, prices)  # type: ignore[attr-defined]
            chosen = (schedule.chosen or {}).get("paths", "")
            print(f"    {name:22} {1e6 * replay(schedule, prices).max():9.1f} us  {schedule.inter_node_messages:6} messages  {chosen}")


def promises() -> None:
    """How far the compiled loop is from virtual ranks with flows, and the count from both."""
    cluster = preset("infiniband-hdr100")
    prices = prices_of(cluster)
    for name, technique in TECHNIQUES.items():
        loops, counts = [], []
        for density in (0.1, 0.5):
            for nbytes in (64, 4096, 262144):
                schedule = technique.schedule(problem(random(64, density, np.random.default_rng(1)), 8, nbytes), prices)  # type: ignore[attr-defined]
                flow = simulated(schedule, cluster)[0]
                loops.append(100 * (replay(schedule, prices).max() / flow - 1))
                counts.append(100 * (schedule.cost(prices=prices) / flow - 1))
        print(f"{name:17} compiled loop {min(loops):6.1f} to {max(loops):5.1f} %   count {min(counts):6.1f} to {max(counts):5.1f} %")


if __name__ == "__main__":
    chosen = sys.argv[1:] or ["mpi", "plans", "parts", "promises"]
    for name in chosen:
        {"mpi": mpi, "plans": plans, "parts": parts, "promises": promises}[name]()
