"""How scores become alarms and alarms are counted: by hand, against a brute force, and against scikit-learn."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from small_fleets import by_hand, drawn, fleet

from armillary.errors import InputError
from armillary.observability.drives import Lesson, Scored, best_threshold, count, split
from armillary.observability.drives.fleets.fleet import NEVER
from armillary.observability.drives.judging.alarms import average_precision, best_cut, f05, per_drive
from armillary.observability.drives.judging.split import labels, within


def test_the_published_figures_fit_together() -> None:
    assert f05(0.9377, 0.6304) == pytest.approx(0.8544, abs=1e-4)
    assert f05(0.0, 0.0) == 0.0


def scored(flags: dict[int, list[int]], drives: int, days: int) -> Scored:
    """Scores of 0 on all days of all drives but 1 on the flagged ones."""
    drive, day = np.repeat(np.arange(drives), days), np.tile(np.arange(days), drives)
    score = np.zeros(len(drive))
    for i, on in flags.items():
        score[i * days + np.array(on)] = 1.0
    return Scored(drive, day, score)


def test_six_drives_by_hand() -> None:
    # Drive 0 is flagged in time, 1 too early, 2 after its failure, 3 early and in time; 4 is healthy and flagged, 5 is never flagged.
    failures = [40, 40, 20, 40, None, 50]
    alarms = {0: [33, 34], 1: [5, 6], 2: [30, 31], 3: [5, 6, 35, 36], 4: [10, 11]}
    found = count(by_hand(failures), scored(alarms, 6, 60), 0.5, horizon=10)
    # Drives 0 and 3 are found; 1, 2 and 5 are missed; 1 and 2 are flagged in vain as well, and 4 is a false alarm on a healthy drive.
    assert (found.found, found.missed, found.false_failing, found.false_healthy, found.healthy) == (2, 3, 2, 1, 1)
    assert found.precision == pytest.approx(2 / 5)
    assert found.recall == pytest.approx(2 / 5)
    assert found.lead_days == pytest.approx(np.median([40 - 34, 40 - 36]))
    thinned = count(by_hand(failures, weight=9.0), scored(alarms, 6, 60), 0.5, horizon=10)
    assert thinned.precision == pytest.approx(2 / (2 + 2 + 9))
    assert thinned.false_alarm_rate == found.false_alarm_rate == 1.0
    assert thinned.f05_at_far == 0.0


@pytest.mark.parametrize(("on", "flagged"), [([10], False), ([10, 11], True), ([10, 12], True), ([10, 13], False)])
def test_two_of_the_last_three_days_flag_a_drive(on: list[int], flagged: bool) -> None:
    found = scored({0: on}, 1, 30).alarms()
    assert bool((found >= 0.5).any()) == flagged


def test_days_that_are_missing_do_not_make_older_ones_recent() -> None:
    gap = Scored(np.zeros(4, int), np.array([1, 2, 8, 9]), np.array([1.0, 0.0, 1.0, 0.0]))
    assert not (gap.alarms() >= 0.5).any()


@given(
    right=st.lists(st.integers(0, 8), min_size=1, max_size=8), early=st.lists(st.integers(0, 8), max_size=4),
    healthy=st.lists(st.integers(0, 8), max_size=12), weight=st.sampled_from([1.0, 7.5]), allowed=st.sampled_from([0.0, 0.2, 1.0]),
)  # fmt: skip
def test_the_best_threshold_is_the_best_of_all(
    right: list[int], early: list[int], healthy: list[int], weight: float, allowed: float
) -> None:
    failing = np.array([*right, *early], float)
    level, value, recall = best_cut(np.array(right, float), failing, np.array(healthy, float), weight, allowed)
    best = 0.0
    for cut in np.arange(-0.5, 9.5):
        found, vain = sum(r >= cut for r in right), sum(h >= cut for h in healthy)
        flagged = sum(f >= cut for f in failing) + weight * vain
        if found and vain <= allowed * max(1, len(healthy)):
            best = max(best, f05(found / flagged, found / len(right)))
    assert value == pytest.approx(best)
    found, vain = sum(r >= level for r in right), sum(h >= level for h in healthy)
    assert recall == pytest.approx(found / len(right))
    assert vain <= allowed * max(1, len(healthy))


@given(
    positive=st.lists(st.floats(-5, 5).map(lambda x: round(x, 1)), min_size=1, max_size=30),
    negative=st.lists(st.floats(-5, 5).map(lambda x: round(x, 1)), min_size=1, max_size=30), weight=st.sampled_from([1.0, 40.0]),
)  # fmt: skip
def test_the_area_is_that_of_scikit_learn(positive: list[float], negative: list[float], weight: float) -> None:
    metrics = pytest.importorskip("sklearn.metrics")
    failures: list[int | None] = [12] * len(positive) + [None] * len(negative)
    one = by_hand(failures, days=20)
    score = np.repeat([*positive, *negative], [12] * len(positive) + [20] * len(negative))
    drives = per_drive(one, Scored(one.drive, one.day, score), 10)
    wanted = metrics.average_precision_score(
        drives.fails, np.where(drives.fails, drives.right, drives.any), sample_weight=np.where(drives.fails, 1, weight)
    )
    assert average_precision(drives, one.failure >= NEVER, weight) == pytest.approx(wanted)


@given(days=st.integers(90, 800), horizon=st.integers(5, 30), ahead=st.integers(0, 40))
def test_no_label_reaches_across_a_border(days: int, horizon: int, ahead: int) -> None:
    try:
        found = split(days, days + ahead, horizon)
    except InputError as error:
        assert "expected at least" in str(error)  # noqa: PT017
        return
    assert found.train[1] - 1 + horizon <= found.validate[0]
    assert found.validate[1] - 1 + horizon <= found.test[0]
    assert found.test[1] - 1 + horizon < days + ahead
    assert found.test[1] <= days
    # What is learned from on the first test day ends where the parts of the whole log end.
    inner = within(found.test[0], horizon)
    assert inner.validate[1] - 1 + horizon < found.test[0]
    assert abs(inner.train[1] - found.train[1]) <= 2


def test_a_label_is_a_failure_within_the_horizon() -> None:
    one = by_hand([20, None])
    assert labels(one, np.zeros(4, int), np.array([9, 10, 19, 20]), 10).tolist() == [False, True, True, False]
    assert not labels(one, np.ones(3, int), np.array([9, 10, 19]), 10).any()


def test_without_a_failing_drive_nothing_is_flagged() -> None:
    healthy = by_hand([None] * 4)
    level, value, recall = best_threshold(healthy, scored({1: [3, 4]}, 4, 60), 10)
    assert (level, value, recall) == (np.inf, 0.0, 0.0)
    found = count(healthy, scored({1: [3, 4]}, 4, 60), level, 10)
    assert (found.precision, found.recall, found.f05, found.lead_days) == (0.0, 0.0, 0.0, 0.0)


def test_too_few_failures_are_said() -> None:
    few = drawn(3, drives=120, failures=8)
    with pytest.raises(InputError, match=r"failures in the training days; expected at least 10 \(pool models"):
        Lesson(few.until(60), 10).train()


def test_days_of_drives_that_had_failed_by_then_train_nobody() -> None:
    one = fleet()
    lesson = Lesson(one, 10)
    broken = lesson.fleet.failure.copy()
    broken[:5] = -3
    from dataclasses import replace

    other = Lesson(replace(one, failure=broken), 10)
    rows = other.train()
    assert not np.isin(other.days.drive[rows], np.arange(5)).any()
    assert np.isin(lesson.days.drive[lesson.train()], np.arange(5)).any()
