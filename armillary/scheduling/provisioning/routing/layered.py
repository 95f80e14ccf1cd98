"""Layered shortest paths: through which instances a request travels fastest.

Layer l holds the instances of a chain's l-th service. Reaching node k of the first layer costs `access[u, k]`, and going from node j to
node k costs `mb[u] * distance[j, k]`, so the best path takes O(Σ n_l · n_{l+1}) steps. All loops see indices that `Problem` has proved.
`held[m, :count[m]]` lists the nodes that hold service m.
"""

from __future__ import annotations

import numpy as np

from armillary.kernels import loop


@loop
def free_paths(users, chain_start, chain, access, mb, distance, held, count, path, travel):  # type: ignore[no-untyped-def]
    """Writes each user's fastest path and its milliseconds of travel, capacities aside; infinite if a service has no instance."""
    longest, most = path.shape[1], held.shape[1]
    cost, best = np.empty((longest, most)), np.empty((longest, most), np.int64)
    for u in users:
        first, length = chain_start[u], chain_start[u + 1] - chain_start[u]
        m = chain[first]
        for i in range(count[m]):
            cost[0, i] = access[u, held[m, i]]
        before = m
        for place in range(1, length):
            m = chain[first + place]
            for i in range(count[m]):
                k = held[m, i]
                least, at = np.inf, -1
                for j in range(count[before]):
                    c = cost[place - 1, j] + mb[u] * distance[held[before, j], k]
                    if c < least:
                        least, at = c, j
                cost[place, i], best[place, i] = least, at
            before = m
        least, at = np.inf, -1
        for i in range(count[before]):
            if cost[length - 1, i] < least:
                least, at = cost[length - 1, i], i
        travel[u] = least
        for place in range(length - 1, -1, -1):
            path[u, place] = held[chain[first + place], at] if at >= 0 else -1
            at = best[place, at] if place > 0 and at >= 0 else at


@loop
def capped_path(u, chain_start, chain, access, mb, distance, held, count, need, spare, price, row, cost, best, blocked):  # type: ignore[no-untyped-def]
    """Writes the cheapest path of one user into `row` among nodes with spare cores; returns its travel, or infinity.

    A visit costs `price[k]` per core on top of its travel. A path that fits service by service may still overfill a node that it visits
    twice: then the later visit is blocked and the search repeated.
    """
    first, length = chain_start[u], chain_start[u + 1] - chain_start[u]
    blocked[:length] = False
    for _ in range(2 * length + 1):
        m = chain[first]
        for i in range(count[m]):
            k = held[m, i]
            fits = need[first] <= spare[k] and not blocked[0, k]
            cost[0, i] = access[u, k] + price[k] * need[first] if fits else np.inf
        before = m
        for place in range(1, length):
            m = chain[first + place]
            for i in range(count[m]):
                k = held[m, i]
                least, at = np.inf, -1
                if need[first + place] <= spare[k] and not blocked[place, k]:
                    for j in range(count[before]):
                        c = cost[place - 1, j] + mb[u] * distance[held[before, j], k]
                        if c < least:
                            least, at = c, j
                    least += price[k] * need[first + place]
                cost[place, i], best[place, i] = least, at
            before = m
        least, at = np.inf, -1
        for i in range(count[before]):
            if cost[length - 1, i] < least:
                least, at = cost[length - 1, i], i
        if at < 0:
            return np.inf
        for place in range(length - 1, -1, -1):
            row[place] = held[chain[first + place], at]
            at = best[place, at] if place > 0 else at
        conflict = -1
        for place in range(length):
            load = 0.0
            for other in range(place + 1):
                if row[other] == row[place]:
                    load += need[first + other]
            if load > spare[row[place]]:
                conflict = place
                break
        if conflict < 0:
            return travel_of(u, chain_start, access, mb, distance, row)
        blocked[conflict, row[conflict]] = True
    return np.inf


@loop
def travel_of(u, chain_start, access, mb, distance, row):  # type: ignore[no-untyped-def]
    """Milliseconds of travel along one path."""
    total = access[u, row[0]]
    for place in range(1, chain_start[u + 1] - chain_start[u]):
        total += mb[u] * distance[row[place - 1], row[place]]
    return total


@loop
def load_path(u, chain_start, need, row, spare, sign):  # type: ignore[no-untyped-def]
    """Takes the cores of a path from `spare` (sign −1) or gives them back (sign 1)."""
    first = chain_start[u]
    for place in range(chain_start[u + 1] - first):
        if row[place] >= 0:
            spare[row[place]] += sign * need[first + place]


@loop
def reroute(users, chain_start, chain, access, mb, distance, held, count, need, spare, slack, price, path, travel):  # type: ignore[no-untyped-def]
    """Takes the users' paths away together, then gives each one, in this order, its cheapest path that fits.

    `slack` is the most travel that a user's deadline allows. A path that prices make late is looked for once more without them. Users
    without any path get an infinite travel and −1. Returns how many have no path or a late one.
    """
    longest, most = path.shape[1], held.shape[1]
    cost, best = np.empty((longest, most)), np.empty((longest, most), np.int64)
    blocked, free = np.zeros((longest, len(spare)), np.bool_), np.zeros(len(spare))
    for u in users:
        load_path(u, chain_start, need, path[u], spare, 1.0)
    failed = 0
    for u in users:
        row = path[u]
        found = capped_path(u, chain_start, chain, access, mb, distance, held, count, need, spare, price, row, cost, best, blocked)
        if found > slack[u]:
            found = capped_path(u, chain_start, chain, access, mb, distance, held, count, need, spare, free, row, cost, best, blocked)
        travel[u] = found
        if found == np.inf:
            row[:] = -1
        else:
            load_path(u, chain_start, need, row, spare, -1.0)
        failed += found > slack[u]
    return failed


@loop
def costs_by_node(users, places, chain_start, chain, access, mb, distance, held, count):  # type: ignore[no-untyped-def]
    """Travel (users × nodes) of each user's fastest path if its service at the given place were at each node, and nowhere else.

    It is the fastest way from the origin through the services before that place, plus the fastest way through those after it. With it the
    placement of one service, all others fixed, is a facility location problem.
    """
    nodes = access.shape[1]
    out = np.empty((len(users), nodes))
    ahead, behind = np.empty(nodes), np.empty(nodes)
    for i in range(len(users)):
        u, at = users[i], places[i]
        first, length = chain_start[u], chain_start[u + 1] - chain_start[u]
        for k in range(nodes):
            behind[k] = access[u, k]
        for place in range(at):
            _one_layer(behind, ahead, mb[u], distance, held[chain[first + place]], count[chain[first + place]])
            ahead, behind = behind, ahead
        out[i] = behind
        if at < length - 1:
            behind[:] = 0.0
            for place in range(length - 1, at, -1):
                _one_layer(behind, ahead, mb[u], distance, held[chain[first + place]], count[chain[first + place]])
                ahead, behind = behind, ahead
            out[i] += behind
    return out


@loop
def _one_layer(before, after, mb, distance, nodes, count):  # type: ignore[no-untyped-def]
    """The cheapest way over one of `nodes` to every node, where `before` is the cheapest way to each of them; row by row for SIMD."""
    after[:] = np.inf
    for i in range(count):
        row, base = distance[nodes[i]], before[nodes[i]]
        for k in range(len(after)):
            c = base + mb * row[k]
            after[k] = c if c < after[k] else after[k]


@loop
def opening_path(u, chain_start, chain, access, mb, distance, has, need, spare, space_left, space, opening, row, cost, best, blocked):  # type: ignore[no-untyped-def]
    """Like `capped_path`, but a node that has storage left may open an instance of service m for `opening[m]` milliseconds.

    Two services that are both opened on one node may overfill its storage: then the later one is blocked there.
    """
    first, length = chain_start[u], chain_start[u + 1] - chain_start[u]
    nodes = len(spare)
    blocked[:length] = False
    for _ in range(4 * length + 1):
        for place in range(length):
            m = chain[first + place]
            for k in range(nodes):
                cost[place, k], best[place, k] = np.inf, -1
                if need[first + place] > spare[k] or blocked[place, k] or (not has[m, k] and space[m] > space_left[k]):
                    continue
                least = access[u, k] if place == 0 else np.inf
                if place > 0:
                    for j in range(nodes):
                        c = cost[place - 1, j] + mb[u] * distance[j, k]
                        if c < least:
                            least, best[place, k] = c, j
                cost[place, k] = least + (0.0 if has[m, k] else opening[m])
        at = -1
        least = np.inf
        for k in range(nodes):
            if cost[length - 1, k] < least:
                least, at = cost[length - 1, k], k
        if at < 0:
            return np.inf
        for place in range(length - 1, -1, -1):
            row[place] = at
            at = best[place, at] if place > 0 else at
        conflict = -1
        for place in range(length):
            load, filled = 0.0, 0.0
            for other in range(place + 1):
                if row[other] == row[place]:
                    load += need[first + other]
                    filled += 0.0 if has[chain[first + other], row[other]] else space[chain[first + other]]
            opened = not has[chain[first + place], row[place]]
            if load > spare[row[place]] or (opened and filled > space_left[row[place]]):
                conflict = place
                break
        if conflict < 0:
            return travel_of(u, chain_start, access, mb, distance, row)
        blocked[conflict, row[conflict]] = True
    return np.inf
