"""Recurrent networks over many windows of one table, in compiled loops whose bits do not depend on the processor.

Windows of consecutive days share almost all of their rows, so the input side of a cell is computed once per row of the table (`product`)
and the loops take rows by number: `at` [windows, steps]. They add in a fixed order and use exponentials of their own, so that the same
weights give the same scores on every machine, which NumPy's hyperbolic tangent and a BLAS do not. Weights are those of `Lstm`, `Gru`,
`SLstm` and `MLstm`; see their docstrings for the formulas.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from armillary.kernels import kernel, part
from armillary.kernels.exponential import exp32

from .products import product

Array = np.ndarray[Any, Any]
ONE, TWO = np.float32(1), np.float32(2)


def lstm(table: Array, at: Array, arrays: Mapping[str, Array], *, every: bool = False) -> Array:
    """The hidden states of an LSTM of one layer, [windows, hidden] after the last step, or [windows, steps, hidden]."""
    pre = product(table, arrays["encoder.weight_ih_l0"].T) + arrays["encoder.bias_ih_l0"]
    return _run(_lstm, pre, at, arrays["encoder.weight_hh_l0"], arrays["encoder.bias_hh_l0"], every)


def gru(table: Array, at: Array, arrays: Mapping[str, Array], *, every: bool = False) -> Array:
    """The hidden states of a GRU of one layer; as `lstm`."""
    pre = product(table, arrays["encoder.weight_ih_l0"].T) + arrays["encoder.bias_ih_l0"]
    return _run(_gru, pre, at, arrays["encoder.weight_hh_l0"], arrays["encoder.bias_hh_l0"], every)


def slstm(table: Array, at: Array, arrays: Mapping[str, Array]) -> Array:
    """The hidden state of an sLSTM (sigmoid forget gate) after the last step, [windows, hidden]."""
    pre = product(table, arrays["weight"].T) + arrays["bias"]
    # [heads, from, gate and to].
    turned = np.ascontiguousarray(arrays["recurrent"].transpose(1, 3, 0, 2), np.float32)
    heads, per = turned.shape[:2]
    out, scratch = np.empty((len(at), heads * per), np.float32), np.empty((4, heads * per), np.float32)
    sums = np.empty_like(scratch)
    _slstm(_plain(pre), _within(at, pre), turned.reshape(heads, per, -1), np.empty(4 * heads * per, np.float32), sums, scratch, out)
    return out


def mlstm(table: Array, at: Array, arrays: Mapping[str, Array], heads: int) -> Array:
    """The hidden states of an mLSTM (sigmoid forget gate), [windows, steps, hidden]."""
    q, k, v = (_plain(one) for one in np.split(product(table, arrays["qkv"].T), 3, -1))
    per = q.shape[1] // heads
    gates = _plain(product(table, arrays["gates"].T) + arrays["gate_bias"])
    k = k / np.float32(math.sqrt(per))
    # The forget gates depend on a row alone, so their logarithms are taken once per row.
    forget = np.array(gates[:, heads:], order="C").reshape(-1)
    _log_sigmoids(forget, np.empty_like(forget))
    gates[:, heads:] = forget.reshape(-1, heads)
    open_ = sigmoid(product(table, arrays["output"].T))
    out = np.empty((*at.shape, heads * per), np.float32)
    _mlstm(q, _plain(k), v, gates, open_, _within(at, q), np.empty((per, per), np.float32), np.empty(per, np.float32), out)
    return out


def sigmoid(x: Array) -> Array:
    """1 / (1 + exp(-x)) of float32 numbers."""
    out = np.array(x, np.float32, order="C")
    _sigmoids(out.reshape(-1))
    return out


def tanh(x: Array) -> Array:
    """The hyperbolic tangent of float32 numbers."""
    return TWO * sigmoid(TWO * np.asarray(x, np.float32)) - ONE


def layer_norm(x: Array, weight: Array, bias: Array) -> Array:
    """The layer norm over the last axis."""
    flat = _plain(x).reshape(-1, x.shape[-1])
    out = np.empty(flat.shape, np.float32)
    _norms(flat, _plain(weight), _plain(bias), out)
    return out.reshape(x.shape)


def _plain(x: Array) -> Array:
    return np.ascontiguousarray(x, np.float32)


def _within(at: Array, rows: Array) -> Array:
    """Windows as the loops take them; raises ValueError where one leaves the table, because the loops check no bounds."""
    if at.size and not 0 <= int(at.min()) <= int(at.max()) < len(rows):
        raise ValueError(f"found windows over rows {at.min()} to {at.max()}; expected 0 to {len(rows) - 1}")
    return np.ascontiguousarray(at, np.int64)


def _run(cell: Any, pre: Array, at: Array, recurrent: Array, bias: Array, every: bool) -> Array:
    hidden = recurrent.shape[1]
    out = np.empty((len(at), at.shape[1] if every else 1, hidden), np.float32)
    back = np.empty(recurrent.shape[0], np.float32)
    cell(_plain(pre), _within(at, pre), _plain(recurrent.T), _plain(bias), back, np.empty((2, hidden), np.float32), out)
    return out if every else out[:, 0]


# Each function has a loop for the exponential and one for the division, because a compiler turns these into vector instructions and a loop
# with both not: five times as fast.


@part
def _to_sigmoid(x):  # type: ignore[no-untyped-def]
    """x becomes 1 / (1 + exp(-x))."""
    for j in range(x.shape[0]):
        x[j] = exp32(-x[j])
    for j in range(x.shape[0]):
        x[j] = np.float32(1) / (np.float32(1) + x[j])


@part
def _to_tanh(x):  # type: ignore[no-untyped-def]
    """x becomes its hyperbolic tangent, 2 / (1 + exp(-2x)) - 1."""
    for j in range(x.shape[0]):
        x[j] = exp32(np.float32(-2) * x[j])
    for j in range(x.shape[0]):
        x[j] = np.float32(2) / (np.float32(1) + x[j]) - np.float32(1)


@part
def _to_log_sigmoid(x, scratch):  # type: ignore[no-untyped-def]
    """x becomes log(1/(1 + exp(-x))) = min(x, 0) - log(1 + y) with y = exp(-|x|), by the series of 2·artanh(y/(2 + y))."""
    for j in range(x.shape[0]):
        scratch[j] = exp32(-abs(x[j]))
    for j in range(x.shape[0]):
        scratch[j] = scratch[j] / (np.float32(2) + scratch[j])
    for j in range(x.shape[0]):
        z = scratch[j]
        w = z * z
        s = np.float32(1 / 13) * w + np.float32(1 / 11)
        s = s * w + np.float32(1 / 9)
        s = s * w + np.float32(1 / 7)
        s = s * w + np.float32(1 / 5)
        s = s * w + np.float32(1 / 3)
        s = s * w + np.float32(1)
        x[j] = min(x[j], np.float32(0)) - np.float32(2) * z * s


@part
def _through(x, w, out):  # type: ignore[no-untyped-def]
    """out += x W, four rows of W at a time, each sum in the order of the rows."""
    k, m = w.shape
    whole = k - k % 4
    for i in range(0, whole, 4):
        x0, x1, x2, x3 = x[i], x[i + 1], x[i + 2], x[i + 3]
        w0, w1, w2, w3 = w[i], w[i + 1], w[i + 2], w[i + 3]
        for j in range(m):
            out[j] = (((out[j] + x0 * w0[j]) + x1 * w1[j]) + x2 * w2[j]) + x3 * w3[j]
    for i in range(whole, k):
        x0, w0 = x[i], w[i]
        for j in range(m):
            out[j] += x0 * w0[j]


@kernel
def _sigmoids(x):  # type: ignore[no-untyped-def]
    # In pieces that stay in the nearest cache between the loops.
    for at in range(0, x.shape[0], 2048):
        _to_sigmoid(x[at : at + 2048])


@kernel
def _log_sigmoids(x, scratch):  # type: ignore[no-untyped-def]
    _to_log_sigmoid(x, scratch)


@kernel
def _norms(x, weight, bias, out):  # type: ignore[no-untyped-def]
    d = x.shape[1]
    for r in range(x.shape[0]):
        mean = np.float32(0)
        for j in range(d):
            mean += x[r, j]
        mean /= np.float32(d)
        square = np.float32(0)
        for j in range(d):
            square += (x[r, j] - mean) * (x[r, j] - mean)
        scale = np.float32(1) / np.sqrt(square / np.float32(d) + np.float32(1e-5))
        for j in range(d):
            out[r, j] = (x[r, j] - mean) * scale * weight[j] + bias[j]


@kernel
def _lstm(pre, at, w, bias, back, state, out):  # type: ignore[no-untyped-def]
    """`back` has 4 · hidden elements and `state` is [2, hidden]; `out` holds the last states, or those of all steps."""
    hidden = state.shape[1]
    h, c = state[0], state[1]
    steps = at.shape[1]
    for n in range(at.shape[0]):
        for j in range(hidden):
            h[j] = 0
            c[j] = 0
        for t in range(steps):
            row = pre[at[n, t]]
            for j in range(4 * hidden):
                back[j] = row[j] + bias[j]
            _through(h, w, back)
            _to_sigmoid(back[: 2 * hidden])
            _to_tanh(back[2 * hidden : 3 * hidden])
            _to_sigmoid(back[3 * hidden :])
            for j in range(hidden):
                c[j] = back[hidden + j] * c[j] + back[j] * back[2 * hidden + j]
                h[j] = c[j]
            _to_tanh(h)
            for j in range(hidden):
                h[j] *= back[3 * hidden + j]
            if out.shape[1] == steps:
                for j in range(hidden):
                    out[n, t, j] = h[j]
        for j in range(hidden):
            out[n, out.shape[1] - 1, j] = h[j]


@kernel
def _gru(pre, at, w, bias, back, state, out):  # type: ignore[no-untyped-def]
    hidden = state.shape[1]
    h = state[0]
    steps = at.shape[1]
    for n in range(at.shape[0]):
        for j in range(hidden):
            h[j] = 0
        for t in range(steps):
            row = pre[at[n, t]]
            for j in range(3 * hidden):
                back[j] = bias[j]
            _through(h, w, back)
            for j in range(2 * hidden):
                back[j] = row[j] + back[j]
            _to_sigmoid(back[: 2 * hidden])
            for j in range(2 * hidden, 3 * hidden):
                back[j] = row[j] + back[j - 2 * hidden] * back[j]
            _to_tanh(back[2 * hidden :])
            for j in range(hidden):
                z = back[hidden + j]
                h[j] = (np.float32(1) - z) * back[2 * hidden + j] + z * h[j]
            if out.shape[1] == steps:
                for j in range(hidden):
                    out[n, t, j] = h[j]
        for j in range(hidden):
            out[n, out.shape[1] - 1, j] = h[j]


@kernel
def _slstm(pre, at, w, back, sums, state, out):  # type: ignore[no-untyped-def]
    """`w` [heads, per, 4 · per], `back` [4 · hidden], `sums` [4, hidden], `state` [4, hidden]: h, c, n, m."""
    heads, per = w.shape[0], w.shape[1]
    hidden = heads * per
    h, c, norm, top = state[0], state[1], state[2], state[3]
    for n in range(at.shape[0]):
        for j in range(hidden):
            h[j] = 0
            c[j] = 0
            norm[j] = 0
            top[j] = np.float32(-np.inf)
        for t in range(at.shape[1]):
            row = pre[at[n, t]]
            for head in range(heads):
                first = head * per
                for gate in range(4):
                    for j in range(per):
                        back[4 * first + gate * per + j] = row[gate * hidden + first + j]
                _through(h[first : first + per], w[head], back[4 * first : 4 * (first + per)])
                for gate in range(4):
                    for j in range(per):
                        sums[gate, first + j] = back[4 * first + gate * per + j]
            z, log_i, kept, opened = sums[0], sums[1], sums[2], sums[3]
            _to_tanh(z)
            _to_sigmoid(opened)
            _to_log_sigmoid(kept, back[:hidden])
            for j in range(hidden):
                kept[j] += top[j]
            for j in range(hidden):
                top[j] = kept[j] if kept[j] > log_i[j] else log_i[j]
            for j in range(hidden):
                log_i[j] = exp32(log_i[j] - top[j])
            for j in range(hidden):
                kept[j] = exp32(kept[j] - top[j])
            for j in range(hidden):
                c[j] = kept[j] * c[j] + log_i[j] * z[j]
            for j in range(hidden):
                norm[j] = kept[j] * norm[j] + log_i[j]
            for j in range(hidden):
                h[j] = opened[j] * c[j] / norm[j]
        for j in range(hidden):
            out[n, j] = h[j]


@kernel
def _mlstm(q, k, v, gates, opened, at, memory, norm, out):  # type: ignore[no-untyped-def]
    """`gates` are log i and log f; `memory` [per, per] holds v kᵀ turned, by key and then by value; `norm` [per]."""
    per = norm.shape[0]
    heads = q.shape[1] // per
    for n in range(at.shape[0]):
        for head in range(heads):
            first = head * per
            top = np.float32(-np.inf)
            for a in range(per):
                norm[a] = 0
                for b in range(per):
                    memory[a, b] = 0
            for t in range(at.shape[1]):
                r = at[n, t]
                log_i = gates[r, head]
                kept = gates[r, heads + head] + top
                new = max(kept, log_i)
                i, f = exp32(log_i - new), exp32(kept - new)
                top = new
                found = out[n, t, first : first + per]
                for b in range(per):
                    found[b] = 0
                under = np.float32(0)
                for a in range(per):
                    key, asked = i * k[r, first + a], q[r, first + a]
                    norm[a] = f * norm[a] + key
                    under += norm[a] * asked
                    line = memory[a]
                    for b in range(per):
                        line[b] = f * line[b] + key * v[r, first + b]
                        found[b] += line[b] * asked
                under = max(abs(under), exp32(-new))
                for b in range(per):
                    found[b] = opened[r, first + b] * (found[b] / under)
