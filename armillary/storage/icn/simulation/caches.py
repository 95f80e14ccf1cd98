"""Tiered caches of many nodes as arrays, which say which node holds what, on which tier, and how recently it was used.

A copy is a *slot*. `where[node, content]` is its slot or −1. The slots of one node and tier form a list from the youngest (head) to the
oldest (tail), and lie in `member[first[node, tier]…]` in no order, from which samples are drawn. Nothing is allocated while requests run.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from armillary.kernels import part


class Caches(NamedTuple):
    """The state of all caches.

    `where` is int32[nodes, contents]. `head`, `tail`, `copies`, `first`, `used` and `room` are int32 or int64[nodes, tiers]. All others
    have one entry per slot.
    """

    where: np.ndarray
    head: np.ndarray
    tail: np.ndarray
    copies: np.ndarray
    first: np.ndarray
    used: np.ndarray
    room: np.ndarray
    content: np.ndarray
    node: np.ndarray
    tier: np.ndarray
    younger: np.ndarray
    older: np.ndarray
    place: np.ndarray
    member: np.ndarray
    free: np.ndarray
    #: Seconds at which the copy came to its tier, its rate, when that was updated, and what a request saves by the copy.
    since: np.ndarray
    rate: np.ndarray
    seen: np.ndarray
    saves: np.ndarray
    hits: np.ndarray
    #: free slots, at [0].
    spare: np.ndarray


def empty(capacity: np.ndarray, sizes: np.ndarray) -> Caches:
    """Caches of `capacity` bytes (int64[nodes, tiers]) for contents of these sizes, all empty."""
    nodes, tiers = capacity.shape
    smallest_first = np.cumsum(np.sort(sizes))
    # The most copies that fit at once are those of the smallest contents.
    most = np.searchsorted(smallest_first, capacity, side="right").astype(np.int64)
    first = np.concatenate([[0], np.cumsum(most.ravel())[:-1]]).reshape(nodes, tiers)
    slots = int(most.sum()) + 1
    integers = lambda: np.full(slots, -1, np.int32)  # noqa: E731
    return Caches(
        np.full((nodes, len(sizes)), -1, np.int32), np.full((nodes, tiers), -1, np.int32), np.full((nodes, tiers), -1, np.int32),
        np.zeros((nodes, tiers), np.int64), first, np.zeros((nodes, tiers), np.int64), capacity.astype(np.int64), integers(), integers(),
        np.zeros(slots, np.int8), integers(), integers(), integers(), integers(), np.arange(slots - 1, -1, -1).astype(np.int32),
        np.zeros(slots), np.zeros(slots), np.zeros(slots), np.zeros(slots), np.zeros(slots, np.int64), np.array([slots], np.int64),
    )  # fmt: skip


@part
def link(k, s, node, tier, size):
    """Slot s joins a tier as its youngest."""
    top = k.head[node, tier]
    k.younger[s] = -1
    k.older[s] = top
    if top >= 0:
        k.younger[top] = s
    else:
        k.tail[node, tier] = s
    k.head[node, tier] = s
    k.tier[s] = tier
    at = k.copies[node, tier]
    k.place[s] = at
    k.member[k.first[node, tier] + at] = s
    k.copies[node, tier] = at + 1
    k.used[node, tier] += size


@part
def unlink(k, s, size):
    """Slot s leaves its tier."""
    node, tier = k.node[s], k.tier[s]
    up, down = k.younger[s], k.older[s]
    if up >= 0:
        k.older[up] = down
    else:
        k.head[node, tier] = down
    if down >= 0:
        k.younger[down] = up
    else:
        k.tail[node, tier] = up
    last = k.copies[node, tier] - 1
    moved = k.member[k.first[node, tier] + last]
    k.member[k.first[node, tier] + k.place[s]] = moved
    k.place[moved] = k.place[s]
    k.copies[node, tier] = last
    k.used[node, tier] -= size


@part
def taken(k, node, content):
    """A fresh slot for a copy, not linked anywhere yet."""
    k.spare[0] -= 1
    s = k.free[k.spare[0]]
    k.content[s] = content
    k.node[s] = node
    k.where[node, content] = s
    k.hits[s] = 0
    return s


@part
def given_back(k, s):
    """A slot that holds nothing any more; it must be unlinked."""
    k.where[k.node[s], k.content[s]] = -1
    k.free[k.spare[0]] = s
    k.spare[0] += 1


@part
def refreshed(k, s):
    """Slot s becomes the youngest of its tier."""
    node, tier = k.node[s], k.tier[s]
    if k.head[node, tier] == s:
        return
    up, down = k.younger[s], k.older[s]
    k.older[up] = down
    if down >= 0:
        k.younger[down] = up
    else:
        k.tail[node, tier] = up
    top = k.head[node, tier]
    k.younger[top] = s
    k.older[s] = top
    k.younger[s] = -1
    k.head[node, tier] = s
