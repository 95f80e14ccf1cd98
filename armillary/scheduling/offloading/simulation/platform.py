"""One function on a platform with one replica per backend, played event by event.

A pod serves one request at a time, in the order of arrival. The first pod starts when the function is deployed (time 0). A switch starts
the other backend's pod; when that is ready, arrivals go to it, and the old pod finishes what it has and stops. Metrics count completed
requests of the current revision only. While a switch is under way the controller is not asked.

When the GPU's node vanishes, its requests start anew: on the CPU where the policy allows it, else when the node is back and the pod has
started again. `down` holds such times as rows (from, until), in order and without overlap.

A service time or a cold start that is NaN is not known yet: the loop ends and says which one it needs, so that a real run can measure it
and play again; what was played before comes out the same.
"""

from __future__ import annotations

import math

import numpy as np

from armillary.kernels import loop
from armillary.scheduling.offloading.bandit import decide as bandit_decides
from armillary.scheduling.offloading.one_shot import decide as one_shot_decides
from armillary.scheduling.offloading.runtime.histogram import bucket_quantile
from armillary.scheduling.offloading.runtime.rules import CPU_PREFERRED, GPU_PREFERRED, LOST, MODE, change
from armillary.scheduling.offloading.runtime.rules import decide as gaia_decides

from .policy import (
    BACKEND,
    BANDIT,
    COUNT,
    COUNT_ALL,
    CPU,
    GAIA,
    GPU,
    GPU_UP,
    MEAN_ALL_MS,
    MEAN_MS,
    NOW_S,
    ONE_SHOT,
    P95_MS,
    RATE_1M,
    RATE_30M,
    STATIC,
    VIEW,
)  # fmt: skip

#: Statuses of the loop.
DONE, NEEDS_SERVICE, NEEDS_START = 0, 1, 2
#: Places of a pod: since when it is billed, when it is ready, until when it is busy, until when a pod that was replaced drains.
_SINCE, _READY, _FREE, _DRAIN = 0, 1, 2, 3
_MINUTE, _HALF_HOUR = 60.0, 1800.0


@loop
def _p95(now, window, revision, last, first, rev, end, latency, cold, exact, skip_cold, bounds, counts):  # type: ignore[no-untyped-def]
    """The 95th percentile in ms of the revision's requests that ended within the window; NaN if there is none."""
    counts[:] = 0.0
    many = 0
    values = np.empty(max(0, last - first + 1) if exact else 0)
    for j in range(last, first - 1, -1):
        if rev[j] != revision or end[j] > now or (skip_cold and cold[j]):
            continue
        if end[j] <= now - window:
            break
        ms = 1e3 * latency[j]
        if exact:
            values[many] = ms
        else:
            counts[np.searchsorted(bounds, ms)] += 1.0
        many += 1
    if many == 0:
        return math.nan
    if not exact:
        return bucket_quantile(0.95, bounds, counts)
    ordered = np.sort(values[:many])
    place = 0.95 * (many - 1)
    low = int(place)
    high = min(low + 1, many - 1)
    return ordered[low] + (place - low) * (ordered[high] - ordered[low])


@loop
def _look(view, now, interval, window, revision, last, first, rev, end, latency, cold, exact, skip_cold, bounds, counts, sums):  # type: ignore[no-untyped-def]
    """What the controller sees; sums holds the place up to which the revision was counted, its requests and their seconds."""
    minute, half_hour, lately, seconds = 0, 0, 0, 0.0
    seen = False
    for j in range(last, first - 1, -1):
        if rev[j] != revision or end[j] > now:
            continue
        seen = True
        if end[j] <= now - _HALF_HOUR and end[j] <= now - interval:
            break
        if end[j] > now - _HALF_HOUR:
            half_hour += 1
        if end[j] > now - _MINUTE:
            minute += 1
        if end[j] > now - interval and not cold[j]:
            lately += 1
            seconds += latency[j]
    place = max(int(sums[0]), first)
    while place <= last:
        if rev[place] == revision:
            if end[place] > now:
                break
            if not cold[place]:
                sums[1] += 1.0
                sums[2] += latency[place]
        place += 1
    sums[0] = place
    view[NOW_S] = now
    view[RATE_1M] = minute / _MINUTE if seen else math.nan
    view[RATE_30M] = half_hour / _HALF_HOUR if seen else math.nan
    view[P95_MS] = _p95(now, window, revision, last, first, rev, end, latency, cold, exact, skip_cold, bounds, counts)
    view[COUNT] = lately
    view[MEAN_MS] = 1e3 * seconds / lately if lately else math.nan
    view[COUNT_ALL] = sums[1]
    view[MEAN_ALL_MS] = 1e3 * sums[2] / sums[1] if sums[1] > 0 else math.nan


@loop
def _unused_s(pod, until, keep):  # type: ignore[no-untyped-def]
    """Seconds before `until` for which an idle pod was scaled to zero."""
    return max(0.0, until - max(pod[_FREE], pod[_READY]) - keep)


@loop
def _stop(pod, until, keep):  # type: ignore[no-untyped-def]
    """Seconds that a pod is billed if it stops at `until`."""
    return max(0.0, until - pod[_SINCE] - _unused_s(pod, until, keep))


@loop
def _serve(j, b, now, revision, arrival, service, starts, started, keep, pods, pod_s, rev, end, latency, backend, cold):  # type: ignore[no-untyped-def]
    """Puts request j into the queue of backend b; answers whether a time is missing."""
    if math.isnan(service[b, j]):
        return NEEDS_SERVICE
    pod = pods[b]
    idle = _unused_s(pod, now, keep)
    if idle > 0:
        begin = starts[b, started[b] % starts.shape[1]]
        if math.isnan(begin):
            return NEEDS_START
        started[b] += 1
        pod_s[b] -= idle
        pod[_READY] = now + begin
    cold[j] = pod[_READY] > now
    end[j] = max(now, pod[_READY], pod[_FREE]) + service[b, j]
    pod[_FREE] = end[j]
    latency[j] = end[j] - arrival[j]
    backend[j], rev[j] = b, revision
    return DONE


@loop
def play_function(  # type: ignore[no-untyped-def]
    code, settings, state, interval, window, long_window, exact, skip_cold, fallback, first_backend, first_look, closed, arrival,
    service, starts, down, horizon, keep, bounds, end, latency, backend, cold, pod_s, log,
):  # fmt: skip
    """(status, request, backend, switches, end of the run). Fills end, latency, backend and cold per request, pod_s per backend, and log.

    log gets rows (time, backend, rule) of switches as far as it has room; rules are Gaia's, −1 for another policy's decision.
    """
    n = service.shape[1]
    rev, counts, view, sums = np.zeros(n, np.int64), np.zeros(len(bounds) + 1), np.zeros(VIEW), np.zeros(3)
    pods, started = np.full((2, 4), -math.inf), np.zeros(2, np.int64)
    pod_s[:] = 0.0
    cur, pending, pending_ready, revision, first_of, switches = first_backend, -1, math.inf, 0, 0, 0
    events = 2 * down.shape[0]
    event = 0
    up = True
    if events > 0 and down[0, 0] <= 0.0:
        up, event = False, 1
        if cur == GPU and fallback:
            cur = CPU
    since = 0.0 if up or cur == CPU else down[0, 1]
    begin = starts[cur, 0]
    if math.isnan(begin):
        return NEEDS_START, 0, cur, 0, 0.0
    started[cur] = 1
    pods[cur, _SINCE], pods[cur, _READY] = since, since + begin
    look, i, stop = first_look, 0, horizon
    if closed and n > 0:
        arrival[0] = 0.0
    while True:
        stop = horizon
        for b in range(2):
            if i > 0:
                stop = max(stop, pods[b, _FREE])
        if i < n and closed and i > 0:
            arrival[i] = end[i - 1]
        arrives = arrival[i] if i < n else math.inf
        changes = down[event // 2, event % 2] if event < events else math.inf
        ready = pending_ready if pending >= 0 else math.inf
        now = min(min(arrives, changes), min(ready, look))
        if i >= n and now > stop:
            break
        if now == ready:
            old = cur
            cur, pending, pending_ready = pending, -1, math.inf
            pods[cur, _READY], pods[cur, _FREE] = now, max(pods[cur, _FREE], now)
            until = max(now, pods[old, _FREE])
            if pods[old, _SINCE] > -math.inf:
                pod_s[old] += _stop(pods[old], until, keep)
            pods[old, _DRAIN], pods[old, _SINCE] = until, -math.inf
        elif now == changes:
            up = event % 2 == 1
            event += 1
            if not up:
                back = down[(event - 1) // 2, 1]
                lost = i
                for j in range(i - 1, -1, -1):
                    if backend[j] == GPU:
                        if end[j] <= now:
                            break
                        lost = j
                if pods[GPU, _SINCE] > -math.inf:
                    pods[GPU, _FREE] = min(pods[GPU, _FREE], now)
                    pod_s[GPU] += _stop(pods[GPU], now, keep)
                elif pods[GPU, _DRAIN] > now:
                    pod_s[GPU] -= pods[GPU, _DRAIN] - now
                on_gpu = cur == GPU or pending == GPU
                pods[GPU] = -math.inf
                if on_gpu and not fallback:
                    begin = starts[GPU, started[GPU] % starts.shape[1]]
                    if math.isnan(begin):
                        return NEEDS_START, started[GPU], GPU, switches, now
                    started[GPU] += 1
                    pods[GPU, _SINCE], pods[GPU, _READY] = back, back + begin
                    if pending == GPU:
                        pending_ready = back + begin
                elif on_gpu:
                    if code == GAIA:
                        known = _p95(now, long_window, revision, i - 1, first_of, rev, end, latency, cold, exact, skip_cold, bounds, counts)
                        change(settings, state, CPU_PREFERRED, now, known)
                    revision, first_of, switches = revision + 1, lost, switches + 1
                    sums[0], sums[1], sums[2] = lost, 0.0, 0.0
                    if switches <= len(log):
                        log[switches - 1, 0], log[switches - 1, 1], log[switches - 1, 2] = now, CPU, LOST
                    if cur == GPU and pending != CPU:
                        if pods[CPU, _DRAIN] > now:
                            pod_s[CPU] -= pods[CPU, _DRAIN] - now
                            pods[CPU, _SINCE], pods[CPU, _READY] = now, now
                        else:
                            begin = starts[CPU, started[CPU] % starts.shape[1]]
                            if math.isnan(begin):
                                return NEEDS_START, started[CPU], CPU, switches, now
                            started[CPU] += 1
                            pods[CPU] = -math.inf
                            pods[CPU, _SINCE], pods[CPU, _READY] = now, now + begin
                    elif cur == GPU:
                        pods[CPU, _READY] = pending_ready
                    cur, pending, pending_ready = CPU, -1, math.inf
                for j in range(lost, i):
                    if backend[j] == GPU and end[j] > now:
                        status = _serve(j, cur, now, revision, arrival, service, starts, started, keep, pods, pod_s, rev, end, latency,
                                        backend, cold)  # fmt: skip
                        if status != DONE:
                            return status, j if status == NEEDS_SERVICE else started[cur], cur, switches, now
        elif now == look:
            look += interval
            if pending < 0 and code > 0:
                _look(view, now, interval, window, revision, i - 1, first_of, rev, end, latency, cold, exact, skip_cold, bounds, counts,
                      sums)  # fmt: skip
                view[BACKEND], view[GPU_UP] = cur, 1.0 if up else 0.0
                want, rule, mode = cur, -1, -1
                if code == GAIA:
                    mode, rule = gaia_decides(settings, state, now, view[RATE_1M], view[RATE_30M], view[P95_MS])
                    want = GPU if mode >= GPU_PREFERRED else CPU
                elif code == ONE_SHOT:
                    want = one_shot_decides(settings, state, view)
                elif code == BANDIT:
                    want = bandit_decides(settings, state, view)
                elif code == STATIC:
                    want = first_backend
                if want == GPU and not up and cur == CPU:
                    want, mode = cur, -1
                if mode >= 0 and mode != state[MODE]:
                    known = _p95(now, long_window, revision, i - 1, first_of, rev, end, latency, cold, exact, skip_cold, bounds, counts)
                    change(settings, state, mode, now, known)
                if want != cur:
                    revision, first_of, switches = revision + 1, i, switches + 1
                    sums[0], sums[1], sums[2] = i, 0.0, 0.0
                    pending = want
                    if switches <= len(log):
                        log[switches - 1, 0], log[switches - 1, 1], log[switches - 1, 2] = now, want, rule
                    if pods[want, _DRAIN] > now:
                        pod_s[want] -= pods[want, _DRAIN] - now
                        pods[want, _SINCE], pending_ready = now, now
                    else:
                        begin = starts[want, started[want] % starts.shape[1]]
                        if math.isnan(begin):
                            return NEEDS_START, started[want], want, switches, now
                        started[want] += 1
                        pods[want] = -math.inf
                        pods[want, _SINCE], pending_ready = now, now + begin
        else:
            # A request that arrives while a switch is under way belongs to the revision before.
            own = revision if pending < 0 else revision - 1
            status = _serve(i, cur, now, own, arrival, service, starts, started, keep, pods, pod_s, rev, end, latency, backend, cold)
            if status != DONE:
                return status, i if status == NEEDS_SERVICE else started[cur], cur, switches, now
            i += 1
    for b in range(2):
        if pods[b, _SINCE] > -math.inf and pods[b, _SINCE] < stop:
            pod_s[b] += _stop(pods[b], stop, keep)
    return DONE, 0, 0, switches, stop
