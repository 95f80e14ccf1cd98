"""The ways to run a list of operations: in order, stage by stage, as a graph whose bodies wait, or as a graph of launches.

Each returns the seconds that host threads spent inside waits for devices.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from armillary.runtime.dataflow.applications.application import Application, Operation, stages
from armillary.runtime.dataflow.awareness.apis import Apis
from armillary.tasks import Graph, Threads

#: What a way leaves behind: the seconds of waiting, and the graph's run if there was one.
Ran = tuple[float, Any]


def in_order(apis: Apis, operations: Sequence[Operation]) -> Ran:
    """Program order, waiting for each kernel."""
    waited = 0.0
    for operation in operations:
        waited += once(apis, operation)
    return waited, None


def once(apis: Apis, operation: Operation) -> float:
    """Runs one kernel and waits for its end; returns the seconds of waiting."""
    bound = apis[operation.api]
    if bound.api.asynchronous:
        return bound.wait(operation.kernel, operation.args)
    bound.call(operation.kernel, operation.args)
    return 0.0


def in_queue(apis: Apis, operations: Sequence[Operation]) -> Ran:
    """Program order in one queue of one asynchronous API, waiting once at the end."""
    lane = apis[operations[0].api].lanes[0]
    events = [lane.stream.enqueue(operation.kernel, operation.args) for operation in operations]
    began = time.perf_counter()
    events[-1].wait()
    waited = time.perf_counter() - began
    for event in events:
        event.done()
    return waited, None


class Team:
    """Threads that run the kernels of a stage side by side; they live as long as the program."""

    def __init__(self, workers: int) -> None:
        self._pool = ThreadPoolExecutor(workers)
        self._workers = workers

    def stage_by_stage(self, apis: Apis, operations: Sequence[Operation]) -> Ran:
        """Device kernels of a stage are enqueued, host kernels are spread over the team, and a barrier ends the stage."""
        waited = 0.0
        for stage in stages(operations):
            device = [one for one in stage if apis[one.api].api.asynchronous]
            host = [one for one in stage if not apis[one.api].api.asynchronous]
            pending = [apis[one.api].enqueue(one.kernel, one.args) for one in device]
            if len(host) == 1:
                once(apis, host[0])
            elif host:
                step = -(-len(host) // self._workers)
                parts = [host[i : i + step] for i in range(0, len(host), step)]
                list(self._pool.map(lambda part: [once(apis, one) for one in part], parts))
            began = time.perf_counter()
            for one in pending:
                one.event.wait()
            if pending:
                waited += time.perf_counter() - began
                for bound in apis:
                    if bound.lanes:
                        bound.poller.ask()
        return waited, None

    def close(self) -> None:
        """Ends the threads."""
        self._pool.shutdown()


def blocking_graph(apis: Apis, app: Application, operations: Sequence[Operation], workers: int) -> Ran:
    """A data-flow graph whose bodies wait for the device."""
    waits: list[float] = []

    def body(operation: Operation) -> None:
        waits.append(once(apis, operation))

    graph, handles = _graph(app)
    for operation in operations:
        graph.add(
            body, operation, reads=[handles[n] for n in operation.reads], updates=[handles[n] for n in operation.updates],
            name=operation.kernel.name,
        )  # fmt: skip
    run = graph.run(Threads(workers)).raise_first()
    return sum(waits), (graph, run)


def aware_graph(
    apis: Apis, app: Application, operations: Sequence[Operation], workers: int, choose: Callable[[Operation], str] | None = None
) -> Ran:  # fmt: skip
    """A data-flow graph of kernels that end when the device is done."""
    graph, handles = _graph(app)
    for operation in operations:
        apis.add(
            graph, operation.api if choose is None else choose(operation), operation.kernel, *operation.args,
            reads=[handles[n] for n in operation.reads], updates=[handles[n] for n in operation.updates],
        )  # fmt: skip
    run = apis.run(graph, Threads(workers)).raise_first()
    return 0.0, (graph, run)


def dask_graph(apis: Apis, operations: Sequence[Operation], workers: int, get: Callable[..., Any]) -> Ran:
    """The same data flow as a Dask graph, whose bodies wait for the device."""
    waits: list[float] = []
    tasks: dict[str, Any] = {}
    last: dict[str, str] = {}
    readers: dict[str, list[str]] = {}
    for number, operation in enumerate(operations):
        key = f"t{number}"
        before = {last[n] for n in (*operation.reads, *operation.updates) if n in last}
        for name in operation.updates:
            before.update(readers.pop(name, ()))
            last[name] = key
        for name in operation.reads:
            readers.setdefault(name, []).append(key)
        before.discard(key)
        tasks[key] = (_after, apis, operation, waits, sorted(before))
    wanted = sorted({*last.values(), *(key for keys in readers.values() for key in keys)})
    get(tasks, wanted, num_workers=workers)
    return sum(waits), None


def _after(apis: Apis, operation: Operation, waits: list[float], before: list[Any]) -> None:
    waits.append(once(apis, operation))


def _graph(app: Application) -> tuple[Graph, dict[str, Any]]:
    graph = Graph(app.name)
    return graph, {name: graph.data(name, array) for name, array in app.data.items()}
