"""Virtual workers run the same graph in simulated time, on a machine that need not exist here.

The policy gives a ready task to a worker, and its remote inputs are fetched by flows over the network. It then runs for its stated cost,
times exp(N(0, noise)) with the normal number drawn from the task's key, so that every policy sees the same durations.
"""

from __future__ import annotations

import hashlib
import math
import threading
from collections.abc import Mapping, Sequence
from copy import copy
from functools import partial
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Any

from armillary.errors import InputError, unknown
from armillary.tasks import events
from armillary.tasks.bodies import call_here, keep_written, restore, snapshot, value_of
from armillary.tasks.graph import Work
from armillary.tasks.plain import run_plainly
from armillary.tasks.policies import PLACING, REAL, policy_for
from armillary.tasks.progress import DONE, FAILED, READY, Progress
from armillary.tasks.run import Run, WorkerLost
from armillary.tasks.seats import Reservation, Seats
from armillary.tasks.site import Site
from armillary.tasks.trace import KINDS, Recorder, Trace
from armillary.tasks.transfers import Started, Transfers, check_room

if TYPE_CHECKING:
    from armillary.cluster import Cluster
    from armillary.tasks.graph import Graph, Task
    from armillary.tasks.memories import Layer


class Virtual:
    """Workers in simulated time: every core and device of a cluster, `n` cores of one node, or a list of kinds, each on its own node.

    `noise` is the sigma of the log-normal factor on costs, and `execute` also calls the bodies. `failures` maps node names to the second at
    which they die. `overhead` is in seconds per task on the submitting core, and `submit_rate` is in tasks per second. Without a cluster a
    transfer takes `latency + bytes / bandwidth`. `memory` bounds the bytes of copies in each memory (None means the sizes of the cluster,
    or no bound if it states none), and `resources` are what each node has in addition to cores and devices. `backfill` lets tasks overtake
    one that waits for several workers, unless that would delay it.
    """

    def __init__(
        self,
        machine: Cluster | int | Sequence[str],
        *,
        noise: float = 0.0,
        seed: int = 0,
        execute: bool = False,
        failures: Mapping[str, float] | None = None,
        overhead: float = 0.0,
        submit_rate: float = math.inf,
        latency: float = 0.0,
        bandwidth: float = math.inf,
        memory: float | None = None,
        resources: Mapping[str, float] | None = None,
        backfill: bool = False,
    ) -> None:
        for name, value in (("noise", noise), ("overhead", overhead), ("latency", latency)):
            if not 0 <= value < math.inf:
                raise InputError(f"{name}: found {value!r}; expected a finite number that is not negative", where="Virtual")
        for name, value in (("submit_rate", submit_rate), ("bandwidth", bandwidth), ("memory", memory if memory is not None else 1.0)):
            if not value > 0:
                raise InputError(f"{name}: found {value!r}; expected a number above 0", where="Virtual")
        for name, value in (resources or {}).items():
            if not 0 <= value < math.inf:
                raise InputError(f"resources.{name}: found {value!r}; expected a finite number that is not negative", where="Virtual")
        self.site = Site(machine, latency, bandwidth, memory)
        self.resources = dict(resources or {})
        self.noise, self.seed, self.execute = noise, seed, execute
        self.failures = dict(failures or {})
        for node in self.failures:
            if node not in self.site.nodes:
                raise unknown("node", node, self.site.nodes, where="Virtual: failures")
        self.gap = overhead + 1.0 / submit_rate
        self.backfill = backfill

    def run(self, graph: Graph, *, policy: Any = None, on_error: str = "stop", seed: int = 0) -> Run:
        """Runs the graph; `Graph.run` calls it."""
        graph.validate()
        return _VirtualRun(self, graph, policy, on_error, seed).go()


def normal(key: str, seed: int) -> float:
    """A standard normal number that depends only on a task's key and the seed."""
    digest = hashlib.blake2b(f"{seed}:{key}".encode(), digest_size=16).digest()
    first = (int.from_bytes(digest[:8], "little") + 1) / 2.0**64
    second = int.from_bytes(digest[8:], "little") / 2.0**64
    return math.sqrt(-2.0 * math.log(first)) * math.cos(2.0 * math.pi * second)


class _VirtualRun:
    def __init__(self, executor: Virtual, graph: Graph, policy: Any, on_error: str, seed: int) -> None:
        from armillary.engine import Simulation

        self.executor, self.graph, self.site = executor, graph, executor.site
        site = self.site
        self.sim = Simulation()
        self.seats = Seats(site, executor.resources)
        self._check_needs(graph.tasks)
        self.progress = Progress(graph, on_error)
        self.recorder = Recorder()
        self.data: Transfers | None = None
        if len(site.place_node) > 1 and any(data.nbytes for data in graph.handles):
            for data in graph.handles:
                site.home(data)
            check_room(graph, site)
            self.data = Transfers(self.sim, site, graph, self.recorder, bool(executor.failures), self._inputs_are_there, self._unstart)
        self._policies(policy, seed)
        self.kind_of = [KINDS.index(kind) if kind in KINDS else KINDS.index("host") for kind in site.kinds]
        self.running: dict[int, Started] = {}
        #: A task that waits for several workers or for room; no other task overtakes it, except by backfilling.
        self.head: Task | None = None
        #: The tasks that run again to restore lost data, each with the tasks that wait for it.
        self.again: dict[int, list[Task]] = {}
        self.results: dict[int, Any] = {}
        self.failed: dict[str, BaseException] = {}
        self.cancelled: list[str] = []
        self.unfinished: list[str] = []
        self.attempts: dict[int, int] = {}
        #: The tasks that bodies added under a key, by the number of the adding task.
        self.added: dict[tuple[int, Any], Task] = {}
        self.ready_at = [0.0] * len(graph.tasks)
        self.submitted_at = [executor.gap * (i + 1) if executor.gap else 0.0 for i in range(len(graph.tasks))]
        self.asked = False

    def _policies(self, policy: Any, seed: int) -> None:
        """One policy per set of worker kinds, so that no worker pops a task that it may not run; a single one
        if the policy places tasks.
        """
        self.one = policy is not None and (not isinstance(policy, str) or policy in PLACING)
        count = len(self.site.kinds)
        sets = [("*",)] if self.one else sorted({task.on for task in self.graph.tasks})
        self.policies = {on: policy_for(policy, count, seed, REAL + PLACING) for on in sets}
        self.made = partial(policy_for, policy, count, seed, REAL + PLACING)
        # What policies may ask of this run.
        site: Any = copy(self.site)
        site.now = lambda: self.sim.now
        site.alive = lambda worker: not self.seats.dead[worker]
        site.fetch_s = self.data.fetch_s if self.data is not None else lambda task, worker: 0.0
        site.bytes_here = self.data.bytes_here if self.data is not None else lambda task, worker: 0
        for each in self.policies.values():
            if hasattr(each, "prepare"):
                each.prepare(self.graph, site)
        self.places = next((p for p in self.policies.values() if hasattr(p, "planned")), None)

    def _policy(self, task: Task) -> Any:
        key = ("*",) if self.one else task.on
        if key not in self.policies:
            self.policies[key] = self.made()
        return self.policies[key]

    def _check_needs(self, tasks: Sequence[Task]) -> None:
        for task in tasks:
            if task.on[0] in self.site.first and (task.cost is None or task.cost.__class__ is float):
                continue
            if not any(math.isfinite(self.site.seconds(task, worker)) for worker in self.site.first.values()):
                kinds = ", ".join(self.site.first)
                what = f"task {task.key} runs on {', '.join(task.on)} with cost {task.cost}"
                raise InputError(f"{what}; the workers are {kinds}", where="Virtual")
        self.seats.check(tasks)

    def go(self) -> Run:
        for node, at in self.executor.failures.items():
            self.sim.at(float(at), self._node_dies, self.site.nodes.index(node))
        if self._is_plain():
            (policy,) = self.policies.values()
            ((kind, idle),) = self.seats.idle.items()
            seconds = self._charged if self.executor.noise else partial(self.site.seconds, worker=self.site.first[kind])
            run_plainly(self.graph, self.progress, self.recorder, policy, idle, self.kind_of[0], self.site.node_of, seconds)
        else:
            self._push(self.progress.start())
            self._dispatch()
            self.sim.run()
        if self.unfinished:
            raise events.Unfinished(f"events that can no longer happen: tasks {', '.join(self.unfinished[:10])}")
        if self.progress.left and not self.progress.stopped:
            for task in [t for t in self.graph.tasks if self.progress.state[t.id] == READY]:
                self._give_up(task, WorkerLost(f"no worker is left that can run task {task.key}"))
        if self.progress.left:
            self._cancel(self.progress.cancel_rest())
        has = {name: amount for name, amount in self.seats.has.items() if amount < math.inf}
        has |= {f"{kind}s": float(count) for kind, count in self.seats.most.items() if kind != "cpu"}
        has["cores"] = float(max(len(workers) for workers in self.site.workers_of))
        trace = Trace.of(self.recorder, self.graph, len(self.site.kinds), has, self.site.nodes)
        return Run(trace, trace.makespan, self.failed, self.cancelled, self.results)

    def _is_plain(self) -> bool:
        """Whether only the policy decides the order: there is no data movement, and there are no needs, calls or failures."""
        executor = self.executor
        if self.data is not None or self.one or executor.execute or executor.failures or executor.gap or len(self.site.first) > 1:
            return False
        alike = len(self.policies) == 1 and all(len(on) == 1 for on in self.policies)
        return alike and all(task.needs is None and task.nodes == 1 and task.cost.__class__ is not Work for task in self.graph.tasks)

    def _charged(self, task: Task, worker: int | None = None) -> float:
        """The seconds of the task: its cost on the worker, with noise."""
        seconds = self.site.seconds(task, self.site.first[task.on[0]] if worker is None else worker)
        if self.executor.noise:
            seconds *= math.exp(self.executor.noise * normal(task.key, self.executor.seed))
        return seconds

    # Giving tasks to workers

    def _push(self, tasks: list[Task]) -> None:
        for task in tasks:
            if self.submitted_at[task.id] > self.sim.now:
                self.sim.at(self.submitted_at[task.id], self._arrives, task)
            else:
                self.ready_at[task.id] = self.sim.now
                self._policy(task).push(task)

    def _arrives(self, task: Task) -> None:
        self._push([task])
        self._ask()

    def _ask(self) -> None:
        """Looks for work once, after everything else that was already scheduled for this instant."""
        if not self.asked:
            self.asked = True
            self.sim.after(0.0, self._dispatch)

    def _dispatch(self) -> None:
        self.asked = False
        if self.progress.stopped:
            return
        if self.head is not None:
            task, self.head = self.head, None
            if not self._try(task, None):
                self.head = task
                if self.executor.backfill:
                    self._fill(task)
                return
        for on, policy in self.policies.items():
            for kind in self.seats.idle if self.one else on:
                if self.head is None and kind in self.seats.idle:
                    self._serve(policy, self.seats.idle[kind])

    def _serve(self, policy: Any, idle: list[int]) -> None:
        passed: list[int] = []
        while idle and self.head is None:
            worker = heappop(idle)
            if not self.seats.is_idle[worker] or self.seats.dead[worker]:
                continue
            task = policy.pop(worker)
            if task is None:
                passed.append(worker)
                if not self.one:
                    break
            elif not self._try(task, worker):
                passed.append(worker)
                self.head = task
            elif self.seats.is_idle[worker]:
                heappush(idle, worker)  # the task runs elsewhere, or waits for lost data
        for worker in passed:
            heappush(idle, worker)
        if self.head is not None and self.executor.backfill:
            self._fill(self.head)

    def _try(self, task: Task, worker: int | None, chosen: list[int] | None = None) -> bool:
        """Starts the task on these workers, or wherever it fits; returns False if it has to wait."""
        if self.data is not None and task.accesses:
            lost = self.data.lost(task, task.id in self.again)
            if lost is not None:
                self._recover(lost, task)
                return True
        if chosen is None:
            if task.needs is None and task.nodes == 1 and worker is not None:
                chosen = [worker]
            else:
                chosen = self.seats.fits(task, self.seats.empty(), self.seats.free)
        if chosen is None:
            return False
        started = Started(task, chosen, self.attempts.get(task.id, 0) + 1, task.id in self.again)
        if self.data is not None and task.accesses and not self.data.claim(started, self.site.place_of[chosen[0]]):
            return False
        self.seats.take(chosen, task)
        self.running[task.id] = started
        started.until = self.sim.now + self.site.seconds(task, chosen[0])
        if not started.missing:
            self._begin(started)
        return True

    def _fill(self, head: Task) -> None:
        """Starts tasks that end before the waiting one can start, or that leave it what it needs at that time."""
        ends = [(s.until, s.task.id, s.workers, s.task) for s in self.running.values()]
        reserved = Reservation(self.seats, head, ends, self.sim.now)
        seats = self.seats
        for on, policy in self.policies.items():
            refused: list[Task] = []
            for kind in on if not self.one else tuple(seats.idle):
                for worker in sorted(w for w in {*seats.idle.get(kind, ())} if seats.is_idle[w] and not seats.dead[w]):
                    while seats.is_idle[worker] and (task := policy.pop(worker)) is not None:
                        if not self._passes(task, worker, reserved):
                            refused.append(task)
            if hasattr(policy, "put_back"):
                policy.put_back(refused)
            else:
                for task in refused:
                    policy.push(task)

    def _passes(self, task: Task, worker: int, reserved: Reservation) -> bool:
        """Starts the task now if that does not delay the waiting one."""
        idle, kinds = self.seats.empty(), self.site.kinds
        if task.needs is None and task.nodes == 1:
            options = [[worker]]
            if not self.one:
                options += [[w] for workers in idle for w in workers if kinds[w] == kinds[worker] and w != worker]
        else:
            fit = self.seats.fits(task, idle, self.seats.free)
            options = [fit] if fit is not None else []
        for workers in options:
            ends_in_time = self.sim.now + self.site.seconds(task, workers[0]) <= reserved.when
            if ends_in_time or reserved.spare(workers, task):
                return self._try(task, None, workers)
        return False

    # Data

    def _inputs_are_there(self, started: Started) -> None:
        if self.running.get(started.task.id) is started and started.handle is None:
            self._begin(started)

    def _unstart(self, started: Started) -> None:
        """The inputs of a task can no longer arrive, so it releases its workers and is ready again."""
        if self.running.get(started.task.id) is started:
            self._leave(started)
            self._push([started.task])
            self._ask()

    def _leave(self, started: Started) -> None:
        del self.running[started.task.id]
        if self.data is not None and started.task.accesses:
            self.data.release(started)
        self.seats.leave(started.workers, started.task)

    def _recover(self, lost: Layer, task: Task) -> None:
        """The task waits until the task that wrote the lost data has run again; initial data cannot be restored."""
        if lost.writer < 0:
            self._give_up(task, WorkerLost(f"data {lost.data.name}, which task {task.key} needs, was lost with the node that was its home"))
        elif lost.writer in self.again:
            self.again[lost.writer].append(task)
        else:
            self.again[lost.writer] = [task]
            self._push([self.graph.tasks[lost.writer]])
            self._ask()

    def _give_up(self, task: Task, error: BaseException) -> None:
        """Fails a task that cannot run, with the tasks that depend on it or wait for data that it should have restored."""
        waiting = self.again.pop(task.id, None)
        if waiting is None:
            now = _ns(self.sim.now)
            self.failed[task.key] = error
            times = (_ns(self.submitted_at[task.id]), _ns(self.ready_at[task.id]), now, now, now)
            self.recorder.row(task, -1, FAILED, self.attempts.get(task.id, 0) + 1, *times)
            ready, cancelled = self.progress.fail(task)
            self._cancel(cancelled)
            self._push(ready)
        for other in waiting or ():
            self._give_up(other, error)

    def _send_ahead(self, task: Task) -> None:
        """Sends what a task wrote to the workers that are already known to read it."""
        if self.places is not None and self.data is not None:
            for number in task.after:
                worker = self.places.planned(self.graph.tasks[number])
                if worker >= 0:
                    self.data.send_ahead(self.graph.tasks[number], worker)

    # Running and ending

    def _begin(self, started: Started) -> None:
        lead = started.workers[0]
        started.started = self.sim.now
        started.until = self.sim.now + self.site.seconds(started.task, lead)
        started.handle = self.sim.after(self._charged(started.task, lead), self._ended, started)

    def _ended(self, started: Started) -> None:
        task, error, result = started.task, None, None
        if self.executor.execute and not started.again:
            result, error = self._call(task, started.attempt)
        self._finish(started, result, error)

    def _finish(self, started: Started, result: Any, error: BaseException | None) -> None:
        task = started.task
        self._leave(started)
        self._record(started, DONE if error is None else FAILED)
        lead = started.workers[0]
        if error is None and self.data is not None and task.accesses:
            self.data.ended(started)
        if started.again:
            self.attempts[task.id] = started.attempt
            ready = self.again.pop(task.id) if error is None else [task]
        elif error is None:
            if result is not None:
                self.results[task.id] = result
            if self.executor.failures:
                self.attempts[task.id] = started.attempt
            ready = self.progress.done(task)
            self._policy(task).on_finish(task, lead, self.sim.now - started.started)
            self._send_ahead(task)
        else:
            self.attempts[task.id] = started.attempt
            if started.attempt <= task.retries and not self.progress.stopped:
                ready = [task]
            else:
                self.failed[task.key] = error
                ready, cancelled = self.progress.fail(task)
                self._cancel(cancelled)
        self._push(ready)
        self._ask()

    def _record(self, started: Started, status: int) -> None:
        """Records one row per node of the task."""
        task, now = started.task, self.sim.now
        begun, ended = _ns(started.started if started.handle is not None else now), _ns(now)
        times = (_ns(self.submitted_at[task.id]), _ns(self.ready_at[task.id]), begun, ended, ended)
        seen: set[int] = set()
        for worker in started.workers:
            node = self.site.node_of[worker]
            if node not in seen:
                seen.add(node)
                self.recorder.row(task, worker, status, started.attempt, *times, node, self.kind_of[worker])

    def _call(self, task: Task, attempt: int) -> tuple[Any, BaseException | None]:
        """Calls the body, and waits for its events."""
        over = threading.Event()
        events.enter(lambda: events.Context(task.key, attempt, lambda context: over.set(), partial(self._add, task), self.graph.handle))
        result: Any = None
        error: BaseException | None = None
        saved = snapshot(task, value_of) if task.retries else []
        try:
            result = call_here(task, self.results)
            keep_written(task, result)
        except Exception as raised:
            error = raised
        finally:
            context = events.leave()
        if context is not None:
            context.settle(1, error)
            over.wait()
            error = context.error
            if context.abandoned:
                self.unfinished.append(task.key)
        if error is not None:
            restore(saved)
        return result, error

    def _add(self, parent: Task, *args: Any, **how: Any) -> Task:
        before = self.added.get((parent.id, how.get("key")))
        if before is not None:
            return before
        known, fits = len(self.graph.tasks), False
        try:
            task = self.graph.add(*args, **how)
            self.graph.seal()
            self._check_needs(self.graph.tasks[known:])
            fits = True
        finally:
            self._joined(self.graph.tasks[known:], fits)
        if how.get("key") is not None:
            self.added[parent.id, how["key"]] = task
        return task

    def _joined(self, tasks: list[Task], fits: bool) -> None:
        for new in tasks:
            self.ready_at.append(self.sim.now)
            self.submitted_at.append(self.sim.now)
            if not fits:
                self.progress.refuse(new)
                self._cancel([new])
            elif self.progress.join(new):
                self._push([new])
            elif self.progress.state[new.id] > DONE:
                self._cancel([new])
        self._ask()

    def _cancel(self, tasks: list[Task]) -> None:
        for task in tasks:
            self.recorder.cancelled(task, _ns(self.submitted_at[task.id]), _ns(self.sim.now))
            self.cancelled.append(task.key)

    def _node_dies(self, node: int) -> None:
        lost = self.site.workers_of[node]
        for worker in lost:
            self.seats.dead[worker] = 1
        for policy in self.policies.values():
            if hasattr(policy, "lost"):
                policy.lost(lost)
        for started in [s for s in self.running.values() if any(self.seats.dead[w] for w in s.workers)]:
            if started.handle is not None:
                started.handle.cancel()
            self._finish(started, None, WorkerLost(f"node {self.site.nodes[node]} died while it ran task {started.task.key}"))
        if self.data is not None:
            self.data.die(node)
        self._ask()


def _ns(seconds: float) -> int:
    return round(seconds * 1e9)
