"""Caches of the scored buffer: steered by a policy whose answers take their time, or replaced at given minibatches."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from armillary.training.prefetch.analysis.look_ahead import saving
from armillary.training.prefetch.buffers.scored import Exchange, Found, ScoredBuffer, hottest
from armillary.training.prefetch.control.loop import ControlLoop, Decision, Policy, Record, Static
from armillary.training.prefetch.workload import Positions, PrefetchWork, Trainer

from .replay import Fetch

STARTS = ("degree", "local", "random", "empty")


def first_content(
    work: PrefetchWork, trainer: Trainer, start: str = "degree", rng: np.random.Generator | None = None
) -> npt.NDArray[np.int64]:
    """The halo positions that a buffer starts with: those with most neighbours, with most in the own part, random ones, or none."""
    capacity = work.capacity(trainer)
    if start == "empty":
        return np.zeros(0, np.int64)
    if start == "random":
        rng = np.random.default_rng(0) if rng is None else rng
        return np.sort(rng.permutation(len(trainer.halo))[:capacity]).astype(np.int64)
    return hottest(trainer.local if start == "local" else trainer.degree, capacity)


def scored(work: PrefetchWork, trainer: Trainer, content: npt.ArrayLike, *, alpha: float, period: int) -> ScoredBuffer:
    """The scored buffer of a trainer; its vertices are halo positions."""
    return ScoredBuffer(work.capacity(trainer), np.arange(len(trainer.halo)), content, alpha=alpha, period=period)


def merged(found: Found, exchange: Exchange | None, halo: int) -> npt.NDArray[np.int64]:
    """The misses of a minibatch and what enters the buffer, each once: they are fetched in one request."""
    if exchange is None or not len(exchange):
        return found.missed
    missing = np.zeros(halo, bool)
    missing[found.missed] = True
    return np.concatenate([found.missed, exchange.entering[~missing[exchange.entering]]])


class TimedCache:
    """A scored buffer that replaces at the minibatches for which `due` is true."""

    latencies: Sequence[float] = ()
    decisions: Sequence[Mapping[str, Any]] = ()

    def __init__(self, buffer: ScoredBuffer, due: Callable[[int], bool]) -> None:
        self.buffer, self._due = buffer, due
        self.first = buffer.ids

    def minibatch(self, number: int, asked: Positions, now: float) -> Fetch:
        """Looks up, and replaces if it is time."""
        found = self.buffer.look_up(asked)
        exchange = self.buffer.replace() if self._due(number) else None
        return Fetch(merged(found, exchange, len(self.buffer.halo)), found.hits, 0 if exchange is None else len(exchange))


class SteeredCache:
    """A scored buffer whose replacements a policy decides, which never holds up training.

    latency: draws the seconds until the next answer. regret: whether each decision is compared with the other one over the next window,
    which looks ahead and is for the report alone.
    """

    def __init__(
        self, trainer: Trainer, buffer: ScoredBuffer, loop: ControlLoop, policy: Policy, latency: Callable[[], float], *,
        regret: bool = True,
    ) -> None:  # fmt: skip
        self.trainer, self.buffer, self.loop, self.policy = trainer, buffer, loop, policy
        self._latency, self._regret = latency, regret
        self.first = buffer.ids
        self.latencies: list[float] = []
        self.decisions: list[dict[str, Any]] = []
        #: When the pending answer arrives, and the minibatch that asked for it.
        self._arrives = 0.0
        self._asked_at = 0
        self._hits = self._asked = 0

    def minibatch(self, number: int, asked: Positions, now: float) -> Fetch:
        """Looks up, applies a decision that has arrived, and posts the minibatch's record if nothing was replaced."""
        found = self.buffer.look_up(asked)
        self._hits, self._asked = self._hits + found.hits, self._asked + len(asked)
        exchange = None
        if self.loop.pending and now >= self._arrives:
            decision = self.loop.take()
            if decision is not None:
                exchange = self._apply(decision, number, found)
        if exchange is None or not len(exchange):
            self._post(number, len(asked), found, now)
        return Fetch(merged(found, exchange, len(self.buffer.halo)), found.hits, 0 if exchange is None else len(exchange))

    def _apply(self, decision: Decision, number: int, found: Found) -> Exchange | None:
        offer = self.buffer.candidates() if decision.replace or self._regret else None
        row: dict[str, Any] = {"minibatch": number, "asked_at": self._asked_at, "latency_s": self.latencies[-1]}
        saved = None
        if self._regret and offer is not None:
            saved = saving(self.trainer, offer, self.buffer, found, number, self.loop.static.window)
        exchange = self.buffer.replace(offer) if decision.replace and decision.valid else None
        kind = self.loop.applied(decision, number, 0 if exchange is None else len(exchange))
        row |= {"kind": kind, "moved": 0 if exchange is None else len(exchange), "expected_comm": decision.expected.get("comm", "")}
        if saved is not None:
            row |= {"saving": saved, "regret": max(0, -saved if kind == "replaced" else saved)}
        self.decisions.append({**row, "reason": decision.reason})
        return exchange

    def _post(self, number: int, asked: int, found: Found, now: float) -> None:
        total = self.trainer.minibatches
        hit_rate = round(100 * self._hits / self._asked) if self._asked else 0
        question = self.loop.post(Record(number, 0, number, total - number - 1, hit_rate, asked - found.hits, asked))
        if question is None:
            return
        self.loop.answered(self.policy.decide(question.static, question.window, question.history))
        self.latencies.append(self._latency())
        self._asked_at = number
        self._arrives = now + self.latencies[-1]


def static_facts(work: PrefetchWork, trainer: Trainer, *, period: int, window: int) -> Static:
    """What a trainer's policy is told about the case."""
    return Static(
        work.capacity(trainer), len(trainer.halo), work.minibatches, work.vertices, work.edges, trainer.part, len(work.trainers),
        work.batch, period, window,
    )  # fmt: skip
