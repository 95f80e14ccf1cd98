"""Asks a language model behind any OpenAI-compatible endpoint, as Rudder does; nothing contacts one unless a person names it.

The system message has the sizes of graph and buffer, what the figures mean, and the rules; the user's message has the window and the
history. The answer is a JSON object with `decision` ("replace" or "keep"), `explanation` and `expected_impact`. Whatever else comes back,
or nothing, is an invalid decision, which is noted and never applied. The words of the messages are ours.
"""

from __future__ import annotations

import json
import logging
import urllib.error
import urllib.parse
import urllib.request
from dataclasses import dataclass
from http.client import HTTPException
from typing import Any

from armillary.errors import InputError, one_line

from .loop import Decision, Effect, History, Static, Window

#: Bytes of an answer.
MOST_BYTES = 1 << 20
CHANGES = ("increase", "decrease", "stagnant")
_log = logging.getLogger(__name__)

RULES = """\
You steer a cache of remote vertex features beside a trainer of a graph neural network.
A replacement fetches hot missing vertices in place of entries that were not used lately. Fetching them costs communication.

Sizes: {vertices} vertices, {edges} edges, part {part} of {parts}, {halo} remote vertices in reach, a cache of {capacity} vertices,
{batch} seeds per minibatch, {minibatches} minibatches in all. Figures are averages over {window} minibatches.

hit_rate: the percentage of remote vertices that were found in the cache since training began; higher is better.
comm: remote vertices that had to be fetched per minibatch; lower is better.
sampled: remote vertices that were sampled per minibatch. It follows the sampler, and no decision of yours changes it.

Rules:
1. Replace if hit_rate is 0.
2. Replace if hit_rate fell or is low, or if comm rises.
3. Keep if the last attempt found no candidates, if the last two or three attempts changed nothing, if hit_rate rises without a
   replacement, or if less than 5 % of the minibatches remain.

Answer with one JSON object and nothing else:
{{"decision": "replace" or "keep", "explanation": "one or two sentences about hit_rate, comm and past decisions",
 "expected_impact": {{"hit_rate": "increase", "decrease" or "stagnant", "comm": "increase", "decrease" or "stagnant"}}}}"""


@dataclass(frozen=True)
class ChatPolicy:
    """A policy that asks `model` at `url`, the address that /chat/completions is appended to."""

    url: str
    model: str
    timeout_s: float = 60.0
    temperature: float = 0.0

    def __post_init__(self) -> None:
        parts = urllib.parse.urlsplit(self.url)
        if parts.scheme not in ("http", "https") or not parts.netloc:
            found = one_line(self.url, 80) or "no address"
            raise InputError(f"found {found}; expected the http address of an OpenAI-compatible endpoint", where="url")
        if not self.model:
            raise InputError("found no name; expected the name of a model of the endpoint", where="model")

    def decide(self, static: Static, window: Window, history: History) -> Decision:
        """The model's decision, or an invalid one."""
        try:
            answer = self._ask(messages(static, window, history))
        except (OSError, HTTPException, ValueError) as error:
            return _invalid(f"no answer ({type(error).__name__}: {one_line(str(error), 100)})")
        return parsed(answer)

    def _ask(self, said: list[dict[str, str]]) -> bytes:
        body = {"model": self.model, "messages": said, "temperature": self.temperature, "stream": False}
        request = urllib.request.Request(
            self.url.rstrip("/") + "/chat/completions", json.dumps(body).encode(), {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=self.timeout_s) as response:
            found: bytes = response.read(MOST_BYTES + 1)
        return found


def messages(static: Static, window: Window, history: History) -> list[dict[str, str]]:
    """The system's and the user's message."""
    lines = [_line(effect) for effect in history] or ["none yet"]
    now = f"minibatch {window.minibatch}, {window.remaining} remain, hit_rate {window.hit_rate:g} %, comm {window.comm:.0f}, "
    asked = f"Now: {now}sampled {window.sampled:.0f}.\nPast decisions, the oldest first:\n" + "\n".join(lines)
    return [{"role": "system", "content": RULES.format(**vars(static))}, {"role": "user", "content": asked}]


def parsed(answer: bytes) -> Decision:
    """The decision in the body of a chat completion."""
    if len(answer) > MOST_BYTES:
        return _invalid(f"an answer of more than {MOST_BYTES:,} bytes")
    try:
        content = json.loads(answer)["choices"][0]["message"]["content"]
        made = json.loads(_inner(content))
    except (ValueError, KeyError, IndexError, TypeError, RecursionError, AttributeError) as error:
        return _invalid(f"no JSON object where the answer should be ({type(error).__name__})")
    return _checked(made)


def _inner(content: str) -> str:
    """The answer without the fence that many models put around JSON."""
    text = content.strip()
    if text.startswith("```"):
        text = text.removeprefix("```").removeprefix("json").removesuffix("```")
    return text


def _checked(made: Any) -> Decision:
    if not isinstance(made, dict) or made.get("decision") not in ("replace", "keep"):
        return _invalid('no "decision" of "replace" or "keep"')
    impact = made.get("expected_impact")
    if not isinstance(made.get("explanation"), str) or not isinstance(impact, dict):
        return _invalid('no "explanation" or no "expected_impact"')
    expected = {name: str(impact.get(name)) for name in ("hit_rate", "comm")}
    if any(change not in CHANGES for change in expected.values()):
        return _invalid(f'an "expected_impact" other than {", ".join(CHANGES)}')
    return Decision(made["decision"] == "replace", expected, one_line(made["explanation"], 400))


def _invalid(why: str) -> Decision:
    _log.warning("the language model's answer is invalid: %s", why)
    return Decision(False, reason=why, valid=False)


def _line(effect: Effect) -> str:
    said = {
        "replaced": f"replace; {effect.moved} vertices, {100 * effect.share:.1f} % of the cache, were exchanged",
        "skipped": "replace; there were no candidates",
        "declined": "keep",
        "invalid": "an answer that could not be read; nothing was done",
    }[effect.kind]
    if effect.hit_rate_points is None:
        return f"minibatch {effect.minibatch}: {said}"
    percent = {"comm": effect.comm_percent, "sampled": effect.sampled_percent}
    changes = [f"hit_rate {effect.hit_rate_points:+g} points"]
    changes += [f"{name} {value:+g} %" for name, value in percent.items() if value is not None]
    return f"minibatch {effect.minibatch}: {said}; since then {', '.join(changes)}"
