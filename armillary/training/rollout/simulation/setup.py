"""The machine and the model under a rollout, with the KV of its instances and the seconds of iterations, training and weight transfer."""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from armillary.errors import InputError, unknown

from .generation import Instances

if TYPE_CHECKING:
    from armillary.llm import Chip, CostArrays, Fabric, Model

#: The seconds that an engine itself takes per iteration and per running request, fitted to measured vLLM runs on an H100.
HOST_S, RUNNING_S = 2.437837e-3, 7.191685e-6
#: Bytes/s from the host's memory to one device, as PCIe 5.0 gives in practice.
PCIE_RATE = 50e9
#: The tokens that training packs into one pass, and a second length that separates the part of attention.
PACKED, LONG = 8192, 32768
_DEEPSEEK = {
    "model_type": "deepseek_v3", "torch_dtype": "bfloat16", "tie_word_embeddings": False, "attention_bias": False, "moe_layer_freq": 1,
    "first_k_dense_replace": 1, "kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128,
    "vocab_size": 163840, "max_position_embeddings": 131072,
}  # fmt: skip
#: The models of Seer's set-ups, after their public config.json (for Qwen2-VL, the language part).
CONFIGS: dict[str, dict[str, Any]] = {
    "moonlight-16b-a3b": {
        **_DEEPSEEK, "hidden_size": 2048, "intermediate_size": 11264, "moe_intermediate_size": 1408, "num_hidden_layers": 27,
        "num_attention_heads": 16, "num_key_value_heads": 16, "n_routed_experts": 64, "n_shared_experts": 2, "num_experts_per_tok": 6,
        "q_lora_rank": None,
    },
    "kimi-k2": {
        **_DEEPSEEK, "hidden_size": 7168, "intermediate_size": 18432, "moe_intermediate_size": 2048, "num_hidden_layers": 61,
        "num_attention_heads": 64, "num_key_value_heads": 64, "n_routed_experts": 384, "n_shared_experts": 1, "num_experts_per_tok": 8,
        "q_lora_rank": 1536,
        "quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128], "fmt": "e4m3", "activation_scheme": "dynamic"},
    },
    "qwen2-vl-72b": {
        "model_type": "qwen2", "torch_dtype": "bfloat16", "hidden_size": 8192, "intermediate_size": 29568, "num_hidden_layers": 80,
        "num_attention_heads": 64, "num_key_value_heads": 8, "vocab_size": 152064, "max_position_embeddings": 131072,
        "tie_word_embeddings": False,
    },
}  # fmt: skip


def find_model(name: str | Model) -> Model:
    """A model of Seer's set-ups, a preset of `armillary.llm`, the model of a `config.json`, or the model itself."""
    from armillary.llm import Model

    if isinstance(name, Model):
        return name
    if name in CONFIGS or name in _presets():
        return _built_in(name)
    # A file may change, so it is read each time.
    if not Path(name).exists():
        raise unknown("model", name, (*CONFIGS, *_presets()))
    return Model.find(name)


@functools.cache
def _presets() -> tuple[str, ...]:
    from armillary.llm import Model

    return Model.presets()


@functools.lru_cache(maxsize=32)
def _built_in(name: str) -> Model:
    from armillary.llm import Model

    return Model.from_config(CONFIGS[name], name=name) if name in CONFIGS else Model.preset(name)


@dataclass(frozen=True)
class Setup:
    """P0 prompts × R0 responses per step, of at most `max_length` tokens, on `gpus` devices.

    `tp` devices make one rollout instance; models with latent attention spread an instance's requests over them (data-parallel
    attention), so that its KV is held once. `train_tp` and `train_pp` shape one data-parallel copy in training. `judge` names the
    model that scores judged prompts. Seconds are modelled by `armillary.llm`.
    """

    model: str | Model
    device: str = "h800"
    gpus: int = 32
    tp: int = 2
    p0: int = 128
    r0: int = 8
    max_length: int = 8192
    node: int = 8
    train_tp: int = 2
    train_pp: int = 1
    judge: str = "qwen2.5-7b"
    reward_workers: int = 64
    #: The most tokens of a prompt; a request may need the KV of these and `max_length`.
    max_prompt: int = 2048

    def __post_init__(self) -> None:
        for name in ("gpus", "tp", "p0", "r0", "max_length", "node", "train_tp", "train_pp", "reward_workers", "max_prompt"):
            if getattr(self, name) < 1:
                raise InputError(f"{name}: found {getattr(self, name)}; expected at least 1")
        for name, most in (("gpus", 1 << 16), ("p0", 1 << 20), ("r0", 1 << 12), ("max_length", 1 << 24), ("max_prompt", 1 << 24)):
            if getattr(self, name) > most:
                raise InputError(f"{name}: found {getattr(self, name):,}; expected at most {most:,}")
        if self.gpus % self.tp:
            raise InputError(f"tp: found {self.tp} for {self.gpus} GPUs; expected a divisor")
        if self.gpus % (self.train_tp * self.train_pp):
            raise InputError(f"train_tp · train_pp: found {self.train_tp * self.train_pp} for {self.gpus} GPUs; expected a divisor")

    @property
    def shape(self) -> Model:
        """The model's shape."""
        return find_model(self.model)

    def joined(self) -> tuple[Chip, Fabric]:
        """The device and the fabric that joins devices."""
        return _joined(self.device, self.node)

    def cost(self, tp: int | None = None) -> CostArrays:
        """The seconds of an iteration on an instance of `tp` devices."""
        return _cost(self.model, self.device, self.node, tp or self.tp)

    def kv_tokens(self, tp: int | None = None) -> int:
        """The tokens of KV that an instance holds."""
        from armillary.llm import Replica, kv_bytes_per_token

        tp, model = tp or self.tp, self.shape
        if model.mla is None:
            return Replica(model, device=self.device, tp=tp, max_model_len=self.max_length + self.max_prompt).kv_blocks() * 16
        usual = Replica(model, device=self.device, tp=tp, blocks=1)
        chip, _ = self.joined()
        free = tp * (usual.memory_share * chip.memory - usual.reserve_bytes) - model.weight_bytes()
        tokens = int(free // kv_bytes_per_token(model)) // 16 * 16
        if tokens < self.max_length + self.max_prompt:
            raise InputError(
                f"{model.name} on {tp} × {self.device}: {max(0, tokens)} tokens of KV; expected {self.max_length} and a prompt"
            )
        return tokens

    def instances(self, tp: int | None = None, gpus: int | None = None) -> Instances:
        """The rollout's instances, on all devices or on some."""
        tp = tp or self.tp
        return Instances((gpus or self.gpus) // tp, self.kv_tokens(tp), self.cost(tp))

    def fits(self, tp: int) -> bool:
        """Whether `tp` devices can make an instance: they fit a node, divide the heads, and hold the KV of the longest request."""
        if tp < 1 or tp > max(self.node, self.tp) or self.gpus % tp:
            return False
        try:
            self.cost(tp)
            self.kv_tokens(tp)
        except InputError:
            return False
        return True

    def learning(self, tokens: npt.NDArray[Any], gpus: int | None = None) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64], float]:
        """The seconds of inference and of training for each sequence of `tokens`, and of the update, on all devices or on `gpus`."""
        per_token, per_pair, update = _training(self.model, self.device, self.node, self.gpus, self.train_tp, self.train_pp)
        x = np.asarray(tokens, float) * (self.gpus / (gpus or self.gpus))
        train = per_token * x + per_pair * x * np.asarray(tokens, float)
        # One forward pass of the four that a step with full recomputation makes.
        return train / 4, train, update

    def sync_s(self, tp: int | None = None) -> float:
        """The seconds that new weights take to the rollout's instances; each device gets its share over its port."""
        return float(self.shape.weight_bytes()) / (tp or self.tp) / self.joined()[1].far_rate

    def reshard_s(self, tp: int) -> float:
        """The seconds that it takes to redistribute the weights for instances of `tp` devices, inside nodes."""
        return float(self.shape.weight_bytes()) / tp / self.joined()[1].near_rate

    def with_size(self, **changes: Any) -> Setup:
        """A copy with some numbers changed."""
        return replace(self, **changes)


@functools.lru_cache(maxsize=16)
def _joined(device: str, node: int) -> tuple[Chip, Fabric]:
    from armillary.llm import Fabric, chip

    found = chip(device)
    return found, Fabric.of(found, node)


@functools.lru_cache(maxsize=64)
def _cost(model: str | Model, device: str, node: int, tp: int) -> CostArrays:
    from armillary.llm import StepCost

    shape, (chip, fabric) = find_model(model), _joined(device, node)
    spread = shape.mla is not None and tp > 1
    ep = tp if spread and shape.moe is not None and shape.moe.experts % tp == 0 else 1
    cost = StepCost.build(shape, chip, tp=tp, ep=ep, fabric=fabric, host_s=HOST_S, running_s=RUNNING_S).arrays()
    # With data-parallel attention every device reads the KV of its own requests only.
    return cost._replace(context_s=cost.context_s / tp) if spread else cost


@functools.lru_cache(maxsize=32)
def _training(model: str | Model, device: str, node: int, gpus: int, tp: int, pp: int) -> tuple[float, float, float]:
    """The seconds per token, per token squared, and per update, in training on all devices with full recomputation."""
    from armillary.llm import Batch, Plan, train_step

    shape, joined = find_model(model), _joined(device, node)
    dp = gpus // (tp * pp)
    ep = 1
    if shape.moe is not None:
        while 2 * ep <= min(dp * tp, 32) and shape.moe.experts % (2 * ep) == 0 and (dp * tp) % (2 * ep) == 0:
            ep *= 2
    plan = Plan(dp=dp, tp=tp, pp=pp, fsdp=dp, ep=ep, recompute="full", replicate_kv=True)
    many = max(8, 4 * pp)  # micro-batches give the bubble and the gathering of a real step
    one, two = (train_step(shape, plan, joined, Batch(dp * many, tokens)) for tokens in (PACKED, LONG))
    each = [(x.total - x.optimizer) / (dp * many) for x in (one, two)]
    per_pair = max(0.0, (each[1] / LONG - each[0] / PACKED) / (LONG - PACKED))
    return each[0] / PACKED - per_pair * PACKED, per_pair, one.optimizer
