"""Jobs of the batch model of Lublin and Feitelson, with its published constants.

The workload on parallel supercomputers: modeling the characteristics of rigid jobs, JPDC 2003. Requested times and users are ours.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from armillary.errors import InputError
from armillary.scheduling.swf import Jobs

Floats = npt.NDArray[np.float64]

#: Job sizes: shares of serial jobs and of powers of two among all jobs, and the two stages of log2 of the size.
SERIAL, POWER_OF_TWO = 0.2927, 0.6686
LOWEST, MIDDLE, FIRST_STAGE = 1.2, 2.5, 0.875
#: Natural logarithm of run times: two gamma laws (shape, scale), and the share of the first by size.
RUN_SHORT, RUN_LONG, RUN_LARGEST = (6.57, 0.823), (639.1, 0.0156), 12.0
RUN_SLOPE, RUN_OFFSET = -0.003, 0.6986
SHORTEST_S, LONGEST_S = 60.0, 36 * 3600.0
#: Natural logarithm of the points between two arrivals, and the daily cycle in half hours (gamma laws).
POINTS, POINTS_LARGEST = (6.0415 * 1.0519, 0.8531), 13.0
CYCLE, CYCLE_FIRST, BUCKETS, BUCKET_S = (6.1271, 5.2740), 11, 48, 1800.0
#: Requested times that users choose from, in seconds, and the share of users who ask for the largest.
MENU = np.array([300, 600, 900, 1800, *(3600 * h for h in (1, 2, 3, 4, 6, 8, 12, 18, 24, 36, 48))], float)
ASK_MOST, LEAST_ACCURACY = 0.10, 0.05
USERS, EXECUTABLES = 60, 4


def model_jobs(rng: np.random.Generator, count: int, nodes: int, load: float = 0.85) -> Jobs:
    """Jobs of the batch model of 2003 for a machine of `nodes`, with Σ nodes·run = load · nodes · T, T = last - first submission.

    Users are Zipf(1) of 60, each with one to four executables; `executable` numbers (user, executable) together.
    """
    if count < 2 or nodes < 8:
        raise InputError(f"found {count} jobs on {nodes} nodes; expected at least 2 jobs and 8 nodes")
    size = _sizes(rng, count, nodes)
    run = _run_times(rng, size)
    span = float((size * run).sum()) / (load * nodes)
    submit = _arrivals(rng, count, span)
    most = rng.random(count) < ASK_MOST
    asked = MENU[np.minimum(np.searchsorted(MENU, run / rng.uniform(LEAST_ACCURACY, 1.0, count)), len(MENU) - 1)]
    weight = 1.0 / np.arange(1, USERS + 1)
    user = rng.choice(USERS, count, p=weight / weight.sum())
    executable = EXECUTABLES * user + np.floor(rng.random(count) * rng.integers(1, EXECUTABLES + 1, USERS)[user]).astype(np.int64)
    return Jobs.of(
        submit, run, size, requested_s=np.where(most, MENU[-1], asked), machine_nodes=nodes, user=user + 1, executable=executable + 1
    )  # fmt: skip


def _sizes(rng: np.random.Generator, count: int, nodes: int) -> npt.NDArray[np.int64]:
    u, top = rng.random(count), math.log2(nodes)
    low, high = min(LOWEST, top - MIDDLE), top - MIDDLE
    log2 = np.where(rng.random(count) < FIRST_STAGE, rng.uniform(low, high, count), rng.uniform(high, top, count))
    size = np.where(u <= SERIAL + POWER_OF_TWO, np.exp2(np.round(log2)), np.round(np.exp2(log2)))
    return np.clip(np.where(u <= SERIAL, 1, size), 1, nodes).astype(np.int64)


def _run_times(rng: np.random.Generator, size: npt.NDArray[np.int64]) -> Floats:
    logs = np.full(len(size), np.inf)
    while (redraw := np.nonzero(logs > RUN_LARGEST)[0]).size:
        short = rng.random(len(redraw)) < np.clip(RUN_SLOPE * size[redraw] + RUN_OFFSET, 0.0, 1.0)
        logs[redraw] = np.where(short, rng.gamma(*RUN_SHORT, len(redraw)), rng.gamma(*RUN_LONG, len(redraw)))
    # Whole seconds, as real logs have them.
    return np.round(np.clip(np.exp(logs), SHORTEST_S, LONGEST_S))


def _arrivals(rng: np.random.Generator, count: int, span: float) -> Floats:
    """Submissions from 0 to `span` seconds: points between arrivals are paid out faster at busy hours."""
    from scipy.special import gammainc

    logs = np.full(count - 1, np.inf)
    while (redraw := np.nonzero(logs > POINTS_LARGEST)[0]).size:
        logs[redraw] = rng.gamma(*POINTS, len(redraw))
    due = np.concatenate([[0.0], np.cumsum(np.exp(logs))])
    i = np.arange(CYCLE_FIRST, CYCLE_FIRST + BUCKETS)
    weight = np.empty(BUCKETS)
    weight[(i - 1) % BUCKETS] = gammainc(CYCLE[0], (i + 0.5) / CYCLE[1]) - gammainc(CYCLE[0], (i - 0.5) / CYCLE[1])
    weight /= weight.mean()
    days = int(span // (BUCKETS * BUCKET_S)) + 2
    edges = BUCKET_S * np.arange(days * BUCKETS + 1)
    paid = np.concatenate([[0.0], np.cumsum(np.tile(weight, days)) * BUCKET_S])
    scale = float(np.interp(span, edges, paid)) / due[-1]
    return np.floor(np.interp(due * scale, paid, edges))
