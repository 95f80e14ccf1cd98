"""A graph of a million tasks: built and run in simulated time; seconds and the most memory of this process.

    python benchmarks/tasks_million.py [--tasks 1000000] [--workers 64]

The limits are 60 s and 2 GiB for building and running together; the exit status is 1 when one of them is broken.
"""

from __future__ import annotations

import argparse
import resource
import time

from armillary.tasks import Virtual
from armillary.tasks.shapes import random_layered

MOST_S, MOST_GIB = 60.0, 2.0


def measure(tasks: int, workers: int) -> tuple[float, float, float]:
    """Seconds to build and to run layers of a thousand tasks with two predecessors each, and GiB."""
    start = time.perf_counter()
    graph = random_layered(max(1, tasks // 1000), 1000)
    built = time.perf_counter()
    run = graph.run(Virtual(workers), policy="priority")
    ran = time.perf_counter()
    assert len(run.trace) == len(graph)
    return built - start, ran - built, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


if __name__ == "__main__":
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--tasks", type=int, default=1_000_000)
    arguments.add_argument("--workers", type=int, default=64)
    given = arguments.parse_args()
    build, run, gib = measure(given.tasks, given.workers)
    print(f"{given.tasks} tasks: built in {build:.1f} s, run in {run:.1f} s, {gib:.2f} GiB (limits {MOST_S:.0f} s and {MOST_GIB:.0f} GiB)")
    raise SystemExit(int(build + run > MOST_S or gib > MOST_GIB))
