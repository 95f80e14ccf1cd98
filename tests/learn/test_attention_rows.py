"""The compiled loop over token sets: equal to PyTorch, blind to order and padding, and the same bits in any batch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from armillary.errors import InputError

torch = pytest.importorskip("torch")

from armillary.learn import TypedAttention  # noqa: E402
from armillary.learn.attention_rows import attention_rows, rows  # noqa: E402


def network(seed: int = 0, **options: Any) -> TypedAttention:
    made = TypedAttention(7, 32, 4, 2, ffn=48, types=3, head=(16,), outputs=2, seed=seed, **options)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for p in made.parameters():
            p.add_(0.1 * torch.randn(p.shape, generator=generator))
    return made


def sets(seed: int = 0, count: int = 40, most: int = 11) -> tuple[Any, Any, Any]:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(count, most, 7)).astype(np.float32)
    return x, rng.integers(0, 3, (count, most)), rng.integers(1, most + 1, count)


def asked(made: TypedAttention, x: Any, types: Any, counts: Any, **standard: Any) -> Any:
    arrays = {name: value.detach().numpy() for name, value in made.state_dict().items()}
    out = np.empty((len(x), 2), np.float32)
    rows(attention_rows(made.config, arrays, **standard), x, types, counts, out)
    return out


def test_it_equals_pytorch() -> None:
    made, (x, types, counts) = network(), sets()
    mean, scale = np.arange(7) / 5, 1 + np.arange(7) / 3
    inputs = ((x - mean) / scale).astype(np.float32)
    with torch.no_grad():
        real = torch.tensor(np.arange(x.shape[1]) < counts[:, None])
        wanted = made(torch.tensor(inputs), torch.tensor(types), real).numpy()
    assert np.abs(asked(made, x, types, counts, mean=mean, scale=scale) - wanted).max() < 1e-5


def test_padding_and_the_order_of_the_other_tokens_change_nothing() -> None:
    made, (x, types, counts) = network(1), sets(1)
    before = asked(made, x, types, counts)
    filled = np.where((np.arange(x.shape[1]) < counts[:, None])[..., None], x, np.float32(np.nan))
    assert np.array_equal(asked(made, filled, types, counts), before)
    turned, kinds = x.copy(), types.copy()
    for r, n in enumerate(counts.tolist()):
        turned[r, 1:n], kinds[r, 1:n] = x[r, 1:n][::-1], types[r, 1:n][::-1]
    assert np.abs(asked(made, turned, kinds, counts) - before).max() < 1e-5


def test_a_set_has_the_same_bits_alone_and_in_a_batch() -> None:
    made, (x, types, counts) = network(2), sets(2)
    whole = asked(made, x, types, counts)
    for r in range(5):
        n = int(counts[r])
        assert np.array_equal(asked(made, x[r : r + 1, :n].copy(), types[r : r + 1, :n].copy(), counts[r : r + 1]), whole[r : r + 1])


def test_only_the_read_out_of_a_token_is_offered() -> None:
    made = network(0, readout="mean")
    with pytest.raises(InputError, match="read-out of a token"):
        attention_rows(made.config, {})
