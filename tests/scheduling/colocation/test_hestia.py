"""Hestia's parts: tokens, tables, candidates, decisions and moves; and what the shipped network has learned."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from colocation_scenes import PRESET, SMALL, loud_and_frail, scene_of, small
from hypothesis import given, settings
from hypothesis import strategies as st

from armillary import catalogue
from armillary.errors import InputError
from armillary.scheduling.colocation import Hestia, OracleGreedy, Packing, Scene, ablation, built_in, play
from armillary.scheduling.colocation.learning.samples import samples
from armillary.scheduling.colocation.learning.train import attention_of, fitted, mape, topologies
from armillary.scheduling.colocation.placement.candidates import SIBLINGS, SINGLE, WHOLE, Machine, Others, Weights, score_set, thread_set
from armillary.scheduling.colocation.prediction.predictors import Truth
from armillary.scheduling.colocation.prediction.scores import tables
from armillary.scheduling.colocation.prediction.tokens import features, hardware, token_arrays, tokens
from armillary.scheduling.colocation.simulation.play import relative_error, shuffled, truth
from armillary.scheduling.colocation.workload import START_H, inferred, read_off
from armillary.scheduling.contention import Applications, Fleet, Model, Topology
from armillary.streams import stream

TECHNIQUES = list(catalogue.arena("scheduling/colocation").techniques)


def technique(name: str) -> Any:
    return catalogue.arena("scheduling/colocation").technique(name)()


@pytest.mark.parametrize("name", TECHNIQUES)
@pytest.mark.parametrize("seed", [0, 1])
def test_no_thread_is_given_twice_and_every_instance_gets_its_number(name: str, seed: int) -> None:
    work = small(seed)
    played = play(work, technique(name))
    seen: set[tuple[int, int]] = set()
    for i in range(len(work)):
        m, rows = int(played.packing.server[i]), played.packing.rows(i).tolist()
        assert len(rows) == work.threads[i]
        assert 0 <= min(rows) <= max(rows) < 16
        assert seen.isdisjoint({(m, t) for t in rows})
        seen |= {(m, t) for t in rows}
    owned = played.packing.owner >= 0
    assert owned.sum() == work.threads.sum()
    assert np.array_equal(played.packing.free, 16 - owned.sum(1))


@pytest.mark.parametrize("name", TECHNIQUES)
def test_a_play_repeats_itself(name: str) -> None:
    one, other = (play(small(3), technique(name)) for _ in range(2))
    assert one.metrics() == other.metrics()
    assert np.array_equal(one.packing.held, other.packing.held)


def test_without_contention_and_with_one_generation_all_use_the_same_cpu() -> None:
    work = small(2, "calm", SMALL[:1], model=Model(smt_base=0.0))
    used = {name: play(work, technique(name)).metrics()["cpu_cores"] for name in TECHNIQUES}
    assert max(used.values()) - min(used.values()) < 1e-9 * max(used.values())


def test_the_loud_disturb_the_frail_and_not_the_other_way_round() -> None:
    apps = loud_and_frail()
    scene = scene_of(apps, [0, 1], [4, 4])
    network = Hestia().scheduler(scene)
    core, socket = network.tables[0]
    assert core[1, 0] > 2.5 * core[0, 1]
    assert socket[1, 0] > 2.5 * max(socket[0, 1], 1e-9)
    true, _ = tables(Truth(apps, Model()), scene, 2, PRESET)
    assert 3.0 < true[1, 0] / true[0, 1] < 5.0
    mutual = Hestia(symmetric=True).scheduler(scene).tables[0][0]
    assert mutual[0, 1] == mutual[1, 0]


def test_a_lone_instance_is_expected_to_use_what_it_uses_alone() -> None:
    rng = np.random.default_rng(0)
    for population in ("mixed", "sc-heavy", "ss-heavy"):
        work = built_in(rng, Fleet((PRESET,), np.zeros(1, np.int64)), population=population, instances=12, applications=12)
        for i in range(12):
            scene = scene_of(work.apps, [int(work.app[i])], [4], 0.5)
            scheduler = Hestia().scheduler(scene, known=work.scene())
            scene.packing.put(0, 0, np.arange(4))
            assert scheduler.predict(scene)[0] / 2.0 == pytest.approx(1.0, abs=0.02)


def crowded(seed: int = 0) -> tuple[Scene, Any]:
    work = built_in(np.random.default_rng(seed), Fleet((PRESET,), np.zeros(1, np.int64)), population="mixed", instances=10, applications=10)
    packing = shuffled(work, np.random.default_rng(seed))
    return work.scene(packing), work


def test_the_order_of_neighbours_and_padding_do_not_matter() -> None:
    scene, _ = crowded()
    scheduler = Hestia().scheduler(scene)
    predictor: Any = scheduler.predictor
    feats, load = features(scene)
    ids, near, far = scheduler._layout(0)
    targets = np.arange(len(ids))
    x, types, counts = token_arrays(len(ids))
    tokens(ids, near, far, targets, feats, load, hardware(PRESET), True, x, types, counts)
    before = predictor.of_tokens(x, types, counts)
    for r, n in enumerate(counts.tolist()):
        x[r, 1:n], types[r, 1:n] = x[r, 1:n][::-1].copy(), types[r, 1:n][::-1].copy()
        x[r, n:] = 1e6
    assert np.abs(predictor.of_tokens(x, types, counts) - before).max() < 1e-6


def test_tokens_say_who_shares_what() -> None:
    apps = loud_and_frail()
    scene = scene_of(apps, [0, 1, 1], [2, 1, 1])
    scene.packing.put(0, 0, [0, 32])  # both threads of core 0
    scene.packing.put(1, 0, [1])
    scene.packing.put(2, 0, [33])  # the sibling of instance 1
    scheduler = OracleGreedy().scheduler(scene, type("W", (), {"apps": apps, "model": Model(), "cpu_at": lambda self, h: scene.cpu})())
    ids, near, far = scheduler._layout(0)
    feats, load = features(scene)
    x, types, counts = token_arrays(3)
    tokens(ids, near, far, np.arange(3), feats, load, hardware(PRESET), True, x, types, counts)
    assert counts.tolist() == [5, 4, 4]
    assert types[0, :5].tolist() == [0, 3, 1, 2, 2]  # itself, hardware, its own siblings, two on the socket
    assert x[0, 2, 8] == 1.0
    assert x[0, 3, 8] == pytest.approx(1 / 16)
    assert types[1, :4].tolist() == [0, 3, 1, 2]
    assert x[1, 3, 8] == pytest.approx(2 / 16)
    tokens(ids, near, far, np.arange(3), feats, load, hardware(PRESET), False, x, types, counts)
    assert 3 not in types[:, :2]


def test_names_are_not_memorised() -> None:
    work = small(5, instances=14)
    turn = np.random.default_rng(1).permutation(len(work.apps))
    apps = Applications(*(getattr(work.apps, name)[np.argsort(turn)] for name in ("pressure", "sensitivity", "cpu_s", "cv")))
    renamed = replace(work, apps=apps, app=turn[work.app])
    one, other = play(work, Hestia()), play(renamed, Hestia())
    assert np.array_equal(one.packing.held, other.packing.held)
    assert one.metrics()["p95_stretch"] == pytest.approx(other.metrics()["p95_stretch"], rel=1e-9)


@pytest.mark.parametrize("name", ["hestia", "gradient-boosting", "core-level", "full-core", "oracle-greedy"])
def test_a_machine_without_siblings(name: str) -> None:
    work = small(1, topologies=(Topology.regular(2, 8, 1),))
    played = play(work, technique(name))
    assert (played.looks[-1].use <= 1).all()
    assert (played.packing.server >= 0).all()


def machine(core: Any, socket: Any, topology: Topology = SMALL[0]) -> Machine:
    return Machine(topology.core, topology.socket, topology.members, topology.cores_per_socket, np.array(core), np.array(socket), 0.0)


def test_thread_sets_by_hand() -> None:
    made, app = machine([[0.1, 0.5], [0.2, 0.3]], np.zeros((2, 2))), Others(np.array([0, 1]), np.array([2, 2]), np.zeros(2))
    owner = np.full(16, -1)
    out = np.empty(4, np.int64)
    # Cores 0 to 3 are socket 0; thread 8 + c is the sibling of thread c.
    assert thread_set(made, owner, app, 0, 4, WHOLE, 0, out)
    assert sorted(out) == [0, 1, 8, 9]
    assert thread_set(made, owner, app, 0, 4, SINGLE, 1, out)
    assert sorted(out) == [4, 5, 6, 7]
    assert not thread_set(made, owner, app, 0, 4, SIBLINGS, 0, out), "no core is busy"
    owner[[0, 1, 2, 3]] = [0, 1, 0, 1]
    assert thread_set(made, owner, app, 0, 2, SIBLINGS, 0, out[:2])
    assert sorted(out[:2]) == [8, 10], "beside application 0, which costs (0.1 + 0.1)/2 instead of (0.5 + 0.2)/2"
    assert not thread_set(made, owner, app, 0, 2, WHOLE, 0, out[:2])
    owner[[4, 5, 6]] = 0
    assert not thread_set(made, owner, app, 0, 1, SINGLE, 1, out[:1]), "one empty core of eight is less than 30 %"
    assert thread_set(made, owner, app, 0, 4, 0, -1, out), "the fallback takes what is free"
    assert len(set(out.tolist())) == 4


def test_a_score_by_hand() -> None:
    made = machine([[0.1, 0.5], [0.2, 0.3]], [[0.0, 0.4], [0.6, 0.0]])
    # b has two threads, of which one is here and keeps half a core busy; a keeps 1.2 cores busy.
    who, owner = Others(np.array([0, 1]), np.array([3, 2]), np.array([0.0, 0.5])), np.full(16, -1)
    owner[1] = 1
    weights = Weights(alpha=1.0, beta=0.5, gamma=0.2)
    # Beside b on core 1: a third of a's threads and half of b's. Beside itself on core 0: two of three threads.
    near = 0.5 / 3 + 0.2 / 2 + 2 * 0.1 / 3
    far = (0.5 * 0.4 + 1.2 / 2 * 0.6) / 4
    assert score_set(made, owner, who, 0, 1.2, np.array([9, 0, 8]), weights) == pytest.approx(near + 0.5 * far)
    assert score_set(made, np.full(16, -1), who, 0, 1.2, np.array([0, 1]), weights) == pytest.approx(0.2)
    turned = machine([[0.1, 0.2], [0.5, 0.3]], [[0.0, 0.4], [0.6, 0.0]])
    assert score_set(turned, owner, who, 0, 1.2, np.array([9, 0, 8]), weights) > near + 0.5 * far + 0.01, "it matters who suffers"


def test_a_move_is_made_only_if_it_pays() -> None:
    apps = loud_and_frail()
    fleet = Fleet((PRESET,), np.zeros(2, np.int64))
    packing = Packing(fleet, np.array([4, 4]))
    cpu = np.array([2.0, 2.0])
    scene = Scene(fleet, np.array([0, 1]), read_off(apps), packing, cpu, cpu / apps.cpu_s, 12.0)
    packing.put(0, 0, [0, 1, 2, 3])
    packing.put(1, 0, [32, 33, 34, 35])
    scheduler = Hestia().scheduler(scene)
    scheduler.offered = 1.0
    assert scheduler.reschedule(np.array([2.2, 3.6])) >= 1
    assert packing.server[0] != packing.server[1] or not set(packing.rows(0) % 32) & set(packing.rows(1) % 32)
    settled_moves = scheduler.reschedule(np.array([2.01, 2.01]))
    assert settled_moves == 0, "nothing is left to gain"
    scheduler.offered = 0.0
    assert scheduler.reschedule(np.array([9.0, 9.0])) == 0


def test_the_procedure_finds_the_best_place_of_a_small_server() -> None:
    """With the truth as predictor and all sets tried, no other candidate adds less CPU."""
    work = small(4, servers=2, instances=4, applications=4)
    scene = work.scene()
    scheduler = OracleGreedy().scheduler(scene, work)
    for i in range(3):
        scene.packing.put(i, *scheduler.place(i))
    options = scheduler.options(3)
    before = truth(work, scene.packing, START_H)[0]
    chosen = []
    for option in options:
        twin = scene.packing.copy()
        twin.put(3, option.server, option.rows)
        after, ids = truth(work, twin, START_H)
        chosen.append(float((after.use * work.threads[ids]).sum() - (before.use * work.threads[:3]).sum()))
        assert option.added == pytest.approx(chosen[-1], abs=1e-6), "what is promised is delivered"
    if options[0].beyond <= 1e-9:
        assert chosen[0] <= min(c for c, o in zip(chosen, options) if o.beyond <= 1e-9) + 1e-9


@settings(max_examples=10, deadline=None)
@given(st.integers(0, 10_000))
def test_put_and_take_leave_nothing_behind(seed: int) -> None:
    rng = np.random.default_rng(seed)
    packing = Packing(Fleet(SMALL, np.array([0, 1])), rng.integers(1, 5, 6))
    before = packing.copy()
    for i in range(6):
        m = int(rng.integers(0, 2))
        if packing.free[m] >= packing.k[i]:
            packing.put(i, m, rng.permutation(packing.free_rows(m))[: packing.k[i]])
    held = np.array([[(packing.owner[m, row[row >= 0]] == -1).all() for row in SMALL[m].members] for m in range(2)]).sum(1)
    assert np.array_equal(packing.empty, held)
    for i in np.flatnonzero(packing.server >= 0).tolist():
        packing.take(i)
    for name in ("owner", "free", "empty", "server", "held"):
        assert np.array_equal(getattr(packing, name), getattr(before, name))


def test_what_does_not_fit_is_refused() -> None:
    packing = Packing(Fleet(SMALL, np.array([0])), np.array([2, 2]))
    packing.put(0, 0, [0, 1])
    for rows in ([1, 2], [2], [2, 2], [2, 16], [-1, 2]):
        with pytest.raises(InputError):
            packing.put(1, 0, rows)
    with pytest.raises(InputError, match="without a place"):
        packing.put(0, 0, [4, 5])
    with pytest.raises(InputError, match="expected at most the fleet's"):
        small(0, servers=1, instances=40)


def test_every_part_changes_something() -> None:
    found = ablation(small(7, "mixed", servers=12, instances=40, applications=20))
    assert set(found) == {"hestia", "tables only", "symmetric tables", "symmetric tables only", "no hardware token", "no rescheduling"}
    whole = found["hestia"].packing.held
    differs = {name: not np.array_equal(played.packing.held, whole) for name, played in found.items() if name != "hestia"}
    assert differs["tables only"]
    assert differs["no hardware token"]
    assert not np.array_equal(found["tables only"].packing.held, found["symmetric tables only"].packing.held)


def test_predicted_use_comes_near_the_truth_on_unseen_placements_and_on_a_load_beyond_training() -> None:
    work = built_in(np.random.default_rng(11), Fleet((PRESET,), np.zeros(6, np.int64)), population="mixed", instances=60)
    packing = shuffled(work, np.random.default_rng(0))
    settled, ids = truth(work, packing, START_H)
    errors = {}
    for name in ("least-loaded", "core-level", "gradient-boosting", "hestia"):
        scene = work.scene(packing.copy())
        errors[name] = relative_error(technique(name).scheduler(scene).predict(scene)[ids], settled.use * work.threads[ids])
    assert errors["hestia"] < 0.08
    assert errors["hestia"] < errors["core-level"] < errors["least-loaded"]
    # A fleet that is busier than any training server: promises stay within the threads, and within 15 %.
    busy = replace(work, cpu=np.minimum(1.7 * work.cpu, work.threads))
    scene = busy.scene(packing.copy())
    said = Hestia().scheduler(scene).predict(scene)
    assert (said <= work.threads + 1e-9).all()
    assert relative_error(said, truth(busy, packing, START_H)[0].use * work.threads) < 0.15


def test_readings_and_applications_are_inverses_up_to_pairs() -> None:
    work = small(0)
    again = read_off(inferred(read_off(work.apps)))
    assert again == pytest.approx(read_off(work.apps), rel=1e-9)


@pytest.mark.slow
def test_training_learns_the_same_bits_twice_and_more_than_nothing() -> None:
    pytest.importorskip("torch")
    drawn = samples(stream(0, "test"), topologies(), 400)
    held = samples(stream(1, "test"), topologies(), 100)
    one, other = (fitted("attention", drawn, held, {"steps": 15}, 0) for _ in range(2))
    assert all(np.array_equal(one.arrays[name], other.arrays[name]) for name in one.arrays)
    constant = float(np.mean(np.abs(np.exp(np.median(drawn.target) - held.target) - 1)))
    assert mape(one, held) < constant
    assert (attention_of(one).of_tokens(held.x, held.types, held.counts) >= 0).all()
    assert 0 <= drawn.target.min() <= drawn.target.max() < 2
    assert len(drawn) == 400
