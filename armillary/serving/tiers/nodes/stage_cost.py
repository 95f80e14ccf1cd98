"""What the blocks of a model cost on the devices of each tier: seconds, flops and bytes."""

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
    """What requests look like on average: tokens of the prompt and of the answer."""

    prompt: float
    output: float


@dataclass(frozen=True)
class BlockCosts:
    """A model on the tiers. Blocks share an iteration's time by the parameters that are active in them, which is exact for equal blocks."""

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
        """[blocks + 1] share of an iteration's body that lies before each boundary."""
        active = [float(sum(t.active for t in self.model.layer(i).tensors)) for i in range(self.blocks)]
        return np.concatenate([[0.0], np.cumsum(active) / np.sum(active)])

    @cached_property
    def weights(self) -> Floats:
        """[blocks] bytes of weights; the embedding lies with the first block, norm and head with the last."""
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
        """Bytes of keys and values that one token leaves in one block."""
        return kv_bytes_per_token(self.model) / self.blocks

    def memory(self, tokens: float) -> Floats:
        """[blocks] bytes of weights and of the given number of cached tokens."""
        return self.weights + tokens * self.kv_token

    def flops(self, mix: Mix) -> Floats:
        """[blocks] flops of one request of this mix: its prompt, and one pass per token. The head counts with the last block."""
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
        """[blocks] seconds of one request of this mix on an idle device, one request at a time."""
        step = self.steps[tier][node]
        context = mix.prompt + mix.output / 2
        body = step.body(mix.prompt) + (mix.output - 1) * step.body(1)
        attention = step.table.pair_s * mix.prompt * (mix.prompt + 1) / 2 + (mix.output - 1) * step.table.context_s * context
        found = np.diff(self.shares) * body + attention / self.blocks
        found[-1] += mix.output * step.head(1)
        return found

    def pass_seconds(self, tier: int, node: int, start: int, stop: int, tokens: int, sequences: int, pairs: float, context: float) -> float:
        """Seconds of one iteration over blocks start to stop: new tokens, sequences, (query, key) pairs of prompts, cached tokens read."""
        step = self.steps[tier][node]
        body = step.body(tokens) * float(self.shares[stop] - self.shares[start])
        attention = (step.table.pair_s * pairs + step.table.context_s * context) * (stop - start) / self.blocks
        return body + attention + (step.head(sequences) if stop == self.blocks else 0.0)

    def transfer(self, mix: Mix) -> Floats:
        """[tiers − 1, blocks + 1] seconds that a request's activations and tokens spend on each link, at its mean rate.

        Before the first block only token numbers travel, after the last only the answer's.
        """
        tiers = self.hierarchy.tiers
        wide = np.full(self.blocks + 1, 2.0 * self.model.hidden)
        wide[0] = wide[-1] = 4.0
        return np.array([(mix.prompt + mix.output) * wide / t.uplink.mean for t in tiers[:-1] if t.uplink is not None])

    def work(self, kind: str, mix: Mix) -> Floats:
        """[blocks] work of a request: "flops", or "time", seconds on the first node of the first tier."""
        return self.flops(mix) if kind == "flops" else self.seconds(0, 0, mix)

    def capacity(self, kind: str, mix: Mix, how: str) -> Floats:
        """[tiers] work per second in the unit of `work`: the mean, least or sum over the tier's nodes."""
        found = []
        for j, tier in enumerate(self.hierarchy.tiers):
            if kind == "flops":
                speeds = [one.peak(self.model.dtype) for one in tier.chips]
            else:
                speeds = [float(self.seconds(0, 0, mix).sum() / self.seconds(j, k, mix).sum()) for k in range(len(tier))]
            found.append({"mean": sum(speeds) / len(speeds), "min": min(speeds), "sum": sum(speeds)}[how])
        return np.array(found)
