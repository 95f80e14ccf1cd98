"""Worker threads in this process, which are the cheapest way to run a graph and copy nothing.

One lock guards the run. A worker that ends a task takes the next one in the same critical section, and sleeps on a condition when there is
none. Threads do not speed up bodies that hold the interpreter lock; `Run.gil_wait` shows this.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from armillary.errors import InputError
from armillary.tasks import events
from armillary.tasks.bodies import call_here, keep_written, restore, snapshot, value_of
from armillary.tasks.policies import Fifo, policy_for
from armillary.tasks.progress import DONE, FAILED, Progress
from armillary.tasks.resources import Pool
from armillary.tasks.run import Run
from armillary.tasks.trace import Recorder, Trace

if TYPE_CHECKING:
    from armillary.tasks.graph import Graph, Task

#: Seconds that an interrupted run waits for bodies that still run.
INTERRUPT_S = 1.0


def check_count(count: int, what: str) -> int:
    """A number of workers; anything else raises an `InputError`."""
    if not isinstance(count, int) or not 1 <= count <= 4096:
        raise InputError(f"found {count!r}; expected a whole number from 1 to 4096", where=what)
    return count


class Threads:
    """`count` worker threads; `pin` binds each to one core; `resources` are what tasks may need in addition to cores."""

    def __init__(self, count: int, *, pin: bool = False, resources: Mapping[str, float] | None = None) -> None:
        self.count = check_count(count, "Threads")
        self.pin = pin
        self.resources = dict(resources or {})

    def run(self, graph: Graph, *, policy: Any = None, on_error: str = "stop", seed: int = 0) -> Run:
        """Runs the graph; `Graph.run` calls it."""
        graph.validate()
        return _ThreadRun(self, graph, policy_for(policy, self.count, seed), on_error).go()


class _ThreadRun:
    def __init__(self, executor: Threads, graph: Graph, policy: Any, on_error: str) -> None:
        self.executor, self.graph, self.policy = executor, graph, policy
        self.pool = Pool(executor.count, executor.resources)
        self.pool.check(graph.tasks, "Threads")
        self.progress = Progress(graph, on_error)
        self.recorder = Recorder()
        self.lock = threading.Lock()
        self.wake = threading.Condition(self.lock)
        self.over = threading.Event()
        self.results: dict[int, Any] = {}
        self.failed: dict[str, BaseException] = {}
        self.cancelled: list[str] = []
        self.unfinished: list[str] = []
        self.attempts: dict[int, int] = {}
        #: The tasks that bodies added under a key, by the number of the adding task.
        self.added: dict[tuple[int, Any], Task] = {}
        self.saved: dict[int, list[tuple[Any, Any]]] = {}
        #: A task that was popped but does not fit yet; no other task overtakes it.
        self.head: Task | None = None
        self.idle = 0
        #: An unknown policy may keep a task for one worker, so all workers are asked.
        self.choosy = type(policy).__module__ != Fifo.__module__
        #: The number of running bodies, and the tasks whose body returned and whose events are pending.
        self.busy = 0
        self.interrupted = False
        self.defect: BaseException | None = None
        self.gil_wait = 0
        count = len(graph.tasks)
        self.ready_at = [0] * count
        self.submitted_at: dict[int, int] = {}
        self.origin = 0

    def go(self) -> Run:
        self.origin = time.monotonic_ns()
        for task in self.progress.start():
            self.policy.push(task)
        numbers = range(self.executor.count)
        workers = [threading.Thread(target=self._guarded, args=(i,), name=f"armillary-{i}", daemon=True) for i in numbers]
        if not self.progress.left:
            self.over.set()
        try:
            for worker in workers:
                worker.start()
            self.over.wait()
        except BaseException:
            with self.lock:
                self.interrupted = True
                self.wake.notify_all()
            until = time.monotonic() + INTERRUPT_S
            for worker in workers:
                worker.join(max(0.0, until - time.monotonic()))
            raise
        if self.defect is not None:
            raise self.defect
        for worker in workers:
            worker.join()
        if self.unfinished:
            raise events.Unfinished(f"events that can no longer happen: tasks {', '.join(self.unfinished[:10])}")
        trace = Trace.of(self.recorder, self.graph, self.executor.count, self.pool.has, origin_ns=self.origin)
        seconds = float(trace["ended"].max(initial=0)) / 1e9
        return Run(trace, seconds, self.failed, self.cancelled, self.results, self.gil_wait / 1e9)

    def _guarded(self, worker: int) -> None:
        try:
            self._work(worker)
        except BaseException as defect:
            # A foreign policy may raise, or there may be a defect here; either way the run must end, not hang.
            self.defect = defect
            self.interrupted = True
            self.over.set()

    def _work(self, worker: int) -> None:
        if self.executor.pin:
            cores = sorted(os.sched_getaffinity(0))
            os.sched_setaffinity(0, {cores[worker % len(cores)]})
        clock, cpu, origin = time.monotonic_ns, time.thread_time_ns, self.origin
        self.lock.acquire()
        while True:
            task = self._take(worker)
            if task is None:
                self.lock.release()
                return
            self.lock.release()
            result = error = None
            attempt = self.attempts.get(task.id, 0) + 1
            events.enter(partial(self._context, task, worker, attempt))
            started, used = clock(), cpu()
            try:
                if task.retries and task.id not in self.saved:
                    self.saved[task.id] = snapshot(task, value_of)
                if task.plain and task.call is not None and task.kwargs is None:
                    result = task.call(*task.args)
                else:
                    result = call_here(task, self.results)
                if task.accesses:
                    keep_written(task, result)
            except BaseException as raised:
                error = raised
            used = cpu() - used
            ended = clock()
            context = events.leave()
            self.lock.acquire()
            self.gil_wait += max(0, ended - started - used)
            if context is not None:
                self._defer(context, task, worker, attempt, started - origin, ended - origin, result, error)
            else:
                self._end(task, worker, attempt, started - origin, ended - origin, ended - origin, result, error)
            task = context = result = error = None

    def _take(self, worker: int) -> Task | None:
        """The next task, or None if the run is over; the lock is held on entry and on return."""
        while True:
            if self.interrupted or not self.progress.left:
                return None
            if self.progress.stopped:
                self._stop()
                if not self.progress.left:
                    return None
            else:
                task, self.head = self.head, None
                if task is None:
                    task = self.policy.pop(worker)
                if task is not None:
                    if self.pool.take(task):
                        self.busy += 1
                        return task
                    self.head = task
            self.idle += 1
            self.wake.wait(self._asked() if events.polling() else None)
            self.idle -= 1

    def _asked(self) -> float:
        """Polls while there is nothing else to do; returns how long to wait then (briefly, because a wake-up in between is missed)."""
        self.lock.release()
        try:
            return events.serve_polls()
        finally:
            self.lock.acquire()

    def _end(
        self, task: Task, worker: int, attempt: int, started: int, body_ended: int, ended: int, result: Any, error: BaseException | None,
        free: bool = True,
    ) -> None:  # fmt: skip
        """Ends a task, with the lock held. `free` says that its resources are still to be released."""
        submitted = self.submitted_at.get(task.id, 0)
        status = DONE if error is None else FAILED
        self.recorder.row(task, worker, status, attempt, submitted, self.ready_at[task.id], started, body_ended, ended)
        if free:
            self.pool.give(task)
            self.busy -= 1
        if error is None:
            if result is not None:
                self.results[task.id] = result
            ready = self.progress.done(task)
            self.policy.on_finish(task, worker, (ended - started) * 1e-9)
        else:
            ready = self._failed(task, attempt, error, ended)
        for other in ready:
            self.ready_at[other.id] = ended
            self.policy.push(other)
        self._wake(len(ready))

    def _failed(self, task: Task, attempt: int, error: BaseException, now: int) -> list[Task]:
        self.attempts[task.id] = attempt
        if attempt <= task.retries and not isinstance(error, events.Unfinished) and not self.progress.stopped:
            restore(self.saved[task.id])
            return [task]
        self.failed[task.key] = error
        ready, cancelled = self.progress.fail(task)
        self._cancel(cancelled, now)
        return ready

    def _cancel(self, tasks: list[Task], now: int) -> None:
        for task in tasks:
            self.recorder.cancelled(task, self.submitted_at.get(task.id, 0), now)
            self.cancelled.append(task.key)

    def _stop(self) -> None:
        """After a failure nothing starts, and when the last body has ended, the rest is cancelled."""
        if self.busy == 0:
            self._cancel(self.progress.cancel_rest(), time.monotonic_ns() - self.origin)
            self._wake(0)

    def _wake(self, ready: int) -> None:
        if not self.progress.left:
            self.over.set()
            self.wake.notify_all()
        elif self.progress.stopped:
            self.wake.notify_all()
        elif self.idle and (ready > 1 or self.head is not None or (ready and self.choosy)):
            self.wake.notify(self.idle if self.choosy else ready + 1)

    # External events and new tasks

    def _context(self, task: Task, worker: int, attempt: int) -> events.Context:
        return events.Context(task.key, attempt, lambda context: None, partial(self._add, task), self.graph.handle)

    def _defer(
        self, context: events.Context, task: Task, worker: int, attempt: int, started: int, body_ended: int, result: Any,
        error: BaseException | None,
    ) -> None:  # fmt: skip
        """The body has returned, and the task ends with its last event. The lock is held; the worker and the resources are free."""
        self.pool.give(task)

        def settle(context: events.Context) -> None:
            now = time.monotonic_ns() - self.origin
            with self.lock:
                if context.abandoned:
                    self.unfinished.append(task.key)
                self.busy -= 1
                self._end(task, worker, attempt, started, body_ended, max(now, body_ended), result, context.error, free=False)
                self.wake.notify_all()

        context._settle = settle
        self.lock.release()
        try:
            context.settle(1, error)
        finally:
            self.lock.acquire()

    def _add(self, parent: Task, *args: Any, **how: Any) -> Task:
        with self.lock:
            before = self.added.get((parent.id, how.get("key")))
            if before is not None:
                return before
            known = len(self.graph.tasks)
            fits = False
            try:
                task = self.graph.add(*args, **how)
                self.graph.seal()
                self.pool.check(self.graph.tasks[known:], "Threads")
                fits = True
            finally:
                self._joined(self.graph.tasks[known:], fits)
            if how.get("key") is not None:
                self.added[parent.id, how["key"]] = task
        return task

    def _joined(self, tasks: list[Task], fits: bool) -> None:
        now = time.monotonic_ns() - self.origin
        for new in tasks:
            self.ready_at.append(now)
            self.submitted_at[new.id] = now
            if not fits:
                self.progress.refuse(new)
                self._cancel([new], now)
            elif self.progress.join(new):
                self.policy.push(new)
            elif self.progress.state[new.id] > DONE:
                self._cancel([new], now)
        self.wake.notify_all()
