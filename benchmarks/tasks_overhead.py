"""What running a task costs beyond its body, beside concurrent.futures and dask.threaded, in one run: microseconds a task and ratios.

    python benchmarks/tasks_overhead.py [--tasks 20000] [--json out.json]

Every pair is measured in turn, `--repeats` times, and the least of each counts. Times of Armillary include building the graph.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path

import numpy as np

from armillary.tasks import Graph, Processes, Threads, Virtual
from armillary.tasks.regions import Regions, meet
from armillary.tasks.shapes import chain, cholesky, wavefront


def nothing(*_: object) -> None:
    """The empty task."""


def touch(a: np.ndarray) -> float:
    """Reads one number a page."""
    return float(a[::512].sum())


def least(repeats: int, *works: Callable[[], object]) -> list[float]:
    """The least wall seconds of each, measured in turn."""
    found = [float("inf")] * len(works)
    for _ in range(repeats):
        for i, work in enumerate(works):
            start = time.perf_counter()
            work()
            found[i] = min(found[i], time.perf_counter() - start)
    return found


def independent(count: int, executor: object) -> None:
    """Build and run tasks that do not depend on each other."""
    graph = Graph()
    for _ in range(count):
        graph.add(nothing)
    graph.run(executor)


def measure(count: int, repeats: int) -> list[tuple[str, str, float, float, str]]:
    """Rows: case, peer, our microseconds a task, the peer's, what was asked for."""
    import dask.threaded

    rows = []
    with ThreadPoolExecutor(2) as pool:
        flat = dict.fromkeys(range(count), (nothing,))
        flat["end"] = (nothing, list(range(count)))
        ours, bare, dask_s = least(
            repeats,
            lambda: independent(count, Threads(2)),
            lambda: list(pool.map(nothing, range(count))),
            lambda: dask.threaded.get(flat, "end", num_workers=2),
        )
    rows.append(("independent tasks, 2 threads", "ThreadPoolExecutor.map", ours / count, bare / count, "<= 2x its time"))
    rows.append(("independent tasks, 2 threads", "dask.threaded.get", ours / count, dask_s / count, ">= 3x faster"))

    line = {0: (nothing,), **{i: (nothing, i - 1) for i in range(1, count)}}
    ours, dask_s = least(
        repeats,
        lambda: chain(count, call=nothing).run(Threads(2)),
        lambda: dask.threaded.get(line, count - 1, num_workers=2),
    )
    rows.append(("chain, 2 threads", "dask.threaded.get", ours / count, dask_s / count, ">= 3x faster"))

    side = int(count**0.5)
    front = {(x, y): (nothing, *[n for n in ((x - 1, y), (x, y - 1)) if min(n) >= 0]) for x in range(side) for y in range(side)}
    ours, dask_s = least(
        repeats,
        lambda: wavefront(side, side, call=nothing).run(Threads(2)),
        lambda: dask.threaded.get(front, (side - 1, side - 1), num_workers=2),
    )
    rows.append((f"wavefront {side}x{side}, 2 threads", "dask.threaded.get", ours / side**2, dask_s / side**2, ">= 3x faster"))

    few, many = 200, max(400, count // 5)
    with ProcessPoolExecutor(2) as processes:
        list(processes.map(nothing, range(4)))
        small, large, peer = least(
            repeats,
            lambda: independent(few, Processes(2)),
            lambda: independent(many, Processes(2)),
            lambda: list(processes.map(nothing, range(many))),
        )
        rows.append(
            ("independent tasks, 2 processes (start aside)", "ProcessPoolExecutor", (large - small) / (many - few), peer / many, ">= 1x")
        )
        array = np.zeros(1 << 21)
        readings = 12

        def on_arrays(tasks: int) -> None:
            graph = Graph()
            data = graph.data("a", array)
            for _ in range(tasks):
                graph.add(touch, data)
            graph.run(Processes(2))

        small, large, peer = least(
            repeats,
            lambda: on_arrays(2),
            lambda: on_arrays(readings + 2),
            lambda: list(processes.map(touch, [array] * readings)),
        )
        rows.append(
            (
                "tasks on a 16 MB array, 2 processes (start aside)",
                "ProcessPoolExecutor",
                (large - small) / readings,
                peer / readings,
                ">= 5x faster",
            )
        )

    graph = cholesky(30, cost=1e-3)
    (ours,) = least(repeats, lambda: graph.run(Virtual(64), policy="priority"))
    rows.append((f"virtual: cholesky(30), {len(graph)} tasks, 64 workers", "", ours / len(graph), float("nan"), "<= 25 us"))

    regions = Regions()
    boxes = [((8 * i, 8 * i + 8, 1),) for i in range(1000)]
    for box in boxes:
        regions.exactly(box)
    asked = boxes[::10]
    ours, scan = least(
        repeats,
        lambda: [regions.meeting(box) for box in asked],
        lambda: [[other for other in boxes if meet(other, box)] for box in asked],
    )
    rows.append(("finding conflicts among 1,000 live regions", "linear scan", ours / len(asked), scan / len(asked), ">= 20x faster"))
    return rows


if __name__ == "__main__":
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--tasks", type=int, default=20_000)
    arguments.add_argument("--repeats", type=int, default=3)
    arguments.add_argument("--json", type=Path)
    given = arguments.parse_args()
    found = measure(given.tasks, given.repeats)
    for case, peer, ours, theirs, asked in found:
        ratio = "" if theirs != theirs else f"{peer} {1e6 * theirs:10.1f} us   {theirs / ours:6.2f}x faster"
        print(f"{case:55} {1e6 * ours:9.1f} us   {ratio}   ({asked})")
    if given.json:
        given.json.write_text(json.dumps([dict(zip(("case", "peer", "seconds", "peer_seconds", "asked"), row)) for row in found], indent=1))
