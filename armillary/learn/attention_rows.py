"""Frozen `TypedAttention` as a compiled loop over sets of tokens: no padding, and the same bits on every processor.

Batched NumPy inference goes through BLAS, which adds up in an order that depends on the processor. A simulator that decides by a network
needs the same decisions everywhere. These loops add in a fixed order; products are arranged so that vector instructions run over outputs.
Only the read-out of a token is offered, so that the last block computes one token instead of all.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from armillary.errors import InputError
from armillary.kernels import loop, part
from armillary.kernels.exponential import exp32

from .frozen import FrozenMlp, mlp_into
from .kinds import MlpConfig, TypedAttentionConfig

Array = np.ndarray[Any, Any]


class AttentionRows(NamedTuple):
    """The weights of a `TypedAttention` with a head, as `rows` takes them. Matrices are [inputs, outputs]."""

    embed: Array
    types: Array
    norm: Array
    qkv: Array
    qkv_bias: Array
    out: Array
    out_bias: Array
    ffn1: Array
    ffn1_bias: Array
    ffn2: Array
    ffn2_bias: Array
    head: Array
    head_sizes: Array
    head_activation: int
    heads: int


def attention_rows(
    config: TypedAttentionConfig, arrays: Mapping[str, Array], mean: Array | None = None, scale: Array | None = None
) -> AttentionRows:
    """The compiled form of a frozen network that reads out a token and has a head; `mean` and `scale` standardise the inputs."""
    if config.readout != "token" or config.pair_bias is not None or not config.outputs:
        raise InputError("found another read-out, a pair bias or no head; expected the read-out of a token with a head")

    def stacked(name: str, turned: bool = False) -> Array:
        found = [arrays[f"blocks.{i}.{name}"] for i in range(config.layers)]
        return np.ascontiguousarray([one.T if turned else one for one in found], np.float32)

    weight, bias = arrays["embed.weight"].astype(np.float64).T, arrays["embed.bias"].astype(np.float64)
    if mean is not None and scale is not None:
        # Sums of few products, in a fixed order.
        weight = weight / np.asarray(scale, np.float64)[:, None]
        for i, m in enumerate(np.asarray(mean, np.float64).tolist()):
            bias = bias - m * weight[i]
    norm = np.stack([np.stack([stacked(f"{n}.weight"), stacked(f"{n}.bias")], 1) for n in ("norm1", "norm2")], 1)
    mlp = FrozenMlp(
        MlpConfig(inputs=config.d, hidden=config.head, outputs=config.outputs),
        {name.removeprefix("head."): a for name, a in arrays.items() if name.startswith("head.")},
    ).compiled  # fmt: skip
    return AttentionRows(
        np.ascontiguousarray(weight, np.float32), np.ascontiguousarray(arrays["type_embedding"] + bias, np.float32), norm,
        stacked("qkv.weight", True), stacked("qkv.bias"), stacked("out.weight", True), stacked("out.bias"),
        stacked("ffn1.weight", True), stacked("ffn1.bias"), stacked("ffn2.weight", True), stacked("ffn2.bias"), *mlp, config.heads,
    )  # fmt: skip


@part
def _products(x, n, weight, bias, out):  # type: ignore[no-untyped-def]
    """out[t] = x[t] W + b for n tokens; inputs go in fours, so that outputs are loaded and stored a quarter as often."""
    inputs, outputs = weight.shape
    fours = inputs - inputs % 4
    for t in range(n):
        row = out[t]
        for j in range(outputs):
            row[j] = bias[j]
        for i in range(0, fours, 4):
            a, b, c, d = x[t, i], x[t, i + 1], x[t, i + 2], x[t, i + 3]
            wa, wb, wc, wd = weight[i], weight[i + 1], weight[i + 2], weight[i + 3]
            for j in range(outputs):
                row[j] = row[j] + a * wa[j] + b * wb[j] + c * wc[j] + d * wd[j]
        for i in range(fours, inputs):
            a = x[t, i]
            wa = weight[i]
            for j in range(outputs):
                row[j] += a * wa[j]


@part
def _normed(x, n, norm, out):  # type: ignore[no-untyped-def]
    d = x.shape[1]
    for t in range(n):
        total = np.float32(0)
        for j in range(d):
            total += x[t, j]
        mean = total / np.float32(d)
        square = np.float32(0)
        for j in range(d):
            square += (x[t, j] - mean) * (x[t, j] - mean)
        scale = np.float32(1) / np.sqrt(square / np.float32(d) + np.float32(1e-5))
        for j in range(d):
            out[t, j] = (x[t, j] - mean) * scale * norm[0, j] + norm[1, j]


@part
def _gelu(x):  # type: ignore[no-untyped-def]
    """GELU with the error function of Abramowitz and Stegun 7.1.26, right to 1.5e-7."""
    z = abs(x) * np.float32(0.70710678)
    t = np.float32(1) / (np.float32(1) + np.float32(0.3275911) * z)
    s = np.float32(1.061405429) * t + np.float32(-1.453152027)
    s = s * t + np.float32(1.421413741)
    s = s * t + np.float32(-0.284496736)
    s = (s * t + np.float32(0.254829592)) * t
    erf = np.float32(1) - s * exp32(-z * z)
    return np.float32(0.5) * x * (np.float32(1) + (erf if x >= 0 else -erf))


@loop
def rows(w, x, types, counts, out):  # type: ignore[no-untyped-def]
    """out[r] = the head's outputs for set r, whose tokens are x[r, :counts[r]] with types[r, :counts[r]]; the first is read out.

    w: `AttentionRows`. x: float32 [rows, tokens, inputs]. types: int64, within the network's. counts: 1 to tokens. out: float32.
    """
    most, d, layers = x.shape[1], w.embed.shape[1], w.qkv.shape[0]
    width, ffn = d // w.heads, w.ffn1.shape[2]
    state, normed, mixed = np.empty((most, d), np.float32), np.empty((most, d), np.float32), np.empty((most, d), np.float32)
    qkv, inner, added = np.empty((most, 3 * d), np.float32), np.empty((most, ffn), np.float32), np.empty((most, d), np.float32)
    logit = np.empty(most, np.float32)
    keys = np.empty((d, most), np.float32)
    scratch = np.empty(2 * w.head_sizes.max(), np.float32)
    root = np.float32(1) / np.sqrt(np.float32(width))
    for r in range(x.shape[0]):
        n = counts[r]
        zero = np.zeros(d, np.float32)
        _products(x[r], n, w.embed, zero, state)
        for t in range(n):
            kind = types[r, t]
            for j in range(d):
                state[t, j] += w.types[kind, j]
        for layer in range(layers):
            asked = n if layer < layers - 1 else 1
            _normed(state, n, w.norm[layer, 0], normed)
            _products(normed, n, w.qkv[layer], w.qkv_bias[layer], qkv)
            for t in range(n):
                for j in range(d):
                    keys[j, t] = qkv[t, d + j]
            for t in range(asked):
                for h in range(w.heads):
                    for u in range(n):
                        logit[u] = np.float32(0)
                    for j in range(h * width, (h + 1) * width):
                        q = qkv[t, j] * root
                        for u in range(n):
                            logit[u] += q * keys[j, u]
                    top = logit[0]
                    for u in range(1, n):
                        top = max(top, logit[u])
                    total = np.float32(0)
                    for u in range(n):
                        logit[u] = exp32(logit[u] - top)
                    for u in range(n):
                        total += logit[u]
                    for j in range(h * width, (h + 1) * width):
                        mixed[t, j] = np.float32(0)
                    for u in range(n):
                        share = logit[u] / total
                        for j in range(h * width, (h + 1) * width):
                            mixed[t, j] += share * qkv[u, 2 * d + j]
            _products(mixed, asked, w.out[layer], w.out_bias[layer], added)
            for t in range(asked):
                for j in range(d):
                    state[t, j] += added[t, j]
            _normed(state, asked, w.norm[layer, 1], normed)
            _products(normed, asked, w.ffn1[layer], w.ffn1_bias[layer], inner)
            for t in range(asked):
                for j in range(ffn):
                    inner[t, j] = _gelu(inner[t, j])
            _products(inner, asked, w.ffn2[layer], w.ffn2_bias[layer], added)
            for t in range(asked):
                for j in range(d):
                    state[t, j] += added[t, j]
        mlp_into(w.head, w.head_sizes, w.head_activation, state[0], out[r], scratch)
