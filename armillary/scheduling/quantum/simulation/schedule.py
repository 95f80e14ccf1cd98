"""What came of a batch: when and where every job ran, the metrics, and a Gantt chart."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from armillary.scheduling.quantum.circuits.circuit import MEASURE, ONE, TWO, Circuit, Ints
from armillary.scheduling.quantum.network.network import MEASURE_FIDELITY, ONE_QUBIT_FIDELITY, TWO_QUBIT_FIDELITY, Floats, Network
from armillary.scheduling.quantum.planning.planner import Placement, Planner

from .batch import Job


@dataclass(frozen=True, eq=False)
class Schedule:
    """Jobs with their placements, start and finish in seconds, and the slot, or turn, in which each began."""

    jobs: tuple[Job, ...]
    network: Network
    #: The estimates of the strategy, on the network that it believed in.
    planner: Planner
    placements: tuple[Placement, ...]
    start_s: Floats
    finish_s: Floats
    slot: Ints
    #: Seconds per decision.
    decided_s: Floats
    #: Pairs that were made for each job; None where nothing was played.
    pairs: Floats | None = None

    @property
    def makespan_s(self) -> float:
        """Seconds from the first arrival to the last completion."""
        return float(self.finish_s.max() - min(job.arrival_s for job in self.jobs))

    @property
    def latency_s(self) -> Floats:
        """Finish less arrival, by job."""
        return self.finish_s - np.array([job.arrival_s for job in self.jobs])

    @property
    def utilisation(self) -> float:
        """Data-qubit-seconds in which a job ran over those that there were."""
        busy = sum(job.qubits * float(end - start) for job, start, end in zip(self.jobs, self.start_s, self.finish_s))
        return busy / (self.network.qubits * self.makespan_s) if self.makespan_s else 0.0

    @property
    def nonlocal_density(self) -> float:
        """Gates between QPUs over all two-qubit gates, as a mean over jobs."""
        shares = [p.crossing(j.circuit) / max(1, j.circuit.two_qubit_gates) for j, p in zip(self.jobs, self.placements)]
        return float(sum(shares) / len(shares))

    @property
    def fairness(self) -> float:
        """Jain's index of the jobs' slowdowns: latency over the expected time alone on the best links."""
        truth = Planner(self.network)
        alone = np.array([truth.expected_s(job, truth.alone(job)) for job in self.jobs])
        slow = self.latency_s / np.maximum(alone, 1e-12)
        return float(slow.sum() ** 2 / (len(slow) * (slow**2).sum())) if (slow > 0).any() else 1.0

    @property
    def epr_wait_share(self) -> float:
        """The share of the jobs' run time that they would not take if every pair were there when it is needed."""
        ran = self.finish_s - self.start_s
        needed = np.array([job.shots * self.planner.local_s(job.circuit, p) for job, p in zip(self.jobs, self.placements)])
        return float(1 - np.minimum(needed, ran).sum() / ran.sum()) if ran.sum() > 0 else 0.0

    @property
    def fidelity(self) -> float:
        """The modelled fidelity of a shot, as a mean over jobs."""
        found = [modelled_fidelity(job.circuit, p, self.network) for job, p in zip(self.jobs, self.placements)]
        return float(sum(found) / len(found))

    @property
    def lower_bound_s(self) -> float:
        """No schedule is shorter if jobs take what is expected alone: max(Σ qubit-seconds / qubits, the longest job)."""
        alone = [self.planner.expected_s(job, self.planner.alone(job)) for job in self.jobs]
        return max(sum(job.qubits * s for job, s in zip(self.jobs, alone)) / self.network.qubits, max(alone))

    def gantt(self) -> dict[str, Any]:
        """Perfetto's format: one process per QPU, one lane per data qubit, one bar per job."""
        events: list[dict[str, Any]] = []
        for k, name in enumerate(self.network.names):
            events.append({"name": "process_name", "ph": "M", "pid": k, "args": {"name": name}})
        until = [np.zeros(int(data)) for data in self.network.data]
        for j in np.argsort(self.start_s, kind="stable").tolist():
            placed = self.placements[j]
            where, since = {"slot": int(self.slot[j]), "qubits": self.jobs[j].qubits}, 1e6 * float(self.start_s[j])
            for qpu, size in zip(placed.qpus, placed.sizes):
                lanes = np.flatnonzero(until[qpu] <= self.start_s[j])[:size]
                until[qpu][lanes] = self.finish_s[j]
                events += [{"name": self.jobs[j].name, "ph": "X", "pid": qpu, "tid": lane, "ts": since,
                            "dur": 1e6 * float(self.finish_s[j]) - since, "args": where} for lane in lanes.tolist()]  # fmt: skip
        return {"traceEvents": events, "displayTimeUnit": "ms"}

    def write(self, path: str | os.PathLike[str]) -> None:
        """Writes the Gantt chart, which Perfetto opens."""
        Path(path).write_text(json.dumps(self.gantt(), separators=(",", ":")))

    def rows(self) -> list[dict[str, Any]]:
        """One row per job."""
        return [
            {"job": job.name, "qubits": job.qubits, "slot": int(slot), "start_s": float(start), "finish_s": float(end),
             "qpus": " ".join(f"{self.network.names[q]}:{s}" for q, s in zip(p.qpus, p.sizes)), "nonlocal": p.crossing(job.circuit)}
            for job, p, slot, start, end in zip(self.jobs, self.placements, self.slot, self.start_s, self.finish_s)
        ]  # fmt: skip


def modelled_fidelity(circuit: Circuit, placement: Placement, network: Network) -> float:
    """The product of the fidelities of a shot's gates, measurements and pairs; a gate between QPUs is two gates and two measurements."""
    kinds = np.bincount(circuit.kind, minlength=4)
    ends = placement.site[circuit.pairs]
    across = ends[ends[:, 0] != ends[:, 1]]
    found = ONE_QUBIT_FIDELITY ** int(kinds[ONE]) * MEASURE_FIDELITY ** int(kinds[MEASURE] + 2 * len(across))
    found *= TWO_QUBIT_FIDELITY ** int(kinds[TWO] + len(across))
    between, counts = np.unique(across, axis=0, return_counts=True)
    for (a, b), count in zip(between.tolist(), counts.tolist()):
        found *= float(network.pair_fidelity[a, b]) ** count
    return float(found)
