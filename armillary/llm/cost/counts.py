"""What a transformer computes and stores, as exact integers: flops of segments, bytes of cache and state, and the part of each device.

Work is a list of segments: n new tokens after c tokens of context. Every count comes from a formula, so it is modelled.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, NamedTuple

from armillary.errors import InputError, unknown
from armillary.llm.model.shapes import WIDTH, Layer, Model, Tensor


class Segment(NamedTuple):
    """`new` tokens of one sequence that already has `context` tokens."""

    new: int
    context: int = 0


def pairs(new: int, context: int = 0, window: int | None = None, causal: bool = True) -> int:
    """The (query, key) pairs of a segment: n·c + n(n+1)/2 with each query clipped at `window`, or n·(c+n) if the model is not causal."""
    if new < 0 or context < 0:
        raise InputError(f"a segment of {new} new tokens after {context}; expected 0 or more of each")
    if not causal:
        return new * (context + new)
    total = new * context + new * (new + 1) // 2
    if window is None or context + new <= window:
        return total
    # Queries whose reach is cut see `window` keys; the queries before them see every key.
    whole = max(0, window - context)
    return whole * context + whole * (whole + 1) // 2 + (new - whole) * window


@dataclass(frozen=True)
class Flops:
    """The floating-point operations of a forward pass, and those that training adds."""

    matmul: int
    attention: int

    @property
    def forward(self) -> int:
        """Matrix products and attention together."""
        return self.matmul + self.attention

    @property
    def backward_input(self) -> int:
        """The matrix products for the gradients of inputs."""
        return self.matmul

    @property
    def backward_weight(self) -> int:
        """The matrix products for the gradients of weights."""
        return self.matmul

    @property
    def attention_backward(self) -> int:
        """The backward pass of attention, as the flops of a model are usually counted."""
        return 2 * self.attention

    @property
    def attention_backward_executed(self) -> int:
        """The backward pass of attention as FlashAttention executes it, which computes the scores again."""
        return 5 * self.attention // 2

    @property
    def train(self) -> int:
        """Forward and backward passes, as the flops of a model are usually counted (without recomputation)."""
        return 3 * self.matmul + 3 * self.attention


def pair_flops(model: Model, absorbed: bool = False) -> int:
    """Flops of one (query, key) pair in one layer: 2·heads·(width of a key + width of a value).

    With `absorbed`, latent attention works on the compressed cache, as decoding does.
    """
    if absorbed and model.mla:
        return 2 * model.heads * (2 * model.mla.kv_rank + model.mla.rope)
    key, value = model.attention_widths
    return 2 * model.heads * (key + value)


def layer_flops(model: Model, layer: Layer, segments: Iterable[Segment | tuple[int, int]], *, causal: bool | None = None,
                absorbed: bool = False) -> Flops:  # fmt: skip
    """Forward flops of one layer for some segments."""
    causal = model.causal if causal is None else causal
    weights, matmul, attended = sum(t.multiplied for t in layer.tensors), 0, 0
    for new, context in segments:
        matmul += 2 * new * weights
        attended += pairs(new, context, layer.window, causal)
    return Flops(matmul, pair_flops(model, absorbed) * attended)


def flops(
    model: Model, segments: Iterable[Segment | tuple[int, int]], *, logits: Literal["all", "last"] = "all", causal: bool | None = None,
    absorbed: bool = False,
) -> Flops:  # fmt: skip
    """Forward flops of segments: 2 per weight that a token is multiplied with, plus the pairs of attention.

    Look-ups, norms, biases and activations count nothing. `logits` says whether the head works for all tokens (training) or for the last
    one of each segment (serving). `causal=False` counts every pair, as PyTorch's FlopCounterMode does. The adapters of `with_lora` are
    counted too.
    """
    if logits not in ("all", "last"):
        raise unknown("logits", str(logits), ("all", "last"))
    work = [Segment(*each) for each in segments]
    tokens = sum(each.new for each in work)
    scored = tokens if logits == "all" else sum(each.new > 0 for each in work)
    attention = sum(count * layer_flops(model, kind, work, causal=causal, absorbed=absorbed).attention for kind, count in model.kinds)
    adapters = 2 * tokens * model.lora.rank * _lora_used(model) if model.lora else 0
    return Flops(2 * tokens * model.matmul_params + 2 * scored * model.head_params + adapters, attention)


def _lora_used(model: Model) -> int:
    assert model.lora is not None
    targets = model.lora.targets
    return sum(
        n * t.used * (t.inputs + t.outputs)
        for kind, n in model.kinds
        for t in kind.tensors
        if t.matmul and t.name.rpartition(".")[2] in targets
    )


def megatron_flops(sequences: int, tokens: int, layers: int, hidden: int, vocab: int, recompute: bool = True) -> float:
    """Megatron-LM's published formula for a step: 96·B·s·l·h²·(1 + s/6h + V/16lh); 72 without the recomputation. It is here for comparison.

    Narayanan et al., Efficient large-scale language model training on GPU clusters using Megatron-LM, SC 2021.
    """
    share = 1 + tokens / (6 * hidden) + vocab / (16 * layers * hidden)
    return (96 if recompute else 72) * sequences * tokens * layers * hidden**2 * share


def kv_bytes_per_token(model: Model, dtype: str | None = None) -> int:
    """Bytes of cache per token, over all layers, while no window is full."""
    if dtype is not None and dtype not in WIDTH:
        raise unknown("dtype", dtype, WIDTH)
    return model.layers * model.kv_numbers * WIDTH[dtype or _cache_dtype(model)]


def _cache_dtype(model: Model) -> str:
    return model.dtype if WIDTH[model.dtype] >= 2 else "bf16"


def kv_bytes(model: Model, tokens: int, dtype: str | None = None) -> int:
    """Bytes of cache that a sequence of `tokens` takes; windowed layers keep only their window."""
    kept = sum(count * (tokens if kind.window is None else min(tokens, kind.window)) for kind, count in model.kinds)
    return kept * kv_bytes_per_token(model, dtype) // model.layers


def kv_share(model: Model, tp: int) -> float:
    """The share of the cache that one of `tp` devices holds: key-value heads are split, but a latent cache is copied."""
    return 1.0 if model.mla else 1 / min(tp, model.kv_heads)


@dataclass(frozen=True)
class TrainState:
    """Bytes of state per parameter in mixed-precision Adam training, by name."""

    weight: int = 2
    gradient: int = 4
    master: int = 4
    momentum: int = 4
    variance: int = 4

    @property
    def optimizer(self) -> int:
        """Bytes of the fp32 weight and of both moments."""
        return self.master + self.momentum + self.variance

    @property
    def total(self) -> int:
        """Bytes of all parts together."""
        return self.weight + self.gradient + self.optimizer


def local_shape(model: Model, tensor: Tensor, tp: int = 1, ep: int = 1, expert_tp: int | None = None) -> tuple[int, int, int]:
    """(copies, inputs, outputs) of a tensor on one of `tp` devices, with experts spread over `ep` devices; sizes that do not divide are
    rounded up.
    """
    expert = tensor.role.startswith("expert")
    ways = tp if not expert or expert_tp is None else expert_tp
    copies = -(-tensor.copies // ep) if expert else tensor.copies
    inputs, outputs = tensor.inputs, tensor.outputs
    if tensor.split == "columns":
        outputs = -(-outputs // ways)
    elif tensor.split == "rows":
        inputs = -(-inputs // ways)
    elif tensor.split == "kv":
        outputs = outputs // min(ways, model.kv_heads)
    elif tensor.split == "fused":
        outputs = (-(-model.heads // ways) + 2 * (model.kv_heads // min(ways, model.kv_heads))) * model.head_dim
    elif tensor.split == "vocabulary":
        inputs, outputs = (-(-inputs // ways), outputs) if tensor.part == "embedding" else (inputs, -(-outputs // ways))
    return copies, inputs, outputs


def local_params(model: Model, tensor: Tensor, tp: int = 1, ep: int = 1, expert_tp: int | None = None) -> int:
    """The parameters of a tensor that one device holds; a bias is split like its outputs."""
    if tensor.tied:
        return 0
    copies, inputs, outputs = local_shape(model, tensor, tp, ep, expert_tp)
    return copies * (inputs * outputs + (tensor.bias * outputs // tensor.outputs if tensor.bias else 0))


def local_bytes(model: Model, tensor: Tensor, tp: int = 1, ep: int = 1, expert_tp: int | None = None) -> float:
    """Bytes of a tensor that one device holds, as stored for serving."""
    if tensor.tied:
        return 0.0
    copies, inputs, outputs = local_shape(model, tensor, tp, ep, expert_tp)
    bias = tensor.bias * outputs // tensor.outputs if tensor.bias else 0
    return copies * (inputs * outputs * model.tensor_width(tensor) + bias * model.width)
