"""What watching costs, measured: a sample and a decision over a window of 100 ms, and a check over a product with the matrix."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from armillary.timing import timed

from .features import Wanted, rates
from .folds import Table

if TYPE_CHECKING:
    from ..classifiers.kinds import Score
    from ..workload import Work

#: Seconds between two samples, as `perf stat -I 100` takes them.
WINDOW_S = 0.1
_QUICK: dict[str, Any] = {"min_seconds": 0.01, "min_calls": 3}


def counter_costs(work: Work, score: Score, wanted: Wanted) -> tuple[float, float]:
    """(sample and decision, decision alone), in percent of a window of 100 ms. The sample is of the counters that this machine has."""
    from ..counters.software import Software

    table, runs = work.folds(wanted)[0].judge, work.runs
    one = Table(table.every, table.rows[:1], table.past[:1], table.labels[:1])
    row = np.array(runs.counters[:1])
    source = Software()
    sample = timed(source.sample, **_QUICK).median
    decide = timed(lambda: (rates(row, runs.columns, wanted), score(one)), **_QUICK).median
    source.close()
    return 100 * (sample + decide) / WINDOW_S, 100 * decide / WINDOW_S


def check_costs(work: Work, name: str) -> float:
    """Percent of a product with the matrix that a check takes per iteration."""
    if work.matrix is None:
        return 0.0
    matrix = work.matrix.scipy()
    rng = np.random.Generator(np.random.PCG64DXSM(0))
    x, older, oldest = rng.random((3, work.matrix.rows))
    y = matrix @ x
    sums, sizes = matrix.sum(0), abs(matrix).sum(0)
    works: dict[str, Callable[[], Any]] = {
        "abft": lambda: abs(sums @ x - y.sum()) / (sizes @ np.abs(x)),
        "residual": lambda: np.linalg.norm(y - matrix @ x),
        "aid": lambda: (np.abs(x - (2 * older - oldest)).max(), np.abs(x - (3 * older - 3 * oldest + y)).max()),
        "range": lambda: (x.min(), x.max()),
        "duplicate": lambda: np.array_equal(y, matrix @ x),
    }
    if name not in works:
        return 0.0
    product = timed(lambda: matrix @ x, **_QUICK).median
    every = 10 if name == "residual" else 1
    return 100 * timed(works[name], **_QUICK).median / every / product
