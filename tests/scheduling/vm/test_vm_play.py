"""The judge, packing, rounds of migration and the figures: exact answers by hand, then what must always hold."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from vm_works import hosts, work

from armillary.errors import InputError
from armillary.scheduling.contention import Model
from armillary.scheduling.vm import BestFit, DotProduct, FirstFit, LeastSteal, Oracle, built_in, hit, ndcg, play
from armillary.scheduling.vm.problem.fleet import Hosts
from armillary.scheduling.vm.problem.fleet import built_in as built_in_hosts
from armillary.scheduling.vm.problem.metrics import HOST_FEATURES, LINES, VM, VM_FEATURES, inferred, measured
from armillary.scheduling.vm.problem.ranker import Recommended
from armillary.scheduling.vm.simulation.packing import best_fit
from armillary.scheduling.vm.simulation.play import accepted, offered
from armillary.scheduling.vm.simulation.ranking import relevance
from armillary.scheduling.vm.workload import TARGET, WITHIN, draw_population, mean_quality

SIMPLE = (FirstFit, BestFit, DotProduct, LeastSteal, Oracle)


# The judge


def test_a_lone_vcpu_has_all_its_quality():
    assert work([1], [0]).judge.played(2, np.array([0])).qos == pytest.approx([1.0])


def test_two_vms_slow_each_other_as_the_formula_says():
    w = work([1, 1], [0, 0], fleet=hosts(1, cores=1, threads=2), pressure=[1.0, 0.0], sensitivity=[0.0, 1.0], cpu=0.2)
    found = w.judge.played(2, w.host)
    # One core with two threads: the sibling is the other VM; it is busy for u, which is 0.2 times its own slowdown.
    loud = 1 + 0.25 * found_use(w, 1)
    frail = 1 + (0.25 + 0.9) * found_use(w, 0)
    assert found.slow == pytest.approx([loud, frail], rel=1e-6)
    assert found.qos[1] < found.qos[0]
    assert found.steal.tolist() == [0.0, 0.0]


def found_use(w, vm):
    """The busy share of a VM's vCPU, from its slowdown."""
    return 0.2 * w.judge.played(2, w.host).slow[vm]


def test_more_busy_vcpus_than_threads_wait():
    w = work([8, 8], [0, 0], fleet=hosts(1, cores=4, threads=4), pressure=0.0, sensitivity=0.0, cpu=1.0)
    found = w.judge.played(2, w.host)
    assert found.qos == pytest.approx([0.25, 0.25])
    assert found.steal == pytest.approx([0.75, 0.75])


def test_the_quality_of_a_pair_is_that_of_the_vm_if_it_were_there():
    rng = np.random.default_rng(0)
    w = work([2, 4, 2, 8], [0, 0, 1, 1], pressure=rng.random((4, 5)), sensitivity=rng.random((4, 5)), cpu=[0.3, 0.5, 0.6, 0.2])
    for vm in range(4):
        for target in (0, 1):
            moved = w.host.copy()
            moved[vm] = target
            whole = w.judge.played(3, moved).qos
            own, total = w.judge.pairs_and_totals(3, w.host, np.array([vm]), np.array([target]))
            assert own[0] == pytest.approx(whole[vm], abs=1e-12)
            assert total[0] == pytest.approx(whole[moved == target].sum(), abs=1e-12)


def test_chunks_do_not_change_the_answer(monkeypatch):
    w = built_in(np.random.default_rng(1), hosts=6, vms=60, rounds=2)
    one = w.judge.played(w.start, w.host).qos, w.judge.pairs(w.start, w.host, np.arange(20), np.arange(20) % 6)
    monkeypatch.setattr("armillary.scheduling.vm.simulation.quality.MOST_SETTLED", 30)
    monkeypatch.setattr("armillary.scheduling.vm.simulation.quality.MOST_THREADS", 100)
    other = w.judge.played(w.start, w.host).qos, w.judge.pairs(w.start, w.host, np.arange(20), np.arange(20) % 6)
    assert np.array_equal(one[0], other[0], equal_nan=True)
    assert np.array_equal(one[1], other[1])


@given(seed=st.integers(0, 1000))
def test_nobody_gains_when_a_vm_joins_a_host_with_idle_threads(seed):
    rng = np.random.default_rng(seed)
    sizes = rng.choice([1, 2, 4], 10).tolist()
    fleet = hosts(2, cores=32, threads=64)
    w = work(sizes, [0] * 9 + [1], fleet=fleet, pressure=rng.random((10, 5)), sensitivity=rng.random((10, 5)), cpu=rng.random(10))
    before = w.judge.played(2, w.host).qos
    moved = np.where(np.arange(10) == 9, 0, w.host)
    after = w.judge.played(2, moved).qos
    assert (after[:9] <= before[:9] + 1e-9).all()


# Packing and the population


def test_best_fit_takes_the_tightest_host_that_suffices():
    free, memory = np.array([8.0, 4.0, 6.0]), np.array([9.0, 9.0, 9.0])
    assert best_fit([4, 5, 8, 1, 2], [1, 1, 1, 1, 7], free, memory).tolist() == [1, 2, 0, 2, -1]
    assert free.tolist() == [0.0, 0.0, 0.0]
    assert best_fit([1], [10.0], np.array([5.0]), np.array([9.0])).tolist() == [-1]


@pytest.mark.parametrize("kind", ["interfering", "bursty"])
def test_packing_leaves_the_quality_that_it_aims_at(kind):
    for seed in range(3):
        w = built_in(np.random.default_rng(seed), kind=kind, hosts=20, vms=300, rounds=1)
        assert (w.host >= 0).all()
        assert TARGET - 0.05 <= mean_quality(w) <= TARGET + 0.05
        vcpus = np.bincount(w.host, w.population.vcpu, 20)
        assert (vcpus <= w.hosts.room(w.overcommit)).all()
    assert WITHIN < 0.05


def test_calm_vms_lose_nothing_anywhere():
    w = built_in(np.random.default_rng(0), kind="calm", hosts=10, vms=150, rounds=2)
    assert np.nanmin(w.judge.played(w.start, w.host).qos) == 1.0
    assert (np.bincount(w.host[w.host >= 0], w.population.vcpu[w.host >= 0], 10) <= w.hosts.threads).all()


def test_the_population_has_its_sizes_and_its_deployments():
    p = draw_population(np.random.default_rng(0), "bursty", 3_000)
    shares = [np.mean(p.vcpu == size) for size in (2, 4, 8, 24)]
    assert shares == pytest.approx([0.55, 0.27, 0.13, 0.05], abs=0.07)
    assert p.demand.min() >= 0
    assert p.demand.max() <= 1
    near = np.abs(np.diff(p.pressure[:, 0])) < 0.1 * p.pressure[1:, 0] + 0.02
    assert near.mean() > 0.6, "neighbours in the list are mostly of one deployment"
    bursts = np.percentile(p.demand.reshape(len(p), -1), 95, axis=1) / p.demand.mean((1, 2))
    assert np.median(bursts) > 1.5


def test_equal_seeds_draw_equal_clouds():
    one, two = (built_in(np.random.default_rng(5), hosts=5, vms=40, rounds=1) for _ in range(2))
    assert np.array_equal(one.population.demand, two.population.demand)
    assert np.array_equal(one.host, two.host)
    assert one.overcommit == two.overcommit


def test_metrics_and_what_they_show_are_inverse():
    rng = np.random.default_rng(0)
    p, s = rng.random((50, 5)), rng.random((50, 5))
    found = inferred(measured(p, s), 50)
    assert found[0] == pytest.approx(p)
    assert found[1] == pytest.approx(s)
    assert len(LINES) == 10
    assert (len(VM_FEATURES), len(HOST_FEATURES)) == (20, 24)


# What is seen


def test_the_features_of_a_host_without_a_vm_are_those_of_the_host_without_it():
    w = built_in(np.random.default_rng(2), hosts=4, vms=40, rounds=1)
    quality = w.judge.played(w.start - 1, w.host)
    state = w.state(w.start - 1, w.host, quality)
    for vm in (0, 7, 23):
        left = np.where(np.arange(40) == vm, -1, w.host)
        other = replace(state, host=left)
        assert state.without(np.array([vm]))[0] == pytest.approx(other.host_x[w.host[vm]], abs=1e-9)
    assert state.host_x[:, 8].tolist() == np.bincount(w.host, minlength=4).tolist()


def test_what_is_seen_carries_the_noise_of_its_hour_and_no_future():
    w = built_in(np.random.default_rng(2), hosts=4, vms=40, rounds=2)
    quality = w.judge.played(w.start - 1, w.host)
    state = w.state(w.start - 1, w.host, quality)
    assert np.array_equal(state.x, w.state(w.start - 1, w.host, quality).x)
    later = w.population.demand.copy()
    later[:, w.start :] = 0.77
    blind = replace(w, population=replace(w.population, demand=later))
    assert np.array_equal(state.x, blind.state(w.start - 1, w.host, quality).x)
    assert np.std(state.x[:, VM["cpu"]] / w.population.demand[:, w.start - 1].mean(1)) == pytest.approx(0.05 / 12**0.5, rel=0.5)


# Rounds


def test_the_worst_are_offered_first():
    w = built_in(np.random.default_rng(3), hosts=5, vms=50, rounds=1)
    quality = w.judge.played(w.start - 1, w.host)
    state = w.state(w.start - 1, w.host, quality)
    found = offered(state, 0.1)
    assert len(found) == 5
    assert quality.qos[found].tolist() == sorted(quality.qos[w.host >= 0].tolist())[:5]
    assert len(offered(state, 0.0001)) == 1
    assert len(offered(state, 0.0)) == 0


def test_a_host_that_fills_up_takes_no_more():
    w = work([4, 4, 4], [0, 0, 0], fleet=hosts(3, cores=4, threads=4), overcommit=2.4, headroom=1.0)
    state = w.state(1, w.host, w.judge.played(1, w.host))
    # Hosts may promise 9 vCPUs, so that two of 4 fit and a third does not.
    wanted = Recommended(np.tile([1, 2, 0], (3, 1)), np.tile([True, True, False], (3, 1)), np.full((3, 3), 0.25))
    assert accepted(state, np.arange(3), wanted) == [(0, 1, 0.25), (1, 1, 0.25), (2, 2, 0.25)]
    nothing = replace(wanted, keep=np.zeros((3, 3), bool))
    assert accepted(state, np.arange(3), nothing) == []


@pytest.mark.parametrize("technique", SIMPLE, ids=lambda t: t.__name__)
def test_rounds_keep_their_rules(technique):
    w = built_in(np.random.default_rng(4), hosts=8, vms=100, rounds=5)
    played = play(w, technique().ranker(w))
    again = play(w, technique().ranker(w))
    assert played.moves == again.moves
    assert played.qos.shape == (5, 100)
    assert np.nanmin(played.qos) > 0
    assert np.nanmax(played.qos) <= 1
    assert len(played.moves) <= 5 * 1
    assert all(move.source != move.target for move in played.moves)
    free_vcpus, free_gb = w.free(played.host)
    assert free_vcpus.min() >= 0
    assert free_gb.min() >= 0


def test_the_delivered_gain_is_what_staying_would_have_cost():
    w = built_in(np.random.default_rng(4), hosts=8, vms=100, rounds=1)
    played = play(w, LeastSteal().ranker(w))
    (move,) = played.moves
    stayed = w.judge.played(w.start, w.host).qos[move.vm]
    assert move.delivered == pytest.approx(played.qos[0, move.vm] - stayed)
    seen = w.judge.played(w.start - 1, w.host).qos[move.vm]
    assert move.promised == pytest.approx(1 - seen), "who predicts nothing promises that nobody interferes"
    assert played.promise_error == pytest.approx(abs(move.promised - move.delivered) / abs(move.delivered))


def test_the_oracle_leaves_at_least_as_much_as_staying_does():
    for seed in range(3):
        w = built_in(np.random.default_rng(seed), hosts=8, vms=100, rounds=1)
        stay = float(np.nanmean(w.judge.played(w.start, w.host).qos))
        assert play(w, Oracle().ranker(w)).metrics()["qos_mean"] >= stay - 1e-12


def test_vms_come_and_go():
    w = work([2, 2, 2, 2], [0, 0, 1, -1], created=[0, 0, 0, 3], deleted=[7, 3, 7, 7], rounds=3)
    played = play(w, FirstFit().ranker(w))
    gone = np.isnan(played.qos)
    assert gone[:, 1].tolist() == [False, True, True]
    assert gone[:, 3].tolist() == [True, False, False]


def test_first_and_best_fit_and_dot_product_rank_as_they_say():
    w = work([2, 2, 4], [0, 1, 1], fleet=hosts(3), overcommit=1.0, headroom=1.0)
    state = w.state(1, w.host, w.judge.played(1, w.host))
    assert np.argsort(-FirstFit().ranker(w).scores(state, np.array([0]))[0]).tolist() == [0, 1, 2]
    assert np.argsort(-BestFit().ranker(w).scores(state, np.array([0]))[0], kind="stable").tolist() == [1, 0, 2]
    assert int(np.argmax(DotProduct().ranker(w).scores(state, np.array([0]))[0])) == 2
    steal = LeastSteal().ranker(w)
    assert int(np.argmax(steal.scores(state, np.array([1]))[0])) == 2
    assert not steal.recommend(state, np.array([0])).keep[0][steal.recommend(state, np.array([0])).hosts[0] == 0].any(), "never to itself"


# Figures


def test_ndcg_of_the_true_order_is_one():
    truth = np.random.default_rng(0).random((20, 30))
    assert ndcg(truth, truth) == pytest.approx(1.0)
    assert hit(truth, truth) == 1.0
    assert ndcg(-truth, truth) < 0.5
    assert hit(-truth, truth) == 0.0


def test_ndcg_by_hand():
    truth = np.array([[0.9, 0.5, 0.7]])
    scores = np.array([[1.0, 3.0, 2.0]])
    best = 1 + 0.5 / math.log2(3)
    assert ndcg(scores, truth) == pytest.approx((0.5 / math.log2(3) + 1 / math.log2(4)) / best)
    assert relevance(truth).tolist() == [pytest.approx([1.0, 0.0, 0.5])]


def test_equal_hosts_are_all_best():
    truth = np.ones((3, 5))
    scores = np.random.default_rng(0).random((3, 5))
    assert ndcg(scores, truth) == 1.0
    assert hit(scores, truth) == 1.0


# Bad numbers


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"cores": np.array([0, 4])}, "cores of h0: found 0"),
        ({"threads": np.array([9, 8])}, "expected each a multiple"),
        ({"speed": np.array([1.0, np.nan])}, "speed of h1: found nan"),
        ({"memory_gb": np.array([-1.0, 1.0])}, "memory_gb of h0"),
        ({"names": ()}, "found 0 hosts"),
    ],
)
def test_hosts_that_cannot_be_are_refused(change, said):
    with pytest.raises(InputError, match=said):
        replace(hosts(2), **change)


def test_built_in_hosts_are_those_of_the_preset_in_turn():
    found = built_in_hosts(4)
    assert found.threads.tolist() == [64] * 4
    assert found.speed.tolist() == [1.0, 1.25, 1.0, 1.25]
    assert isinstance(found, Hosts)
    assert Model().smt_base == 0.25
