"""The compiled recurrent loops: equal to PyTorch's cells, to the xLSTM cells of this package, to plain formulas, and to the package xlstm."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch")

from armillary.learn.recurrent import MLstm, SLstm  # noqa: E402
from armillary.learn.sequences import gru, layer_norm, lstm, mlstm, sigmoid, slstm, tanh  # noqa: E402


def table(seed: int, rows: int = 40, inputs: int = 6) -> Any:
    return np.random.default_rng(seed).normal(size=(rows, inputs)).astype(np.float32)


def windows(seed: int, count: int = 9, steps: int = 11, rows: int = 40) -> Any:
    return np.random.default_rng(seed + 1).integers(0, rows, (count, steps))


def arrays_of(module: Any, prefix: str = "") -> dict[str, Any]:
    return {prefix + name: value.detach().numpy() for name, value in module.state_dict().items()}


@pytest.mark.parametrize(("kind", "loop"), [("LSTM", lstm), ("GRU", gru)])
def test_lstm_and_gru_equal_pytorch_after_every_step(kind: str, loop: Any) -> None:
    torch.manual_seed(3)
    cell = getattr(torch.nn, kind)(6, 10, batch_first=True)
    x, at = table(0), windows(0)
    with torch.no_grad():
        wanted = cell(torch.from_numpy(x[at]))[0].numpy()
    assert np.abs(loop(x, at, arrays_of(cell, "encoder."), every=True) - wanted).max() < 1e-6
    assert np.abs(loop(x, at, arrays_of(cell, "encoder.")) - wanted[:, -1]).max() < 1e-6


@pytest.mark.parametrize("seed", range(3))
def test_slstm_equals_the_cell(seed: int) -> None:
    cell = SLstm(6, 12, heads=4, seed=seed)
    x, at = 3 * table(seed), windows(seed)
    with torch.no_grad():
        wanted = cell.features(torch.from_numpy(x[at])).numpy()
    assert np.abs(slstm(x, at, arrays_of(cell)) - wanted).max() < 1e-5


@pytest.mark.parametrize("seed", range(3))
def test_mlstm_equals_the_parallel_form_and_the_steps(seed: int) -> None:
    cell = MLstm(6, 12, heads=3, seed=seed)
    x, at = 3 * table(seed), windows(seed)
    with torch.no_grad():
        parallel = cell.parallel(torch.from_numpy(x[at])).numpy()
        last = cell.features(torch.from_numpy(x[at])).numpy()
    found = mlstm(x, at, arrays_of(cell), 3)
    assert (np.abs(found - parallel) / np.maximum(1, np.abs(parallel))).max() < 1e-5
    assert (np.abs(found[:, -1] - last) / np.maximum(1, np.abs(last))).max() < 1e-5


def plain_slstm(x: Any, a: dict[str, Any], heads: int) -> Any:
    """The formulas of the sLSTM in float64, without a stabiliser: c = f c + i z, n = f n + i, h = o c / n."""
    hidden = len(a["bias"]) // 4
    per = hidden // heads
    h = c = n = np.zeros(hidden)
    for row in x.astype(np.float64):
        inside = a["weight"].astype(np.float64) @ row + a["bias"]
        for gate in range(4):
            for head in range(heads):
                rows = slice(gate * hidden + head * per, gate * hidden + (head + 1) * per)
                inside[rows] += a["recurrent"][gate, head].astype(np.float64) @ h[head * per : (head + 1) * per]
        z, i, f, o = np.split(inside, 4)
        forget = 1 / (1 + np.exp(-f))
        c, n = forget * c + np.exp(i) * np.tanh(z), forget * n + np.exp(i)
        h = c / n / (1 + np.exp(-o))
    return h


def plain_mlstm(x: Any, a: dict[str, Any], heads: int) -> Any:
    """The formulas of the mLSTM in float64, without a stabiliser: C = f C + i v k', n = f n + i k, h = o · C q / max(|n' q|, 1)."""
    hidden = a["output"].shape[0]
    per = hidden // heads
    memory, norm = np.zeros((heads, per, per)), np.zeros((heads, per))
    h = np.zeros(hidden)
    for row in x.astype(np.float64):
        q, k, v = np.split(a["qkv"].astype(np.float64) @ row, 3)
        gates = a["gates"].astype(np.float64) @ row + a["gate_bias"]
        o = 1 / (1 + np.exp(-(a["output"].astype(np.float64) @ row)))
        for j in range(heads):
            mine = slice(j * per, (j + 1) * per)
            i, f = np.exp(gates[j]), 1 / (1 + np.exp(-gates[heads + j]))
            memory[j] = f * memory[j] + i * np.outer(v[mine], k[mine] / np.sqrt(per))
            norm[j] = f * norm[j] + i * k[mine] / np.sqrt(per)
            h[mine] = o[mine] * (memory[j] @ q[mine]) / max(abs(norm[j] @ q[mine]), 1.0)
    return h


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 1000), steps=st.integers(1, 8))
def test_both_xlstm_cells_equal_their_formulas_without_a_stabiliser(seed: int, steps: int) -> None:
    x, at = table(seed), windows(seed, 2, steps)
    one, other = arrays_of(SLstm(6, 8, heads=2, seed=seed)), arrays_of(MLstm(6, 8, heads=2, seed=seed))
    for w in range(2):
        assert np.abs(slstm(x, at, one)[w] - plain_slstm(x[at[w]], one, 2)).max() < 1e-5
        assert np.abs(mlstm(x, at, other, 2)[w, -1] - plain_mlstm(x[at[w]], other, 2)).max() < 1e-5


def test_the_mlstm_equals_the_package_xlstm() -> None:
    backends = pytest.importorskip("xlstm.blocks.mlstm.backends")
    cell = MLstm(6, 12, heads=3, seed=5)
    x, at = table(5), windows(5)
    given = torch.from_numpy(x[at])
    with torch.no_grad():
        q, k, v, log_i, log_f, o = cell._inputs(given)
        f = torch.nn.functional.linear(given, cell.gates, cell.gate_bias)[..., 3:]
        by_head = [one.transpose(1, 2) for one in (q, k * 2.0, v)]  # It divides k by the root of its width, 2, itself.
        theirs = backends.parallel_stabilized_simple(*by_head, log_i.transpose(1, 2)[..., None], f.transpose(1, 2)[..., None], eps=0.0)
        wanted = (o * theirs.transpose(1, 2).flatten(-2)).numpy()
    assert log_f.shape == log_i.shape
    assert np.abs(mlstm(x, at, arrays_of(cell), 3) - wanted).max() < 1e-5


def test_extreme_gates_and_long_sequences_stay_finite() -> None:
    rows = np.where(np.random.default_rng(0).random((2000, 6)) < 0.5, -50, 50).astype(np.float32)
    at = np.arange(2000)[None]
    for seed in range(2):
        one, other = SLstm(6, 8, heads=2, seed=seed), MLstm(6, 8, heads=2, seed=seed)
        with torch.no_grad():
            one.weight.mul_(3)
            other.gates.mul_(3)
            wanted = one.features(torch.from_numpy(rows[at])).numpy()
        found = slstm(rows, at, arrays_of(one))
        assert np.isfinite(found).all()
        assert np.abs(found - wanted).max() < 1e-4
        assert np.isfinite(mlstm(rows, at, arrays_of(other), 2)).all()


def test_a_window_gives_the_same_bits_in_any_company() -> None:
    cell = torch.nn.LSTM(6, 10, batch_first=True)
    x, at = table(1), windows(1, 30)
    together = lstm(x, at, arrays_of(cell, "encoder."))
    for i in range(0, 30, 7):
        assert np.array_equal(lstm(x, at[i : i + 1], arrays_of(cell, "encoder."))[0], together[i])
    assert lstm(x, at[:0], arrays_of(cell, "encoder.")).shape == (0, 10)


@pytest.mark.parametrize("wrong", [-1, 40, 1 << 40])
def test_a_window_that_leaves_the_table_is_refused_before_a_loop_follows_it(wrong: int) -> None:
    at = windows(0)
    at[3, 4] = wrong
    lstm_arrays = arrays_of(torch.nn.LSTM(6, 10), "encoder.")
    loops = (
        lambda: lstm(table(0), at, lstm_arrays), lambda: slstm(table(0), at, arrays_of(SLstm(6, 8, heads=2))),
        lambda: mlstm(table(0), at, arrays_of(MLstm(6, 8, heads=2)), 2),
    )  # fmt: skip
    for loop in loops:
        with pytest.raises(ValueError, match="expected 0 to 39"):
            loop()


def test_the_functions_equal_numpy() -> None:
    x = np.concatenate([np.linspace(-90, 90, 5001), [-np.inf, np.inf, 0.0]]).astype(np.float32)
    wide = x.astype(np.float64)
    with np.errstate(over="ignore"):
        assert np.abs(sigmoid(x) - 1 / (1 + np.exp(-wide))).max() < 2e-7
    assert np.abs(tanh(x) - np.tanh(wide)).max() < 4e-7
    given = np.random.default_rng(0).normal(size=(3, 4, 9)).astype(np.float32)
    norm = torch.nn.LayerNorm(9)
    with torch.no_grad():
        norm.weight.uniform_(0.5, 2)
        wanted = norm(torch.from_numpy(given)).numpy()
        found = layer_norm(given, norm.weight.numpy(), norm.bias.numpy())
    assert np.abs(found - wanted).max() < 1e-5
