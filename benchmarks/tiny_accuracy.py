"""How well the simulator foretells the real tiny engine on this machine.

python benchmarks/tiny_accuracy.py [--unseen 5] [--threads 1]

Two short runs of the engine (a calm and a busy one) are recorded and the simulator's cost fitted to them; then other Poisson loads are
run for real and simulated, and the errors of throughput, TPOT and TTFT are printed, with their medians.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
import torch

from armillary.llm import AffineCost, Engine, Replica, Tiny, generate
from armillary.llm.serving.fitting import errors, fit
from armillary.llm.tiny.recording import record

SEQUENCES, BLOCKS, BUDGET = 32, 2048, 256


def run(rate: float, count: int, seed: int) -> dict[str, object]:
    """A recorded run of the engine."""
    work = generate(count, rate=rate, prompt=np.random.default_rng(seed).integers(16, 200, count),
                    output=np.random.default_rng(seed + 1).integers(8, 100, count), seed=seed)  # fmt: skip
    engine = Engine(Tiny.make("tiny-llama"), max_seqs=SEQUENCES, blocks=BLOCKS, max_batched_tokens=BUDGET, prefix_cache=False)
    return record(engine, work, seed=seed)


def main() -> None:
    """Prints the fit and one line a load."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--unseen", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    run(20.0, 8, 99)
    begun = time.perf_counter()
    seen = [run(2.0, 30, 1), run(12.0, 100, 2)]
    guess = Replica(cost=AffineCost(5e-3, 5e-5, 1e-6), blocks=BLOCKS, max_seqs=SEQUENCES, max_batched_tokens=BUDGET, prefix_cache=False)
    took = time.perf_counter() - begun
    fitted = fit(guess, seen)
    said = ", ".join(f"{name} {value:.3g}" for name, value in fitted.constants.items())
    print(f"fitted to {took:.0f} s of runs: {said}; {fitted.explains_most} matters most")
    found = []
    for i in range(args.unseen):
        rate = 3.0 + 2.0 * i
        off = errors(fitted.replica, run(rate, 60, 10 + i))
        found.append(off)
        print(f"{rate:.0f} requests/s: " + ", ".join(f"{name} {100 * e:+.1f} %" for name, e in off.items()))
    for name in found[0]:
        print(f"median |error| of {name}: {100 * float(np.median([abs(f[name]) for f in found])):.1f} %")


if __name__ == "__main__":
    main()
