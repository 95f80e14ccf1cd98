"""Simulated training: what spans are made of, the spec's figures for each technique, reductions, storage, failures and promises."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from armillary.errors import InputError
from armillary.llm import Model
from armillary.llm.cost.operators import element_seconds, grouped_gemm_seconds
from armillary.training.checkpoint import (
    CheckFreq,
    CheckpointWork,
    DcpAsync,
    Gemini,
    Machine,
    MoeRckpt,
    Moevement,
    NoCheckpoint,
    Opportunistic,
    Outages,
    TorchSnapshot,
    Trained,
    ablation,
    expert_load,
    moe_model,
    moe_work,
    survive,
)  # fmt: skip
from armillary.training.checkpoint.arena import drawn_outages
from armillary.training.checkpoint.moevement import parts, window_for
from armillary.training.checkpoint.planning.chunks import CHUNK, room_of
from armillary.training.checkpoint.simulation.failures import recoverable
from armillary.training.checkpoint.simulation.storage import on_storage, write_s
from armillary.training.checkpoint.workload import WARM_UP, expert_seconds, most_loaded
from armillary.workloads import Failures

A100 = Machine.of("dgx-a100", 16)
TOKENS = 4 * 2048 * 8 * 2
TECHNIQUES: list[Any] = [NoCheckpoint(), TorchSnapshot(), DcpAsync(), CheckFreq(), Gemini(), Moevement(), Opportunistic(), MoeRckpt()]


def work(how: str = "skewed", count: int = 120, seed: int = 0, load: Any = None, **more: Any) -> CheckpointWork:
    rng = np.random.default_rng(seed)
    drawn = expert_load(rng, count, 24, 8, TOKENS, how=how) if load is None else load
    return moe_work(moe_model("gpt-moe-1.3b"), A100, drawn, ep=8, sequences=4, length=2048, rng=rng, **more)


def constant(count: int) -> Any:
    one = np.random.default_rng(0).multinomial(TOKENS, [0.3, 0.2, 0.1, 0.1, 0.1, 0.1, 0.05, 0.05], 24)
    return np.tile(one[None], (count, 1, 1))


@pytest.fixture(scope="module")
def skewed() -> CheckpointWork:
    return work()


# Work


def test_seconds_of_experts_are_those_of_the_ground_floor() -> None:
    model = Model.preset("mixtral-8x7b")
    layer = model.layer(0)
    tokens = np.array([[[900, 0, 17, 4000, 1, 1, 1, 77]]])
    for ep in (1, 2, 4, 8):
        slowest = 0.0
        for mine in tokens[0, 0].reshape(ep, -1):
            products = grouped_gemm_seconds(A100.chip, mine, 2 * 14336, 4096) + grouped_gemm_seconds(A100.chip, mine, 4096, 14336)
            slowest = max(slowest, products + element_seconds(A100.chip, "act", 6.0 * 14336 * mine.sum()))
        assert expert_seconds(model, layer, tokens, ep, A100)[0, 0] == pytest.approx(slowest)


def test_an_iteration_has_the_spans_of_its_layers(skewed: CheckpointWork) -> None:
    model, plain = moe_model("gpt-moe-1.3b"), work(count=30, jitter=0.0)
    assert skewed.spans.shape[1] == 4 * model.layers + 1
    assert (skewed.expert[~skewed.backward] >= 0).sum() == model.layers
    forward, backward = (np.flatnonzero((plain.expert == 5) & (plain.backward == back))[0] for back in (False, True))
    assert plain.spans[:, backward] == pytest.approx(2 * plain.spans[:, forward])
    fast, slow = plain.spans[:, forward].argmin(), plain.spans[:, forward].argmax()
    assert plain.load[fast, 5] < plain.load[slow, 5]
    assert plain.state == pytest.approx(14 * model.params() / 16)


def test_dense_layers_join_the_span_of_their_neighbours() -> None:
    model, machine = Model.preset("deepseek-moe-16b"), Machine.of("dgx-a100", 32)
    load = np.full((22, 27, 64), 4096 * 6 * 32 // 64)
    made = moe_work(model, machine, load, ep=32, sequences=1, length=4096)
    assert made.spans.shape[1] == 4 * 27 + 1
    assert made.spans[0, 0] > made.spans[0, 2], "the first span has the dense layer too"


def test_groups_inside_a_node_leave_the_network_idle_until_the_gradients() -> None:
    inside = work(count=30, across=False)
    assert inside.spans.shape[1] == 1
    assert inside.plain_s.mean() < work(count=30).plain_s.mean()
    assert Gemini().train(inside).mean_stall_s == 0


@pytest.mark.parametrize("how", ["skewed", "balanced", "iid"])
def test_load_adds_up_and_has_the_locality_that_it_should(how: str) -> None:
    load = expert_load(np.random.default_rng(2), 60, 3, 8, 5000, how=how)
    assert (load.sum(axis=2) == 5000).all()
    share = load / 5000
    near, far = (np.abs(share[lag:] - share[:-lag]).sum(axis=2).mean() for lag in (1, 30))
    assert near > 0.8 * far if how == "iid" else near < 0.8 * far
    assert (share.max() < 0.3) == (how == "balanced")
    assert expert_load(np.random.default_rng(2), 60, 3, 8, 5000, how=how, capacity=1.25).max() <= 782


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"ep": 3}, "ep: found 3"),
        ({"ep": 16}, "ep: found 16"),
        ({"sequences": 0}, "0 × 2048 tokens"),
        ({"tokens": np.ones((30, 23, 8), int)}, "has 24 MoE layers of 8 experts"),
    ],
)
def test_work_that_cannot_be_is_refused(change: dict[str, Any], says: str) -> None:
    usual = {"tokens": np.ones((30, 24, 8), int), "ep": 8, "sequences": 1, "length": 2048}
    with pytest.raises(InputError, match=says):
        moe_work(moe_model("gpt-moe-1.3b"), A100, **{**usual, **change})
    with pytest.raises(InputError, match="inside a node of 8"):
        moe_work(
            Model.preset("deepseek-moe-16b"),
            Machine.of("dgx-a100", 32),
            np.ones((22, 27, 64), int),
            ep=32,
            sequences=1,
            length=64,
            across=False,
        )


def test_replicas_need_as_many_nodes() -> None:
    assert A100.rate(2) == min(A100.pcie / 2, A100.nic)
    assert Machine.of("dgx-a100", 32).rate(3) == min(A100.pcie / 3, A100.nic / 2)
    for replicas in (1, 3):
        with pytest.raises(InputError, match=f"replicas: found {replicas} for 2 nodes"):
            A100.rate(replicas)
    with pytest.raises(InputError, match="expected a multiple of 8"):
        Machine.of("dgx-a100", 12)


# The techniques


def test_constant_load_is_profiled_exactly_once_in_1000_iterations() -> None:
    assert MoeRckpt().train(work(load=constant(1000))).activations == 1


@pytest.mark.parametrize("how", [{}, {"repartition": False}, {"committed": True}])
def test_a_jump_of_the_load_is_profiled_within_three_iterations(how: dict[str, Any]) -> None:
    load = constant(600)
    load[500:] = TOKENS // 8
    found = np.flatnonzero(MoeRckpt(**how).train(work(load=load)).profiled)
    assert found[0] == 0
    assert 500 < found[1] <= 503


def test_load_without_locality_costs_little_more_than_gemini_and_profiles_are_bounded() -> None:
    for seed in (0, 1):
        found = work("iid", seed=seed)
        ours, theirs = MoeRckpt().train(found), Gemini().train(found)
        assert ours.iteration_s <= 1.02 * theirs.iteration_s
        assert ours.activations <= 0.5 * found.iterations


def test_skew_hurts_gemini_and_hurts_moe_rckpt_less() -> None:
    stall = {}
    for how in ("skewed", "balanced"):
        found = work(how)
        room = float(room_of(found.spans.mean(axis=0), A100.alpha_s, A100.rate(2), chunk=CHUNK).sum())
        found = found.with_state(0.7 * room)
        stall[how] = [t.train(found).mean_stall_s / found.plain_s.mean() for t in (Gemini(), MoeRckpt())]
    assert stall["skewed"][0] > 10 * stall["balanced"][0]
    assert stall["skewed"][1] < 0.7 * stall["skewed"][0]
    assert stall["skewed"][1] < 6 * stall["balanced"][1]


@pytest.mark.parametrize("how", ["skewed", "balanced"])
def test_with_room_for_a_fifth_more_the_overhead_is_at_most_five_percent(how: str) -> None:
    found = work(how)
    room = float(room_of(found.spans.mean(axis=0), A100.alpha_s, A100.rate(2), gamma=0.95, chunk=CHUNK).sum())
    run = MoeRckpt().train(found.with_state(room / 1.2))
    assert run.iteration_s <= 1.05 * NoCheckpoint().train(found).iteration_s


def test_moe_rckpt_with_one_profile_of_the_first_iterations_is_gemini(skewed: CheckpointWork) -> None:
    ours, theirs = MoeRckpt(profile="once", gamma=0.9, kappa=0.0).train(skewed), Gemini().train(skewed)
    assert ours.seconds[WARM_UP:] == pytest.approx(theirs.seconds[WARM_UP:])
    assert ours.partition_error == pytest.approx(theirs.partition_error)


def test_moevement_with_room_is_gemini_and_without_it_spreads_over_a_window(skewed: CheckpointWork) -> None:
    wide, plain = Moevement().train(skewed), Gemini().train(skewed)
    assert np.array_equal(wide.seconds, plain.seconds)
    tight = skewed.with_state(4 * skewed.state)
    sparse, whole = Moevement().train(tight), Gemini().train(tight)
    assert sparse.interval > 1
    assert sparse.mean_stall_s < 0.2 * whole.mean_stall_s


@given(st.integers(1, 40), st.floats(1, 1e12))
def test_a_window_holds_the_whole_state_and_shrinking_weights(window: int, state: float) -> None:
    found = parts(state, window)
    assert found.sum() == pytest.approx(state * (1 + (window - 1) / 2 / 7))
    assert (np.diff(found) < 0).all() or window == 1
    assert window_for(state, float(found[0]) * 1.0001, 64) <= window


def test_every_iteration_sends_the_whole_state_or_pays_for_the_rest(skewed: CheckpointWork) -> None:
    big = skewed.with_state(5 * skewed.state)
    least = big.state / A100.rate(2) - big.spans[WARM_UP:].sum(axis=1).mean()
    for technique in (Gemini(), MoeRckpt(), Opportunistic()):
        assert technique.train(big).mean_stall_s > least


def test_partitions_that_follow_the_load_are_more_accurate(skewed: CheckpointWork) -> None:
    ours, theirs = MoeRckpt().train(skewed), Gemini().train(skewed)
    assert ours.partition_error < 0.5 * theirs.partition_error


def test_each_part_can_be_switched_off(skewed: CheckpointWork) -> None:
    found = ablation(skewed)
    assert found["+ rescaling, one profile"].partition_error < found["one profile"].partition_error
    assert found["a profile every iteration"].activations == skewed.iterations
    assert found["a profile every 20 iterations"].activations == skewed.iterations // 20
    assert found["moe-rckpt"].iteration_s < found["a profile every iteration"].iteration_s


def test_free_intervals_are_as_short_as_the_spans_allow(skewed: CheckpointWork) -> None:
    tight = replace(skewed.with_state(6 * skewed.state), every=0)
    for technique in (Gemini(), MoeRckpt(), Opportunistic()):
        run = technique.train(tight)
        assert 1 < run.interval < 10
        assert run.mean_stall_s < 0.03 * tight.plain_s.mean()


@pytest.mark.parametrize("technique", TECHNIQUES, ids=lambda t: type(t).__name__)
@pytest.mark.parametrize("how", ["skewed", "iid"])
def test_a_promise_is_near_what_is_delivered(technique: Any, how: str) -> None:
    """Also on load that no plan can know, and on iterations that checkpoints fill many times over."""
    found = work(how)
    for one in (found, replace(found, every=0)):
        run = technique.train(one)
        assert run.promise_s == pytest.approx(run.iteration_s, rel=0.08)
        assert run.iteration_s >= NoCheckpoint().train(one).iteration_s


@settings(max_examples=10)
@given(st.floats(0.01, 20), st.integers(0, 3))
def test_no_technique_is_faster_than_none_or_loses_bytes(scale: float, seed: int) -> None:
    found = work(count=25, load=constant(25), seed=seed)
    found = found.with_state(scale * found.state)
    for technique in TECHNIQUES:
        run = technique.train(found)
        assert (run.seconds >= found.plain_s - 1e-9).all()
        assert np.isfinite(run.seconds).all()


def test_a_checkpoint_of_nothing_costs_nothing(skewed: CheckpointWork) -> None:
    empty = skewed.with_state(0.0)
    for technique in (*TECHNIQUES[:-1], MoeRckpt(kappa=0.0)):
        assert technique.train(empty).mean_stall_s == 0


# Storage


def steady(plain: float = 2.0, count: int = 60, **more: Any) -> CheckpointWork:
    """Iterations of `plain` seconds, all of them one span."""
    one = work(count=count, load=constant(count))
    return replace(
        one, spans=np.full((count, 1), plain), busy=np.zeros((count, 1)), update_s=0.0, expert=np.array([-1]), backward=np.array([False]), **more
    )  # fmt: skip


def test_a_write_that_is_longer_than_an_iteration_sets_the_pace() -> None:
    one = steady(state=3.5e9)
    assert write_s(one) == pytest.approx(8.0)
    run = on_storage(one, rate=7e9, overlapped=False, interval=1)
    assert run.seconds[5:] == pytest.approx(8.5), "half a second of copying, then the write"
    assert run.promise_s == pytest.approx(8.5)
    beside = on_storage(one, rate=7e9, overlapped=True, interval=4)
    assert beside.seconds[5:].reshape(-1)[: 4 * 13].reshape(13, 4).sum(axis=1) == pytest.approx(8.5)


def test_an_overlapped_copy_holds_up_only_what_is_longer_than_the_passes() -> None:
    one = steady(state=3.5e8)
    assert on_storage(one, rate=7e7, overlapped=True, interval=10).stall_s[0] == pytest.approx(5.0 - 2.0)
    assert on_storage(one, rate=7e9, overlapped=True, interval=10).mean_stall_s == 0


def test_checkfreq_keeps_its_budget_where_it_may_choose() -> None:
    for state in (1e9, 8e9, 6e10):
        one = steady(every=0, state=state, count=400)
        run = CheckFreq().train(one)
        assert run.iteration_s <= 1.04 * 2.0
        assert run.interval >= write_s(one) / 2.0 - 1


# Failures


def trained(seconds: float, **more: Any) -> Trained:
    count = 40
    return Trained(np.full(count, seconds), np.zeros(count), seconds, 0.0, **more)


def outage(horizon: float, *events: tuple[float, int]) -> Outages:
    start, part = np.array([e[0] for e in events], float), np.array([e[1] for e in events], np.int64)
    return Outages(Failures(start, part, np.zeros(len(events))), horizon, horizon / max(1, len(events)))


def test_one_failure_by_hand() -> None:
    one = steady(outages=outage(1000.0, (100.5, 0)), state=1e9)
    found = survive(one, trained(2.0, interval=4.0, latency=4, load_s=5.0, memory=True, replicas=2, saved=1e9))
    # 50 iterations are done at 100 s; the newest whole version is that of 44; training is back 15 + 120 + 5 s after the failure.
    assert found.lost == 6
    assert found.recovery_s == pytest.approx(140.0)
    assert found.done == 44 + int((1000 - 240.5) // 2)
    assert found.goodput == pytest.approx(found.done * 2.0 / 1000)


def test_without_checkpoints_training_begins_anew() -> None:
    one = steady(outages=outage(1000.0, (600.0, 0)))
    found = survive(one, NoCheckpoint().train(one))
    assert found.lost == 300
    assert found.done == ((1000 - 600 - 135) // 2)


def test_nodes_that_hold_each_others_copies_take_training_back_to_storage() -> None:
    held = {"interval": 1.0, "latency": 1, "memory": True, "replicas": 2, "saved": 1e9}
    both = steady(outages=outage(4000.0, (1000.0, 0), (1010.0, 1)), state=1e9)
    found = survive(both, trained(2.0, **held))
    assert (found.unrecoverable, found.failures) == (1, 1)
    # 8 GB per node take 16/7 s to write, so the newest version on storage is two writes old at most.
    assert 1 < found.lost <= 4
    apart = steady(outages=outage(4000.0, (1000.0, 0), (2000.0, 1)), state=1e9)
    assert survive(apart, trained(2.0, **held)).unrecoverable == 0
    never = steady(outages=outage(4000.0, (1000.0, 0), (1010.0, 1)), state=1e15)
    assert survive(never, trained(2.0, **held)).lost == 500, "nothing was written yet"


@given(st.integers(2, 7), st.integers(2, 4), st.sets(st.integers(0, 6)))
def test_memory_survives_unless_a_node_and_all_its_neighbours_die(nodes: int, replicas: int, dead: set[int]) -> None:
    gone, copies = {d for d in dead if d < nodes}, min(replicas, nodes)
    runs = [all((n + i) % nodes in gone for i in range(copies)) for n in range(nodes)]
    assert recoverable(gone, nodes, copies) == (not any(runs))


def test_exhaustively_no_loss_smaller_than_the_replicas_is_fatal() -> None:
    for nodes, replicas in ((4, 2), (5, 3), (6, 2)):
        for size in range(replicas):
            assert all(recoverable(dead, nodes, replicas) for dead in itertools.combinations(range(nodes), size))


@pytest.mark.parametrize("technique", TECHNIQUES[1:], ids=lambda t: type(t).__name__)
def test_checkpoints_pay_off_through_failures(technique: Any) -> None:
    outages = drawn_outages(np.random.default_rng(4), 2, 3600.0, 12 * 3600.0)
    one = work(count=60, every=0, outages=outages)
    with_, without = survive(one, technique.train(one)), survive(one, NoCheckpoint().train(one))
    assert without.goodput < with_.goodput < 1
    assert with_.lost < without.lost
    quiet = replace(one, outages=replace(outages, events=Failures(np.zeros(0), np.zeros(0, np.int64), np.zeros(0))))
    run = technique.train(quiet)
    assert survive(quiet, run).goodput == pytest.approx(one.plain_s[WARM_UP:].mean() / run.iteration_s, rel=1e-3)


def test_systems_in_memory_lose_about_one_iteration() -> None:
    outages = drawn_outages(np.random.default_rng(4), 2, 4 * 3600.0, 48 * 3600.0)
    one = work(count=60, every=0, outages=outages)
    lost = {type(t).__name__: survive(one, t.train(one)).lost for t in TECHNIQUES}
    assert lost["MoeRckpt"] == lost["Gemini"] <= 1.5
    assert lost["DcpAsync"] > 3


def test_most_loaded_rank() -> None:
    assert most_loaded(np.array([[1, 2, 3, 4]]), 2).tolist() == [7.0]
