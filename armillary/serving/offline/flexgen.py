"""FlexGen keeps what does not fit on the host, and brings each layer's share over while the layer before is computed.

In FlexGen's block schedule a block of sequences passes layer by layer. While a layer computes, the next layer's weights and its cached
keys and values come over the host link, and new ones go back, so a layer takes the longest of compute and transfers. The policy (block
size, shares of weights and of cache on the host) is searched with that cost model, and on several devices layers are dealt evenly in a
pipeline, both as published. The precision is the fastest one within the work's quality. Host memory is assumed to suffice; attention on
the host's cores and a quantised cache are left out.

FlexGen: High-Throughput Generative Inference of Large Language Models with a Single GPU, ICML 2023.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from armillary.arena import Technique
from armillary.parameters import parameter

from .planning.plan import Plan, Stage, plan_of, problem_of
from .planning.problem import Choice, DoesNotFit, Problem, even, flat
from .pricing.layer_cost import cache_bytes, layer_bytes
from .workload import Device, OfflineWork


@dataclass(frozen=True)
class FlexGen(Technique):
    """Keeps weights and cache partly on the host, in the published block schedule, at one precision (FlexGen, ICML 2023)."""

    bits: int | None = parameter(None, "one precision; none takes the fastest within the work's quality")
    steps: int = parameter(10, "steps of the searched share of cache on the host", range=(1, 100))

    def plan_for(self, work: OfflineWork) -> Plan:
        """Returns the plan for this work."""
        best: Plan | None = None
        order = work.devices[: work.model.layers]
        for bit in range(len(work.bits)):
            if self.bits is not None and work.bits[bit] != self.bits:
                continue
            if self.bits is None and work.quality is not None and work.omegas[:, bit].sum() > work.quality * (1 + 1e-9):
                continue
            for size in blocks(work.batch, len(order)):
                plan = self._placed(work, order, bit, size)
                if plan is not None and (best is None or plan.predicted_s < best.predicted_s):
                    best = plan
        if best is None:
            raise DoesNotFit(f"two layers of {work.model.name} do not fit a device of {work.cluster.name} at the precisions allowed")
        return best

    def _placed(self, work: OfflineWork, order: tuple[Device, ...], bit: int, size: int) -> Plan | None:
        """Returns even stages at one precision in blocks of `size`, with the least streaming that lets every stage fit."""
        problem = problem_of(work, order, size, size)
        choice = flat(problem, even(work.model.layers, len(order)), bit)
        prefill, decode, stages = problem.prefill.copy(), problem.decode.copy(), []
        plan = plan_of(work, order, choice, size, size)
        for j, stage in enumerate(plan.stages):
            shares = self._shares(work, problem, choice, stage, j, size)
            if shares is None:
                return None
            stages.append(replace(stage, weights_on_host=shares[0], cache_on_host=shares[1]))
            floor = _layer_floor(work, stage, shares, size)
            prefill[:, j], decode[:, j] = np.maximum(prefill[:, j], floor[0]), np.maximum(decode[:, j], floor[1])
        streamed = replace(problem, prefill=prefill, decode=decode)
        pre, dec = streamed.stage_times(choice)
        # With fewer blocks than stages the pipeline is not full, and a token takes the time of its own pass through all stages.
        seconds = pre.sum() + streamed.prefill_turns * pre.max()
        seconds += (streamed.output - 1) * max(dec.sum(), streamed.micro_decode * dec.max())
        return replace(plan, stages=tuple(stages), predicted_s=float(seconds) * len(work.batches), solver="policy search")

    def _shares(self, work: OfflineWork, problem: Problem, choice: Choice, stage: Stage, j: int, size: int) -> tuple[float, float] | None:
        """Returns the shares (weights, cache) on the host that give the stage its least time, or None if even all of both is too little."""
        bits, longest = stage.bits, work.longest
        kinds = [work.model.kinds[work.kinds[i]][0] for i in range(stage.first, stage.last)]
        each = np.array([layer_bytes(work.model, kind, b) for kind, b in zip(kinds, bits, strict=True)])
        cache = len(stage) * cache_bytes(work.model, work.batch * (longest.prompt + longest.output))
        budget, found = float(problem.budget[j]), None
        for y in np.linspace(0.0, 1.0, self.steps + 1):
            need = each.sum() + cache * (1 - y) - budget
            # The bytes that stay on the host, less the two layers that are on the device during their computation.
            x = 0.0 if need <= 0 else need / max(each.sum() - 2 * each.max(), 1e-300)
            if not 0 <= x <= 1:
                continue
            pre, dec = _layer_floor(work, stage, (float(x), float(y)), size)
            layers = np.arange(stage.first, stage.last)
            compute = problem.prefill[layers, j, choice.bits[layers]], problem.decode[layers, j, choice.bits[layers]]
            time = problem.micro_prefill * np.maximum(compute[0], pre).sum()
            time += problem.micro_decode * (problem.output - 1) * np.maximum(compute[1], dec).sum()
            if found is None or time < found[0]:
                found = (float(time), float(x), float(y))
        return None if found is None else (found[1], found[2])


def _layer_floor(work: OfflineWork, stage: Stage, shares: tuple[float, float], size: int) -> tuple[float, float]:
    """Returns the host-link seconds of one layer, in a prompt's pass (weights in, new keys and values out) and in a token's."""
    if shares == (0.0, 0.0):
        return 0.0, 0.0
    latency, per_byte = work.cluster.alpha_beta(stage.device.host, stage.device.place)
    weights = max(layer_bytes(work.model, kind, stage.bits[0]) for kind, _ in work.model.kinds) * shares[0]
    past = work.usual.prompt + work.usual.output // 2
    out = cache_bytes(work.model, size * work.usual.prompt) * shares[1]
    back = cache_bytes(work.model, size * past) * shares[1]
    return max(latency + per_byte * weights, per_byte * out), latency + per_byte * (weights + back)


def blocks(batch: int, devices: int) -> Iterator[int]:
    """Returns the block sizes from the batch over the devices up to the whole batch."""
    size = -(-batch // devices)
    while size < batch:
        yield size
        size *= 2
    yield batch
