"""What running a task costs beyond its body, beside concurrent.futures, dask.threaded and SimPy, in one run: microseconds and ratios.

    python benchmarks/tasks_overhead.py [--tasks 100000] [--tiles 100] [--json out.json]

Every pair is measured in turn, `--repeats` times, and the least of each counts. Times of Armillary on threads and processes include
building the graph; on virtual workers, as with SimPy, the graph is there already.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path

import numpy as np

from armillary.tasks import Graph, Processes, Threads, Virtual
from armillary.tasks.regions import Box, Region, Regions, meet
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


def with_simpy(graph: Graph, workers: int) -> float:
    """The same simulation written with SimPy: workers take the most urgent ready task, wait for its cost, and make others ready."""
    import simpy

    env = simpy.Environment()
    ready = simpy.PriorityStore(env)
    missing = [len(task.before) for task in graph.tasks]
    tasks = graph.tasks

    def work() -> Iterator[object]:
        while True:
            item = yield ready.get()
            task = tasks[item.item]
            yield env.timeout(task.cost)
            for number in task.after:
                missing[number] -= 1
                if not missing[number]:
                    ready.put(simpy.PriorityItem((-tasks[number].priority, number), number))

    for task in tasks:
        if not task.before:
            ready.put(simpy.PriorityItem((-task.priority, task.id), task.id))
    for _ in range(workers):
        env.process(work())
    env.run()
    assert not any(missing)
    return float(env.now)


class Scanned(Regions):
    """Live regions that are found by looking at all of them."""

    def meeting(self, box: Box) -> list[Region]:
        """The regions that share an element with `box`."""
        return [region for region in self._by_box.values() if meet(region.box, box)]


def submitted(regions: Regions) -> Callable[[], None]:
    """Submit 200 tasks to a handle with 1,000 live regions."""
    graph = Graph()
    data = graph.data("a", nbytes=8000, shape=(8000,))
    graph._regions[data.id] = regions
    pieces = [data[8 * i : 8 * i + 8] for i in range(1000)]
    for piece in pieces:
        graph.add(None, updates=[piece])

    def submit() -> None:
        for piece in pieces[::5]:
            graph.add(None, updates=[piece])

    return submit


def measure(count: int, tiles: int, repeats: int) -> list[tuple[str, str, float, float, str]]:
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

    side = math.isqrt(count - 1) + 1
    front = {(x, y): (nothing, *[n for n in ((x - 1, y), (x, y - 1)) if min(n) >= 0]) for x in range(side) for y in range(side)}
    ours, dask_s = least(
        repeats,
        lambda: wavefront(side, side, call=nothing).run(Threads(2)),
        lambda: dask.threaded.get(front, (side - 1, side - 1), num_workers=2),
    )
    rows.append((f"wavefront {side}x{side}, 2 threads", "dask.threaded.get", ours / side**2, dask_s / side**2, ">= 3x faster"))

    few, many = 200, max(400, count // 10)
    with ProcessPoolExecutor(2) as processes:
        list(processes.map(nothing, range(4)))
        small, large, peer = least(
            repeats,
            lambda: independent(few, Processes(2)),
            lambda: independent(many, Processes(2)),
            lambda: list(processes.map(nothing, range(many))),
        )
        ours = (large - small) / (many - few)
        rows.append((f"{many} independent tasks, 2 processes (start aside)", "ProcessPoolExecutor", ours, peer / many, ">= 1x"))
        array = np.zeros(1 << 23)
        readings, more = 8, 400

        def on_arrays(tasks: int) -> None:
            graph = Graph()
            data = graph.data("a", array)
            for _ in range(tasks):
                graph.add(touch, data)
            graph.run(Processes(2))

        small, large, peer = least(
            repeats,
            lambda: on_arrays(2),
            lambda: on_arrays(more + 2),
            lambda: list(processes.map(touch, [array] * readings)),
        )
        ours = (large - small) / more
        rows.append(("tasks on a 64 MiB array, 2 processes (start aside)", "ProcessPoolExecutor", ours, peer / readings, ">= 5x faster"))

    graph = cholesky(tiles, cost=1e-3)
    ours, peer = least(repeats, lambda: graph.run(Virtual(64), policy="priority"), lambda: with_simpy(graph, 64))
    case = f"virtual: cholesky({tiles}), {len(graph)} tasks, 64 workers"
    rows.append((case, "SimPy", ours / len(graph), peer / len(graph), ">= 2x faster, <= 25 us"))

    ours, peer = least(3 * repeats, submitted(Regions()), submitted(Scanned()))
    rows.append(("submitting with 1,000 live regions", "linear scan", ours / 200, peer / 200, ">= 20x faster"))
    return rows


if __name__ == "__main__":
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--tasks", type=int, default=100_000)
    arguments.add_argument("--tiles", type=int, default=100)
    arguments.add_argument("--repeats", type=int, default=3)
    arguments.add_argument("--json", type=Path)
    given = arguments.parse_args()
    found = measure(given.tasks, given.tiles, given.repeats)
    for case, peer, ours, theirs, asked in found:
        ratio = "" if theirs != theirs else f"{peer} {1e6 * theirs:10.1f} us   {theirs / ours:6.2f}x faster"
        print(f"{case:55} {1e6 * ours:9.1f} us   {ratio}   ({asked})")
    if given.json:
        given.json.write_text(json.dumps([dict(zip(("case", "peer", "seconds", "peer_seconds", "asked"), row)) for row in found], indent=1))
