"""Links and devices whose rate changes: between two states, by others' load, in bursts, or as it was measured.

A course is a pair of arrays: seconds from 0 on, and the value that holds from each of them until the next.
"""

from __future__ import annotations

import numpy as np

from armillary.errors import InputError
from armillary.files.opening import Name, open_file

from .checks import Floats, Ints, count, positive


def two_states(
    rng: np.random.Generator, high: float, low: float, mean_s: float, horizon_s: float, *, low_mean_s: float | None = None
) -> tuple[Floats, Floats]:
    """(seconds, values) of a Markov chain that stays exponentially long at `high`, then at `low`, and so on until `horizon_s`.

    `mean_s` is the mean stay in seconds; at `low` it is `low_mean_s` where that is given. The draws are one `rng.exponential` per stay.

    Gilbert, Capacity of a burst-noise channel, 1960.
    """
    means = positive("mean_s", mean_s), positive("low_mean_s", mean_s if low_mean_s is None else low_mean_s)
    if not 0 <= horizon_s < 1e7 * min(means):
        raise InputError(f"horizon_s: found {horizon_s}; expected seconds of at least 0 and fewer than 10,000,000 stays")
    times, values, t, state = [0.0], [high], 0.0, 0
    while (t := t + float(rng.exponential(means[state]))) < horizon_s:
        state = 1 - state
        times.append(t)
        values.append(low if state else high)
    return np.array(times), np.array(values)


def left_by_others(rng: np.random.Generator, most: float, every_s: float, horizon_s: float) -> tuple[Floats, Floats]:
    """(seconds, shares) of a device that others load by U(0, most) of it, drawn anew every `every_s` seconds.

    The share that is left is 1 − U. There are max(1, round(horizon/every)) periods, and the draws are `rng.uniform(0, most, periods)`.
    """
    if not 0 <= most < 1:
        raise InputError(f"most: found {most}; expected 0 to less than 1")
    periods = max(1, round(horizon_s / positive("every_s", every_s)))
    return np.asarray(every_s * np.arange(periods), np.float64), 1.0 - rng.uniform(0.0, most, periods)


def toggles(rng: np.random.Generator, links: int, *, on_s: float, off_s: float, cycle_s: float) -> tuple[Floats, Ints]:
    """(seconds, link), sorted, at which links are switched on and off by turns within a cycle, each link on its own.

    Each is off for `off_s` seconds on average and then on for `on_s`, both exponential, and off at both ends of the cycle. For each
    link the draws are `rng.exponential(1, 2k)` with k = ⌊4·cycle/(on + off)⌋ + 16.
    """
    length = int(4 * positive("cycle_s", cycle_s) / (positive("on_s", on_s) + positive("off_s", off_s))) + 16
    found: list[tuple[float, int]] = []
    for link in range(count("links", links)):
        at = np.cumsum(rng.exponential(1.0, 2 * length) * np.tile([off_s, on_s], length))
        inside = int(np.searchsorted(at, cycle_s * 0.999999))
        found += [(float(t), link) for t in at[: inside - inside % 2]]
    found.sort()
    return np.array([t for t, _ in found]), np.array([link for _, link in found], np.int64)


def outages(rng: np.random.Generator, horizon_s: float, *, up_s: float, down_s: float, least_s: float = 0.0) -> tuple[Floats, Floats]:
    """(start, end) in seconds of the outages that start before `horizon_s`.

    A link is up for an Exp(up_s) time first, and for least_s + Exp(up_s) between outages, which last least_s + Exp(down_s). The draws
    are one `rng.exponential` for each of these.
    """
    positive("up_s", up_s), positive("down_s", down_s)
    if not least_s >= 0 or not 0 <= horizon_s < 1e7 * (up_s + least_s):
        raise InputError(f"least_s, horizon_s: found {least_s} and {horizon_s}; expected 0 or more, and fewer than 10,000,000 outages")
    starts, ends, t = [], [], float(rng.exponential(up_s))
    while t < horizon_s:
        down = least_s + float(rng.exponential(down_s))
        starts.append(t)
        ends.append(t + down)
        t += down + least_s + float(rng.exponential(up_s))
    return np.array(starts), np.array(ends)


def read_bandwidth(path: Name) -> tuple[Floats, Floats, float, Floats | None]:
    """(seconds from 0, bytes per second, seconds at which the last value ends, latencies in seconds or None) of a measured link.

    CSV with `time_s,bandwidth_mbps[,latency_ms]`, or a Mahimahi file (`.up`, `.down`: one line per 1,500-byte packet opportunity, in
    milliseconds), which becomes the mean rate of each 100 ms.

    Mahimahi: Netravali and others, Mahimahi: accurate record-and-replay for HTTP, 2015.
    """
    from armillary.cluster.traces import read_trace

    open_file(path, unpack=False).close()  # Refuses what is no regular file.
    try:
        trace = read_trace(str(path), "bandwidth", None)
    except ValueError as problem:
        raise InputError(str(problem)) from None
    first = float(trace.times[0])
    return np.asarray(trace.times - first), np.asarray(trace.values), float(trace.end - first), trace.latencies
