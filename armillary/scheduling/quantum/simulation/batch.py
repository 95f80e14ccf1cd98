"""Jobs, and the arrays in which compiled loops find the operations of a whole batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from armillary.errors import InputError
from armillary.scheduling.quantum.circuits.circuit import CONTROLLED, SYMMETRIC, Circuit, Ints

#: The most operations of all jobs together, and the most operations that are simulated.
MOST_OPERATIONS, MOST_SIMULATED = 20_000_000, 1_000_000_000
MOST_JOBS, MOST_SHOTS = 100_000, 1_000_000_000


@dataclass(frozen=True, eq=False)
class Job:
    """A circuit to be run `shots` times, from `arrival_s` on; larger priorities stand first in the queue."""

    name: str
    circuit: Circuit
    arrival_s: float = 0.0
    shots: int = 1000
    priority: int = 0

    @property
    def qubits(self) -> int:
        """The data qubits that it needs."""
        return self.circuit.qubits


class Tables(NamedTuple):
    """The operations of all jobs; qubits and operations are numbered over the batch."""

    #: Where the operations and the qubits of each job begin, [jobs + 1].
    job_gate: Ints
    job_qubit: Ints
    #: The job of each operation, what it is, and which of its qubits can be a control: none (0), the first (1), either (2).
    job: Ints
    kind: np.ndarray
    control: np.ndarray
    start: Ints
    operand: Ints
    #: The operations of each qubit in program order.
    qubit_start: Ints
    qubit_gate: Ints
    #: The operations of each job by ASAP layer, in which it asks for pairs.
    order: Ints


def check_jobs(jobs: Sequence[Job], qubits: int, where: str = "jobs") -> None:
    """Raises InputError for jobs that cannot be run on so many data qubits, before anything is allocated for them."""
    if not 1 <= len(jobs) <= MOST_JOBS:
        raise InputError(f"found {len(jobs):,} jobs; expected from 1 to {MOST_JOBS:,}", where=where)
    if (total := sum(len(job.circuit) for job in jobs)) > MOST_OPERATIONS:
        raise InputError(f"found {total:,} operations in all jobs; expected at most {MOST_OPERATIONS:,}", where=where)
    for job in jobs:
        if job.qubits > qubits:
            raise InputError(f"job {job.name} needs {job.qubits:,} qubits; expected at most the {qubits:,} of all QPUs", where=where)
        if not 1 <= job.shots <= MOST_SHOTS or not 0 <= job.arrival_s <= 1e12:
            raise InputError(f"job {job.name}: found {job.shots:,} shots from {job.arrival_s:g} s on; expected 1 to {MOST_SHOTS:,} shots "
                             "and a time from 0 to 1e12 s", where=where)  # fmt: skip


def tables(jobs: Sequence[Job], in_program_order: bool = False) -> Tables:
    """The arrays of a batch."""
    gates = np.concatenate([[0], np.cumsum([len(job.circuit) for job in jobs])]).astype(np.int64)
    qubits = np.concatenate([[0], np.cumsum([job.qubits for job in jobs])]).astype(np.int64)
    control, start, operand, q_start, q_gate, order = [], [np.zeros(1, np.int64)], [], [np.zeros(1, np.int64)], [], []
    operands = listed = 0
    for i, job in enumerate(jobs):
        c = job.circuit
        can = np.array([(2 if call.name in SYMMETRIC else 1) if call.name in CONTROLLED else 0 for call in c.calls] or [0], np.int8)
        control.append(can[c.call])
        start.append(c.start[1:] + operands)
        operand.append(c.operand + qubits[i])
        first, of = c.by_qubit
        q_start.append(first[1:] + listed)
        q_gate.append(of + gates[i])
        order.append((np.arange(len(c)) if in_program_order else np.argsort(c.level, kind="stable")) + gates[i])
        operands, listed = operands + len(c.operand), listed + len(of)
    return Tables(
        gates, qubits, np.repeat(np.arange(len(jobs)), np.diff(gates)), np.concatenate([job.circuit.kind for job in jobs]),
        np.concatenate(control), np.concatenate(start), np.concatenate(operand), np.concatenate(q_start), np.concatenate(q_gate),
        np.concatenate(order).astype(np.int64),
    )  # fmt: skip
