"""One OpenQASM 2 program per QPU, with remote gates as opaque ones, and the list of EPR pairs (ebits) that couple them.

A gate between QPUs becomes `remote_cx`, or `remote_` and its own name, on the local qubit and a communication qubit, in the programs of
both ends; its angle and its ebit are the same in both. The first program of a coupling holds the first qubit of the gate.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from armillary.errors import InputError
from armillary.scheduling.quantum.circuits.circuit import MEASURE, TWO, Circuit
from armillary.scheduling.quantum.network.network import Network
from armillary.scheduling.quantum.planning.planner import Placement


@dataclass(frozen=True)
class Ebit:
    """One EPR pair: its number, the QPUs of the gate's first and second qubit with the route between them, the gate, and both qubits."""

    number: int
    route: tuple[str, ...]
    gate: str
    #: Qubits of the whole circuit.
    qubits: tuple[int, int]
    #: The communication qubit that each end uses.
    slots: tuple[int, int]


@dataclass(frozen=True)
class Programs:
    """The text of each QPU's program by the QPU's name, and the ebits in program order."""

    texts: dict[str, str]
    ebits: tuple[Ebit, ...]

    def coupling(self) -> str:
        """The ebits as CSV."""
        rows = [f"{e.number},{' '.join(e.route)},{e.gate},{e.qubits[0]},{e.qubits[1]},{e.slots[0]},{e.slots[1]}" for e in self.ebits]
        return "\n".join(["ebit,route,gate,first_qubit,second_qubit,first_slot,second_slot", *rows]) + "\n"


def programs(circuit: Circuit, placement: Placement | Sequence[int], network: Network) -> Programs:
    """The programs of a placed circuit. placement: a placement, or the QPU of each qubit."""
    site = np.asarray(placement.site if isinstance(placement, Placement) else placement, np.int64)
    if len(site) != circuit.qubits or site.min(initial=0) < 0 or site.max(initial=0) >= len(network):
        raise InputError(f"found places for {len(site)} qubits; expected one of {len(network)} QPUs for each of {circuit.qubits}",
                         where=circuit.name)  # fmt: skip
    qpus = sorted(set(site.tolist()))
    # A qubit's number in the program of its QPU.
    local = np.zeros(len(site), np.int64)
    for qpu in qpus:
        members = np.flatnonzero(site == qpu)
        if len(members) > network.data[qpu]:
            found = f"found {len(members)} qubits on {network.names[qpu]}"
            raise InputError(f"{found}; expected at most {int(network.data[qpu])}", where=circuit.name)
        local[members] = np.arange(len(members))
    lines: dict[int, list[str]] = {qpu: [] for qpu in qpus}
    opaque: dict[int, dict[str, int]] = {qpu: {} for qpu in qpus}
    used = dict.fromkeys(qpus, 0)
    ebits: list[Ebit] = []
    for g in range(len(circuit)):
        on = circuit.operand[circuit.start[g] : circuit.start[g + 1]].tolist()
        call, kind = circuit.calls[circuit.call[g]], circuit.kind[g]
        here = [int(site[q]) for q in on]
        if kind == TWO and here[0] != here[1]:
            name = f"remote_{call.name.lower()}"
            slots = tuple(used[qpu] % max(1, int(network.communication[qpu])) for qpu in here)
            route = network.routes[min(here), max(here)]
            route = route if route[0] == here[0] else route[::-1]
            ebits.append(Ebit(len(ebits), tuple(network.names[q] for q in route), call.name, (on[0], on[1]), (slots[0], slots[1])))
            angles = call.text()[len(call.name) :]
            for q, qpu, slot in zip(on, here, slots):
                opaque[qpu][name] = len(call.angles)
                used[qpu] += 1
                lines[qpu].append(f"{name}{angles} q[{local[q]}],comm[{slot}]; // ebit {ebits[-1].number}")
        elif kind == MEASURE and call.name == "measure":
            lines[here[0]].append(f"measure q[{local[on[0]]}] -> c[{local[on[0]]}];")
        else:
            for qpu in dict.fromkeys(here):
                mine = ",".join(f"q[{local[q]}]" for q in on if site[q] == qpu)
                lines[qpu].append(f"{call.text()} {mine};")
    texts = {}
    for qpu in qpus:
        size, comm = int((site == qpu).sum()), max(1, int(network.communication[qpu]))
        head = ["OPENQASM 2.0;", 'include "qelib1.inc";']
        head += [f"opaque {name}{_angles(many)} q,comm;" for name, many in sorted(opaque[qpu].items())]
        head += [f"qreg q[{size}];", f"qreg comm[{comm}];", f"creg c[{size}];"]
        texts[network.names[qpu]] = "\n".join(head + lines[qpu]) + "\n"
    return Programs(texts, tuple(ebits))


def _angles(many: int) -> str:
    return f"({','.join(f'angle{i}' for i in range(many))})" if many else ""
