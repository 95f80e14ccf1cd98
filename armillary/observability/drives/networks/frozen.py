"""Scores of trained networks without PyTorch: compiled loops with a fixed order of additions, the same bits on every processor."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from armillary.learn.frozen import freeze
from armillary.learn.kinds import MlpConfig
from armillary.learn.products import product
from armillary.learn.sequences import gru, layer_norm, lstm, mlstm, sigmoid, slstm, tanh

from ..fleets.fleet import Array
from .shapes import shapes


def logits(kind: str, arrays: Mapping[str, Array], heads: int, table: Array, at: Array) -> Array:
    """[windows] logits of windows `at` [windows, days] over the rows of `table` [rows, features]."""
    if kind == "gru-attention":
        states = gru(table, at, _under(arrays, "gru"), every=True)
        scores = product(tanh(_linear(states, arrays, "attend")), arrays["query"])
        found = np.concatenate([_averaged(scores, states), states[:, -1]], -1)
    elif kind == "cnn-lstm":
        found = _cnn(arrays, table, at)
    elif kind == "lstm":
        found = lstm(table, at, _under(arrays, "lstm"))
    elif kind == "xlstm":
        found = _xlstm(_under(arrays, "xlstm"), heads, table, at)
    else:
        short = lstm(table, at, _under(arrays, "lstm"))
        long = _xlstm(_under(arrays, "xlstm"), heads, table, at)
        share = sigmoid(_linear(np.concatenate([short, long], -1), arrays, "gate"))
        found = share * short + (1 - share) * long
    top = _under(arrays, "top")
    config = MlpConfig(inputs=found.shape[-1], hidden=(len(top["encoder.0.bias"]),), outputs=1)
    scored: Array = freeze(config, top)(found)[:, 0]
    return scored


def warm(kind: str) -> None:
    """Loads the compiled loops of a kind of network, so that no clock sees it."""
    arrays = {name: np.full(shape, 0.1, np.float32) for name, shape in shapes(kind, 3, 4, 4).items()}
    logits(kind, arrays, 4, np.zeros((2, 3), np.float32), np.zeros((1, 3), np.int64))


def _xlstm(a: Mapping[str, Array], heads: int, table: Array, at: Array) -> Array:
    table = _linear(table, a, "embed")
    # All of this depends on one day alone, so it is computed once per row.
    inner, gate = np.split(_linear(layer_norm(table, a["norm1.weight"], a["norm1.bias"]), a, "up"), 2, -1)
    states = mlstm(inner, at, _under(a, "mlstm"), heads)
    x = table[at] + _linear(states * (gate * sigmoid(gate))[at], a, "down")
    normed = layer_norm(x, a["norm2.weight"], a["norm2.bias"])
    steps = np.arange(at.size).reshape(at.shape)
    last = x[:, -1] + slstm(normed.reshape(at.size, -1), steps, _under(a, "slstm"))
    inside = _linear(layer_norm(last, a["norm3.weight"], a["norm3.bias"]), a, "ffn1")
    return last + _linear(inside * sigmoid(inside), a, "ffn2")


def _cnn(arrays: Mapping[str, Array], table: Array, at: Array) -> Array:
    taps = np.split(arrays["taps.weight"], 3, 1)
    found = np.broadcast_to(arrays["taps.bias"], (*at.shape, len(arrays["taps.bias"]))).copy()
    for back, tap in zip((2, 1, 0), taps):
        rows = product(table, np.ascontiguousarray(tap).T)
        found[:, back:] += rows[at[:, : at.shape[1] - back]]
    steps = np.arange(at.size).reshape(at.shape)
    return lstm(np.maximum(found, 0).reshape(at.size, -1), steps, _under(arrays, "lstm"))


def _averaged(scores: Array, states: Array) -> Array:
    """States averaged with the softmax of their scores; both sums go step by step."""
    top = scores.max(1, keepdims=True)
    # exp(x) of a number that is not above 0, as sigmoid / (1 - sigmoid).
    s = sigmoid(np.minimum(scores - top, 0))
    share = s / (1 - s)
    found, total = np.zeros((len(states), states.shape[-1]), np.float32), np.zeros((len(states), 1), np.float32)
    for t in range(states.shape[1]):
        found += share[:, t, None] * states[:, t]
        total += share[:, t, None]
    return found / total


def _linear(x: Array, arrays: Mapping[str, Array], name: str) -> Array:
    found: Array = product(x, arrays[f"{name}.weight"].T) + arrays[f"{name}.bias"]
    return found


def _under(arrays: Mapping[str, Array], name: str) -> dict[str, Array]:
    start = f"{name}."
    return {key.removeprefix(start): value for key, value in arrays.items() if key.startswith(start)}
