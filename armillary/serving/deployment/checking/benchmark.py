"""Loads an endpoint with Poisson arrivals and writes what it measured as `vllm bench serve --save-result --save-detailed` does."""

from __future__ import annotations

import http.client
import json
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from armillary.errors import InputError, one_line
from armillary.streams import stream
from armillary.workloads import arrivals

from .client import Client

_WORDS = [
    "time", "wave", "node", "core", "rank", "link", "file", "task", "page", "lock", "heap", "tree", "byte", "word", "loop", "path",
    "gate", "bank", "ring", "star",
]  # fmt: skip


@dataclass(frozen=True)
class Load:
    """The load: `requests` at `rate` per second (infinite: all at once), with `prompt` characters and `output` tokens each."""

    requests: int = 64
    rate: float = 8.0
    prompt: int = 128
    output: int = 32
    seed: int = 0

    def check(self) -> None:
        """Raises InputError for a load that makes no sense."""
        if not (1 <= self.requests <= 100_000 and self.rate > 0 and 1 <= self.prompt <= 1_000_000 and 1 <= self.output <= 1_000_000):
            raise InputError("load: expected 1 to 100,000 requests, a positive rate, and prompts and outputs of 1 to 1,000,000")

    def arrivals(self) -> np.ndarray:
        """Returns the seconds at which the requests are sent."""
        if np.isinf(self.rate):
            return np.zeros(self.requests)
        at = arrivals.poisson(stream(self.seed, "bench", "arrivals"), self.requests, self.rate)
        return np.asarray(at - at[0])

    def prompts(self) -> list[str]:
        """Returns one text per request. All texts begin differently, so that no prefix cache helps."""
        rng = stream(self.seed, "bench", "prompts")
        out = []
        for i in range(self.requests):
            words = rng.choice(_WORDS, self.prompt // 5 + 1)
            out.append(f"{i} {' '.join(words)}"[: self.prompt])
        return out


@dataclass
class _Heard:
    start: float = 0.0
    ttft: float = 0.0
    gaps: tuple[float, ...] = ()
    prompt: int = 0
    output: int = 0
    error: str = "not sent"


def bench(url: str, load: Load, *, key: str | None = None, model: str | None = None, timeout_s: float = 300.0) -> dict[str, Any]:
    """Sends the load and returns vLLM's record, with seconds in the lists and milliseconds in the means."""
    load.check()
    client = Client(url, key, timeout_s)
    if model is None:
        try:
            model = str(client.ask("/v1/models").json["data"][0]["id"])
        except (OSError, http.client.HTTPException, KeyError, TypeError, IndexError) as problem:
            raise InputError(f"no models there: {one_line(str(problem), 120)}", where=url) from None
    heard = [_Heard() for _ in range(load.requests)]
    threads = []
    begin = time.perf_counter()
    for at, prompt, one in zip(load.arrivals(), load.prompts(), heard, strict=True):
        wait = begin + float(at) - time.perf_counter()
        if wait > 0:
            time.sleep(wait)
        threads.append(threading.Thread(target=_listen, args=(client, model, prompt, load.output, one), daemon=True))
        threads[-1].start()
    for thread in threads:
        thread.join()
    return _record(heard, load, model, time.perf_counter() - begin, begin)


def _listen(client: Client, model: str, prompt: str, output: int, one: _Heard) -> None:
    body = {
        "model": model, "prompt": prompt, "max_tokens": output, "temperature": 0, "ignore_eos": True,
        "stream_options": {"include_usage": True},
    }  # fmt: skip
    one.start = last = time.perf_counter()
    gaps: list[float] = []
    try:
        for now, event in client.stream("/v1/completions", body):
            if event.get("usage"):
                one.prompt, one.output = int(event["usage"]["prompt_tokens"]), int(event["usage"]["completion_tokens"])
            if event["choices"]:
                gaps.append(now - last)
                last = now
        one.ttft, one.gaps = gaps[0], tuple(gaps[1:])
        one.output = one.output or len(gaps)
        one.error = ""
    except (OSError, http.client.HTTPException, ValueError, KeyError, TypeError, IndexError) as problem:
        one.error = one_line(f"{type(problem).__name__}: {problem}", 200)


def _record(heard: list[_Heard], load: Load, model: str, seconds: float, begin: float) -> dict[str, Any]:
    good = [h for h in heard if not h.error]
    inputs, outputs = sum(h.prompt for h in good), sum(h.output for h in good)
    out: dict[str, Any] = {
        "backend": "openai", "model_id": model, "num_prompts": load.requests,
        "request_rate": "inf" if np.isinf(load.rate) else load.rate, "duration": seconds, "completed": len(good),
        "total_input_tokens": inputs, "total_output_tokens": outputs, "request_throughput": len(good) / seconds,
        "output_throughput": outputs / seconds, "total_token_throughput": (inputs + outputs) / seconds,
        "input_lens": [h.prompt for h in heard], "output_lens": [h.output for h in heard], "ttfts": [h.ttft for h in heard],
        "itls": [list(h.gaps) for h in heard], "start_times": [h.start - begin for h in heard], "errors": [h.error for h in heard],
    }  # fmt: skip
    measured = {
        "ttft": [h.ttft for h in good],
        "tpot": [sum(h.gaps) / (h.output - 1) for h in good if h.output > 1],
        "itl": [gap for h in good for gap in h.gaps],
        "e2el": [h.ttft + sum(h.gaps) for h in good],
    }
    for name, values in measured.items():
        if values:
            out |= {f"mean_{name}_ms": 1e3 * float(np.mean(values)), f"median_{name}_ms": 1e3 * float(np.median(values))}
            out[f"p99_{name}_ms"] = 1e3 * float(np.percentile(values, 99))
    return out


def summary(record: dict[str, Any]) -> str:
    """Returns the record in a few lines."""
    lines = [f"{record['completed']} of {record['num_prompts']} requests in {record['duration']:.2f} s; measured"]
    lines.append(
        f"{record['request_throughput']:.2f} requests/s, {record['output_throughput']:.0f} output tokens/s, "
        f"{record['total_token_throughput']:.0f} tokens/s in all"
    )
    for name in ("ttft", "tpot", "itl"):
        if f"mean_{name}_ms" in record:
            parts = (f"{key} {record[f'{key}_{name}_ms']:.1f}" for key in ("mean", "median", "p99"))
            lines.append(f"{name.upper()} ms: {', '.join(parts)}")
    failed = sorted({e for e in record["errors"] if e})
    return "\n".join(lines + [f"failed: {e}" for e in failed[:3]])


def write(record: dict[str, Any], path: Path) -> None:
    """Writes the record as JSON, which `armillary.llm.Requests.read` reads."""
    path.write_text(json.dumps(record))
