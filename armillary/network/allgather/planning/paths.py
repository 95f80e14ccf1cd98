"""Cascade's paths: which block passes which nodes, and what that costs for a number of paths.

Nodes stand in a ring of N. Of two directions, distance m >= 1 (at most N/2, the shorter way round; N/2 itself counts as ahead) lies on path
(m-1) mod k at position (m-1) div k. So the first stop of path p is p+1 nodes away, and each further stop k nodes beyond the last.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from armillary.kernels import loop

from ..graphs.neighbours import Ints
from .prices import Prices
from .problem import Problem

#: Forwarded messages of at least this many bytes are dealt to several ranks of a node, at most `CHAINS`.
LARGE_BYTES = 64 << 10
CHAINS = 4


class Entries(NamedTuple):
    """Which blocks enter which paths: one entry per block, direction (0 ahead, 1 back) and path that some taker lies on."""

    block: Ints
    direction: Ints
    path: Ints
    #: The position of the last taker.
    last: Ints


def reach(nodes: int, direction: int) -> int:
    """The largest distance in a direction."""
    return nodes // 2 if direction == 0 else (nodes - 1) // 2


def most_paths(nodes: int) -> int:
    """The number of paths at which nothing is forwarded."""
    return max(1, nodes // 2)


def candidates(most: int) -> list[int]:
    """The powers of two below `most`, and `most` itself."""
    found = [1 << i for i in range(most.bit_length()) if 1 << i < most]
    return [*found, most]


def entries(problem: Problem, k: int, prune: bool = True) -> Entries:
    """The blocks that enter each of k paths per direction, ordered by direction, path and block."""
    found = _entries(problem.needed_on, problem.node_of, problem.nodes, k, prune)
    order = np.lexsort((found[:, 0], found[:, 2], found[:, 1]))
    return Entries(*(np.ascontiguousarray(found[order, i]) for i in range(4)))


@loop
def _entries(needed, node_of, nodes, k, prune):  # type: ignore[no-untyped-def]
    ranks = len(node_of)
    found = np.empty((ranks * min(2 * k, nodes), 4), np.int64)
    used = 0
    last = np.empty(k, np.int64)
    for direction in range(2):
        far = nodes // 2 if direction == 0 else (nodes - 1) // 2
        sign = 1 if direction == 0 else -1
        for rank in range(ranks):
            last[:] = -1
            for m in range(1, far + 1):
                if needed[rank, (node_of[rank] + sign * m) % nodes]:
                    last[(m - 1) % k] = (m - 1) // k
            for path in range(min(k, far)):
                if last[path] >= 0:
                    row = found[used]
                    row[0], row[1], row[2] = rank, direction, path
                    row[3] = last[path] if prune else (far - 1 - path) // k
                    used += 1
    return found[:used]


def price(problem: Problem, k: int, prices: Prices) -> float:
    """T(k) in seconds from the counts alone: gather, a step for each position, deliver. O(nodes · ranks).

    T(k) = barrier + m/Bc + sum_t [ L + max_v( max(messages of a leader·o, messages·g + bytes/B) + pieces·c/leaders ) ] + barrier
           + received bytes/Bc + received pieces·c, with rendezvous counted as three latencies.
    """
    found = entries(problem, k)
    place = np.empty(problem.ranks, np.int64)
    for local in problem.local:
        place[local] = np.arange(len(local))
    return float(
        _price(
            np.array(prices, np.float64), problem.node_of, place, problem.nodes, k, *found, problem.block_bytes,
            np.array([len(local) for local in problem.local]), problem.received_bytes[problem.graph.in_start],
            problem.received_pieces,
        )
    )  # fmt: skip


@loop
def _price(prices, node_of, place, nodes, k, block, direction, path, last, size, locals_, received, pieces_in):  # type: ignore[no-untyped-def]
    latency, send, receive, gap, byte_gap, copy, eager = prices[0], prices[1], prices[2], prices[3], prices[4], prices[5], prices[6]
    near_latency, near, memory, piece = prices[7], prices[8], prices[11], prices[12]
    steps = 0
    for i in range(len(last)):
        steps = max(steps, last[i] + 1)
    most_local = locals_.max()
    # By step, node and direction: what a node sends on, and in how many pieces it lies before that. At step 0 paths are apart.
    first_bytes, first_pieces = np.zeros((2, k, nodes)), np.zeros((2, k, nodes))
    on_bytes, on_pieces = np.zeros((max(steps, 1), 2, nodes)), np.zeros((2, nodes))
    seen = np.zeros((2, nodes, k * max(steps, 1)), np.bool_)
    before, before_last = np.full((2, k, nodes), -2), np.zeros((2, k, nodes), np.int64)
    for i in range(len(last)):
        u, d, p = node_of[block[i]], direction[i], path[i]
        sign = 1 if d == 0 else -1
        first_bytes[d, p, u] += size[block[i]]
        # Blocks of ranks that follow each other lie one behind the other in the window.
        if place[block[i]] != before[d, p, u] + 1 or last[i] != before_last[d, p, u]:
            first_pieces[d, p, u] += 1
        before[d, p, u], before_last[d, p, u] = place[block[i]], last[i]
        for t in range(1, last[i] + 1):
            v = (u + sign * (p + 1 + (t - 1) * k)) % nodes
            on_bytes[t, d, v] += max(size[block[i]], 1e-9)
            # Blocks of one path that go equally far lie one behind the other where they arrived.
            if t == 1 and k > 1 and not seen[d, v, p * steps + last[i]]:
                seen[d, v, p * steps + last[i]] = True
                on_pieces[d, v] += 1
    total = 0.0
    for t in range(steps):
        most, waits = 0.0, latency
        for v in range(nodes):
            leaders = min(locals_[v], (2 * k) if t == 0 else 2)
            out, into, messages, heard, pieces = 0.0, 0.0, 0, 0, 0.0
            copied, moved = 0.0, 0.0
            for d in range(2):
                sign = 1 if d == 0 else -1
                for p in range(k if t == 0 else 1):
                    sent = first_bytes[d, p, v] if t == 0 else on_bytes[t, d, v]
                    there = first_pieces[d, p, v] > 0 if t == 0 else on_bytes[t, d, v] > 0
                    behind = (v - sign * ((p + 1) if t == 0 else k)) % nodes
                    got = first_bytes[d, p, behind] if t == 0 else on_bytes[t, d, behind]
                    heard_it = first_pieces[d, p, behind] > 0 if t == 0 else on_bytes[t, d, behind] > 0
                    if there:
                        out += sent
                        messages += 1
                        if sent > eager:
                            waits = 3 * latency
                        else:
                            copied += sent
                        if t == 0:
                            pieces += first_pieces[d, p, v] if first_pieces[d, p, v] > 1 else 0
                            moved += sent if first_pieces[d, p, v] > 1 else 0
                        elif t == 1:
                            pieces += on_pieces[d, v]
                            moved += sent if on_pieces[d, v] > 1 else 0
                    if heard_it:
                        into += got
                        heard += 1
                        if got <= eager:
                            copied += got
            leaders = max(1, min(leaders, max(messages, heard)))
            chains = 1
            if t > 0 and out > 2 * LARGE_BYTES:
                chains = min(CHAINS, max(1, locals_[v] // 2))
            hands = leaders * chains
            core = (messages * chains * send + heard * chains * receive + copied * copy) / hands
            core += (pieces * piece + moved * max(copy, memory * hands)) / hands
            wire = max(messages * gap + out * byte_gap, heard * gap + into * byte_gap)
            most = max(most, core, wire)
        if t == 1 and k > 1 and most_local > 1:
            waits += near_latency + 2 * near
        total += waits + most
    if most_local > 1:
        rounds = 0
        while (1 << rounds) < most_local:
            rounds += 1
        total += 2 * rounds * (near_latency + 2 * near)
        total += piece + size.max() * max(copy, memory * most_local)
    deliver = 0.0
    for rank in range(len(received) - 1):
        deliver = max(deliver, (received[rank + 1] - received[rank]) * max(copy, memory * most_local) + pieces_in[rank] * piece)
    return total + deliver
