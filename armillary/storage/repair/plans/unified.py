"""Shares and destinations for many lost blocks at once: the linear program, and the greedy for problems that are too large for it.

Lost block l has survivors H(l) and allowed destinations D(l). Find shares 0 ≤ w_{l,i} ≤ 1, sum_i w_{l,i} = k, and a destination for each
block, with the least T such that no node's uplink or downlink, no rack's uplink and no switch has more than T seconds of work. A block
has one destination, so those of the linear program are rounded to their largest entry and the shares are solved again.

A rack's uplink carries min(1, sum of the shares in it) of a block, which is concave and does not fit a linear program. It is replaced by
its tangent (1 where the sum is above 1, the sum where it is below), and the program is solved again from its last answer. Each such
answer is feasible, and none is worse than the one before.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from armillary.errors import InputError
from armillary.kernels import loop

from .aggregation import charge, relays
from .problem import Problem

#: Larger problems go to the greedy.
MOST_VARIABLES = 20_000
TANGENTS = 4


class Shares(NamedTuple):
    """w[lost, index] over the blocks of the stripe, the destination of each, and the seconds of work of the busiest pool."""

    w: np.ndarray
    destination: np.ndarray
    seconds: float


def variables(problem: Problem) -> int:
    """The number of variables of the linear program."""
    return int((problem.holder >= 0).sum() + problem.allowed.sum()) + 1


def busiest(problem: Problem, w: np.ndarray, destination: np.ndarray) -> float:
    """Seconds of work of the busiest pool with these shares."""
    return float(_seconds(_loads(problem, w, destination), problem.fabric.capacities))


def _loads(problem: Problem, w: np.ndarray, destination: np.ndarray) -> np.ndarray:
    fabric = problem.fabric
    return _all_loads(
        problem.holder, w, problem.size.astype(np.float64), destination, fabric.rack, fabric.aggregate, fabric.core_aggregate,
        relays(problem),
        fabric.down, len(fabric.capacities),
    )  # fmt: skip


@loop
def _all_loads(holder, w, size, destination, rack, aggregate, core, relay, down, pools):
    load = np.zeros(pools)
    for row in range(len(holder)):
        charge(load, holder[row], w[row], size[row], destination[row], rack, aggregate, core, relay[row], down)
    return load


@loop
def _seconds(load, capacity):
    worst = 0.0
    for r in range(len(load)):
        if load[r] > 1e-9:
            worst = max(worst, load[r] / capacity[r] if capacity[r] > 0.0 else np.inf)
    return worst


def by_greedy(problem: Problem, rng: np.random.Generator, passes: int = 2, destination: np.ndarray | None = None) -> Shares:
    """Places blocks in random order, each where it ends soonest beside those already placed, and then those on the busiest pool again."""
    fabric = problem.fabric
    fixed = np.full(len(problem), -1, np.int64) if destination is None else destination.astype(np.int64)
    w, found, seconds = _greedy(
        problem.holder, problem.stripe, problem.size.astype(np.float64), problem.allowed, fixed, problem.code.k, fabric.capacities,
        fabric.rack,
        fabric.aggregate, fabric.core_aggregate, relays(problem), fabric.down, rng.permutation(len(problem)), passes,
    )  # fmt: skip
    if not np.isfinite(seconds):
        raise InputError("no helpers with enough uplink free", where=problem.stripe_name(int(np.argmin(w.sum(axis=1)))))
    return Shares(w, found, float(seconds))


def by_subsets(problem: Problem) -> Shares:
    """Whole shares: block by block, the k helpers and the destination that would finish first beside what they have been given already.

    Such a block touches the fewest links, which pays where many blocks share them fairly and none waits for its slowest helper.
    """
    fabric, k = problem.fabric, problem.code.k
    up, down = np.zeros(fabric.nodes), np.zeros(fabric.nodes)
    w, destination = np.zeros(problem.holder.shape), np.empty(len(problem), np.int64)
    taken: dict[int, list[int]] = {}
    with np.errstate(divide="ignore", invalid="ignore"):
        for row in range(len(problem)):
            size = float(problem.size[row])
            nodes, indices = problem.survivors(row)
            siblings = taken.setdefault(int(problem.stripe[row]), [])
            destination[row] = least_used(problem, row, down, siblings)
            siblings.append(int(destination[row]))
            offer = fabric.up[nodes] / (up[nodes] + size)
            if (offer > 0).sum() < k:
                raise InputError("no helpers with enough uplink free", where=problem.stripe_name(row))
            chosen = np.argsort(-offer, kind="stable")[:k]
            w[row, indices[chosen]] = 1.0
            up[nodes[chosen]] += size
            down[destination[row]] += size
    return Shares(w, destination, busiest(problem, w, destination))


def least_used(problem: Problem, row: int, load_down: np.ndarray, taken: Sequence[int] = ()) -> int:
    """The allowed destination that would finish first; two blocks of a stripe go to different nodes where possible."""
    options = np.flatnonzero(problem.allowed[row] & (problem.fabric.down > 0))
    apart = options[~np.isin(options, taken)] if taken else options
    options = apart if len(apart) else options
    return int(options[np.argmin((load_down[options] + problem.size[row]) / problem.fabric.down[options])])


@loop
def _level(t, row, holder, size, k, capacity, load, rack, aggregate, own, relay, w, in_rack):
    """Writes the shares that finish by time t beside the loads into w, and returns their sum."""
    hosts, racks = len(rack), len(aggregate)
    in_rack[:] = 0.0
    for i in range(holder.shape[1]):
        node = holder[row, i]
        w[i] = 0.0
        if node >= 0:
            w[i] = min(1.0, max(0.0, (t * capacity[node] - load[node]) / size)) if capacity[node] > 0.0 else 0.0
            in_rack[rack[node]] += w[i]
    total = 0.0
    for r in range(racks):
        most = np.inf
        if r != own:
            free = (t * capacity[2 * hosts + r] - load[2 * hosts + r]) / size
            # Above one, the rack's stream is as large as the block, however much more its helpers send.
            if free < 1.0:
                most = max(free, 0.0)
        if aggregate[r] > 0.0:
            if aggregate[r] < np.inf:
                streams = 1.0 if r == own else 0.0
                most = min(most, max((t * aggregate[r] - load[2 * hosts + 2 * racks + r]) / size - streams, 0.0))
        elif relay[r] >= 0 and r != own:
            a = relay[r]
            most = min(most, max((t * capacity[hosts + a] - load[hosts + a]) / size, 0.0) + 1.0)
        if in_rack[r] > most:
            for i in range(holder.shape[1]):
                if holder[row, i] >= 0 and rack[holder[row, i]] == r:
                    w[i] *= most / in_rack[r]
            in_rack[r] = most
        total += in_rack[r]
    return total


@loop
def _place(row, holder, size, k, capacity, load, rack, aggregate, own, relay, w, in_rack):
    """Finds the soonest shares of one block and returns the time, which is infinite if there are none."""
    high = 1e-9
    for i in range(holder.shape[1]):
        node = holder[row, i]
        if node >= 0 and capacity[node] > 0.0:
            high = max(high, (load[node] + size) / capacity[node])
    tries = 0
    while _level(high, row, holder, size, k, capacity, load, rack, aggregate, own, relay, w, in_rack) < k * (1 - 1e-12):
        high *= 2.0
        tries += 1
        if tries > 60:
            return np.inf
    low = 0.0
    for _ in range(60):
        middle = 0.5 * (low + high)
        if _level(middle, row, holder, size, k, capacity, load, rack, aggregate, own, relay, w, in_rack) >= k * (1 - 1e-12):
            high = middle
        else:
            low = middle
        if high - low <= 1e-13 * high:
            break
    total = _level(high, row, holder, size, k, capacity, load, rack, aggregate, own, relay, w, in_rack)
    for i in range(len(w)):
        w[i] = min(w[i] * k / total, 1.0)
    return high


@loop
def _choose(row, holder, stripe_peers, size, allowed, capacity, load, rack, hosts, racks):
    """The allowed destination whose downlink and whose rack's downlink finish first with one more block."""
    best, least = -1, np.inf
    for avoid in range(2):
        for j in range(hosts):
            if not allowed[row, j] or capacity[hosts + j] <= 0.0:
                continue
            if avoid == 0 and stripe_peers[j]:
                continue
            time = (load[hosts + j] + size) / capacity[hosts + j]
            r = 2 * hosts + racks + rack[j]
            if capacity[r] < np.inf:
                time = max(time, (load[r] + size) / capacity[r])
            if time < least:
                best, least = j, time
        if best >= 0:
            break
    return best


@loop
def _greedy(holder, stripe, size, allowed, fixed, k, capacity, rack, aggregate, core, relay, down, order, passes):
    blocks, width = holder.shape
    hosts, racks = len(rack), len(aggregate)
    w, destination = np.zeros((blocks, width)), np.full(blocks, -1, np.int64)
    load, in_rack, fresh = np.zeros(len(capacity)), np.zeros(racks), np.zeros(width)
    # The rows of one stripe are chained, because two blocks of a stripe should not share a destination.
    last, before = {-1: -1}, np.full(blocks, -1, np.int64)
    after = np.full(blocks, -1, np.int64)
    for row in range(blocks):
        if stripe[row] in last:
            before[row] = last[stripe[row]]
            after[before[row]] = row
        last[stripe[row]] = row
    peers = np.zeros(hosts, np.bool_)
    for turn in range(1 + passes):
        worst = -1
        if turn > 0:
            ratio = 0.0
            for r in range(len(capacity)):
                if load[r] > 1e-9 and load[r] / capacity[r] > ratio:
                    worst, ratio = r, load[r] / capacity[r]
        for o in range(blocks):
            row = order[o]
            if turn > 0:
                if worst >= 0 and not _touches(worst, row, holder, w, destination, rack, hosts, racks):
                    continue
                charge(load, holder[row], w[row], -size[row], destination[row], rack, aggregate, core, relay[row], down)
            peers[:] = False
            other = before[row]
            while other >= 0:
                if destination[other] >= 0:
                    peers[destination[other]] = True
                other = before[other]
            other = after[row]
            while other >= 0:
                if destination[other] >= 0:
                    peers[destination[other]] = True
                other = after[other]
            if fixed[row] >= 0:
                destination[row] = fixed[row]
            else:
                destination[row] = _choose(row, holder, peers, size[row], allowed, capacity, load, rack, hosts, racks)
            own = rack[destination[row]]
            time = _place(row, holder, size[row], k, capacity, load, rack, aggregate, own, relay[row], fresh, in_rack)
            if time == np.inf:
                return w, destination, np.inf
            w[row] = fresh
            charge(load, holder[row], w[row], size[row], destination[row], rack, aggregate, core, relay[row], down)
    # Loads were added and subtracted many times, so they are computed from scratch once more.
    load[:] = 0.0
    for row in range(blocks):
        charge(load, holder[row], w[row], size[row], destination[row], rack, aggregate, core, relay[row], down)
    return w, destination, _seconds(load, capacity)


@loop
def _touches(pool, row, holder, w, destination, rack, hosts, racks):
    if pool < hosts:
        for i in range(holder.shape[1]):  # noqa: SIM110
            if holder[row, i] == pool and w[row, i] > 0.0:
                return True
        return False
    if pool < 2 * hosts:
        return destination[row] == pool - hosts
    if pool < 2 * hosts + 3 * racks:
        r = (pool - 2 * hosts) % racks
        if rack[destination[row]] == r:
            return True
        for i in range(holder.shape[1]):  # noqa: SIM110
            if holder[row, i] >= 0 and rack[holder[row, i]] == r and w[row, i] > 0.0:
                return True
        return False
    return True


def by_linear_program(problem: Problem) -> Shares:
    """Solves the linear program by HiGHS with free destinations, rounds these, and solves for the shares again."""
    start = np.where(problem.holder >= 0, problem.code.k / (problem.holder >= 0).sum(axis=1, keepdims=True), 0.0)
    w, free = start, None
    if (problem.allowed.sum(axis=1) > 1).any():
        w, free = _solve(problem, start, None)
    destination = _rounded(problem, free)
    best: Shares | None = None
    for _ in range(TANGENTS):
        w, _ = _solve(problem, w, destination)
        found = Shares(w, destination, busiest(problem, w, destination))
        if best is not None and found.seconds >= best.seconds * (1 - 1e-9):
            break
        best = found
        with np.errstate(divide="ignore", invalid="ignore"):
            shared = np.nan_to_num(_loads(problem, w, destination) / problem.fabric.capacities)[2 * problem.fabric.nodes :]
        if shared.max(initial=0.0) < found.seconds * (1 - 1e-6):
            # Racks and switches do not limit, so their tangents do not matter.
            break
    assert best is not None
    return best


def _rounded(problem: Problem, free: np.ndarray | None) -> np.ndarray:
    """The largest entry of each row of y; ties go to the least-used node, and blocks of one stripe are kept apart where possible."""
    wish = np.where(problem.allowed, 1.0 if free is None else free, -1.0)
    load = np.zeros(problem.fabric.nodes)
    down = np.maximum(problem.fabric.down, 1e-300)
    taken: dict[int, set[int]] = {}
    chosen = np.empty(len(problem), np.int64)
    for row in np.argsort(-wish.max(axis=1), kind="stable"):
        used = taken.setdefault(int(problem.stripe[row]), set())
        options = [j for j in np.flatnonzero(problem.allowed[row] & (problem.fabric.down > 0)).tolist() if j not in used]
        options = options or np.flatnonzero(problem.allowed[row]).tolist()
        chosen[row] = min(options, key=lambda j: (-round(float(wish[row, j]), 6), (load[j] + problem.size[row]) / down[j]))
        used.add(int(chosen[row]))
        load[chosen[row]] += problem.size[row]
    return chosen


def _solve(problem: Problem, around: np.ndarray, destination: np.ndarray | None) -> tuple[np.ndarray, np.ndarray | None]:
    """(w, y) of the linear program whose rack terms are the tangents at the shares `around`; y is None if destinations are given."""
    import scipy.sparse as sp
    from scipy.optimize import linprog

    fabric, k = problem.fabric, problem.code.k
    hosts, racks = fabric.nodes, fabric.racks
    row_of, index_of = np.nonzero(problem.holder >= 0)
    node_of = problem.holder[row_of, index_of]
    rack_of = fabric.rack[node_of]
    count = len(row_of)
    y_row, y_node = np.nonzero(problem.allowed) if destination is None else (np.zeros(0, np.int64), np.zeros(0, np.int64))
    # Bytes are in units of the largest block and rates in units of the fastest, so that all numbers are near one.
    unit, fastest = float(problem.size.max()), float(max(fabric.up.max(), fabric.down.max()))
    size = problem.size / unit
    relay = relays(problem)
    in_rack = np.zeros((len(problem), racks))
    np.add.at(in_rack, (row_of, rack_of), around[row_of, index_of])
    whole = in_rack >= 1.0
    own = fabric.rack[destination] if destination is not None else np.full(len(problem), -1)
    pools, columns, values, constant = [], [], [], np.zeros(2 * hosts + 3 * racks + 1)

    def add(pool: np.ndarray, column: np.ndarray, value: np.ndarray) -> None:
        pools.append(np.broadcast_to(pool, column.shape))
        columns.append(column)
        values.append(np.broadcast_to(value, column.shape))

    w_column = np.arange(count)
    is_relay = relay[row_of, rack_of] == node_of
    in_own = rack_of == own[row_of]
    gathers = np.zeros(len(problem), bool)
    if destination is not None:
        gather = relay[np.arange(len(problem)), own]
        gathers = (gather >= 0) & (fabric.down[gather] > fabric.down[destination])
        constant_up = np.flatnonzero(gathers)
        np.add.at(constant, gather[constant_up], size[constant_up])
    # A relay's uplink carries its rack's stream; it is charged below.
    plain = ~is_relay | (in_own & ~gathers[row_of])
    add(node_of[plain], w_column[plain], size[row_of[plain]])
    foreign = ~in_own
    tangent = foreign & ~whole[row_of, rack_of]
    flat = whole & (np.arange(racks)[None, :] != own[:, None]) & (in_rack > 0)
    flat_row, flat_rack = np.nonzero(flat)
    for pool_of, pool_flat, chosen, chosen_flat in (
        (2 * hosts + rack_of, 2 * hosts + flat_rack, tangent, np.ones(len(flat_row), bool)),
        (relay[row_of, rack_of], relay[flat_row, flat_rack], tangent & (relay[row_of, rack_of] >= 0), relay[flat_row, flat_rack] >= 0),
    ):
        add(pool_of[chosen], w_column[chosen], size[row_of[chosen]])
        np.add.at(constant, pool_flat[chosen_flat], size[flat_row[chosen_flat]])
    relayed = (relay[row_of, rack_of] >= 0) & ~is_relay & (foreign | gathers[row_of])
    add(hosts + relay[row_of, rack_of][relayed], w_column[relayed], size[row_of[relayed]])
    switched = fabric.aggregate[rack_of] > 0
    add(2 * hosts + 2 * racks + rack_of[switched], w_column[switched], size[row_of[switched]])
    core = 2 * hosts + 3 * racks
    if fabric.core_aggregate > 0:
        add(np.array(core), w_column[tangent], size[row_of[tangent]])
        np.add.at(constant, np.full(len(flat_row), core), size[flat_row])
    if destination is None:
        add(hosts + y_node, count + np.arange(len(y_row)), size[y_row])
        add(2 * hosts + racks + fabric.rack[y_node], count + np.arange(len(y_row)), size[y_row])
    else:
        _charge_destinations(problem, destination, own, gathers, size, in_own, tangent, flat_row, row_of, w_column, add, constant)
    capacity = fabric.capacities / fastest
    binding = np.isfinite(capacity)
    shape = (len(capacity), count + len(y_row) + 1)
    matrix = sp.csr_matrix((np.concatenate(values), (np.concatenate(pools), np.concatenate(columns))), shape=shape)
    time = sp.csr_matrix((-capacity[binding], (np.flatnonzero(binding), np.full(int(binding.sum()), shape[1] - 1))), shape=shape)
    upper = (matrix + time)[binding]
    sums = sp.csr_matrix((np.ones(count + len(y_row)), (np.concatenate([row_of, len(problem) + y_row]), np.arange(count + len(y_row)))),
                         shape=(len(problem) * (2 if len(y_row) else 1), shape[1]))  # fmt: skip
    goal = np.zeros(shape[1])
    goal[-1] = 1.0
    able = np.where(fabric.up[node_of] > 0, 1.0, 0.0)
    bounds = np.zeros((shape[1], 2))
    bounds[:count, 1], bounds[count:-1, 1], bounds[-1, 1] = able, 1.0, np.inf
    wanted = np.concatenate([np.full(len(problem), float(k)), np.ones(len(problem) if len(y_row) else 0)])
    # The annotations of SciPy know no sparse matrices here.
    solver: Any = linprog
    found = solver(goal, A_ub=upper, b_ub=-constant[binding], A_eq=sums, b_eq=wanted, bounds=bounds, method="highs")
    if found.x is None:
        short = [row for row in range(len(problem)) if able[row_of == row].sum() < k]
        where = problem.stripe_name(short[0]) if short else None
        raise InputError("no helpers with enough uplink free", where=where)
    w = np.zeros(problem.holder.shape)
    w[row_of, index_of] = np.clip(found.x[:count], 0.0, 1.0)
    w *= k / w.sum(axis=1, keepdims=True)
    y = np.zeros(problem.allowed.shape)
    y[y_row, y_node] = found.x[count : count + len(y_row)]
    return np.minimum(w, 1.0), y if len(y_row) else None


def _charge_destinations(problem, destination, own, gathers, size, in_own, tangent, flat_row, row_of, w_column, add, constant):
    """The loads that known destinations add: their downlink, their rack's, and whoever adds up the rack streams there."""
    fabric = problem.fabric
    hosts, racks = fabric.nodes, fabric.racks
    relay = relays(problem)
    through_switch = fabric.aggregate[own] > 0
    once = through_switch | gathers
    np.add.at(constant, (hosts + destination)[once], size[once])
    many = ~once
    into = [(2 * hosts + racks + own, np.ones(len(problem), bool))]
    into.append((2 * hosts + 2 * racks + own, through_switch))
    into.append((hosts + np.maximum(relay[np.arange(len(problem)), own], 0), gathers))
    into.append((hosts + destination, many))
    for pool, mask in into:
        if fabric.core_aggregate > 0:
            # Added up in the core, the streams of the other racks are at most one.
            np.add.at(constant, pool[mask], size[mask])
        else:
            chosen = tangent & mask[row_of]
            add(pool[row_of[chosen]], w_column[chosen], size[row_of[chosen]])
            kept = mask[flat_row]
            np.add.at(constant, pool[flat_row[kept]], size[flat_row[kept]])
    local = in_own & many[row_of]
    add((hosts + destination)[row_of[local]], w_column[local], size[row_of[local]])
