"""Jobs gate by gate: local gates take their time, and a gate between QPUs waits for its pairs on communication qubits that all jobs share.

Every job asks for its pairs in the order of its ASAP layers, as soon as the one before is being made; the communication qubits of the whole
route are taken at once, by the job that has waited longest among those that find theirs free. A pair may therefore be made before its
qubits are ready, and waits up to the coherence time, after which it is made anew. When pairs and qubits are there, the gate takes swaps,
two local gates, two measurements and a message, and frees the communication qubits. A job takes pairs as a prefix of its order, so the
oldest pair that is held can always be used, and nothing can lock up.

Each waiting time is drawn from a hash of the job, the shot, the gate and the hop, so every technique meets the same luck.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from armillary.engine.compiled import Heap, heap, pop, push
from armillary.errors import InputError
from armillary.kernels import loop
from armillary.scheduling.quantum.circuits.circuit import Ints
from armillary.scheduling.quantum.network.network import ATTEMPT_S, Network

from .batch import Tables

#: Events: a gate between QPUs ends, a shot ends.
GATE, SHOT = 0, 1
#: How often pairs of one gate may decohere before the network is called unusable.
MOST_RETRIES = 100_000


class Physics(NamedTuple):
    """The network as the loops read it; matrices are [K, K]."""

    gate_s: np.ndarray
    two_qubit_s: np.ndarray
    measure_s: np.ndarray
    coherence_s: np.ndarray
    route_start: np.ndarray
    route: np.ndarray
    rate: np.ndarray
    pair_s: np.ndarray
    #: Of the slower end: a two-qubit gate and a measurement; and swaps and messages on the way.
    gate_between: np.ndarray
    measure_between: np.ndarray
    on_the_way: np.ndarray
    #: [seed, 1 if waiting times are their means, 1 if consecutive controlled gates share a pair]
    how: np.ndarray


def physics(network: Network, seed: int, expected: bool, grouping: bool) -> Physics:
    """The arrays of a network."""
    two, measured = (np.maximum(a[:, None], a[None, :]) for a in (network.two_qubit_s, network.measure_s))
    way = network.overhead_s - 2 * two - 2 * measured
    return Physics(
        network.gate_s, network.two_qubit_s, network.measure_s, network.coherence_s, *network.flat_routes, network.rate, network.pair_s,
        two, measured, np.maximum(way, 0), np.array([seed, expected, grouping], np.uint64),
    )  # fmt: skip


class Moving(NamedTuple):
    """What changes while jobs run."""

    site: np.ndarray
    #: By qubit: the place in its list of operations, and when it is free.
    place: np.ndarray
    ready: np.ndarray
    #: By operation: how many of its qubits have come, when the last one did, when its pairs exist (−1 before they are asked for), the first
    #: gate that uses its pair, and of that one the last.
    came: np.ndarray
    at: np.ndarray
    made: np.ndarray
    leader: np.ndarray
    last: np.ndarray
    #: The gates of each job that ask for pairs, from where its operations begin.
    asks: np.ndarray
    #: By job: asks, the next one, since when it waits, operations left in this shot, shots done, shots to do.
    asked: np.ndarray
    following: np.ndarray
    since: np.ndarray
    left: np.ndarray
    shot: np.ndarray
    shots: np.ndarray
    #: By job: seconds that its gates between QPUs waited with their qubits ready, how many there were, and pairs that were made.
    waited: np.ndarray
    remote: np.ndarray
    pairs: np.ndarray
    #: The jobs that run, and how many; free communication qubits by QPU; a stack of qubits.
    running: np.ndarray
    many: np.ndarray
    free: np.ndarray
    stack: np.ndarray


def whole(size: int) -> Ints:
    """Zeros."""
    return np.zeros(size, np.int64)


class Player:
    """A batch on a network: `start` jobs, and `advance` to the next completion."""

    def __init__(
        self, tables: Tables, network: Network, shots: Ints, *, seed: int = 0, expected: bool = False, grouping: bool = False
    ) -> None:  # fmt: skip
        self.tables, self.network = tables, network
        self._physics = physics(network, seed, expected, grouping)
        jobs, gates, qubits = len(tables.job_gate) - 1, len(tables.kind), int(tables.job_qubit[-1])
        real = np.zeros
        self.state = Moving(
            whole(qubits), whole(qubits), real(qubits), whole(gates), real(gates), np.full(gates, -1.0), whole(gates), whole(gates),
            whole(gates), whole(jobs), whole(jobs), real(jobs), whole(jobs), whole(jobs), shots.astype(np.int64), real(jobs), whole(jobs),
            whole(jobs), whole(jobs), whole(1), network.communication.copy(), whole(qubits),
        )  # fmt: skip
        self._heap: Heap = heap(int(network.communication.sum()) + jobs + 16)

    def start(self, job: int, site: Ints, now_s: float) -> None:
        """Lets a job begin, with the QPU of each of its qubits."""
        first, stop = self.tables.job_qubit[job], self.tables.job_qubit[job + 1]
        self.state.site[first:stop] = site
        _start(self.tables, self._physics, self.state, self._heap, job, now_s)

    def grant(self, now_s: float) -> None:
        """Takes communication qubits for the jobs that have begun; called once after all jobs of a moment were started."""
        if not _grant(self.tables, self._physics, self.state, self._heap, now_s):
            raise self._unusable()

    def advance(self, until_s: float = math.inf) -> tuple[float, int]:
        """(time, job) of the next completion up to `until_s`, or (until_s, -1)."""
        time, job = _advance(self.tables, self._physics, self.state, self._heap, until_s)
        if job == -2:
            raise self._unusable()
        return float(time), int(job)

    def _unusable(self) -> InputError:
        return InputError("found pairs that decohere before all hops of a route have one; expected longer coherence or faster links",
                          where="network")  # fmt: skip


@loop
def _start(t, p, m, h, j, now):  # type: ignore[no-untyped-def]
    m.running[m.many[0]] = j
    m.many[0] += 1
    m.shot[j] = 0
    m.asked[j] = pair_up(t, m, p.how[2] != 0, j)
    _begin_shot(t, p, m, h, j, now)


@loop
def pair_up(t, m, grouping, j):  # type: ignore[no-untyped-def]
    """Finds the gates of a job that ask for pairs, in order, and returns how many.

    With `grouping`, consecutive controlled gates with the same control and the same remote QPU share the pair of the first, if nothing else
    happens to the control between them.
    """
    first, count = t.job_gate[j], 0
    opener, shared, remote = -1, -1, -1
    for i in range(first, t.job_gate[j + 1]):
        g = t.order[i]
        m.leader[g] = -1
        if t.kind[g] != 1:
            continue
        a, b = t.operand[t.start[g]], t.operand[t.start[g] + 1]
        if m.site[a] == m.site[b]:
            continue
        m.leader[g], m.last[g] = g, g
        joins = False
        if grouping and opener >= 0 and t.control[g] > 0:
            previous = m.last[opener]
            if shared < 0:
                # The second gate of a group decides which qubit is its control.
                c, d = t.operand[t.start[previous]], t.operand[t.start[previous] + 1]
                for mine in range(2):
                    for its in range(2):
                        x, y = (a, b) if mine == 0 else (b, a)
                        u, v = (c, d) if its == 0 else (d, c)
                        allowed = (mine == 0 or t.control[g] == 2) and (its == 0 or t.control[previous] == 2)
                        if not joins and allowed and x == u and m.site[y] == m.site[v] and _next_to(t, x, previous, g):
                            joins, shared, remote = True, x, m.site[y]
            elif a == shared or (b == shared and t.control[g] == 2):
                other = b if a == shared else a
                joins = m.site[other] == remote and _next_to(t, shared, previous, g)
        if joins:
            m.leader[g] = opener
            m.last[opener] = g
        else:
            m.asks[first + count] = g
            count += 1
            opener, shared, remote = (g if t.control[g] > 0 else -1), -1, -1
    return count


@loop
def _next_to(t, q, before, g):  # type: ignore[no-untyped-def]
    """Whether g follows `before` directly on qubit q."""
    for i in range(t.qubit_start[q], t.qubit_start[q + 1] - 1):
        if t.qubit_gate[i] == before:
            return t.qubit_gate[i + 1] == g
    return False


@loop
def _begin_shot(t, p, m, h, j, now):  # type: ignore[no-untyped-def]
    for g in range(t.job_gate[j], t.job_gate[j + 1]):
        m.came[g], m.at[g], m.made[g] = 0, 0.0, -1.0
    m.left[j] = t.job_gate[j + 1] - t.job_gate[j]
    m.following[j], m.since[j] = 0, now
    deep = 0
    for q in range(t.job_qubit[j + 1] - 1, t.job_qubit[j] - 1, -1):
        m.place[q], m.ready[q] = t.qubit_start[q], now
        m.stack[deep] = q
        deep += 1
    if m.left[j] == 0:
        push(h, now, SHOT, j)
    else:
        _flow(t, p, m, h, j, deep)


@loop
def _flow(t, p, m, h, j, deep):  # type: ignore[no-untyped-def]
    """Runs what the qubits on the stack make ready, until every qubit waits for another one or for a pair."""
    while deep > 0:
        deep -= 1
        q = m.stack[deep]
        if m.place[q] == t.qubit_start[q + 1]:
            continue
        g = t.qubit_gate[m.place[q]]
        m.came[g] += 1
        m.at[g] = max(m.at[g], m.ready[q])
        if m.came[g] < t.start[g + 1] - t.start[g]:
            continue
        kind, end = t.kind[g], m.at[g]
        here = m.site[q]
        if kind == 0:
            end += p.gate_s[here]
        elif kind == 2:
            end += p.measure_s[here]
        elif kind == 1:
            if m.leader[g] < 0:
                end += p.two_qubit_s[here]
            elif m.leader[g] == g:
                if m.made[g] >= 0.0:
                    _run(t, p, m, h, j, g)
                continue
            else:
                a, b = m.site[t.operand[t.start[g]]], m.site[t.operand[t.start[g] + 1]]
                end += p.gate_between[a, b]
                if m.last[m.leader[g]] == g:
                    push(h, end + p.measure_between[a, b], GATE, g)
                    continue
        deep = _complete(t, m, j, g, end, deep)
    if m.left[j] == 0:
        end = 0.0
        for q in range(t.job_qubit[j], t.job_qubit[j + 1]):
            end = max(end, m.ready[q])
        push(h, end, SHOT, j)


@loop
def _complete(t, m, j, g, end, deep):  # type: ignore[no-untyped-def]
    for i in range(t.start[g], t.start[g + 1]):
        q = t.operand[i]
        m.ready[q] = end
        m.place[q] += 1
        m.stack[deep] = q
        deep += 1
    m.left[j] -= 1
    return deep


@loop
def _run(t, p, m, h, j, g):  # type: ignore[no-untyped-def]
    """Runs a gate between QPUs whose qubits have come and whose pairs are, or will be, there."""
    a, b = m.site[t.operand[t.start[g]]], m.site[t.operand[t.start[g] + 1]]
    coherence = min(p.coherence_s[a], p.coherence_s[b])
    retry = 1
    while m.at[g] - m.made[g] > coherence:
        again = _waiting(t, p, m, j, g, a, b, retry)
        m.made[g] += coherence + again
        m.pairs[j] += 1
        retry += 1
        if again < 0.0:
            m.made[g] = np.inf
    start = max(m.at[g], m.made[g])
    m.waited[j] += start - m.at[g]
    m.remote[j] += 1
    end = start + p.on_the_way[a, b] + 2 * p.gate_between[a, b] + p.measure_between[a, b]
    if m.last[g] == g:
        end += p.measure_between[a, b]
    push(h, end, GATE, g)


@loop
def _grant(t, p, m, h, now):  # type: ignore[no-untyped-def]
    """Takes communication qubits for the jobs whose next pairs find all of theirs free, the longest waiting job first."""
    k = len(p.gate_s)
    while True:
        best = -1
        for i in range(m.many[0]):
            j = m.running[i]
            if m.following[j] < m.asked[j] and (best < 0 or m.since[j] < m.since[best] or (m.since[j] == m.since[best] and j < best)):
                g = m.asks[t.job_gate[j] + m.following[j]]
                a, b = m.site[t.operand[t.start[g]]], m.site[t.operand[t.start[g] + 1]]
                if _fits(p, m, a * k + b):
                    best = j
        if best < 0:
            return True
        j = best
        g = m.asks[t.job_gate[j] + m.following[j]]
        a, b = m.site[t.operand[t.start[g]]], m.site[t.operand[t.start[g] + 1]]
        _take(p, m, a * k + b, 1)
        m.following[j] += 1
        m.since[j] = now
        m.pairs[j] += p.route_start[a * k + b + 1] - p.route_start[a * k + b] - 1
        wait = _waiting(t, p, m, j, g, a, b, 0)
        if wait < 0.0:
            return False
        m.made[g] = now + wait
        if m.came[g] == 2:
            _run(t, p, m, h, j, g)


@loop
def _fits(p, m, way):  # type: ignore[no-untyped-def]
    first, stop = p.route_start[way], p.route_start[way + 1]
    short = 0
    for i in range(first, stop):
        short += m.free[p.route[i]] < (1 if i == first or i == stop - 1 else 2)
    return short == 0


@loop
def _take(p, m, way, sign):  # type: ignore[no-untyped-def]
    first, stop = p.route_start[way], p.route_start[way + 1]
    for i in range(first, stop):
        m.free[p.route[i]] -= sign * (1 if i == first or i == stop - 1 else 2)


@loop
def _waiting(t, p, m, j, g, a, b, retry):  # type: ignore[no-untyped-def]
    """Seconds until every hop of the route has a pair, none of which has waited longer than its coherence; −1 if that never happens."""
    if p.how[1] != 0:
        return p.pair_s[a, b]
    k = len(p.gate_s)
    first, stop = p.route_start[a * k + b], p.route_start[a * k + b + 1]
    key = _mixed(_mixed(_mixed(_mixed(p.how[0], j), m.shot[j]), g - t.job_gate[j]), retry)
    if stop - first == 2:
        return _drawn(p.rate[p.route[first], p.route[first + 1]], _mixed(key, 0))
    have = np.zeros(stop - first - 1)
    late, tries = 0.0, 0
    for hop in range(len(have)):
        have[hop] = _drawn(p.rate[p.route[first + hop], p.route[first + hop + 1]], _mixed(key, hop))
        late = max(late, have[hop])
    again = True
    while again:
        again = False
        for hop in range(len(have)):
            u, v = p.route[first + hop], p.route[first + hop + 1]
            coherence = min(p.coherence_s[u], p.coherence_s[v])
            while late - have[hop] > coherence:
                tries += 1
                if tries > MOST_RETRIES:
                    return -1.0
                have[hop] += coherence + _drawn(p.rate[u, v], _mixed(key, len(have) * tries + hop))
                again = True
            late = max(late, have[hop])
    return late


@loop
def _drawn(rate, key):  # type: ignore[no-untyped-def]
    """Seconds of a geometric number of attempts."""
    chance = rate * ATTEMPT_S
    if chance >= 1.0:
        return ATTEMPT_S
    u = (np.float64(key >> np.uint64(11)) + 1.0) * 2.0**-53
    return ATTEMPT_S * max(1.0, math.ceil(math.log(u) / math.log1p(-chance)))


@loop
def _mixed(key, value):  # type: ignore[no-untyped-def]
    """A key and a number in one key: splitmix64."""
    z = np.uint64(key) + (np.uint64(value) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


@loop
def _advance(t, p, m, h, until):  # type: ignore[no-untyped-def]
    k = len(p.gate_s)
    while h.held[0] > 0 and h.time[0] <= until:
        now, kind, what = pop(h)
        if now == np.inf:
            return now, -2
        if kind == GATE:
            j = t.job[what]
            a, b = m.site[t.operand[t.start[what]]], m.site[t.operand[t.start[what] + 1]]
            if m.last[m.leader[what]] == what:
                _take(p, m, a * k + b, -1)
            _flow(t, p, m, h, j, _complete(t, m, j, what, now, 0))
        else:
            j = what
            m.shot[j] += 1
            if m.shot[j] >= m.shots[j]:
                for i in range(m.many[0]):
                    if m.running[i] == j:
                        m.running[i] = m.running[m.many[0] - 1]
                        m.many[0] -= 1
                        break
                return now, j
            _begin_shot(t, p, m, h, j, now)
        if not _grant(t, p, m, h, now):
            return now, -2
    return until, -1
