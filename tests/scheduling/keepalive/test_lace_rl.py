"""LACE-RL's network: its rewards, its training, the shipped models, the controller, the environment and the sockets."""

from __future__ import annotations

import hashlib
import math
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from keepalive_reference import KNOWN, MENU, known_gaps, masses, prices, regular, reuse_within, work_of

from armillary.errors import InputError
from armillary.learn import load, obtain
from armillary.learn.environments import register_environments
from armillary.scheduling.energy import Carbon
from armillary.scheduling.faas import Invocations, drawn, population, shuffled
from armillary.scheduling.keepalive import (
    BreakEven,
    Counted,
    KeepAlive,
    KeepAliveWork,
    Knowledge,
    LaceRl,
    Static60,
    ablation,
    knative,
    lambda_for_budget,
    openfaas,
    openwhisk,
    play,
)  # fmt: skip
from armillary.scheduling.keepalive.analysis.ablation import PARTS
from armillary.scheduling.keepalive.learning.replay import Decisions, decisions
from armillary.scheduling.keepalive.sockets.settings import RETENTION, duration

SMALL = {"see_reuse": True, "see_ci": True, "full_feedback": True, "updates": 40, "decisions": 800}


def small_day(seed: int = 0, functions: int = 25, most: int = 1500) -> tuple[Invocations, Carbon, Knowledge]:
    """A few functions on a grid that changes."""
    rng = np.random.default_rng(seed)
    trace, carbon = drawn(rng, population(rng, functions), most=most), Carbon.hourly(np.linspace(100, 500, 48))
    return trace, carbon, Knowledge.of(trace, carbon)


@pytest.fixture(scope="module")
def table() -> Decisions:
    """The decisions of a small day."""
    trace, carbon, known = small_day()
    return decisions(KeepAliveWork(trace, carbon, 0.5, known))


# Rewards and states


def test_rewards_are_what_the_gap_makes_of_each_action() -> None:
    arrival = np.array([0.0, 50.0, 53.0, 700.0])  # The pod of the second is busy until 60 s, so the third needs another one.
    trace = Invocations.of(np.zeros(4, int), arrival, [2.0, 10.0, 1.0, 1.0], functions=1, cold_s=1.5, vcpu=1.0, memory_gb=1.0)
    work = work_of(trace, 450.0)
    found = decisions(work)
    # The pod of 2 s serves at 50 s; that of 60 s ended last before 700 s and serves then; those of 54 and 701 s never serve again.
    assert found.following.tolist() == [1, 3, -1, -1]
    assert found.pod.tolist() == [0, 0, 1, 0]
    lam = np.array([0.3])
    late, dear = prices(replace(work, lam=0.3))
    for row, gap in ((0, 48.0), (1, 640.0), (2, math.inf)):
        cost = [late * (gap > a) + dear * 450.0 * min(gap, a) for a in MENU]
        scale = late + dear * 450.0 * 60.0
        assert found.rewards(np.array([row]), lam)[0] == pytest.approx([-c / scale for c in cost], rel=1e-5)


def test_states_are_the_fourteen_numbers() -> None:
    rng = np.random.default_rng(2)
    arrival = np.cumsum(rng.lognormal(3.0, 1.0, 30))
    trace = Invocations.of(np.zeros(30, int), arrival, rng.uniform(0, 20, 30), functions=1, cold_s=1.5, vcpu=0.6, memory_gb=0.5)
    carbon = Carbon.hourly([100.0, 250.0, 400.0])
    work = KeepAliveWork(trace, replace(carbon, times_s=carbon.times_s / 20), 0.5, KNOWN)
    found = decisions(work)
    x = found.inputs(np.arange(30), np.full(30, 0.8))
    for i, gaps in enumerate(known_gaps(trace)):
        shares = masses(gaps, KNOWN.prior)
        end = float(trace.arrival_s[i] + trace.duration_s[i])
        now = work.carbon.at(end)
        assert x[i, :8] == pytest.approx([reuse_within(shares, a) for a in MENU[1:]], abs=1e-4)
        assert x[i, 8:11] == pytest.approx([math.log(1.5 / 0.33), math.log(0.6), math.log(0.5)], rel=1e-5)
        assert x[i, 11] == pytest.approx(math.log(now * 60 / (3.6e6 * KNOWN.carbon_g)), rel=1e-5)
        assert x[i, 12] == pytest.approx((now - work.carbon.at(end - 3600)) / 3000, abs=1e-6)
        assert x[i, 13] == pytest.approx(math.log(4), rel=1e-5)


def test_the_simulator_asks_the_network_what_the_table_says(table: Decisions) -> None:
    trace, carbon, known = small_day()
    work = KeepAliveWork(trace, carbon, 0.5, known)
    technique = LaceRl(limit_waits=False)
    keeps = np.zeros(len(trace))
    play(work, technique.policy(work), 0.5, keeps)
    q = technique.model().frozen()["q"](table.inputs(np.arange(len(trace)), np.full(len(trace), 0.5)))
    clear = np.sort(q, 1)[:, -1] - np.sort(q, 1)[:, -2] > 1e-4
    assert clear.mean() > 0.9
    assert keeps[clear] == pytest.approx(np.array(MENU)[q.argmax(1)[clear]], abs=1e-6)


# Training


def test_training_is_a_double_dqn_that_gives_the_same_bytes_again() -> None:
    pytest.importorskip("torch")
    from armillary.scheduling.keepalive.learning.train import trained

    days = [small_day(), small_day(1)]
    first, again = trained(days, SMALL, 0), trained(days, SMALL, 0)
    assert first.to_bytes() == again.to_bytes()
    network = first.frozen()["q"]
    assert (network.config.inputs, network.config.hidden, network.config.outputs) == (14, (64, 64), 9)
    textbook = trained(days, {**SMALL, "full_feedback": False, "updates": 20, "decisions": 1600}, 0)
    assert textbook.to_bytes() != first.to_bytes()


def test_learning_finds_that_idling_is_all_that_counts() -> None:
    pytest.importorskip("torch")
    from armillary.learn import Dqn, Transitions
    from armillary.scheduling.keepalive.learning.train import standard

    trace, carbon, known = small_day()
    found = decisions(KeepAliveWork(trace, carbon, 0.5, known))
    rows = np.arange(len(found))
    lam = np.where(np.arange(len(rows)) % 2 == 0, 0.02, 0.98)
    x = found.inputs(rows, lam)
    mean, scale = standard(x)
    moves = Transitions((x - mean) / scale, np.zeros(len(rows), int), found.rewards(rows, lam), (x - mean) / scale, np.ones(len(rows), bool))
    trained = Dqn(full_feedback=True, batch=256, lr=3e-3, gamma=0.0).train_offline(moves, 400, seed=0).model().frozen()
    best = trained((x - mean) / scale).argmax(1)
    assert np.mean(np.array(MENU)[best[lam > 0.5]]) < 20 < 120 < np.mean(np.array(MENU)[best[lam < 0.5]])


def test_the_table_for_training_takes_busy_functions_less_often() -> None:
    from armillary.scheduling.keepalive.learning.train import chosen, drawn_lambdas

    trace, carbon, known = small_day()
    both = Decisions.joined([decisions(KeepAliveWork(trace, carbon, 0.5, known))] * 2)
    assert len(both) == 2 * len(trace)
    assert both.following.max() >= len(trace)
    rows = chosen(both, 700)
    counts, picked = np.bincount(both.function), np.bincount(both.function[rows], minlength=int(both.function.max()) + 1)
    assert len(np.unique(rows)) == len(rows) <= 700
    cap = picked.max()
    assert (picked[counts <= cap] == counts[counts <= cap]).all()
    assert (picked[counts > cap] >= cap - 1).all()
    lam = drawn_lambdas(np.random.default_rng(0), 10_000)
    assert (lam == 0).mean() == pytest.approx(0.05, abs=0.01)
    assert (lam == 1).mean() == pytest.approx(0.05, abs=0.01)
    assert np.median(lam) == pytest.approx(0.5, abs=0.02)


# Models


def test_every_shipped_model_is_what_its_recipe_says() -> None:
    technique = LaceRl()
    recipes = technique.recipes()
    assert [recipe.name for recipe in recipes] == ["lace-rl", "lace-rl-no-ci", "lace-rl-no-reuse", "lace-rl-textbook"]
    for recipe in recipes:
        content = recipe.file.read_bytes()
        assert hashlib.sha256(content).hexdigest() == recipe.shipped
        assert len(content) <= 300_000
        model = load(recipe.file)
        assert model.created_from == recipe.digest()
        assert model.trained_on == recipe.cases
        assert 0.4 < model.metrics["cost"] < (0.65 if recipe.name == "lace-rl" else 1.5)
    assert LaceRl(see_ci=False).recipe().digest() == recipes[1].digest()


def test_a_model_of_something_else_is_refused(tmp_path: Path) -> None:
    model = obtain(LaceRl().recipe())
    other = tmp_path / "m.safetensors"
    replace(model, technique="scheduling/green/x").save(other)
    with pytest.raises(InputError, match="found a model of scheduling/green/x"):
        LaceRl.load(model=str(other))


def test_the_shipped_model_needs_no_torch() -> None:
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "from armillary.scheduling.keepalive import LaceRl\n"
        "print(LaceRl.load(lam=0.5).keep_alive('f', 0.0, 300.0))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) in MENU


def test_each_part_can_be_switched_off() -> None:
    trace, carbon, known = small_day(3, 60, 6000)
    work = KeepAliveWork(trace, carbon, 0.5, known)
    found = ablation(work)
    assert set(found) == {*PARTS, "break-even"}
    figures = {name: (one.cold_starts, round(one.carbon_g, 6)) for name, one in found.items()}
    assert len(set(figures.values())) == len(figures)
    # Blind to carbon, the same decisions follow on a grid of half the intensity, unless actions are dominated.
    blind = LaceRl(see_ci=False, limit_waits=False)
    keeps = [np.zeros(len(trace)), np.zeros(len(trace))]
    for out, factor in zip(keeps, (1.0, 0.5)):
        other = replace(work, carbon=carbon.scaled(factor))
        play(other, blind.policy(other), 0.5, out)
    assert np.array_equal(*keeps)


def test_gaps_in_random_order_on_another_grid_cost_at_most_5_percent_more_than_break_even() -> None:
    rng = np.random.default_rng(11)
    flat = Carbon.flat(450.0)
    known = Knowledge.of(drawn(rng, population(rng, 150), most=30_000), flat)
    wind = Carbon.hourly(rng.uniform(60, 350, 48))
    work = KeepAliveWork(shuffled(rng, drawn(rng, population(rng, 150), most=30_000)), wind, 0.5, known)
    reference = Counted.of(work, play(work, Static60().policy(work), 0.5))
    ours, theirs = (Counted.of(work, play(work, t.policy(work), 0.5)).cost(0.5, reference) for t in (LaceRl(), BreakEven()))
    assert ours <= 1.05 * theirs


def test_a_trace_of_ones_own_may_be_trained_on(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    trace, carbon, known = small_day(4)
    work = KeepAliveWork(trace, carbon, 0.5, known, history=trace, history_digest="abc")
    technique = LaceRl(retrain=True, updates=20)
    model = technique.model(work)
    assert model.trained_on == ("abc",)
    assert model.digest == technique.model(work).digest
    assert len(list(tmp_path.rglob("*.safetensors"))) == 1
    assert Counted.of(work, play(work, technique.policy(work), 0.5)).invocations == len(trace)


# The controller


def test_the_controller_decides_as_the_simulator_does() -> None:
    trace = regular(25.0, 40, cold=1.2, vcpu=0.6, memory=0.5)
    arrival = trace.arrival_s + np.random.default_rng(0).uniform(0, 20, 40)
    trace = replace(trace, arrival_s=np.sort(arrival))
    carbon = Carbon.hourly([120.0, 300.0])
    carbon = replace(carbon, times_s=carbon.times_s / 5)
    model = obtain(LaceRl().recipe())
    latency, grams, intensity = (float(v) for v in model.frozen()["scales"])
    known = Knowledge(latency, grams, np.asarray(model.frozen()["prior"], np.float64), intensity)
    work = KeepAliveWork(trace, carbon, 0.6, known)
    keeps = np.zeros(len(trace))
    play(work, LaceRl().policy(work), 0.6, keeps)
    controller = LaceRl.load(lam=0.6)
    controller.declare("f", cold_s=1.2, vcpu=0.6, memory_gb=0.5)
    said = []
    ends = trace.arrival_s + trace.duration_s
    for i, end in enumerate(ends.tolist()):
        said.append(controller.keep_alive("f", end, carbon.at(end)))
        if i + 1 < len(ends):
            controller.observe("f", end, float(trace.arrival_s[i + 1]))
    assert said == pytest.approx(keeps.tolist(), abs=1e-6)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: LaceRl.load(lam=1.5), "expected 0 to 1"),
        (lambda: LaceRl.load(carbon_g=-1.0), "positive"),
        (lambda: LaceRl.load().keep_alive("f", 0.0, math.nan), "carbon intensity of nan"),
        (lambda: LaceRl.load().observe("f", 5.0, 4.0), "-1 s from an end"),
        (lambda: LaceRl.load().declare("f", cold_s=-1.0), "f: cold_s: found -1"),
    ],
)
def test_a_controller_refuses_what_cannot_be(call: Callable[[], Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        call()


def test_a_budget_has_a_lambda() -> None:
    trace, carbon, known = small_day(5, 40, 3000)
    work = KeepAliveWork(trace, carbon, 0.5, known)
    budget = 0.5 * Counted.of(work, play(work, Static60().policy(work), 0.5)).carbon_g
    lam, found = lambda_for_budget(work, BreakEven(), budget, rounds=12)
    assert 0 < lam < 1
    assert 0.9 * budget <= found.carbon_g <= budget
    assert lambda_for_budget(work, BreakEven(), 1e9)[0] == 0.0
    with pytest.raises(InputError, match="even λ = 1"):
        lambda_for_budget(work, Static60(), 0.0)


# The environment


def test_the_environment_pays_what_the_table_says(table: Decisions) -> None:
    env = KeepAlive(4, table, lam=0.5)
    seen = env.reset(np.arange(4, dtype=np.uint32))
    assert seen.shape == (4, 14)
    assert seen.dtype == np.float32
    ended = 0
    for step in range(300):
        rows = env._row.copy()
        actions = np.full(4, step % 9)
        seen, reward, done, truncated, info = env.step(actions)
        assert reward == pytest.approx(table.rewards(rows, np.full(4, 0.5))[:, step % 9])
        assert info["rewards"].shape == (4, 9)
        assert np.array_equal(done, table.following[rows] < 0)
        assert not (done & truncated).any()
        ended += int((done | truncated).sum())
    assert ended > 4
    again = KeepAlive(4, table, lam=0.5)
    first = again.reset(np.arange(4, dtype=np.uint32))
    assert np.array_equal(first, KeepAlive(4, table, lam=0.5).reset(np.arange(4, dtype=np.uint32)))


def test_the_environment_passes_the_checkers() -> None:
    gymnasium = pytest.importorskip("gymnasium")
    register_environments()
    env = gymnasium.make("armillary/KeepAlive-v0", functions=12, invocations=600)
    from gymnasium.utils.env_checker import check_env

    check_env(env.unwrapped, skip_render_check=True)
    assert env.action_space.n == 9
    assert env.observation_space.shape == (14,)
    sb3 = pytest.importorskip("stable_baselines3.common.env_checker")
    sb3.check_env(env.unwrapped, warn=False)


# Sockets


def test_settings_of_platforms() -> None:
    service = {"apiVersion": "serving.knative.dev/v1", "kind": "Service", "metadata": {"name": "f"}}
    made = knative(service, 90.0)
    assert made["spec"]["template"]["metadata"]["annotations"] == {RETENTION: "1m30s"}
    assert "spec" not in service
    assert openfaas(600.0) == {"com.openfaas.scale.zero": "true", "com.openfaas.scale.zero-duration": "10m"}
    assert openwhisk(59.2) == "whisk.container-proxy.timeouts.idle-container = 60 seconds\n"
    assert [duration(s) for s in (0.0, 0.25, 1.0, 60.0, 61.5, 3600.0, 3661.0)] == ["0s", "250ms", "1s", "1m", "1m1.5s", "1h", "1h1m1s"]
    for bad, said in ((lambda: knative({"kind": "Pod"}, 1.0), "Service"), (lambda: knative(service, 7200.0), "3600"),
                      (lambda: openfaas(-1.0), "finite"), (lambda: openwhisk(math.inf), "finite")):  # fmt: skip
        with pytest.raises(InputError, match=said):
            bad()
