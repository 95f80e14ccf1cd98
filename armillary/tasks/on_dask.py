"""Runs a graph on a Dask cluster, for many machines and coarse tasks. Dask does the scheduling, moves data and handles lost workers.

Each task is one future, which returns its result and the new content of the data that it wrote, so data stays on the workers. A task that
reads a part gets it from the futures of the tasks that wrote it last, overlaid in the order of submission. Bodies work on private copies,
so that Dask may run one again. `commutes` run in the order of submission.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from armillary.errors import InputError
from armillary.tasks import events
from armillary.tasks.dask_clients import client_at, local_client
from armillary.tasks.data import Data, Piece, piece_of
from armillary.tasks.elsewhere import Added, Named, Request, add
from armillary.tasks.policies import policy_for
from armillary.tasks.progress import DONE, FAILED, Progress
from armillary.tasks.regions import Box, covers, meet, within
from armillary.tasks.run import Run, WorkerLost
from armillary.tasks.trace import Recorder, Trace

if TYPE_CHECKING:
    from armillary.tasks.graph import Graph, Task

#: Initial values up to this many bytes travel with the graph.
KEPT_BYTES = 8 << 20


class OnDask:
    """A Dask client, the address of a scheduler, or None for two local worker processes that live as long as the run."""

    def __init__(self, client: Any = None, *, workers: int = 2) -> None:
        self.client = client
        self.workers = workers

    def run(self, graph: Graph, *, policy: Any = None, on_error: str = "stop", seed: int = 0) -> Run:
        """Runs the graph; `Graph.run` calls it."""
        graph.validate()
        if policy not in (None, "fifo", "priority"):
            raise InputError(f"policy: found {policy!r}; expected fifo or priority, because Dask schedules by itself")
        policy_for(policy, 1, seed)
        with self._connected() as client:
            return _DaskRun(client, graph, policy == "priority", on_error).go()

    @contextmanager
    def _connected(self) -> Iterator[Any]:
        if self.client is not None and not isinstance(self.client, str):
            yield self.client
            return
        with local_client(self.workers) if self.client is None else client_at(self.client) as client:
            yield client


@dataclass(frozen=True)
class _Part:
    """An argument to assemble on the worker: its box, and its layers (position among the inputs, item, box)."""

    box: Box
    layers: tuple[tuple[int, int, Box], ...]
    in_place: bool


@dataclass(frozen=True)
class _Result:
    """The result of another task, by its position among the inputs."""

    position: int


@dataclass
class _Outcome:
    """What a task leaves on the worker: the return value, the data that it wrote, and the tasks that it requested."""

    result: Any
    written: list[Any]
    #: The (started, ended) of each attempt in ns on that worker's clock; the last attempt succeeded.
    attempts: list[tuple[int, int]]
    address: str
    added: list[Request]


def _shape_of(box: Box) -> tuple[int, ...]:
    return tuple((stop - start + step - 1) // step for start, stop, step in box)


def _inside(outer: Box, inner: Box) -> tuple[slice, ...]:
    """The index of `inner` in an array that holds the elements of `outer`, which covers it."""
    return tuple(
        slice((first - start) // step, (end - 1 - start) // step + 1, max(1, stride // step))
        for (start, _, step), (first, end, stride) in zip(outer, inner)
    )


def _assemble(part: _Part, inputs: tuple[Any, ...]) -> Any:
    values = [(inputs[p].written[item] if isinstance(inputs[p], _Outcome) else inputs[p], box) for p, item, box in part.layers]
    if not part.in_place:
        return values[-1][0] if values else None
    base, box = values[0]
    if len(values) == 1:
        return np.array(base if box == part.box else base[_inside(box, part.box)])
    # Layers overlap, so they are written over the first one, which covers the part, and the part is then cut out.
    whole = np.array(base)
    for value, over in values[1:]:
        _lay(whole, box, value, over)
    return np.ascontiguousarray(whole[_inside(box, part.box)]) if box != part.box else whole


def _lay(target: Any, outer: Box, value: Any, box: Box) -> None:
    """Writes the elements that `value` (of `box`) and `target` (of `outer`) share."""
    grids = []
    for (start, stop, step), (first, end, stride) in zip(outer, box):
        mine, theirs = np.arange(start, stop, step), np.arange(first, end, stride)
        _, at, of = np.intersect1d(mine, theirs, assume_unique=True, return_indices=True)
        grids.append((at, of))
    target[np.ix_(*(g[0] for g in grids))] = value[np.ix_(*(g[1] for g in grids))]


def _on_worker(
    key: str, call: Any, args: tuple[Any, ...], kwargs: dict[str, Any], parts: list[_Part], wants: list[int], returned: int, retries: int,
    inputs: Any,
) -> _Outcome:  # fmt: skip
    """Runs on a Dask worker: assembles the arguments, calls the body, keeps what it wrote, and retries if allowed."""
    attempts: list[tuple[int, int]] = []
    while True:
        made = [_assemble(part, inputs) for part in parts]
        added: list[Request] = []
        started = time.monotonic_ns()
        try:
            result = _called(key, len(attempts) + 1, call, _given(args, made, inputs), _given(kwargs, made, inputs), added)
        except events.Unfinished:
            raise
        except Exception:
            attempts.append((started, time.monotonic_ns()))
            if len(attempts) > retries:
                raise
            continue
        attempts.append((started, time.monotonic_ns()))
        written = [made[w] for w in wants]
        if returned:
            written += [result] if returned == 1 else list(result or ())
        return _Outcome(result, written, attempts, _address(), added)


def _called(key: str, attempt: int, call: Any, args: tuple[Any, ...], kwargs: dict[str, Any], added: list[Request]) -> Any:
    """Calls a body and waits for its events."""
    over = threading.Event()

    def add(call: Any, *args: Any, **how: Any) -> Added:
        added.append(Request(call, args, how))
        return Added(len(added) - 1, how.get("key") or "")

    events.enter(lambda: events.Context(key, attempt, lambda context: over.set(), add, Named))
    try:
        result = call(*args, **kwargs) if call is not None else None
    finally:
        context = events.leave()
    if context is not None:
        context.settle()
        over.wait()
        if context.error is not None:
            raise context.error
    return result


def _address() -> str:
    from distributed import get_worker

    return str(get_worker().address)


@dataclass(frozen=True)
class _Slot:
    """An assembled part, and the index by which the body sees it (all of it if None)."""

    position: int
    index: Any


def _given(thing: Any, made: list[Any], inputs: Any) -> Any:
    if isinstance(thing, _Slot):
        return made[thing.position] if thing.index is None else made[thing.position][thing.index]
    if isinstance(thing, _Result):
        return inputs[thing.position].result
    if isinstance(thing, list | tuple):
        items = [_given(item, made, inputs) for item in thing]
        return items if isinstance(thing, list) else tuple(items)
    if isinstance(thing, dict):
        return {k: _given(v, made, inputs) for k, v in thing.items()}
    return thing


class _DaskRun:
    def __init__(self, client: Any, graph: Graph, prioritised: bool, on_error: str) -> None:
        self.client, self.graph, self.prioritised = client, graph, prioritised
        self.progress = Progress(graph, on_error)
        self.recorder = Recorder()
        self.futures: dict[int, Any] = {}
        #: The layers of each handle (future, item of its outcome, box), oldest first; the first covers everything.
        self.layers: dict[int, list[tuple[Any, int, Box]]] = {}
        self.commuting: dict[int, Any] = {}
        #: The task numbers by the keys of their futures.
        self.number_of: dict[str, int] = {}
        self.known: dict[str, Any] = {}
        self.numbers: dict[str, int] = {}
        self.offsets: dict[str, int] = {}
        self.origin = 0
        self.waiting: Any = None
        self.ends = [0] * len(graph.tasks)
        self.submitted_at: dict[int, int] = {}
        self.failed: dict[str, BaseException] = {}
        self.cancelled: list[str] = []
        self.results: dict[int, Any] = {}
        self.run_name = f"armillary-{os.urandom(6).hex()}"

    def go(self) -> Run:
        import distributed

        as_completed: Any = distributed.as_completed
        self.known = self.client.scheduler_info(n_workers=-1)["workers"]
        self._check(self.graph.tasks)
        self.origin = time.monotonic_ns()
        self.offsets = self._clock_offsets()
        self.numbers = {address: i for i, address in enumerate(sorted(self.known))}
        try:
            for task in self.graph.tasks:
                self.futures[task.id] = self._submit(task)
            self.waiting = as_completed(list(self.futures.values()), loop=self.client.loop, raise_errors=False)
            for future in self.waiting:
                task = self.graph.tasks[self.number_of[future.key]]
                if future.status == "finished":
                    self._done(task, self._told(future))
                elif self.progress.state[task.id] < DONE and not self.progress.stopped and self._to_blame(task):
                    self._failed(task, future)
            self._cancel(self.progress.cancel_rest())
            self._bring_home()
        except BaseException:
            self.client.cancel(list(self.futures.values()))
            raise
        unfinished = [key for key, error in self.failed.items() if isinstance(error, events.Unfinished)]
        if unfinished:
            raise events.Unfinished(f"events that can no longer happen: tasks {', '.join(unfinished[:10])}")
        trace = Trace.of(self.recorder, self.graph, len(self.numbers), origin_ns=self.origin)
        return Run(trace, trace.makespan, self.failed, self.cancelled, self.results)

    def _done(self, task: Task, outcome: _Outcome) -> None:
        shift = self.origin + self.offsets.get(outcome.address, 0)
        ready = max((self.ends[n] for n in task.before), default=0)
        worker = self.numbers.setdefault(outcome.address, len(self.numbers))
        submitted = self.submitted_at.get(task.id, 0)
        for attempt, (started, ended) in enumerate(outcome.attempts, 1):
            status = DONE if attempt == len(outcome.attempts) else FAILED
            times = (submitted, max(ready, submitted), started - shift, ended - shift, ended - shift)
            self.recorder.row(task, worker, status, attempt, *times)
        self.ends[task.id] = ended - shift
        if outcome.result is not None:
            self.results[task.id] = outcome.result
        self.progress.done(task)
        if outcome.added:
            self._grow(outcome.added)

    def _grow(self, requests: list[Request]) -> None:
        """Adds the tasks that a body requested, now that it has ended."""
        made: dict[int, Task] = {}
        known, now = len(self.graph.tasks), time.monotonic_ns() - self.origin
        for number, request in enumerate(requests):
            made[number] = add(self.graph, request, made)
        self.graph.seal()
        self._check(self.graph.tasks[known:])
        for task in self.graph.tasks[known:]:
            self.ends.append(0)
            self.submitted_at[task.id] = now
            self.progress.join(task)
            if self.progress.state[task.id] > DONE:
                self._cancel([task])
            elif not self.progress.stopped:
                self.futures[task.id] = self._submit(task)
                self.waiting.add(self.futures[task.id])

    def _failed(self, task: Task, future: Any) -> None:
        now = time.monotonic_ns() - self.origin
        lost = WorkerLost(f"Dask lost task {task.key} or data that it needs ({future.status})")
        self.failed[task.key] = future.exception() if future.status == "error" else lost
        self.recorder.row(task, -1, FAILED, 1 + task.retries, self.submitted_at.get(task.id, 0), now, now, now, now)
        self._cancel(self.progress.fail(task)[1])
        if self.progress.stopped:
            self.client.cancel([f for f in self.futures.values() if f.status == "pending"])

    def _cancel(self, tasks: list[Task]) -> None:
        now = time.monotonic_ns() - self.origin
        for task in tasks:
            self.recorder.cancelled(task, self.submitted_at.get(task.id, 0), now)
            self.cancelled.append(task.key)

    def _to_blame(self, task: Task) -> bool:
        """Whether a task failed by itself: Dask also marks dependents as failed, so all its predecessors must have succeeded."""
        return all(self.progress.state[number] == DONE or self.futures[number].status == "finished" for number in task.before)

    def _told(self, future: Any) -> Any:
        """The outcome of a task on its worker, without the data."""
        return self.client.submit(_without_arrays, future, key=f"{future.key}-told", priority=1000).result()

    def _check(self, tasks: list[Task]) -> None:
        workers = self.known
        if not workers:
            raise InputError("the Dask cluster has no workers", where="OnDask")
        for task in tasks:
            if task.nodes > 1:
                raise InputError(f"task {task.key} needs {task.nodes} nodes at once; gangs run on virtual workers", where="OnDask")
            for resource, amount in (task.needs or {}).items():
                offered = [w.get("resources", {}).get(resource, w["nthreads"] if resource == "cores" else 0) for w in workers.values()]
                if amount > max(offered):
                    what = f"task {task.key} needs {amount:g} {resource}"
                    raise InputError(f"{what}; no worker has more than {max(offered):g}", where="OnDask")
        self.offered = {r for w in workers.values() for r in w.get("resources", {})}

    def _clock_offsets(self) -> dict[str, int]:
        """The offset of each worker's clock from ours; zero if it is less than the time to ask (on the same machine)."""
        before = time.monotonic_ns()
        theirs = self.client.run(time.monotonic_ns)
        after = time.monotonic_ns()
        middle = (before + after) // 2
        return {address: at - middle for address, at in theirs.items() if not before <= at <= after}

    def _submit(self, task: Task) -> Any:
        inputs: list[Any] = []
        parts: list[_Part] = []
        boxes: list[tuple[Data, Box]] = []

        def position(future: Any) -> int:
            for at, known in enumerate(inputs):
                if known is future:
                    return at
            inputs.append(future)
            return len(inputs) - 1

        def slot(data: Data, box: Box) -> int:
            if (data, box) not in boxes:
                boxes.append((data, box))
                parts.append(self._part(data, box, position))
            return boxes.index((data, box))

        def travelling(thing: Any) -> Any:
            if isinstance(thing, Data | Piece):
                piece = piece_of(thing, task.key)
                return _Slot(slot(piece.data, _full(piece.data, piece.box)), within(piece.index, piece.data.shape))
            if hasattr(thing, "before"):
                return _Result(position(self.futures[thing.id]))
            if isinstance(thing, list | tuple):
                items = [travelling(item) for item in thing]
                return items if isinstance(thing, list) else tuple(items)
            return thing

        args = tuple(travelling(a) for a in task.args)
        kwargs = {k: travelling(v) for k, v in (task.kwargs or {}).items()}
        for access in task.accesses:
            if access.data.in_place or access.mode == "reads":
                slot(access.data, _full(access.data, access.box))
        for number in task.before:
            position(self.futures[number])
        for token in task.excludes or ():
            if token in self.commuting:
                position(self.commuting[token])
        written = [a for a in task.accesses if a.mode != "reads" and a.data.in_place]
        replaced = [a for a in task.accesses if a.mode != "reads" and not a.data.in_place]
        wants = [slot(a.data, _full(a.data, a.box)) for a in written]
        needs = {r: amount for r, amount in (task.needs or {}).items() if r in self.offered} or None
        future = self.client.submit(
            _on_worker, task.key, task.call, args, kwargs, parts, wants, len(replaced), task.retries, inputs,
            key=f"{self.run_name}-{task.id}", pure=False, resources=needs,
            priority=float(task.priority) if self.prioritised else -task.id,
        )  # fmt: skip
        self.number_of[future.key] = task.id
        for item, access in enumerate([*written, *replaced]):
            box = _full(access.data, access.box)
            layers = self._layers(access.data)
            layers[:] = [layer for layer in layers if not covers(box, layer[2])] if access.data.in_place else []
            layers.append((future, item, box))
        for token in task.excludes or ():
            self.commuting[token] = future
        return future

    def _layers(self, data: Data) -> list[tuple[Any, int, Box]]:
        if data.id not in self.layers:
            self.layers[data.id] = [(self._first(data), 0, _full(data, ()))] if data.value is not None else []
        return self.layers[data.id]

    def _first(self, data: Data) -> Any:
        """The initial value of a handle: the scheduler keeps small values, which survive lost workers, and large ones are scattered."""
        if data.in_place and not isinstance(data.value, np.ndarray):
            raise InputError(f"data {data.name}: found {type(data.value).__name__}; Dask workers get NumPy arrays", where="OnDask")
        if data.nbytes <= KEPT_BYTES:
            return self.client.submit(_same, data.value, key=f"{self.run_name}-data-{data.id}", pure=False)
        return self.client.scatter(data.value, hash=False)

    def _part(self, data: Data, box: Box, position: Any) -> _Part:
        layers = self._layers(data)
        if not data.in_place:
            return _Part((), tuple((position(f), item, b) for f, item, b in layers), False)
        met = [layer for layer in layers if meet(layer[2], box)]
        # A layer that a later one covers need not travel.
        last = max(i for i, layer in enumerate(met) if covers(layer[2], box))
        return _Part(box, tuple((position(f), item, b) for f, item, b in met[last:]), True)

    def _bring_home(self) -> None:
        """Copies what was written into the handles' own values."""
        for number, layers in self.layers.items():
            data = self.graph.handles[number]
            for future, item, box in layers:
                if future.key in self.number_of and future.status == "finished":
                    value = future.result().written[item]
                    if data.in_place:
                        data.value[tuple(slice(*span) for span in box)] = value
                    else:
                        data.value = value


def _full(data: Data, box: Box) -> Box:
    """The box with every axis named, if the shape is known."""
    return box or tuple((0, n, 1) for n in data.shape or ())


def _same(value: Any) -> Any:
    return value


def _without_arrays(outcome: _Outcome) -> _Outcome:
    return _Outcome(outcome.result, [], outcome.attempts, outcome.address, outcome.added)
