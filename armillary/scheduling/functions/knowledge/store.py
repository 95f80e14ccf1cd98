"""The profile store: what live runs have said about each function, and what they let one expect.

For each function, node type and size that was tried there are a count, an exponentially weighted mean and variance of the run times. For
each function there is a fit of `T·speed/affinity = a + b/v` by recursive least squares with forgetting; a run's counters split its time
into a serial and a parallel part, so the fit has both parameters from the first run on. An affinity is the ratio of medians between node
types; for a pair that was never run it is that of functions with like parallelism. How much times spread is a property of a function, so
sizes that were hardly tried borrow it from the others. Memory follows the highest of the last peaks.

The state is one tuple of arrays, which compiled loops change in place.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from armillary.kernels import loop
from armillary.scheduling.functions.problem.fleet import Floats, Ints

#: Weight of the newest run in a mean, and of older ones in the fit.
ALPHA, FORGET = 0.3, 0.95
#: Runs that the fit counts for beside measured means, and that a function's spread counts for beside that of one size; the spread with
#: which it starts, the least weight of a new run in it, and the most that one run may differ, so that a straggler does not rule it (ours).
MODEL_RUNS, SPREAD_RUNS, SPREAD, SPREAD_WEIGHT, MOST_OFF = 2.0, 3.0, 0.15, 0.05, 0.5
#: Runs whose normalised times are kept for medians, and buckets of like parallelism by their upper ends (ours).
KEPT = 9
BUCKETS = np.array([0.6, 1.2, 2.5, 6.0, math.inf])
#: Memory: headroom, runs that are remembered, rounding in MB, and runs for which a doubled limit is held.
HEADROOM, REMEMBERED, STEP_MB, HELD_RUNS, FIRST_MB = 1.2, 20, 64.0, 50, 512.0
#: The fit's covariance is bounded, or forgetting would blow it up while only one size is run.
MOST_COVARIANCE = 10.0


_WHOLE, _REAL = np.int64, np.float64
#: One record per function.
_OWN = np.dtype([
    ("runs", _WHOLE),  # that were timed
    ("scale", _REAL), ("a", _REAL), ("b", _REAL),  # the fit, over `scale`
    ("p_aa", _REAL), ("p_ab", _REAL), ("p_bb", _REAL),  # its covariance
    ("spread", _REAL),  # mean square of times over expected ones, less 1
    ("parallelism", _REAL), ("bucket", _WHOLE),  # mean of CPU seconds per second
    ("reference", _WHOLE),  # the node type of the first run
    ("size_xx", _REAL), ("size_xy", _REAL), ("exponent", _REAL),  # the regression of log T on log input size
    ("peak_count", _WHOLE), ("held", _REAL), ("held_runs", _WHOLE),  # memory; `held` in MB
], align=True)  # fmt: skip
#: One per function and node type; the affinity is relative to the reference type.
_PAIR = np.dtype([("seen", _WHOLE), ("affinity", _REAL)], align=True)
#: One per function, node type and size; `latest` is the number of the function's run that was its last.
_TRIED = np.dtype([("count", _WHOLE), ("latest", _WHOLE), ("average", _REAL), ("variance", _REAL)], align=True)
#: One per bucket, reference type and node type: logarithms of affinities of the functions in a bucket.
_LIKE = np.dtype([("total", _REAL), ("count", _REAL)], align=True)


class Store(NamedTuple):
    """What is known. Indices are f (function), t (node type) and k (size). Few arrays of records keep the loops quick to compile."""

    sizes: Floats
    speed: Floats
    own: Any  # [f]
    pairs: Any  # [f, t]
    tried: Any  # [f, t, k]
    likes: Any  # [bucket, t, t]
    kept: Floats  # [f, t, KEPT]: times over those of the fit
    peaks: Floats  # [f, REMEMBERED]
    dropped: Ints  # [1]: runs whose timings were no numbers


def empty(functions: int, speed: Floats, sizes: Floats) -> Store:
    """Nothing is known yet."""
    f, t, k = functions, len(speed), len(sizes)
    own = records(_OWN, f)
    own.scale, own.parallelism, own.spread, own.reference, own.bucket = 1.0, 1.0, SPREAD**2, -1, -1
    pairs = records(_PAIR, f, t)
    pairs.affinity = 1.0
    return Store(
        np.asarray(sizes, np.float64), np.asarray(speed, np.float64), own, pairs, records(_TRIED, f, t, k),
        records(_LIKE, len(BUCKETS), t, t), np.zeros((f, t, KEPT)), np.zeros((f, REMEMBERED)), np.zeros(1, np.int64),
    )  # fmt: skip


def records(kind: np.dtype[Any], *shape: int) -> Any:
    """Zeroed records whose fields are attributes, in Python and in compiled loops."""
    return np.zeros(shape, kind).view(np.recarray)


@loop
def known_affinity(s: Any, f: int, t: int, node_factors: bool) -> float:
    """The factor by which the function's times on a node type differ from what speeds say, relative to its reference type."""
    if not node_factors or s.own.reference[f] < 0 or t == s.own.reference[f]:
        return 1.0
    if s.pairs.seen[f, t] > 0:
        return float(s.pairs.affinity[f, t])
    b, r = s.own.bucket[f], s.own.reference[f]
    if b >= 0 and s.likes.count[b, r, t] > 0:
        return float(math.exp(s.likes.total[b, r, t] / s.likes.count[b, r, t]))
    return 1.0


@loop
def expected(s: Any, f: int, t: int, k: int, size: float, node_factors: bool) -> tuple[float, float]:
    """Expected seconds and their standard deviation; the function must have run before."""
    v = s.sizes[k]
    a, b = max(s.own.a[f], 0.0), max(s.own.b[f], 0.0)
    modelled = s.own.scale[f] * max(a + b / max(v, 1.0), 1e-6) / min(v, 1.0) / s.speed[t] * known_affinity(s, f, t, node_factors)
    # What was measured long ago gives way to the fit, or a straggler at a size that is no longer taken would never be forgotten.
    n = s.tried.count[f, t, k] * FORGET ** (s.own.runs[f] - s.tried.latest[f, t, k])
    time = (n * s.tried.average[f, t, k] + MODEL_RUNS * modelled) / (n + MODEL_RUNS)
    square = s.own.spread[f] * time * time
    deviation = math.sqrt((n * s.tried.variance[f, t, k] + SPREAD_RUNS * square) / (n + SPREAD_RUNS))
    factor = size ** s.own.exponent[f] if size != 1.0 else 1.0
    return time * factor, deviation * factor


@loop
def memory_mb(s: Any, f: int, first_mb: float) -> float:
    """The memory that the next run gets: 1.2 times the highest of the last 20 peaks, in steps of 64 MB, or what a kill holds."""
    n = min(s.own.peak_count[f], REMEMBERED)
    if n == 0:
        want = first_mb
    else:
        high = 0.0
        for i in range(n):
            high = max(high, s.peaks[f, i])
        want = STEP_MB * math.ceil(HEADROOM * high / STEP_MB)
    if s.own.held_runs[f] > 0:
        want = max(want, s.own.held[f])
    return float(want)


@loop
def killed(s: Any, f: int, limit_mb: float) -> None:
    """A run exceeded its limit: twice the limit is held for 50 runs."""
    s.own.held[f] = max(2 * limit_mb, s.own.held[f] if s.own.held_runs[f] > 0 else 0.0)
    s.own.held_runs[f] = HELD_RUNS


@loop
def observe_memory(s: Any, f: int, peak_mb: float) -> None:
    """Remembers the peak of a run that ended well."""
    s.peaks[f, s.own.peak_count[f] % REMEMBERED] = peak_mb
    s.own.peak_count[f] += 1
    if s.own.held_runs[f] > 0:
        s.own.held_runs[f] -= 1


@loop
def _row(s: Any, f: int, x0: float, x1: float, y: float) -> None:
    """One row of recursive least squares."""
    p00, p01, p11 = s.own.p_aa[f], s.own.p_ab[f], s.own.p_bb[f]
    g0, g1 = p00 * x0 + p01 * x1, p01 * x0 + p11 * x1
    below = 1.0 + x0 * g0 + x1 * g1
    miss = y - x0 * s.own.a[f] - x1 * s.own.b[f]
    s.own.a[f] += g0 / below * miss
    s.own.b[f] += g1 / below * miss
    s.own.p_aa[f] = p00 - g0 * g0 / below
    s.own.p_ab[f] = p01 - g0 * g1 / below
    s.own.p_bb[f] = p11 - g1 * g1 / below


@loop
def _like(s: Any, f: int, sign: float) -> None:
    """Adds the affinities of a function to its bucket, or takes them out."""
    b = s.own.bucket[f]
    if b < 0:
        return
    for r in range(len(s.speed)):
        for t in range(len(s.speed)):
            if r != t and s.pairs.seen[f, r] > 0 and s.pairs.seen[f, t] > 0:
                s.likes.total[b, r, t] += sign * math.log(s.pairs.affinity[f, t] / s.pairs.affinity[f, r])
                s.likes.count[b, r, t] += sign


@loop
def observe_time(
    s: Any, f: int, t: int, k: int, wall_s: float, cpu_s: float, throttled_s: float, size: float, counters: bool, node_factors: bool
) -> bool:
    """Learns from one run at one size. A negative `cpu_s` or `throttled_s` is one that is not known. False if a timing is no number."""
    if not (wall_s > 0 and wall_s < 1e12 and math.isfinite(cpu_s) and math.isfinite(throttled_s) and size > 0 and math.isfinite(size)):
        s.dropped[0] += 1
        return False
    v = s.sizes[k]
    wide, thin = max(v, 1.0), min(v, 1.0)
    # Which share of the time was parallel: throttled beyond what a fraction of a core explains, or more CPU than one thread uses.
    share = -1.0
    if counters and throttled_s >= 0:
        share = min(max((throttled_s / wall_s - (1 - thin)) / thin, 0.0), 1.0)
    elif counters and cpu_s >= 0 and v > 1:
        share = min(max((cpu_s / wall_s - 1.0) / (v - 1.0), 0.0), 1.0)
    _like(s, f, -1.0)
    if cpu_s >= 0:
        p = cpu_s / wall_s / thin
        s.own.parallelism[f] = p if s.own.runs[f] == 0 else s.own.parallelism[f] + ALPHA * (p - s.own.parallelism[f])
    if size != 1.0 and s.own.runs[f] > 0:
        # log T against log size, after what is expected of an input of size 1; a small ridge keeps the first steps small.
        one, _ = expected(s, f, t, k, 1.0, node_factors)
        x = math.log(size)
        s.own.size_xx[f] = FORGET * s.own.size_xx[f] + x * x
        s.own.size_xy[f] = FORGET * s.own.size_xy[f] + x * math.log(wall_s / one)
        s.own.exponent[f] = min(max(s.own.size_xy[f] / (s.own.size_xx[f] + 0.05), -1.0), 3.0)
    y = wall_s / (size ** s.own.exponent[f] if size != 1.0 else 1.0)
    level = y * thin * s.speed[t]  # over the affinity: a + b/v
    if s.own.runs[f] == 0:
        s.own.reference[f] = t
        s.own.scale[f] = level
        # Where nothing says how parallel it is, the best is assumed: more vCPUs are then tried, and their times say what is true.
        first = share if share >= 0 else 1.0
        s.own.a[f], s.own.b[f] = 1.0 - first, first * wide
        s.own.p_aa[f], s.own.p_ab[f], s.own.p_bb[f] = 1.0, 0.0, 1.0
    else:
        level = level / s.own.scale[f] / known_affinity(s, f, t, node_factors)
        guess = max(max(s.own.a[f], 0.0) + max(s.own.b[f], 0.0) / wide, 1e-3)
        if s.own.p_aa[f] + s.own.p_bb[f] < MOST_COVARIANCE:
            s.own.p_aa[f] /= FORGET
            s.own.p_ab[f] /= FORGET
            s.own.p_bb[f] /= FORGET
        # Errors are in proportion to times, so rows are over the expected time.
        _row(s, f, 1.0 / guess, 1.0 / wide / guess, level / guess)
        if share >= 0:
            _row(s, f, 0.0, 1.0 / wide / guess, share * level / guess)
    if s.own.runs[f] > 0:
        usual, _ = expected(s, f, t, k, size, node_factors)
        off = min(wall_s / usual - 1.0, MOST_OFF)
        s.own.spread[f] += max(1.0 / (s.own.runs[f] + SPREAD_RUNS), SPREAD_WEIGHT) * (off * off - s.own.spread[f])
    s.own.runs[f] += 1
    fitted = max(max(s.own.a[f], 0.0) + max(s.own.b[f], 0.0) / wide, 1e-6)
    s.kept[f, t, s.pairs.seen[f, t] % KEPT] = y * thin * s.speed[t] / s.own.scale[f] / fitted
    s.pairs.seen[f, t] += 1
    r = s.own.reference[f]
    middle = np.median(s.kept[f, r, : min(s.pairs.seen[f, r], KEPT)])
    for other in range(len(s.speed)):
        if s.pairs.seen[f, other] > 0:
            s.pairs.affinity[f, other] = np.median(s.kept[f, other, : min(s.pairs.seen[f, other], KEPT)]) / middle
    s.own.bucket[f] = np.searchsorted(BUCKETS, s.own.parallelism[f])
    _like(s, f, 1.0)
    n = s.tried.count[f, t, k]
    if n == 0:
        s.tried.average[f, t, k], s.tried.variance[f, t, k] = y, 0.0
    else:
        change = y - s.tried.average[f, t, k]
        s.tried.average[f, t, k] += ALPHA * change
        s.tried.variance[f, t, k] = (1 - ALPHA) * (s.tried.variance[f, t, k] + ALPHA * change * change)
    s.tried.count[f, t, k], s.tried.latest[f, t, k] = n + 1, s.own.runs[f]
    return True
