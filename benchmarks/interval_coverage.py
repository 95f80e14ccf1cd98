"""How often the interval of a mean gain covers the truth, and how often a study without any effect would be held.

    python benchmarks/interval_coverage.py [studies]

Each study draws an effect for every case from a distribution whose mean is known, and five noisy repeats of it. The table gives the share
of studies whose 95 % interval holds that mean, beside a percentile bootstrap (SciPy's) on the same draws, and the share in which the
interval of a study without effect lies above no effect, which is what `held` needs.
"""

from __future__ import annotations

import sys

import numpy as np
from scipy import stats

from armillary.study.gains import interval

CASES = (3, 4, 6, 10, 20)
REPEATS, REPEAT_NOISE = 5, 0.2
#: Effects with mean 0: symmetric; skewed by 1 and by 1.75; heavy tails; and an exponential one, which is harder than gains are.
EFFECTS = {
    "normal": lambda rng, shape: rng.normal(size=shape),
    "skewed (gamma 4)": lambda rng, shape: rng.gamma(4, size=shape) - 4,
    "skewed (lognormal 0.5)": lambda rng, shape: rng.lognormal(0, 0.5, shape) - np.exp(0.125),
    "heavy-tailed (Student 3)": lambda rng, shape: rng.standard_t(3, shape),
    "exponential": lambda rng, shape: rng.exponential(size=shape) - 1,
}


def main(studies: int) -> None:
    """Prints the table."""
    print(f"{'effects':<26}{'cases':>6}{'covered':>9}{'bootstrap':>11}{'held without effect':>21}")
    for name, draw in EFFECTS.items():
        for cases in CASES:
            rng = np.random.default_rng(cases)
            covered = above = peer_covered = 0
            for number in range(studies):
                effects = draw(rng, cases)
                repeats = effects[:, None] + REPEAT_NOISE * effects.std() * rng.normal(size=(cases, REPEATS))
                found = interval(list(repeats), log=False)
                covered += found.low <= 0 <= found.high
                above += found.low > 0
                if number < studies // 4:
                    peer = stats.bootstrap((np.median(repeats, 1),), np.mean, n_resamples=999, method="percentile", rng=rng)
                    peer_covered += peer.confidence_interval.low <= 0 <= peer.confidence_interval.high
            shares = covered / studies, peer_covered / (studies // 4), above / studies
            print(f"{name:<26}{cases:>6}{100 * shares[0]:>8.1f}%{100 * shares[1]:>10.1f}%{100 * shares[2]:>20.1f}%")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 4000)
