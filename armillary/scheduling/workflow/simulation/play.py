"""Plays a workflow on a cluster, event by event and without barriers.

A task becomes ready when its parents have ended. Inputs that its tier or its node lack are copied first, once per file and place; then it
waits for cores of its node, first come first served, and reads, computes and writes. Reads, writes and copies are flows in pools: a local
tier of a node, the connection of a node to the shared tier and to other nodes, and the shared tier itself. All flows rise to the same rate
until a pool is full or a flow is as fast as one task can be (max-min fairness). Outputs that are needed on the shared tier, or that nobody
reads, are copied there when their task ends; the makespan ends with the last of these copies.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from armillary.engine.compiled import heap, pop, push
from armillary.errors import InputError
from armillary.kernels import loop
from armillary.scheduling.workflow.stages.workflow import Floats, Ints, Workflow
from armillary.scheduling.workflow.storage.tiers import COPY, Machine

#: Places (file, tier, node) of one simulation.
MOST_PLACES = 1 << 25


@dataclass(frozen=True)
class Played:
    """The makespan in seconds, and for each task when it was ready, started, had read, had computed and ended, as [task, 5]."""

    makespan: float
    times: Floats
    #: Bytes that were copied between tiers and nodes.
    copied: float
    node: Ints


class Player:
    """A workflow on `nodes` nodes of a machine, ready to be played in many configurations."""

    def __init__(self, workflow: Workflow, machine: Machine, nodes: int) -> None:
        if not 1 <= nodes <= machine.nodes:
            raise InputError(f"found {nodes} nodes; expected 1 to {machine.nodes}, which {machine.name} has", where="nodes")
        if workflow.cores.max(initial=1) > machine.cores:
            raise InputError(f"a task needs {workflow.cores.max()} cores; expected at most {machine.cores}", where=workflow.name)
        if workflow.files * len(machine.tiers) * nodes > MOST_PLACES:
            raise InputError(f"found {workflow.files:,} files on {nodes} nodes; that is more than can be followed", where=workflow.name)
        self.workflow, self.machine, self.nodes = workflow, machine, nodes
        # Tasks of a stage are dealt out to nodes in blocks, as `srun --distribution=block` does.
        rank = np.arange(workflow.tasks) - np.concatenate([[0], np.cumsum(workflow.counts)])[workflow.stage]
        self.node: Ints = rank * np.minimum(nodes, workflow.counts)[workflow.stage] // workflow.counts[workflow.stage]
        made = workflow.producer >= 0
        self.first_output, self.output = _grouped(workflow.producer[made], np.flatnonzero(made), workflow.tasks)
        child = np.repeat(np.arange(workflow.tasks), np.diff(workflow.first_parent))
        self.first_child, self.child = _grouped(workflow.parent, child, workflow.tasks)
        self.rates = _rates(workflow, machine)

    def play(self, tier: npt.ArrayLike, noise: Floats | None = None) -> Played:
        """One configuration: the tier of each stage, and factors of the tasks' computation."""
        w = self.workflow
        of_stage = np.asarray(tier, np.int64)
        if of_stage.shape != (len(w.stages),) or of_stage.min(initial=0) < 0 or of_stage.max(initial=0) >= len(self.machine.tiers):
            raise InputError(f"expected a tier for each of {len(w.stages)} stages", where=w.name)
        compute = w.compute_s if noise is None else w.compute_s * noise
        read_on_shared = np.zeros(w.files, bool)
        on_shared = of_stage[w.stage[w.reader]] == self.machine.shared
        read_on_shared[w.read[on_shared]] = True
        homeward = (read_on_shared | ~w.is_read) & (w.producer >= 0)
        times = np.full((w.tasks, 5), -1.0)
        room = heap(w.tasks + 1)
        makespan, copied = _play(
            of_stage[w.stage], w.stage, self.node, compute, w.cores, w.size, w.producer, w.first_read, w.read, self.first_output,
            self.output, self.first_child, self.child, np.diff(w.first_parent), homeward, w.read_bytes, w.written_bytes, self.nodes,
            self.machine.cores, self.machine.shared, len(self.machine.tiers), *self.rates,
            _flows(w.tasks + w.files + len(w.read)), _copies(w.files, len(w.read)), room, times,
        )  # fmt: skip
        if not makespan >= 0:
            raise AssertionError("the simulation stopped before all tasks had run")
        return Played(float(makespan), times, float(copied), self.node)


def work(workflow: Workflow, machine: Machine, nodes: int) -> float:
    """About how many steps of ten nanoseconds a simulation takes: events of each stage times the flows that there may be at once."""
    reads = np.bincount(workflow.stage[workflow.reader], minlength=len(workflow.stages)).astype(float)
    made = workflow.producer >= 0
    writes = np.bincount(workflow.stage[workflow.producer[made]], minlength=len(workflow.stages)).astype(float)
    events = 3.0 * workflow.counts + reads + writes
    together = np.minimum(workflow.counts, nodes * machine.cores) + reads + writes
    return float((events * together).sum())


def _grouped(key: Ints, value: Ints, count: int) -> tuple[Ints, Ints]:
    order = np.argsort(key, kind="stable")
    first = np.zeros(count + 1, np.int64)
    np.cumsum(np.bincount(key, minlength=count), out=first[1:])
    return first, value[order]


def _rates(workflow: Workflow, machine: Machine) -> tuple[Any, ...]:
    """Rates of single tasks by [stage, tier, write], of copies by [tier, write], of nodes and of all nodes; the NIC's rate."""
    alone = np.array([
        [[tier.alone(write, float(size), bool(random)) for write in (False, True)] for tier in machine.tiers]
        for size, random in zip(workflow.transfer, workflow.random)
    ])  # fmt: skip
    copies = np.array([[tier.alone(write, COPY) for write in (False, True)] for tier in machine.tiers])
    node = np.array([[tier.node(write) for write in (False, True)] for tier in machine.tiers])
    together = np.array([[tier.aggregate(write) for write in (False, True)] for tier in machine.tiers])
    return alone.reshape(len(workflow.stages), len(machine.tiers), 2), copies, node, together, machine.nic_rate


class Flows(NamedTuple):
    """Reads, writes and copies under way; a pool that a flow uses gives `weight` seconds per byte of it."""

    left: np.ndarray
    whole: np.ndarray
    cap: np.ndarray
    rate: np.ndarray
    #: The number of pools that each flow uses, which they are, and seconds per byte in them.
    pools: np.ndarray
    pool: np.ndarray
    weight: np.ndarray
    kind: np.ndarray
    owner: np.ndarray
    frozen: np.ndarray
    #: [the number of flows]
    held: np.ndarray


def _flows(capacity: int) -> Flows:
    def floats(*shape: int) -> Floats:
        return np.empty((capacity, *shape))

    def ints(*shape: int) -> Ints:
        return np.empty((capacity, *shape), np.int64)

    return Flows(
        floats(), floats(), floats(), floats(), ints(), ints(4), floats(4), ints(), ints(), np.empty(capacity, bool), np.zeros(1, np.int64)
    )


class Copies(NamedTuple):
    """Copies by number: where they end, and the tasks that wait for them as linked lists."""

    place: np.ndarray
    head: np.ndarray
    task: np.ndarray
    next: np.ndarray
    #: [the number of copies, the number of waits]
    held: np.ndarray


def _copies(files: int, reads: int) -> Copies:
    return Copies(
        np.empty(files + reads, np.int64), np.empty(files + reads, np.int64), np.empty(reads + 1, np.int64), np.empty(reads + 1, np.int64),
        np.zeros(2, np.int64),
    )  # fmt: skip


@loop
def _add(flows, kind, owner, size, cap):  # type: ignore[no-untyped-def]
    f = flows.held[0]
    flows.held[0] += 1
    flows.left[f], flows.whole[f], flows.cap[f], flows.kind[f], flows.owner[f], flows.pools[f] = size, size, cap, kind, owner, 0
    return f


@loop
def _uses(flows, f, pool, weight):  # type: ignore[no-untyped-def]
    j = flows.pools[f]
    flows.pool[f, j], flows.weight[f, j] = pool, weight
    flows.pools[f] += 1


@loop
def _end_of(flows, f, tier, node, write, shared, nodes, node_rate, together):  # type: ignore[no-untyped-def]
    """One end of a flow: a local tier of a node, or the shared tier through the node's connection to it."""
    if tier == shared:
        _uses(flows, f, 0, 1.0 / together[tier, write])
        _uses(flows, f, 1 + node, 1.0 / node_rate[tier, write])
    else:
        _uses(flows, f, 1 + (1 + tier) * nodes + node, 1.0 / node_rate[tier, write])


@loop
def _share(flows, left, load, users):  # type: ignore[no-untyped-def]
    """Max-min fair rates: all rise together until a pool is full or a flow reaches its cap. A pool has one second per second."""
    count = flows.held[0]
    for p in range(len(left)):
        left[p], load[p], users[p] = 1.0, 0.0, 0
    for f in range(count):
        flows.frozen[f] = False
        for j in range(flows.pools[f]):
            load[flows.pool[f, j]] += flows.weight[f, j]
            users[flows.pool[f, j]] += 1
    level, active = 0.0, count
    while active > 0:
        step = np.inf
        for p in range(len(left)):
            if users[p] > 0 and load[p] > 0.0:
                step = min(step, left[p] / load[p])
        for f in range(count):
            if not flows.frozen[f]:
                step = min(step, flows.cap[f] - level)
        level += max(step, 0.0)
        for p in range(len(left)):
            if users[p] > 0:
                left[p] = max(0.0, left[p] - step * load[p])
        before = active
        for f in range(count):
            if flows.frozen[f]:
                continue
            stops = flows.cap[f] <= level * (1.0 + 1e-12)
            for j in range(flows.pools[f]):
                p = flows.pool[f, j]
                stops = stops or (left[p] <= 1e-12 and load[p] > 0.0)
            if stops:
                flows.frozen[f] = True
                flows.rate[f] = level
                active -= 1
        if active == before:
            # Rounding left a pool a little short of full, so that nothing can rise any further.
            for f in range(count):
                if not flows.frozen[f]:
                    flows.rate[f] = level
            return
        for p in range(len(left)):
            load[p], users[p] = 0.0, 0
        for f in range(count):
            if not flows.frozen[f]:
                for j in range(flows.pools[f]):
                    load[flows.pool[f, j]] += flows.weight[f, j]
                    users[flows.pool[f, j]] += 1


@loop
def _start_copy(  # type: ignore[no-untyped-def]
    flows, copies, place, size, source, source_node, target, target_node, shared, nodes, copy_rate, node_rate, together, nic
):
    """Starts a copy between two places and returns its number."""
    c = copies.held[0]
    copies.held[0] += 1
    copies.place[c], copies.head[c] = place, -1
    f = _add(flows, 2, c, size, min(copy_rate[source, 0], copy_rate[target, 1]))
    _end_of(flows, f, source, source_node, 0, shared, nodes, node_rate, together)
    _end_of(flows, f, target, target_node, 1, shared, nodes, node_rate, together)
    if source != shared and target != shared and source_node != target_node:
        _uses(flows, f, 1 + source_node, 1.0 / nic)
        _uses(flows, f, 1 + target_node, 1.0 / nic)
    return c


@loop
def _stage(  # type: ignore[no-untyped-def]
    t, flows, copies, present, tier_of, node, size, producer, first_read, read, shared, tiers, nodes, copy_rate, node_rate, together, nic
):
    """Starts the copies that a ready task needs; returns the number of copies that it waits for."""
    waits = 0
    tier = tier_of[t]
    for k in range(first_read[t], first_read[t + 1]):
        f = read[k]
        place = (f * tiers + tier) * nodes + (0 if tier == shared else node[t])
        if present[place] == 0:
            if size[f] <= 0.0:
                present[place] = 1
            else:
                made = producer[f]
                source = shared if made < 0 else tier_of[made]
                source_node = node[t] if source == shared else node[made]
                present[place] = 2 + _start_copy(
                    flows, copies, place, size[f], source, source_node, tier, node[t], shared, nodes, copy_rate, node_rate, together, nic
                )
        if present[place] >= 2:
            c = present[place] - 2
            w = copies.held[1]
            copies.held[1] += 1
            copies.task[w], copies.next[w], copies.head[c] = t, copies.head[c], w
            waits += 1
    return waits


@loop
def _play(  # type: ignore[no-untyped-def]
    tier_of, stage, node, compute, cores, size, producer, first_read, read, first_output, output, first_child, child, parents, homeward,
    read_bytes, written_bytes, nodes, node_cores, shared, tiers, alone, copy_rate, node_rate, together, nic, flows, copies, events, times
):
    tasks = len(tier_of)
    pools = 1 + (1 + tiers) * nodes
    left, load, users = np.empty(pools), np.empty(pools), np.empty(pools, np.int64)
    present = np.zeros(len(size) * tiers * nodes, np.int32)
    for f in range(len(size)):
        if producer[f] < 0:
            present[(f * tiers + shared) * nodes] = 1
    missing = parents.copy()
    waits = np.zeros(tasks, np.int64)
    free = np.full(nodes, node_cores)
    head, tail, after = np.full(nodes, -1), np.full(nodes, -1), np.full(tasks, -1)
    ready, ready_count, ready_next = np.empty(tasks, np.int64), 0, 0
    # Tasks whose copies have all arrived, and tasks that have written everything, at this instant.
    staged, ended = np.empty(tasks, np.int64), np.empty(tasks, np.int64)
    for t in range(tasks):
        if missing[t] == 0:
            ready[ready_count] = t
            ready_count += 1
    now, copied, done = 0.0, 0.0, 0
    staged_count = ended_count = 0
    while True:
        # Ends come first, because they free cores and make others ready.
        for e in range(ended_count):
            t = ended[e]
            times[t, 4] = now
            free[node[t]] += cores[t]
            done += 1
            for k in range(first_output[t], first_output[t + 1]):
                f = output[k]
                tier = tier_of[t]
                present[(f * tiers + tier) * nodes + (0 if tier == shared else node[t])] = 1
                if homeward[f] and tier != shared:
                    place = (f * tiers + shared) * nodes
                    if size[f] <= 0.0:
                        present[place] = 1
                    else:
                        present[place] = 2 + _start_copy(
                            flows, copies, place, size[f], tier, node[t], shared, node[t], shared, nodes, copy_rate, node_rate, together,
                            nic,
                        )
                        copied += size[f]
            for k in range(first_child[t], first_child[t + 1]):
                missing[child[k]] -= 1
                if missing[child[k]] == 0:
                    ready[ready_count] = child[k]
                    ready_count += 1
        ended_count = 0
        while ready_next < ready_count:
            t = ready[ready_next]
            ready_next += 1
            times[t, 0] = now
            before = copies.held[0]
            waits[t] = _stage(
                t, flows, copies, present, tier_of, node, size, producer, first_read, read, shared, tiers, nodes, copy_rate, node_rate,
                together, nic,
            )
            for c in range(before, copies.held[0]):
                copied += size[copies.place[c] // (tiers * nodes)]
            if waits[t] == 0:
                staged[staged_count] = t
                staged_count += 1
        for s in range(staged_count):
            t, n = staged[s], node[staged[s]]
            if head[n] < 0:
                head[n] = t
            else:
                after[tail[n]] = t
            tail[n] = t
        staged_count = 0
        for n in range(nodes):
            while head[n] >= 0 and cores[head[n]] <= free[n]:
                t = head[n]
                head[n] = after[t]
                free[n] -= cores[t]
                times[t, 1] = now
                if read_bytes[t] > 0.0:
                    f = _add(flows, 0, t, read_bytes[t], alone[stage[t], tier_of[t], 0])
                    _end_of(flows, f, tier_of[t], n, 0, shared, nodes, node_rate, together)
                else:
                    times[t, 2] = now
                    if not push(events, now + compute[t], 0, t):
                        return -1.0, 0.0
        _share(flows, left, load, users)
        then = np.inf
        if events.held[0] > 0:
            then = events.time[0]
        for f in range(flows.held[0]):
            then = min(then, now + flows.left[f] / flows.rate[f])
        if then == np.inf:
            break
        passed = then - now
        now = then
        for f in range(flows.held[0] - 1, -1, -1):
            flows.left[f] -= passed * flows.rate[f]
            # What is left may be too little to move the clock.
            if flows.left[f] <= max(1e-9 * flows.whole[f], 1e-14 * now * flows.rate[f]):
                kind, owner, last = flows.kind[f], flows.owner[f], flows.held[0] - 1
                flows.held[0] = last
                flows.left[f], flows.whole[f], flows.cap[f] = flows.left[last], flows.whole[last], flows.cap[last]
                flows.rate[f], flows.pools[f] = flows.rate[last], flows.pools[last]
                flows.kind[f], flows.owner[f] = flows.kind[last], flows.owner[last]
                for j in range(4):
                    flows.pool[f, j], flows.weight[f, j] = flows.pool[last, j], flows.weight[last, j]
                if kind == 0:
                    times[owner, 2] = now
                    if not push(events, now + compute[owner], 0, owner):
                        return -1.0, 0.0
                elif kind == 1:
                    ended[ended_count] = owner
                    ended_count += 1
                else:
                    present[copies.place[owner]] = 1
                    w = copies.head[owner]
                    while w >= 0:
                        waits[copies.task[w]] -= 1
                        if waits[copies.task[w]] == 0:
                            staged[staged_count] = copies.task[w]
                            staged_count += 1
                        w = copies.next[w]
        while events.held[0] > 0 and events.time[0] <= now:
            _, _, t = pop(events)
            times[t, 3] = now
            if written_bytes[t] > 0.0:
                f = _add(flows, 1, t, written_bytes[t], alone[stage[t], tier_of[t], 1])
                _end_of(flows, f, tier_of[t], node[t], 1, shared, nodes, node_rate, together)
            else:
                ended[ended_count] = t
                ended_count += 1
    return (now if done == tasks else -1.0), copied
