"""The kinds of networks: what each is made of, as plain numbers, and the tensors that those numbers imply.

A configuration is a small pydantic model. It knows the names and shapes of all its tensors without PyTorch, so a model file is compared
with them before anything is allocated. `KINDS` is the table in which the `kind` of a file is looked up; nothing is imported by name.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, SerializeAsAny, ValidationError, model_validator

from armillary.errors import InputError, one_line, unknown

Shape = tuple[int, ...]
#: The most weights of a model.
MOST_WEIGHTS = 1 << 24
#: The most tensors of a model.
MOST_TENSORS = 4096
Size = Annotated[int, Field(ge=1, le=1 << 16, strict=True)]
Few = Annotated[int, Field(ge=1, le=64, strict=True)]
Sizes = Annotated[tuple[Size, ...], Field(max_length=16)]
Activation = Literal["relu", "tanh", "gelu", "silu"]
Name = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_-]{0,63}(\.[A-Za-z0-9_-]{1,64}){0,4}$")]


class Config(BaseModel):
    """The numbers from which a network is made. `kind` is its name in `KINDS`."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    kind: str
    #: The type of tensors that are no float32, by name.
    dtypes: ClassVar[Mapping[str, str]] = {}

    def shapes(self) -> dict[str, Shape]:
        """The shape of every tensor, by name, in the order of the module's state."""
        raise NotImplementedError

    def dtype_of(self, name: str) -> str:
        """The type of a tensor as a safetensors file names it: F32 for weights, I32 for indices."""
        return self.dtypes.get(name, "F32")

    def check(self, arrays: Mapping[str, Any], where: str) -> None:
        """Checks what only this kind knows about its arrays, such as indices that a compiled loop follows."""

    @property
    def weights(self) -> int:
        """The number of weights."""
        return sum(math.prod(shape) for shape in self.shapes().values())


def prefixed(prefix: str, shapes: Mapping[str, Shape]) -> dict[str, Shape]:
    """The shapes under names that begin with `prefix.`."""
    return {f"{prefix}.{name}": shape for name, shape in shapes.items()}


def linear(inputs: int, outputs: int) -> dict[str, Shape]:
    """Weight [outputs, inputs] and bias [outputs]."""
    return {"weight": (outputs, inputs), "bias": (outputs,)}


def _norm(size: int) -> dict[str, Shape]:
    return {"weight": (size,), "bias": (size,)}


class MlpConfig(Config):
    """A perceptron: `inputs` → each of `hidden` with the activation → `outputs`, linear."""

    kind: Literal["mlp"] = "mlp"
    inputs: Size
    hidden: Sizes = (64, 64)
    outputs: Size
    activation: Activation = "relu"

    def shapes(self) -> dict[str, Shape]:
        """`encoder.{2i}` are the hidden layers and `head` is the last one."""
        sizes = (self.inputs, *self.hidden)
        found: dict[str, Shape] = {}
        for i, (a, b) in enumerate(itertools.pairwise(sizes)):
            found |= prefixed(f"encoder.{2 * i}", linear(a, b))
        return found | prefixed("head", linear(sizes[-1], self.outputs))


class CrossDeepConfig(Config):
    """Deep & Cross v2: `cross` layers `x ← x₀ ⊙ (W x + b) + x` beside a deep perceptron, concatenated and mapped to `out`."""

    kind: Literal["cross-deep"] = "cross-deep"
    dim: Size
    cross: Annotated[int, Field(ge=0, le=16, strict=True)] = 2
    deep: Sizes = (128, 64)
    out: Size = 32
    #: The rank r of `W = U Vᵀ`; 0 is a full matrix.
    rank: Annotated[int, Field(ge=0, le=1 << 12, strict=True)] = 0
    activation: Activation = "relu"

    def shapes(self) -> dict[str, Shape]:
        """`cross.{l}` (or its factors `u` and `v`), `deep.{2i}` and `head`."""
        found: dict[str, Shape] = {}
        for i in range(self.cross):
            if self.rank:
                found |= prefixed(f"cross.{i}", {"u": (self.dim, self.rank), "v": (self.dim, self.rank), "bias": (self.dim,)})
            else:
                found |= prefixed(f"cross.{i}", linear(self.dim, self.dim))
        sizes = (self.dim, *self.deep)
        for i, (a, b) in enumerate(itertools.pairwise(sizes)):
            found |= prefixed(f"deep.{2 * i}", linear(a, b))
        last = sizes[-1] if self.deep else 0
        return found | prefixed("head", linear(self.dim + last, self.out))


Tower = Annotated[MlpConfig | CrossDeepConfig, Field(discriminator="kind")]


class DualTowerConfig(Config):
    """Two encoders with outputs of the same size, and how a left and a right vector give a score."""

    kind: Literal["dual-tower"] = "dual-tower"
    left: Tower
    right: Tower
    interaction: Literal["bilinear", "dot", "cosine"] = "bilinear"

    @model_validator(mode="after")
    def _of_one_size(self) -> DualTowerConfig:
        if _out(self.left) != _out(self.right):
            raise ValueError(f"the left tower gives {_out(self.left)} numbers and the right one {_out(self.right)}")
        return self

    def shapes(self) -> dict[str, Shape]:
        """`left.*`, `right.*` and for "bilinear" the matrix and the linear terms of `eᵥᵀ G eₚ + u·eᵥ + w·eₚ + b`."""
        found = prefixed("left", self.left.shapes()) | prefixed("right", self.right.shapes())
        if self.interaction == "bilinear":
            out = _out(self.left)
            found = {"matrix": (out, out), "u": (out,), "w": (out,), "bias": (1,)} | found
        return found


def _out(tower: Tower) -> int:
    return tower.outputs if isinstance(tower, MlpConfig) else tower.out


class RecurrentConfig(Config):
    """An LSTM or GRU over [batch, time, inputs]; the last hidden state goes through a linear head."""

    kind: Literal["lstm", "gru"]
    inputs: Size
    hidden: Size = 32
    layers: Few = 1
    outputs: Size

    def shapes(self) -> dict[str, Shape]:
        """PyTorch's own names inside `encoder`, and `head`."""
        gates = 4 if self.kind == "lstm" else 3
        found: dict[str, Shape] = {}
        for i in range(self.layers):
            inputs = self.inputs if i == 0 else self.hidden
            rows = gates * self.hidden
            found |= {f"encoder.weight_ih_l{i}": (rows, inputs), f"encoder.weight_hh_l{i}": (rows, self.hidden)}
            found |= {f"encoder.bias_ih_l{i}": (rows,), f"encoder.bias_hh_l{i}": (rows,)}
        return found | prefixed("head", linear(self.hidden, self.outputs))


class GruDecayConfig(Config):
    """A GRU whose state is multiplied by `exp(−max(0, w·Δt + b))` before each step."""

    kind: Literal["gru-decay"] = "gru-decay"
    inputs: Size
    hidden: Size = 32
    outputs: Size

    def shapes(self) -> dict[str, Shape]:
        """The cell, the decay and the head."""
        h = self.hidden
        cell = {"weight_ih": (3 * h, self.inputs), "weight_hh": (3 * h, h), "bias_ih": (3 * h,), "bias_hh": (3 * h,)}
        found: dict[str, Shape] = {"decay_weight": (h,), "decay_bias": (h,)}
        return found | prefixed("encoder", cell) | prefixed("head", linear(h, self.outputs))


class XlstmConfig(Config):
    """An sLSTM or mLSTM with exponential gating; `hidden` is split over `heads`."""

    kind: Literal["slstm", "mlstm"]
    inputs: Size
    hidden: Size = 32
    heads: Few = 4
    outputs: Size
    forget: Literal["sigmoid", "exp"] = "sigmoid"

    @model_validator(mode="after")
    def _divides(self) -> XlstmConfig:
        if self.hidden % self.heads:
            raise ValueError(f"hidden {self.hidden} is no multiple of heads {self.heads}")
        return self

    def shapes(self) -> dict[str, Shape]:
        """Gates, projections and head."""
        h, per = self.hidden, self.hidden // self.heads
        if self.kind == "slstm":
            found: dict[str, Shape] = {"weight": (4 * h, self.inputs), "recurrent": (4, self.heads, per, per), "bias": (4 * h,)}
        else:
            found = {"qkv": (3 * h, self.inputs), "output": (h, self.inputs)}
            found |= {"gates": (2 * self.heads, self.inputs), "gate_bias": (2 * self.heads,)}
        return found | prefixed("head", linear(h, self.outputs))


class TypedAttentionConfig(Config):
    """Self-attention over a set of typed tokens, with padding mask and optional learned pair bias."""

    kind: Literal["typed-attention"] = "typed-attention"
    inputs: Size
    d: Size = 64
    heads: Few = 4
    layers: Few = 2
    ffn: Size | None = None
    types: Few = 1
    #: "types" adds a learned scalar per head for each pair of token types; "edges" one for each kind of edge that the caller gives.
    pair_bias: Literal["types", "edges"] | None = None
    #: The kinds of edges, when `pair_bias` is "edges".
    edges: Few = 1
    readout: Literal["token", "mean", "attention"] = "token"
    head: Sizes = ()
    #: The numbers that the head gives; 0 returns the read-out itself.
    outputs: Annotated[int, Field(ge=0, le=1 << 16, strict=True)] = 0

    @model_validator(mode="after")
    def _divides(self) -> TypedAttentionConfig:
        if self.d % self.heads:
            raise ValueError(f"d {self.d} is no multiple of heads {self.heads}")
        return self

    def shapes(self) -> dict[str, Shape]:
        """Token embedding, blocks, biases, read-out and head."""
        d, f = self.d, self.ffn or 2 * self.d
        found: dict[str, Shape] = {"type_embedding": (self.types, d)}
        if self.pair_bias is not None:
            found["bias"] = (self.layers, self.heads, *((self.types, self.types) if self.pair_bias == "types" else (self.edges,)))
        if self.readout == "attention":
            found["query"] = (d,)
        found |= prefixed("embed", linear(self.inputs, d))
        for i in range(self.layers):
            block = prefixed("norm1", _norm(d)) | prefixed("qkv", linear(d, 3 * d)) | prefixed("out", linear(d, d))
            block |= prefixed("norm2", _norm(d)) | prefixed("ffn1", linear(d, f)) | prefixed("ffn2", linear(f, d))
            found |= prefixed(f"blocks.{i}", block)
        if self.outputs:
            found |= prefixed("head", MlpConfig(inputs=d, hidden=self.head, outputs=self.outputs).shapes())
        return found


class SetTransformerConfig(Config):
    """`isab` induced self-attention blocks over a set of vectors, pooled by `seeds` learned queries into [seeds · d] numbers."""

    kind: Literal["set-transformer"] = "set-transformer"
    inputs: Size
    d: Size = 32
    heads: Few = 4
    isab: Annotated[int, Field(ge=0, le=16, strict=True)] = 2
    inducing: Few = 8
    seeds: Few = 1
    #: The numbers that a linear head gives; 0 returns the pooled vector itself.
    outputs: Annotated[int, Field(ge=0, le=1 << 16, strict=True)] = 0

    @model_validator(mode="after")
    def _divides(self) -> SetTransformerConfig:
        if self.d % self.heads:
            raise ValueError(f"d {self.d} is no multiple of heads {self.heads}")
        return self

    def shapes(self) -> dict[str, Shape]:
        """Embedding, blocks, pooling, the vector of the empty set, head."""
        d = self.d
        mab = prefixed("q", linear(d, d)) | prefixed("kv", linear(d, 2 * d)) | prefixed("out", linear(d, d))
        mab |= prefixed("norm1", _norm(d)) | prefixed("ffn", linear(d, d)) | prefixed("norm2", _norm(d))
        found: dict[str, Shape] = {"empty": (self.seeds * d,)} | prefixed("embed", linear(self.inputs, d))
        for i in range(self.isab):
            block: dict[str, Shape] = {"inducing": (self.inducing, d)} | prefixed("gather", mab) | prefixed("spread", mab)
            found |= prefixed(f"blocks.{i}", block)
        found |= {"pool.seeds": (self.seeds, d)} | prefixed("pool.mab", mab)
        return found | (prefixed("head", linear(self.seeds * d, self.outputs)) if self.outputs else {})


class CnnConfig(Config):
    """A small image network over [batch, channels, height, width].

    cnn2 and cnn3 have two and three layers of 3×3 convolutions with `width`, 2·`width`, … channels, each followed by 2×2 max pooling, and
    are flattened. cnn-encoder has `layers` convolutions with stride 2 and takes the mean over the image, so that any size fits.
    """

    kind: Literal["cnn2", "cnn3", "cnn-encoder"]
    channels: Size = 1
    #: Height and width of the images, in pixels; cnn-encoder takes any.
    size: Annotated[tuple[Size, Size], Field()] = (28, 28)
    width: Size = 8
    layers: Annotated[int, Field(ge=1, le=8, strict=True)] = 3
    outputs: Size

    @model_validator(mode="after")
    def _leaves_pixels(self) -> CnnConfig:
        if self.kind != "cnn-encoder" and min(self.size) >> self.depth < 1:
            raise ValueError(f"images of {self.size[0]} × {self.size[1]} pixels vanish after {self.depth} poolings")
        return self

    @property
    def depth(self) -> int:
        """The number of convolutions."""
        return {"cnn2": 2, "cnn3": 3}.get(self.kind, self.layers)

    @property
    def features(self) -> int:
        """The numbers that the encoder gives."""
        last = self.width << (self.depth - 1)
        return last if self.kind == "cnn-encoder" else last * (self.size[0] >> self.depth) * (self.size[1] >> self.depth)

    def shapes(self) -> dict[str, Shape]:
        """`encoder.{i}` are the convolutions and `head` is linear."""
        found: dict[str, Shape] = {}
        before = self.channels
        for i in range(self.depth):
            found |= prefixed(f"encoder.{i}", {"weight": (self.width << i, before, 3, 3), "bias": (self.width << i,)})
            before = self.width << i
        return found | prefixed("head", linear(self.features, self.outputs))


class ActorCriticConfig(Config):
    """A policy and a value over one observation vector, or over one vector per entity with a head that all entities share.

    Without entities the observation is [inputs] and the policy gives the logits of all factors one after the other. With
    `entities=True` it is [entities, inputs]; each entity's encoding is joined with the mean over all, so any number of entities fits, and
    each of them chooses one of `factors[0]` actions.
    """

    kind: Literal["actor-critic"] = "actor-critic"
    inputs: Size
    hidden: Sizes = (64, 64)
    factors: Annotated[tuple[Size, ...], Field(min_length=1, max_length=256)]
    entities: bool = False
    activation: Activation = "tanh"

    @model_validator(mode="after")
    def _shares(self) -> ActorCriticConfig:
        if self.entities and (len(self.factors) != 1 or not self.hidden):
            raise ValueError("entities share one head, so they have one factor and at least one hidden layer")
        return self

    @property
    def parts(self) -> dict[str, MlpConfig]:
        """The perceptrons that it is made of."""
        outputs = sum(self.factors)
        if not self.entities:
            return {
                "policy": MlpConfig(inputs=self.inputs, hidden=self.hidden, outputs=outputs, activation=self.activation),
                "value": MlpConfig(inputs=self.inputs, hidden=self.hidden, outputs=1, activation=self.activation),
            }
        *rest, last = self.hidden
        return {
            "encoder": MlpConfig(inputs=self.inputs, hidden=tuple(rest), outputs=last, activation=self.activation),
            "policy": MlpConfig(inputs=2 * last, hidden=(last,), outputs=outputs, activation=self.activation),
            "value": MlpConfig(inputs=last, hidden=(last,), outputs=1, activation=self.activation),
        }

    def shapes(self) -> dict[str, Shape]:
        """The perceptrons, and the normalisation of observations and returns that was in use when training ended."""
        found: dict[str, Shape] = {"observation_mean": (self.inputs,), "observation_scale": (self.inputs,), "return_scale": (1,)}
        for name, part in self.parts.items():
            found |= prefixed(name, part.shapes())
        return found


class TreesConfig(Config):
    """Regression trees whose values are added: `trees` trees of `nodes` nodes in all, over `inputs` features.

    A node with feature −1 is a leaf and `split` is its value. Otherwise a row goes to the next node if its feature is at most `split`, or
    if it is missing and `missing_left` is set, and to the node `right` if not. The trees of one group are added to one output.
    """

    kind: Literal["trees"] = "trees"
    inputs: Annotated[int, Field(ge=1, le=1 << 14, strict=True)]
    outputs: Few = 1
    trees: Annotated[int, Field(ge=1, le=1 << 16, strict=True)]
    nodes: Annotated[int, Field(ge=1, le=1 << 22, strict=True)]
    #: "mean" divides by the number of trees per output, as a forest does.
    reduce: Literal["sum", "mean"] = "sum"
    link: Literal["identity", "sigmoid"] = "identity"
    dtypes: ClassVar[Mapping[str, str]] = {"root": "I32", "group": "I32", "feature": "I16", "right": "I32", "missing_left": "U8"}

    def shapes(self) -> dict[str, Shape]:
        """Arrays over outputs, over trees and over nodes."""
        found: dict[str, Shape] = {"start": (self.outputs,), "root": (self.trees,), "group": (self.trees,)}
        return found | dict.fromkeys(("feature", "split", "right", "missing_left"), (self.nodes,))

    def check(self, arrays: Mapping[str, Any], where: str) -> None:
        """Refuses nodes, features and groups that do not exist, and children that do not stand behind their parent (a cycle)."""
        from .trees import check_trees

        check_trees(self, arrays, where)


class ArraysConfig(Config):
    """Named float32 arrays without a network: tables, histograms, a field's own learner."""

    kind: Literal["arrays"] = "arrays"
    arrays: Annotated[dict[Name, tuple[Annotated[int, Field(ge=0, le=1 << 24, strict=True)], ...]], Field(max_length=256)]

    def shapes(self) -> dict[str, Shape]:
        """As they were declared."""
        return dict(self.arrays)


def _config(value: Any) -> Any:
    return value if isinstance(value, Config) else parse_config(value)


class PartsConfig(Config):
    """Several networks and single tensors of one model, by name: how a field's own composition is stored."""

    kind: Literal["parts"] = "parts"
    parts: Annotated[dict[Name, Annotated[SerializeAsAny[Config], BeforeValidator(_config)]], Field(max_length=64)] = Field(
        default_factory=dict
    )
    arrays: Annotated[dict[Name, tuple[Annotated[int, Field(ge=0, le=1 << 24, strict=True)], ...]], Field(max_length=256)] = Field(
        default_factory=dict
    )

    @model_validator(mode="after")
    def _flat(self) -> PartsConfig:
        names = sorted([*self.parts, *self.arrays])
        for one, other in itertools.pairwise(names):
            if one == other or other.startswith(f"{one}."):
                raise ValueError(f'"{one}" and "{other}" stand in the same place')
        if any(part.kind == "parts" for part in self.parts.values()):
            raise ValueError("parts hold no further parts; use names with dots")
        return self

    def shapes(self) -> dict[str, Shape]:
        """`name` for single tensors, `part.name` for those of a part."""
        found: dict[str, Shape] = dict(self.arrays)
        for name, part in self.parts.items():
            found |= prefixed(name, part.shapes())
        return found

    def dtype_of(self, name: str) -> str:
        """As the part says."""
        for part, config in self.parts.items():
            if name.startswith(f"{part}."):
                return config.dtype_of(name.removeprefix(f"{part}."))
        return "F32"

    def check(self, arrays: Mapping[str, Any], where: str) -> None:
        """Lets every part check its own."""
        for name, part in self.parts.items():
            part.check({key.removeprefix(f"{name}."): a for key, a in arrays.items() if key.startswith(f"{name}.")}, where)


#: The table of kinds. A field adds its own with `register`.
KINDS: dict[str, type[Config]] = {
    "mlp": MlpConfig, "cross-deep": CrossDeepConfig, "dual-tower": DualTowerConfig, "lstm": RecurrentConfig, "gru": RecurrentConfig,
    "gru-decay": GruDecayConfig, "slstm": XlstmConfig, "mlstm": XlstmConfig, "typed-attention": TypedAttentionConfig,
    "set-transformer": SetTransformerConfig, "cnn2": CnnConfig, "cnn3": CnnConfig, "cnn-encoder": CnnConfig,
    "actor-critic": ActorCriticConfig, "trees": TreesConfig, "arrays": ArraysConfig, "parts": PartsConfig,
}  # fmt: skip


def register(kind: str, config: type[Config]) -> None:
    """Adds a kind of network to the table; a name is given once."""
    if KINDS.setdefault(kind, config) is not config:
        raise InputError(f'found a second kind named "{kind}"; expected another name')


def parse_config(value: Any, *, where: str | None = None) -> Config:
    """The configuration that some JSON describes, checked, with at most 2²⁴ weights."""
    kind = value.get("kind") if isinstance(value, dict) else None
    if not isinstance(kind, str):
        raise InputError(f'found {one_line(repr(value), 60)}; expected an object with "kind"', where=where)
    if kind not in KINDS:
        raise unknown("kind", kind, KINDS, where=where)
    try:
        config = KINDS[kind].model_validate(value)
    except InputError as error:
        raise InputError(error.message, where=where) from None
    except (ValidationError, RecursionError) as error:
        raise InputError(_said(error), where=where) from None
    shapes = config.shapes()
    if len(shapes) > MOST_TENSORS or config.weights > MOST_WEIGHTS:
        said = f"found {len(shapes):,} tensors of {config.weights:,} weights; expected at most {MOST_TENSORS:,} of {MOST_WEIGHTS:,}"
        raise InputError(said, where=where)
    return config


def _said(error: Exception) -> str:
    if not isinstance(error, ValidationError):
        return "found a configuration that is nested too deeply; expected fewer levels"
    first = error.errors()[0]
    key = ".".join(map(str, first["loc"]))
    found, why = one_line(repr(first.get("input")), 60), one_line(first["msg"], 120)
    return f"config.{one_line(key, 60)}: found {found}; expected another value ({why})"
