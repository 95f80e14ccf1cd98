"""The time and memory of one layer at a precision, from the operators of `armillary.llm` with weights of b bits; modelled.

Weights below 16 bits are read at their width. At 8 bits the device computes on its int8 units if it states a peak for them. Everything
else computes in fp16, and each matrix is first dequantised with two operations per weight at the rate of matrix products.
"""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import NamedTuple

from armillary.llm import Chip, Model
from armillary.llm.cost.counts import pair_flops, pairs
from armillary.llm.cost.device import Fabric
from armillary.llm.cost.operators import (
    Setting,
    attention_seconds,
    decode_attention_seconds,
    element_seconds,
    gemm_seconds,
    token_operators,
)
from armillary.llm.model.shapes import Layer, Quantised

#: Weights that share a scale at 4 bits or fewer.
GROUP = 128


class Shards(NamedTuple):
    """The seconds of a layer's two halves: attention with its projections, and the feed-forward part."""

    attention: float
    mlp: float

    @property
    def total(self) -> float:
        """The seconds of both halves."""
        return self.attention + self.mlp


def stored(model: Model, bits: int) -> Model:
    """Returns the model with its layers' matrices stored in `bits`, computed in fp16."""
    plain = replace(model, dtype="fp16", quantised=None)
    return plain if bits == 16 else replace(plain, quantised=Quantised("weights", bits, GROUP if bits <= 4 else 0))


def layer_bytes(model: Model, kind: Layer, bits: int) -> float:
    """Returns bytes of a layer's weights, scales included."""
    return stored(model, bits).weight_bytes([(t, 1) for t in kind.tensors])


def cache_bytes(model: Model, tokens: float) -> float:
    """Returns the bytes of one layer's keys and values in fp16 for this number of tokens."""
    return 2.0 * model.kv_numbers * tokens


def once_bytes(model: Model) -> float:
    """Returns the bytes of embeddings, last norm and head in fp16, which exist once."""
    return stored(model, 16).weight_bytes([(t, 1) for t in model.once])


def temporary_bytes(model: Model, sequences: int, new: int) -> float:
    """Returns the largest temporary memory of a pass: the inner activations of the feed-forward part, or the logits in fp32."""
    wide = max(model.ffn * (2 if model.gated else 1), (model.moe.ffn * 2 * model.moe.top_k) if model.moe else 0)
    return max(2.0 * sequences * new * (2 * model.hidden + wide), 6.0 * sequences * model.vocab)


@functools.lru_cache(maxsize=65536)
def layer_seconds(model: Model, kind: Layer, device: Chip, bits: int, sequences: int, new: int, context: int) -> Shards:
    """Returns seconds of one layer for `sequences` sequences of `new` tokens after `context` tokens each."""
    if sequences < 1:
        return Shards(0.0, 0.0)
    of = stored(model, bits)
    native = bits == 8 and "int8" in dict(device.peaks)
    setting = Setting(device, _fabric(device), dtype="int8" if native else "fp16")
    operators = [(name, float(seconds)) for name, seconds in token_operators(of, kind, sequences * new, setting)]
    # A layer is norm, attention, norm, feed-forward; the second norm begins the second half.
    at = [i for i, (name, _) in enumerate(operators) if name == "norm"][1]
    halves = [sum(s for _, s in operators[:at]), sum(s for _, s in operators[at:])]
    if bits < 16 and not native:
        rate = device.calibration.eta_c * device.peak("fp16")
        for half, mlp in ((0, False), (1, True)):
            halves[half] += 2.0 * sum(t.multiplied for t in kind.tensors if (t.part != "attention") == mlp and t.part != "router") / rate
    return Shards(halves[0] + _attention(of, kind, device, sequences, new, context), halves[1])


def _attention(model: Model, kind: Layer, device: Chip, sequences: int, new: int, context: int) -> float:
    kv = 2.0 * model.kv_numbers
    found = sequences * pairs(new, context, kind.window, model.causal)
    if new == 1:
        return decode_attention_seconds(device, found * kv, pair_flops(model, absorbed=True) * float(found), "fp16")
    key, value = model.attention_widths
    moved = sequences * (new * model.heads * (key + value) * 2.0 + (context + new) * kv)
    return attention_seconds(device, float(pair_flops(model) * found), moved, "fp16")


def embedding_seconds(model: Model, device: Chip, tokens: int) -> float:
    """Returns the seconds to look up this number of tokens."""
    return float(element_seconds(device, "embedding", 4.0 * model.hidden * tokens))


def head_seconds(model: Model, device: Chip, sequences: int) -> float:
    """Returns the seconds of the last norm, the head and sampling for this number of sequences."""
    total = float(element_seconds(device, "norm", 4.0 * model.hidden * sequences))
    for tensor in model.once:
        if tensor.part == "head" and tensor.matmul:
            total += float(gemm_seconds(device, sequences, tensor.outputs, tensor.inputs, dtype="fp16"))
    return total + float(element_seconds(device, "sampling", 6.0 * model.vocab * sequences))


@functools.lru_cache(maxsize=64)
def _fabric(device: Chip) -> Fabric:
    return Fabric.of(device)
