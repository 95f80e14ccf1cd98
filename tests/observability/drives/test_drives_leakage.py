"""What is learned comes from the past only: poisoned futures, shuffled failures, and a fleet that a split without a gap falls for."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from small_fleets import by_hand, drawn, fleet

from armillary import catalogue
from armillary.observability.drives import DrivesWork, Fleet, Lesson
from armillary.observability.drives.fleets.fleet import NEVER
from armillary.observability.drives.fleets.synthesis import SUDDEN
from armillary.observability.drives.judging.split import labels

pytest.importorskip("sklearn")
ARENA = catalogue.arena("observability/drives")
QUICK = {"trees": 20}


@pytest.mark.parametrize("name", ["lightgbm", "logistic", "wefr-forest", "gmppredictor"])
def test_nothing_of_the_test_period_is_read_by_learning(name: str) -> None:
    one = fleet()
    work = DrivesWork(one, 10, most_epochs=1, most_ensemble=1)
    border = work.split.test[0]
    late = one.day >= border
    raw, failure = one.raw.copy(), one.failure.copy()
    raw[late] = 1e12
    failure[failure >= border] = NEVER
    poisoned = replace(one, raw=raw, normal=np.where(late[:, None], 0, one.normal).astype(np.float32), failure=failure)
    options = {"trees": 20} if name in ("lightgbm", "wefr-forest") else {"width": 8} if name == "gmppredictor" else {}
    technique = ARENA.make(name, options)
    scores = []
    for lesson in (work.lesson(3), DrivesWork(poisoned, 10, most_epochs=1, most_ensemble=1).lesson(3)):
        assert lesson.fleet.day.max() < border
        scores.append(technique.learn(lesson).scores(lesson.fleet, lesson.days, lesson.validation))
    assert np.array_equal(scores[0], scores[1])
    assert len(np.unique(scores[0])) > 10


def test_shuffled_failures_cannot_be_predicted() -> None:
    """The area over test rows, a mean over shuffles, is the share of positive rows to 20 %."""
    metrics = pytest.importorskip("sklearn.metrics")
    one = drawn(5, drives=500, failures=150)
    areas, rates = [], []
    for seed in range(8):
        rng = np.random.default_rng(seed)
        shuffled = replace(one, failure=rng.permutation(one.failure), weight=1.0)
        work = DrivesWork(shuffled, 10)
        rows = work.rows
        score = ARENA.make("lightgbm", QUICK).learn(work.lesson(seed)).scores(shuffled, work.days, rows)
        label = labels(shuffled, work.days.drive[rows], work.days.day[rows], 10)
        areas.append(metrics.average_precision_score(label, score))
        rates.append(label.mean())
    assert np.mean(areas) == pytest.approx(np.mean(rates), rel=0.2)


def names_only(seed: int) -> Fleet:
    """A fleet whose drives fail without a sign; one attribute is a number of each drive's own, so a drive can be told but not judged."""
    rng = np.random.default_rng(seed)
    failures = [int(rng.integers(10, 130)) if i < 240 else None for i in range(800)]
    one = by_hand([failures[int(i)] for i in rng.permutation(800)], days=120, attributes=(5, 241), known_until=130)
    raw = one.raw.copy()
    raw[:, 1] = rng.integers(0, 1 << 40, len(one))[one.drive]
    return replace(one, raw=raw)


@pytest.mark.slow
def test_the_gap_matters() -> None:
    """Without it, drives that fail just behind the border are positive in training, and a learner recognises them instead of judging."""
    one = names_only(1)
    work = DrivesWork(one, 10)
    technique = ARENA.make("forest", {"trees": 60, "every": 5})
    honest = technique.learn(work.lesson())
    leaking = Lesson(one, 10, gap=0)
    assert leaking.split.train[1] > work.split.test[0]
    leaky = technique.learn(leaking)
    area = [work.auprc(work.scored(scorer)) for scorer in (honest, leaky)]
    assert area[1] > 1.3 * area[0]


def test_sudden_failures_cannot_be_found() -> None:
    """No technique finds more than those that announce themselves, but for the sampling error of the ones it guesses."""
    one = drawn(11, drives=500, failures=170)
    work = DrivesWork(one, 10, most_epochs=2, most_ensemble=1)
    assert one.mode is not None
    possible = work.possible()
    ceiling = possible.mean() + 2 * np.sqrt(possible.mean() * (1 - possible.mean()) / len(possible))
    for name, options in (("lightgbm", QUICK), ("logistic", {}), ("threshold", {}), ("xlstm", {"width": 8})):
        lesson = work.lesson()
        scored = work.scored(ARENA.make(name, options).learn(lesson))
        drives = work.per_drive(scored)
        level = np.quantile(drives.any[one.failure[drives.drive] >= NEVER], 0.995)
        found = drives.right[drives.fails] >= level
        assert found.mean() <= ceiling, name
        sudden = one.mode[drives.drive[drives.fails]] == SUDDEN
        assert found[sudden].mean() < 0.15 + found[~sudden].mean() / 2, name
