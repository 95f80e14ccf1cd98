"""The tiny transformer that trains: `Tiny`'s own numbers, PyTorch's Muon, exact gradients, and a loss that really falls."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import pytest
import torch

from armillary.errors import InputError
from armillary.llm import Muon, Tiny, TrainableTiny
from armillary.llm.tiny.muon import muon_update, orthogonalised
from armillary.llm.tiny.trainable import NO_TARGET, cross_entropy
from armillary.llm.tiny.transformer import Shape

SMALL = Shape(hidden=32, layers=2, heads=4, kv_heads=2, head_dim=8, ffn=48, vocab=60, theta=1e4, eps=1e-5, positions=64, tied=False)
SHAPES = {
    "dense": SMALL,
    "tied": dataclasses.replace(SMALL, tied=True),
    "biased": dataclasses.replace(SMALL, qkv_bias=True),
    "experts": dataclasses.replace(SMALL, experts=4, top_k=2),
}


def tokens(rows: int, columns: int, seed: int = 0) -> Any:
    return torch.randint(0, SMALL.vocab, (rows, columns), generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("name", SHAPES)
def test_it_is_tinys_own_model(name: str) -> None:
    model = TrainableTiny(SHAPES[name], seed=3, dtype=torch.float64)
    weights = {key: value for key, value in model.state_dict().items() if key != "lm_head.weight" or not SHAPES[name].tied}
    assert {key: tuple(value.shape) for key, value in weights.items()} == SHAPES[name].tensors()
    served = Tiny(SHAPES[name], weights)
    ids = tokens(3, 17)
    found = model(ids).detach()
    for row, wanted in zip(ids, found):
        assert torch.allclose(served.logits(row), wanted, rtol=1e-12, atol=1e-12)


def test_the_past_does_not_see_the_future() -> None:
    for style in ("llama", "nanochat"):
        model = TrainableTiny(SMALL, style=style, dtype=torch.float64)
        with torch.no_grad():
            for weight in model.parameters():
                weight.add_(0.1 * torch.randn(weight.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64))
        ids = tokens(1, 12)
        other = ids.clone()
        other[0, 8:] = (other[0, 8:] + 1) % SMALL.vocab
        one, two = model(ids), model(other)
        assert torch.equal(one[0, :8], two[0, :8])
        assert not torch.allclose(one[0, 8:], two[0, 8:])


@pytest.mark.parametrize("style", ["llama", "nanochat"])
def test_pieces_in_turn_are_the_model_and_share_its_parameters(style: Any) -> None:
    model = TrainableTiny(SMALL, style=style, seed=5)
    x = ids = tokens(2, 9)
    for piece in model.pieces():
        x = piece(x)
    assert torch.equal(x, model(ids))
    assert {id(p) for piece in model.pieces() for p in piece.parameters()} == {id(p) for p in model.parameters()}


@pytest.mark.parametrize(("name", "style"), [("dense", "llama"), ("experts", "llama"), ("dense", "nanochat")])
def test_gradients_are_those_of_differences(name: str, style: Any) -> None:
    model = TrainableTiny(SHAPES[name], style=style, seed=1, dtype=torch.float64)
    with torch.no_grad():
        # Output projections of nanochat begin at zero, where most gradients are zero too.
        for weight in model.parameters():
            weight.add_(0.05 * torch.randn(weight.shape, generator=torch.Generator().manual_seed(2), dtype=torch.float64))
    ids, targets = tokens(2, 7), tokens(2, 7, seed=9)
    model.loss(ids, targets).backward()
    rng = torch.Generator().manual_seed(4)
    for key, weight in model.named_parameters():
        direction = torch.randn(weight.shape, generator=rng, dtype=torch.float64)
        wanted = float((weight.grad * direction).sum())
        losses = []
        for step in (1e-6, -1e-6):
            with torch.no_grad():
                weight.add_(step * direction)
                losses.append(float(model.loss(ids, targets)))
                weight.sub_(step * direction)
        assert (losses[0] - losses[1]) / 2e-6 == pytest.approx(wanted, rel=1e-5, abs=1e-8), key


def test_equal_seeds_give_equal_weights_and_leave_the_callers_generator_alone() -> None:
    torch.manual_seed(1)
    before = torch.get_rng_state()
    one = TrainableTiny(SMALL, seed=7).state_dict()
    assert torch.equal(torch.get_rng_state(), before)
    torch.rand(3)
    two, other = TrainableTiny(SMALL, seed=7).state_dict(), TrainableTiny(SMALL, seed=8).state_dict()
    assert all(torch.equal(one[key], two[key]) for key in one)
    assert not torch.equal(one["lm_head.weight"], other["lm_head.weight"])


def test_nanochat_begins_by_knowing_nothing() -> None:
    model = TrainableTiny(SMALL, style="nanochat")
    ids = tokens(2, 10)
    assert float(model.loss(ids, ids).detach()) == pytest.approx(math.log(SMALL.vocab), rel=1e-6)


def test_tokens_without_a_target_do_not_count() -> None:
    model = TrainableTiny(SMALL)
    ids, targets = tokens(2, 8), tokens(2, 8, seed=1)
    targets[:, :5] = NO_TARGET
    logits = model(ids)
    chosen = torch.log_softmax(logits, -1)[:, 5:].gather(-1, targets[:, 5:, None])
    assert float(cross_entropy(logits, targets).detach()) == pytest.approx(-float(chosen.detach().mean()), rel=1e-6)


def test_every_expert_has_a_gradient_and_routing_is_told() -> None:
    model = TrainableTiny(SHAPES["experts"])
    seen: list[Any] = []
    model.model.layers[0].block_sparse_moe.on_routing = seen.append
    ids = tokens(1, 3)
    model.loss(ids, ids).backward()
    assert seen[0].shape == (3, 2)
    assert all(weight.grad is not None for weight in model.parameters())


@pytest.mark.parametrize("style", ["llama", "nanochat"])
def test_it_learns_what_follows_what(style: Any) -> None:
    """Each token decides the next, so the loss may fall to zero, where the frequencies alone allow log 60."""
    follows = torch.randperm(SMALL.vocab, generator=torch.Generator().manual_seed(0))
    model = TrainableTiny(SMALL, style=style)
    matrices = [weight for name, weight in model.named_parameters() if weight.dim() == 2 and "layers" in name]
    others = [weight for weight in model.parameters() if all(weight is not one for one in matrices)]
    optimisers = [Muon(matrices, 0.02), torch.optim.AdamW(others, 1e-2)]
    for step in range(60):
        ids = tokens(8, 1, seed=step)
        for _ in range(15):
            ids = torch.cat([ids, follows[ids[:, -1:]]], 1)
        loss = model.loss(ids[:, :-1], ids[:, 1:])
        for optimiser in optimisers:
            optimiser.zero_grad()
        loss.backward()
        for optimiser in optimisers:
            optimiser.step()
    assert float(loss.detach()) < 0.5


@pytest.mark.parametrize("size", [(8, 8), (24, 5), (5, 24), (1, 7)])
@pytest.mark.parametrize(("ours", "theirs"), [("original", None), ("match_rms_adamw", "match_rms_adamw")])
def test_muon_in_bfloat16_is_pytorchs(size: tuple[int, int], ours: Any, theirs: str | None) -> None:
    rng = torch.Generator().manual_seed(0)
    start = torch.randn(size, generator=rng)
    mine, other = torch.nn.Parameter(start.clone()), torch.nn.Parameter(start.clone())
    optimisers = [Muon([mine], 0.02, scaling=ours), torch.optim.Muon([other], 0.02, adjust_lr_fn=theirs)]
    for _ in range(5):
        mine.grad = torch.randn(size, generator=rng)
        other.grad = mine.grad.clone()
        for optimiser in optimisers:
            optimiser.step()
    assert torch.equal(mine, other)


def test_muon_in_float64_brings_singular_values_near_one() -> None:
    matrix = torch.randn(20, 12, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    left, values, right = torch.linalg.svd(matrix, full_matrices=False)
    values = values / values.norm()
    a, b, c = 3.4445, -4.7750, 2.0315
    for _ in range(5):
        values = a * values + b * values**3 + c * values**5
    found = orthogonalised(matrix, dtype=torch.float64)
    assert torch.allclose(found, left * values @ right, rtol=1e-10, atol=1e-10)
    assert 0.6 < float(values.min()) <= float(values.max()) < 1.3


def test_muon_without_a_gradient_and_on_what_is_no_matrix() -> None:
    weight = torch.nn.Parameter(torch.ones(3, 3))
    Muon([weight]).step()
    assert torch.equal(weight, torch.ones(3, 3))
    with pytest.raises(InputError, match="expected matrices"):
        Muon([torch.nn.Parameter(torch.ones(3))])
    with pytest.raises(InputError, match="expected a matrix"):
        muon_update(torch.ones(3), torch.zeros(3))
    assert torch.isfinite(orthogonalised(torch.zeros(4, 4))).all()


def test_unknown_styles_are_refused() -> None:
    wrong: Any = "gpt5"
    with pytest.raises(InputError, match="unknown style"):
        TrainableTiny(SMALL, style=wrong)
    with pytest.raises(InputError, match="no experts"):
        TrainableTiny(SHAPES["experts"], style="nanochat")
