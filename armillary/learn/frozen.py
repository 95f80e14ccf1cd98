"""Trained networks as plain arrays, which run without PyTorch.

A simulator asks a small network a million times, one state at a time. `FrozenMlp`, `FrozenCrossDeep` and `FrozenLstm` therefore offer
their weights as `compiled`: a flat float32 array and a few numbers, which a compiled loop passes to `mlp_into`, `cross_deep_into` or
`lstm_step` (see `docs/learn.md`). Called like a function they take a batch of NumPy arrays, as all frozen networks do.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from armillary.errors import InputError
from armillary.kernels import kernel

from .kinds import (
    ActorCriticConfig,
    ArraysConfig,
    CnnConfig,
    Config,
    CrossDeepConfig,
    DualTowerConfig,
    GruDecayConfig,
    MlpConfig,
    PartsConfig,
    RecurrentConfig,
    SetTransformerConfig,
    TreesConfig,
    TypedAttentionConfig,
    XlstmConfig,
)
from .products import product

Array = np.ndarray[Any, Any]
Compiled = tuple[Array, Array, int]
#: The numbers by which compiled loops know the activations.
ACTIVATIONS = {"relu": 0, "tanh": 1, "gelu": 2, "silu": 3}


def freeze(config: Config, arrays: Mapping[str, Array]) -> Any:
    """The frozen network of a configuration and its arrays."""
    for kind, make in _FROZEN.items():
        if isinstance(config, kind):
            return make(config, dict(arrays))
    raise InputError(f'found the kind "{config.kind}"; expected one that has frozen inference')


def _under(prefix: str, arrays: Mapping[str, Array]) -> dict[str, Array]:
    start = f"{prefix}."
    return {name.removeprefix(start): array for name, array in arrays.items() if name.startswith(start)}


# ---- parts of networks over batches ----


def _sigmoid(x: Array) -> Array:
    found: Array = 0.5 * (np.tanh(0.5 * x) + 1)
    return found


def _activate(x: Array, activation: str) -> Array:
    if activation == "relu":
        return np.maximum(x, 0)
    if activation == "tanh":
        return np.tanh(x)
    if activation == "silu":
        return x * _sigmoid(x)
    from scipy.special import erf

    found: Array = 0.5 * x * (1 + erf(x * np.float32(1 / math.sqrt(2))))
    return found


def _linear(x: Array, arrays: Mapping[str, Array], name: str) -> Array:
    found: Array = product(x, arrays[f"{name}.weight"].T) + arrays[f"{name}.bias"]
    return found


def _layer_norm(x: Array, arrays: Mapping[str, Array], name: str) -> Array:
    centred = x - x.mean(-1, keepdims=True)
    found: Array = centred / np.sqrt((centred * centred).mean(-1, keepdims=True) + 1e-5)
    return found * arrays[f"{name}.weight"] + arrays[f"{name}.bias"]


def _softmax(logits: Array) -> Array:
    made = np.exp(logits - logits.max(-1, keepdims=True))
    found: Array = made / made.sum(-1, keepdims=True)
    return found


def _attend(q: Array, k: Array, v: Array, heads: int, bias: Array | float) -> Array:
    """Attention from [batch, n, d] to [batch, m, d]; the bias is added to the logits [batch, heads, n, m]."""
    batch, n, d = q.shape
    q, k, v = (a.reshape(batch, -1, heads, d // heads).transpose(0, 2, 1, 3) for a in (q, k, v))
    logits = product(q, k.transpose(0, 1, 3, 2)) / np.float32(math.sqrt(d // heads)) + bias
    return product(_softmax(logits), v).transpose(0, 2, 1, 3).reshape(batch, n, d)


def _closed(real: Array) -> Array:
    """0 for keys that may be attended to and −inf for the others, [batch, 1, 1, keys]; rows without any are open."""
    allowed = real | ~real.any(-1, keepdims=True)
    return np.where(allowed, np.float32(0), np.float32(-np.inf))[:, None, None, :]


# ---- one state at a time, inside other compiled loops ----


@kernel
def _activated(x: float, activation: int) -> float:
    if activation == 0:
        return x if x > 0 else 0 * x
    if activation == 1:
        return math.tanh(x)
    if activation == 2:
        return 0.5 * x * (1 + math.erf(x * 0.7071067811865476))
    return x / (1 + math.exp(-x))


@kernel
def _dense(weights: Array, at: int, inputs: int, outputs: int, x: Array, out: Array) -> int:
    """out = x W + b, with W [inputs, outputs] and b at `at`; returns where the next layer begins."""
    bias = at + inputs * outputs
    for j in range(outputs):
        out[j] = weights[bias + j]
    for i in range(inputs):
        value = x[i]
        row = weights[at + i * outputs : at + (i + 1) * outputs]
        for j in range(outputs):
            out[j] += value * row[j]
    return bias + outputs


@kernel
def mlp_into(weights: Array, sizes: Array, activation: int, x: Array, out: Array, scratch: Array) -> None:
    """Computes a perceptron for one row: `out` [outputs] from `x` [inputs].

    `weights`, `sizes` and `activation` are a frozen perceptron's `compiled`; `scratch` is float32 with `2 * sizes.max()` elements.
    """
    widest = scratch.shape[0] // 2
    layers = sizes.shape[0] - 1
    at = 0
    for layer in range(layers):
        inputs, outputs = sizes[layer], sizes[layer + 1]
        here = scratch[:widest] if layer % 2 == 0 else scratch[widest:]
        if layer == layers - 1:
            here = out
        if layer == 0:
            at = _dense(weights, at, inputs, outputs, x, here)
        else:
            before = scratch[widest:] if layer % 2 == 0 else scratch[:widest]
            at = _dense(weights, at, inputs, outputs, before, here)
        if layer < layers - 1:
            for j in range(outputs):
                here[j] = _activated(here[j], activation)


@kernel
def mlp_best(weights: Array, sizes: Array, activation: int, x: Array, out: Array, scratch: Array) -> int:
    """The number of the largest output of a perceptron; the first one among equals. `out` holds all outputs afterwards."""
    mlp_into(weights, sizes, activation, x, out, scratch)
    best = 0
    for j in range(1, sizes[-1]):
        if out[j] > out[best]:
            best = j
    return best


@kernel
def cross_deep_into(weights: Array, sizes: Array, activation: int, x: Array, out: Array, scratch: Array) -> None:
    """Computes a `CrossDeep` for one row. `sizes` is (cross layers, dim, deep sizes…, out); `scratch` has 3 · (dim + widest) elements."""
    cross, dim = sizes[0], sizes[1]
    deep = sizes.shape[0] - 3
    third = scratch.shape[0] // 3
    crossed, made, joined = scratch[:third], scratch[third : 2 * third], scratch[2 * third :]
    at = 0
    for i in range(dim):
        crossed[i] = x[i]
    for _ in range(cross):
        at = _dense(weights, at, dim, dim, crossed, made)
        for i in range(dim):
            crossed[i] += x[i] * made[i]
    for i in range(dim):
        joined[i] = crossed[i]
    width = dim
    if deep > 0:
        for i in range(dim):
            made[i] = x[i]
        inputs = dim
        for layer in range(deep):
            outputs = sizes[2 + layer]
            # `crossed` has been copied, so both halves are free to alternate.
            if layer % 2 == 0:
                at = _dense(weights, at, inputs, outputs, made, crossed)
                for j in range(outputs):
                    crossed[j] = _activated(crossed[j], activation)
            else:
                at = _dense(weights, at, inputs, outputs, crossed, made)
                for j in range(outputs):
                    made[j] = _activated(made[j], activation)
            inputs = outputs
        last = crossed if deep % 2 == 1 else made
        for j in range(inputs):
            joined[dim + j] = last[j]
        width = dim + inputs
    _dense(weights, at, width, sizes[-1], joined, out)


@kernel
def lstm_step(weights: Array, sizes: Array, layer: int, x: Array, h: Array, c: Array, scratch: Array) -> None:
    """Advances one layer of an LSTM in place: `h` and `c` [hidden] by one input `x`.

    `sizes` is (inputs, hidden, layers, outputs); `scratch` has 8 · hidden elements.
    """
    hidden = sizes[1]
    at = 0
    for before in range(layer):
        inputs = sizes[0] if before == 0 else hidden
        at += (inputs + hidden + 2) * 4 * hidden
    inputs = sizes[0] if layer == 0 else hidden
    gates, back = scratch[: 4 * hidden], scratch[4 * hidden :]
    at = _dense(weights, at, inputs, 4 * hidden, x, gates)
    _dense(weights, at, hidden, 4 * hidden, h, back)
    for j in range(hidden):
        i = 1 / (1 + math.exp(-(gates[j] + back[j])))
        f = 1 / (1 + math.exp(-(gates[hidden + j] + back[hidden + j])))
        g = math.tanh(gates[2 * hidden + j] + back[2 * hidden + j])
        o = 1 / (1 + math.exp(-(gates[3 * hidden + j] + back[3 * hidden + j])))
        c[j] = f * c[j] + i * g
        h[j] = o * math.tanh(c[j])


def _flat(arrays: Mapping[str, Array], names: list[str]) -> Array:
    """Weight [inputs, outputs] and bias of each named layer, one after the other."""
    parts = [part.ravel() for name in names for part in (arrays[f"{name}.weight"].T, arrays[f"{name}.bias"])]
    return np.ascontiguousarray(np.concatenate(parts), np.float32)


# ---- networks ----


@dataclass
class FrozenMlp:
    """A perceptron."""

    config: MlpConfig
    arrays: dict[str, Array]

    def __call__(self, x: Array) -> Array:
        """[..., outputs] from [..., inputs]."""
        return _linear(self.features(x), self.arrays, "head")

    def features(self, x: Array) -> Array:
        """The last hidden layer."""
        x = np.asarray(x, np.float32)
        for i in range(len(self.config.hidden)):
            x = _activate(_linear(x, self.arrays, f"encoder.{2 * i}"), self.config.activation)
        return x

    @property
    def compiled(self) -> Compiled:
        """(weights, sizes, activation) for `mlp_into` and `mlp_best`."""
        c = self.config
        names = [f"encoder.{2 * i}" for i in range(len(c.hidden))] + ["head"]
        return _flat(self.arrays, names), np.array((c.inputs, *c.hidden, c.outputs), np.int64), ACTIVATIONS[c.activation]

    def scratch(self) -> Array:
        """The array that compiled loops work in; each thread needs its own."""
        return np.empty(2 * max(self.config.inputs, *self.config.hidden, self.config.outputs), np.float32)


@dataclass
class FrozenCrossDeep:
    """Deep & Cross v2."""

    config: CrossDeepConfig
    arrays: dict[str, Array]

    def __call__(self, x: Array) -> Array:
        """[..., out] from [..., dim]."""
        x = np.asarray(x, np.float32)
        crossed = x
        for i in range(self.config.cross):
            crossed = x * (product(crossed, self._matrix(i).T) + self.arrays[f"cross.{i}.bias"]) + crossed
        if not self.config.deep:
            return _linear(crossed, self.arrays, "head")
        deep = x
        for i in range(len(self.config.deep)):
            deep = _activate(_linear(deep, self.arrays, f"deep.{2 * i}"), self.config.activation)
        return _linear(np.concatenate([crossed, deep], -1), self.arrays, "head")

    def _matrix(self, i: int) -> Array:
        if not self.config.rank:
            return self.arrays[f"cross.{i}.weight"]
        found: Array = product(self.arrays[f"cross.{i}.u"], self.arrays[f"cross.{i}.v"].T)
        return found

    @property
    def compiled(self) -> Compiled:
        """(weights, sizes, activation) for `cross_deep_into`."""
        c = self.config
        full = self.arrays | {f"cross.{i}.weight": self._matrix(i) for i in range(c.cross)}
        names = [f"cross.{i}" for i in range(c.cross)] + [f"deep.{2 * i}" for i in range(len(c.deep))] + ["head"]
        return _flat(full, names), np.array((c.cross, c.dim, *c.deep, c.out), np.int64), ACTIVATIONS[c.activation]

    def scratch(self) -> Array:
        """The array that `cross_deep_into` works in."""
        return np.empty(3 * (self.config.dim + max(self.config.dim, *self.config.deep, 1)), np.float32)


@dataclass
class FrozenDualTower:
    """Two towers; `left` and `right` are frozen networks of their own."""

    config: DualTowerConfig
    arrays: dict[str, Array]

    def __post_init__(self) -> None:
        self.left = freeze(self.config.left, _under("left", self.arrays))
        self.right = freeze(self.config.right, _under("right", self.arrays))

    def encode_left(self, x: Array) -> Array:
        """[..., out] of the left side."""
        return self._normal(self.left(x))

    def encode_right(self, x: Array) -> Array:
        """[..., out] of the right side."""
        return self._normal(self.right(x))

    def _normal(self, e: Array) -> Array:
        if self.config.interaction != "cosine":
            return e
        found: Array = e / np.maximum(np.linalg.norm(e, axis=-1, keepdims=True), 1e-8)
        return found

    def __call__(self, left: Array, right: Array) -> Array:
        """The score of each pair of rows."""
        e, p = self.encode_left(left), self.encode_right(right)
        if self.config.interaction != "bilinear":
            dots: Array = (e * p).sum(-1)
            return dots
        a = self.arrays
        found: Array = (product(e, a["matrix"]) * p).sum(-1) + product(e, a["u"]) + product(p, a["w"]) + a["bias"]
        return found

    def scores(self, left: Array, right: Array) -> Array:
        """The scores of all pairs of encoded rows, [n left, n right]; besides the result, only arrays of one side's size are made."""
        if self.config.interaction != "bilinear":
            return product(left, right.T)
        out = product(product(left, self.arrays["matrix"]), right.T)
        out += product(left, self.arrays["u"])[:, None]
        out += (product(right, self.arrays["w"]) + self.arrays["bias"])[None, :]
        return out


@dataclass
class FrozenLstm:
    """An LSTM or GRU with a linear head."""

    config: RecurrentConfig
    arrays: dict[str, Array]

    def features(self, x: Array) -> Array:
        """The last hidden state, [batch, hidden], of [batch, time, inputs]."""
        x = np.asarray(x, np.float32)
        for layer in range(self.config.layers):
            h = c = np.zeros((len(x), self.config.hidden), np.float32)
            states = []
            for t in range(x.shape[1]):
                h, c = self._step(layer, x[:, t], h, c)
                states.append(h)
            x = np.stack(states, 1)
        return x[:, -1]

    def _step(self, layer: int, x: Array, h: Array, c: Array) -> tuple[Array, Array]:
        a = self.arrays
        given = product(x, a[f"encoder.weight_ih_l{layer}"].T) + a[f"encoder.bias_ih_l{layer}"]
        back = product(h, a[f"encoder.weight_hh_l{layer}"].T) + a[f"encoder.bias_hh_l{layer}"]
        if self.config.kind == "gru":
            return _gru(given, back, h), c
        i, f, g, o = np.split(given + back, 4, -1)
        c = _sigmoid(f) * c + _sigmoid(i) * np.tanh(g)
        return _sigmoid(o) * np.tanh(c), c

    def __call__(self, x: Array) -> Array:
        """[batch, outputs]."""
        return _linear(self.features(x), self.arrays, "head")

    @property
    def compiled(self) -> tuple[Array, Array]:
        """(weights, sizes) for `lstm_step`; LSTMs only. The head follows after the last layer."""
        if self.config.kind != "lstm":
            raise InputError("found a GRU; expected an LSTM, which alone has a compiled step")
        a, c = self.arrays, self.config
        full: dict[str, Array] = {}
        names = []
        for i in range(c.layers):
            for way in ("ih", "hh"):
                names.append(f"{way}{i}")
                full |= {f"{way}{i}.weight": a[f"encoder.weight_{way}_l{i}"], f"{way}{i}.bias": a[f"encoder.bias_{way}_l{i}"]}
        full |= {"head.weight": a["head.weight"], "head.bias": a["head.bias"]}
        return _flat(full, [*names, "head"]), np.array((c.inputs, c.hidden, c.layers, c.outputs), np.int64)

    def scratch(self) -> Array:
        """The array that `lstm_step` works in."""
        return np.empty(8 * self.config.hidden, np.float32)


def _gru(given: Array, back: Array, h: Array) -> Array:
    r, z, n = np.split(given, 3, -1)
    hr, hz, hn = np.split(back, 3, -1)
    new = np.tanh(n + _sigmoid(r + hr) * hn)
    keep = _sigmoid(z + hz)
    return (1 - keep) * new + keep * h


@dataclass
class FrozenGruDecay:
    """A GRU for irregular times."""

    config: GruDecayConfig
    arrays: dict[str, Array]

    def __call__(self, x: Array, gaps: Array) -> Array:
        """[batch, outputs] from [batch, time, inputs] and the times since the steps before, [batch, time]."""
        a = self.arrays
        x, gaps = np.asarray(x, np.float32), np.asarray(gaps, np.float32)
        h = np.zeros((len(x), self.config.hidden), np.float32)
        for t in range(x.shape[1]):
            h = h * np.exp(-np.maximum(a["decay_weight"] * gaps[:, t, None] + a["decay_bias"], 0))
            given = product(x[:, t], a["encoder.weight_ih"].T) + a["encoder.bias_ih"]
            h = _gru(given, product(h, a["encoder.weight_hh"].T) + a["encoder.bias_hh"], h)
        return _linear(h, a, "head")


@dataclass
class FrozenXlstm:
    """An sLSTM or mLSTM, step by step."""

    config: XlstmConfig
    arrays: dict[str, Array]

    def __call__(self, x: Array) -> Array:
        """[batch, outputs] from [batch, time, inputs]."""
        x = np.asarray(x, np.float32)
        return _linear(self._slstm(x) if self.config.kind == "slstm" else self._mlstm(x), self.arrays, "head")

    def _log_forget(self, raw: Array) -> Array:
        return -np.logaddexp(np.float32(0), -raw) if self.config.forget == "sigmoid" else raw

    def _slstm(self, x: Array) -> Array:
        a, heads = self.arrays, self.config.heads
        h = c = n = np.zeros((len(x), self.config.hidden), np.float32)
        m = np.full_like(h, -np.inf)
        # [heads, from, gate and to].
        recurrent = a["recurrent"].transpose(1, 3, 0, 2).reshape(heads, self.config.hidden // heads, -1)
        for t in range(x.shape[1]):
            each = product(h.reshape(len(h), heads, -1).transpose(1, 0, 2), recurrent).reshape(heads, len(h), 4, -1)
            back = each.transpose(1, 2, 0, 3).reshape(len(h), -1)
            z, log_i, f, o = np.split(product(x[:, t], a["weight"].T) + a["bias"] + back, 4, -1)
            log_f = self._log_forget(f)
            new = np.maximum(log_f + m, log_i)
            i, kept = np.exp(log_i - new), np.exp(log_f + m - new)
            c, n, m = kept * c + i * np.tanh(z), kept * n + i, new
            h = _sigmoid(o) * c / n
        return h

    def _mlstm(self, x: Array) -> Array:
        a, heads, per = self.arrays, self.config.heads, self.config.hidden // self.config.heads
        memory, n = np.zeros((len(x), heads, per, per), np.float32), np.zeros((len(x), heads, per), np.float32)
        m = np.full((len(x), heads), -np.inf, np.float32)
        h = np.zeros((len(x), self.config.hidden), np.float32)
        for t in range(x.shape[1]):
            q, k, v = (part.reshape(len(x), heads, per) for part in np.split(product(x[:, t], a["qkv"].T), 3, -1))
            k = k / np.float32(math.sqrt(per))
            log_i, f = np.split(product(x[:, t], a["gates"].T) + a["gate_bias"], 2, -1)
            log_f = self._log_forget(f)
            new = np.maximum(log_f + m, log_i)
            i, kept = np.exp(log_i - new)[..., None], np.exp(log_f + m - new)[..., None]
            memory = kept[..., None] * memory + i[..., None] * v[..., :, None] * k[..., None, :]
            n, m = kept * n + i * k, new
            under = np.maximum(np.abs((n * q).sum(-1)), np.exp(-m))
            read = product(memory, q[..., None])[..., 0] / under[..., None]
            h = _sigmoid(product(x[:, t], a["output"].T)) * read.reshape(len(x), -1)
        return h


@dataclass
class FrozenTypedAttention:
    """Attention over typed tokens, in batches."""

    config: TypedAttentionConfig
    arrays: dict[str, Array]

    def tokens(self, x: Array, types: Array | None = None, mask: Array | None = None, edges: Array | None = None) -> Array:
        """The tokens after all blocks, [batch, tokens, d]."""
        a, c = self.arrays, self.config
        x = np.asarray(x, np.float32)
        batch, n, _ = x.shape
        types = np.zeros((batch, n), np.int64) if types is None else np.asarray(types, np.int64)
        if types.size and not 0 <= types.min() <= types.max() < c.types:
            raise InputError(f"found token types from {types.min()} to {types.max()}; expected 0 to {c.types - 1}")
        real = np.ones((batch, n), bool) if mask is None else np.asarray(mask, bool)
        x = _linear(np.where(real[..., None], x, np.float32(0)), a, "embed") + a["type_embedding"][types]
        padding = _closed(real)
        for i in range(c.layers):
            q, k, v = np.split(_linear(_layer_norm(x, a, f"blocks.{i}.norm1"), a, f"blocks.{i}.qkv"), 3, -1)
            x = x + _linear(_attend(q, k, v, c.heads, padding + self._bias(i, types, edges)), a, f"blocks.{i}.out")
            inner = _activate(_linear(_layer_norm(x, a, f"blocks.{i}.norm2"), a, f"blocks.{i}.ffn1"), "gelu")
            x = x + _linear(inner, a, f"blocks.{i}.ffn2")
        return x

    def _bias(self, layer: int, types: Array, edges: Array | None) -> Array | float:
        if self.config.pair_bias == "types":
            return self.arrays["bias"][layer][:, types[:, :, None], types[:, None, :]].transpose(1, 0, 2, 3)
        if self.config.pair_bias == "edges" and edges is not None:
            edges = np.asarray(edges, np.int64)
            return self.arrays["bias"][layer][:, np.maximum(edges, 0)].transpose(1, 0, 2, 3) * (edges >= 0)[:, None]
        return 0.0

    def features(
        self, x: Array, types: Array | None = None, mask: Array | None = None, edges: Array | None = None, token: int = 0
    ) -> Array:
        """The read-out, [batch, d]."""
        found = self.tokens(x, types, mask, edges)
        real = np.ones(found.shape[:2], bool) if mask is None else np.asarray(mask, bool)
        if self.config.readout == "token":
            read = found[:, token]
        elif self.config.readout == "mean":
            read = np.where(real[..., None], found, np.float32(0)).sum(1) / np.maximum(real.sum(1, keepdims=True), 1)
        else:
            logits = product(found, self.arrays["query"]) / np.float32(math.sqrt(self.config.d)) + _closed(real)[:, 0, 0]
            read = (_softmax(logits)[..., None] * found).sum(1)
        return np.where(real.any(1, keepdims=True), read, np.float32(0)).astype(np.float32, copy=False)

    def __call__(
        self, x: Array, types: Array | None = None, mask: Array | None = None, edges: Array | None = None, token: int = 0
    ) -> Array:
        """[batch, outputs], or [batch, d] without a head."""
        found, c = self.features(x, types, mask, edges, token), self.config
        if not c.outputs:
            return found
        return FrozenMlp(MlpConfig(inputs=c.d, hidden=c.head, outputs=c.outputs), _under("head", self.arrays))(found)


@dataclass
class FrozenSetTransformer:
    """A Set Transformer, in batches."""

    config: SetTransformerConfig
    arrays: dict[str, Array]

    def _mab(self, name: str, x: Array, y: Array, real: Array | None = None) -> Array:
        a = self.arrays
        q = _linear(x, a, f"{name}.q")
        k, v = np.split(_linear(y, a, f"{name}.kv"), 2, -1)
        found = _attend(q, k, v, self.config.heads, 0.0 if real is None else _closed(real))
        h = _layer_norm(q + _linear(found, a, f"{name}.out"), a, f"{name}.norm1")
        return _layer_norm(h + np.maximum(_linear(h, a, f"{name}.ffn"), 0), a, f"{name}.norm2")

    def features(self, x: Array, mask: Array | None = None) -> Array:
        """The pooled set, [batch, seeds · d]."""
        a, c = self.arrays, self.config
        x = np.asarray(x, np.float32)
        batch, n, _ = x.shape
        if n == 0:
            return np.broadcast_to(a["empty"], (batch, len(a["empty"])))
        real = np.ones((batch, n), bool) if mask is None else np.asarray(mask, bool)
        x = _linear(np.where(real[..., None], x, np.float32(0)), a, "embed")
        for i in range(c.isab):
            inducing = np.broadcast_to(a[f"blocks.{i}.inducing"], (batch, c.inducing, c.d))
            x = self._mab(f"blocks.{i}.spread", x, self._mab(f"blocks.{i}.gather", inducing, x, real))
        pooled = self._mab("pool.mab", np.broadcast_to(a["pool.seeds"], (batch, c.seeds, c.d)), x, real).reshape(batch, -1)
        return np.where(real.any(1, keepdims=True), pooled, a["empty"])

    def __call__(self, x: Array, mask: Array | None = None) -> Array:
        """[batch, outputs], or the pooled set without a head."""
        found = self.features(x, mask)
        return _linear(found, self.arrays, "head") if self.config.outputs else found


@dataclass
class FrozenCnn:
    """A small image network."""

    config: CnnConfig
    arrays: dict[str, Array]

    def features(self, x: Array) -> Array:
        """The encoding of [batch, channels, height, width]."""
        x = np.asarray(x, np.float32)
        strided = self.config.kind == "cnn-encoder"
        for i in range(self.config.depth):
            padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
            step = 2 if strided else 1
            windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (2, 3))[:, :, ::step, ::step]
            weight = self.arrays[f"encoder.{i}.weight"]
            patches = windows.transpose(0, 2, 3, 1, 4, 5).reshape(len(x), *windows.shape[2:4], -1)
            x = product(patches, weight.reshape(len(weight), -1).T) + self.arrays[f"encoder.{i}.bias"]
            x = np.maximum(x, 0).transpose(0, 3, 1, 2)
            if not strided:
                h, w = x.shape[2] // 2 * 2, x.shape[3] // 2 * 2
                x = x[:, :, :h, :w].reshape(*x.shape[:2], h // 2, 2, w // 2, 2).max((3, 5))
        return x.mean((2, 3)) if strided else x.reshape(len(x), -1)

    def __call__(self, x: Array) -> Array:
        """[batch, outputs]."""
        return _linear(self.features(x), self.arrays, "head")


@dataclass
class FrozenActorCritic:
    """A policy that PPO trained, with its normalisation of observations."""

    config: ActorCriticConfig
    arrays: dict[str, Array]

    def __post_init__(self) -> None:
        self.parts = {name: FrozenMlp(part, _under(name, self.arrays)) for name, part in self.config.parts.items()}

    def normalised(self, observation: Array) -> Array:
        """The observation as the networks read it: standardised and cut at ±10."""
        scaled = (np.asarray(observation, np.float32) - self.arrays["observation_mean"]) * self.arrays["observation_scale"]
        return np.minimum(np.maximum(scaled, -10), 10)

    def both(self, observation: Array) -> tuple[Array, Array]:
        """`logits` and `value` at the price of one normalisation."""
        x = self.normalised(observation)
        if not self.config.entities:
            return self.parts["policy"](x), self.parts["value"](x)[..., 0]
        encoded = _activate(self.parts["encoder"](x), self.config.activation)
        mean = encoded.mean(-2, keepdims=True)
        joined = np.concatenate([encoded, np.broadcast_to(mean, encoded.shape)], -1)
        return self.parts["policy"](joined), self.parts["value"](mean[..., 0, :])[..., 0]

    def logits(self, observation: Array) -> Array:
        """[batch, Σ factors] from [batch, inputs], or with entities [batch, entities, actions] from [batch, entities, inputs]."""
        return self.both(observation)[0]

    def value(self, observation: Array) -> Array:
        """The value of each observation, [batch], in the units of normalised rewards."""
        return self.both(observation)[1]

    def __call__(self, observation: Array, mask: Array | None = None) -> Array:
        """The likeliest actions: [batch] for one factor, [batch, factors] for several, [batch, entities] with entities.

        mask: true for what is allowed, in the shape of `logits`.
        """
        logits = self.logits(observation)
        if mask is not None:
            logits = np.where(mask, logits, -np.inf)
        if self.config.entities or len(self.config.factors) == 1:
            found: Array = logits.argmax(-1)
            return found
        edges = np.cumsum(self.config.factors)[:-1]
        return np.stack([part.argmax(-1) for part in np.split(logits, edges, -1)], -1)


@dataclass
class FrozenTrees:
    """Regression trees."""

    config: TreesConfig
    arrays: dict[str, Array]

    @property
    def compiled(self) -> tuple[Array, ...]:
        """(root, group, feature, split, right, missing_left) for `trees.walk`, which adds to `out`."""
        return tuple(self.arrays[name] for name in ("root", "group", "feature", "split", "right", "missing_left"))

    def __call__(self, x: Array) -> Array:
        """[rows, outputs] from float32 features [rows, inputs]; NaN is a missing feature."""
        from .trees import walk_rows

        x = np.ascontiguousarray(x, np.float32)
        if x.ndim != 2 or x.shape[1] != self.config.inputs:
            raise InputError(f"found features of shape {x.shape}; expected [rows, {self.config.inputs}]")
        out = np.zeros((len(x), self.config.outputs), np.float64)
        walk_rows(x, *self.compiled, out)
        if self.config.reduce == "mean":
            out /= np.bincount(self.arrays["group"], minlength=self.config.outputs).clip(1)
        out += self.arrays["start"]
        return (_sigmoid(out) if self.config.link == "sigmoid" else out).astype(np.float32)


@dataclass
class FrozenParts:
    """Several frozen networks and single arrays, by name: `model["tower"](x)`, `model["matrix"]`."""

    config: PartsConfig
    arrays: dict[str, Array]

    def __getitem__(self, name: str) -> Any:
        if name in self.config.arrays:
            return self.arrays[name]
        if name not in self.config.parts:
            raise KeyError(name)
        return freeze(self.config.parts[name], _under(name, self.arrays))


@dataclass
class FrozenArrays:
    """Named arrays: `model["table"]`."""

    config: ArraysConfig
    arrays: dict[str, Array]

    def __getitem__(self, name: str) -> Array:
        return self.arrays[name]


_FROZEN: dict[type[Config], Any] = {
    MlpConfig: FrozenMlp, CrossDeepConfig: FrozenCrossDeep, DualTowerConfig: FrozenDualTower, RecurrentConfig: FrozenLstm,
    GruDecayConfig: FrozenGruDecay, XlstmConfig: FrozenXlstm, TypedAttentionConfig: FrozenTypedAttention,
    SetTransformerConfig: FrozenSetTransformer, CnnConfig: FrozenCnn, ActorCriticConfig: FrozenActorCritic, TreesConfig: FrozenTrees,
    PartsConfig: FrozenParts, ArraysConfig: FrozenArrays,
}  # fmt: skip
