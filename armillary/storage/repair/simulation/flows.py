"""How long a plan takes: its flows over the engine's max-min pools, event by event.

A pipelined tree is one activity over all its pools, so all edges have the same rate. (depth - 1) slices at that rate pass before the
destination gets the first one, and they are added to its work. A star is k flows that share max-min, and rounds are flows of whole blocks
that wait for their inputs. The ranges of a single lost block, and of a plan that says so, keep to rates in proportion to their lengths.
At most `window` lost blocks are repaired at once, in the order of the plan. Capacities may change at given times.

Pools are numbered as in `Fabric.capacities`: nodes up, nodes down, racks up, racks down, rack switches, the core.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from armillary.engine import maxmin
from armillary.kernels import loop

from ..own_placement.bandwidth import Bandwidth
from ..plans.plan import PIPELINE, ROUNDS, RepairPlan
from ..plans.problem import Fabric

#: Above this number of sub-repairs, those of one block run as one activity, each at its share of the rate.
PACED_ABOVE = 20_000
#: Lost blocks that are repaired at once, as in `Constant("window", …)` of the arena.
WINDOW = 64


@dataclass(frozen=True)
class Run:
    """The outcome: seconds to the last byte, bytes over each pool, and the progress of each sub-repair (complete unless stopped)."""

    seconds: float
    pool_bytes: np.ndarray
    capacity_bytes: np.ndarray
    done: np.ndarray
    finished: bool


@dataclass(frozen=True)
class Flows:
    """The activities of a plan: work and start-up in bytes, pools and usages in CSR form, and the block and sub-repair of each.

    `waits[f]` flows must end before flow f starts. When f ends, flow `then[f]` waits for one less; -1 means none.
    """

    work: np.ndarray
    startup: np.ndarray
    first: np.ndarray
    pools: np.ndarray
    uses: np.ndarray
    block: np.ndarray
    sub: np.ndarray
    waits: np.ndarray
    then: np.ndarray


def flows(plan: RepairPlan, paced: bool) -> Flows:
    """The plan's activities, in the order of its blocks."""
    fabric = plan.problem.fabric
    pieces = _flows(
        plan.block, (plan.stop - plan.start).astype(np.float64), plan.shape, plan.uplink, plan.first, plan.child, plan.parent, fabric.rack,
        fabric.racks, len(fabric.capacities), float(plan.problem.slice),
    )  # fmt: skip
    made = Flows(*pieces)
    return _merged(made, len(plan.problem), len(fabric.capacities)) if paced else made


def simulate(
    plan: RepairPlan,
    bandwidth: Bandwidth | None = None,
    *,
    window: int = WINDOW,
    start: float = 0.0,
    stop: float = np.inf,
    paced: bool | None = None,
) -> Run:
    """Runs the plan from time `start`; with `bandwidth` the nodes' capacities follow it, otherwise they stay as the plan saw them.

    `stop` ends the run early, and the result says how far every sub-repair came. At most `window` blocks are repaired at once. `paced`
    runs the ranges of a block as one activity, each at its share of the rate, as the plan says unless it is given. Units are seconds
    and bytes.
    """
    fabric = plan.problem.fabric
    paced = plan.paced or len(plan) > PACED_ABOVE or len(plan.problem) == 1 if paced is None else paced
    # Only pipelines can be paced, because rounds have an order and stars are k separate flows.
    paced = paced and bool((plan.shape == PIPELINE).all())
    table = flows(plan, paced)
    times, levels = capacity_changes(fabric, bandwidth, start)
    order = np.argsort(table.block, kind="stable")
    begins = np.searchsorted(table.block[order], np.arange(len(plan.problem) + 1))
    counts = np.diff(table.first)
    width = 1 << int(max(int(counts.max(initial=1)), 1) - 1).bit_length()
    most = int(np.diff(begins).max(initial=1)) * min(window, len(plan.problem))
    system = maxmin.system(max(most, 1), len(fabric.capacities), max(width, 1))
    system.capacity[:] = levels[0]
    left = np.zeros(len(table.work))
    end, moved = _run(
        system, table.work, table.startup, table.first, table.pools, table.uses, table.block, table.waits.copy(), table.then, order, begins,
        times, levels, window, start, stop, plan.fit, left,
    )  # fmt: skip
    done = _done(plan, table, left, paced)
    spans = np.diff(np.append(times, np.inf).clip(None, end).clip(start))
    offered = np.where(np.isfinite(levels), levels, 0.0)
    capacity_bytes = (offered * spans[: len(levels), None]).sum(axis=0)
    return Run(end - start, moved, capacity_bytes, done, bool((left <= 0).all()))


def capacity_changes(fabric: Fabric, bandwidth: Bandwidth | None, start: float) -> tuple[np.ndarray, np.ndarray]:
    """(times, the capacities of all pools from each time on), from `start`."""
    if bandwidth is None:
        return np.array([start]), fabric.capacities[None, :]
    later = bandwidth.times[bandwidth.times > start]
    times = np.concatenate([[start], later])
    rows = [fabric.with_nodes(*bandwidth.at(float(t))).capacities for t in times]
    return times, np.array(rows)


def traffic(plan: RepairPlan) -> np.ndarray:
    """Bytes that the plan moves over each pool, without start-up."""
    table = flows(plan, False)
    found = np.zeros(len(plan.problem.fabric.capacities))
    each = np.repeat(table.work - table.startup, np.diff(table.first)) * table.uses
    np.add.at(found, table.pools, each)
    return found


def _done(plan: RepairPlan, table: Flows, left: np.ndarray, paced: bool) -> np.ndarray:
    """The bytes of each sub-repair that have arrived; stars and rounds have none until they are complete."""
    length = (plan.stop - plan.start).astype(np.float64)
    if paced:
        share = np.zeros(len(plan.problem))
        share[table.block] = left / np.maximum(table.work - table.startup, 1.0)
        return np.asarray(length * (1.0 - np.minimum(share[plan.block], 1.0)))
    behind = np.zeros(len(plan))
    np.maximum.at(behind, table.sub, np.where(plan.shape[table.sub] == PIPELINE, left, np.where(left > 0, np.inf, 0.0)))
    return np.maximum(length - behind, 0.0)


def _merged(table: Flows, blocks: int, pools: int) -> Flows:
    """Makes one activity per lost block, whose usage is the share of its bytes that a pool sees; for plans of pipelines only."""
    whole = np.zeros(blocks)
    np.add.at(whole, table.block, table.work - table.startup)
    startup = np.zeros(blocks)
    np.add.at(startup, table.block, table.startup)
    usage = np.zeros((blocks, pools))
    each = np.repeat(np.arange(len(table.work)), np.diff(table.first))
    np.add.at(
        usage, (table.block[each], table.pools), table.uses * ((table.work - table.startup) / np.maximum(whole[table.block], 1.0))[each]
    )
    row, pool = np.nonzero(usage)
    first = np.searchsorted(row, np.arange(blocks + 1))
    numbers = np.arange(blocks)
    none = np.zeros(blocks, np.int64)
    return Flows(whole + startup, startup, first, pool, usage[row, pool], numbers, numbers, none, none - 1)


@loop
def _edge_pools(a, b, rack, nodes, racks, out):
    """Writes the pools that a stream from vertex a to vertex b uses, and returns how many there are."""
    n = 0
    core = nodes + racks
    ra = rack[a] if a < nodes else (a - nodes if a < core else -1)
    rb = rack[b] if b < nodes else (b - nodes if b < core else -1)
    if a < nodes:
        out[n] = a
        n += 1
    if ra != rb and ra >= 0:
        out[n] = 2 * nodes + ra
        n += 1
    if ra != rb and rb >= 0:
        out[n] = 2 * nodes + racks + rb
        n += 1
    if b < nodes:
        out[n] = nodes + b
    else:
        out[n] = 2 * nodes + 2 * racks + (b - nodes)
    return n + 1


@loop
def _flows(block, length, shape, uplink, first, child, parent, rack, racks, pool_count, slice_bytes):
    subs, nodes = len(block), len(rack)
    count = 0
    for s in range(subs):
        count += 1 if shape[s] == PIPELINE else first[s + 1] - first[s]
    work, startup = np.zeros(count), np.zeros(count)
    begins = np.zeros(count + 1, np.int64)
    of_block, of_sub = np.zeros(count, np.int64), np.zeros(count, np.int64)
    waits, then = np.zeros(count, np.int64), np.full(count, -1, np.int64)
    pools, uses = np.empty(4 * len(child), np.int64), np.empty(4 * len(child))
    usage = np.zeros(pool_count)
    touched, some = np.empty(pool_count, np.int64), np.empty(4, np.int64)
    vertices = nodes + racks + 1
    level, ways = np.zeros(vertices, np.int64), np.full(vertices, -1, np.int64)
    f, at = 0, 0
    for s in range(subs):
        low, high = first[s], first[s + 1]
        if shape[s] != PIPELINE:
            # The flow out of each vertex is needed to chain rounds.
            for e in range(low, high):
                ways[child[e]] = f + e - low
            for e in range(low, high):
                work[f], of_block[f], of_sub[f] = length[s], block[s], s
                n = _edge_pools(child[e], parent[e], rack, nodes, racks, some)
                for p in range(n):
                    pools[at], uses[at] = some[p], 1.0
                    at += 1
                if shape[s] == ROUNDS and ways[parent[e]] >= 0:
                    then[f] = ways[parent[e]]
                    waits[ways[parent[e]]] += 1
                f += 1
                begins[f] = at
            for e in range(low, high):
                ways[child[e]] = -1
            continue
        depth, found = 0, 0
        for e in range(low, high):
            n = _edge_pools(child[e], parent[e], rack, nodes, racks, some)
            for p in range(n):
                if usage[some[p]] == 0.0:
                    touched[found] = some[p]
                    found += 1
                usage[some[p]] += uplink[s] if some[p] < nodes else 1.0
            # Children stand before parents.
            level[parent[e]] = max(level[parent[e]], level[child[e]] + 1)
            depth = max(depth, level[parent[e]])
        for e in range(low, high):
            level[child[e]] = 0
            level[parent[e]] = 0
        startup[f] = (depth - 1) * slice_bytes if length[s] > 0 else 0.0
        work[f], of_block[f], of_sub[f] = length[s] + startup[f], block[s], s
        for p in range(found):
            pools[at], uses[at] = touched[p], usage[touched[p]]
            usage[touched[p]] = 0.0
            at += 1
        f += 1
        begins[f] = at
    return work, startup, begins, pools[:at], uses[:at], of_block, of_sub, waits, then


@loop
def _run(s, work, startup, first, pools, uses, block, waits, then, order, begins, times, levels, window, start, stop, fit, left):
    """Runs the event loop. `left[f]` receives the bytes that are not done; the bytes over each pool are returned with the end."""
    flows_total, blocks = len(work), len(begins) - 1
    rows = len(s.activity)
    free_rows = np.arange(rows - 1, -1, -1)
    free = rows
    flow_of = np.full(rows, -1, np.int64)
    open_flows = np.zeros(blocks, np.int64)
    ready = np.empty(flows_total, np.int64)
    busy = np.zeros(len(s.capacity))
    waiting, waiting_count = np.arange(blocks), blocks
    head, active, now, change = 0, 0, start, 1
    none = np.empty(0, np.int64)
    out = np.empty(rows, np.int64)
    one_row, one, count_of = np.empty(1, np.int64), np.zeros(1, np.int64), np.empty(1, np.int64)
    numbers = np.empty((1, 3))
    moved = np.zeros(len(s.capacity))
    sequence, finished_flows = 0, 0
    for f in range(flows_total):
        left[f] = max(work[f] - startup[f], 0.0)
    ready_count = 0
    while True:
        while active < window and head < waiting_count:
            if fit:
                _idlest(waiting, head, min(waiting_count, head + 64), begins, order, first, pools, busy)
            b = waiting[head]
            head += 1
            active += 1
            open_flows[b] = begins[b + 1] - begins[b]
            if open_flows[b] == 0:
                active -= 1
            for i in range(begins[b], begins[b + 1]):
                if waits[order[i]] == 0:
                    ready[ready_count] = order[i]
                    ready_count += 1
        for i in range(ready_count):
            f = ready[i]
            free -= 1
            a = free_rows[free]
            flow_of[a] = f
            one_row[0], count_of[0] = a, first[f + 1] - first[f]
            numbers[0, 0], numbers[0, 1], numbers[0, 2] = max(work[f], 1.0), np.inf, work[f]
            one[0] = 0
            maxmin.begin(
                s, now, one_row, np.full(1, sequence), one, count_of, pools[first[f] : first[f + 1]], uses[first[f] : first[f + 1]], numbers
            )
            sequence += 1
            for p in range(first[f], first[f + 1]):
                busy[pools[p]] += uses[p]
        ready_count = 0
        due = maxmin.solve(s, now, none)
        if finished_flows == flows_total:
            break
        next_change = times[change] if change < len(times) else np.inf
        following = min(due, next_change, stop)
        if following == np.inf:
            # The remaining flows can never move.
            now = np.inf
            break
        now = following
        if now == stop and due > stop:
            break
        if next_change == now:
            for r in range(len(s.capacity)):
                if s.capacity[r] != levels[change, r]:
                    s.capacity[r] = levels[change, r]
                    maxmin.touch(s, r)
            change += 1
        count = maxmin.finished(s, now, out)
        for i in range(count):
            a = out[i]
            f = flow_of[a]
            flow_of[a] = -1
            free_rows[free] = a
            free += 1
            left[f] = 0.0
            finished_flows += 1
            for p in range(first[f], first[f + 1]):
                busy[pools[p]] -= uses[p]
                moved[pools[p]] += uses[p] * (work[f] - startup[f])
            if then[f] >= 0:
                waits[then[f]] -= 1
                if waits[then[f]] == 0:
                    ready[ready_count] = then[f]
                    ready_count += 1
            open_flows[block[f]] -= 1
            if open_flows[block[f]] == 0:
                active -= 1
    for a in range(rows):
        f = flow_of[a]
        if f >= 0:
            rest = max(s.activity[a, maxmin.LEFT] - s.activity[a, maxmin.RATE] * (min(now, stop) - s.activity[a, maxmin.SINCE]), 0.0)
            whole = work[f] - startup[f]
            left[f] = max(min(rest, whole), 1e-9)
            for p in range(first[f], first[f + 1]):
                moved[pools[p]] += uses[p] * (whole - left[f])
    return now, moved


@loop
def _idlest(waiting, head, end, begins, order, first, pools, busy):
    """Brings forward the waiting block whose busiest pool has the least to do."""
    best, least = head, np.inf
    for i in range(head, end):
        b = waiting[i]
        worst = 0.0
        for j in range(begins[b], begins[b + 1]):
            f = order[j]
            for p in range(first[f], first[f + 1]):
                worst = max(worst, busy[pools[p]])
        if worst < least:
            best, least = i, worst
    chosen = waiting[best]
    for i in range(best, head, -1):
        waiting[i] = waiting[i - 1]
    waiting[head] = chosen
