"""Supervised training, losses, calibration and intervals."""

from __future__ import annotations

import math
import warnings

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from hypothesis import given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402

from armillary.errors import InputError  # noqa: E402
from armillary.learn import (  # noqa: E402
    Conformal,
    Isotonic,
    Mlp,
    Model,
    Platt,
    bpr,
    fit,
    focal,
    gaussian_nll,
    huber,
    list_mle,
    pairwise_ranking,
    pinball,
    quantiles,
    squared,
    uncrossed,
)  # fmt: skip


def line(rows: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((rows, 3)).astype(np.float32)
    return x, (x @ [1.0, -2.0, 0.5] + 0.1 * rng.standard_normal(rows))[:, None].astype(np.float32)


def test_it_learns_a_line_and_keeps_the_best_weights() -> None:
    x, y = line(2000)
    found = fit(Mlp(3, (16,), 1), (x, y), huber, steps=300, batch=128, lr=1e-2)
    assert found.validation_loss < 0.02
    assert found.history.columns == ["step", "train_loss", "validation_loss", "lr"]
    assert found.history["validation_loss"].min() == pytest.approx(found.validation_loss)
    assert found.history["step"].to_list()[:2] == [6, 12], "the validation slice is looked at every steps/50"
    assert found.history["lr"][-1] < found.history["lr"][0]
    model = found.model(technique="a/b/c")
    assert (model.steps, model.metrics) == (300, {"validation_loss": found.validation_loss})
    with torch.no_grad():
        assert np.allclose(model.frozen()(x[:5]), found.module(torch.from_numpy(x[:5])), atol=1e-5)


@pytest.mark.parametrize("what", ["labels", "features"])
def test_nothing_is_learned_from_shuffled_data(what: str) -> None:
    x, y = line(3000, seed=3)
    order = np.random.default_rng(4).permutation(3000)
    x, y = (x, y[order]) if what == "labels" else (x[order], y)
    x, y, x_held, y_held = x[:2000], y[:2000], x[2000:], y[2000:]
    constant = float(np.mean((y_held - y.mean()) ** 2))
    found = fit(Mlp(3, (32,), 1), (x, y), squared, steps=100, batch=256, lr=3e-3, validation=(x_held, y_held))
    assert abs(found.validation_loss - constant) <= 0.02 * constant


def test_the_same_seed_gives_the_same_bits_whatever_was_drawn_before() -> None:
    def once() -> list[np.ndarray]:
        net = Mlp(3, (8,), 1, seed=2)
        fit(net, line(300), huber, steps=20, batch=32, seed=5)
        return net.state_arrays()

    threads = torch.get_num_threads()
    one = once()
    torch.manual_seed(9)
    torch.rand(7)
    two = once()
    assert all(np.array_equal(a, b) for a, b in zip(one, two))
    assert torch.get_num_threads() == threads
    assert not torch.are_deterministic_algorithms_enabled()


def test_drawn_data_depend_on_the_number_of_the_batch_alone() -> None:
    seen: dict[int, float] = {}

    def draw(i: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        x = rng.standard_normal((16, 3)).astype(np.float32)
        assert seen.setdefault(i, float(x[0, 0])) == float(x[0, 0])
        return x, x[:, :1]

    fit(Mlp(3, (8,), 1), draw, squared, steps=10, validation=line(20))
    found = fit(Mlp(3, (8,), 1), draw, squared, steps=20)
    assert len(seen) == 20
    assert math.isnan(found.validation_loss), "without a validation slice the last weights are kept"


def test_patience_ends_a_training_that_does_not_improve() -> None:
    x, _ = line(200)
    found = fit(Mlp(3, (4,), 1), (x, np.zeros((200, 1))), squared, steps=500, batch=32, lr=0.1, schedule="constant", patience_steps=50)
    assert found.steps < 500
    assert found.best_step <= found.steps - 50 or found.steps == 500


@pytest.mark.parametrize(
    ("change", "said"),
    [({"steps": 0}, "0 steps"), ({"batch": 0}, "0 rows"), ({"data": (np.zeros((3, 3)), np.zeros(2))}, "3 rows and 2 targets"),
     ({"data": (np.full((9, 3), np.nan), np.zeros((9, 1)))}, "not finite"), ({"lr": 1e30, "steps": 50}, "expected a finite one")],
)  # fmt: skip
def test_bad_input_is_refused(change: dict, said: str) -> None:
    how = {"data": line(100), "loss": squared, "steps": 10} | change
    with pytest.raises(InputError, match=said):
        fit(Mlp(3, (4,), 1), how.pop("data"), how.pop("loss"), **how)


def test_losses_by_hand() -> None:
    t = torch.tensor
    assert huber(t([0.0, 3.0]), t([0.5, 0.0])).item() == pytest.approx((0.125 + 2.5) / 2)
    assert focal(0.0)(t([0.0]), t([1.0])).item() == pytest.approx(math.log(2))
    assert focal(2.0)(t([0.0]), t([1.0])).item() == pytest.approx(0.25 * math.log(2))
    assert bpr(t([1.0]), t([0.0])).item() == pytest.approx(math.log1p(math.exp(-1)))
    # The best order of two items has likelihood e²/(e² + e¹).
    assert list_mle(t([[1.0, 2.0]]), t([[0.0, 1.0]])).item() == pytest.approx((math.log(1 + math.exp(-1)) + 0) / 2, abs=1e-6)
    assert pairwise_ranking(t([[1.0, 2.0, 0.0]]), t([[0.0, 1.0, 0.0]])).item() == pytest.approx((math.log1p(math.exp(-1)) + math.log1p(math.exp(-2))) / 2, abs=1e-6)
    assert gaussian_nll(t([[0.0, 0.0]]), t([1.0])).item() == pytest.approx(0.5 * (1 + math.log(2 * math.pi)))
    assert pinball((0.9,))(t([[0.0]]), t([1.0])).item() == pytest.approx(0.9)
    assert pinball((0.9,))(t([[0.0]]), t([-1.0])).item() == pytest.approx(0.1)


@given(st.lists(st.floats(-50, 50), min_size=2, max_size=6))
@settings(max_examples=50)
def test_quantiles_never_cross(raw: list[float]) -> None:
    found = quantiles(torch.tensor([raw]))[0]
    assert (found.diff() >= 0).all()


def test_quantiles_find_those_of_the_data() -> None:
    y = np.random.default_rng(0).standard_normal(4000).astype(np.float32)
    net = Mlp(1, (), 3)
    fit(net, (np.ones((4000, 1), np.float32), y), pinball((0.1, 0.5, 0.9)), steps=400, batch=500, lr=0.03)
    found = quantiles(net(torch.ones(1, 1))).detach().numpy()[0]
    assert np.allclose(found, [-1.2816, 0, 1.2816], atol=0.12)
    frozen = Model.of(net).frozen()
    assert np.allclose(uncrossed(frozen(np.ones((1, 1), np.float32)))[0], found, atol=1e-5)


def test_platt_finds_the_scale_that_made_the_labels() -> None:
    rng = np.random.default_rng(1)
    x = rng.normal(0, 2, 20_000)
    y = rng.random(20_000) < 1 / (1 + np.exp(-(0.5 * x - 1)))
    found = Platt.fit(x, y)
    assert found.a == pytest.approx(0.5, abs=0.03)
    assert found.b == pytest.approx(-1, abs=0.06)
    assert np.isfinite(Platt.fit([1.0, 2.0, 3.0], [0, 0, 1])(50.0)), "separable labels give no infinite slope"


def test_isotonic_is_sklearns() -> None:
    sklearn = pytest.importorskip("sklearn.isotonic")
    rng = np.random.default_rng(2)
    x = np.round(rng.random(300), 2)
    y = (rng.random(300) < x).astype(float)
    ours, theirs = Isotonic.fit(x, y), sklearn.IsotonicRegression(out_of_bounds="clip").fit(x, y)
    at = np.linspace(-0.2, 1.2, 101)
    assert np.allclose(ours(at), theirs.predict(at), atol=1e-9)


def test_conformal_intervals_cover_what_they_promise_in_every_group() -> None:
    rng = np.random.default_rng(3)
    group, spread = np.repeat([0, 1], 3000), np.array([1.0, 10.0])
    found = Conformal.fit(np.zeros(6000), rng.standard_normal(6000) * spread[group], groups=group)
    for one in (0, 1):
        truth = rng.standard_normal(10_000) * spread[one]
        low, high = found(np.zeros(10_000), np.full(10_000, one))
        assert 0.88 <= ((low <= truth) & (truth <= high)).mean() <= 0.92
    assert found.by_group[1] > 5 * found.by_group[0]


def test_a_small_group_gets_the_pooled_interval_and_is_named() -> None:
    with pytest.warns(UserWarning, match="pooled interval: 7"):
        found = Conformal.fit(np.zeros(50), np.arange(50.0), groups=np.r_[np.zeros(31), np.full(19, 7)])
    assert found.pooled == (7,)
    assert found(np.zeros(1), [7])[1] == found.radius
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert Conformal.fit(np.zeros(99), np.arange(1.0, 100), coverage=0.9).radius == 90


def test_calibration_refuses_what_does_not_fit_together() -> None:
    for wrong in (lambda: Platt.fit([1.0], [1, 0]), lambda: Conformal.fit([], []), lambda: Conformal.fit([1], [1], coverage=1.0)):
        with pytest.raises(InputError, match="expected"):
            wrong()
