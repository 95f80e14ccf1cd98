"""Tensor trains: our engines beside tensorly and LAPACK's SVD, in one run, as ratios.

python benchmarks/tensors_speed.py [width of the large matrix] prints seconds. Peers that are not installed are skipped by name.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import numpy as np

from armillary.compression.tensors import svd, tt_svd
from armillary.compression.tensors.workload import built_in, looks_trained


def best(call: Callable[[], Any], rounds: int = 3) -> float:
    """The least seconds of some rounds, after one to warm up."""
    call()
    found = []
    for _ in range(rounds):
        start = time.perf_counter()
        call()
        found.append(time.perf_counter() - start)
    return min(found)


def main() -> None:
    """ResNet-32's weights, one large matrix, and the split SVD beside gesdd."""
    width = int(sys.argv[1]) if len(sys.argv) > 1 else 4096
    work = built_in("resnet32", np.random.default_rng(0)).layers.values()
    ranks = [tt_svd(a, 0.3).ranks for a in work]
    ours = best(lambda: [tt_svd(a, 0.3) for a in work])
    print(f"resnet32, auto: {ours:.3f} s; split: {best(lambda: [tt_svd(a, 0.3, engine='split') for a in work], 1):.3f} s")
    if find_spec("tensorly"):
        from tensorly.decomposition import tensor_train

        theirs = best(lambda: [tensor_train(a, rank=list(r)) for a, r in zip(work, ranks)])
        print(f"resnet32, tensorly at the same ranks: {theirs:.3f} s, {theirs / ours:.2f} times ours")
    else:
        print("tensorly: not installed")
    a = np.random.default_rng(0).normal(size=(512, 512))
    split, lapack = best(lambda: svd(a)), best(lambda: np.linalg.svd(a, full_matrices=False))
    print(f"512×512: split {split:.3f} s, gesdd {lapack:.3f} s: {lapack / split:.2f} of its speed")
    large = looks_trained((width, width), np.random.default_rng(0), decay=1.2)
    random = best(lambda: tt_svd(large, 0.3, engine="random"), 1)
    exact = best(lambda: tt_svd(large, 0.3, engine="gesdd"), 1)
    print(f"{width}×{width}: random {random:.2f} s, gesdd {exact:.2f} s: {exact / random:.1f} times as fast")
    if find_spec("tensorly"):
        rank = tt_svd(large, 0.3, engine="random").ranks
        theirs = best(lambda: tensor_train(large, rank=list(rank)), 1)
        print(f"{width}×{width}: tensorly {theirs:.2f} s: {theirs / random:.1f} times ours")


if __name__ == "__main__":
    main()
