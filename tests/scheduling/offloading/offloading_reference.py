"""Plain Python that shares no code with the arena: Gaia's rules, Prometheus' quantile, and a platform without lost devices."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, field
from typing import Any

BOUNDS = [
    5,
    10,
    20,
    40,
    60,
    80,
    100,
    150,
    200,
    250,
    300,
    350,
    400,
    450,
    500,
    600,
    700,
    800,
    900,
    1000,
    2000,
    5000,
    10000,
    20000,
    50000,
    100000,
]


def quantile(q: float, latencies_ms: list[float]) -> float | None:
    """What histogram_quantile says of latencies that were put into Knative's buckets."""
    if not latencies_ms:
        return None
    cumulative = [sum(ms <= bound for ms in latencies_ms) for bound in BOUNDS]
    rank = q * len(latencies_ms)
    for k, count in enumerate(cumulative):
        before = cumulative[k - 1] if k else 0
        if count >= rank and count > before:
            low = BOUNDS[k - 1] if k else 0
            return low + (BOUNDS[k] - low) * (rank - before) / (count - before)
    return float(BOUNDS[-1])


@dataclass
class Rules:
    """The seven rules, as the specification lists them, with our pause of two minutes between changes."""

    mode: str = "cpu_preferred"
    upper: float = 1000.0
    gap: float = 200.0
    guard: float = 0.1
    window_min: int = 10
    pause_min: int = 2
    remember: str = "max"
    cpu: float | None = None
    gpu: float | None = None
    changed: float | None = None
    history: list[tuple[float, str]] = field(default_factory=list)

    def decide(self, now: float, rate1: float | None, rate30: float | None, p95: float | None) -> str | None:
        """The mode to change to, or None."""
        if self.mode in ("cpu", "gpu"):
            return None
        minutes = None if self.changed is None else int((now - self.changed) // 60)
        if minutes is not None and minutes < self.pause_min:
            return None
        if self.cpu is not None and self.gpu is not None and self.cpu >= 100_000 and self.cpu - self.gap > self.gpu:
            return "gpu"
        if not (rate1 is None or rate1 < self.guard) and p95 is not None:
            if self.mode == "cpu_preferred" and p95 > self.upper and (self.gpu is None or self.gpu + self.gap <= p95):
                return "gpu_preferred"
            if minutes is not None and 2 <= minutes < self.window_min:
                if self.mode == "gpu_preferred" and self.cpu is not None and p95 + self.gap >= self.cpu:
                    return "cpu_preferred"
                if self.mode == "cpu_preferred" and self.gpu is not None and p95 - self.gap >= self.gpu:
                    return "gpu_preferred"
        still = minutes is None or minutes >= self.window_min
        if self.mode == "gpu_preferred" and still and (rate30 is None or rate30 < 0.01) and (self.cpu is None or self.cpu < 2000):
            return "cpu_preferred"
        return None

    def change(self, mode: str, now: float, long_p95: float | None) -> None:
        """Enters a mode and stores what the mode that is left had."""
        name = "cpu" if self.mode.startswith("cpu") else "gpu"
        old = getattr(self, name)
        if long_p95 is not None:
            setattr(self, name, long_p95 if old is None or self.remember == "last" else max(old, long_p95))
        self.mode, self.changed = mode, now
        self.history.append((now, mode))


def play(work: Any, rules: Rules | None, backend: int, interval: float = 30.0) -> dict[str, Any]:
    """One function without lost devices: every second event is found by looking at all of them."""
    n, service, starts = len(work), work.service_s, work.start_s[0]
    used = [0, 0]

    def start(b: int) -> float:
        used[b] += 1
        return float(starts[b, (used[b] - 1) % starts.shape[1]])

    ready, free, on = {backend: start(backend)}, {0: 0.0, 1: 0.0}, {backend: 0.0}
    seconds = [0.0, 0.0]
    done: list[tuple[float, float, int]] = []  # (end, latency, revision)
    target: int | None = None
    revision, target_ready = 0, math.inf
    look, i, switches = work.first_look(0, interval), 0, []
    end_of_last = 0.0
    while True:
        arrives = math.inf if i >= n else (end_of_last if work.closed else float(work.arrival_s[i]))
        stop = max([work.horizon_s, *(end for end, _, _ in done)])
        now = min(arrives, look, target_ready)
        if i >= n and now > stop:
            break
        if target is not None and now == target_ready:
            old = backend
            seconds[old] += max(now, free[old]) - on.pop(old)
            backend, target, target_ready = target, None, math.inf
            ready[backend] = now
        elif now == look:
            look += interval
            if rules is not None and target is None:
                seen = [(end, ms) for end, ms, r in done if r == revision and end <= now]
                minute, short, half_hour, long = ([ms for end, ms in seen if end > now - s] for s in (60, 600, 1800, 30_000))
                rate1, rate30 = (len(minute) / 60, len(half_hour) / 1800) if seen else (None, None)
                mode = rules.decide(now, rate1, rate30, quantile(0.95, short))
                if mode is not None and mode != rules.mode:
                    rules.change(mode, now, quantile(0.95, long))
                    wanted = 1 if mode.startswith("gpu") else 0
                    if wanted != backend:
                        revision += 1
                        switches.append((now, wanted))
                        target = wanted
                        if free[wanted] > now:  # It still drains: its seconds were counted until it would have been empty.
                            seconds[wanted] -= free[wanted] - now
                            target_ready = now
                        else:
                            target_ready = now + start(wanted)
                        on[wanted] = now
        else:
            begin = max(now, ready[backend], free[backend])
            end = begin + float(service[backend, i])
            free[backend] = end_of_last = end
            done.append((end, 1e3 * (end - now), revision if target is None else revision - 1))
            i += 1
    for b, since in on.items():
        seconds[b] += max(0.0, stop - since)
    return {"latency_ms": [ms for _, ms, _ in done], "seconds": seconds, "switches": switches, "end": stop}


def best_plan(work: Any, value: float) -> float:
    """The least value·latency + pod seconds × price over all 2^n routes, each played by hand."""
    n, cold = len(work), work.start_s[0, :, 0]
    best = math.inf

    def bill(b: int, begin: float, end: float) -> float:
        away = sum(max(0.0, min(end, up) - max(begin, down)) for down, up in work.down_s) if b else 0.0
        return float(work.prices[b] * (max(0.0, end - begin) - away))

    for route in itertools.product((0, 1), repeat=n):
        cost = at = free = paid = 0.0
        for i, b in enumerate(route):
            at = (free if i else 0.0) if work.closed else float(work.arrival_s[i])
            ready = cold[b] if i == 0 else free
            if i:
                old = route[i - 1]
                cost += bill(old, paid, at)
                paid = at
                if old != b:
                    cost += bill(old, at, max(at, free)) + work.prices[b] * min(cold[b], at)
                    ready = max(at, cold[b])
            begin = max(at, ready)
            if b == 1:
                for down, up in work.down_s:
                    if up > begin and down < begin + work.service_s[1, i]:
                        begin = up + cold[1]
            free = begin + float(work.service_s[b, i])
            cost += value * (free - at)
        cost += bill(route[-1], paid, max(work.horizon_s, free))
        best = min(best, cost)
    return best
