"""The 95th percentile of response times: requests at k threads, first come, first served (M/G/k), simulated.

Requests arrive as a Poisson stream and take a lognormal service time, stretched by the slowdowns. The draws of an instance depend on the
seed and on its number alone, so that every technique meets the same requests.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import numpy.typing as npt

from armillary.errors import InputError
from armillary.kernels import loop
from armillary.kernels.exponential import exp
from armillary.streams import stream

Array = npt.NDArray[Any]
Floats = npt.NDArray[np.float64]
BLOCK = 64
MOST_THREADS = 4096


def p95(rps: Array, service_s: Array, sigma: Array, threads: Array, *, seed: int = 0, requests: int = 4000, share: float = 0.95) -> Floats:
    """The `share` quantile of response times in seconds, [n], from `requests` simulated requests each.

    rps: requests per second. service_s: mean service time, slowdowns and speed included. sigma: spread of lognormal service times
    (`Applications.sigma`). threads: how many requests are served at once.
    """
    rps, service_s, sigma = (np.ascontiguousarray(v, np.float64) for v in (rps, service_s, sigma))
    threads = np.ascontiguousarray(threads, np.int64)
    n = len(rps)
    if {v.shape for v in (rps, service_s, sigma, threads)} != {(n,)}:
        raise InputError(f"found {n} rates, {len(service_s)} service times and {len(threads)} threads; expected equally many")
    if not 1 <= requests <= 1_000_000 or not 0.0 < share < 1.0:
        raise InputError(f"found {requests} requests and the share {share:g}; expected 1 to 1,000,000 and a share between 0 and 1")
    for name, values, most in (("rps", rps, 1e12), ("service_s", service_s, 1e9), ("sigma", sigma, 10.0)):
        if n and not ((values >= 0) & (values <= most)).all():
            raise InputError(f"{name}: expected numbers from 0 to {most:g}")
    if n and not 1 <= threads.min() <= threads.max() <= MOST_THREADS:
        raise InputError(f"threads: expected 1 to {MOST_THREADS:,}")
    found = np.empty(n)
    for block in range(-(-n // BLOCK)):
        gaps, normal = _draws(seed, block, requests)
        part = slice(block * BLOCK, min(n, (block + 1) * BLOCK))
        held = min(BLOCK, n - block * BLOCK)
        times = np.empty((held, requests))
        _answer(rps[part], service_s[part], sigma[part], threads[part], gaps, normal, times)
        # Linear between the two nearest ranks, as NumPy's quantiles are.
        place = share * (requests - 1)
        low, high = int(place), min(int(place) + 1, requests - 1)
        split = np.partition(times, (low, high), axis=1)
        found[part] = split[:, low] + (place - low) * (split[:, high] - split[:, low])
    return found


@functools.lru_cache(maxsize=8)
def _draws(seed: int, block: int, requests: int) -> tuple[Floats, Floats]:
    """Gaps between requests and normal deviates of their service times, [BLOCK, requests]; not to be changed."""
    rng = stream(seed, "requests", str(block))
    found = rng.standard_exponential((BLOCK, requests)), rng.standard_normal((BLOCK, requests))
    for values in found:
        values.flags.writeable = False
    return found


@loop
def _answer(rps, service_s, sigma, threads, gaps, normal, times):  # type: ignore[no-untyped-def]
    """Fills times[i, r] with the response time of request r of instance i."""
    for i in range(len(rps)):
        k = threads[i]
        free = np.zeros(k)
        now = 0.0
        drift = -0.5 * sigma[i] * sigma[i]
        apart = 1.0 / rps[i] if rps[i] > 0.0 else 0.0
        for r in range(gaps.shape[1]):
            now += gaps[i, r] * apart
            service = service_s[i] * exp(sigma[i] * normal[i, r] + drift)
            first = 0
            for t in range(1, k):
                if free[t] < free[first]:
                    first = t
            # Without any rate, each request finds the threads idle.
            start = max(now, free[first]) if apart > 0.0 else now
            free[first] = start + service
            times[i, r] = free[first] - now
