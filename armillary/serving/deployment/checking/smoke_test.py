"""Does an OpenAI-compatible endpoint really answer? The test sends a dozen requests that it must serve and some that it must refuse."""

from __future__ import annotations

import http.client
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from armillary.errors import one_line
from armillary.timing import Stopwatch

from ..endpoint.prometheus import parse
from .client import Client, Reply

#: The names under which engines count the tokens that they generated.
COUNTERS = ("vllm:generation_tokens_total", "sglang:generation_tokens_total", "llamacpp:tokens_predicted_total")
_PROMPT = "The quick brown fox"
_GREEDY = {"temperature": 0, "seed": 7, "max_tokens": 16}


@dataclass(frozen=True)
class Check:
    """One question to the endpoint and how it was answered."""

    name: str
    passed: bool
    said: str
    seconds: float


@dataclass(frozen=True)
class Smoke:
    """All checks, in the order in which they were made."""

    checks: tuple[Check, ...]
    model: str

    @property
    def passed(self) -> bool:
        """Whether every check passed."""
        return all(check.passed for check in self.checks)

    def text(self) -> str:
        """Returns one line per check."""
        lines = [f"{'ok  ' if c.passed else 'FAIL'}  {c.name:<12} {c.seconds:7.3f} s  {c.said}" for c in self.checks]
        return "\n".join([*lines, f"{sum(c.passed for c in self.checks)} of {len(self.checks)} checks passed"])


class _Wrong(Exception):
    """The endpoint did not do what the check expects."""


def smoke(url: str, *, key: str | None = None, model: str | None = None, concurrent: int = 16, timeout_s: float = 120.0) -> Smoke:
    """Tests the endpoint at `url`. It never raises for what the endpoint does, but raises InputError for a malformed URL."""
    client = Client(url, key, timeout_s)
    client._parts()
    run = _Run(client, model, concurrent)
    return Smoke(tuple(run.all()), run.model or "")


class _Run:
    def __init__(self, client: Client, model: str | None, concurrent: int) -> None:
        self.client, self.model, self.concurrent = client, model, concurrent
        self.before: float | None = None

    def all(self) -> Iterator[Check]:
        checks: list[Callable[[], str]] = [
            self.health, self.models, self.completion, self.stream, self.chat, self.parallel, self.wrong_key, self.wrong_model,
            self.oversize, self.nonsense, self.metrics,
        ]  # fmt: skip
        for check in checks:
            with Stopwatch() as watch:
                try:
                    said, passed = check(), True
                except _Wrong as problem:
                    said, passed = one_line(str(problem), 160), False
                except (OSError, http.client.HTTPException, ValueError, KeyError, TypeError, IndexError) as problem:
                    said, passed = one_line(f"{type(problem).__name__}: {problem}", 160), False
            yield Check(check.__name__.replace("_", " "), passed, said, watch.seconds)

    def health(self) -> str:
        reply = self.client.ask("/health")
        _expect(reply, 200)
        self.before = self._counted()
        return "200"

    def models(self) -> str:
        reply = self.client.ask("/v1/models")
        _expect(reply, 200)
        names = [str(entry["id"]) for entry in reply.json["data"]]
        if not names or (self.model is not None and self.model not in names):
            raise _Wrong(f"found the models {', '.join(names) or 'none'}; expected {self.model or 'at least one'}")
        self.model = self.model or names[0]
        return ", ".join(names[:4])

    def completion(self) -> str:
        _, tokens = self._whole(_PROMPT)
        if not 1 <= tokens <= 16:
            raise _Wrong(f"found {tokens} tokens; expected 1 to 16")
        return f"{tokens} tokens"

    def stream(self) -> str:
        whole, _ = self._whole(_PROMPT)
        events = [event for _, event in self.client.stream("/v1/completions", {"model": self.model, "prompt": _PROMPT, **_GREEDY})]
        parts = [choice["text"] for event in events for choice in event["choices"]]
        if "".join(parts) != whole:
            raise _Wrong(f"streamed {''.join(parts)!r}, but {whole!r} in one piece")
        return f"{len(parts)} chunks, the same text as in one piece"

    def chat(self) -> str:
        body = {"model": self.model, "messages": [{"role": "user", "content": "Say something."}], **_GREEDY}
        reply = self.client.ask("/v1/chat/completions", body)
        _expect(reply, 200)
        whole = reply.json["choices"][0]["message"]["content"] or ""
        events = [event for _, event in self.client.stream("/v1/chat/completions", body)]
        parts = "".join(choice["delta"].get("content") or "" for event in events for choice in event["choices"])
        if parts != whole:
            raise _Wrong(f"streamed {parts!r}, but {whole!r} in one piece")
        return f"{reply.json['usage']['completion_tokens']} tokens, the same with and without streaming"

    def parallel(self) -> str:
        with ThreadPoolExecutor(self.concurrent) as pool:
            found = list(pool.map(lambda i: self._whole(f"{_PROMPT} {i}"), range(self.concurrent)))
        return f"{len(found)} at once, {sum(tokens for _, tokens in found)} tokens"

    def wrong_key(self) -> str:
        reply = self.client.ask("/v1/models", key="not-the-key")
        if self.client.key is None and reply.status == 200:
            return "no key is required, so the endpoint serves whoever reaches it"
        _refused(reply, 401)
        return "401"

    def wrong_model(self) -> str:
        reply = self.client.ask("/v1/completions", {"model": "no-such-model", "prompt": "x", "max_tokens": 1})
        _refused(reply, 404)
        return "404"

    def oversize(self) -> str:
        reply = self.client.ask("/v1/completions", {"model": self.model, "prompt": "x " * 400_000, "max_tokens": 1})
        _refused(reply, 400, 413)
        return str(reply.status)

    def nonsense(self) -> str:
        reply = self.client.ask("/v1/completions", {"model": self.model, "prompt": "x", "max_tokens": -1})
        _refused(reply, 400, 422)
        return str(reply.status)

    def metrics(self) -> str:
        after = self._counted()
        if after is None or self.before is None:
            raise _Wrong(f"/metrics has none of {', '.join(COUNTERS)}")
        if after <= self.before:
            raise _Wrong(f"the count of generated tokens stayed at {after:g}")
        return f"{after - self.before:g} tokens more"

    def _counted(self) -> float | None:
        samples = parse(self.client.ask("/metrics").text)
        return next((samples[name] for name in COUNTERS if name in samples), None)

    def _whole(self, prompt: str) -> tuple[str, int]:
        reply = self.client.ask("/v1/completions", {"model": self.model, "prompt": prompt, **_GREEDY})
        _expect(reply, 200)
        choice = reply.json["choices"][0]
        if choice["finish_reason"] not in ("stop", "length"):
            raise _Wrong(f"finish_reason {choice['finish_reason']!r}")
        return str(choice["text"]), int(reply.json["usage"]["completion_tokens"])


def _expect(reply: Reply, status: int) -> None:
    if reply.status != status:
        raise _Wrong(f"status {reply.status}; expected {status}: {one_line(reply.text, 120)}")


def _refused(reply: Reply, *statuses: int) -> None:
    if reply.status not in statuses:
        raise _Wrong(f"status {reply.status}; expected {' or '.join(map(str, statuses))}")
    if not (isinstance(reply.json, dict) and isinstance(reply.json.get("error"), dict) and reply.json["error"].get("message")):
        raise _Wrong(f"status {reply.status}, but no OpenAI error object: {one_line(reply.text, 100)}")
