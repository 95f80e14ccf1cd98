"""Virtual workers: the same graph in simulated time, on a machine that need not be here.

A ready task is given to a worker by the policy; what it reads and is elsewhere is fetched through the network's flows; then it runs for
its stated cost, times exp(N(0, noise)) with the normal drawn from the task's key, so that every policy meets the same durations.
"""

from __future__ import annotations

import hashlib
import math
import threading
from collections.abc import Mapping, Sequence
from copy import copy
from functools import partial
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, Any

from armillary.errors import InputError, unknown
from armillary.tasks import events
from armillary.tasks.bodies import call_here, keep_written
from armillary.tasks.copies import Copies, Layer
from armillary.tasks.policies import PLACING, REAL, policy_for
from armillary.tasks.progress import DONE, FAILED, Progress
from armillary.tasks.run import Run, WorkerLost
from armillary.tasks.site import Site
from armillary.tasks.trace import KINDS, LINK, Recorder, Trace

if TYPE_CHECKING:
    from armillary.cluster import Cluster
    from armillary.tasks.graph import Graph, Task


class Virtual:
    """Workers in simulated time: every core and device of a cluster, `n` cores of one node, or a list of kinds, each on its own node.

    `noise` is the sigma of the log-normal factor on costs; `execute` also calls the bodies; `failures` maps node names to the second at
    which they die; `overhead` is seconds a task on the submitting core and `submit_rate` tasks a second. Without a cluster a transfer
    takes `latency + bytes / bandwidth`. `backfill` lets small tasks pass a gang that waits, unless that would delay it.
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
        backfill: bool = False,
    ) -> None:
        for name, value in (("noise", noise), ("overhead", overhead), ("latency", latency)):
            if not 0 <= value < math.inf:
                raise InputError(f"{name}: found {value!r}; expected a finite number that is not negative", where="Virtual")
        for name, value in (("submit_rate", submit_rate), ("bandwidth", bandwidth)):
            if not value > 0:
                raise InputError(f"{name}: found {value!r}; expected a number above 0", where="Virtual")
        self.site = Site(machine, latency, bandwidth)
        self.noise, self.seed, self.execute = noise, seed, execute
        self.failures = dict(failures or {})
        for node in self.failures:
            if node not in self.site.nodes:
                raise unknown("node", node, self.site.nodes, where="Virtual: failures")
        self.gap = overhead + 1.0 / submit_rate
        self.backfill = backfill

    def run(self, graph: Graph, *, policy: Any = None, on_error: str = "stop", seed: int = 0) -> Run:
        """Run the graph; called by `Graph.run`."""
        graph.validate()
        return _VirtualRun(self, graph, policy, on_error, seed).go()


def normal(key: str, seed: int) -> float:
    """A standard normal number that depends on a task's key and the seed only."""
    digest = hashlib.blake2b(f"{seed}:{key}".encode(), digest_size=16).digest()
    first = (int.from_bytes(digest[:8], "little") + 1) / 2.0**64
    second = int.from_bytes(digest[8:], "little") / 2.0**64
    return math.sqrt(-2.0 * math.log(first)) * math.cos(2.0 * math.pi * second)


class _Started:
    """A task that was given workers: waits for its inputs, then runs."""

    __slots__ = ("attempt", "handle", "missing", "started", "task", "until", "workers")

    def __init__(self, task: Task, workers: list[int], attempt: int) -> None:
        self.task, self.workers, self.attempt = task, workers, attempt
        self.missing = 0
        self.handle: Any = None
        self.started = 0.0
        #: When it is expected to give its workers back.
        self.until = math.inf


class _VirtualRun:
    def __init__(self, executor: Virtual, graph: Graph, policy: Any, on_error: str, seed: int) -> None:
        from armillary.engine import Network, Simulation

        self.executor, self.graph, self.site = executor, graph, executor.site
        site = self.site
        self.sim = Simulation()
        self.network = Network(self.sim, site.cluster) if site.cluster is not None else None
        self._check_needs()
        self.progress = Progress(graph, on_error)
        self.recorder = Recorder()
        self.copies = Copies({name: i for i, name in enumerate(site.nodes)})
        self.moves = len(site.nodes) > 1 and any(data.nbytes for data in graph.handles)
        self._policies(policy, seed)
        self.idle: dict[str, list[int]] = {kind: [] for kind in site.first}
        for worker, kind in enumerate(site.kinds):
            self.idle[kind].append(worker)
        for workers in self.idle.values():
            heapify(workers)
        self.is_idle = bytearray(b"\x01" * len(site.kinds))
        self.dead = bytearray(len(site.kinds))
        self.running: dict[int, _Started] = {}
        #: A gang that waits for its nodes: nothing passes it, except by backfilling.
        self.head: Task | None = None
        self.results: dict[int, Any] = {}
        self.failed: dict[str, BaseException] = {}
        self.cancelled: list[str] = []
        self.attempts: dict[int, int] = {}
        self.ready_at = [0.0] * len(graph.tasks)
        self.submitted_at = [executor.gap * (i + 1) if executor.gap else 0.0 for i in range(len(graph.tasks))]
        self.asked = False

    def _policies(self, policy: Any, seed: int) -> None:
        """One policy a set of worker kinds, so that no worker pops what it may not run; a single one where the policy places."""
        self.one = policy is not None and (not isinstance(policy, str) or policy in PLACING)
        count = len(self.site.kinds)
        sets = [("*",)] if self.one else sorted({task.on for task in self.graph.tasks})
        self.policies = {on: policy_for(policy, count, seed, REAL + PLACING) for on in sets}
        self.made = partial(policy_for, policy, count, seed, REAL + PLACING)
        # What policies may ask, of this run only.
        site: Any = copy(self.site)
        site.now = lambda: self.sim.now
        site.alive = lambda worker: not self.dead[worker]
        site.fetch_s = self._fetch_s
        site.bytes_here = self._bytes_here
        for each in self.policies.values():
            if hasattr(each, "prepare"):
                each.prepare(self.graph, site)
        self.places = next((p for p in self.policies.values() if hasattr(p, "planned")), None)

    def _policy(self, task: Task) -> Any:
        key = ("*",) if self.one else task.on
        if key not in self.policies:
            self.policies[key] = self.made()
        return self.policies[key]

    def _check_needs(self) -> None:
        most: dict[str, int] = {}
        for kind in self.site.first:
            most[kind] = max(sum(self.site.kinds[w] == kind for w in workers) for workers in self.site.workers_of)
        for task in self.graph.tasks:
            if not any(math.isfinite(self.site.seconds(task, worker)) for worker in self.site.first.values()):
                kinds = ", ".join(self.site.first)
                what = f"task {task.key} runs on {', '.join(task.on)} with cost {task.cost}"
                raise InputError(f"{what}; the workers are {kinds}", where="Virtual")
            if task.needs is None and task.nodes == 1:
                continue
            for resource, amount in (task.needs or {}).items():
                has = most.get("cpu" if resource == "cores" else resource.removesuffix("s"), 0)
                if amount > has:
                    raise InputError(f"task {task.key} needs {amount:g} {resource}; no node has more than {has}", where="Virtual")
            if task.nodes > len(self.site.nodes):
                raise InputError(f"task {task.key} needs {task.nodes} nodes; there are {len(self.site.nodes)}", where="Virtual")

    def go(self) -> Run:
        for node, at in self.executor.failures.items():
            self.sim.at(float(at), self._node_dies, self.site.nodes.index(node))
        self._push(self.progress.start())
        self._dispatch()
        self.sim.run()
        if self.progress.left:
            self._cancel(self.progress.cancel_rest())
        trace = Trace.of(self.recorder, self.graph, len(self.site.kinds), self._resources(), self.site.nodes)
        return Run(trace, trace.makespan, self.failed, self.cancelled, self.results)

    def _resources(self) -> dict[str, float]:
        return {"cores": float(max(len(workers) for workers in self.site.workers_of))}

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
        """Look for work once, after everything else of this instant that was asked for before."""
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
            for kind in self.idle if self.one else on:
                if self.head is None and kind in self.idle:
                    self._serve(policy, self.idle[kind])

    def _serve(self, policy: Any, idle: list[int]) -> None:
        passed: list[int] = []
        while idle and self.head is None:
            worker = heappop(idle)
            if not self.is_idle[worker] or self.dead[worker]:
                continue
            task = policy.pop(worker)
            if task is None:
                passed.append(worker)
                if not self.one:
                    break
            elif not self._try(task, worker):
                passed.append(worker)
                self.head = task
        for worker in passed:
            heappush(idle, worker)
        if self.head is not None and self.executor.backfill:
            self._fill(self.head)

    def _try(self, task: Task, worker: int | None) -> bool:
        """Start the task on this worker, or wherever it fits; False when it has to wait."""
        if task.needs is None and task.nodes == 1 and worker is not None:
            chosen: list[int] | None = [worker]
        else:
            chosen = self._fits(task, self._free())
        if chosen is None:
            return False
        started = _Started(task, chosen, self.attempts.get(task.id, 0) + 1)
        for one in chosen:
            self.is_idle[one] = 0
        self.running[task.id] = started
        started.until = self.sim.now + self.site.seconds(task, chosen[0])
        if self.moves and task.accesses:
            self._fetch(started)
        if not started.missing:
            self._begin(started)
        return True

    def _free(self) -> list[list[int]]:
        return [[w for w in workers if self.is_idle[w] and not self.dead[w]] for workers in self.site.workers_of]

    def _fits(self, task: Task, free: list[list[int]]) -> list[int] | None:
        """Workers for a task that needs several: the cores and devices of one rank on each of `nodes` nodes."""
        wanted = {"cpu": task.cores if "cpu" in task.on else 0}
        for resource, amount in (task.needs or {}).items():
            if resource != "cores":
                wanted[resource.removesuffix("s")] = int(amount)
        if not any(wanted.values()):
            wanted[task.on[0]] = 1
        chosen: list[int] = []
        nodes = 0
        for workers in free:
            mine: list[int] = []
            for kind, count in wanted.items():
                some = [w for w in workers if self.site.kinds[w] == kind][:count]
                mine += some
                if len(some) < count:
                    break
            else:
                chosen += mine
                nodes += 1
                if nodes == task.nodes:
                    return chosen
        return None

    def _fill(self, gang: Task) -> None:
        """Start tasks that end before the waiting gang can start, or use no worker that it will need."""
        free, when, reserved = self._free(), math.inf, set[int]()
        for other in sorted(self.running.values(), key=lambda s: (s.until, s.task.id)):
            for worker in other.workers:
                free[self.site.node_of[worker]].append(worker)
            found = self._fits(gang, free)
            if found is not None:
                when, reserved = other.until, set(found)
                break
        for on, policy in self.policies.items():
            refused: list[Task] = []
            for kind in on if not self.one else tuple(self.idle):
                for worker in sorted(w for w in self.idle.get(kind, ()) if self.is_idle[w] and not self.dead[w]):
                    while (task := policy.pop(worker)) is not None:
                        fits = task.nodes == 1 and task.needs is None
                        if fits and (worker not in reserved or self.sim.now + self.site.seconds(task, worker) <= when):
                            self._try(task, worker)
                            break
                        refused.append(task)
            for task in refused:
                policy.push(task)

    # Data

    def _fetch(self, started: _Started) -> None:
        node = self.site.node_of[started.workers[0]]
        for access in started.task.accesses:
            if access.mode != "writes":
                for layer in self.copies.needed(access):
                    if node not in layer.nodes:
                        started.missing += 1
                        self._move(layer, node, started.task, access.piece.nbytes, [started.task.id])

    def _move(self, layer: Layer, node: int, task: Task, nbytes: int, waits: list[int]) -> None:
        """Bring a layer to a node for a task; `waits` are the started tasks that go on when it is there."""
        waiting = layer.coming.get(node)
        if waiting is not None:
            waiting += waits
            return
        layer.coming[node] = waits
        source = next(iter(layer.nodes))
        nbytes = min(nbytes, layer.nbytes)
        done = partial(self._moved, layer, source, node, task, self.sim.now, nbytes)
        if self.network is not None:
            callbacks = self.network.flow(source, node, nbytes).callbacks
            assert callbacks is not None
            callbacks.append(lambda flow: done())
        else:
            self.sim.after(self.site.transfer_s(nbytes, source, node), done)

    def _moved(self, layer: Layer, source: int, node: int, task: Task, since: float, nbytes: int) -> None:
        layer.nodes[node] = None
        begun, ended = _ns(since), _ns(self.sim.now)
        self.recorder.row(task, node, DONE, 1, begun, begun, begun, ended, ended, source, LINK, nbytes, nbytes)
        for number in layer.coming.pop(node):
            started = self.running.get(number)
            if started is not None and started.missing and self.site.node_of[started.workers[0]] == node:
                started.missing -= 1
                if not started.missing:
                    self._begin(started)

    def _send_ahead(self, task: Task) -> None:
        """What a task wrote goes to the workers that are already known to read it."""
        if self.places is None:
            return
        for number in task.after:
            worker = self.places.planned(self.graph.tasks[number])
            if worker >= 0:
                node = self.site.node_of[worker]
                for access in self.graph.tasks[number].accesses:
                    if access.mode != "writes":
                        for layer in self.copies.needed(access):
                            if node not in layer.nodes and node not in layer.coming:
                                self._move(layer, node, self.graph.tasks[number], access.piece.nbytes, [])

    def _fetch_s(self, task: Task, worker: int) -> float:
        node, total = self.site.node_of[worker], 0.0
        for access in task.accesses:
            if access.mode != "writes":
                for layer in self.copies.needed(access):
                    if node not in layer.nodes:
                        total += self.site.transfer_s(min(layer.nbytes, access.piece.nbytes), next(iter(layer.nodes)), node)
        return total

    def _bytes_here(self, task: Task, worker: int) -> int:
        node = self.site.node_of[worker]
        reads = [access for access in task.accesses if access.mode != "writes"]
        return sum(min(layer.nbytes, a.piece.nbytes) for a in reads for layer in self.copies.needed(a) if node in layer.nodes)

    # Running and ending

    def _begin(self, started: _Started) -> None:
        seconds = self.site.seconds(started.task, started.workers[0])
        started.started = self.sim.now
        started.until = self.sim.now + seconds
        if self.executor.noise:
            seconds *= math.exp(self.executor.noise * normal(started.task.key, self.executor.seed))
        started.handle = self.sim.after(seconds, self._ended, started)

    def _ended(self, started: _Started) -> None:
        task, error, result = started.task, None, None
        if self.executor.execute:
            result, error = self._call(task, started.attempt)
        self._finish(started, result, error)

    def _finish(self, started: _Started, result: Any, error: BaseException | None) -> None:
        task = started.task
        del self.running[task.id]
        self._record(started, DONE if error is None else FAILED)
        for worker in started.workers:
            self.is_idle[worker] = 1
            heappush(self.idle[self.site.kinds[worker]], worker)
        lead = started.workers[0]
        if error is None:
            if result is not None:
                self.results[task.id] = result
            if self.moves:
                for access in task.accesses:
                    if access.mode != "reads":
                        self.copies.write(access, self.site.node_of[lead])
            ready = self.progress.done(task)
            self._policy(task).on_finish(task, lead, self.sim.now - started.started)
            if self.moves:
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

    def _record(self, started: _Started, status: int) -> None:
        """One row for each node of the task."""
        task, seen = started.task, set()
        begun, ended = _ns(started.started if started.handle is not None else self.sim.now), _ns(self.sim.now)
        for worker in started.workers:
            node = self.site.node_of[worker]
            if node not in seen:
                seen.add(node)
                kind = self.site.kinds[worker]
                number = KINDS.index(kind) if kind in KINDS else 3
                times = (_ns(self.submitted_at[task.id]), _ns(self.ready_at[task.id]), begun, ended, ended)
                self.recorder.row(task, worker, status, started.attempt, *times, node, number)

    def _call(self, task: Task, attempt: int) -> tuple[Any, BaseException | None]:
        """Really call the body, and wait for its events."""
        over = threading.Event()
        events.enter(lambda: events.Context(task.key, attempt, lambda context: over.set(), self._add))
        result: Any = None
        error: BaseException | None = None
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
        return result, error

    def _add(self, *args: Any, **how: Any) -> Task:
        known = len(self.graph.tasks)
        task = self.graph.add(*args, **how)
        self.graph.seal()
        for new in self.graph.tasks[known:]:
            self.ready_at.append(self.sim.now)
            self.submitted_at.append(self.sim.now)
            if self.progress.join(new):
                self._push([new])
        self._ask()
        return task

    def _cancel(self, tasks: list[Task]) -> None:
        for task in tasks:
            self.recorder.cancelled(task, _ns(self.submitted_at[task.id]), _ns(self.sim.now))
            self.cancelled.append(task.key)

    def _node_dies(self, node: int) -> None:
        for worker in self.site.workers_of[node]:
            self.dead[worker] = 1
        for started in [s for s in self.running.values() if any(self.dead[w] for w in s.workers)]:
            if started.handle is not None:
                started.handle.cancel()
            started.missing = 0
            self._finish(started, None, WorkerLost(f"node {self.site.nodes[node]} died while it ran task {started.task.key}"))


def _ns(seconds: float) -> int:
    return round(seconds * 1e9)
