"""The energy that a domain has drawn by each of many moments, exactly, from event to event.

Power is constant between two events, apart from a drift that is linear in time; so energy is a sum over stretches, in the order of time.
"""

from __future__ import annotations

from armillary.kernels import kernel, loop
from armillary.kernels.exponential import exp


@loop
def call_factors(normal, sigma):  # type: ignore[no-untyped-def]
    """exp(sigma z − sigma²/2): lognormal factors of mean 1."""
    found = normal.copy()
    for i in range(len(normal)):
        found[i] = exp(sigma * normal[i] - 0.5 * sigma * sigma)
    return found


@kernel
def swept(time, sign, type_, watts, busy, workers, idle_w, base_w, turbo, contention, a, b, drift, query, energy, by_type, sums, counts):  # type: ignore[no-untyped-def]
    """Fills `energy` with the joules drawn from the first event to each query, and `by_type` with those of each type.

    Events are (time in ns, +1 or −1, type, watts), ordered; `busy` says of each type whether it keeps a worker busy. The last entry of
    `by_type` is what idle workers draw. `sums` and `counts` are room for the watts and the number of running tasks of each type.
    """
    types = len(busy)
    now = query[0] if len(query) and (not len(time) or query[0] < time[0]) else (time[0] if len(time) else 0)
    begun = now
    total, at, running = 0.0, 0, 0
    n = len(time)
    for q in range(len(query)):
        while True:
            until = query[q]
            event = at < n and time[at] <= until
            if event:
                until = time[at]
            if until > now:
                dt = (until - now) * 1e-9
                warm = 1.0 + drift * (((now - begun) + (until - begun)) * 0.5e-9)
                slow = 1.0 - turbo * running / workers
                side = a >= 0 and b >= 0 and counts[a] > 0 and counts[b] > 0
                rest = idle_w * (workers - running)
                power = base_w + rest
                by_type[types] += rest * dt * warm
                for j in range(types):
                    if counts[j] > 0:
                        one = sums[j]
                        if busy[j]:
                            one *= slow
                            if side and (j == a or j == b):  # noqa: SIM109
                                one *= 1.0 - contention
                        power += one
                        by_type[j] += one * dt * warm
                total += power * dt * warm
                now = until
            if not event:
                break
            j = type_[at]
            counts[j] += sign[at]
            sums[j] += sign[at] * watts[at]
            if counts[j] == 0:
                sums[j] = 0.0
            if busy[j]:
                running += sign[at]
            at += 1
        energy[q] = total
