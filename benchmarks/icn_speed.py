"""Networks of caches: simulated requests per second for each strategy on Abilene and on an ISP of 79 nodes.

python benchmarks/icn_speed.py [requests] prints a table. There is no peer to install, so the figures are absolute.
"""

from __future__ import annotations

import sys
import time

import numpy as np

from armillary.storage.icn import CostBased, HashRouting, Lcd, Lce, LceTiers, Prices, ProbCache, built_in, generate


def main() -> None:
    """Prints one line per strategy."""
    requests = int(float(sys.argv[1])) if len(sys.argv) > 1 else 1_000_000
    strategies = [Lce(), Lcd(), ProbCache(), HashRouting(), LceTiers(), CostBased()]
    for name in ("abilene", "isp"):
        few = generate(built_in(name), Prices(), np.random.default_rng(0), contents=100, requests=100, warm=10, alpha=0.8, share=0.01)
        work = generate(
            built_in(name),
            Prices(),
            np.random.default_rng(0),
            contents=100_000,
            requests=requests,
            warm=requests // 3,
            alpha=0.8,
            share=0.01,
        )
        for strategy in strategies:
            strategy.simulate(few)
            start = time.perf_counter()
            found = strategy.simulate(work)
            seconds = time.perf_counter() - start
            print(
                f"{name:<8} {type(strategy).__name__:<12} {seconds:>7.2f} s {requests / seconds / 1e3:>8.0f} k requests/s"
                f"   {found.cost_per_GB:.5f} $/GB   hits {found.hit_ratio:.3f}"
            )


if __name__ == "__main__":
    main()
