"""A batch and the QPUs that it runs on: the built-in ones, and those of files.

Built-in jobs are GHZ states, graph states, QAOA, QFT and VQE circuits in equal shares, of 6 to 24 qubits and 1,000 shots. Links make 182
pairs per second, or one of 10, 50, 182 and 250, which are published rates of trapped-ion links and their neighbourhood.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from .circuits.circuit import Circuit
from .circuits.library import FAMILIES, drawn
from .network.network import Network, joined
from .planning.planner import Planner
from .planning.strategy import Strategy
from .simulation.batch import Job, check_jobs
from .simulation.play import SHOTS_SIMULATED, play
from .simulation.schedule import Schedule

if TYPE_CHECKING:
    from armillary.cluster import Cluster

SMALLEST, LARGEST, SHOTS = 6, 24, 1000
RATES_HZ = (10.0, 50.0, 182.0, 250.0)
#: Jobs that arrive together where they do not arrive all at once.
PER_SLOT = 5


@dataclass(frozen=True, eq=False)
class QuantumWork:
    """Jobs, the network, and what the strategies are told about it."""

    jobs: tuple[Job, ...]
    network: Network
    known: Network
    seed: int = 0
    #: Whether consecutive gates with one control and one remote QPU share a pair.
    grouping: bool = False
    #: `sampled` or `expected` waiting times.
    clock: str = "sampled"
    shots_simulated: int = SHOTS_SIMULATED

    def __post_init__(self) -> None:
        check_jobs(self.jobs, self.network.qubits)

    def play(self, strategy: Strategy) -> Schedule:
        """The judge's schedule."""
        return play(
            self.jobs, self.network, strategy, known=self.known, clock=self.clock, seed=self.seed, grouping=self.grouping,
            shots_simulated=self.shots_simulated,
        )  # fmt: skip

    def plan(self, strategy: Strategy) -> Schedule:
        """The schedule that the strategy promises."""
        return play(self.jobs, self.known, strategy, clock="planned")


def built_in(
    rng: np.random.Generator, *, jobs: int, topology: str = "complete", heterogeneous: bool = False, misfit: bool = False,
    arrivals: str = "at once", qpus: int = 0, seed: int = 0, clock: str = "sampled", cluster: Cluster | str = "qpu-6",
) -> QuantumWork:  # fmt: skip
    """A built-in batch. qpus: another number of QPUs like the cluster's first. arrivals: `at once` or `slots`, five per mean job time."""
    network = repeated(Network.of(cluster), qpus) if qpus else Network.of(cluster)
    network = linked(network, topology, rng if heterogeneous else None)
    batch = [Job(f"{i}-{made.name}", made, shots=SHOTS) for i, made in enumerate(circuits(jobs, rng, min(LARGEST, network.qubits)))]
    if arrivals == "slots":
        planner = Planner(network)
        period = sum(planner.expected_s(job, planner.alone(job)) for job in batch) / len(batch)
        batch = [replace(job, arrival_s=period * (i // PER_SLOT)) for i, job in enumerate(batch)]
    known = network.shuffled(rng) if misfit else network
    return QuantumWork(tuple(batch), network, known, seed, clock=clock, shots_simulated=1 if clock == "expected" else SHOTS_SIMULATED)


def circuits(many: int, rng: np.random.Generator, largest: int = LARGEST) -> list[Circuit]:
    """So many circuits of the five families, in random order and of random sizes."""
    families = rng.permutation([FAMILIES[i % len(FAMILIES)] for i in range(many)])
    least = min(SMALLEST, largest)
    # A QAOA circuit has an even number of qubits.
    sizes = [int(size) for size in rng.integers(least, largest + 1, many)]
    even = largest - largest % 2
    return [drawn(str(family), min(size, even) if family == "qaoa" else size, rng) for family, size in zip(families, sizes)]


def repeated(network: Network, qpus: int) -> Network:
    """So many QPUs like the first."""
    names = tuple(f"qpu-{i}" for i in range(qpus))
    first = {name: np.repeat(getattr(network, name)[:1], qpus) for name in
             ("data", "communication", "gate_s", "two_qubit_s", "measure_s", "swap_s", "coherence_s")}  # fmt: skip
    matrices = {name: np.full((qpus, qpus), getattr(network, name)[0, 1]) for name in ("rate", "fidelity", "latency_s")}
    return replace(network, names=names, **first, **matrices)


def linked(network: Network, topology: str, rng: np.random.Generator | None = None) -> Network:
    """The same QPUs with the links of a topology, at the network's rate, or each at a rate that is drawn."""
    rate = np.zeros_like(network.rate)
    pairs = joined(len(network), topology)
    drawn_rates: Sequence[float] = [float(network.rate.max())] * len(pairs) if rng is None else rng.choice(RATES_HZ, len(pairs)).tolist()
    for (a, b), hertz in zip(pairs, drawn_rates):
        rate[a, b] = rate[b, a] = hertz
    return network.with_rates(rate)
