"""How long the rewards of responses take: rules, programs under test on CPUs, and a judge model on the devices.

Programs run in a pool of workers, first come first served, until they end or their time-out. The judge is a language model that reads
prompt and response once. It has no devices of its own, so it shares those of an instance, and both get slower by a factor. As many of its
layers stay resident as memory has room for beside the KV; the others are streamed from the host, and each takes the larger of its compute
and its transfer time.
"""

from __future__ import annotations

import functools
import heapq
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from ..simulation.generation import Generation
from ..simulation.setup import PCIE_RATE, Setup, find_model
from ..workload import CODE, JUDGE, LIMIT_S, RolloutWork
from .adaptive_timeout import AdaptiveTimeout

if TYPE_CHECKING:
    from armillary.llm import Model

#: Seconds that it takes to check an answer by rule.
RULE_S = 0.01
#: How much slower actor and judge get on shared devices, with their multiprocessors partitioned and without.
PARTITIONED, SHARED = 1.08, 1.35


@dataclass
class Pool:
    """CPU workers that run programs under test; without `timeouts`, every program gets the same 30 s."""

    workers: int
    timeouts: AdaptiveTimeout | None = None
    #: The number of programs that would have been correct but were stopped before.
    stopped_correct: int = field(default=0, init=False)
    _free: list[float] = field(default_factory=list, init=False)
    _running: dict[int, list[tuple[float, float, bool]]] = field(default_factory=dict, init=False)

    def run(self, case: int, at_s: float, seconds: float, correct: bool) -> float:
        """Runs a program that is handed in at `at_s` (not before the one handed in last); returns when its reward is known."""
        start = at_s if len(self._free) < self.workers else max(at_s, heapq.heappop(self._free))
        limit = LIMIT_S
        if self.timeouts is not None:
            for over, took, right in [x for x in self._running.get(case, ()) if x[0] <= start]:
                self.timeouts.ran(case, took, right)
                self._running[case].remove((over, took, right))
            limit = self.timeouts.timeout(case)
        took = min(seconds, limit)
        right = correct and seconds <= limit
        self.stopped_correct += correct and not right
        if self.timeouts is not None:
            self._running.setdefault(case, []).append((start + took, took, right))
        heapq.heappush(self._free, start + took)
        return start + took


@functools.lru_cache(maxsize=16)
def _judge_price(judge: str, device: str, node: int, tp: int) -> tuple[float, float, int, float]:
    """The seconds per token and per pair of tokens, the number of layers, and the bytes of a layer."""
    from armillary.llm import StepCost

    model, degree = find_model(judge), tp
    while model.heads % degree or model.kv_heads % degree:
        degree //= 2
    cost = StepCost.build(model, device, tp=degree).arrays()
    tokens = 2048.0
    each = float(np.interp(tokens, cost.tokens, cost.body_s)) / tokens * degree / tp
    return each, cost.pair_s * degree / tp, model.layers, float(model.weight_bytes()) / model.layers


def judge_s(setup: Setup, tokens: float, tp: int, free_bytes: float, sharing: float = PARTITIONED) -> float:
    """The seconds in which the judge reads `tokens` beside the actor, on an instance of `tp` devices that has `free_bytes` left."""
    per_token, per_pair, layers, layer = _judge_price(setup.judge, setup.device, setup.node, tp)
    compute = sharing * (per_token * tokens + per_pair * tokens * (tokens + 1) / 2) / layers
    resident = min(layers, max(0, int(free_bytes // layer)))
    return resident * compute + (layers - resident) * max(compute, layer / (PCIE_RATE * tp))


def after_rollout_s(work: RolloutWork, prompts: npt.NDArray[np.int64], columns: npt.NDArray[np.int64]) -> float:
    """The seconds of all rewards when they begin after the rollout, with programs in the pool and the judge on all devices."""
    setup, pool = work.setup, Pool(work.setup.reward_workers)
    code = np.flatnonzero(work.task[prompts] == CODE)
    last = RULE_S if len(prompts) else 0.0
    for i in code:
        p, c = prompts[i], columns[i]
        last = max(last, pool.run(int(p), 0.0, float(work.reward_s[p, c]), bool(work.correct[p, c])))
    judged = np.flatnonzero(work.task[prompts] == JUDGE)
    if len(judged):
        per_token, per_pair, layers, layer = _judge_price(setup.judge, setup.device, setup.node, 1)
        tokens = (work.prompt[prompts[judged]] + work.length[prompts[judged], columns[judged]]).astype(float)
        compute = float((per_token * tokens + per_pair * tokens * (tokens + 1) / 2).sum()) / setup.gpus
        return max(last, layers * layer / PCIE_RATE + compute)
    return last


class Rewards:
    """Rewards during a rollout: each response is handed on at once, and `known_s` says when its reward is known.

    `timeouts` are learned from correct runs; without them, every program gets 30 s. `sharing` is how much slower judge and actor are while
    both run.
    """

    def __init__(self, work: RolloutWork, tp: int, *, timeouts: AdaptiveTimeout | None = None, sharing: float = SHARED) -> None:
        self.work, self.tp, self.sharing = work, tp, sharing
        self.pool = Pool(work.setup.reward_workers, timeouts)
        self.known_s: dict[int, float] = {}
        #: When the judge of each instance is free again, and how many responses it has in its queue.
        self._free: dict[int, float] = {}
        self._queued: dict[int, int] = {}

    def hand_on(self, generation: Generation, q: int, prompt: int, column: int) -> None:
        """Hands on request `q`, which is response `column` to `prompt` and has ended; one that is judged has ended now."""
        work, now = self.work, float(generation.ended_at[q])
        task = work.task[prompt]
        if task == CODE:
            seconds, correct = float(work.reward_s[prompt, column]), bool(work.correct[prompt, column])
            self.known_s[q] = self.pool.run(prompt, now, seconds, correct)
        elif task == JUDGE:
            r = generation.home(q)
            tokens = float(work.prompt[prompt] + work.length[prompt, column])
            start = max(now, self._free.get(r, 0.0))
            seconds = judge_s(work.setup, tokens, self.tp, generation.free_tokens(r) * _kv_bytes(work.setup.model), self.sharing)
            self._free[r] = self.known_s[q] = start + seconds
            self._queued[r] = self._queued.get(r, 0) + 1
            generation.slow(r, self.sharing)
            generation.at(start + seconds, lambda: self._judged(generation, r))
        else:
            self.known_s[q] = now + RULE_S

    def _judged(self, generation: Generation, r: int) -> None:
        self._queued[r] -= 1
        if self._queued[r] == 0:
            generation.slow(r, 1.0)


@functools.lru_cache(maxsize=16)
def _kv_bytes(model: str | Model) -> float:
    from armillary.llm import kv_bytes_per_token

    return float(kv_bytes_per_token(find_model(model)))
