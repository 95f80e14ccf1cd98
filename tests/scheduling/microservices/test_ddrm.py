"""DDRM: features without names, a predictor that order and names do not change, slopes as autograd's, the shield, training."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from armillary.scheduling.microservices import (
    Application,
    Call,
    Ddrm,
    PredictOnly,
    RequestType,
    Service,
    Simulation,
    ablation,
    built_in,
    drawn,
    play,
    rates_of,
)
from armillary.scheduling.microservices.control.learned import CALM_WINDOWS, greedy
from armillary.scheduling.microservices.control.shield import TOP, lowered, quotas_at, risk, shielded
from armillary.scheduling.microservices.ddrm import anonymous
from armillary.scheduling.microservices.learning.features import FACTS, HISTORY, LEVELS, STAY, Observed
from armillary.scheduling.microservices.learning.predictor import Predictor

SHOP = built_in("shop-8")


@pytest.fixture(scope="module")
def predictor() -> Predictor:
    return Predictor(Ddrm().predictor_parts(SHOP), SHOP)


def observed(app: Application = SHOP, seconds: int = 8, factor: float = 0.6, seed: int = 0, rate: float = 150.0) -> Observed:
    """The last windows of a run with few cores."""
    sim, seen = Simulation(drawn(np.random.default_rng(seed), app, np.full(seconds, rate)), app.quotas * factor), Observed(app)
    for _ in range(seconds):
        seen.add(sim.step())
    return seen


def permuted(app: Application, order: list[int]) -> Application:
    """The same application with other names, and its services in another order."""
    new = {app.names[k]: f"x{k}" for k in order}

    def renamed(call: Call) -> Call:
        return Call(new[call.service], tuple(tuple(renamed(one) for one in group) for group in call.groups))

    services = tuple(replace(app.services[k], name=f"x{k}", quota=float(app.quotas[k])) for k in order)
    requests = tuple(replace(request, name=f"y{i}", tree=renamed(request.tree)) for i, request in enumerate(app.requests))
    return Application("other", services, requests, app.slo_ms, app.rate)


def test_features_are_finite_and_small():
    for factor in (0.15, 0.6, 3.0):
        seen = observed(factor=factor)
        history = seen.history()
        assert history.shape == (8, HISTORY, FACTS)
        assert np.isfinite(history).all()
        assert np.abs(history).max() < 4
        assert np.abs(seen.proposed(seen.window.quotas)[:, 0]).max() == 0
    assert observed(seconds=1).history().shape == (8, HISTORY, FACTS)


def test_the_predictor_knows_neither_order_nor_names(predictor):
    order = [5, 2, 7, 0, 1, 6, 3, 4]
    other = permuted(SHOP, order)
    mine = observed()
    theirs = Observed(other)
    sim = Simulation(drawn(np.random.default_rng(0), SHOP, np.full(8, 150.0)), SHOP.quotas * 0.6)
    for _ in range(8):
        w = sim.step()
        theirs.add(replace(w, **{
            name: getattr(w, name)[order]
            for name in ("used", "cores", "quotas", "replicas", "queue", "occupancy", "p50_s", "p99_s", "rate")
        }))  # fmt: skip
    twin = Predictor(Ddrm().predictor_parts(SHOP), other)
    quotas = mine.window.quotas * np.linspace(0.8, 1.3, 8)
    a = predictor.probabilities(predictor.remembered(mine.history())[None], mine.proposed(quotas)[None])
    b = twin.probabilities(twin.remembered(theirs.history())[None], theirs.proposed(quotas[order])[None])
    np.testing.assert_allclose(a, b, atol=1e-5)
    assert anonymous(other) != anonymous(SHOP)
    same = permuted(SHOP, list(range(8)))
    plain = Application("x", tuple(replace(s, quota=None) for s in same.services), same.requests, same.slo_ms, same.rate)
    assert anonymous(plain) == anonymous(SHOP), "a renamed shop has the shop's model"


def test_more_cores_lower_the_risk(predictor):
    seen = observed(factor=0.45)
    remembered = predictor.remembered(seen.history())[None]
    rows = np.array([np.zeros(8), np.full(8, STAY), np.full(8, TOP)], np.int64)
    found = risk(predictor, seen, remembered, rows)
    assert found[0] > found[1] > found[2]


def test_slopes_are_those_of_autograd_and_of_differences(predictor):
    torch = pytest.importorskip("torch")
    from armillary.learn import obtain
    from armillary.scheduling.microservices.learning.network import Network

    model = obtain(Ddrm().recipe())
    network = Network(SHOP)
    state = network.state_dict()
    for name, value in state.items():
        value.copy_(torch.from_numpy(np.array(model.arrays[name])))
    seen = observed(factor=0.5)
    quotas = seen.window.quotas * np.linspace(0.9, 1.2, 8)
    remembered = predictor.remembered(seen.history())[None]
    found = predictor.slopes(seen, remembered, quotas)

    logs = torch.from_numpy(np.log(quotas)).requires_grad_()
    cores = logs.exp() * torch.from_numpy(seen.window.replicas)
    change = (logs - torch.from_numpy(np.log(seen.window.quotas))) / np.log(1.3)
    load = (torch.from_numpy(seen.offered) / cores).clamp(max=3)
    proposed = torch.stack([change, load, torch.log2(cores) / 4], -1)[None].float()
    logits = network(torch.from_numpy(seen.history())[None], proposed)[0]
    (a1, b1), (a5, b5) = np.asarray(model.arrays["platt"], np.float64)
    both = torch.sigmoid(torch.stack([a1 * logits[0] + b1, a5 * logits[1] + b5]))
    both.max().backward()
    np.testing.assert_allclose(found, logs.grad.numpy(), atol=1e-4)
    assert np.abs(found).max() > 1e-3, "slopes of zero would prove nothing"

    step = 1e-2
    both_sides = [np.exp(np.log(quotas)[None] + sign * step * np.eye(8)) for sign in (1, -1)]
    risks = [predictor.probabilities(remembered, np.stack([seen.proposed(q) for q in rows])).max(1) for rows in both_sides]
    np.testing.assert_allclose(found, (risks[0] - risks[1]) / (2 * step), atol=5e-3)


class Rule:
    """A judge whose risk is 1 less what each service has times its weight."""

    def __init__(self, weights: Any, start: float = 1.0) -> None:
        self.weights, self.start, self.asked = np.asarray(weights), start, 0

    def remembered(self, history: Any) -> Any:
        return history[:, -1]

    def probabilities(self, remembered: Any, proposed: Any) -> Any:
        self.asked += len(proposed)
        p = np.clip(self.start - proposed[..., 0] @ self.weights, 0, 1)
        return np.stack([p, p], 1)

    def slopes(self, seen: Any, remembered: Any, quotas: Any) -> Any:
        return -self.weights


@pytest.mark.parametrize("seed", range(30))
def test_the_shield_lets_nothing_unsafe_through_that_could_be_safe(seed):
    rng = np.random.default_rng(seed)
    seen = observed(seconds=2)
    judge = Rule(rng.exponential(0.2, 8), rng.uniform(0.2, 1.5))
    levels = rng.integers(0, len(LEVELS), 8)
    found, now = shielded(judge, seen, None, levels, 0.1)
    assert (found >= levels).all()
    assert now == pytest.approx(risk(judge, seen, None, found[None])[0])
    if risk(judge, seen, None, np.full((1, 8), TOP))[0] <= 0.1:
        assert now <= 0.1
    else:
        assert now <= 0.1 or (found == TOP).all()


def test_the_shield_raises_the_steepest_first_and_no_more_than_it_must():
    seen = observed(seconds=2)
    judge = Rule([0.0, 0.0, 0.9, 0.0, 0.0, 0.0, 0.3, 0.0], 0.3)
    found, _ = shielded(judge, seen, None, np.full(8, STAY), 0.1)
    assert found.tolist() == [2, 2, 3, 2, 2, 2, 2, 2]
    down = lowered(judge, seen, None, np.full(8, STAY), 0.35)
    assert down[2] == STAY, "the service that the risk depends on most keeps its cores"
    assert (np.delete(down, [2, 6]) == STAY - 1).all()


@pytest.mark.parametrize("seed", range(6))
def test_the_shield_keeps_its_promise_with_the_trained_predictor(predictor, seed):
    seen = observed(factor=0.3 + 0.15 * seed, seed=seed)
    remembered = predictor.remembered(seen.history())[None]
    levels = np.random.default_rng(seed).integers(0, 3, 8)
    found, now = shielded(predictor, seen, remembered, levels, 0.1)
    if risk(predictor, seen, remembered, np.full((1, 8), TOP))[0] <= 0.1:
        assert now <= 0.1
    else:
        assert now <= 0.1 or (found == TOP).all()
    assert (quotas_at(seen, greedy(predictor, seen, 0.1)) > 0).all()


@pytest.mark.parametrize("technique", [Ddrm(), PredictOnly()])
def test_without_load_quotas_fall_to_the_floor(technique):
    played = play(drawn(np.random.default_rng(0), SHOP, np.zeros(120)), technique.controller(SHOP))
    assert played.violation == 0
    assert played.windows[-1].quotas == pytest.approx(np.full(8, 0.1), abs=0.02)


def test_calm_windows_permit_one_level_less():
    """Only without load is it calm for ten windows: the policy goes down by itself until the risk is no longer small."""
    work = drawn(np.random.default_rng(0), SHOP, np.zeros(40))
    with_calm, without = (play(work, replace(Ddrm(), calm=on).controller(SHOP)) for on in (True, False))
    assert with_calm.core_s < without.core_s
    first = [float(window.quotas.sum()) for window in with_calm.windows[:CALM_WINDOWS]]
    assert first == [float(window.quotas.sum()) for window in without.windows[:CALM_WINDOWS]]


def test_every_part_changes_something():
    work = drawn(np.random.default_rng(3), SHOP, rates_of("step", np.random.default_rng(3), 30, 150.0))
    found = ablation(work)
    whole = found.pop("ddrm").metrics()
    same = [name for name, played in found.items() if played.metrics()["cpu_core_s"] == whole["cpu_core_s"]]
    assert same in ([], ["no calm rule"]), "a load that needs its cores is never calm"


@pytest.mark.slow
def test_a_short_training_is_repeatable_and_learns_something(monkeypatch):
    pytest.importorskip("torch")
    from armillary.scheduling.microservices.learning import train

    monkeypatch.setattr(train, "LEARNING", replace(train.LEARNING, rollout=4))
    recipe = Ddrm().recipe()
    small = replace(recipe, parameters={**recipe.parameters, "windows": 300, "steps": 4, "lesson": 16, "decisions": 32})
    one, two = small.trained(), small.trained()
    assert one.to_bytes() == two.to_bytes()
    assert set(one.frozen().config.parts) == {"lstm", "attention", "decider"}
    assert 0 < one.metrics["violated"] < 1


def test_the_shipped_predictor_is_good_on_loads_that_it_never_met(predictor):
    """AUC of at least 0.9 and a Brier score below that of the base rate, on explored windows of another seed."""
    pytest.importorskip("torch")
    from armillary.scheduling.microservices.learning.exploration import explored
    from armillary.scheduling.microservices.learning.train import auc

    data = explored(SHOP, 600, seed=123)
    p = predictor.probabilities(predictor.remembered(data.history), data.proposed)
    assert 0.2 <= data.share <= 0.5
    for k in range(2):
        y = data.labels[:, k]
        assert auc(p[:, k], y) >= 0.9
        assert np.mean((p[:, k] - y) ** 2) < 0.5 * y.mean() * (1 - y.mean())


def test_a_cold_start_trains_a_predictor_of_its_own(tmp_path, monkeypatch):
    pytest.importorskip("torch")
    from armillary.scheduling.microservices import ddrm

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(ddrm, "COLD_WINDOWS", 300)
    monkeypatch.setattr(ddrm, "COLD_STEPS", 5)
    app = Application(
        "two", (Service("a", 8, 5.0, replicas=2), Service("b", 8, 9.0)),
        (RequestType("ask", 1.0, Call("a", ((Call("b"),),))),), 400.0, 60.0,
    )  # fmt: skip
    technique = Ddrm()
    own = technique.predictor_parts(app)
    assert own is not technique.predictor_parts(SHOP)
    assert len(list((tmp_path / "armillary" / "models").glob("*.safetensors"))) == 1
    assert replace(technique, cold_start=False).predictor_parts(app) is replace(technique, cold_start=False).predictor_parts(SHOP)
    played = play(drawn(np.random.default_rng(0), app, np.full(12, 60.0)), technique.controller(app))
    assert len(played.windows) == 12
