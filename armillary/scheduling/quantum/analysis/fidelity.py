"""The fewest QPUs on which a circuit's modelled fidelity meets a threshold, and what its shots then take.

No published strategy trades makespan against fidelity. More QPUs never cut fewer gates, but links differ in fidelity as well as in rate, so
the set with the best fidelity need not be the fastest one, nor the smallest.
"""

from __future__ import annotations

from dataclasses import dataclass

from armillary.errors import InputError
from armillary.scheduling.quantum.circuits.circuit import Circuit
from armillary.scheduling.quantum.network.network import Network
from armillary.scheduling.quantum.planning.placing import sets_of_size, smallest_set
from armillary.scheduling.quantum.planning.planner import Placement, Planner
from armillary.scheduling.quantum.simulation.schedule import modelled_fidelity


@dataclass(frozen=True, eq=False)
class Choice:
    """A placement, its modelled fidelity, its expected seconds per shot, and whether it meets the threshold."""

    placement: Placement
    fidelity: float
    shot_s: float
    meets: bool


def fewest_qpus(circuit: Circuit, network: Network, threshold: float) -> Choice:
    """The fastest placement on the fewest QPUs whose fidelity is at least `threshold`; if none is, the one with the best fidelity."""
    if not 0 <= threshold <= 1:
        raise InputError(f"found {threshold:g}; expected a fidelity from 0 to 1", where="threshold")
    if circuit.qubits > network.qubits:
        raise InputError(f"{circuit.name} needs {circuit.qubits} qubits; expected at most {network.qubits}", where="network")
    planner, free = Planner(network), network.data.tolist()
    found: list[Choice] = []
    for size in range(smallest_set(circuit, free), len(network) + 1):
        for placement in sets_of_size(planner, circuit, free, size):
            fidelity = modelled_fidelity(circuit, placement, network)
            found.append(Choice(placement, fidelity, planner.shot_s(circuit, placement), fidelity >= threshold))
        good = [choice for choice in found if choice.meets]
        if good:
            return min(good, key=lambda choice: choice.shot_s)
    return max(found, key=lambda choice: choice.fidelity)
