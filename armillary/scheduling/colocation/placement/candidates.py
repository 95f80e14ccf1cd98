"""Thread sets that suit an instance on a server, and their scores by the tables of pairwise interference.

On every socket: both threads of empty cores, one thread each of empty cores (if at least 30 % of the cores are empty), and free siblings of
busy cores, least marginal score first. Where no such set exists, the free threads of the whole server, least marginal score first.

    S(H) = α·Σ_{siblings b} (f_a·I_SC[a,b] + f_b·I_SC[b,a]) + β·Σ_{on the socket b} (w_b·I_SS[a,b] + w_a·I_SS[b,a])
         + γ·[the server was empty] + own

f_a is the share of a's threads that have b as a sibling, and f_b that of b's threads; w_b are the cores that b keeps busy on the socket
over its cores. Each direction has its own weight, so that it matters who suffers. Own threads on one core count f·I_SC[a,a]. `own` is
log(1/speed), the CPU of a alone on this server over that at speed 1.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from armillary.kernels import loop, part

Array = npt.NDArray[Any]
#: Kinds of sets: both threads of empty cores, one thread of empty cores, siblings. They exist once per socket; then comes the fallback.
WHOLE, SINGLE, SIBLINGS = range(3)
#: Empty cores are given out one thread each only while at least so many cores are empty.
MANY_EMPTY = 0.3


class Weights(NamedTuple):
    """α, β and γ of the score, a term for filled servers that breaks ties, and whether `own` counts."""

    alpha: float = 1.0
    beta: float = 0.5
    gamma: float = 0.2
    spread: float = 0.0
    own: float = 1.0


DEFAULT = Weights()


class Others(NamedTuple):
    """All instances: application, threads, and cores that each of their threads keeps busy."""

    app: Array
    k: Array
    busy: Array


class Machine(NamedTuple):
    """One topology, as loops take it, and the tables on it: I_SC, I_SS [A, A] and log(1/speed)."""

    core: Array
    socket: Array
    members: Array
    cores_per_socket: Array
    by_core: Array
    by_socket: Array
    own: float


@part
def survey(machine, owner, who, a, k, use, cost, held, far):  # type: ignore[no-untyped-def]
    """Looks at one server for k threads of application a: what each free thread costs, what each core holds, and the sockets' terms.

    who: `Others`. use: cores that a keeps busy. cost[t]: Σ over held siblings b of I_SC[a,b]/k + I_SC[b,a]/k_b, infinite if t is not free.
    held[c]: held threads of core c. far[s]: Σ over b on socket s of w_b·I_SS[a,b] + w_a·I_SS[b,a], all of a being there. Returns Σ held.
    """
    held[:] = 0
    far[:] = 0.0
    total = 0
    for t in range(len(owner)):
        if owner[t] >= 0:
            b, s = who.app[owner[t]], machine.socket[t]
            held[machine.core[t]] += 1
            total += 1
            suffered, done = who.busy[owner[t]] * machine.by_socket[a, b], use / who.k[owner[t]] * machine.by_socket[b, a]
            far[s] += (suffered + done) / machine.cores_per_socket[s]
    for t in range(len(owner)):
        cost[t] = np.inf if owner[t] != -1 else 0.0
        if owner[t] == -1 and held[machine.core[t]] > 0:
            for m in range(machine.members.shape[1]):
                g = machine.members[machine.core[t], m]
                if g >= 0 and owner[g] >= 0:
                    b = who.app[owner[g]]
                    cost[t] += machine.by_core[a, b] / k + machine.by_core[b, a] / who.k[owner[g]]
    return total


@part
def _choose(machine, cost, held, a, k, kind, socket, mine, pool, out):  # type: ignore[no-untyped-def]
    """`thread_set` after a survey. mine: zeros for all cores, and zeros again afterwards. pool: room for all threads."""
    cores, width = machine.members.shape
    taken = 0
    if socket < 0 or kind == SIBLINGS:
        # Greedy by least marginal score. Own threads on one core count too, so that the fallback spreads over empty cores first.
        n = 0
        for h in range(len(cost)):
            if cost[h] < np.inf and (socket < 0 or (machine.socket[h] == socket and held[machine.core[h]] > 0)):
                pool[n] = h
                n += 1
        if n < k:
            return False
        while taken < k:
            best, least = -1, np.inf
            for j in range(n):
                h = pool[j]
                if h >= 0:
                    marginal = cost[h] + mine[machine.core[h]] * machine.by_core[a, a] / k
                    if marginal < least:
                        best, least = j, marginal
            out[taken] = pool[best]
            pool[best] = -1
            mine[machine.core[out[taken]]] += 1
            taken += 1
        for j in range(k):
            mine[machine.core[out[j]]] = 0
        return True
    if kind == WHOLE and width == 1:
        return False
    empty = 0
    for c in range(cores):
        if held[c] > 0:
            continue
        empty += 1
        if machine.socket[machine.members[c, 0]] != socket:
            continue
        for m in range(1 if kind == SINGLE else width):
            g = machine.members[c, m]
            if g >= 0 and taken < k:
                out[taken] = g
                taken += 1
    return taken == k and (kind != SINGLE or empty >= MANY_EMPTY * cores)


@part
def _score(machine, cost, far, total, a, chosen, weights):  # type: ignore[no-untyped-def]
    """`score_set` after a survey."""
    k = len(chosen)
    near, distant = 0.0, 0.0
    for i in range(k):
        near += cost[chosen[i]]
        distant += far[machine.socket[chosen[i]]]
        for j in range(k):
            if j != i and machine.core[chosen[j]] == machine.core[chosen[i]]:
                near += machine.by_core[a, a] / k
    score = weights.alpha * near + weights.beta * distant / k + weights.own * machine.own
    return score + weights.spread * total / len(cost) + (weights.gamma if total == 0 else 0.0)


@loop
def thread_set(machine, owner, who, a, k, kind, socket, out):  # type: ignore[no-untyped-def]
    """Fills `out` with k threads of a kind on a socket (−1: the fallback, on all sockets); false if there are not as many."""
    cost, held, far = np.empty(len(owner)), np.empty(len(machine.members), np.int64), np.empty(len(machine.cores_per_socket))
    survey(machine, owner, who, a, k, 0.0, cost, held, far)
    mine, pool = np.zeros(len(held), np.int64), np.empty(len(owner), np.int64)
    return _choose(machine, cost, held, a, k, kind, socket, mine, pool, out)


@loop
def score_set(machine, owner, who, a, use, chosen, weights):  # type: ignore[no-untyped-def]
    """S(H) of a set of free threads for application a, which keeps `use` cores busy."""
    cost, held, far = np.empty(len(owner)), np.empty(len(machine.members), np.int64), np.empty(len(machine.cores_per_socket))
    total = survey(machine, owner, who, a, len(chosen), use, cost, held, far)
    return _score(machine, cost, far, total, a, chosen, weights)


@loop
def score_servers(machine, servers, owner, free, who, a, k, use, weights, scores):  # type: ignore[no-untyped-def]
    """Fills scores[m, 3·socket + kind] for these servers of one topology, and the last column where only the fallback exists; else inf."""
    sockets, threads = len(machine.cores_per_socket), len(machine.core)
    chosen, mine, pool = np.empty(k, np.int64), np.zeros(len(machine.members), np.int64), np.empty(threads, np.int64)
    cost, held, far = np.empty(threads), np.empty(len(machine.members), np.int64), np.empty(sockets)
    for m in servers:
        if free[m] < k:
            continue
        total = survey(machine, owner[m, :threads], who, a, k, use, cost, held, far)
        some = False
        for s in range(sockets):
            for kind in range(3):
                if _choose(machine, cost, held, a, k, kind, s, mine, pool, chosen):
                    scores[m, 3 * s + kind] = _score(machine, cost, far, total, a, chosen, weights)
                    some = True
        if not some and _choose(machine, cost, held, a, k, 0, -1, mine, pool, chosen):
            scores[m, scores.shape[1] - 1] = _score(machine, cost, far, total, a, chosen, weights)
