"""The tree that adds up contributions inside the network, and what it costs each pool.

The switch of every rack combines the streams of its helpers, and the core (or the switch of the destination's rack) combines the rack
streams. Where a switch cannot add up, the fastest helper of that rack does: it receives the others' slices and sends the sum on, so its
downlink is charged.
"""

from __future__ import annotations

import numpy as np

from armillary.kernels import loop

from .problem import Problem

#: Loads are kept in the order of `Fabric.capacities`.


def relays(problem: Problem) -> np.ndarray:
    """The fastest survivor in each rack, int64[lost, racks], for racks whose switch cannot add up; -1 elsewhere."""
    fabric = problem.fabric
    return _relays(problem.holder, fabric.rack, fabric.aggregate, np.minimum(fabric.up, fabric.down))


@loop
def _relays(holder, rack, aggregate, speed):
    found = np.full((len(holder), len(aggregate)), -1, np.int64)
    for row in range(len(holder)):
        for i in range(holder.shape[1]):
            node = holder[row, i]
            if node >= 0 and aggregate[rack[node]] <= 0.0:
                best = found[row, rack[node]]
                if best < 0 or speed[node] > speed[best]:
                    found[row, rack[node]] = node
    return found


@loop
def aggregation_edges(nodes, indices, count, destination, rack, aggregate, core, relay, down, child, parent, source, at):
    """Writes the edges of one sub-repair from place `at` on, children before parents, and returns where they end.

    The nodes of one rack must be next to each other.
    """
    hosts, racks = len(rack), len(aggregate)
    own_rack = rack[destination]
    heads, head_source = np.empty(count + racks, np.int64), np.empty(count + racks, np.int64)
    streams, own_low, own_high, low = 0, 0, 0, 0
    while low < count:
        r, high = rack[nodes[low]], low
        while high < count and rack[nodes[high]] == r:
            high += 1
        if r == own_rack:
            own_low, own_high = low, high
        elif high - low == 1:
            heads[streams], head_source[streams] = nodes[low], indices[low]
            streams += 1
        else:
            middle = hosts + r if aggregate[r] > 0.0 else relay[r]
            heads[streams], head_source[streams] = middle, -1
            for h in range(low, high):
                if nodes[h] == middle:
                    head_source[streams] = indices[h]
                else:
                    child[at], parent[at], source[at] = nodes[h], middle, indices[h]
                    at += 1
            streams += 1
        low = high
    if streams >= 2 and core > 0.0:
        for h in range(streams):
            child[at], parent[at], source[at] = heads[h], hosts + racks, head_source[h]
            at += 1
        heads[0], head_source[0], streams = hosts + racks, -1, 1
    for h in range(own_low, own_high):
        heads[streams], head_source[streams] = nodes[h], indices[h]
        streams += 1
    last = destination
    if streams >= 2:
        if aggregate[own_rack] > 0.0:
            last = hosts + own_rack
        elif relay[own_rack] >= 0 and down[relay[own_rack]] > down[destination]:
            last = relay[own_rack]
    own_source = -1
    for h in range(streams):
        if heads[h] == last:
            own_source = head_source[h]
        else:
            child[at], parent[at], source[at] = heads[h], last, head_source[h]
            at += 1
    if last != destination:
        child[at], parent[at], source[at] = last, destination, own_source
        at += 1
    return at


@loop
def charge(load, holders, shares, size, destination, rack, aggregate, core, relay, down):
    """Adds to `load` (bytes by pool) the cost of rebuilding `size` bytes with these shares of the holders; a negative size subtracts it."""
    hosts, racks = len(rack), len(aggregate)
    own = rack[destination]
    in_rack, of_relay = np.zeros(racks), np.zeros(racks)
    for i in range(len(holders)):
        node = holders[i]
        if node >= 0:
            in_rack[rack[node]] += shares[i]
            if node == relay[rack[node]]:
                of_relay[rack[node]] = shares[i]
            else:
                load[node] += size * shares[i]
    foreign = 0.0
    for r in range(racks):
        if r == own or in_rack[r] <= 0.0:
            continue
        sent = min(1.0, in_rack[r])
        foreign += sent
        load[2 * hosts + r] += size * sent
        if aggregate[r] > 0.0:
            load[2 * hosts + 2 * racks + r] += size * in_rack[r]
        else:
            load[relay[r]] += size * sent
            load[hosts + relay[r]] += size * (in_rack[r] - of_relay[r])
    streams = foreign
    if core > 0.0:
        load[2 * hosts + 3 * racks] += size * foreign
        streams = min(1.0, foreign)
    load[2 * hosts + racks + own] += size * streams
    gather = relay[own]
    if aggregate[own] > 0.0:
        load[2 * hosts + 2 * racks + own] += size * (in_rack[own] + streams)
        load[hosts + destination] += size
    elif gather >= 0 and down[gather] > down[destination]:
        load[gather] += size
        load[hosts + gather] += size * (streams + in_rack[own] - of_relay[own])
        load[hosts + destination] += size
    else:
        if gather >= 0:
            load[gather] += size * of_relay[own]
        load[hosts + destination] += size * (streams + in_rack[own])
