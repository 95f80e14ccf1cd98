"""What is trained or planned: the weights of a model by module, their blocks, the number of ranks, and for real runs the tokens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from armillary.errors import InputError
from armillary.llm import Chip, Fabric, Model

from .ragged.granularity import Weight, weights_of

if TYPE_CHECKING:
    from armillary.cluster import Cluster
    from armillary.llm.model.shapes import Tensor

Shapes = dict[str, tuple[int, ...]]
#: The most modules of a model, which are planned one by one.
MOST_MODULES = 2_000


@dataclass(frozen=True)
class Planned:
    """Modules with their weights, to be sharded over `n` GPUs; `model` is known where a config describes them."""

    modules: tuple[tuple[Weight, ...], ...]
    n: int
    optimizer: str
    model: Model | None = None
    #: Tokens per GPU and step.
    tokens: int = 8192
    #: The GPU and the links between GPUs.
    machine: tuple[Chip, Fabric] = field(default_factory=lambda: Fabric.of_cluster("dgx-h100"))


@dataclass(frozen=True)
class Trained:
    """A tiny transformer and the tokens that it is trained on, [steps, sequences, tokens + 1]."""

    work: Mapping[str, Any]
    tokens: npt.NDArray[np.int32]
    n: int
    backend: str = "gloo"
    #: Seconds after which a run is given up.
    timeout: float = 120.0

    @property
    def exact(self) -> dict[str, Any]:
        """The same training in float64."""
        return {**self.work, "dtype": "float64"}


def shapes_of(model: Model) -> list[Shapes]:
    """The shapes of a model's weights by module in the order of the forward pass: embeddings, each layer, and the head with the last norm.

    A linear map is [outputs, inputs], as PyTorch keeps it, and its bias is a vector. The experts of a layer are fused into one tensor
    [experts, outputs, inputs], gate and up projection together, as MoE implementations keep them for grouped products.
    """
    if model.layers > MOST_MODULES:
        raise InputError(f"found {model.layers:,} layers; expected at most {MOST_MODULES:,}", where=model.name)
    first = [t for t in model.once if t.part == "embedding"]
    last = [t for t in model.once if t.part != "embedding"]
    found = [_module("", first)]
    at = 0
    for kind, count in model.kinds:
        for _ in range(count):
            found.append(_module(f"layers.{at}.", kind.tensors))
            at += 1
    found.append(_module("", last))
    return [shapes for shapes in found if shapes]


def _module(prefix: str, tensors: Sequence[Tensor]) -> Shapes:
    found: Shapes = {}
    for tensor in tensors:
        if tensor.tied:
            continue
        name = f"{prefix}{tensor.name}"
        if tensor.copies > 1 and tensor.name.endswith("up_proj"):
            continue  # It is fused with the gate projection.
        if tensor.copies > 1:
            fused = 2 if tensor.name.endswith("gate_proj") else 1
            name = name.replace("gate_proj", "gate_up_proj")
            found[f"{name}.weight"] = (tensor.copies, fused * tensor.outputs, tensor.inputs)
            if tensor.bias:
                found[f"{name}.bias"] = (tensor.copies, fused * tensor.bias)
        elif tensor.inputs == 1:
            found[f"{name}.weight"] = (tensor.outputs,)
            if tensor.bias:
                found[f"{name}.bias"] = (tensor.bias,)
        elif tensor.part == "embedding" and not tensor.matmul:
            found[f"{name}.weight"] = (tensor.inputs, tensor.outputs)
        else:
            found[f"{name}.weight"] = (tensor.outputs, tensor.inputs)
            if tensor.bias:
                found[f"{name}.bias"] = (tensor.bias,)
    return found


def planned(
    modules: Sequence[Shapes], n: int, blocks: Any, *, model: Model | None = None, optimizer: str = "adam8bit", tokens: int = 8192,
    cluster: Cluster | str = "dgx-h100",
) -> Planned:  # fmt: skip
    """The work of modules whose every matrix follows `blocks` (see `ragged.weights_of`); biases of experts are vectors, not a matrix."""
    if len(modules) > MOST_MODULES + 2:
        raise InputError(f"found {len(modules):,} modules; expected at most {MOST_MODULES:,}", where="model")
    every = weights_of({name: shape for shapes in modules for name, shape in shapes.items()}, blocks)
    known = {w.name: Weight(w.name, w.shape) if w.name.endswith(".bias") else w for w in every}
    made = tuple(tuple(known[name] for name in shapes) for shapes in modules)
    return Planned(made, n, optimizer, model, tokens, Fabric.of_cluster(cluster))


def sequences(rng: np.random.Generator, steps: int, count: int, length: int, vocabulary: int) -> npt.NDArray[np.int32]:
    """Tokens [steps, count, length + 1] of a random chain in which each token has four likely successors, so that a model can learn."""
    likely = rng.integers(0, vocabulary, (vocabulary, 4))
    out = np.empty((steps, count, length + 1), np.int32)
    out[..., 0] = rng.integers(0, vocabulary, (steps, count))
    for t in range(1, length + 1):
        follow = likely[out[..., t - 1], rng.integers(0, 4, (steps, count))]
        out[..., t] = np.where(rng.random((steps, count)) < 0.1, rng.integers(0, vocabulary, (steps, count)), follow)
    return out
