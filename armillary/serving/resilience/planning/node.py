"""A node with a model on it: the bytes of every shard, the memory left for keys and values, and the rates of the links."""

from __future__ import annotations

import functools
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from armillary.errors import InputError
from armillary.llm import Chip, Layer, Model, chip, kv_bytes_per_token

from .layout import Layout, Placement, failsafe_layout

GIB = float(2**30)
ATTENTION_ROLES = ("qkv", "o")
#: The parts that every GPU holds as a whole.
WHOLE_ROLES = ("router",)


@dataclass(frozen=True)
class Node:
    """GPUs of one kind in one host, and the model that they serve together.

    Rates are in bytes/s each way: `pcie` between the host and one GPU, `nvlink` from one GPU to all others together (900 GB/s both ways).
    An engine uses `memory_share` of a GPU and reserves `reserve_bytes` of it. `host_bytes` hold the weights and the mirror.
    """

    model: Model
    device: Chip = field(default_factory=lambda: chip("h100-80"))
    gpus: int = 8
    pcie: float = 55e9
    nvlink: float = 450e9
    host_bytes: float = 2.0 * 2**40
    memory_share: float = 0.9
    reserve_bytes: float = 2.0 * GIB
    block: int = 16

    def __post_init__(self) -> None:
        if not 1 <= self.gpus <= 64:
            raise InputError(f"gpus: found {self.gpus}; expected 1 to 64 in one node")
        if not (0 < self.pcie < 1e15 and 0 < self.nvlink < 1e15 and 0 < self.memory_share <= 1):
            raise InputError("pcie, nvlink, memory_share: expected positive bytes per second, and a share up to 1")
        if self.model.mla is not None or any(not layer.role("qkv") or not layer.role("o") for layer, _ in self.model.kinds):
            raise InputError(f"{self.model.name}: its attention has no heads to lay out one by one (latent or fused attention)")

    @functools.cached_property
    def kv_token_bytes(self) -> int:
        """The bytes of a token's keys and values over all heads and layers."""
        return kv_bytes_per_token(self.model)

    @property
    def head_layer_bytes(self) -> float:
        """The bytes of a token's keys and values of one head in one layer."""
        return self.kv_token_bytes / (self.model.layers * self.model.kv_heads)

    @property
    def ffn(self) -> int:
        """The columns by which a layer's MLP (or each of its experts) is split."""
        return self.model.moe.ffn if self.model.moe is not None else self.model.ffn

    @functools.cached_property
    def bytes_by_layer(self) -> npt.NDArray[np.float64]:
        """[layers, 3]: bytes of one head's attention weights, of one unit of MLP columns, and of what every GPU holds."""
        units = self.layout(1).ffn.shape[1]
        rows = []
        for kind, count in self.model.kinds:
            heads = self._stored(kind, lambda role: role in ATTENTION_ROLES)
            whole = self._stored(kind, lambda role: role in WHOLE_ROLES) + self._vectors(kind)
            mlp = self._stored(kind, lambda role: role not in ATTENTION_ROLES and role not in WHOLE_ROLES) - self._vectors(kind)
            rows += [(heads / self.model.kv_heads, mlp / units, whole)] * count
        return np.array(rows)

    def _stored(self, kind: Layer, takes: object) -> float:
        assert callable(takes)
        return sum(t.params * self.model.tensor_width(t) for t in kind.tensors if takes(t.role))

    def _vectors(self, kind: Layer) -> float:
        """Returns the bytes of the norms, which are not matrix products."""
        return sum(
            t.params * self.model.tensor_width(t) for t in kind.tensors if not t.matmul and t.role not in ATTENTION_ROLES + WHOLE_ROLES
        )

    @functools.cached_property
    def vocab_unit_bytes(self) -> float:
        """The bytes of one unit of vocabulary rows in the embedding and the head."""
        return (
            sum(t.params * self.model.tensor_width(t) for t in self.model.once if t.split == "vocabulary") / self.layout(1).vocab.shape[1]
        )

    def layout(self, gpus: int | tuple[int, ...], placement: Placement = "hybrid", keep: Layout | None = None) -> Layout:
        """Returns the layout of the model on these GPUs."""
        m = self.model
        return failsafe_layout(m.kv_heads, m.layers, gpus, placement=placement, ffn=self.ffn, vocab=m.vocab, keep=keep)

    def weight_bytes(self, layout: Layout) -> npt.NDArray[np.float64]:
        """Returns the bytes of weights on each GPU, [GPUs]."""
        each = self.bytes_by_layer
        heads = (layout.heads_per_gpu + layout.dp_heads[:, None]) * each[:, :1]
        rest = layout.units_per_gpu * each[:, 1:2] + each[:, 2:]
        whole = sum(t.params * self.model.tensor_width(t) for t in self.model.once if t.split != "vocabulary")
        return np.asarray((heads + rest).sum(axis=0) + layout.vocab_per_gpu * self.vocab_unit_bytes + whole)

    def free_bytes(self, layout: Layout) -> npt.NDArray[np.float64]:
        """Returns the bytes that weights and reserve leave for keys and values, [GPUs]; negative if they do not fit."""
        return np.asarray(self.memory_share * self.device.memory - self.reserve_bytes - self.weight_bytes(layout))

    def kv_blocks(self, layout: Layout) -> int:
        """Returns the blocks of keys and values that fit on the fullest GPU; 0 if not even the weights fit."""
        free = self.free_bytes(layout)
        return 0 if free.min() <= 0 else layout.kv_tokens(free, self.head_layer_bytes) // self.block

    def fits(self, layout: Layout) -> bool:
        """Returns whether the weights and at least one block fit."""
        return self.kv_blocks(layout) > 0

    def check(self, layout: Layout) -> None:
        """Raises `InputError` if the weights do not fit on the remaining GPUs."""
        if not self.fits(layout):
            need, has = float(self.weight_bytes(layout).max()), self.memory_share * self.device.memory - self.reserve_bytes
            raise InputError(
                f"{self.model.name} on {layout.gpus} × {self.device.name}: {need / 1e9:.1f} GB of weights a GPU leave no room for KV; "
                f"expected less than {has / 1e9:.1f} GB"
            )

    def least_gpus(self, placement: Placement = "hybrid") -> int:
        """Returns the fewest GPUs that hold the weights."""
        for g in range(1, self.gpus + 1):
            if self.fits(self.layout(g, placement)):
                return g
        self.check(self.layout(self.gpus, placement))
        return self.gpus
