"""A generalised suffix automaton in arrays: every substring of all streams of a group, and how often it occurs.

A state is a set of substrings that end at the same places; its suffix link leads to the longest proper suffix that also ends elsewhere.
A token is appended in O(1) amortised (Blumer et al., 1985; for several strings, every stream has its own end). A substring occurs as often
as its state has places at which it ends, so each new token adds one to all states on its chain of suffix links. Substrings longer than
`depth` are never asked for, so states that hold only such substrings are skipped by a pointer to the nearest state that holds others, which
keeps periodic streams linear.
"""

# Kernels carry their types in the arrays that they are given.
# mypy: disable-error-code="no-untyped-def, no-untyped-call"

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from armillary.kernels import kernel, part

NONE = -1
#: Columns of `state`: the suffix link, the longest substring, the number of places where it ends, the list of its edges, the nearest state
#: that is counted, and its most frequent edge.
LINK, LENGTH, COUNT, EDGES, COUNTED, HEAVY = range(6)
#: Columns of `edge`: from, token, to, and the next edge of the same state.
FROM, TOKEN, TO, NEXT = range(4)


class Automaton(NamedTuple):
    """Arrays of the automata of all groups; each group has a root of its own."""

    state: np.ndarray  # int32 [states, 6]
    edge: np.ndarray  # int32 [edges, 4]
    slot: np.ndarray  # int32 [power of two]: hash of (state, token) -> edge
    used: np.ndarray  # int64: [states, edges]


@part
def _place(slot, state, token):
    h = np.uint64(np.uint32(state)) * np.uint64(0x9E3779B97F4A7C15) ^ np.uint64(np.uint32(token)) * np.uint64(0xC2B2AE3D27D4EB4F)
    h ^= h >> np.uint64(29)
    h *= np.uint64(0xBF58476D1CE4E5B9)
    return np.int64((h >> np.uint64(20)) & np.uint64(len(slot) - 1))


@part
def _find(a, state, token):
    """The edge that leaves `state` with `token`, or NONE."""
    i = _place(a.slot, state, token)
    while a.slot[i] != NONE:
        e = a.slot[i]
        if a.edge[e, FROM] == state and a.edge[e, TOKEN] == token:
            return np.int64(e)
        i = (i + 1) & (len(a.slot) - 1)
    return np.int64(NONE)


@part
def _join(a, state, token, to):
    e = a.used[1]
    a.used[1] = e + 1
    a.edge[e, FROM], a.edge[e, TOKEN], a.edge[e, TO], a.edge[e, NEXT] = state, token, to, a.state[state, EDGES]
    a.state[state, EDGES] = e
    if a.state[state, HEAVY] == NONE:
        a.state[state, HEAVY] = e
    i = _place(a.slot, state, token)
    while a.slot[i] != NONE:
        i = (i + 1) & (len(a.slot) - 1)
    a.slot[i] = e
    return e


@part
def _new(a, length, link, count):
    v = a.used[0]
    a.used[0] = v + 1
    a.state[v, LINK], a.state[v, LENGTH], a.state[v, COUNT], a.state[v, EDGES], a.state[v, COUNTED] = link, length, count, NONE, v
    a.state[v, HEAVY] = NONE
    return v


@part
def _split(a, p, q, token):
    """Splits off the part of state `q` that is reached from `p`, which is a state that also ends elsewhere."""
    copy = _new(a, a.state[p, LENGTH] + 1, a.state[q, LINK], a.state[q, COUNT])
    e = a.state[q, EDGES]
    while e != NONE:
        made = _join(a, copy, a.edge[e, TOKEN], a.edge[e, TO])
        if e == a.state[q, HEAVY]:
            a.state[copy, HEAVY] = made
        e = a.edge[e, NEXT]
    a.state[q, LINK] = copy
    while p != NONE:
        e = _find(a, p, token)
        if e == NONE or a.edge[e, TO] != q:
            break
        a.edge[e, TO] = copy
        p = np.int64(a.state[p, LINK])
    return copy


@part
def _counted(a, v, depth):
    """The nearest state from `v` up its suffix links that holds a substring of at most `depth` tokens."""
    u = v
    while a.state[u, LINK] != NONE and a.state[a.state[u, LINK], LENGTH] >= depth:
        # The state that was nearest once is still an ancestor, but another may have been put in between.
        u = np.int64(a.state[u, COUNTED]) if a.state[u, COUNTED] != u else np.int64(a.state[u, LINK])
    while v != u:
        after = np.int64(a.state[v, COUNTED]) if a.state[v, COUNTED] != v else np.int64(a.state[v, LINK])
        a.state[v, COUNTED] = u
        v = after
    return u


@part
def _before(a, e, h):
    """Whether edge e is more frequent than h; ties are decided by token."""
    c, d = a.state[a.edge[e, TO], COUNT], a.state[a.edge[h, TO], COUNT]
    return c > d or (c == d and a.edge[e, TOKEN] < a.edge[h, TOKEN])


@kernel
def root(a):
    """Makes a new root; returns its state."""
    return _new(a, 0, NONE, 0)


@kernel
def append(a, last, tokens, depth):
    """Appends tokens to the stream that ends in state `last`; returns the state in which it then ends."""
    for token in tokens:
        before = np.int64(last)
        e = _find(a, last, token)
        if e != NONE:
            q = np.int64(a.edge[e, TO])
            if a.state[q, LENGTH] != a.state[last, LENGTH] + 1:
                q = _split(a, last, q, token)
            last = q
        else:
            now = _new(a, a.state[last, LENGTH] + 1, NONE, 0)
            p = np.int64(last)
            e = np.int64(NONE)
            top = p
            while p != NONE:
                e = _find(a, p, token)
                if e != NONE:
                    break
                _join(a, p, token, now)
                top = p
                p = np.int64(a.state[p, LINK])
            if p == NONE:
                a.state[now, LINK] = top
            else:
                q = np.int64(a.edge[e, TO])
                if a.state[q, LENGTH] != a.state[p, LENGTH] + 1:
                    q = _split(a, p, q, token)
                a.state[now, LINK] = q
            last = now
        v = _counted(a, np.int64(last), depth)
        while a.state[v, LINK] != NONE:
            a.state[v, COUNT] += 1
            v = np.int64(a.state[v, LINK])
        # The edges whose counts grew leave the states on the chain of the place before. No draft begins at the root.
        v = _counted(a, before, depth)
        while a.state[v, LINK] != NONE:
            e, h = _find(a, v, token), np.int64(a.state[v, HEAVY])
            if e != h and _before(a, e, h):
                a.state[v, HEAVY] = e
            v = np.int64(a.state[v, LINK])
    return last


@kernel
def match(a, start, context):
    """The state of the longest suffix of `context` that occurs with something after it, or the root if none does."""
    v = np.int64(start)
    for token in context:
        while True:
            e = _find(a, v, token)
            if e != NONE:
                v = np.int64(a.edge[e, TO])
                break
            if a.state[v, LINK] == NONE:
                break
            v = np.int64(a.state[v, LINK])
    while a.state[v, EDGES] == NONE and a.state[v, LINK] != NONE:
        v = np.int64(a.state[v, LINK])
    return v


@kernel
def walk(a, v, skip, out):
    """Fills `out` with the continuation after state `v` whose first token has rank `skip` by frequency; returns the number of tokens."""
    best = np.int64(a.state[v, HEAVY])
    for _ in range(skip):
        # The order is by frequency, with ties by token; each pass finds the edge that comes right after the last.
        last, best = best, np.int64(NONE)
        e = np.int64(a.state[v, EDGES])
        while e != NONE:
            if e != last and _before(a, last, e) and (best == NONE or _before(a, e, best)):
                best = e
            e = np.int64(a.edge[e, NEXT])
        if best == NONE:
            return 0
    made = 0
    while best != NONE and made < len(out):
        out[made] = a.edge[best, TOKEN]
        made += 1
        best = np.int64(a.state[a.edge[best, TO], HEAVY])
    return made


@kernel
def rehash(a):
    """Fills the table of edges anew."""
    a.slot[:] = NONE
    for e in range(a.used[1]):
        i = _place(a.slot, a.edge[e, FROM], a.edge[e, TOKEN])
        while a.slot[i] != NONE:
            i = (i + 1) & (len(a.slot) - 1)
        a.slot[i] = e
