"""In which order, and on which quantum processors, should a batch of distributed programs run?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from armillary.arena import Arena, Artifact, Case, Constant, InputError, Metric, Outcome, Result, parameter
from armillary.wording import counted, listed

if TYPE_CHECKING:
    import numpy as np

    from armillary.cluster import Cluster

    from .workload import QuantumWork

quantum = Arena(
    "scheduling/quantum",
    question="In which order, and on which networked QPUs, should this batch of quantum programs run?",
    metrics=[
        Metric("makespan_s", unit="s", doc="from the first arrival to the last completion"),
        Metric("qpu_utilisation", better="higher", doc="busy data-qubit-seconds over available ones"),
        Metric("nonlocal_density", scale="difference", doc="gates between QPUs over all two-qubit gates, mean over jobs as placed"),
        Metric("latency_mean_s", unit="s", doc="mean of finish less arrival"),
        Metric("fairness", better="higher", doc="Jain's index of the jobs' slowdowns: latency over the expected time alone"),
        Metric("epr_wait_share", scale="difference", doc="share of the jobs' run time that waiting for pairs adds"),
        Metric("promise_error", scale="difference", doc="|promised − delivered| / delivered makespan"),
        Metric("fidelity_est", better="higher", kind="modelled", scale="difference",
               doc="product of gate and pair fidelities of a shot, mean over jobs"),
        Metric("decide_ms", unit="ms", kind="measured", doc="mean milliseconds per decision of which jobs start where"),
    ],
    techniques={
        "fifo": ".fifo:Fifo",
        "list": ".list:ListScheduling",
        "resource-priority": ".resource_priority:ResourcePriority",
        "epr": ".epr:Epr",
        "epr-nodes": ".epr_nodes:EprNodes",
        "asap": ".asap:Asap",
        "ppo": ".ppo:Ppo",
        "milp": ".milp:Milp",
    },
    papers=dict.fromkeys(("resource-priority", "epr", "epr-nodes", "asap", "ppo"), "dqc-schedulers"),
    baseline="fifo",
    tradeoff=("makespan_s", "latency_mean_s"),
    repeats=3,
    telling=tuple(f"{name}-{jobs}" for name in ("homogeneous", "heterogeneous", "ring") for jobs in (20, 50)),
    constants=[
        Constant("QPU", "8 data and 2 communication qubits; gates of 10 and 100 µs, measurements of 200 µs, swaps of 150 µs", "",
                 "the preset qpu-6 (assumed)"),
        Constant("links", "182 or one of 10, 50, 182, 250", "Hz", "published trapped-ion links: 182/s at fidelity 0.94, 9.7/s at 0.969"),
        Constant("attempts", 10, "µs", "apart; each succeeds with probability rate · 10 µs (chosen)"),
        Constant("coherence", 1, "s", "for which a pair can wait; the preset (assumed)"),
        Constant("messages", "10 µs + 5 µs per km", "", "the preset, and light in fibre"),
        Constant("fidelities", "0.9999, 0.998, 0.997", "", "one-qubit gates, two-qubit gates, measurements: trapped ions (assumed)"),
        Constant("jobs", "GHZ, graph state, QAOA, QFT, VQE; 6 to 24 qubits; 1,000 shots", "", "the paper's types; sizes and shots ours"),
    ],
)  # fmt: skip

#: (name, topology, whether rates differ).
NETWORKS = (("homogeneous", "complete", False), ("heterogeneous", "complete", True), ("ring", "ring", True))
SIZES = {"tiny": (20,), "small": (20, 50), "large": (20, 50)}
#: Each batch is drawn twice, because a claim on fewer than four cases cannot be held.
DRAWS = {"tiny": ("",), "small": ("", "-b"), "large": ("", "-b")}
EXACT = {"tiny": 4, "small": 6, "large": 6}
#: Jobs that arrive slot by slot; and jobs and QPUs of a large data centre.
ARRIVING = {"tiny": 0, "small": 20, "large": 100}
MANY = {"tiny": (0, 0), "small": (100, 12), "large": (5000, 50)}
#: The number of jobs that the policy of `ppo` was trained with; at once, on complete networks.
TRAINED = 50


@quantum.cases
def cases(scale: str, cluster: Cluster | None = None) -> Iterator[Case]:
    """Batches at once on equal and unequal links, a few jobs for an exact plan, wrong link rates, arrivals, a star, many QPUs."""
    if cluster is not None:
        from .network.network import Network

        Network.of(cluster)  # says what the cluster lacks before anything runs
    for draw in DRAWS[scale]:
        for jobs in SIZES[scale]:
            for name, topology, unequal in NETWORKS:
                kinds = {"batch", "heterogeneous" if unequal else "homogeneous", topology}
                kinds.add("trained" if jobs == TRAINED and topology == "complete" else "untrained")
                yield _case(f"{name}-{jobs}{draw}", kinds, cluster, jobs=jobs, topology=topology, heterogeneous=unequal)
    for draw in DRAWS[scale]:
        for jobs in SIZES[scale]:
            yield _case(f"misfit-{jobs}{draw}", {"misfit"}, cluster, jobs=jobs, heterogeneous=True, misfit=True)
    yield _case("exact", {"exact"}, cluster, jobs=EXACT[scale], heterogeneous=True)
    if scale == "tiny":
        return
    for name, topology, unequal in NETWORKS:
        yield _case(f"{name}-100", {"load", topology}, cluster, jobs=100, topology=topology, heterogeneous=unequal)
    for name, topology, unequal in (*NETWORKS, ("star", "star", True)):
        facts = {"jobs": ARRIVING[scale], "topology": topology, "heterogeneous": unequal, "arrivals": "slots"}
        yield _case(f"{name}-slots", {"arrivals", topology}, cluster, **facts)
    jobs, qpus = MANY[scale]
    yield _case("many", {"many"}, cluster, jobs=jobs, heterogeneous=True, qpus=qpus, clock="expected")


def _case(name: str, kinds: set[str], cluster: Cluster | None, **facts: Any) -> Case:
    plain = {"topology": "complete", "heterogeneous": False, "misfit": False, "arrivals": "at once", "qpus": 0, "clock": "sampled"}
    return Case(name, _built_in, plain | facts, frozenset(kinds), cluster=cluster)


@dataclass(frozen=True)
class Reading:
    """How a batch is read and played."""

    shots: int = parameter(1000, "shots of jobs that do not say", range=(1, 1_000_000_000))
    cluster: str = parameter("qpu-6", "the QPUs: a preset or a file", file=True)
    links: str = parameter("", "a CSV with a, b, epr_rate_hz, fidelity and distance_km; without it, the cluster's network", file=True)
    topology: str = parameter("complete", "how QPUs are joined where no links are given", choices=("complete", "ring", "star"))
    circuits: str = parameter("", "the folder of the circuits that a table names", file=True)
    gate_grouping: bool = parameter(False, "whether consecutive gates with one control and one remote QPU share a pair")
    shots_simulated: int = parameter(20, "shots of the median job that are played and stretched", range=(1, 10_000))
    times: str = parameter("sampled", "waiting times for pairs: drawn, or their means", choices=("sampled", "expected"))


@quantum.read(Reading, folders=True)
def read(path: Path, how: Reading) -> QuantumWork:
    """Reads circuits (OpenQASM 2 and 3) and links, and proves that every job can be run."""
    from .network.network import Network
    from .readers.batches import read_jobs, read_links
    from .workload import QuantumWork

    jobs = read_jobs(path, shots=how.shots, folder=how.circuits)
    try:
        network = Network.of(how.cluster, links=read_links(how.links) if how.links else None, topology=how.topology)
        network.flat_routes  # noqa: B018 - proves that all QPUs are joined
    except InputError as error:
        known = how.links if error.where in ("links", "network") and how.links else error.where
        raise InputError(error.message, where=known) from None
    work = QuantumWork(
        tuple(jobs), network, network, grouping=how.gate_grouping, clock=how.times, shots_simulated=how.shots_simulated
    )  # fmt: skip
    _check_playable(work, str(path))
    return work


def _check_playable(work: QuantumWork, where: str) -> None:
    """Refuses batches that would take hours, before anything is scheduled."""
    from .simulation.play import checked_shots

    try:
        checked_shots(work.jobs, work.shots_simulated)
    except InputError as error:
        raise InputError(error.message, where=where) from None


@quantum.own_cases
def own_cases(loaded: QuantumWork, name: str, how: Reading) -> Iterator[Case]:
    """The file as one case."""
    facts = {
        "jobs": len(loaded.jobs), "qubits": max(job.qubits for job in loaded.jobs), "cluster": how.cluster, "topology": how.topology,
        "links": Path(how.links).name, "gate_grouping": how.gate_grouping, "times": how.times, "shots_simulated": how.shots_simulated,
    }  # fmt: skip
    yield Case(name, _own, facts, frozenset({"file", *(["exact"] if len(loaded.jobs) <= 8 else [])}))


@quantum.example
def example(folder: Path) -> tuple[Path, dict[str, str]]:
    """Writes eight jobs of three circuits and the links of six QPUs."""
    from .circuits.library import ghz, graph_state, qft

    (folder / "circuits").mkdir(exist_ok=True)
    for circuit in (ghz(12), graph_state(16), qft(10)):
        (folder / "circuits" / f"{circuit.name}.qasm").write_text(circuit.text())
    names = ("qft_10", "ghz_12", "graph_16", "qft_10", "ghz_12", "graph_16", "ghz_12", "qft_10")
    rows = [f"job-{i},{name}.qasm,{0 if i < 6 else 30},{500 + 250 * (i % 3)},{int(i == 4)}" for i, name in enumerate(names)]
    path = folder / "batch.csv"
    path.write_text("\n".join(["job,file,arrival_s,shots,priority", *rows]) + "\n")
    rates = (182, 50, 250, 10, 182, 250, 50, 182, 10, 182, 50, 250, 182, 50, 182)
    pairs = [(a, b) for a in range(6) for b in range(a + 1, 6)]
    links = [f"qpu-{a},qpu-{b},{rate},0.94,{a + b}" for (a, b), rate in zip(pairs, rates)]
    (folder / "links.csv").write_text("\n".join(["a,b,epr_rate_hz,fidelity,distance_km", *links]) + "\n")
    return path, {"circuits": str(folder / "circuits"), "links": str(folder / "links.csv")}


@quantum.warm_up
def warm_up(technique: Any, case: Case) -> None:
    """Compiles the loops on a small batch, so that decisions are timed without them."""
    import numpy as np

    from .workload import built_in

    work = built_in(np.random.default_rng(0), jobs=4, heterogeneous=True)
    work.play(technique)


@quantum.run
def run(technique: Any, case: Case) -> Outcome:
    """Plays the batch under the technique, and compares with what it promised."""
    work: QuantumWork = case.workload
    promised = work.plan(technique)
    found = work.play(technique)
    values = {
        "makespan_s": found.makespan_s,
        "qpu_utilisation": found.utilisation,
        "nonlocal_density": found.nonlocal_density,
        "latency_mean_s": float(found.latency_s.mean()),
        "fairness": found.fairness,
        "epr_wait_share": found.epr_wait_share,
        "promise_error": abs(promised.makespan_s - found.makespan_s) / found.makespan_s if found.makespan_s else 0.0,
        "fidelity_est": found.fidelity,
        "decide_ms": 1e3 * float(found.decided_s.mean()),
    }
    artifacts = [Artifact.quantiles("latency", found.latency_s, "s")]
    if len(found.jobs) <= 500:
        bound = {"lower_bound_s": found.lower_bound_s, "promised_s": promised.makespan_s, "delivered_s": found.makespan_s}
        artifacts += [Artifact.table("bounds", [bound]), Artifact.table("jobs", found.rows()), Artifact.timeline(found.gantt())]
    return Outcome(values, artifacts)


@quantum.answer
def answer(result: Result) -> str:
    """Names the strategy with the shortest makespan, what it saves against fifo, and what slots cost."""
    if "makespan_s" not in result.metrics:
        return "Ask for the metric makespan_s to get an answer."
    ranked = {case: found for case in result.cases if (found := result.on(case, "makespan_s"))}
    if not ranked:
        return "No technique could run any of the cases."
    near = {case: [t for t, value in found.items() if value <= 1.005 * min(found.values())] for case, found in ranked.items()}
    if all(max(found.values()) <= 1.005 * min(found.values()) for found in ranked.values()):
        return "The strategies hardly differ in makespan."
    if len(ranked) == 1 and len(next(iter(near.values()))) > 1:
        (case, first), worst = next(iter(near.items())), max(next(iter(ranked.values())).values())
        return f"{listed(first)} have the same makespan on {case}, {100 * (1 - ranked[case][first[0]] / worst):.0f} % below the longest."
    names = [t for best in near.values() for t in best]
    best = max((t for t in [*quantum.techniques, *names] if t in names), key=names.count)
    won = [case for case, first in near.items() if best in first]
    said = f"{best} has the shortest makespan on {won[0] if len(ranked) == 1 else f'{len(won)} of {len(ranked)} cases'}"
    gains = [100 * (1 - 1 / ratio) for case in won if best != "fifo" and (ratio := result.ratio(case, "makespan_s", best, "fifo"))]
    if gains:
        low, high = f"{min(gains):.0f}", f"{max(gains):.0f}"
        said += f", {low if low == high else f'{low} to {high}'} % shorter than fifo's"
    lost = [first[0] for first in near.values() if best not in first]
    if lost:
        said += "; elsewhere it is " + listed([f"{name} ({counted(lost.count(name), 'case')})" for name in dict.fromkeys(sorted(lost))])
    slots = [100 * (ratio - 1) for case in ranked if (ratio := result.ratio(case, "makespan_s", "asap", "epr-nodes"))]
    if slots and max(slots) > 0.5:
        return said + f". Waiting for the slowest job of a slot costs epr-nodes up to {max(slots):.0f} % against asap."
    return said + "."


@quantum.plots
def plots(result: Result) -> Sequence[Any]:
    """Makespans, latencies, utilisation and fairness by case."""
    drawn: list[Any] = []
    for metric, title in (("makespan_s", "Makespan"), ("latency_mean_s", "Mean latency"), ("qpu_utilisation", "Utilisation"),
                          ("fairness", "Fairness of slowdowns")):  # fmt: skip
        if metric in result.metrics:
            drawn += result.panels(title, metric, log_y=metric.endswith("_s"))
    return drawn


def _built_in(case: Case, rng: np.random.Generator) -> QuantumWork:
    from .workload import built_in

    return built_in(rng, **case.parameters, seed=case.seed32("pairs"), cluster=case.cluster if case.cluster is not None else "qpu-6")


def _own(case: Case, rng: np.random.Generator) -> QuantumWork:
    from dataclasses import replace

    work: QuantumWork = case.loaded
    return replace(work, seed=case.seed32("pairs"))
