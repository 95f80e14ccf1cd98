"""Writes and reads an engine's counters in Prometheus' format, under vLLM's names."""

from __future__ import annotations

import threading
from bisect import bisect_left

_EDGES = (0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0)
_SAID = {
    "num_requests_running": "Requests in the batch.",
    "num_requests_waiting": "Requests that wait for a place in the batch.",
    "gpu_cache_usage_perc": "Share of the blocks for keys and values that are in use; 1 means all.",
    "prompt_tokens": "Prompt tokens processed.",
    "generation_tokens": "Tokens given out.",
    "num_preemptions": "Number of times that a request was preempted.",
    "request_success": "Finished requests, by the reason why they ended.",
    "time_to_first_token_seconds": "Seconds from a request to its first token.",
    "e2e_request_latency_seconds": "Seconds from a request to its last token.",
}


class Counters:
    """Counters, gauges and histograms of one engine. The engine's thread writes them, and the endpoint reads them."""

    def __init__(self, model: str) -> None:
        self.model = model
        self.gauges = {"num_requests_running": 0.0, "num_requests_waiting": 0.0, "gpu_cache_usage_perc": 0.0}
        self._lock = threading.Lock()
        self._totals = {"prompt_tokens": 0, "generation_tokens": 0, "num_preemptions": 0}
        self._ended = {"stop": 0, "length": 0, "abort": 0}
        self._buckets = {name: [0] * (len(_EDGES) + 1) for name in ("time_to_first_token_seconds", "e2e_request_latency_seconds")}
        self._sums = dict.fromkeys(self._buckets, 0.0)

    def add(self, name: str, amount: int) -> None:
        """Adds `amount` to a counter."""
        with self._lock:
            self._totals[name] += amount

    def finish(self, why: str) -> None:
        """Counts a request that ended."""
        with self._lock:
            self._ended[why] = self._ended.get(why, 0) + 1

    def observe(self, name: str, seconds: float) -> None:
        """Puts a duration into its histogram."""
        with self._lock:
            self._buckets[name][bisect_left(_EDGES, seconds)] += 1
            self._sums[name] += seconds

    def text(self) -> str:
        """Returns all counters in Prometheus' text format 0.0.4."""
        label = f'model_name="{self.model}"'
        lines: list[str] = []

        def head(name: str, kind: str) -> str:
            full = f"vllm:{name}" + ("_total" if kind == "counter" else "")
            lines.extend((f"# HELP {full} {_SAID[name]}", f"# TYPE {full} {kind}"))
            return full

        with self._lock:
            for name, value in self.gauges.items():
                lines.append(f"{head(name, 'gauge')}{{{label}}} {value:g}")
            for name, total in self._totals.items():
                lines.append(f"{head(name, 'counter')}{{{label}}} {total}")
            full = head("request_success", "counter")
            lines += [f'{full}{{finished_reason="{why}",{label}}} {count}' for why, count in sorted(self._ended.items())]
            for name, counts in self._buckets.items():
                full, below = head(name, "histogram"), 0
                for edge, count in zip((*map(str, _EDGES), "+Inf"), counts, strict=True):
                    below += count
                    lines.append(f'{full}_bucket{{le="{edge}",{label}}} {below}')
                lines += [f"{full}_count{{{label}}} {below}", f"{full}_sum{{{label}}} {self._sums[name]:.9g}"]
        return "\n".join(lines) + "\n"


def parse(text: str) -> dict[str, float]:
    """Returns the samples of a Prometheus text, summed over their labels; lines without a sample are skipped."""
    out: dict[str, float] = {}
    for line in text.splitlines():
        name, _, value = line.rpartition(" ")
        name = name.partition("{")[0]
        if not name or line.startswith("#"):
            continue
        try:
            out[name] = out.get(name, 0.0) + float(value)
        except ValueError:
            continue
    return out
