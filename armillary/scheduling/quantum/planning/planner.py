"""What a scheduler knows about a job before it runs: its cut, the pairs that it needs, and how long a shot should take.

A shot is estimated as the larger of two times: its critical path, in which every gate between QPUs takes the mean time of a pair and its
overhead, and, for each QPU, the time for which its communication qubits are taken, also by routes that only pass through. Other jobs on
the same communication qubits, and luck, are not part of the estimate.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from armillary.kernels import loop
from armillary.scheduling.quantum.circuits.circuit import Circuit, Ints
from armillary.scheduling.quantum.circuits.partition import partition
from armillary.scheduling.quantum.network.network import Network
from armillary.scheduling.quantum.simulation.batch import Job


@dataclass(frozen=True, eq=False)
class Placement:
    """The QPUs of a job, how many of its qubits each of them takes, and the QPU of each qubit."""

    qpus: tuple[int, ...]
    sizes: tuple[int, ...]
    site: Ints

    def crossing(self, circuit: Circuit) -> int:
        """The number of gates between QPUs."""
        pairs = self.site[circuit.pairs]
        return int((pairs[:, 0] != pairs[:, 1]).sum())


class Planner:
    """Cuts and estimates on the network as the scheduler believes it to be; both are kept."""

    def __init__(self, network: Network, like: Planner | None = None) -> None:
        """like: another planner whose cuts are used too, since they do not depend on the network."""
        self.network = network
        self.pair_s = network.pair_s
        self._cuts: dict[tuple[int, tuple[int, ...]], tuple[Ints, Ints]] = {} if like is None else like._cuts
        self._shots: dict[tuple[int, tuple[int, ...], tuple[int, ...]], tuple[float, float]] = {}
        self._alone: dict[int, Placement] = {}
        self._crossing: dict[int, int] = {}
        #: The circuits whose numbers stand in the keys; they must live as long as the keys do.
        self._circuits: dict[int, Circuit] = {} if like is None else like._circuits

    def cut(self, circuit: Circuit, sizes: Sequence[int]) -> tuple[Ints, Ints]:
        """(block of each qubit, gates between blocks [blocks, blocks]) for blocks of these sizes."""
        key = (self._number(circuit), tuple(sizes))
        if key not in self._cuts:
            block, _ = partition(circuit, sizes)
            between = np.zeros((len(sizes), len(sizes)), np.int64)
            ends = block[circuit.pairs]
            np.add.at(between, (ends[:, 0], ends[:, 1]), 1)
            self._cuts[key] = (block, between + between.T)
        return self._cuts[key]

    def placement(self, circuit: Circuit, qpus: Sequence[int], sizes: Sequence[int]) -> Placement:
        """Block i of the cut on QPU i of `qpus`."""
        block, _ = self.cut(circuit, sizes)
        return Placement(tuple(qpus), tuple(sizes), np.array(qpus, np.int64)[block])

    def shot_s(self, circuit: Circuit, placement: Placement) -> float:
        """Expected seconds of one shot."""
        return self._estimate(circuit, placement)[0]

    def local_s(self, circuit: Circuit, placement: Placement) -> float:
        """Seconds of one shot if every pair were there when it is needed."""
        return self._estimate(circuit, placement)[1]

    def expected_s(self, job: Job, placement: Placement) -> float:
        """Expected seconds of all shots of a job, alone."""
        return job.shots * self.shot_s(job.circuit, placement)

    def demand_s(self, job: Job) -> float:
        """EPR demand: the pairs of all shots under the best placement on the empty network, times the mean seconds of a pair."""
        key = id(job.circuit)
        if key not in self._crossing:
            self._crossing[key] = self.alone(job).crossing(job.circuit)
        return job.shots * self._crossing[key] * self.network.mean_pair_s

    def alone(self, job: Job) -> Placement:
        """The placement with the fewest QPUs and the least waiting for pairs if all qubits were free."""
        from .placing import on_best_links

        key = self._number(job.circuit)
        if key not in self._alone:
            found = on_best_links(self, job.circuit, self.network.data.tolist())
            assert found is not None, "the job was checked against the network"
            self._alone[key] = found
        return self._alone[key]

    def _number(self, circuit: Circuit) -> int:
        self._circuits[id(circuit)] = circuit
        return id(circuit)

    def _estimate(self, circuit: Circuit, placement: Placement) -> tuple[float, float]:
        key = (self._number(circuit), placement.qpus, placement.sizes)
        if key not in self._shots:
            n = self.network
            facts = (circuit.kind, circuit.start, circuit.operand, placement.site, n.gate_s, n.two_qubit_s, n.measure_s)
            none = np.zeros_like(self.pair_s)
            load = np.zeros(len(n))
            path = _critical(*facts, self.pair_s, n.overhead_s, *n.flat_routes, load)
            taken = float((load / np.maximum(n.communication, 1)).max())
            local = _critical(*facts, none, n.overhead_s, *n.flat_routes, np.zeros(len(n)))
            self._shots[key] = (max(path, taken), local)
        return self._shots[key]


@loop
def _critical(kind, start, operand, site, gate_s, two_qubit_s, measure_s, pair_s, overhead_s, route_start, route, load):  # type: ignore[no-untyped-def]
    """The longest path in seconds; `load` gets the seconds for which communication qubits are taken, two of each QPU on the way."""
    ready = np.zeros(len(site))
    longest = 0.0
    for g in range(len(kind)):
        at = 0.0
        for i in range(start[g], start[g + 1]):
            at = max(at, ready[operand[i]])
        here = site[operand[start[g]]] if start[g + 1] > start[g] else 0
        if kind[g] == 0:
            at += gate_s[here]
        elif kind[g] == 2:
            at += measure_s[here]
        elif kind[g] == 1:
            there = site[operand[start[g] + 1]]
            if here == there:
                at += two_qubit_s[here]
            else:
                taken = pair_s[here, there] + overhead_s[here, there]
                at += taken
                way = here * len(gate_s) + there
                first, last = route_start[way], route_start[way + 1] - 1
                for i in range(first, last + 1):
                    load[route[i]] += taken if i in (first, last) else 2 * taken
        for i in range(start[g], start[g + 1]):
            ready[operand[i]] = at
        longest = max(longest, at)
    return longest
