"""A circuit as arrays: which gate acts on which qubits, in program order."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from armillary.errors import InputError
from armillary.kernels import loop

Ints = npt.NDArray[np.int64]
#: What an operation is: a gate on one qubit, a gate on two, a measurement or reset, a barrier.
ONE, TWO, MEASURE, BARRIER = 0, 1, 2, 3
#: The most operations of a circuit, after definitions are inlined, and the most qubits.
MOST_GATES, MOST_QUBITS = 1_000_000, 2048
#: Gates on two qubits whose operands can change places.
SYMMETRIC = frozenset({"cz", "cp", "cu1", "rzz", "rxx", "ryy", "swap"})
#: Gates that act on their second qubit if their first one is 1, or on both alike.
CONTROLLED = frozenset({"cx", "CX", "cy", "cz", "ch", "cp", "cu1", "crx", "cry", "crz", "cu3", "cu", "csx", "rzz"})


@dataclass(frozen=True)
class Call:
    """An operation without its qubits: a name and its angles in radians."""

    name: str
    angles: tuple[float, ...] = ()

    def text(self) -> str:
        """As OpenQASM writes it."""
        return self.name + (f"({','.join(f'{angle:.15g}' for angle in self.angles)})" if self.angles else "")


@dataclass(frozen=True, eq=False)
class Circuit:
    """`qubits` qubits and operations in program order: operation g is `calls[call[g]]` on `operand[start[g]:start[g + 1]]`."""

    name: str
    qubits: int
    calls: tuple[Call, ...]
    call: Ints
    start: Ints
    operand: Ints

    def __len__(self) -> int:
        return len(self.call)

    @functools.cached_property
    def kind(self) -> npt.NDArray[np.int8]:
        """ONE, TWO, MEASURE or BARRIER, by operation."""
        special = {"measure": MEASURE, "reset": MEASURE, "barrier": BARRIER}
        named = np.array([special.get(call.name, -1) for call in self.calls] or [0], np.int8)[self.call]
        found: npt.NDArray[np.int8] = np.where(named >= 0, named, np.where(np.diff(self.start) == 2, TWO, ONE)).astype(np.int8)
        return found

    @functools.cached_property
    def pairs(self) -> Ints:
        """The qubits of the gates on two, [gates, 2]."""
        first = self.start[:-1][self.kind == TWO]
        return np.stack([self.operand[first], self.operand[first + 1]], 1) if len(first) else np.empty((0, 2), np.int64)

    @property
    def two_qubit_gates(self) -> int:
        """The number of gates on two qubits."""
        return len(self.pairs)

    @functools.cached_property
    def weights(self) -> Ints:
        """The interaction graph [n, n]: how many gates join two qubits; symmetric."""
        found = np.zeros((self.qubits, self.qubits), np.int64)
        np.add.at(found, (self.pairs[:, 0], self.pairs[:, 1]), 1)
        return found + found.T

    @functools.cached_property
    def by_qubit(self) -> tuple[Ints, Ints]:
        """(start, operation): the operations of each qubit in program order, as CSR."""
        order = np.argsort(self.operand, kind="stable")
        gate = np.repeat(np.arange(len(self), dtype=np.int64), np.diff(self.start))[order]
        return np.concatenate([[0], np.cumsum(np.bincount(self.operand, minlength=self.qubits))]).astype(np.int64), gate

    @functools.cached_property
    def level(self) -> Ints:
        """The ASAP layer of each operation, from 1; a barrier has no layer of its own."""
        found: Ints = _levels(self.kind, self.start, self.operand, self.qubits)
        return found

    def depth(self) -> int:
        """The number of ASAP layers; measurements count, barriers only hold qubits together."""
        return int(self.level.max(initial=0))

    def text(self) -> str:
        """The circuit in OpenQASM 2."""
        lines = ["OPENQASM 2.0;", 'include "qelib1.inc";', f"qreg q[{self.qubits}];", f"creg c[{self.qubits}];"]
        for g in range(len(self)):
            on = self.operand[self.start[g] : self.start[g + 1]].tolist()
            call = self.calls[self.call[g]]
            if call.name == "measure":
                lines.append(f"measure q[{on[0]}] -> c[{on[0]}];")
            else:
                lines.append(f"{call.text()} {','.join(f'q[{q}]' for q in on)};")
        return "\n".join(lines) + "\n"


class Builder:
    """Collects the operations of a circuit."""

    def __init__(self, name: str, qubits: int) -> None:
        if not 1 <= qubits <= MOST_QUBITS:
            raise InputError(f"found {qubits:,} qubits; expected from 1 to {MOST_QUBITS:,}", where=name)
        self.name, self.qubits = name, qubits
        self._calls: dict[Call, int] = {}
        self._call: list[int] = []
        self._start: list[int] = [0]
        self._operand: list[int] = []

    def add(self, name: str, *qubits: int, angles: Sequence[float] = ()) -> None:
        """Appends an operation."""
        call = Call(name, tuple(angles))
        self._call.append(self._calls.setdefault(call, len(self._calls)))
        self._operand.extend(qubits)
        self._start.append(len(self._operand))

    def done(self) -> Circuit:
        """The circuit."""
        return Circuit(
            self.name, self.qubits, tuple(self._calls), np.array(self._call, np.int64), np.array(self._start, np.int64),
            np.array(self._operand, np.int64),
        )  # fmt: skip


@loop
def _levels(kind, start, operand, qubits):  # type: ignore[no-untyped-def]
    reached = np.zeros(qubits, np.int64)
    level = np.zeros(len(kind), np.int64)
    for g in range(len(kind)):
        most = 0
        for i in range(start[g], start[g + 1]):
            most = max(most, reached[operand[i]])
        if kind[g] != 3:
            most += 1
        level[g] = most
        for i in range(start[g], start[g + 1]):
            reached[operand[i]] = most
    return level
