"""Judges a plan by simulating it event by event, without any planner's formula.

A stage serves one micro-batch at a time, first come, first served, and its sends share the cluster's links while it goes on working. A
decode micro-batch begins when its prompts have passed. The first device holds embeddings and head: after the last stage the hidden
states return to it, and it makes the token and starts the next round. Where weights or caches stay on the host, each layer's share comes
over the host link while the previous layer computes (FlexGen's block schedule). The seconds of a layer are those of `armillary.llm` at
the plan's bits.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from armillary.engine import Event, Network, Resource, Simulation

from ..pricing.layer_cost import cache_bytes, embedding_seconds, head_seconds, layer_bytes, layer_seconds
from ..workload import Batch

if TYPE_CHECKING:
    from ..planning.plan import Plan, Stage


@dataclass(frozen=True)
class Ran:
    """The outcome of a plan on the whole work, in simulated seconds."""

    makespan_s: float
    prefill_s: float
    tokens: int
    #: Share of the time that each stage computed.
    busy: tuple[float, ...]

    @property
    def token_throughput(self) -> float:
        """The output tokens per second."""
        return self.tokens / self.makespan_s


def run(plan: Plan) -> Ran:
    """Runs the plan on its work, batch after batch; equal batches are simulated once."""
    plan.check()
    rounds: list[Batch] = []
    for batch in plan.work.batches:
        left = batch.sequences
        while left > 0:
            rounds.append(Batch(min(left, plan.batch), batch.prompt, batch.output))
            left -= plan.batch
    known = {each: _Round(plan, each).run() for each in dict.fromkeys(rounds)}
    total = sum(known[each][0] for each in rounds)
    busy = tuple(sum(known[each][2][j] for each in rounds) / total for j in range(len(plan.stages)))
    return Ran(total, sum(known[each][1] for each in rounds), plan.work.tokens, busy)


class _Round:
    """One batch through the pipeline."""

    def __init__(self, plan: Plan, batch: Batch) -> None:
        self.plan, self.batch = plan, batch
        self.model = plan.work.model
        self.sim = Simulation()
        self.network = Network(self.sim, plan.work.cluster)
        self.stages = [Resource(self.sim, 1, name=f"stage {j}") for j in range(len(plan.stages))]
        self.busy = [0.0] * len(plan.stages)
        kinds = [kind for kind, count in self.model.kinds for _ in range(count)]
        self.kinds = [kinds[s.first : s.last] for s in plan.stages]
        #: The transfers of the weights of a stage's first layer for its next pass.
        self.coming: list[Event | None] = [None] * len(plan.stages)
        self.times: dict[tuple[int, int, int, int], list[float]] = {}
        self.prefill_end = 0.0

    def run(self) -> tuple[float, float, list[float]]:
        """Returns (total seconds, seconds until the last prompt had passed, busy seconds of each stage)."""
        sizes = _cut(self.batch.sequences, self.plan.decode_batch)
        for size in sizes:
            through = []
            for part in _cut(size, self.plan.prefill_batch):
                done = self.sim.event()
                through.append(done)
                self.sim.process(self._prompts(part, done))
            self.sim.process(self._tokens(size, through))
        self.sim.run()
        return self.sim.now, self.prefill_end, self.busy

    def _prompts(self, size: int, done: Event) -> Generator[Any, Any, None]:
        prompt = self.batch.prompt
        for j in range(len(self.stages)):
            extra = embedding_seconds(self.model, self._chip(0), size * prompt) if j == 0 else 0.0
            yield from self._visit(j, size, prompt, 0, extra)
            last = j == len(self.stages) - 1
            yield from self._send(j, size * (1 if last else prompt))
        self.prefill_end = max(self.prefill_end, self.sim.now)
        done.succeed(None)

    def _tokens(self, size: int, through: list[Event]) -> Generator[Any, Any, None]:
        yield self.sim.all_of(*through)
        head, look = head_seconds(self.model, self._chip(0), size), embedding_seconds(self.model, self._chip(0), size)
        for made in range(1, self.batch.output):
            for j in range(len(self.stages)):
                yield from self._visit(j, size, 1, self.batch.prompt + made - 1, head + look if j == 0 else 0.0)
                yield from self._send(j, size)
        yield from self._hold(0, head)

    def _hold(self, j: int, seconds: float) -> Generator[Any, Any, None]:
        request = self.stages[j].request()
        yield request
        yield seconds
        self.busy[j] += seconds
        request.release()

    def _visit(self, j: int, size: int, new: int, context: int, extra: float) -> Generator[Any, Any, None]:
        """Runs one pass of a micro-batch through a stage's layers."""
        stage = self.plan.stages[j]
        times = self._layer_times(j, size, new, context)
        if not (stage.weights_on_host or stage.cache_on_host):
            yield from self._hold(j, sum(times) + extra)
            return
        request = self.stages[j].request()
        yield request
        if extra:
            yield extra
        cached, fresh = (cache_bytes(self.model, size * tokens) * stage.cache_on_host for tokens in (context, new))
        coming = [self.coming[j] or self._load(stage, self._streamed(j, 0))]
        if cached:
            coming.append(self._load(stage, cached))
        back = []
        for layer, seconds in enumerate(times):
            yield self.sim.all_of(*coming)
            after = layer + 1
            self.coming[j] = self._load(stage, self._streamed(j, 0)) if after == len(times) else None
            coming = [] if after == len(times) else [self._load(stage, self._streamed(j, after) + cached)]
            yield seconds
            if fresh:
                back.append(self.network.flow(stage.device.place, stage.device.host, fresh))
        if back:
            yield self.sim.all_of(*back)
        self.busy[j] += sum(times) + extra
        request.release()

    def _load(self, stage: Stage, nbytes: float) -> Event:
        return self.network.flow(stage.device.host, stage.device.place, nbytes)

    def _streamed(self, j: int, layer: int) -> float:
        stage = self.plan.stages[j]
        return layer_bytes(self.model, self.kinds[j][layer], stage.bits[layer]) * stage.weights_on_host

    def _send(self, j: int, tokens: int) -> Generator[Any, Any, None]:
        if len(self.stages) > 1:
            here, there = self.plan.stages[j].device.place, self.plan.stages[(j + 1) % len(self.stages)].device.place
            yield self.network.flow(here, there, 2.0 * self.model.hidden * tokens)

    def _chip(self, j: int) -> Any:
        return self.plan.stages[j].device.chip

    def _layer_times(self, j: int, size: int, new: int, context: int) -> list[float]:
        """Returns the seconds of each layer of a stage; those of decoding are linear in the context, so two contexts are priced."""
        if new > 1 or self.batch.output <= 2:
            return self._priced(j, size, new, context)
        low, high = self.batch.prompt, self.batch.prompt + self.batch.output - 1
        a, b = self._priced(j, size, 1, low), self._priced(j, size, 1, high)
        share = (context - low) / (high - low)
        return [x + (y - x) * share for x, y in zip(a, b, strict=True)]

    def _priced(self, j: int, size: int, new: int, context: int) -> list[float]:
        key = (j, size, new, context)
        if key not in self.times:
            chip, bits = self._chip(j), self.plan.stages[j].bits
            self.times[key] = [
                layer_seconds(self.model, kind, chip, b, size, new, context).total for kind, b in zip(self.kinds[j], bits, strict=True)
            ]
        return self.times[key]


def _cut(whole: int, part: int) -> list[int]:
    return [min(part, whole - start) for start in range(0, whole, part)]
