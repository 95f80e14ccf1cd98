"""The endpoint and the renderers on this machine: time to ready, tokens a second over many streams, seconds to render and check.

python benchmarks/deployment_speed.py [streams] prints what was measured and one JSON object. The client runs on the same cores as the
server. The targets beside the figures are those of the specification: ready within 5 s, 40 streams, 500 output tokens a second, render
and check within 2 s a target. OpenAI's own client is a peer: the same streams through it, where it is installed.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from armillary.serving.deployment import TARGETS, Load, Service, bench, check, running, smoke
from armillary.serving.deployment.description.files import built_in

OUTPUT = 64


def through_openai(url: str, streams: int) -> float | None:
    """Output tokens a second of the same load through OpenAI's client; None where it is not installed."""
    try:
        import openai
    except ImportError:
        return None

    async def all_at_once() -> float:
        async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as client:

            async def one(prompt: str) -> int:
                how: dict[str, Any] = {"extra_body": {"ignore_eos": True}}
                events = await client.completions.create(
                    model="tiny-llama", prompt=prompt, max_tokens=OUTPUT, temperature=0, stream=True, **how
                )
                return sum([1 async for event in events if event.choices])

            begin = time.perf_counter()
            counts = await asyncio.gather(*(one(prompt) for prompt in Load(streams, float("inf"), 64, OUTPUT, seed=1).prompts()))
            return sum(counts) / (time.perf_counter() - begin)

    return asyncio.run(all_at_once())


def rendering() -> dict[str, float]:
    """The slowest service's seconds to render and check, by target."""
    services = [Service.read(name) for name in built_in()]
    out = {}
    for target in TARGETS:
        seconds = []
        for service in services:
            begin = time.perf_counter()
            check(service.render(target), target)
            seconds.append(time.perf_counter() - begin)
        out[target] = max(seconds)
    return out


def main(streams: int) -> None:
    """Measures and prints."""
    found: dict[str, Any] = {"streams": streams}
    with tempfile.TemporaryDirectory() as folder:
        ready = []
        for number in range(3):
            with running(Service.read("tiny"), "bare", Path(folder) / str(number)) as up:
                ready.append(up.ready_s)
        found["ready_s"] = statistics.median(ready)
        with running(Service.read("tiny"), "bare", Path(folder) / "load") as up:
            found["smoke_passed"] = smoke(up.url).passed
            load = Load(streams, float("inf"), 64, OUTPUT)
            bench(up.url, load)
            runs = [bench(up.url, load) for _ in range(3)]
            found["output_tok_per_s"] = statistics.median(r["output_throughput"] for r in runs)
            found["completed"] = min(r["completed"] for r in runs)
            found["median_ttft_ms"] = statistics.median(r["median_ttft_ms"] for r in runs)
            found["openai_client_tok_per_s"] = through_openai(up.url, streams)
    found["render_and_check_s"] = rendering()
    print(f"ready: {found['ready_s']:.1f} s from the start of the script (expected at most 5)")
    print(f"{streams} streams at once: {found['output_tok_per_s']:.0f} output tokens/s (expected 500), {found['completed']} answered")
    if found["openai_client_tok_per_s"] is None:
        print("openai is not installed: left out")
    else:
        print(f"the same through OpenAI's client: {found['openai_client_tok_per_s']:.0f} output tokens/s")
    slowest = max(found["render_and_check_s"].items(), key=lambda item: item[1])
    print(f"render and check: at most {slowest[1]:.2f} s ({slowest[0]}; expected at most 2)")
    print(json.dumps(found))


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 48)
