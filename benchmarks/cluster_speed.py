"""What the cluster floor costs: loading a preset, laying out Frontier, finding routes.

    python benchmarks/cluster_speed.py

Prints one line for each figure with its goal; best of several repeats, because other work on the machine only ever adds.
"""

from __future__ import annotations

import subprocess
import sys
import time
import tracemalloc
from collections.abc import Callable

import numpy as np

from armillary import cluster
from armillary.cluster import reader

REPEATS = 5


def best(work: Callable[[], object], repeats: int = REPEATS) -> float:
    """Least CPU seconds of several runs."""
    times = []
    for _ in range(repeats):
        start = time.process_time()
        work()
        times.append(time.process_time() - start)
    return min(times)


def load(name: str) -> cluster.Cluster:
    """A preset from its file, nothing remembered."""
    return reader.from_dict(reader._read_toml(reader.PRESETS / f"{name}.toml"), where=name, base=reader.PRESETS)


def imported(code: str) -> float:
    """Seconds that a fresh Python takes for `code`, less what an empty one takes."""

    def run(text: str) -> float:
        start = time.perf_counter()
        subprocess.run([sys.executable, "-c", text], check=True)
        return time.perf_counter() - start

    return min(run(code) for _ in range(3)) - min(run("") for _ in range(3))


def main() -> None:
    """Measure and print."""
    print(f"import armillary.cluster                 {imported('import armillary.cluster') * 1e3:9.1f} ms")
    whole = imported("from armillary import cluster; cluster.preset('laptop')")
    print(f"import and load a preset, pydantic too   {whole * 1e3:9.1f} ms")
    slowest = max((best(lambda n=name: load(n)), name) for name in cluster.presets())  # type: ignore[misc]
    print(f"load a preset, slowest ({slowest[1]:<18}) {slowest[0] * 1e3:9.1f} ms   goal < 30 ms")
    frontier = load("frontier")
    build = best(lambda: load("frontier").graph().adjacency)
    tracemalloc.start()
    graph = frontier.graph()
    _ = graph.adjacency
    size = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    print(f"frontier graph ({len(graph.endpoints):,} endpoints)       {build * 1e3:9.1f} ms   goal < 500 ms")
    print(f"frontier graph, peak memory              {size / 1e6:9.1f} MB   goal < 50 MB")
    rng = np.random.default_rng(0)
    sources, targets = rng.integers(0, len(graph.endpoints), (2, 1_000_000))
    for algorithm in ("minimal", "ecmp", "valiant"):
        graph.routes(sources[:10], targets[:10], algorithm)
        took = best(lambda a=algorithm: graph.routes(sources, targets, a), 3)  # type: ignore[misc]
        goal = "   goal 1,000,000/s" if algorithm == "minimal" else ""
        print(f"routes on frontier, {algorithm:<8}             {1e6 / took:9,.0f} /s{goal}")
    fat = load("fat-tree-1k").graph()
    a, b = rng.integers(0, 1024, (2, 1_000_000))
    print(f"routes on fat-tree-1k, minimal           {1e6 / best(lambda: fat.routes(a, b), 3):9,.0f} /s")
    print(f"frontier bisection                       {best(frontier.bisection, 1) * 1e3:9.1f} ms")
    print(f"frontier diameter                        {best(frontier.diameter, 1) * 1e3:9.1f} ms")


if __name__ == "__main__":
    main()
