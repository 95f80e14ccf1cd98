"""How fast the buffer, the sampler and the controllers of training/prefetch are on this machine.

python benchmarks/training_prefetch.py prints milliseconds of one lookup and update of 200,000 vertices against a buffer of a million (goal
15 ms) beside the same rule in NumPy and in dictionaries, in one run; edges per second of the sampler; microseconds of one decision of the
stand-in and of the classifier; and, with --large, seconds of sampling and replaying 2^20 vertices in 8 parts over 200 minibatches (goal
60 s). Last, one JSON object.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from armillary.training.prefetch import (
    ClassifierPolicy,
    Effect,
    IclStandIn,
    Machine,
    Rudder,
    Sampler,
    ScoredBuffer,
    Static,
    Window,
    partition,
    replay,
    rmat,
    sampled_work,
)
from armillary.training.prefetch.classifier import WEIGHTS

ENTRIES, HALO, ASKED, TURNS = 1_000_000, 2_000_000, 200_000, 10
DECAY = np.float32(0.95)


def cpu_s(what: Callable[[], object], turns: int = TURNS) -> float:
    """The median CPU seconds of a call, after one to warm up."""
    what()
    taken = []
    for _ in range(turns):
        start = time.process_time()
        what()
        taken.append(time.process_time() - start)
    return statistics.median(taken)


def in_numpy(ids: Any, score: Any, halo: Any, access: Any, asked: Any) -> None:
    """The rule of the buffer as whole-array operations."""
    score *= DECAY
    at = np.minimum(np.searchsorted(ids, asked), len(ids) - 1)
    found = ids[at] == asked
    score[at[found]] /= DECAY
    access[np.searchsorted(halo, asked[~found])] += 1


def in_dictionaries(score: dict[int, float], access: dict[int, float], asked: list[int]) -> None:
    """The rule of the buffer vertex by vertex."""
    for v in score:
        score[v] *= 0.95
    for v in asked:
        if v in score:
            score[v] /= 0.95
        else:
            access[v] += 1


def lookups() -> dict[str, float]:
    """Seconds of one lookup and update."""
    rng = np.random.default_rng(0)
    halo = np.sort(rng.choice(4 * HALO, HALO, replace=False))
    buffer = ScoredBuffer(ENTRIES, halo, halo[np.sort(rng.choice(HALO, ENTRIES, replace=False))])
    asked = halo[np.sort(rng.choice(HALO, ASKED, replace=False))]
    ids, score, access = buffer.ids.copy(), buffer.score.copy(), buffer.access.copy()
    scores = dict(zip(ids.tolist(), score.tolist(), strict=True))
    counts = dict(zip(halo.tolist(), access.tolist(), strict=True))
    listed = asked.tolist()
    return {
        "ours": cpu_s(lambda: buffer.look_up(asked)),
        "numpy": cpu_s(lambda: in_numpy(ids, score, halo, access, asked)),
        "dictionaries": cpu_s(lambda: in_dictionaries(scores, counts, listed), 3),
    }


def sampled_per_s() -> float:
    """Edges that are sampled per CPU second, with fan-outs of 10 and 25."""
    graph = rmat(np.random.default_rng(0), 17)
    sampler = Sampler(graph, (10, 25), 1)
    seeds = np.flatnonzero(graph.degree)[:1000]
    edges = sampler.minibatch(seeds)[1]
    return edges / cpu_s(lambda: sampler.minibatch(seeds))


def decisions() -> dict[str, float]:
    """Seconds of one decision."""
    static, window = Static(1000, 4000, 1000), Window(500, 500, 45.0, 55.0, 100.0)
    history = tuple(Effect("replaced", i, 50, 0.05, -4.0, 3.0, 1.0, 0.5, 0.55) for i in range(5))
    policies = {"stand-in": IclStandIn(), "classifier": ClassifierPolicy(WEIGHTS)}

    def many(policy: Any) -> None:
        for _ in range(1000):
            policy.decide(static, window, history)

    return {name: cpu_s(lambda policy=policy: many(policy)) / 1000 for name, policy in policies.items()}  # type: ignore[misc]


def large() -> dict[str, float]:
    """CPU seconds of 2^20 vertices, 8 parts and 200 minibatches of 1,024 seeds."""
    rng = np.random.default_rng(0)
    start = time.process_time()
    graph = rmat(rng, 20)
    owner = partition(graph, 8)
    made = time.process_time()
    work = sampled_work(graph, owner, rng, machine=Machine.of("perlmutter-gpu"), batch=1024, minibatches=200, stands_for=2)
    drawn = time.process_time()
    replay(work, Rudder().caches(work))
    return {"graph and partition": made - start, "sampling": drawn - made, "replay with rudder": time.process_time() - drawn}


def main() -> None:
    """Prints every figure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--large", action="store_true", help="sample and replay 2^20 vertices too")
    wanted = parser.parse_args()
    found: dict[str, Any] = {"lookup_s": lookups(), "sampled_edges_per_s": sampled_per_s(), "decision_s": decisions()}
    for name, seconds in found["lookup_s"].items():
        print(f"lookup, {name:16} {1e3 * seconds:10.2f} ms  {seconds / found['lookup_s']['ours']:6.2f} × ours")
    print(f"{'sampled edges':24} {found['sampled_edges_per_s'] / 1e6:10.1f} million per second")
    for name, seconds in found["decision_s"].items():
        print(f"decision, {name:14} {1e6 * seconds:10.2f} µs")
    if wanted.large:
        found["large_s"] = large()
        for name, seconds in found["large_s"].items():
            print(f"{name:24} {seconds:10.2f} s")
    print(json.dumps(found))


if __name__ == "__main__":
    main()
