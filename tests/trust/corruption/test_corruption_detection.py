"""Detectors: that nothing leaks, that alarms are counted as by hand, and that classifiers are scikit-learn's."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse.linalg import cg
from sklearn.ensemble import IsolationForest, RandomForestClassifier  # type: ignore[import-untyped]
from sklearn.metrics import roc_auc_score  # type: ignore[import-untyped]
from sklearn.svm import SVC, OneClassSVM  # type: ignore[import-untyped]
from sklearn.tree import DecisionTreeClassifier  # type: ignore[import-untyped]

from armillary.errors import InputError
from armillary.trust.corruption import AbftOperator, Corrupted, CorruptionDetector, Faults, compare_cores, inject, pairs_of
from armillary.trust.corruption.classifiers.kinds import KINDS, learn
from armillary.trust.corruption.counters.logarithm import exponential, log1p, signed_log
from armillary.trust.corruption.detection.alarms import Judged, auc, figures, held, highest, level
from armillary.trust.corruption.detection.features import Normal, Wanted, best_columns, features, information, past_of
from armillary.trust.corruption.detection.folds import Table, elsewhere, folds_of, in_folds, rows_of
from armillary.trust.corruption.detection.runs import Caches, Runs, together
from armillary.trust.corruption.machine.noise import measured
from armillary.trust.corruption.matrices.built_in import KINDS as MATRICES

MATRIX = MATRICES["poisson-2d"](144, np.random.default_rng(0))


def drawn(kernel: str, pairs: int = 60, seed: int = 1, **how: Any) -> Runs:
    return pairs_of(kernel, MATRIX, pairs, Faults(flips=20, **how), Caches(), np.random.default_rng(seed))


def areas(runs: Runs, kinds: tuple[str, ...], seed: int = 0) -> dict[str, float]:
    folds = in_folds(runs, Wanted(), np.random.default_rng(seed))
    found = {}
    for kind in kinds:
        judged = []
        for fold in folds:
            scorer = learn(kind, fold.teach, seed, trees=50, epochs=6)
            judged.append(Judged.of(runs, fold.judged, fold.judge.rows, scorer(fold.judge), 0.0, 1, 1))
        found[kind] = figures(judged)[0]["auc"]
    return found


@pytest.fixture(scope="module")
def fixed() -> Runs:
    return drawn("spmv", 80, targets=("values", "vector"))


@pytest.mark.parametrize("kinds", [("tree", "knn", "svm"), pytest.param(tuple(KINDS), marks=pytest.mark.slow)])
def test_a_fixed_kernel_tells_nothing_of_its_values(fixed: Runs, kinds: tuple[str, ...]) -> None:
    """The guard against leaks: counters before noise are the same, and no detector is better than a coin."""
    for number in range(0, len(fixed), 2):
        clean, bad = (fixed.exact[fixed.first[one] : fixed.first[one + 1]] for one in (number, number + 1))
        assert np.array_equal(clean, bad)
    # The mean over seeds of the noise: one draw of 80 pairs scatters by 0.02 by itself.
    found: dict[str, list[float]] = {kind: [] for kind in kinds}
    for seed in range(3):
        fixed.counters = measured(fixed.exact, np.random.Generator(np.random.PCG64DXSM(seed)))
        for kind, area in areas(fixed, kinds, seed).items():
            found[kind].append(area)
    for kind, several in found.items():
        assert 0.45 <= float(np.mean(several)) <= 0.55, (kind, several)


def test_the_place_in_a_run_would_tell_without_sham_faults(fixed: Runs) -> None:
    """What the guard guards against: with clean runs judged from their beginning on, the clock alone tells them apart."""
    run, index = fixed.run_of, fixed.index
    corrupted = fixed.corrupted[run] & (index >= fixed.start[run])
    assert roc_auc_score(corrupted, index) > 0.7
    rows = rows_of(fixed, np.arange(len(fixed)))
    assert roc_auc_score(fixed.corrupted[run[rows]], index[rows]) == pytest.approx(0.5)


def test_pointers_are_seen_and_every_kind_learns_that() -> None:
    runs = drawn("spmv", 42, targets=("pointers",))
    for kind, area in areas(runs, tuple(KINDS)).items():
        assert area > 0.75, kind


def test_grouped_folds_and_ungrouped_ones_can_be_told_apart() -> None:
    """Labels by run at random: whole pairs in one fold give a half; single windows in folds let a classifier recognise the run."""
    rng = np.random.default_rng(0)
    runs = drawn("spmv", 40, targets=("values",))
    grouped, exact = [], runs.counters
    for _ in range(6):
        # Every run has a level of its own, as a slow core would give it.
        runs.counters = exact * np.exp(0.2 * rng.standard_normal((len(runs), exact.shape[1])))[runs.run_of]
        runs.corrupted = np.zeros(len(runs), bool)
        for pair in np.unique(runs.pair):
            runs.corrupted[rng.choice(np.flatnonzero(runs.pair == pair))] = True
        grouped.append(areas(runs, ("tree",))["tree"])
    assert 0.4 < np.mean(grouped) < 0.6
    x, _ = features(runs, np.flatnonzero(~runs.corrupted), Wanted())
    rows = rows_of(runs, np.arange(len(runs)))
    label = runs.corrupted[runs.run_of[rows]].astype(int)
    half = rng.random(len(rows)) < 0.5
    forest = RandomForestClassifier(50, random_state=0).fit(x[rows][half], label[half])
    assert roc_auc_score(label[~half], forest.predict_proba(x[rows][~half])[:, 1]) > 0.9


def test_folds_hold_whole_pairs_and_judge_each_once() -> None:
    runs = drawn("trisolve", 60)
    folds = in_folds(runs, Wanted(), np.random.default_rng(0))
    assert len(folds) == folds_of(len(np.unique(runs.pair))) == 3
    assert sorted(np.concatenate([fold.judged for fold in folds]).tolist()) == list(range(len(runs)))
    for fold in folds:
        sets = [set(runs.pair[part].tolist()) for part in (fold.teaching, fold.choosing, fold.judged)]
        assert not sets[0] & sets[1]
        assert not (sets[0] | sets[1]) & sets[2]
        assert not runs.corrupted[fold.normal].any()
        assert set(fold.normal.tolist()) <= set(fold.teaching.tolist())
        assert (runs.index[fold.judge.rows] >= runs.start[runs.run_of[fold.judge.rows]]).all()
    assert [folds_of(n) for n in (6, 40, 120, 1000)] == [2, 2, 6, 10]


def test_an_unseen_matrix_teaches_nothing_but_what_is_normal() -> None:
    both = together([drawn("trisolve", 20), drawn("trisolve", 21, seed=5)])
    (fold,) = elsewhere(both, Wanted(), np.random.default_rng(0))
    assert set(both.origin[fold.teaching].tolist()) == {0}
    assert set(both.origin[fold.judged].tolist()) == {1}
    known = fold.normal[both.origin[fold.normal] == 1]
    assert len(known) == len(np.unique(both.pair[both.origin == 1])) // 3
    assert not set(both.pair[known].tolist()) & set(both.pair[fold.judged].tolist())


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.floats(-5, 5), st.booleans()), min_size=1, max_size=40), st.integers(1, 3), st.integers(3, 4))
def test_m_of_n_is_what_the_words_say(given_: list[tuple[float, bool]], m: int, n: int) -> None:
    score = np.array([one[0] for one in given_])
    begins = np.array([True, *(one[1] for one in given_[1:])])
    found = held(score, begins, m, n)
    start = 0
    for i in range(len(score)):
        start = i if begins[i] else start
        last = np.sort(score[max(start, i - n + 1) : i + 1])[::-1]
        assert found[i] == (last[m - 1] if len(last) >= m else -np.inf)


def test_the_level_bounds_false_alarms() -> None:
    assert level(np.arange(19.0), 0.05) == 18
    assert level(np.arange(39.0), 0.05) == 37
    assert math.isinf(level(np.arange(18.0), 0.05))
    rng = np.random.default_rng(0)
    alarms = [rng.normal() > level(rng.normal(size=20), 0.05) for _ in range(4000)]
    assert np.mean(alarms) == pytest.approx(1 / 21, abs=0.011)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 1)), min_size=2, max_size=60))
def test_the_area_is_scikit_learns(pairs: list[tuple[int, int]]) -> None:
    score, label = np.array([one[0] for one in pairs]) / 1.0, np.array([one[1] for one in pairs])
    expected = roc_auc_score(label, score) if 0 < label.sum() < len(label) else 0.5
    assert auc(score, label) == pytest.approx(expected)


def by_hand() -> Runs:
    """Four runs of five windows, faults at window 2 of runs 1 and 3."""
    four, none = np.array([False, True, False, True]), np.zeros(4, bool)
    return Runs(
        np.ones((20, 1)), np.ones((20, 1)), np.zeros((20, 5)), np.arange(0, 21, 5), np.array([0, 0, 1, 1]), np.full(4, 2), four, four, none,
        np.array(["values", "values", "columns", "columns"]), np.zeros(4, np.int64), ("x",), columns=("c",), iterations=3,
    )  # fmt: skip


def test_figures_are_as_by_hand() -> None:
    runs = by_hand()
    rows = rows_of(runs, np.arange(4))
    assert rows.tolist() == [2, 3, 4, 7, 8, 9, 12, 13, 14, 17, 18, 19]
    score = np.array([0.0, 0, 2, 0, 5, 5, 0, 0, 0, 0, 0, 0])
    fold = Judged.of(runs, np.arange(4), rows, score, 1.0, 1, 1)
    assert highest(runs, np.arange(4), rows, fold.score).tolist() == [2, 5, 0, 0]
    found, seen = figures([fold])
    # One of two corrupted runs alarms, and one of two clean ones; one clean window of six; the alarm comes with the second window.
    assert (found["recall"], found["false_alarms"], found["latency"]) == (0.5, 1 / 6, 6)
    assert found["precision"] == pytest.approx(0.1 * 0.5 / (0.1 * 0.5 + 0.9 * 0.5))
    # Above the largest of two clean runs is one of the two targets.
    assert found["recall_at_5"] == 0.5
    assert found["harm_missed"] == 0.5
    assert [row["alarm"] for row in seen] == [True, True, False, False]


def test_logarithms_are_numpys_and_exponentials_too() -> None:
    x = np.concatenate([np.logspace(-3, 15, 2000), [0, 1, 2, 1023]])
    np.testing.assert_allclose(log1p(x), np.log1p(x), rtol=2e-13, atol=2e-16)
    np.testing.assert_allclose(exponential(np.linspace(-20, 20, 999)), np.exp(np.linspace(-20, 20, 999)), rtol=1e-15)
    assert np.array_equal(np.argsort(signed_log(np.array([-3.0, 5, 0, -1]))), [0, 3, 2, 1])


def test_clean_windows_have_small_scores_at_every_place() -> None:
    runs = drawn("cg", 24)
    clean = np.flatnonzero(~runs.corrupted)
    from armillary.trust.corruption.detection.features import rates

    rate, names = rates(runs.counters, runs.columns, Wanted())
    rows = np.isin(runs.run_of, clean)
    normal = Normal.of(rate[rows], runs.index[rows], np.diff(runs.first)[clean])
    scores = normal.scores(rate[rows], runs.index[rows])
    for place in range(3):
        assert np.abs(np.median(scores[runs.index[rows] == place], 0)).max() < 1e-9
    assert normal.overrun(np.array([0, int(normal.length) - 1])).tolist() == [0, 0]
    assert normal.overrun(np.array([int(normal.length) + 9]))[0] > 1
    assert len(names) == 12 + 11
    assert len(rates(runs.counters, runs.columns, Wanted(caches=False))[1]) == 5 + 4


def test_information_finds_the_columns_that_tell() -> None:
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 800)
    x = rng.standard_normal((800, 20))
    x[:, [3, 17]] += 2 * y[:, None]
    found = information(x, y)
    assert set(np.argsort(-found)[:2].tolist()) == {3, 17}
    assert best_columns(x, y, 2).tolist() == [3, 17]
    assert information(y[:, None] * 1.0, y)[0] == pytest.approx(np.log(2), abs=0.01)
    assert found[0] < 0.03


def test_the_past_stays_within_its_run() -> None:
    runs = by_hand()
    assert past_of(runs, np.array([7]), 4).tolist() == [[5, 5, 6, 7]]


def table(rows: int = 400, seed: int = 0) -> Table:
    rng = np.random.default_rng(seed)
    y = (np.arange(rows) % 3 == 0).astype(np.int64)
    x = (rng.standard_normal((rows, 6)) + 1.2 * y[:, None] * (np.arange(6) < 3)).astype(np.float32).astype(np.float64)
    every = np.arange(rows)
    return Table(x, every, np.maximum(every[:, None] + np.arange(-7, 1), 0), y)


@pytest.mark.parametrize("kind", ["tree", "forest", "svm", "iforest", "ocsvm"])
def test_classifiers_are_scikit_learns(kind: str) -> None:
    """The same model by scikit-learn itself, with its own kernels and walks, orders the rows in the same way."""
    taught, other = table(), table(seed=1)
    ours = learn(kind, taught, 7, trees=60)(other)
    seed = int(np.random.Generator(np.random.PCG64DXSM(7)).integers(1 << 31))
    x, gamma = taught.x.astype(np.float32), 1 / 6
    theirs: Any = {
        "tree": lambda: DecisionTreeClassifier(max_depth=8, min_samples_leaf=5, class_weight="balanced", random_state=seed)
        .fit(x, taught.labels).predict_proba(other.x.astype(np.float32))[:, 1],
        "forest": lambda: RandomForestClassifier(60, min_samples_leaf=3, class_weight="balanced", random_state=seed)
        .fit(x, taught.labels).predict_proba(other.x.astype(np.float32))[:, 1],
        "svm": lambda: SVC(C=10, gamma=gamma, class_weight="balanced").fit(taught.x, taught.labels).decision_function(other.x),
        "iforest": lambda: -IsolationForest(n_estimators=60, random_state=seed).fit(taught.clean().x.astype(np.float32))
        .score_samples(other.x.astype(np.float32)),
        "ocsvm": lambda: -OneClassSVM(gamma=gamma, nu=0.02).fit(taught.clean().x).decision_function(other.x),
    }[kind]()  # fmt: skip
    if kind in ("tree", "forest", "svm", "ocsvm"):
        np.testing.assert_allclose(ours, theirs, atol=2e-3)
    else:
        # Its score is 2^(-path/c): the order is that of the paths.
        assert np.corrcoef(np.argsort(np.argsort(ours)), np.argsort(np.argsort(theirs)))[0, 1] > 0.999


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_separates_what_can_be_separated_and_repeats_itself(kind: str) -> None:
    taught, other = table(), table(seed=1)
    found = learn(kind, taught, 3, trees=50, epochs=8)(other)
    assert roc_auc_score(other.labels, found) > (0.6 if kind in ("iforest", "ocsvm", "autoencoder") else 0.8)
    assert np.array_equal(found, learn(kind, taught, 3, trees=50, epochs=8)(other))


def test_the_checksum_catches_what_exceeds_its_tolerance_and_no_clean_product() -> None:
    rng = np.random.default_rng(0)
    for dtype in (np.float64, np.float32):
        matrix = MATRIX.scipy().astype(dtype)
        checked = AbftOperator(matrix)
        for _ in range(500):
            x = rng.standard_normal(MATRIX.rows).astype(dtype)
            assert np.array_equal(checked @ x, matrix @ x)
    matrix = MATRIX.scipy()
    allowed = 8 * np.finfo(float).eps * matrix.nnz
    caught = silent = 0
    for _ in range(400):
        x = rng.standard_normal(MATRIX.rows)
        bad = inject.flip(matrix, rng)
        operator = AbftOperator(matrix)
        operator.matrix = bad
        effect = abs((bad @ x).sum() - (matrix @ x).sum())
        size = allowed * float(abs(matrix).sum(0) @ np.abs(x))
        if effect > 1.01 * size:
            with pytest.raises(Corrupted, match="product 1 is off by"):
                operator @ x
            caught += 1
        elif effect < 0.99 * size:
            assert np.isfinite(operator @ x).all()
            silent += 1
    assert min(caught, silent) > 50


def test_the_operator_works_in_scipys_solvers_and_stops_them() -> None:
    b = np.ones(MATRIX.rows)
    operator = AbftOperator(MATRIX.scipy())
    x, status = cg(operator, b)
    assert status == 0
    np.testing.assert_allclose(MATRIX.scipy() @ x, b, atol=1e-3)
    operator.matrix.data[40] *= 1.5
    with pytest.raises(Corrupted):
        cg(operator, b)
    operator.matrix.data[40] = np.inf
    with pytest.raises(Corrupted):
        operator @ b
    operator.matrix.data[40] = 1.0
    with pytest.raises(InputError, match="floating-point"):
        AbftOperator(MATRIX.scipy().astype(np.int64))


def recorded(runs: int = 40, windows: int = 12, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    x = rng.lognormal(0, 0.01, (runs * windows, 4)) * (1e9, 2e8, 1e6, 1e5)
    run = np.repeat(np.arange(runs), windows)
    y = ((run % 2 == 1) & (np.arange(len(run)) % windows >= 5)).astype(int)
    x[y == 1, 2] *= 1.2
    return x, y, run


def test_a_detector_of_ones_own_counters_finds_and_stays_quiet() -> None:
    x, y, run = recorded()
    names = ("instructions", "branches", "branch_misses", "llc_misses")
    for kind in ("forest", "ocsvm", "mlp"):
        detector = CorruptionDetector(kind, names=names).fit(x, y, groups=run)
        new, label, new_run = recorded(seed=1)
        assert (detector.predict(new, new_run)[label == 1]).mean() > 0.8
        assert (detector.predict(new, new_run)[label == 0]).mean() < 0.1
        alarms = [detector.alarm(new[new_run == one]) for one in range(40)]
        assert np.mean(alarms[1::2]) > 0.9
        assert np.mean(alarms[0::2]) < 0.25
        stream = [dict(zip(names[::-1], row[::-1])) for row in new[new_run == 1].tolist()]
        assert detector.alarm(stream) == alarms[1]
        share = detector.predict_proba(new)
        assert share.shape == (len(new), 2)
        assert np.allclose(share.sum(1), 1)
    from sklearn.base import clone  # type: ignore[import-untyped]

    assert clone(detector).get_params() == detector.get_params()


def test_detectors_refuse_what_they_cannot_learn_from() -> None:
    x, y, run = recorded(8)
    for args, said in (
        ((x, y + 1, run), "expected 0 or 1"), ((x, np.zeros_like(y), run), "0 runs with corrupted"), ((x, y, np.zeros_like(run)), "1 runs"),
        ((-x, y, run), "negative"), ((x[:, 0], y, run), r"expected \[windows, counters\]"), ((x, y[:-1], run), "the same number"),
    ):  # fmt: skip
        with pytest.raises(InputError, match=said):
            CorruptionDetector("tree").fit(*args)
    with pytest.raises(InputError, match="expected tree, forest"):
        CorruptionDetector("oracle").fit(x, y, run)
    detector = CorruptionDetector("tree", names=("a", "b", "c", "d")).fit(x, y, run)
    with pytest.raises(InputError, match="the 4 that were taught"):
        detector.predict(x[:, :3])
    with pytest.raises(InputError, match="found 1 windows; an alarm takes 2"):
        detector.alarm(x[:1])
    with pytest.raises(InputError, match="at most 10 windows; an alarm takes 11"):
        CorruptionDetector("tree", of_m=11, of_n=12).fit(x[: 8 * 10], np.tile(y[12:22], 8), np.arange(80) // 10)
    with pytest.raises(InputError, match="found no d in every window"):
        detector.alarm([{"a": 1.0, "b": 1.0, "c": 1.0}])


def test_one_odd_core_stands_out_and_an_even_fleet_does_not() -> None:
    rng = np.random.default_rng(0)
    cores = 1e6 * np.exp(0.005 * rng.standard_normal((16, 50, 5)))
    assert not compare_cores(cores).odd.any()
    cores[11, :, 3] *= 1.02
    found = compare_cores(cores)
    assert np.flatnonzero(found.odd).tolist() == [11]
    assert found.counter[11] == 3
    with pytest.raises(InputError, match="at least 4 cores"):
        compare_cores(cores[:3])
