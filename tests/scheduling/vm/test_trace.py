"""TRACE: its towers, gate and mask, its training, the shipped models, and what it is by itself."""

from __future__ import annotations

import subprocess
import sys
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from vm_works import cloud, hosts, metrics, work

from armillary.errors import InputError
from armillary.learn import load, obtain
from armillary.scheduling.contention import Model
from armillary.scheduling.vm import (
    BoostedPairs,
    Host,
    LinearQos,
    SingleTower,
    State,
    Trace,
    Vm,
    ablation,
    built_in,
    play,
    why_not,
)
from armillary.scheduling.vm.analysis.ablation import PARTS
from armillary.scheduling.vm.learning.standard import standardised
from armillary.scheduling.vm.learning.towers import NAMES, Towers
from armillary.scheduling.vm.problem.state import MOST_SET
from armillary.scheduling.vm.recommender import state_of
from armillary.scheduling.vm.trace import SHIPPED, TraceRanker
from armillary.scheduling.vm.workload import VmWork


@pytest.fixture(scope="module")
def small() -> VmWork:
    return built_in(np.random.default_rng(5), hosts=8, vms=100, rounds=4, overcommit=0.9)


@pytest.fixture(scope="module")
def state(small: VmWork) -> State:
    return small.state(small.start - 1, small.host, small.judge.played(small.start - 1, small.host))


@pytest.fixture(scope="module")
def towers() -> Towers:
    return Towers(obtain(Trace().recipe()))


# Towers


def test_the_order_of_vms_on_a_host_does_not_count(state, towers):
    standard = towers.standard(state.x)
    sets, real = state.sets(standard)
    one = towers.encode_hosts(state.host_x, sets, real)
    order = np.random.default_rng(0).permutation(sets.shape[1])
    other = towers.encode_hosts(state.host_x, sets[:, order], real[:, order])
    assert np.abs(one - other).max() < 1e-5 * np.abs(one).max()
    padded = np.concatenate([sets, np.full((len(sets), 9, 20), 7.0, np.float32)], 1)
    wider = towers.encode_hosts(state.host_x, padded, np.concatenate([real, np.zeros((len(sets), 9), bool)], 1))
    assert np.abs(one - wider).max() < 1e-5 * np.abs(one).max()


def test_towers_are_independent(state, towers):
    standard = towers.standard(state.x)
    before = towers.encode_vms(standard), towers.hosts_of(state, standard)
    changed = state.x.copy()
    changed[state.host == 3, 2:17] *= 1.7
    other = replace(state, x=changed)
    after = towers.encode_vms(standard), towers.hosts_of(other, towers.standard(changed))
    assert np.array_equal(before[0], after[0])
    rest = np.arange(8) != 3
    assert np.array_equal(before[1][rest], after[1][rest])
    assert not np.array_equal(before[1][3], after[1][3])


def test_scoring_in_place_equals_scoring_a_return(small, state, towers):
    ranker = TraceRanker(towers, Trace())
    for vm in (0, 11, 57):
        own = state.host[vm]
        in_place = ranker.scores(state, np.array([vm]))[0, own]
        away = replace(state, host=np.where(np.arange(100) == vm, -1, state.host))
        assert in_place == pytest.approx(ranker.new_scores(away, np.array([vm]))[0, own], abs=1e-5)


def test_all_pairs_are_what_single_pairs_are(state, towers):
    standard = towers.standard(state.x)
    e_v, e_p = towers.encode_vms(standard), towers.hosts_of(state, standard)
    whole = towers.scores(e_v, e_p)
    assert whole.shape == (100, 8)
    assert ((whole > 0) & (whole < 1)).all()
    for v, p in ((0, 0), (50, 3), (99, 7)):
        assert whole[v, p] == pytest.approx(towers.pair_scores(e_v[[v]], e_p[[p]])[0], abs=1e-6)


def test_an_empty_host_is_finite(towers):
    state, _ = state_of([Host("empty"), *cloud([3])], [Vm("new", metrics())], hour=3.0)
    found = TraceRanker(towers, Trace()).new_scores(state, np.array([3]))
    assert np.isfinite(found).all()
    assert found[0, 0] > found[0, 1]


def test_cross_layers_by_hand():
    torch = pytest.importorskip("torch")
    from armillary.learn import CrossDeep

    tower = CrossDeep(2, 2, (), 2)
    with torch.no_grad():
        for layer in tower.cross:
            layer.weight.copy_(torch.eye(2))
            layer.bias.zero_()
    x = torch.tensor([[1.0, 2.0]])
    assert tower.cross[0](x).mul(x).add(x).tolist() == [[2.0, 6.0]]
    assert tower.features(x).tolist() == [[4.0, 18.0]]


def test_set_blocks_are_pytorch_s_attention():
    torch = pytest.importorskip("torch")
    from armillary.learn import Mab

    block = Mab(32, 4)
    for parameter in block.parameters():
        torch.nn.init.normal_(parameter, std=0.2, generator=torch.Generator().manual_seed(1))
    peer = torch.nn.MultiheadAttention(32, 4, batch_first=True)
    with torch.no_grad():
        peer.in_proj_weight.copy_(torch.cat([torch.eye(32), block.kv.weight]))
        peer.in_proj_bias.copy_(torch.cat([torch.zeros(32), block.kv.bias]))
        peer.out_proj.weight.copy_(block.out.weight)
        peer.out_proj.bias.copy_(block.out.bias)
        x, y = torch.randn(2, 5, 32, generator=torch.Generator().manual_seed(2)), torch.randn(2, 7, 32, generator=torch.Generator().manual_seed(3))
        q = block.q(x)
        h = block.norm1(q + peer(q, y, y, need_weights=False)[0])
        assert torch.allclose(block(x, y), block.norm2(h + torch.relu(block.ffn(h))), atol=1e-5)


def test_frozen_towers_are_those_that_were_trained(state):
    torch = pytest.importorskip("torch")
    from armillary.scheduling.vm.learning.network import TraceNetwork

    model = obtain(Trace().recipe())
    network = TraceNetwork()
    model.load_into(network)
    towers = Towers(model)
    standard = towers.standard(state.x)
    sets, real = state.sets(standard)
    x = standardised(state.host_x, towers.mean[20:], towers.scale[20:])
    with torch.no_grad():
        e_p = network.encode_host(torch.from_numpy(x), torch.from_numpy(sets), torch.from_numpy(real))
        e_v = network.vm(torch.from_numpy(standard))
        q = torch.sigmoid(network.logit(e_v[:, None, :], e_p[None, :, :])).numpy()
        g = network.openness(e_p[:1], e_p).numpy()
    found = towers.hosts_of(state, standard)
    assert found == pytest.approx(e_p.numpy(), abs=2e-4)
    assert towers.scores(towers.encode_vms(standard), found) == pytest.approx(q, abs=1e-4)
    assert towers.openness(found[:1], found)[0] == pytest.approx(g, abs=1e-4)


def test_sets_of_more_than_64_vms_keep_the_largest_and_say_so(towers):
    vms = [Vm(f"v{i}", metrics(2.0 if i else 24.0)) for i in range(70)]
    state, _ = state_of([Host("full", vms), Host("other")], [], hour=1.0)
    with pytest.warns(UserWarning, match="70 VMs on a host; the largest 64"):
        sets, real = state.sets(state.x.astype(np.float32))
    assert sets.shape[1] == MOST_SET
    assert real.sum(1).tolist() == [64, 0]
    assert sets[0, 0, 0] == 24.0
    few, _ = state_of([Host("full", vms[:64])], [], hour=1.0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        few.sets(few.x.astype(np.float32))


# Gate and mask


def test_the_gate_closes_for_hosts_that_look_like_the_source(towers):
    e = np.random.default_rng(0).standard_normal((2, 32)).astype(np.float32)
    k, tau = towers.arrays["gate"]
    found = towers.openness(e[:1], np.stack([e[0], -e[0]]))
    assert found[0] == pytest.approx([1 / (1 + np.exp(-k * (tau - 1))), 1 / (1 + np.exp(-k * (tau + 1)))], abs=1e-5)
    if k > 0:
        assert found[0, 0] < found[0, 1]


def test_without_a_budget_nothing_moves(small):
    assert play(small, Trace(budget=0.0).ranker(small)).moves == []


def test_with_every_budget_and_no_costs_only_gains_move(small, state):
    ranker = Trace(budget=1.0, c0=0.0, c1=0.0, gate=False).ranker(small)
    vms = np.arange(100)
    found = ranker.recommend(state, vms)
    assert found.keep.any()
    assert (found.gain[found.keep] > 0).all()
    own = np.take_along_axis(found.keep, np.argsort(found.hosts, 1), 1)[vms, state.host]
    assert not own.any(), "nobody moves to where it is"
    gated = Trace(budget=1.0, c0=0.0, c1=0.0).ranker(small).recommend(state, vms)
    assert np.array_equal(gated.keep, found.keep), "an open gate scales a gain and leaves its sign"


def test_moves_must_pay_for_their_copy(small, state):
    vms = np.arange(100)
    free = Trace(budget=1.0, c0=0.0, c1=0.0).ranker(small).recommend(state, vms).keep.sum()
    slow = Trace(budget=1.0, c0=0.0, c1=0.001, network_gbps=0.1).ranker(small).recommend(state, vms).keep.sum()
    dear = Trace(budget=1.0, c0=0.05, c1=0.0).ranker(small).recommend(state, vms).keep.sum()
    few = Trace(budget=0.01, c0=0.0, c1=0.0).ranker(small).recommend(state, vms).keep.sum()
    assert max(slow, dear, few) < free
    assert Trace(mask=False, gate=False).ranker(small).recommend(state, vms).keep.sum() == free


def test_on_calm_vms_the_mask_rejects_every_move():
    for seed in range(2):
        calm = built_in(np.random.default_rng(seed), kind="calm", hosts=12, vms=150, rounds=6)
        played = play(calm, Trace().ranker(calm))
        assert played.moves == []
        assert np.nanmin(played.qos) == 1.0


def test_lone_vms_are_not_moved():
    w = work([2, 2], [0, 1], fleet=hosts(3, cores=32, threads=64), pressure=0.0, sensitivity=0.0, cpu=0.1, model=Model(smt_base=0.0))
    assert play(w, Trace().ranker(w)).moves == []


# Rivals and the shipped models


@pytest.mark.parametrize("technique", [LinearQos, BoostedPairs, SingleTower, Trace], ids=lambda t: t.__name__)
def test_predictors_know_crowded_hosts_and_score_own_hosts_without_the_vm(technique, small, state):
    ranker = technique().ranker(small)
    vms = np.arange(40)
    found = ranker.scores(state, vms)
    truth = small.judge.pairs(small.start, small.host, np.repeat(vms, 8), np.tile(np.arange(8), 40)).reshape(40, 8)
    assert np.abs(found - truth).mean() < 0.06
    assert np.corrcoef(found.ravel(), truth.ravel())[0, 1] > 0.85
    vm = 5
    away = replace(state, host=np.where(np.arange(100) == vm, -1, state.host))
    assert found[vm, state.host[vm]] == pytest.approx(ranker.new_scores(away, np.array([vm]))[0, state.host[vm]], abs=1e-3)


@pytest.mark.parametrize("technique", [LinearQos(), BoostedPairs(), SingleTower(), Trace()], ids=lambda t: type(t).__name__)
def test_shipped_models_are_whole_and_small(technique):
    for recipe in technique.recipes():
        model = load(recipe.file)
        assert model.digest == recipe.shipped
        assert model.created_from == recipe.digest()
        assert recipe.file.stat().st_size <= 300_000
        assert model.features is not None
        assert model.features.names == NAMES
        assert "qos_mae" in model.metrics
    assert set(SHIPPED) == {recipe.name for recipe in Trace().recipes()}


def test_shipped_models_run_without_pytorch():
    code = (
        "import sys; sys.modules['torch'] = None; sys.modules['sklearn'] = None\n"
        "import numpy as np\n"
        "from armillary.scheduling.vm import BoostedPairs, LinearQos, SingleTower, Trace, built_in, play\n"
        "w = built_in(np.random.default_rng(0), hosts=3, vms=30, rounds=1)\n"
        "for t in (BoostedPairs(), LinearQos(), SingleTower(), Trace()): play(w, t.ranker(w))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


def test_every_part_changes_something(small):
    found = ablation(small)
    assert set(found) == set(PARTS)
    whole = [(m.vm, m.target, m.promised) for m in found["trace"].moves]
    for name in ("no sets", "no cross layers"):
        assert [(m.vm, m.target, m.promised) for m in found[name].moves] != whole, name


def test_gate_and_mask_change_what_is_kept(small, state):
    vms = np.arange(100)
    kept = {
        name: Trace(budget=1.0, c0=0.03, **change).ranker(small).recommend(state, vms).keep
        for name, change in {"both": {}, "no gate": {"gate": False}, "no mask": {"mask": False}}.items()
    }
    assert (kept["both"] <= kept["no gate"]).all(), "the gate only closes"
    assert kept["both"].sum() < kept["no gate"].sum() < kept["no mask"].sum()


def test_a_changed_parameter_never_takes_the_shipped_model():
    assert Trace(epochs=3).recipe().shipped == ""
    assert Trace(sets=False).recipe().name == "trace-no-sets"
    assert Trace(epochs=3).recipe().digest() != Trace().recipe().digest()
    assert Trace(budget=0.5).recipe().digest() == Trace().recipe().digest()


# Training


@pytest.fixture(scope="module")
def samples():
    from armillary.scheduling.vm.learning import samples as module

    fleet = module.training_fleet("interfering", "test")
    small = replace(fleet, population=fleet.population)
    return [module.taken(small, np.random.default_rng(i), 5 + i) for i in range(4)]


def test_lists_hold_other_hosts_and_labels_are_true(samples):
    for one in samples:
        assert one.lists.shape == (32, 8)
        assert all(len(set(row)) == 8 for row in one.lists.tolist())
        assert ((one.qos > 0) & (one.qos <= 1)).all()
        for i, vm in enumerate(one.vms.tolist()):
            assert vm not in one.source_sets[i].tolist()
            assert all(vm not in one.sets[p].tolist() for p in one.lists[i])


def test_equal_seeds_give_equal_weights_and_training_helps(samples):
    pytest.importorskip("torch")
    from armillary.scheduling.vm.learning.train import trained

    how = {"sets": True, "cross": True, "epochs": 6}
    one, two = (trained(samples, samples[:1], how, seed=3) for _ in range(2))
    assert one.digest == two.digest
    assert one.metrics["qos_mae"] < trained(samples, samples[:1], how | {"epochs": 1}, seed=3).metrics["qos_mae"]
    assert trained(samples, samples[:1], how, seed=4).digest != one.digest
    without = trained(samples, samples[:1], {"sets": False, "cross": False, "epochs": 1}, seed=3)
    assert "set" not in without.config.parts


def test_one_s_own_work_may_be_trained_on(monkeypatch, tmp_path, small):
    pytest.importorskip("torch")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    technique = Trace(retrain=True)
    quick = replace(small, start=7, rounds=1)
    model = technique.model(quick)
    assert model.digest == technique.model(quick).digest
    assert len(list(tmp_path.rglob("*.safetensors"))) == 1
    assert model.metrics["qos_mae"] < 0.06
    assert play(quick, technique.ranker(quick)).qos.shape[0] == 1


# By itself


def test_a_new_vm_goes_to_the_emptiest_of_equal_hosts():
    found = Trace.load().recommend(Vm("new", metrics()), cloud([12, 1, 6]), k=2)
    assert found.hosts == ("h1", "h2")
    assert found.keep == (True, True)
    assert 1 >= found.scores[0] >= found.scores[1] >= 0
    assert found.source == ""
    assert found.best == "h1"


def test_a_placed_vm_stays_or_moves():
    recommender = Trace.load(budget=1.0)
    crowd = cloud([20, 1])
    vm = crowd[0].vms[3]
    found = recommender.recommend(replace(vm, qos=0.6), crowd)
    assert (found.source, found.hosts) == ("h0", ("h1",))
    assert found.keep == (True,)
    stays = recommender.recommend(crowd[1].vms[0], crowd)
    assert stays.keep == (False,)
    assert stays.best == "h1"


def test_hosts_without_room_are_not_listed():
    found = Trace.load().recommend(Vm("new", metrics()), cloud([15, 16, 2]), overcommit=1.0)
    assert set(found.hosts) == {"h0", "h2"}


def test_predictions_come_for_every_pair():
    found = Trace.load().predict([Vm("a", metrics()), Vm("b", metrics(24.0))], cloud([1, 5, 9]))
    assert found.shape == (2, 3)
    assert (np.diff(found, axis=1) < 0).all()


def test_reasons_add_up_to_the_difference():
    recommender = Trace.load()
    crowd = cloud([2, 14])
    vm = Vm("new", metrics())
    q = recommender.predict([vm], crowd)[0]
    reasons = why_not(recommender, vm, crowd, "h0", "h1")
    assert sum(one.effect for one in reasons) == pytest.approx(q[1] - q[0], abs=2e-3)
    assert abs(reasons[0].effect) >= abs(reasons[-1].effect)
    assert any("instead of" in str(one) for one in reasons)
    assert "which VMs" in " ".join(map(str, reasons))
    with pytest.raises(InputError, match="expected one of the hosts"):
        why_not(recommender, vm, crowd, "h0", "h9")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"cpi": float("nan")}, "cpi: found nan"),
        ({"cpi": "much"}, "cpi: found 'much'"),
        ({"colour": 3.0}, 'found the metric "colour"'),
    ],
)
def test_metrics_that_cannot_be_are_refused(change, said):
    with pytest.raises(InputError, match=said):
        Trace.load().recommend(Vm("new", metrics() | change), cloud([1]))


def test_missing_metrics_and_vms_on_two_hosts_are_refused():
    lacking = {name: value for name, value in metrics().items() if name != "llc_mpki"}
    with pytest.raises(InputError, match="found no metric llc_mpki"):
        Trace.load().recommend(Vm("new", lacking), cloud([1]))
    twice = [Host("a", [Vm("x", metrics())]), Host("b", [Vm("x", metrics())])]
    with pytest.raises(InputError, match='found "x" on a and b'):
        Trace.load().predict([Vm("x", metrics())], twice)
    with pytest.raises(InputError, match="no hosts"):
        Trace.load().recommend(Vm("x", metrics()), [])
    with pytest.raises(InputError, match="expected 0 to 24"):
        Trace.load().recommend(Vm("x", metrics()), cloud([1]), hour=25)
    with pytest.raises(InputError, match="at least 1"):
        Trace.load().recommend(Vm("x", metrics()), cloud([1]), k=0)
    with pytest.raises(InputError, match='found "engines"'):
        Trace.load().recommend(Vm("x", metrics()), [Host("a", hardware={"engines": 2})])


def test_a_model_of_something_else_is_refused(tmp_path: Path):
    with pytest.raises(InputError, match="expected one of scheduling/vm/trace"):
        Trace.load(BoostedPairs().recipe().file)
    stranger = replace(load(SingleTower().recipe().file), technique="")
    stranger.save(tmp_path / "m.safetensors")
    with pytest.raises(InputError, match="without TRACE's towers"):
        Trace.load(tmp_path / "m.safetensors")
