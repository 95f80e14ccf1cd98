"""The cost of a model's blocks on the devices of each tier, in seconds, flops and bytes."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import numpy.typing as npt

from armillary.llm.cost.counts import kv_bytes_per_token, layer_flops
from armillary.llm.cost.step_cost import StepCost
from armillary.llm.model.shapes import Model

from .hierarchy import Hierarchy

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Mix:
    """The mean tokens of a request's prompt and answer."""

    prompt: float
    output: float


@dataclass(frozen=True)
class BlockCosts:
    """A model on the tiers. Blocks share an iteration's time by their active parameters, which is exact for equal blocks."""

    model: Model
    hierarchy: Hierarchy
    #: [tier][node] seconds of iterations of the whole model on that device.
    steps: tuple[tuple[StepCost, ...], ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        made: dict[str, StepCost] = {}
        rows = []
        for tier in self.hierarchy.tiers:
            for one in tier.chips:
                if one.name not in made:
                    made[one.name] = StepCost.build(self.model, one)
            rows.append(tuple(made[one.name] for one in tier.chips))
        object.__setattr__(self, "steps", tuple(rows))

    @property
    def blocks(self) -> int:
        """The number of blocks."""
        return self.model.layers

    @cached_property
    def shares(self) -> Floats:
        """The share of an iteration's body before each boundary, [blocks + 1]."""
        active = [float(sum(t.active for t in self.model.layer(i).tensors)) for i in range(self.blocks)]
        return np.concatenate([[0.0], np.cumsum(active) / np.sum(active)])

    @cached_property
    def weights(self) -> Floats:
        """The bytes of weights, [blocks]; the embedding belongs to the first block, norm and head to the last."""
        found = np.array([self.model.weight_bytes([(t, 1) for t in self.model.layer(i).tensors]) for i in range(self.blocks)])
        inside = [(t, 1) for t in self.model.once if t.part == "embedding"]
        outside = [(t, 1) for t in self.model.once if t.part != "embedding"]
        found[0] += self.model.weight_bytes(inside) if inside else 0.0
        found[-1] += self.model.weight_bytes(outside) if outside else 0.0
        if self.model.tied and self.blocks > 1:
            found[-1] += self.model.weight_bytes(inside)
        return found

    @property
    def kv_token(self) -> float:
        """The bytes of keys and values of one token in one block."""
        return kv_bytes_per_token(self.model) / self.blocks

    def memory(self, tokens: float) -> Floats:
        """Returns the bytes of weights and of the given number of cached tokens, [blocks]."""
        return self.weights + tokens * self.kv_token

    def flops(self, mix: Mix) -> Floats:
        """Returns the flops of one request of this mix, [blocks]: its prompt and one pass per token. The last block includes the head."""
        p, n = round(mix.prompt), round(mix.output)
        segments = [(p, 0), *([(1, p + i) for i in range(1, n)] if n < 4096 else [(n - 1, p)])]
        made: dict[int, float] = {}
        found = []
        for i in range(self.blocks):
            layer = self.model.layer(i)
            if id(layer) not in made:
                made[id(layer)] = float(layer_flops(self.model, layer, segments).forward)
            found.append(made[id(layer)])
        found[-1] += 2.0 * self.model.head_params * n
        return np.array(found)

    def seconds(self, tier: int, node: int, mix: Mix) -> Floats:
        """Returns the seconds of one request of this mix on an idle device without batching, [blocks]."""
        step = self.steps[tier][node]
        context = mix.prompt + mix.output / 2
        body = step.body(mix.prompt) + (mix.output - 1) * step.body(1)
        attention = step.table.pair_s * mix.prompt * (mix.prompt + 1) / 2 + (mix.output - 1) * step.table.context_s * context
        found = np.diff(self.shares) * body + attention / self.blocks
        found[-1] += mix.output * step.head(1)
        return found

    def pass_seconds(self, tier: int, node: int, start: int, stop: int, tokens: int, sequences: int, pairs: float, context: float) -> float:
        """Returns the seconds of an iteration over blocks start to stop, by new tokens, sequences, (query, key) pairs and cached tokens."""
        step = self.steps[tier][node]
        body = step.body(tokens) * float(self.shares[stop] - self.shares[start])
        attention = (step.table.pair_s * pairs + step.table.context_s * context) * (stop - start) / self.blocks
        return body + attention + (step.head(sequences) if stop == self.blocks else 0.0)

    def transfer(self, mix: Mix) -> Floats:
        """Returns the seconds of a request's activations and tokens on each link at its mean rate, [tiers − 1, blocks + 1].

        Before the first block only token numbers travel, after the last only the answer's.
        """
        tiers = self.hierarchy.tiers
        wide = np.full(self.blocks + 1, 2.0 * self.model.hidden)
        wide[0] = wide[-1] = 4.0
        return np.array([(mix.prompt + mix.output) * wide / t.uplink.mean for t in tiers[:-1] if t.uplink is not None])

    def work(self, kind: str, mix: Mix) -> Floats:
        """Returns the work of a request, [blocks], in "flops" or as "time", the seconds on the first node of the first tier."""
        return self.flops(mix) if kind == "flops" else self.seconds(0, 0, mix)

    def capacity(self, kind: str, mix: Mix, how: str) -> Floats:
        """Returns the work per second in the unit of `work`, [tiers]: the mean, least or sum over the tier's nodes."""
        found = []
        for j, tier in enumerate(self.hierarchy.tiers):
            if kind == "flops":
                speeds = [one.peak(self.model.dtype) for one in tier.chips]
            else:
                speeds = [float(self.seconds(0, 0, mix).sum() / self.seconds(j, k, mix).sum()) for k in range(len(tier))]
            found.append({"mean": sum(speeds) / len(speeds), "min": min(speeds), "sum": sum(speeds)}[how])
        return np.array(found)
