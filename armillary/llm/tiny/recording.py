"""Runs requests on the real engine in real time, and records what a benchmark of vLLM would record."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from ..serving.requests import Requests
from .generation import Engine


def record(engine: Engine, requests: Requests, *, seed: int = 0) -> dict[str, Any]:
    """Serves `requests` (random tokens of their lengths) at their own arrival times; the record has vLLM's keys, with times in seconds."""
    rng = np.random.default_rng(seed)
    vocabulary = engine.model.shape.vocab
    prompts = [rng.integers(0, vocabulary, int(n)).tolist() for n in requests.prompt]
    n = len(requests)
    number: dict[int, int] = {}
    times: list[list[float]] = [[] for _ in range(n)]
    begun = time.perf_counter()
    sent = done = 0
    starts = np.zeros(n)
    while done < n:
        now = time.perf_counter() - begun
        while sent < n and requests.arrival_s[sent] <= now:
            number[engine.submit(prompts[sent], int(requests.output[sent]))] = sent
            starts[sent] = requests.arrival_s[sent]
            sent += 1
        if not number:
            time.sleep(max(0.0, min(0.001, requests.arrival_s[sent] - now)))
            continue
        out = engine.step()
        now = time.perf_counter() - begun
        for q, _ in out:
            times[number[q]].append(now)
            if engine.tickets[q].finished:
                engine.take(q)
                del number[q]
                done += 1
    first = np.array([t[0] for t in times])
    return {
        "backend": "armillary-tiny", "num_prompts": n, "completed": n, "duration": time.perf_counter() - begun,
        "input_lens": requests.prompt.tolist(), "output_lens": requests.output.tolist(), "start_times": starts.tolist(),
        "ttfts": (first - starts).tolist(), "itls": [np.diff(t).tolist() for t in times], "errors": [""] * n,
    }  # fmt: skip
