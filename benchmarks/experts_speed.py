"""Sem-MoE's fit over layers, its co-clustering against a plain alternation in one run, and the routing of a request.

python benchmarks/experts_speed.py [layers]
"""

from __future__ import annotations

import sys
import time

import numpy as np
from scipy.optimize import linear_sum_assignment

from armillary.serving.experts import SemMoE, draw
from armillary.serving.experts.planning.coclustering import cluster_experts, homes, token_weights
from armillary.timing import timed

SEED = 0
EXPERTS, K, DEVICES, VOCABULARY = 128, 8, 8, 32_000


def alternation(weights: np.ndarray, devices: int, rng: np.random.Generator, starts: int = 10) -> np.ndarray:
    """What a first attempt would do: random starts, tokens to their best device, experts by an assignment, until nothing changes."""
    slots = np.repeat(np.arange(devices), weights.shape[1] // devices)
    best, most = slots, -np.inf
    for _ in range(starts):
        device = rng.permutation(slots)
        for _ in range(50):
            home, _ = homes(weights @ np.eye(devices)[device], weights.sum(axis=1))
            benefit = np.stack([weights[home == d].sum(axis=0) for d in range(devices)], axis=1)
            rows, columns = linear_sum_assignment(-benefit[:, slots])
            new = device.copy()
            new[rows] = slots[columns]
            if np.array_equal(new, device):
                break
            device = new
        value = kept(weights, device, devices)
        if value > most:
            best, most = device, value
    return best


def kept(weights: np.ndarray, device: np.ndarray, devices: int) -> float:
    """Share of the weight that is at home, homes even."""
    score = weights @ np.eye(devices)[device]
    home, _ = homes(score, weights.sum(axis=1))
    return float(score[np.arange(len(home)), home].sum() / weights.sum())


def main() -> None:
    """Prints a table."""
    layers = int(sys.argv[1]) if len(sys.argv) > 1 else 48
    rng = np.random.default_rng(SEED)
    trace = draw(384, experts=EXPERTS, k=K, layers=layers, affinity=0.9, rng=rng, vocabulary=VOCABULARY, prompt=192, output=32)
    SemMoE(devices=DEVICES).fit(draw(8, experts=16, k=2, layers=1, affinity=0.9, rng=rng, vocabulary=64))  # compiles
    start, used = time.perf_counter(), time.process_time()
    placement = SemMoE(devices=DEVICES).fit(trace)
    seconds, processor = time.perf_counter() - start, time.process_time() - used
    print(f"fit, E={EXPERTS}, D={DEVICES}, {layers} layers, V={VOCABULARY:,}: {seconds:.1f} s, {processor:.1f} s of processor time")
    weights = token_weights(trace.counts(0), K)
    head = np.argsort(-np.asarray(weights.sum(axis=1)).ravel())[:2000]
    dense = weights[head].toarray().astype(float)
    for name, how in (("cross-entropy start and exchanges", cluster_experts), ("plain alternation, ten starts", alternation)):
        start = time.process_time()
        device = how(dense, DEVICES, np.random.default_rng(SEED))
        print(f"{name}: {kept(dense, device, DEVICES):.3f} at home, {time.process_time() - start:.2f} s")
    prompt = rng.integers(0, VOCABULARY, 1000).astype(np.int32)
    print(f"route, 1,000 tokens: {1e6 * timed(lambda: placement.route(prompt), min_seconds=0.3).median:.1f} µs")
    print(f"shuffle, 1,000 tokens: {1e6 * timed(lambda: placement.shuffle(prompt, 0), min_seconds=0.3).median:.0f} µs")


if __name__ == "__main__":
    main()
