"""The indicator and rounding are checked by hand and on a model that was really trained."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from armillary.errors import InputError
from armillary.serving.offline.quality.indicator import indicator, measured, omega, quantised_weights, stand_in_omega

torch = pytest.importorskip("torch")

from armillary.llm import Tiny  # noqa: E402
from armillary.serving.offline.quality.trained_tiny import CONFIG, _one_thread, forward, loss, perplexity_ratio, text, trained  # noqa: E402

STEPS = 25


@pytest.fixture(scope="module")
def tiny() -> Tiny:
    return trained(STEPS)


def test_the_indicator_by_hand() -> None:
    # 64 inputs and weights from -0.7 to 0.7 at 4 bits give a step of 1.4/7; the variance is 0.5 and the mean 1.
    assert indicator(1.4, 64, 1.0, 0.5, 4) == pytest.approx(64 * 0.2**2 * 0.5 / 4)
    assert indicator(1.4, 64, 1.0, 0.5, 4, "stochastic") == pytest.approx(64 * 0.2**2 * 1.5 / 6)
    assert indicator(1.4, 64, 1.0, 0.5, 8) == pytest.approx(64 * (1.4 / 127) ** 2 * 0.5 / 4)
    assert indicator(1.4, 64, 1.0, 0.5, 16) == 0


def test_omega_is_the_sum_over_operators_of_what_they_really_meet() -> None:
    made = Tiny.make(CONFIG, seed=3)
    pieces = [[1, 5, 9, 200, 7, 7], [3] * 6]
    table = omega(made, pieces, bits=(4, 16))
    stats, spreads, layers = measured(made, pieces, sequences=128, tokens=2048)
    assert (layers, table.values.shape) == (8, (8, 2))
    assert table.values[:, 1].tolist() == [0.0] * 8
    own = [n for n in stats if n.startswith("model.layers.2.")]
    assert len(own) == 7
    assert table.values[2, 0] == pytest.approx(sum(indicator(*spreads[n], *stats[n], 4) for n in own))
    # The first operator's inputs are the normed embeddings, which are computed separately here.
    x = made.weights["model.embed_tokens.weight"][torch.tensor(pieces).flatten()].double()
    x = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5)
    assert stats["model.layers.0.self_attn.q_proj"] == pytest.approx((float(x.mean()), float(x.var(unbiased=False))), rel=1e-4, abs=1e-6)
    assert spreads["model.layers.0.mlp.down_proj"][1] == 176


def test_omega_of_a_folder(tmp_path: Path) -> None:
    made = Tiny.make(CONFIG, seed=4)
    made.save(tmp_path)
    assert omega(tmp_path, "a text of bytes").values == pytest.approx(omega(made, "a text of bytes").values)
    with pytest.raises(InputError, match="calibration text is empty"):
        omega(made, "")
    with pytest.raises(InputError, match="token 999"):
        omega(made, [[1, 999]])
    with pytest.raises(InputError, match="dense model"):
        omega(Tiny.make("tiny-moe"), "text")


def test_rounding_by_hand() -> None:
    name = "model.layers.0.mlp.up_proj.weight"
    weight = torch.tensor([[0.7, -0.3, 0.11], [0.0, 0.0, 0.0]])
    weights = {name: weight, "model.norm.weight": torch.ones(3)}
    out = quantised_weights(weights, [4])[name]
    assert out[0].tolist() == pytest.approx([0.7, -0.3, 0.1])
    assert out[1].tolist() == [0.0, 0.0, 0.0]
    assert quantised_weights(weights, [16])[name] is weight
    for group, rounded in ((1, 0.1), (2, 0.0)):  # a weight in a group of one has its own scale
        found = quantised_weights({name: torch.tensor([[7.0, 0.1]])}, [4], group=group)[name]
        assert found[0].tolist() == pytest.approx([7.0, rounded])


def test_the_batched_pass_is_tinys_own(tiny: Tiny) -> None:
    ids = torch.tensor([list(text()[1][:12]), list(text()[1][100:112])])
    with _one_thread(), torch.no_grad():
        both = forward(tiny, ids)
        for row, logits in zip(ids, both, strict=True):
            assert float((tiny.logits(row) - logits).abs().max()) < 1e-3


def test_training_has_taught_it_something_and_bits_take_it_away(tiny: Tiny) -> None:
    plain = loss(tiny, None, 24)
    assert plain < 3.3 < np.log(256)
    assert abs(perplexity_ratio(tiny, [16] * 8, 24) - 1) < 1e-6
    ratios = [perplexity_ratio(tiny, [b] * 8, 24, plain=plain) for b in (8, 4, 3, 2)]
    assert abs(ratios[0] - 1) < 0.01
    assert ratios[0] < ratios[2] < ratios[3]


@pytest.mark.slow
def test_omega_ranks_layers_and_bits_as_the_measured_loss_does() -> None:
    from scipy.stats import spearmanr

    # At 8 bits a layer's loss changes by less than a ten-thousandth, which cannot be ranked, so 2 bits are used instead.
    tiny = trained(200)
    table = omega(tiny, text()[0], bits=(2, 3, 4), sequences=16, tokens=256)
    base, found = loss(tiny, None), []
    for b in (2, 3, 4):
        for layer in range(8):
            bits = [16] * 8
            bits[layer] = b
            found.append((table.of((b,))[layer, 0], loss(tiny, bits) - base))
    assert spearmanr([x for x, _ in found], [y for _, y in found]).statistic >= 0.7


def test_the_stand_in_falls_as_the_indicator_does() -> None:
    table = stand_in_omega(48, (3, 4, 8, 16))
    assert table.of((4,)).mean() == pytest.approx(1.0)
    assert table.values[5, 0] / table.values[5, 1] == pytest.approx((7 / 3) ** 2)
    assert table.values[5, 1] / table.values[5, 2] == pytest.approx((127 / 7) ** 2)
    assert table.total([16] * 48) == 0
    assert table.total([4] * 48) == pytest.approx(48)
