"""One step in simulated time: ranks compute their blocks, send as blocks finish, wait for what they receive, and reduce.

A rank computes its blocks in the order of the curve. When a block is done, it posts the block's messages, each for `send_us` of its time;
what stays on the rank is no message. Inside a node a message takes α + β·bytes. Between nodes it queues at the NIC of its sender and then
at that of its receiver, first come, first served, and each NIC is busy for β·bytes. A rank that has computed takes its messages in the
order of their arrival, each for `receive_us`. Nothing that a rank sends depends on what it receives in the same step, so three passes
in time order (posts, arrivals at NICs, arrivals at ranks) give exactly what an event loop gives.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from armillary.kernels import loop
from armillary.scheduling.mesh.octree.mesh import Floats, Graph, Ints
from armillary.scheduling.mesh.octree.refinement import Change

from .machine import Machine


@dataclass(frozen=True, eq=False)
class Step:
    """When each rank has computed and posted, and when it has received everything, in µs; and when the step ends."""

    computed: Floats
    finished: Floats
    end: float


def simulate_step(costs: Floats, placement: Ints, graph: Graph, ranks: int, machine: Machine) -> Step:
    """One step: costs in µs per block, the rank of each block, and the messages between blocks."""
    sent = np.empty(len(graph.target))
    computed = np.zeros(ranks)
    _compute(costs, np.argsort(placement, kind="stable"), placement, graph.first, graph.target, machine.send_us, sent, computed)
    away = np.flatnonzero(sent >= 0)
    finished = _delivered(sent[away], placement[graph.source[away]], placement[graph.target[away]], graph.size[away], computed, machine)
    return Step(computed, finished, float(finished.max()) + machine.allreduce_us(ranks))


def migrations(change: Change | None, before: Ints, placement: Ints, block_bytes: float, parts: int) -> tuple[Ints, Ints, Floats]:
    """Old rank, new rank and bytes of everything that moves, by old rank and then along the curve.

    A block that stays a block travels whole. Of a refined or merged one, each pair of old and new block exchanges one of `parts` parts.
    """
    if change is None:
        block = np.flatnonzero(before != placement)
        source, size = before[block], np.full(len(block), block_bytes)
    else:
        away = before[change.source] != placement[change.target]
        block = change.target[away]
        source, size = before[change.source[away]], np.where(change.same[block], block_bytes, block_bytes / parts)
    order = np.argsort(source, kind="stable")
    return source[order], placement[block][order], size[order]


def simulate_migration(source: Ints, target: Ints, size: Floats, ranks: int, machine: Machine) -> float:
    """µs until all that moves has arrived; a rank posts its blocks one after the other."""
    if not len(source):
        return 0.0
    post = np.asarray(machine.send_us * (1 + np.arange(len(source)) - np.searchsorted(source, source)), np.float64)
    free = np.asarray(machine.send_us * np.bincount(source, minlength=ranks), np.float64)
    return float(_delivered(post, source, target, size, free, machine).max())


def _delivered(post: Floats, source: Ints, target: Ints, size: Floats, free: Floats, machine: Machine) -> Floats:
    """When each rank has received everything, if it is free to receive at `free`."""
    finished = free.copy()
    arrival = np.empty(len(post))
    near = source // machine.per_node == target // machine.per_node
    far = np.flatnonzero(~near)
    arrival[near] = post[near] + machine.near_us + size[near] / machine.near_rate
    if len(far):
        nodes = -(-len(free) // machine.per_node)
        far = far[np.argsort(post[far], kind="stable")]
        head = _queued(post[far], source[far] // machine.per_node, size[far] / machine.far_rate, nodes) + machine.far_us
        order = np.argsort(head, kind="stable")
        far = far[order]
        busy = size[far] / machine.far_rate
        arrival[far] = _queued(head[order], target[far] // machine.per_node, busy, nodes) + busy
    order = np.argsort(arrival, kind="stable")
    _receive(arrival[order], target[order], machine.receive_us, finished)
    return finished


@loop
def _compute(costs, order, placement, first, target, send_us, sent, computed):  # type: ignore[no-untyped-def]
    """When each message is posted, or −1 where it stays on its rank."""
    for block in order:
        rank = placement[block]
        now = computed[rank] + costs[block]
        for m in range(first[block], first[block + 1]):
            if placement[target[m]] == rank:
                sent[m] = -1.0
            else:
                now += send_us
                sent[m] = now
        computed[rank] = now


@loop
def _queued(come, server, busy, servers):  # type: ignore[no-untyped-def]
    """When each message begins to be served; they come in the order of time."""
    free = np.zeros(servers)
    begin = np.empty(len(come))
    for m in range(len(come)):
        begin[m] = max(come[m], free[server[m]])
        free[server[m]] = begin[m] + busy[m]
    return begin


@loop
def _receive(arrival, target, receive_us, finished):  # type: ignore[no-untyped-def]
    for m in range(len(arrival)):
        finished[target[m]] = max(finished[target[m]], arrival[m]) + receive_us
