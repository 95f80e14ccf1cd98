"""The twin's speed and ROCK's dispatch on this machine.

python benchmarks/adapters_speed.py [image requests] prints: an hour of 27,119 requests (128 adapters at 0.1/0.05/0.025 requests a second)
on the twin and on the ground simulator, both in one run, as ratios, beside the released pure-Python twin's published 2.3 s for as many
requests (another machine); and microseconds of a ROCK dispatch at 4,000 LoRAs and 64 workers. Last, one JSON object.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from armillary.llm import Adapters
from armillary.serving.adapters.engine import measured
from armillary.serving.adapters.engine.gpu_engine import GpuEngine
from armillary.serving.adapters.engine.twin import load_ms
from armillary.serving.adapters.images.policy import genai_64
from armillary.serving.adapters.images.service import serve
from armillary.serving.adapters.images.workload import synthetic
from armillary.serving.adapters.rock import Rock, RockPolicy

PUBLISHED_S, REPEATS = 2.3, 5


def best(work: Callable[[], Any]) -> float:
    """Seconds of the fastest of some calls: the machine may be shared."""
    seconds = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - start)
    return min(seconds)


def twins() -> dict[str, float]:
    """Seconds of the same hour on the twin and on the ground simulator."""
    row = next(r for r in measured.rows() if (r.rates[0], r.slots, r.adapters) == (0.1, 64, 128))
    work = measured.requests(row)
    work = work.take(np.arange(len(work)) < 27_119)
    engine = GpuEngine()
    twin, replica = engine.twin(row.slots, measured.MAX_RANK), engine.replica(row.slots, measured.MAX_RANK)
    loads = [load_ms(measured.MODEL, measured.MAX_RANK, r) / 1e3 for r in row.rank_of]
    adapters = Adapters(row.rank_of, host_s=loads, disk_s=loads)
    steps = twin.run(work, row.rank_of).steps
    replica.run(work, adapters=adapters)
    seconds = {"twin": best(lambda: twin.run(work, row.rank_of)), "ground": best(lambda: replica.run(work, adapters=adapters))}
    return {**seconds, "requests": float(len(work)), "steps_per_s": steps / seconds["twin"], "published twin": PUBLISHED_S}


class Timed(RockPolicy):
    """ROCK, with the time of every answer."""

    spent = 0.0
    answers = 0

    def next(self, worker: int, now: float) -> Any:
        """A timed answer."""
        start = time.perf_counter()
        decision = super().next(worker, now)
        self.spent += time.perf_counter() - start
        self.answers += 1
        return decision


def dispatch(requests: int) -> dict[str, float]:
    """Microseconds a dispatch, and seconds of the whole run."""
    trace = synthetic(1.88, requests / 1.88, np.random.default_rng(0), loras=4000, bursts=True, swing=0.3)
    policy = Timed(Rock())
    start = time.perf_counter()
    serve(trace, policy, genai_64())
    seconds = time.perf_counter() - start
    return {"requests": float(len(trace)), "seconds": seconds, "us a question": 1e6 * policy.spent / policy.answers,
            "us a dispatch": 1e6 * policy.spent / len(trace)}  # fmt: skip


def main() -> None:
    """Measures and prints."""
    requests = int(sys.argv[1]) if len(sys.argv) > 1 else 20_000
    found = {"twin": twins(), "rock": dispatch(requests)}
    t = found["twin"]
    print(f"twin   {t['twin']:8.4f} s for {t['requests']:.0f} requests, {t['steps_per_s']:,.0f} steps a second")
    print(f"ground {t['ground']:8.4f} s: the twin takes {t['twin'] / t['ground']:.2f} of its time")
    print(f"released twin {PUBLISHED_S} s as published, on another machine: {PUBLISHED_S / t['twin']:.0f} times ours")
    r = found["rock"]
    print(f"ROCK   {r['us a dispatch']:.0f} us a dispatch ({r['us a question']:.0f} us a question)")
    print(f"       {r['seconds']:.1f} s for {r['requests']:.0f} requests")
    print(json.dumps(found))


if __name__ == "__main__":
    main()
