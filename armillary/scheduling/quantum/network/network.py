"""Quantum processors (QPUs) and their entanglement links: qubits, gate times, EPR rates, fidelities, routes.

A link makes entangled (EPR) pairs at a rate: attempts every 10 µs succeed with probability rate · 10 µs. QPUs that share no link use the
route with the least Σ 1/rate, one pair per hop, which entanglement swapping joins.
"""

from __future__ import annotations

import functools
import heapq
import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from armillary.errors import InputError, one_line

if TYPE_CHECKING:
    from armillary.cluster import Cluster

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

#: Seconds between two attempts at a pair.
ATTEMPT_S = 10e-6
#: Light in fibre.
S_PER_KM = 5e-6
#: Fidelities of the class of trapped ions: one-qubit gates, two-qubit gates, measurements (assumed).
ONE_QUBIT_FIDELITY, TWO_QUBIT_FIDELITY, MEASURE_FIDELITY = 0.9999, 0.998, 0.997
MOST_QPUS, MOST_DATA_QUBITS = 128, 1 << 20
#: Routes of up to so many hops get the exact mean of their slowest hop.
EXACT_HOPS = 6
TOPOLOGIES = ("complete", "ring", "star")


@dataclass(frozen=True, eq=False)
class Network:
    """K QPUs: arrays [K], and links as symmetric matrices [K, K] in which a rate of 0 means no link."""

    names: tuple[str, ...]
    #: Qubits for data, and qubits that hold halves of EPR pairs.
    data: Ints
    communication: Ints
    #: Seconds of a one-qubit gate, a two-qubit gate, a measurement, a swap of entanglement, and for which a pair can wait.
    gate_s: Floats
    two_qubit_s: Floats
    measure_s: Floats
    swap_s: Floats
    coherence_s: Floats
    #: Pairs per second, their fidelity, and the seconds of a classical message, by link.
    rate: Floats
    fidelity: Floats
    latency_s: Floats

    def __post_init__(self) -> None:
        k = len(self.names)
        if not 1 <= k <= MOST_QPUS:
            raise InputError(f"found {k:,} QPUs; expected from 1 to {MOST_QPUS:,}", where="network")
        if self.data.min() < 1 or int(self.data.sum()) > MOST_DATA_QUBITS:
            raise InputError(f"found {int(self.data.sum()):,} data qubits; expected at least 1 per QPU and {MOST_DATA_QUBITS:,} in all",
                             where="network")  # fmt: skip
        linked = self.rate[self.rate != 0]
        if not np.isfinite(self.rate).all() or (linked < 0).any() or (linked * ATTEMPT_S > 1).any():
            raise InputError(f"found EPR rates outside 0 to {1 / ATTEMPT_S:g} per second; attempts are {ATTEMPT_S * 1e6:g} µs apart",
                             where="network")  # fmt: skip
        if k > 1 and self.communication.min() < 1:
            raise InputError("found a QPU without communication qubits; expected at least one each", where="network")

    def __len__(self) -> int:
        return len(self.names)

    @property
    def qubits(self) -> int:
        """The data qubits of all QPUs."""
        return int(self.data.sum())

    @staticmethod
    def of(
        cluster: Cluster | str = "qpu-6", *, links: Iterable[tuple[Any, ...]] | None = None, topology: str = "complete",
        rates: Sequence[float] | None = None,
    ) -> Network:  # fmt: skip
        """The QPUs of a cluster, a preset or a file.

        links: (a, b, rate in Hz, fidelity, km), which are all links then. topology: else, complete, ring or star with the network's rate;
        `rates` gives each of its links another one, in the order (0, 1), (0, 2), ….
        """
        from armillary.cluster import find

        found = find(cluster) if isinstance(cluster, str) else cluster
        rows: list[list[float]] = []
        names: list[str] = []
        network = None
        for group in found.groups:
            for device in group.node.devices:
                if device.kind != "qpu":
                    continue
                facts = [device.data_qubits, device.communication_qubits, device.gate_s, device.two_qubit_s, device.measure_s,
                         device.swap_s, device.coherence_s]  # fmt: skip
                if any(fact is None for fact in facts):
                    raise InputError(f"{found.name}: group {group.name}: expected data_qubits, communication_qubits, gate_s, two_qubit_s, "
                                     "measure_s, swap_s and coherence_s of its QPU", where="cluster")  # fmt: skip
                many = int(group.count) * int(device.count)
                if len(names) + many > MOST_QPUS:
                    raise InputError(f"{found.name}: found more than {MOST_QPUS:,} QPUs", where="cluster")
                names += [f"{group.name}-{len(names) + i}" for i in range(many)]
                rows += [[float(fact) for fact in facts if fact is not None]] * many
                if network is None and group.node.nics:
                    network = found.networks.get(group.node.nics[0].network or "")
        if not rows:
            raise InputError(f"{found.name} has no device of kind qpu", where="cluster")
        if network is None or network.epr_rate is None:
            raise InputError(f"{found.name}: expected a network with epr_rate that the QPUs' NICs are on", where="cluster")
        table = np.array(rows)
        own = (float(network.epr_rate), float(network.fidelity or 1.0), float(network.latency.path or 0.0))
        if links is None:
            pairs = joined(len(names), topology)
            if rates is not None and len(rates) != len(pairs):
                raise InputError(f"found {len(rates)} rates; expected {len(pairs)}", where="rates")
            links = [(a, b, own[0] if rates is None else rates[i], own[1], 0.0) for i, (a, b) in enumerate(pairs)]
        rate, fidelity, latency = _matrices(names, links, own)
        whole = table[:, :2].astype(np.int64)
        gate, two, measured, swap, coherence = table[:, 2:].T.copy()
        return Network(tuple(names), whole[:, 0], whole[:, 1], gate, two, measured, swap, coherence, rate, fidelity, latency)

    def with_rates(self, rate: Floats) -> Network:
        """The same QPUs and links with other rates."""
        return replace(self, rate=rate)

    def shuffled(self, rng: np.random.Generator) -> Network:
        """The same links with their rates dealt out anew: what a planner with wrong data believes."""
        a, b = np.nonzero(np.triu(self.rate))
        rate = self.rate.copy()
        rate[a, b] = rate[b, a] = self.rate[a, b][rng.permutation(len(a))]
        return self.with_rates(rate)

    @functools.cached_property
    def routes(self) -> dict[tuple[int, int], tuple[int, ...]]:
        """The QPUs on the way from a to b > a, both included. A QPU in the middle needs two communication qubits."""
        found = {}
        for a in range(len(self)):
            before = self._tree(a)
            for b in range(a + 1, len(self)):
                if before[b] < 0:
                    said = f"found no route from {self.names[a]} to {self.names[b]} over QPUs with two communication qubits"
                    raise InputError(f"{said}; expected links that join all QPUs", where="network")
                way = [b]
                while way[-1] != a:
                    way.append(before[way[-1]])
                found[a, b] = tuple(way[::-1])
        return found

    def _tree(self, source: int) -> list[int]:
        """The QPU before each one on the best route from `source`: least Σ 1/rate, then fewest hops, then lowest numbers."""
        cost = [(math.inf, 0)] * len(self)
        before = [-1] * len(self)
        cost[source], before[source] = (0.0, 0), source
        queue = [(0.0, 0, source)]
        while queue:
            far, hops, a = heapq.heappop(queue)
            if (far, hops) > cost[a] or (a != source and self.communication[a] < 2):
                continue
            for b in np.flatnonzero(self.rate[a]).tolist():
                reached = (far + 1 / float(self.rate[a, b]), hops + 1)
                if reached < cost[b]:
                    cost[b], before[b] = reached, a
                    heapq.heappush(queue, (*reached, b))
        return before

    @functools.cached_property
    def flat_routes(self) -> tuple[Ints, Ints]:
        """(start, QPU): the route from a to b at a · K + b, for compiled loops."""
        k = len(self)
        start = np.zeros(k * k + 1, np.int64)
        flat: list[int] = []
        for a in range(k):
            for b in range(k):
                if a != b:
                    flat += self.routes[min(a, b), max(a, b)]
                start[a * k + b + 1] = len(flat)
        return start, np.array(flat or [0], np.int64)

    @functools.cached_property
    def pair_s(self) -> Floats:
        """Mean seconds until all pairs of a route exist, when its hops begin together, [K, K]."""
        return self._over_routes(lambda hops: slowest_of([float(self.rate[a, b]) for a, b in hops]))

    @functools.cached_property
    def overhead_s(self) -> Floats:
        """Seconds of a gate between two QPUs once its pairs exist: swaps, two local gates, two measurements, a message, [K, K]."""

        def seconds(hops: list[tuple[int, int]]) -> float:
            a, b = hops[0][0], hops[-1][1]
            swaps = sum(float(self.swap_s[middle]) for middle, _ in hops[1:])
            local = 2 * max(self.two_qubit_s[a], self.two_qubit_s[b]) + 2 * max(self.measure_s[a], self.measure_s[b])
            return swaps + float(local) + sum(float(self.latency_s[hop]) for hop in hops)

        return self._over_routes(seconds)

    @functools.cached_property
    def pair_fidelity(self) -> Floats:
        """The product of the fidelities of a route's pairs, [K, K]."""
        found = self._over_routes(lambda hops: math.prod(float(self.fidelity[hop]) for hop in hops))
        return found + np.eye(len(self))

    def _over_routes(self, of: Any) -> Floats:
        found = np.zeros((len(self), len(self)))
        for (a, b), way in self.routes.items():
            found[a, b] = found[b, a] = of(list(itertools.pairwise(way)))
        return found

    @functools.cached_property
    def mean_pair_s(self) -> float:
        """The mean of 1/rate over the links."""
        linked = self.rate[np.triu_indices(len(self))]
        linked = linked[linked > 0]
        return float((1 / linked).mean()) if len(linked) else 0.0


def slowest_of(rates: Sequence[float]) -> float:
    """The mean of the largest of exponential times: Σ over subsets S of (−1)^(|S| + 1) / Σ_{i ∈ S} rate_i.

    Each hop beyond the sixth adds its own mean, which is an upper bound.
    """
    exact, more = rates[:EXACT_HOPS], rates[EXACT_HOPS:]
    total = 0.0
    for subset in range(1, 1 << len(exact)):
        chosen = [rate for i, rate in enumerate(exact) if subset >> i & 1]
        total += (1 if len(chosen) % 2 else -1) / sum(chosen)
    return total + sum(1 / rate for rate in more)


def joined(qpus: int, topology: str) -> list[tuple[int, int]]:
    """The links of a complete network, a ring or a star around the first QPU."""
    if topology == "complete":
        return [(a, b) for a in range(qpus) for b in range(a + 1, qpus)]
    if topology == "ring":
        return [(q, q + 1) for q in range(qpus - 1)] + ([(0, qpus - 1)] if qpus > 2 else [])
    if topology == "star":
        return [(0, q) for q in range(1, qpus)]
    raise InputError(f'found topology "{one_line(topology, 40)}"; expected {", ".join(TOPOLOGIES)}', where="topology")


def _matrices(names: list[str], links: Iterable[tuple[Any, ...]], own: tuple[float, float, float]) -> tuple[Floats, Floats, Floats]:
    k = len(names)
    rate, fidelity, latency = np.zeros((k, k)), np.zeros((k, k)), np.zeros((k, k))
    at = {name: i for i, name in enumerate(names)}
    for a, b, hertz, share, km in links:
        ends = []
        for end in (a, b):
            found = at.get(end) if isinstance(end, str) else int(end)
            if found is None and isinstance(end, str) and end.isdecimal() and len(end) < 6:
                found = int(end)
            if found is None or not 0 <= found < k:
                raise InputError(f'found a link to "{one_line(str(end), 60)}"; expected a QPU: {names[0]} to {names[-1]}, or 0 to {k - 1}',
                                 where="links")  # fmt: skip
            ends.append(found)
        u, v = ends
        if u == v:
            raise InputError(f"found a link from {names[u]} to itself", where="links")
        if not 0 < hertz <= 1 / ATTEMPT_S or not 0 < share <= 1 or not 0 <= km <= 1e6:
            raise InputError(f"found {hertz:g} Hz, fidelity {share:g} and {km:g} km; expected a rate above 0 of at most {1 / ATTEMPT_S:g} "
                             "Hz, a fidelity from 0 to 1 and up to a million km", where="links")  # fmt: skip
        rate[u, v] = rate[v, u] = hertz
        fidelity[u, v] = fidelity[v, u] = share
        latency[u, v] = latency[v, u] = own[2] + S_PER_KM * km
    return rate, fidelity, latency
