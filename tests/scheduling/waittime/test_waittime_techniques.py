"""The techniques: by hand, on degenerate logs, their parts, their models and what they promise."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from armillary.arena import NotForThisCase
from armillary.errors import InputError
from armillary.learn import load
from armillary.learn.recipes import SHIPPED_BYTES
from armillary.scheduling.swf import Jobs
from armillary.scheduling.waittime import (
    Forecaster,
    ForwardEasy,
    ForwardSim,
    LearnedWait,
    Present,
    Qbets,
    QueueState,
    RecentMean,
    Scheduler,
    SlurmEstimate,
    WaitModel,
    WaitWork,
    built_in,
    what_if,
)
from armillary.scheduling.waittime.analysis.ablation import PARTS, ablation
from armillary.scheduling.waittime.features.names import HISTORY, PLANNED, chosen
from armillary.scheduling.waittime.judging.forecaster import Predicted, with_intervals
from armillary.scheduling.waittime.judging.intervals import calibrated, interval, size_class
from armillary.scheduling.waittime.judging.score import pinball, scores, slowdown
from armillary.scheduling.waittime.learning import heads
from armillary.scheduling.waittime.learning.heads import Heads, Rows, fit_heads
from armillary.scheduling.waittime.learning.train import training_logs
from armillary.scheduling.waittime.workload import KINDS
from armillary.streams import stream

LEARNERS = ("boosting", "forest", "knn", "mlp")
TECHNIQUES: tuple[Forecaster, ...] = (Scheduler(), SlurmEstimate(), ForwardSim(), ForwardEasy(), RecentMean(), Qbets())


def mae(technique: Forecaster, work: WaitWork) -> float:
    """The mean absolute error on the judged jobs."""
    found = technique.predictions(work).point_s[work.test - work.tune :]
    return float(np.abs(found - work.jobs.wait_s[work.test :]).mean())


@pytest.fixture(scope="module")
def log() -> Jobs:
    """1,200 jobs on 64 nodes under EASY."""
    return built_in(stream(1, "waittime", "log"), "estimates", 1200, 64, 0.85)


@pytest.fixture(scope="module")
def learned(log: Jobs) -> WaitModel:
    """What boosting learns from it."""
    return LearnedWait().fit(log)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small ensembles and few steps, because mechanics are tested here and not quality."""
    monkeypatch.setattr(heads, "TREES", 60)
    monkeypatch.setattr(heads, "STEPS", 60)


# Baselines


def test_the_recent_mean_by_hand() -> None:
    """A wait counts from the instant after its start on, in its size class; a class without starts takes those of all."""
    n = 300
    wait = np.tile([10.0, 30.0], n // 2)
    nodes = np.tile([1, 32], n // 2)
    jobs = Jobs.of(100.0 * np.arange(n), np.ones(n), nodes, machine_nodes=64, wait_s=wait)
    work = WaitWork(jobs)
    assert np.array_equal(RecentMean().predictions(work).point_s, wait[work.tune :])
    one = replace(jobs, nodes=np.where(np.arange(n) == work.tune, 8, jobs.nodes))
    assert RecentMean().predictions(WaitWork(one)).point_s[0] == 20.0


def test_the_bound_of_qbets_is_exceeded_as_rarely_as_it_says() -> None:
    n = 20_000
    for seed in range(3):
        wait = stream(seed, "qbets").lognormal(5, 2, n)
        submit = 1e7 * np.arange(n)
        high = Qbets().bounds(submit, submit + wait)[2]
        beyond = float((wait[59:] > high[59:]).mean())
        assert 0.035 <= beyond <= 0.053


def test_the_ranks_of_qbets_are_the_smallest_that_hold() -> None:
    from scipy.stats import binom

    from armillary.scheduling.waittime.qbets import _lower_ranks, _upper_ranks

    upper, lower = _upper_ranks(1500, 0.95, 0.95), _lower_ranks(1500, 0.05, 0.95)
    assert upper[58] == 58
    assert binom.cdf(58, 59, 0.95) >= 0.95 > binom.cdf(57, 58, 0.95)
    for n in (59, 100, 777, 1000):
        k = int(upper[n])
        assert binom.cdf(k - 1, n, 0.95) >= 0.95 > binom.cdf(k - 2, n, 0.95)
        below = int(lower[n])
        assert binom.sf(below - 1, n, 0.05) >= 0.95
    for n in range(1001, 1501):
        assert abs(binom.ppf(0.95, n, 0.95) + 1 - upper[n]) <= 1


def test_qbets_forgets_when_the_queue_has_changed() -> None:
    """After 3,000 waits of about a minute come waits of about an hour: three misses, and the old ones are gone."""
    wait = stream(4, "qbets").uniform(0.5, 1.5, 3600) * np.where(np.arange(3600) < 3000, 60, 3600)
    submit = 1e5 * np.arange(3600)
    forgets, keeps = (Qbets(misses=misses).bounds(submit, submit + wait)[2] for misses in (3, 0))
    assert max(forgets[2999], keeps[2999]) < 90
    assert forgets[3100] > 3600
    assert (wait[3010:] > forgets[3010:]).mean() < 0.05
    assert (wait[3010:] > keeps[3010:]).mean() > (wait[3010:] > forgets[3010:]).mean()


def test_all_techniques_say_none_on_an_empty_machine(quick: None) -> None:
    n = 400
    jobs = Jobs.of(
        1000.0 * np.arange(n), np.full(n, 10.0), np.full(n, 2), requested_s=np.full(n, 20.0), machine_nodes=8, wait_s=np.zeros(n)
    )
    work = WaitWork(jobs)
    for technique in (*TECHNIQUES, *(LearnedWait(model=model) for model in LEARNERS)):
        found = technique.predictions(work)
        point, low, high = with_intervals(work, found)
        assert not point.any()
        assert not low.any()
        assert not high.any()


@pytest.mark.parametrize("model", LEARNERS)
@pytest.mark.parametrize("zero_head", [True, False])
def test_a_constant_wait_is_learned(model: str, zero_head: bool, quick: None) -> None:
    n = 400
    jobs = Jobs.of(5000.0 * np.arange(n), np.full(n, 10.0), np.arange(n) % 7 + 1, machine_nodes=8, wait_s=np.full(n, 1234.0))
    assert mae(LearnedWait(model=model, zero_head=zero_head), WaitWork(jobs)) < 1.0


def test_playing_forward_declines_a_log_that_would_take_hours() -> None:
    n = 20_000
    pile = Jobs.of(np.arange(n, dtype=float), np.full(n, 1e9), np.ones(n, int), machine_nodes=n, wait_s=np.zeros(n))
    with pytest.raises(NotForThisCase, match="steps"):
        ForwardEasy().predictions(WaitWork(pile))


# Judging


def test_errors_by_hand() -> None:
    point, wait = np.array([0.0, 100.0, 1000.0]), np.array([0.0, 90.0, 3000.0])
    run, nodes = np.array([5.0, 100.0, 100.0]), np.array([1, 1, 2])
    found = scores(point, np.zeros(3), np.array([10.0, 80.0, 4000.0]), wait, run, nodes)
    assert found["mae_s"] == pytest.approx(2010 / 3)
    assert found["median_ae_s"] == 10
    assert found["within_10min"] == pytest.approx(2 / 3)
    # Slowdowns: 1 and 1; 2 and 1.9; 5.5 and 15.5.
    assert found["slowdown_mae"] == pytest.approx((0.1 + 10) / 3)
    assert found["coverage_90"] == pytest.approx(2 / 3)
    assert slowdown(np.array([95.0]), np.array([5.0]), np.array([4])).tolist() == [2.5]
    assert pinball(np.array([10.0, 10.0]), np.array([0.0, 20.0]), 0.9) == pytest.approx((1 + 9) / 2)


def test_conformal_intervals_cover_what_they_promise() -> None:
    rng = stream(2, "conformal")
    nodes = rng.choice([1, 8, 32, 128], 40_000)
    point = rng.lognormal(6, 1, len(nodes))
    wait = np.expm1(np.maximum(np.log1p(point) + rng.standard_normal(len(nodes)) * (1 + size_class(nodes)), 0.0))
    half = len(nodes) // 2
    low, high = interval(calibrated(point[:half], wait[:half], nodes[:half]), point[half:], nodes[half:])
    inside = (low <= wait[half:]) & (wait[half:] <= high)
    for c in range(4):
        assert 0.88 <= inside[size_class(nodes[half:]) == c].mean() <= 0.92


def test_a_wait_that_is_not_known_yet_teaches_nothing(log: Jobs) -> None:
    """What happens to jobs that start only after the first judged submission changes no answer to that submission."""
    work = WaitWork(log)
    late = (np.arange(len(log)) < work.test) & (log.start_s > log.submit_s[work.test])
    assert late.any()
    other = WaitWork(replace(log, wait_s=np.where(late, log.wait_s + 1e5, log.wait_s)))
    for technique in (Scheduler(), ForwardSim(), ForwardEasy(), RecentMean(), Qbets(), LearnedWait()):
        found = [with_intervals(one, technique.predictions(one)) for one in (work, other)]
        assert all(a[0] == b[0] for a, b in zip(*found, strict=True)), type(technique).__name__


def test_without_known_tuning_jobs_an_interval_is_everything() -> None:
    n = 200
    jobs = Jobs.of(np.arange(n, dtype=float), np.ones(n), np.ones(n, int), machine_nodes=4, wait_s=np.full(n, 1e6))
    work = WaitWork(jobs)
    _, low, high = with_intervals(work, Predicted(work.tune, np.zeros(n - work.tune)))
    assert not low.any()
    assert np.isinf(high).all()


# learned-wait


def test_it_beats_the_recent_mean_on_every_built_in_case() -> None:
    for busy in (0.7, 0.85, 0.95):
        work = WaitWork(built_in(stream(11, "beats", str(busy)), "estimates", 6000, 256, busy), "estimates")
        assert mae(LearnedWait(), work) < mae(RecentMean(), work)


def test_it_learns_from_a_log_of_its_own(log: Jobs, learned: WaitModel) -> None:
    work = WaitWork(log)
    assert mae(LearnedWait(), work) < 0.8 * mae(RecentMean(), work)
    inside = learned.predict(log)
    assert inside.shape == (len(log),)
    low, high = learned.predict_interval(log)
    assert (low <= inside + 1e-6).all()
    assert (inside <= high + 1e-6).all()


@pytest.mark.parametrize("model", ["boosting", "knn", *(pytest.param(name, marks=pytest.mark.slow) for name in ("forest", "mlp"))])
def test_a_model_file_gives_the_same_answers(model: str, log: Jobs, quick: None, tmp_path: Path) -> None:
    how = LearnedWait(model=model)
    fitted = how.fit(log)
    digest = fitted.save(tmp_path / "wait.safetensors")
    again = WaitModel.load(tmp_path / "wait.safetensors", how, log)
    assert again.model.digest == digest
    assert np.array_equal(again.predict(log), fitted.predict(log))
    assert np.array_equal(again.predict_interval(log)[1], fitted.predict_interval(log)[1])
    with pytest.raises(InputError, match="expected the 36 of these parameters"):
        WaitModel.load(tmp_path / "wait.safetensors", LearnedWait(model=model, use_forecast=False), log)


def test_trained_twice_it_is_the_same_to_the_last_bit(log: Jobs, quick: None) -> None:
    one, other = (LearnedWait().fit(log).model.digest for _ in range(2))
    assert one == other


def test_a_file_of_another_kind_is_refused(tmp_path: Path, log: Jobs) -> None:
    from armillary.learn.kinds import ArraysConfig
    from armillary.learn.store import Model

    Model(ArraysConfig(arrays={"radius": (5,)}), {"radius": np.ones(5, np.float32)}).save(tmp_path / "other.safetensors")
    with pytest.raises(InputError, match="expected one of learned-wait"):
        WaitModel.load(tmp_path / "other.safetensors", LearnedWait(), log)
    with pytest.raises(InputError, match="expected one of learned-wait"):
        Heads(Model.joined({}, {"radius": np.ones(5)}, features=learned_features()))


def learned_features() -> Any:
    from armillary.learn import Features

    return Features.fit({"a": np.arange(3.0)}, ["a"])


def test_frozen_heads_are_those_of_scikit_learn(quick: None) -> None:
    """The trees that are stored answer as the library that trained them does."""
    from sklearn.ensemble import HistGradientBoostingClassifier
    from threadpoolctl import threadpool_limits

    rng = stream(3, "heads")
    x = rng.standard_normal((500, 2))
    now = x[:, 0] + 0.3 * rng.standard_normal(500) > 0
    wait = np.where(now, 0.0, np.exp(9 + x[:, 1]))
    features = tuple(f for f in chosen() if f.name in ("free_nodes", "forecast"))
    rows = Rows(dict(zip(("free_nodes", "forecast"), x.T, strict=True)), wait)
    model = fit_heads("boosting", features, rows, rows)
    chance, _ = Heads(model)(rows.columns)
    made = HistGradientBoostingClassifier(
        max_iter=heads.TREES, max_depth=8, max_leaf_nodes=31, random_state=0, early_stopping=True, n_iter_no_change=heads.PATIENCE
    )  # fmt: skip
    assert model.features is not None
    z = model.features.matrix(rows.columns)
    with threadpool_limits(1):
        made.fit(z, now.astype(float), X_val=z, y_val=now.astype(float))
    assert chance == pytest.approx(made.predict_proba(z)[:, 1], abs=1e-5)


def test_each_part_can_be_left_out(log: Jobs, quick: None) -> None:
    found = ablation(WaitWork(log))
    assert list(found) == list(PARTS)
    assert len({round(one["mae_s"], 6) for one in found.values()}) == len(PARTS)
    whole, without = ({f.name for f in LearnedWait(**change).features()} for change in ({}, PARTS["no forecast"]))
    assert whole - without == PLANNED
    assert whole - {f.name for f in LearnedWait(use_history=False).features()} == HISTORY


def test_learning_from_permuted_waits_finds_nothing(log: Jobs, quick: None) -> None:
    """No slice leaks into another: with permuted waits the answers hardly depend on the job."""
    order = stream(6, "permuted").permutation(len(log))
    shuffled = replace(log, wait_s=log.wait_s[order])
    real, permuted = (LearnedWait().fit(one).predict(log) for one in (log, shuffled))
    assert np.corrcoef(np.log1p(permuted), np.log1p(log.wait_s))[0, 1] < 0.5 * np.corrcoef(np.log1p(real), np.log1p(log.wait_s))[0, 1]


def test_refitting_uses_what_has_become_known(quick: None) -> None:
    """After the first slice all jobs go to a new and slow partition: only a model that is trained anew knows it."""
    jobs = built_in(stream(8, "refit"), "estimates", 700, 64, 0.8)
    n = len(jobs)
    new, noise = np.arange(n) >= int(0.7 * n), stream(9, "refit").uniform(0.9, 1.1, n)
    slow = replace(jobs, wait_s=np.where(new, 10_000.0, 100.0) * noise, submit_s=20_000.0 * np.arange(n), partition=new.astype(np.int64))
    work = WaitWork(slow)
    once, again = (mae(LearnedWait(refit_every=every, use_history=False, use_forecast=False), work) for every in (0, 70))
    assert again < 2000 < 9000 < once


def test_shipped_models_are_small_and_those_of_their_recipes() -> None:
    for kind in KINDS:
        recipe = LearnedWait().recipe(kind)
        assert recipe.shipped
        model = load(recipe.file)
        assert model.digest == recipe.shipped
        assert model.created_from == recipe.digest()
        assert recipe.file.stat().st_size <= SHIPPED_BYTES
        assert model.trained_on == tuple(name for name, _, _ in training_logs(kind))
    assert LearnedWait(model="forest").recipe("estimates").shipped == ""


@pytest.mark.slow
def test_shipped_models_need_neither_torch_nor_scikit_learn() -> None:
    code = (
        "import sys; sys.modules['torch'] = sys.modules['sklearn'] = None\n"
        "from armillary.scheduling.waittime import LearnedWait, WaitWork, built_in\n"
        "from armillary.streams import stream\n"
        "work = WaitWork(built_in(stream(0, 'frozen'), 'estimates', 300, 64, 0.8), 'estimates')\n"
        "assert len(LearnedWait().predictions(work).point_s) == 90\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


def test_what_if_ranks_requests_by_their_predicted_end(log: Jobs, learned: WaitModel) -> None:
    now = float(log.submit_s[-1])
    state = QueueState(now, 64, [Present(60, 36_000, now - 100, now - 100)], [Present(64, 36_000, now - 50)])
    table = what_if(learned, state, [(1, 300, 300), (8, 600, 60), (64, 172_800, 10)])
    assert sorted(table["nodes"].to_list()) == [1, 8, 64]
    assert table["end_s"].is_sorted()
    run = {1: 300, 8: 60, 64: 10}
    for row in table.iter_rows(named=True):
        asked = Jobs.of([now], [0.0], [row["nodes"]], requested_s=[row["requested_s"]], machine_nodes=64)
        assert row["end_s"] - run[row["nodes"]] == pytest.approx(row["wait_s"]) == pytest.approx(learned.predict(asked, state)[0])
    with pytest.raises(InputError, match="at most the requested"):
        what_if(learned, state, [(1, 300, 301)])
    with pytest.raises(InputError, match="expected 1 to 1000"):
        what_if(learned, state, [])


def test_too_few_jobs_are_refused(log: Jobs) -> None:
    with pytest.raises(InputError, match="found 150 jobs with known waits; expected at least 200"):
        WaitWork(log.take(slice(0, 150)))
    with pytest.raises(InputError, match="expected at least 200"):
        LearnedWait().fit(log.take(slice(0, 150)))
    with pytest.raises(InputError, match="expected all waits"):
        WaitWork(replace(log, wait_s=np.where(log.job == 7, np.nan, log.wait_s)))
    with pytest.raises(InputError, match="expected one of boosting"):
        fit_heads("oracle", chosen(), Rows({}, np.zeros(0)), Rows({}, np.zeros(0)))
