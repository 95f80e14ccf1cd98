"""The compiled attention is the frozen one and the slope is autograd's."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from armillary.errors import InputError
from armillary.learn import Lstm, Model, TypedAttention
from armillary.learn.fused import FusedAttention, lstm_rows


def network(seed: int = 0, ffn: int | None = None) -> TypedAttention:
    made = TypedAttention(
        7, d=16, heads=4, layers=2, ffn=ffn, types=3, pair_bias="edges", edges=4, readout="attention", outputs=2, seed=seed
    )
    with torch.no_grad():
        made.bias.copy_(torch.from_numpy(np.random.default_rng(seed).normal(0, 1, tuple(made.bias.shape)).astype(np.float32)))
    return made


@pytest.mark.parametrize(("seed", "n", "ffn"), [(0, 1, None), (1, 5, 24), (2, 13, 16)])
def test_it_gives_what_the_module_gives(seed, n, ffn):
    made = network(seed, ffn)
    rng = np.random.default_rng(seed)
    x = rng.normal(0, 1, (3, n, 7)).astype(np.float32)
    types, edges = rng.integers(0, 3, n), rng.integers(-1, 4, (n, n))
    fused = FusedAttention(Model.of(made).frozen())
    tokens, outputs = fused.both(x, types, edges)
    given = torch.from_numpy(np.broadcast_to(types, (3, n)).copy()), None, torch.from_numpy(np.broadcast_to(edges, (3, n, n)).copy())
    with torch.no_grad():
        expected = made(torch.from_numpy(x), *given).numpy()
        after = made.tokens(torch.from_numpy(x), *given).numpy()
    np.testing.assert_allclose(outputs, expected, atol=2e-5)
    np.testing.assert_allclose(tokens, after, atol=5e-5)
    np.testing.assert_array_equal(fused(x[:1], types, edges), outputs[:1])


@pytest.mark.parametrize("output", [0, 1])
def test_the_slope_is_that_of_autograd(output):
    made, n = network(4), 6
    rng = np.random.default_rng(4)
    x, types, edges = rng.normal(0, 1, (n, 7)).astype(np.float32), rng.integers(0, 3, n), rng.integers(-1, 4, (n, n))
    given = torch.from_numpy(x)[None].requires_grad_()
    made(given, torch.from_numpy(types)[None], None, torch.from_numpy(edges)[None])[0, output].backward()
    assert given.grad is not None
    found = FusedAttention(Model.of(made).frozen()).slope(x, types, edges, output)
    np.testing.assert_allclose(found, given.grad[0].numpy(), atol=2e-5)


def test_an_lstm_over_rows_is_the_module():
    made = Lstm(4, 8, 1, seed=3)
    with torch.no_grad():
        for weight in made.encoder.parameters():
            weight.copy_(torch.from_numpy(np.random.default_rng(0).normal(0, 0.5, tuple(weight.shape)).astype(np.float32)))
    x = np.random.default_rng(1).normal(0, 1, (9, 5, 4)).astype(np.float32)
    out = np.empty((9, 8), np.float32)
    lstm_rows(*Model.of(made).frozen().compiled, x, out, np.empty(40, np.float32))
    with torch.no_grad():
        np.testing.assert_allclose(out, made.features(torch.from_numpy(x)).numpy(), atol=1e-5)


def test_what_does_not_fit_is_refused():
    fused = FusedAttention(Model.of(network()).frozen())
    x, types, edges = np.zeros((1, 3, 7), np.float32), np.zeros(3, np.int64), np.full((3, 3), -1)
    for bad in ((x[:, :2], types, edges), (x, types + 3, edges), (x, types, edges + 5), (x, types, edges[:2]), (x[0], types, edges)):
        with pytest.raises(InputError):
            fused(*bad)
    with pytest.raises(InputError, match="output"):
        fused.slope(x[0], types, edges, 2)
    with pytest.raises(InputError, match="read-out"):
        FusedAttention(Model.of(TypedAttention(7, d=16, outputs=1)).frozen())
