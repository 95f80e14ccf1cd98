"""Worker processes on this machine, in which bodies run in parallel and arrays in shared memory are never copied.

The process that runs the graph keeps the state and communicates with each worker over a pipe. If a worker dies, the task that it ran fails
and is retried if `retries` allow; a new worker takes its place.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import pickle
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping
from multiprocessing.connection import Connection, wait
from typing import TYPE_CHECKING, Any

from armillary.errors import InputError, unknown
from armillary.tasks.blocks import Blocks
from armillary.tasks.bodies import keep_written, restore, snapshot
from armillary.tasks.data import Data, Piece
from armillary.tasks.elsewhere import Added, Request, add
from armillary.tasks.events import Unfinished
from armillary.tasks.messages import receive, send
from armillary.tasks.policies import policy_for
from armillary.tasks.process_worker import Shared, work
from armillary.tasks.progress import DONE, FAILED, Progress
from armillary.tasks.resources import Pool
from armillary.tasks.run import Run, WorkerLost
from armillary.tasks.threads import check_count
from armillary.tasks.trace import Recorder, Trace

if TYPE_CHECKING:
    from armillary.tasks.graph import Graph, Task

#: The number of deaths without a finished task between them that ends a run.
MOST_DEATHS = 3
#: Seconds that a worker has to exit before it is killed.
GRACE_S = 2.0
#: Tasks with bodies shorter than this (in nanoseconds) are sent in advance, so that a worker need not wait for the next.
SHORT_NS = 500_000
AHEAD = 8


class Processes:
    """`count` worker processes, started by `start` (spawn, forkserver or fork); `resources` are what tasks
    may need in addition to cores.
    """

    def __init__(self, count: int, *, start: str = "spawn", resources: Mapping[str, float] | None = None) -> None:
        self.count = check_count(count, "Processes")
        if start not in multiprocessing.get_all_start_methods():
            raise unknown("start method", start, multiprocessing.get_all_start_methods())
        self.start = start
        self.resources = dict(resources or {})

    def run(self, graph: Graph, *, policy: Any = None, on_error: str = "stop", seed: int = 0) -> Run:
        """Runs the graph; `Graph.run` calls it."""
        graph.validate()
        check_importable(graph)
        return _ProcessRun(self, graph, policy_for(policy, self.count, seed), on_error).go()


def check_importable(graph: Graph) -> None:
    """Raises an `InputError` for the first body that another process could not import."""
    main_is_a_file = hasattr(sys.modules.get("__main__"), "__file__")
    seen: set[int] = set()
    for task in graph.tasks:
        if task.call is None or id(task.call) in seen:
            continue
        seen.add(id(task.call))
        try:
            pickle.dumps(task.call)
        except Exception as why:
            raise InputError(f"body of task {task.key} cannot be imported by a worker process ({why})", where="Processes") from None
        if getattr(task.call, "__module__", None) == "__main__" and not main_is_a_file:
            raise InputError(f"body of task {task.key} lives in an interactive session; expected one in a module", where="Processes")


class _Worker:
    """One process: its pipe, and the tasks that it was sent, oldest first; it runs the first."""

    def __init__(self, number: int, start: str) -> None:
        context: Any = multiprocessing.get_context(start)
        self.number = number
        self.pipe: Connection
        self.pipe, theirs = context.Pipe()
        #: In memory that outlives the process: when its last body began, and how many bodies have begun.
        self.begun = context.RawArray("q", 2)
        #: The number of bodies whose end was heard of.
        self.heard = 0
        self.process = context.Process(target=work, args=(theirs, self.begun), name=f"armillary-{number}", daemon=True)
        self.process.start()
        theirs.close()
        self.sent: deque[tuple[Task, int]] = deque()


def end(workers: list[_Worker]) -> None:
    """Asks workers to exit, and then kills them: those that still run a body at once, and the others after a common grace period."""
    for worker in workers:
        worker.pipe.close()
    for signalled in (None, "terminate", "kill"):
        until = time.monotonic() + GRACE_S
        for worker in workers:
            if signalled is not None and worker.process.is_alive():
                getattr(worker.process, signalled)()
        for worker in workers:
            busy = signalled is None and worker.sent
            worker.process.join(None if signalled == "kill" else 0 if busy else max(0.0, until - time.monotonic()))
    for worker in workers:
        worker.process.close()


class _ProcessRun:
    def __init__(self, executor: Processes, graph: Graph, policy: Any, on_error: str) -> None:
        self.executor, self.graph, self.policy = executor, graph, policy
        self.pool = Pool(executor.count, executor.resources)
        self.pool.check(graph.tasks, "Processes")
        # Tasks that are sent in advance hold nothing until they start, which works only if there is nothing to hold except their worker.
        self.counts = any(task.needs for task in graph.tasks)
        self.holding: set[int] = set()
        self.progress = Progress(graph, on_error)
        self.recorder = Recorder()
        self.blocks = Blocks()
        self.results: dict[int, Any] = {}
        self.failed: dict[str, BaseException] = {}
        self.cancelled: list[str] = []
        self.unfinished: list[str] = []
        self.attempts: dict[int, int] = {}
        #: The tasks that bodies added under a key, by the number of the adding task, and when they were added.
        self.added: dict[tuple[int, Any], Task] = {}
        self.submitted_at: dict[int, int] = {}
        self.saved: dict[int, list[tuple[Any, Any]]] = {}
        self.ready_at = [0] * len(graph.tasks)
        #: The tasks whose body returned and whose events are pending: number to (worker, attempt, started, body_ended, result).
        self.deferred: dict[int, tuple[int, int, int, int, Any]] = {}
        self.workers: list[_Worker] = []
        self.head: Task | None = None
        self.deaths = 0
        self.mean_ns = float(SHORT_NS)
        self.gil_wait = 0
        self.origin = 0

    def go(self) -> Run:
        with _term_raises():
            try:
                for data in self.graph.handles:
                    if data.in_place:
                        self.blocks.add(data)
                self.workers = [_Worker(i, self.executor.start) for i in range(min(self.executor.count, max(1, len(self.graph.tasks))))]
                self.origin = time.monotonic_ns()
                self._push(self.progress.start(), 0)
                self._serve()
                self.blocks.copy_back(self.graph.handles)
            finally:
                self.saved.clear()
                end(self.workers)
                self.blocks.close()
        if self.unfinished:
            raise Unfinished(f"events that can no longer happen: tasks {', '.join(self.unfinished[:10])}")
        trace = Trace.of(self.recorder, self.graph, self.executor.count, self.pool.has, origin_ns=self.origin)
        return Run(trace, trace.makespan, self.failed, self.cancelled, self.results, self.gil_wait / 1e9)

    def _now(self) -> int:
        return time.monotonic_ns() - self.origin

    def _serve(self) -> None:
        while self.progress.left:
            self._feed()
            if self.progress.stopped and not self.deferred and not any(worker.sent for worker in self.workers):
                self._cancel(self.progress.cancel_rest())
                return
            by_pipe: dict[Any, _Worker] = {worker.pipe: worker for worker in self.workers}
            for pipe in wait(list(by_pipe)):
                worker = by_pipe[pipe]
                try:
                    self._heard(worker, receive(worker.pipe))
                except (EOFError, OSError):
                    self._died(worker)

    def _feed(self) -> None:
        """Sends ready tasks to workers that have room, the emptiest first."""
        room = AHEAD if self.mean_ns < SHORT_NS and not self.counts else 1
        for depth in range(room):
            for worker in self.workers:
                if self.progress.stopped:
                    return
                if len(worker.sent) <= depth:
                    task, self.head = self.head, None
                    task = task or self.policy.pop(worker.number)
                    if task is None:
                        return
                    if self.counts:
                        if not self.pool.take(task):
                            self.head = task
                            return
                        self.holding.add(task.id)
                    self._send(worker, task)

    def _send(self, worker: _Worker, task: Task) -> None:
        attempt = self.attempts.get(task.id, 0) + 1
        worker.sent.append((task, attempt))
        if task.retries and task.id not in self.saved:
            self.saved[task.id] = snapshot(task, lambda data: self.blocks.arrays[data.id])
        args = task.args if task.plain else tuple(self._travelling(a) for a in task.args)
        kwargs = {k: self._travelling(v) for k, v in (task.kwargs or {}).items()}
        try:
            send(worker.pipe, (task.id, task.key, attempt, task.call, args, kwargs))
        except (BrokenPipeError, ConnectionResetError):
            pass  # the end of the worker is noticed when the pipe is read
        except (pickle.PicklingError, TypeError, AttributeError) as why:
            worker.sent.pop()
            self._give(task)
            error = InputError(f"an argument of task {task.key} cannot travel between processes ({why})")
            self._ended(task, worker.number, attempt, self._now(), self._now(), self._now(), None, error)

    def _give(self, task: Task) -> None:
        if task.id in self.holding:
            self.holding.remove(task.id)
            self.pool.give(task)

    def _add(self, worker: _Worker, parent: Task, request: Request) -> None:
        """Adds a task that a body requested; the body waits for the answer."""
        key = request.how.get("key")
        task, error = self.added.get((parent.id, key)), None
        if task is None:
            known, handles = len(self.graph.tasks), len(self.graph.handles)
            try:
                task = add(self.graph, request)
                self.graph.seal()
                self.pool.check(self.graph.tasks[known:], "Processes")
                for data in self.graph.handles[handles:]:
                    if data.in_place:
                        self.blocks.add(data)
            except (InputError, TypeError) as wrong:
                error = wrong
            self._joined(self.graph.tasks[known:], error is None)
            if key is not None and task is not None and error is None:
                self.added[parent.id, key] = task
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            send(worker.pipe, ("added", None if task is None else Added(task.id, task.key), error))

    def _joined(self, tasks: list[Task], fits: bool) -> None:
        now = self._now()
        for new in tasks:
            self.counts |= bool(new.needs)
            self.ready_at.append(now)
            self.submitted_at[new.id] = now
            if not fits:
                self.progress.refuse(new)
                self._cancel([new])
            elif self.progress.join(new):
                self.policy.push(new)
            elif self.progress.state[new.id] > DONE:
                self._cancel([new])

    def _travelling(self, thing: Any) -> Any:
        if isinstance(thing, Data | Piece):
            data, index = (thing, None) if isinstance(thing, Data) else (thing.data, thing.index)
            if data.id in self.blocks.places:
                return Shared(self.blocks.places[data.id], index)
            return data.value if index is None else data.value[index]
        if hasattr(thing, "before"):
            return self.results.get(thing.id)
        if isinstance(thing, list | tuple):
            items = [self._travelling(item) for item in thing]
            return items if isinstance(thing, list) else tuple(items)
        return thing

    def _heard(self, worker: _Worker, message: tuple[Any, ...]) -> None:
        if message[0] == "add":
            self._add(worker, self.graph.tasks[message[1]], message[2])
            return
        if message[0] == "settled":
            _, number, at, abandoned, error = message
            by, attempt, started, body_ended, result = self.deferred.pop(number)
            if abandoned:
                self.unfinished.append(self.graph.tasks[number].key)
            self._ended(self.graph.tasks[number], by, attempt, started, body_ended, max(at - self.origin, body_ended), result, error)
            return
        _, number, started, ended, used, waits, result, error = message
        task, attempt = worker.sent.popleft()
        worker.heard += 1
        started, ended = started - self.origin, ended - self.origin
        self.gil_wait += max(0, ended - started - used)
        self.mean_ns += 0.1 * (ended - started - self.mean_ns)
        self.deaths = 0
        self._give(task)
        if waits:
            self.deferred[number] = (worker.number, attempt, started, ended, result)
        else:
            self._ended(task, worker.number, attempt, started, ended, ended, result, error)

    def _ended(
        self, task: Task, worker: int, attempt: int, started: int, body_ended: int, ended: int, result: Any, error: BaseException | None
    ) -> None:
        if error is None:
            try:
                keep_written(task, result)
            except InputError as wrong:
                error = wrong
        status = DONE if error is None else FAILED
        self.recorder.row(
            task, worker, status, attempt, self.submitted_at.get(task.id, 0), self.ready_at[task.id], started, body_ended, ended
        )
        if error is None:
            if result is not None:
                self.results[task.id] = result
            ready = self.progress.done(task)
            self.policy.on_finish(task, worker, (ended - started) * 1e-9)
        else:
            self.attempts[task.id] = attempt
            if attempt <= task.retries and not self.progress.stopped and not isinstance(error, Unfinished):
                restore(self.saved[task.id])
                ready = [task]
            else:
                self.failed[task.key] = error
                ready, cancelled = self.progress.fail(task)
                self._cancel(cancelled)
        self._push(ready, ended)

    def _push(self, tasks: list[Task], now: int) -> None:
        for task in tasks:
            self.ready_at[task.id] = now
            self.policy.push(task)

    def _cancel(self, tasks: list[Task]) -> None:
        now = self._now()
        for task in tasks:
            self.recorder.cancelled(task, self.submitted_at.get(task.id, 0), now)
            self.cancelled.append(task.key)

    def _died(self, worker: _Worker) -> None:
        """Handles the death of a worker: its first task failed, the others never started, and its pending events can no longer happen."""
        now = self._now()
        worker.process.join(GRACE_S)
        how, pid = worker.process.exitcode, worker.process.pid
        self.deaths += 1
        lost = list(worker.sent)
        worker.sent.clear()
        end([worker])
        self.workers[self.workers.index(worker)] = _Worker(worker.number, self.executor.start)
        # A worker that died before it began the task spent no time on it.
        began = worker.begun[0] - self.origin if worker.begun[1] > worker.heard else now
        for task, _ in lost[1:]:
            self._push([task], self.ready_at[task.id])
        ends = [(task, attempt, began, now) for task, attempt in lost[:1]]
        for number, (by, attempt, started, body_ended, _) in list(self.deferred.items()):
            if by == worker.number:
                del self.deferred[number]
                ends.append((self.graph.tasks[number], attempt, started, body_ended))
        for task, _ in lost:
            self._give(task)
        for task, attempt, started, body_ended in ends:
            error = WorkerLost(f"worker process {pid} ended with exit code {how} while it ran task {task.key}")
            self._ended(task, worker.number, attempt, started, body_ended, now, None, error)
        if self.deaths >= MOST_DEATHS:
            raise WorkerLost(f"{self.deaths} worker processes died without finishing a task; the last with exit code {how}")


@contextlib.contextmanager
def _term_raises() -> Iterator[None]:
    """During a run, SIGTERM unwinds the stack, so that nothing is left in shared memory."""
    if threading.current_thread() is not threading.main_thread() or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
