"""Training: the class weight, the weights of features, partitions, equal seeds, and that scoring without PyTorch is the trained network."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from small_fleets import by_hand, drawn, fleet

torch = pytest.importorskip("torch")

from armillary import catalogue  # noqa: E402
from armillary.observability.drives import DrivesWork, Fleet, GmpPredictor, Lesson  # noqa: E402
from armillary.observability.drives.features.windows import ends, places  # noqa: E402
from armillary.observability.drives.networks.frozen import logits  # noqa: E402
from armillary.observability.drives.networks.partition import Scaling, partitions, place, vendor  # noqa: E402
from armillary.observability.drives.networks.parts import made  # noqa: E402
from armillary.observability.drives.networks.scorer import fit  # noqa: E402
from armillary.observability.drives.networks.settings import Settings  # noqa: E402
from armillary.observability.drives.networks.shapes import shapes  # noqa: E402
from armillary.observability.drives.networks.training import focal, next_alpha, next_guide  # noqa: E402

ARENA = catalogue.arena("observability/drives")
KINDS = ("lstm", "xlstm", "both", "gru-attention", "cnn-lstm")


@pytest.mark.parametrize("kind", KINDS)
def test_scoring_without_pytorch_is_the_network(kind: str) -> None:
    module = made(kind, 7, 16, 4, 1)
    arrays = {name: value.numpy() for name, value in module.state_dict().items()}
    assert {name: value.shape for name, value in arrays.items()} == shapes(kind, 7, 16, 4)
    rng = np.random.default_rng(0)
    table, at = rng.normal(size=(60, 7)).astype(np.float32), rng.integers(0, 60, (23, 30))
    with torch.no_grad():
        wanted = module(torch.from_numpy(table[at])).numpy()
    assert np.abs(logits(kind, arrays, 4, table, at) - wanted).max() < 1e-5


def test_the_class_weight_follows_the_recall() -> None:
    assert next_alpha(0.75, best_recall=0.6, recall=0.2, eta=0.5) > 0.75
    assert next_alpha(0.75, best_recall=0.2, recall=0.6, eta=0.5) < 0.75
    assert next_alpha(0.75, 0.4, 0.4, 0.5) == 0.75
    assert next_alpha(0.7, 0.6, 0.2, 0.5) == pytest.approx(0.7 * np.exp(0.2))


@given(st.floats(0.5, 0.99), st.floats(0, 1), st.floats(0, 1), st.floats(0, 10))
def test_the_class_weight_is_bounded(alpha: float, best: float, recall: float, eta: float) -> None:
    assert 0.5 <= next_alpha(alpha, best, recall, eta) <= 0.99


def test_the_loss_by_hand() -> None:
    # p = 0.8 of a failure and p = 0.3 of another drive: alpha (1 - p)^2 (-log p) each, twice.
    given_logits = torch.tensor([np.log(4.0), np.log(0.3 / 0.7)])
    wanted = np.mean([2 * 0.9 * 0.2**2 * -np.log(0.8), 2 * 0.1 * 0.3**2 * -np.log(0.7)])
    assert float(focal(given_logits, torch.tensor([1.0, 0.0]), 0.9, 2.0)) == pytest.approx(wanted, rel=1e-5)


def test_the_weights_of_features_by_hand() -> None:
    smoothed, weights = next_guide(None, np.array([3.0, 1.0, 0.0, 0.0]), 0)
    assert smoothed.tolist() == [3.0, 1.0, 0.0, 0.0]
    assert weights == pytest.approx([1 + 2 / 3, 1, 2 / 3, 2 / 3])
    smoothed, weights = next_guide(smoothed, np.array([0.0, 4.0, 0.0, 0.0]), 1)
    assert smoothed == pytest.approx([2.1, 1.9, 0, 0])
    assert weights == pytest.approx([1 + 2 / 3 * 1.1, 1 + 2 / 3 * 0.9, 1 / 3, 1 / 3])
    _, weights = next_guide(smoothed, np.array([400.0, 0.0, 0.0, 0.0]), 5)
    assert weights.min() >= np.float32(0.2)
    assert weights.max() <= 5.0
    assert next_guide(None, np.zeros(3), 0)[1].tolist() == [1, 1, 1]


def planted(informative: int, seed: int = 0, noise: int = 30) -> Fleet:
    """A fleet in which one attribute out of many rises before failures, and the others are noise."""
    rng = np.random.default_rng(seed)
    failures = [int(rng.integers(10, 80)) if i < 90 else None for i in range(240)]
    one = by_hand([failures[int(i)] for i in rng.permutation(240)], days=70, attributes=range(1, noise + 2), known_until=80)
    # Names of counters only; gauges would differ in how changes are read.
    raw = np.cumsum(rng.poisson(1.0, one.raw.shape), 0).astype(float)
    for i in range(len(one)):
        rows = slice(int(one.start[i]), int(one.start[i + 1]))
        raw[rows] -= raw[rows][0]
        ahead = one.failure[i] - one.day[rows]
        raw[rows, informative] += np.cumsum(np.where(ahead <= 12, 15, 0))
    return replace(one, raw=raw)


def weights_by_attribute(one: Fleet) -> np.ndarray:
    """The mean weight of the features of each attribute after training."""
    settings = Settings("both", width=8, epochs=6, ensemble=1, batch=32, patience=20)
    part = next(iter(fit(Lesson(one, 10), settings).parts.values()))
    found = np.zeros(len(one.attributes))
    columns = part.scaling.columns
    named = columns < 4 * len(found)
    np.add.at(found, columns[named] // 4, part.members[0][1][named] / 4)
    return found


@pytest.mark.slow
def test_guidance_finds_the_attribute_that_tells_and_follows_it_at_the_next_fit() -> None:
    for informative in (4, 16):
        found = weights_by_attribute(planted(informative))
        assert int(np.argmax(found)) == informative
        assert found[informative] > 2 * np.median(found)


def test_equal_seeds_give_equal_bits_and_others_do_not() -> None:
    technique = GmpPredictor(epochs=2, ensemble=1, width=8)
    lessons = [DrivesWork(fleet(), 10).lesson(seed) for seed in (1, 1, 2)]
    torch.manual_seed(0)
    scores = []
    for lesson in lessons:
        scores.append(technique.learn(lesson).scores(lesson.fleet, lesson.days, lesson.validation))
        torch.rand(7)
        np.random.default_rng()
    assert np.array_equal(scores[0], scores[1])
    assert not np.array_equal(scores[0], scores[2])


@pytest.mark.slow
def test_every_part_that_is_switched_off_changes_what_is_learned() -> None:
    lesson = DrivesWork(drawn(21, drives=420, failures=300), 10).lesson(1)
    options = {"epochs": 4, "patience": 9, "ensemble": 1, "width": 8}
    scores = []
    for name in ("gmppredictor", "no-partition", "no-guidance", "static-loss"):
        networks = ARENA.make(name, options).learn(lesson)
        scores.append(networks.validated)  # type: ignore[attr-defined]
        guides = np.concatenate([guide for part in networks.parts.values() for _, guide in part.members])  # type: ignore[attr-defined]
        alphas = {one["alpha"] for part in networks.parts.values() for one in part.history[0]}  # type: ignore[attr-defined]
        assert (len(networks.parts) == 1) == (name == "no-partition")  # type: ignore[attr-defined]
        assert (len(alphas) == 1) == (name == "static-loss"), name
        assert (guides == 1).all() == (name == "no-guidance"), name
    assert all(not np.array_equal(scores[0], other) for other in scores[1:])


def test_models_with_few_failures_share_a_network() -> None:
    one = by_hand([None] * 6)
    many = replace(one, models=("MA1", "MA2", "MB1", "MB2", "ST4000DM000"), model=np.arange(6) % 5)
    failing = np.concatenate([np.repeat(0, 40), np.repeat(1, 5), np.repeat(2, 20), np.repeat(3, 15), np.repeat(4, 3)])
    found = partitions(many, failing)
    assert found == {"MA1": ("MA1",), "MB*": ("MB1", "MB2"), "*": ("MA2", "ST4000DM000")}
    assert partitions(many, failing, divide=False) == {"*": many.models}
    names = list(found)
    assert [place(model, names) for model in ("MA1", "MB1", "MA2", "MB7", "WDC", "MA9")] == ["MA1", "MB*", "*", "MB*", "*", "*"]
    assert place("WDC", ["MA1", "MB*"]) == "MA1"
    assert [vendor(model) for model in ("MC2", "ST4000DM000", "HGST HMS5C", "", "9XYZ")] == ["MC", "ST", "HGST", "", "9XYZ"]


def test_a_partition_is_scaled_by_its_own_training_days() -> None:
    lesson = Lesson(fleet(), 10)
    rows = lesson.train()
    scaling = Scaling.fit(lesson.days, rows)
    scaled = scaling.rows(lesson.days, rows)
    assert np.abs(np.median(scaled, 0)).max() < 1e-4
    assert np.abs(scaled).max() <= 8
    outside = scaling.rows(lesson.days, np.array([len(lesson.days.day)]))[0]
    names = [lesson.days.names[int(c)] for c in scaling.columns]
    assert outside[names.index("missing")] > 0
    assert (np.delete(outside, names.index("missing")) == 0).all()


def test_positive_windows_are_kept_and_others_are_thinned() -> None:
    lesson = Lesson(fleet(), 10)
    rows = lesson.train(20)
    everything = ends(lesson.days, *lesson.split.train)
    assert set(everything[lesson.of(everything)].tolist()) <= set(rows.tolist())
    others = rows[~lesson.of(rows)]
    per_drive = np.bincount(lesson.days.drive[others], minlength=len(lesson.fleet))
    assert per_drive.max() <= -(-lesson.split.train[1] // 20)
    assert places(lesson.days, rows[:3], 30).shape == (3, 30)


def test_rankings_drop_the_odd_one() -> None:
    from armillary.observability.drives.trees.ranking import change_point, j_index, merged

    alike = {name: np.arange(8.0) for name in ("pearson", "spearman", "forest", "boosting")}
    order, kept = merged(alike | {"j-index": np.arange(8.0)[::-1].copy()})
    assert order.tolist() == list(range(8))
    assert "j-index" not in kept
    x, y = np.array([[0.0, 3], [1, 1], [2, 2], [9, 0], [8, 3], [7, 1]]), np.array([False, False, False, True, True, True])
    assert j_index(x, y) == pytest.approx([1.0, 1 / 3])
    wear = np.linspace(0, 1, 400)
    fails = (wear > 0.7) & (np.arange(400) % 2 == 0)
    assert change_point(wear, fails | (np.arange(400) % 20 == 0), np.arange(400)) == pytest.approx(0.7, abs=0.05)
    assert change_point(wear, np.arange(400) % 10 == 0, np.arange(400)) is None
