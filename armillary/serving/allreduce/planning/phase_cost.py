"""The compute seconds of one iteration on a tensor-parallel group, without all-reduces, and the KV that the group holds; modelled."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass, replace
from typing import Any

from armillary.errors import InputError
from armillary.llm import Fabric, Model, StepCost, chip, kv_bytes_per_token
from armillary.llm.cost.plan import check_tp

#: Shapes that the papers serve and that have no preset, from the public configs.
_OPT: dict[str, Any] = {
    "architectures": ["OPTForCausalLM"], "model_type": "opt", "torch_dtype": "float16", "max_position_embeddings": 2048,
    "vocab_size": 50272, "do_layer_norm_before": True,
}  # fmt: skip
OPT: dict[str, dict[str, Any]] = {
    name: {**_OPT, "hidden_size": h, "ffn_dim": 4 * h, "num_hidden_layers": n, "num_attention_heads": heads, "word_embed_proj_dim": h}
    for name, h, n, heads in (("opt-66b", 9216, 64, 72), ("opt-175b", 12288, 96, 96))
}
#: Share of a device's memory that weights and KV may take, and bytes kept for activations.
MEMORY_SHARE, RESERVE_BYTES = 0.9, 2.0 * 2**30
#: The most prompt tokens in one prefill iteration, and the most sequences that decode together.
MOST_TOKENS, MOST_SEQUENCES = 2048, 256


def find_model(name: str) -> Model:
    """Returns a model by preset or config file, or one of `OPT`."""
    return Model.from_config(OPT[name], name=name) if name in OPT else Model.find(name)


@dataclass(frozen=True)
class PhaseCost:
    """The compute cost of iterations on `tp` devices over all layers; `repeats` all-reduces of `token_bytes` per token are added to it."""

    model: str
    tp: int
    cost: StepCost
    #: The all-reduces of an iteration, and the bytes per token of each.
    repeats: int
    token_bytes: float
    #: The bytes of all weights, the KV bytes of a token including copies of heads, and the memory of one device.
    weights: float
    kv_bytes: float
    memory: float

    def prefill_s(self, tokens: int, pairs: float, sequences: int) -> float:
        """Returns the seconds to process prompts of `tokens` tokens and `pairs` (query, key) pairs."""
        return self.cost.prefill(tokens, int(pairs), sequences)

    def decode_s(self, sequences: int, context: int) -> float:
        """Returns seconds to make one token for each of `sequences` that hold `context` tokens together."""
        return self.cost.decode(sequences, context)

    def kv_tokens(self, pp: int) -> int:
        """Returns the tokens of KV that the pipeline's devices hold beside the weights; 0 if not even those fit."""
        free = (MEMORY_SHARE * self.memory - RESERVE_BYTES) * self.tp * pp - self.weights
        return max(0, math.floor(free / self.kv_bytes))


@functools.lru_cache(maxsize=256)
def phase_cost(model: str, device: str, tp: int) -> PhaseCost:
    """Returns the cost of a model on `tp` devices; raises InputError if its heads do not divide."""
    of, on = find_model(model), chip(device)
    if of.moe is not None:
        raise InputError(f"{of.name} has experts; expected a dense model", where="model")
    check_tp(of, tp, replicate_kv=True)
    silent = replace(Fabric.of(on), near_rate=math.inf, near_s=0.0, all_reduce_s=0.0)
    cost = StepCost.build(of, on, tp=tp, replicate_kv=True, fabric=silent)
    copies = max(1, tp // of.kv_heads)
    return PhaseCost(
        of.name, tp, cost, 2 * of.layers, 2.0 * of.hidden, float(of.weight_bytes()), kv_bytes_per_token(of) * copies, float(on.memory or 0)
    )
