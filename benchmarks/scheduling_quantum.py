"""scheduling/quantum against its peers: cuts against METIS, the reader against qiskit, learning against stable-baselines3, and the clock.

python benchmarks/scheduling_quantum.py

CPU seconds, both sides in one run; the last line is JSON.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable

import numpy as np

from armillary.scheduling.quantum import (
    Asap,
    Epr,
    EprNodes,
    Ppo,
    QuantumBatch,
    ablation,
    built_in,
    drawn,
    partition,
    read_qasm,
    training_batches,
)
from armillary.scheduling.quantum.circuits.library import FAMILIES


def cpu_s(work: Callable[[], object], turns: int = 3) -> float:
    """The least CPU seconds of a call, after one to warm up."""
    work()
    taken = []
    for _ in range(turns):
        start = time.process_time()
        work()
        taken.append(time.process_time() - start)
    return min(taken)


def geometric(values: list[float]) -> float:
    """The geometric mean."""
    return float(np.exp(np.mean(np.log(values))))


def cuts() -> dict[str, float]:
    """Our cut over METIS's, 24 to 64 qubits in blocks of eight, and CPU time."""
    import pymetis

    ratios, fair, cases = [], [], []
    for seed in range(60):
        rng = np.random.default_rng(seed)
        circuit = drawn(FAMILIES[seed % 5], int(rng.integers(24, 65)), rng)
        n = circuit.qubits
        sizes = [8] * (n // 8) + ([n % 8] if n % 8 else [])
        near = [np.flatnonzero(row) for row in circuit.weights]
        graph = pymetis.CSRAdjacency(np.cumsum([0, *map(len, near)]), np.concatenate(near))
        weights = np.concatenate([circuit.weights[u][v] for u, v in enumerate(near)])
        shares = [size / n for size in sizes]
        cases.append((circuit, sizes, graph, weights, shares))
        theirs, block = pymetis.part_graph(len(sizes), graph, eweights=weights, tpwgts=shares, recursive=True)
        ratios.append(partition(circuit, sizes)[1] / max(1, theirs))
        # METIS may put more qubits on a QPU than it has.
        if sorted(np.bincount(block, minlength=len(sizes)).tolist()) == sorted(sizes):
            fair.append(ratios[-1])
    ours = cpu_s(lambda: [partition(c, s) for c, s, *_ in cases])
    metis = cpu_s(lambda: [pymetis.part_graph(len(s), g, eweights=w, tpwgts=t, recursive=True) for _, s, g, w, t in cases])
    return {
        "cut_over_metis": geometric(ratios), "worst_cut_over_metis": max(ratios), "sizes_kept_by_metis": len(fair),
        "worst_cut_where_metis_keeps_sizes": max(fair), "metis_time_over_ours": metis / ours,
    }  # fmt: skip


def reading() -> dict[str, float]:
    """qiskit's time to load a program over ours."""
    from qiskit import qasm2

    text = drawn("qft", 64, np.random.default_rng(0)).text()
    ours = cpu_s(lambda: read_qasm(text))
    theirs = cpu_s(lambda: qasm2.loads(text, custom_instructions=qasm2.LEGACY_CUSTOM_INSTRUCTIONS))
    return {"read_ms": 1e3 * ours, "qiskit_time_over_ours": theirs / ours}


def playing() -> dict[str, float]:
    """CPU seconds of 100 jobs with drawn waiting times, and of 5,000 jobs on 50 QPUs with expected ones."""
    few = built_in(np.random.default_rng(0), jobs=100, heterogeneous=True)
    work = built_in(np.random.default_rng(0), jobs=5000, heterogeneous=True, qpus=50, clock="expected")
    found = {"jobs_100_s": cpu_s(lambda: few.play(Asap()), 1)}
    for name, strategy in (("epr_nodes", EprNodes()), ("asap", Asap())):
        start = time.process_time()
        work.play(strategy)
        found[f"jobs_5000_{name}_s"] = time.process_time() - start
    return found


def misfit(batches: int = 40) -> dict[str, float]:
    """Makespans over epr's where the rates that strategies are told belong to other links."""
    ratios: dict[str, list[float]] = {}
    for seed in range(batches):
        work = built_in(np.random.default_rng(1000 + seed), jobs=20, heterogeneous=True, misfit=True, seed=seed)
        plain = work.play(Epr()).makespan_s
        for name, strategy in (("epr-nodes", EprNodes()), ("asap", Asap()), ("ppo", Ppo())):
            ratios.setdefault(name, []).append(work.play(strategy).makespan_s / plain)  # type: ignore[attr-defined]
    return {f"misfit_{name}_over_epr": geometric(found) for name, found in ratios.items()}


def parts(batches: int = 20) -> dict[str, float]:
    """What each part brings: makespans over asap's on unequal links, 50 jobs."""
    ratios: dict[str, list[float]] = {}
    for seed in range(batches):
        work = built_in(np.random.default_rng(2000 + seed), jobs=50, heterogeneous=True, seed=seed)
        found = {name: played.makespan_s for name, played in ablation(work).items()}
        found |= {"ppo": work.play(Ppo()).makespan_s, "ppo with nodes": work.play(Ppo(choose_nodes=True)).makespan_s}
        for name, seconds in found.items():
            ratios.setdefault(name, []).append(seconds / found["asap"])
    return {f"{name} over asap": geometric(values) for name, values in ratios.items()}


def learning(decisions: int = 12_000) -> dict[str, float]:
    """Stable-baselines3's PPO on the same environment, whose actions that are not allowed become the first that is."""
    import stable_baselines3
    import torch

    from armillary.learn import Ppo as Learner
    from armillary.learn import episode_returns
    from armillary.learn.gymnasium_envs import Single
    from armillary.scheduling.quantum.learning.network import Scorer

    class Forgiving(QuantumBatch):
        def step(self, actions):  # type: ignore[no-untyped-def]
            mask = self.mask()
            return super().step(np.where(mask[np.arange(self.n), actions], actions, mask.argmax(1)))

    draw, check = training_batches(), training_batches(seed=1)
    start = time.process_time()
    network = Learner(rollout=64, minibatch=256, lr=1e-3, gamma=0.99).train(QuantumBatch(16, draw), decisions, network=Scorer()).network
    ours_s = time.process_time() - start

    def act(seen, mask):  # type: ignore[no-untyped-def]
        with torch.no_grad():
            return np.where(mask, network(torch.from_numpy(seen))[0].numpy(), -np.inf).argmax(1)

    start = time.process_time()
    theirs = stable_baselines3.PPO("MlpPolicy", Single(Forgiving(1, draw)), n_steps=1024, batch_size=256, gamma=0.99, seed=0, device="cpu")
    theirs.learn(decisions)
    theirs_s = time.process_time() - start
    ours = float(episode_returns(QuantumBatch(32, check), act).mean())
    other = float(episode_returns(Forgiving(32, check), lambda seen, mask: theirs.predict(seen, deterministic=True)[0]).mean())
    return {"return": ours, "stable_baselines3_return": other, "stable_baselines3_time_over_ours": theirs_s / ours_s}


def main() -> None:
    """Measures and prints."""
    found: dict[str, float] = {}
    for part in (cuts, reading, playing, misfit, parts, learning):
        measured = part()
        found |= measured
        for name, value in measured.items():
            print(f"{name}: {value:.3g}", flush=True)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
