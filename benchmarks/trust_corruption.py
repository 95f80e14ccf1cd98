#!/usr/bin/env python3
"""How fast the modelled core counts, what watching costs, and a decision beside scikit-learn's own.

    python benchmarks/trust_corruption.py [--long]

Ratios are of two programs in one run. `--long` also makes pairs of runs at 10,000 rows and foretells the time of 2,000 runs.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.sparse.linalg import aslinearoperator

from armillary.timing import timed
from armillary.trust.corruption import AbftOperator, CounterSampler, Faults, Processor, pairs_of
from armillary.trust.corruption.classifiers.kinds import KINDS as CLASSIFIERS
from armillary.trust.corruption.classifiers.kinds import learn
from armillary.trust.corruption.counters.perf import reason
from armillary.trust.corruption.detection.folds import Table
from armillary.trust.corruption.detection.runs import Caches
from armillary.trust.corruption.machine.processor import COUNTS
from armillary.trust.corruption.matrices.built_in import KINDS, poisson
from armillary.trust.corruption.solvers.kinds import SOLVERS


def cpu(work: Callable[[], Any], times: int = 5) -> float:
    """The least CPU seconds of some calls, after one that is not timed."""
    work()
    found = []
    for _ in range(times):
        began = time.thread_time()
        work()
        found.append(time.thread_time() - began)
    return min(found)


def accesses(rows: int = 10_000) -> None:
    """Modelled accesses per second of CPU, by kernel; and the same loops without counting."""
    matrix = KINDS["delaunay"](rows, np.random.default_rng(0))
    print(f"{'kernel':10} {'million accesses':>17} {'per CPU second':>15} {'counting over not':>18}")
    for name, kind in SOLVERS.items():
        total = [0.0]

        def run(counting: bool, kind: Any = kind, total: list[float] = total) -> None:
            core = Processor(counting=counting)
            solver = kind(matrix, np.random.default_rng(1), core)
            while solver.advance():
                pass
            if counting:
                total[0] = float(core.state[2 + COUNTS.index("l1_loads")])

        counted, plain = cpu(lambda: run(True), 3), cpu(lambda: run(False), 3)
        print(f"{name:10} {total[0] / 1e6:17.2f} {total[0] / counted / 1e6:13.1f} M {counted / plain:18.1f}")


def checksum() -> None:
    """What checking costs a product with 10^6 entries: AbftOperator beside SciPy's plain operator; the fewer rows, the less."""
    print()
    for name, found in (("5 entries per row", poisson((448, 448))), ("16 per row", KINDS["banded"](62_500, np.random.default_rng(0)))):
        matrix = found.scipy()
        plain, checked = aslinearoperator(matrix), AbftOperator(matrix)
        x = np.random.default_rng(0).random(matrix.shape[0])
        ratios = [cpu(lambda a=checked, x=x: a @ x, 20) / cpu(lambda a=plain, x=x: a @ x, 20) for _ in range(5)]  # type: ignore[misc]
        print(f"AbftOperator, {matrix.nnz:,} entries, {name}: {100 * (statistics.median(ratios) - 1):.1f} % more CPU than without"
              f" ({100 * (min(ratios) - 1):.1f} to {100 * (max(ratios) - 1):.1f})")  # fmt: skip


def sampling(seconds: float = 1.5, rounds: int = 7) -> None:
    """Products with and without a sampler beside them, in turns: work done per second of this thread's CPU."""
    matrix = poisson((200, 200)).scipy()
    x = np.random.default_rng(0).random(matrix.shape[0])

    def rate() -> float:
        done, began, wall = 0, time.thread_time(), time.perf_counter()
        while time.perf_counter() - wall < seconds:
            for _ in range(20):
                matrix @ x
            done += 20
        return done / (time.thread_time() - began)

    ratios = []
    source = ""
    for turn in range(rounds):
        rates = {}
        for sampled in (turn % 2 == 0, turn % 2 == 1):
            if sampled:
                with CounterSampler(every=0.1) as sampler:
                    rates[True] = rate()
                source = sampler.source
            else:
                rates[False] = rate()
        ratios.append(rates[False] / rates[True])
    print(f"\nsampling every 100 ms ({source}; hardware: {reason() or 'there'}): {100 * (statistics.median(ratios) - 1):+.2f} %"
          f" ({100 * (min(ratios) - 1):+.2f} to {100 * (max(ratios) - 1):+.2f})")  # fmt: skip


def decisions(rows: int = 2000) -> None:
    """Microseconds of one decision, and training, by classifier; forests beside scikit-learn's own `predict_proba`."""
    from sklearn.ensemble import RandomForestClassifier  # type: ignore[import-untyped]

    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, rows)
    x = (rng.standard_normal((rows, 12)) + y[:, None]).astype(np.float32).astype(np.float64)
    every = np.arange(rows)
    table = Table(x, every, np.maximum(every[:, None] + np.arange(-7, 1), 0), y)
    one = Table(x, every[:1], table.past[:1], y[:1])
    print(f"\n{'classifier':12} {'training, s':>12} {'decision, µs':>13} {'of 100 ms':>10}")
    for name in CLASSIFIERS:
        began = time.thread_time()
        scorer = learn(name, table, 0)
        trained = time.thread_time() - began
        took = timed(lambda scorer=scorer: scorer(one)).median  # type: ignore[misc]
        print(f"{name:12} {trained:12.2f} {1e6 * took:13.0f} {took / 0.1:10.3%}")
    forest = RandomForestClassifier(200, min_samples_leaf=3, random_state=0).fit(x.astype(np.float32), y)
    ours = learn("forest", table, 0)
    row, all_rows = x[:1].astype(np.float32), x.astype(np.float32)
    for what, mine, theirs in (
        ("one window", lambda: ours(one), lambda: forest.predict_proba(row)),
        (f"{rows:,} windows", lambda: ours(table), lambda: forest.predict_proba(all_rows)),
    ):
        a, b = cpu(mine), cpu(theirs)
        print(f"forest, {what}: {1e6 * a:,.0f} µs, scikit-learn {1e6 * b:,.0f} µs, {b / a:.1f} times")


def study(pairs: int = 10) -> None:
    """CPU seconds of 2,000 runs at 10,000 rows, foretold from a few pairs; the study of propagation is counted once."""
    print(f"\n{'10,000 rows':10} {'CPU s per run':>14} {'2,000 runs on two cores, min':>30}")
    matrix = KINDS["delaunay"](10_000, np.random.default_rng(0))
    for name in SOLVERS:
        began = time.thread_time()
        runs = pairs_of(name, matrix, pairs, Faults("noise", fraction=1e-3, sigma=1e-2), Caches(), np.random.default_rng(0))
        each = (time.thread_time() - began) / len(runs)
        print(f"{name:10} {each:14.3f} {2000 * each / 2 / 60:30.1f}", flush=True)


def main() -> None:
    """Everything."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--long", action="store_true")
    wanted = parser.parse_args()
    accesses()
    checksum()
    sampling()
    decisions()
    if wanted.long:
        study()


if __name__ == "__main__":
    main()
