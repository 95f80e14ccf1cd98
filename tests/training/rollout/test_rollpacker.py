"""Tail batching, time-outs, parallelism and streamed training: by hand, as properties, and as limits that give verl again."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from armillary.errors import InputError
from armillary.training.rollout import (
    AdaptiveTimeout,
    OneStepAsync,
    PartialRollout,
    RlhFuse,
    RolloutWork,
    RollPacker,
    Setup,
    StreamTrainer,
    TailBatcher,
    TpController,
    Verl,
    combine_gradients,
    metrics,
    mix,
)
from armillary.training.rollout.rewards.reward import Pool, Rewards, judge_s
from armillary.training.rollout.scheduling.stream_trainer import half, streamed
from armillary.training.rollout.scheduling.tail_batcher import Round

OFF = {"reward": "after", "parallelism": False, "stream": "none"}


def small(seed: int = 1, steps: int = 5, p0: int = 8, **size: int) -> RolloutWork:
    rng = np.random.default_rng(seed)
    return mix(Setup("qwen2.5-7b", **{"gpus": 8, "tp": 2, "p0": p0, "r0": 4, "max_length": 4096, **size}), steps, rng)


def play(batcher: TailBatcher, now: Round, lengths: dict[tuple[int, int], float]) -> list[tuple[int, int]]:
    """Ends the round's responses in the order of their lengths; returns the requests that were aborted."""
    aborted: list[tuple[int, int]] = []
    order = sorted((lengths[(p, j)], p, j) for p in now.prompts for j in range(now.launch))  # type: ignore[index]
    for _, p, j in order:
        if (p, j) in aborted:
            continue
        reply = batcher.finished(p, j)
        aborted += reply.abort  # type: ignore[arg-type]
        if reply.round_done:
            return aborted
    raise AssertionError("the round did not end")


def test_a_figure_sized_example_by_hand() -> None:
    """With P0 = R0 = 3 and η = 4/3, four prompts × four responses run and the slowest prompt waits; three of those fill a long round."""
    batcher = TailBatcher(12, p0=3, r0=3, eta=4 / 3)
    slow = []
    for k in range(3):
        now = batcher.round()
        assert now == Round("short", tuple(range(4 * k, 4 * k + 4)), 4, 3)
        last = 4 * k + k
        lengths = {(p, j): 10 * j + p + (100 if p == last else 0) for p in now.prompts for j in range(4)}
        aborted = play(batcher, now, lengths)
        assert {p for p, _ in aborted if p != last} == set(now.prompts) - {last}
        assert [(p, j) for p, j in aborted if p != last] == [(p, 3) for p in sorted(set(now.prompts) - {last})]
        assert all(batcher.kept(p) == (0, 1, 2) for p in batcher.trained)
        slow.append(last)
    assert batcher.queue == slow
    long = batcher.round()
    assert long == Round("long", tuple(slow), 3, 3)
    play(batcher, long, {(p, j): float(p + j) for p in slow for j in range(3)})
    assert batcher.round() is None


def test_the_published_sizes_round_up() -> None:
    batcher = TailBatcher(1280, p0=128, r0=8, eta=1.25)
    assert (batcher.launch_prompts, batcher.launch_responses) == (160, 10)


def test_four_short_rounds_make_a_long_one() -> None:
    work = small(steps=10)
    kinds = [s.kind for s in RollPacker(**OFF).steps(work)]
    assert kinds == (["short"] * 4 + ["long"]) * 2


def test_eta_of_one_is_verl() -> None:
    work = small()
    ours, theirs = RollPacker(eta=1.0, **OFF).steps(work), Verl().steps(work)
    assert len(ours) == len(theirs)
    for a, b in zip(ours, theirs, strict=True):
        assert a.seconds == pytest.approx(b.seconds, rel=1e-12)
        assert a.prompts == b.prompts
        assert (np.sort(a.lengths) == np.sort(b.lengths)).all()


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 6), st.integers(1, 4), st.sampled_from([1.0, 1.1, 1.25, 1.5, 2.0]), st.integers(0, 40), st.integers(0, 2**31))
def test_every_prompt_is_trained_on_once_an_epoch(p0: int, r0: int, eta: float, more: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    n = math.ceil(eta * p0) + more
    batcher, trained = TailBatcher(n, p0, r0, eta), []
    while (now := batcher.round()) is not None:
        lengths = {(p, j): float(rng.lognormal(6, 1)) for p in now.prompts for j in range(now.launch)}
        play(batcher, now, lengths)  # type: ignore[arg-type]
        for p in batcher.trained:
            # The kept responses are the first R0 to end.
            order = sorted(range(now.launch), key=lambda j: lengths[(p, j)])
            assert set(batcher.kept(p)) == set(order[:r0])
        assert len(batcher.trained) == now.needed
        trained += batcher.trained
        assert now.kind == "long" or now.launch * len(now.prompts) > p0 * r0
    assert sorted(trained) == list(range(n))


def test_ties_are_kept_by_id() -> None:
    batcher = TailBatcher(2, p0=1, r0=2, eta=1.5)
    assert batcher.round() == Round("short", (0, 1), 3, 1)
    assert not batcher.finished(0, 0).abort
    reply = batcher.finished(0, 1)
    assert reply.round_done
    assert reply.abort == ((0, 2), (1, 0), (1, 1), (1, 2))
    assert batcher.finished(0, 2) == type(reply)()
    assert batcher.kept(0) == (0, 1)


def test_dapo_drops_prompts_that_teach_nothing_and_takes_others() -> None:
    batcher = TailBatcher(5, p0=2, r0=2, eta=1.0, dapo=True)
    now = batcher.round()
    assert now is not None
    assert now.prompts == (0, 1)
    batcher.finished(0, 0, 1.0)
    reply = batcher.finished(0, 1, 1.0)
    assert (reply.launch, reply.round_done, batcher.dropped) == ((2,), False, (0,))
    for p in (1, 2):
        batcher.finished(p, 0, 0.0)
        reply = batcher.finished(p, 1, 1.0)
    assert reply.round_done
    assert batcher.trained == (1, 2)
    assert 0 not in batcher.queue


def test_an_epoch_goes_on_from_its_state() -> None:
    batcher = TailBatcher(20, p0=4, r0=2, eta=1.5)
    now = batcher.round()
    assert now is not None
    play(batcher, now, {(p, j): float(p) for p in now.prompts for j in range(now.launch)})  # type: ignore[misc]
    state = batcher.state_dict()
    assert state == {"taken": 6, "queue": [4, 5], "again": []}
    other = TailBatcher(20, p0=4, r0=2, eta=1.5)
    other.load_state_dict(state)
    assert other.round() == batcher.round()
    assert other.state_dict()["again"] == [6, 7, 8, 9, 10, 11]
    with pytest.raises(InputError, match="was not taken"):
        TailBatcher(20, p0=4, r0=2, eta=1.5).load_state_dict({"taken": 2, "queue": [7]})


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"dataset": 10, "p0": 4, "r0": 2, "eta": 0.9}, "eta: found 0.9; expected at least 1"),
        ({"dataset": 4, "p0": 4, "r0": 2, "eta": 1.25}, "dataset: found 4 prompts; a round starts 5"),
        ({"dataset": 10, "p0": 4, "r0": 0}, "r0: found 4, 0"),
        ({"dataset": ["a", "a"], "p0": 1, "r0": 1}, "found a prompt twice"),
    ],
)
def test_bad_rounds_are_refused(arguments: dict, says: str) -> None:
    with pytest.raises(InputError, match=says):
        TailBatcher(**arguments)


@pytest.mark.parametrize(("anchor", "timeout"), [(0.5, 2.0), (10.0, 15.0), (25.0, 30.0)])
def test_time_outs_follow_the_longest_correct_run(anchor: float, timeout: float) -> None:
    timeouts = AdaptiveTimeout()
    assert timeouts.timeout("case") == 30.0
    timeouts.ran("case", 29.0, correct=False)
    assert timeouts.timeout("case") == 30.0
    timeouts.ran("case", anchor, correct=True)
    timeouts.ran("case", anchor / 2, correct=True)
    assert timeouts.timeout("case") == timeout
    assert timeouts.timeout("other") == 30.0
    with pytest.raises(InputError):
        AdaptiveTimeout(least_s=3.0, most_s=2.0)


def test_the_pool_runs_programs_in_turn_and_learns_only_what_is_over() -> None:
    pool = Pool(2, AdaptiveTimeout())
    assert pool.run(0, 0.0, 4.0, True) == 4.0
    # Handed in while the first still runs: nothing is known of the case yet.
    assert pool.run(0, 1.0, math.inf, False) == 31.0
    # The first worker is free at 4 s, and knows by then that 4 s are enough: 6 s.
    assert pool.run(0, 2.0, math.inf, False) == 10.0
    assert pool.run(1, 3.0, 1.0, True) == 11.0
    # A correct program that needs longer than the time-out is stopped, and counted.
    assert pool.run(0, 31.0, 7.0, True) == 37.0
    assert pool.stopped_correct == 1


def test_preemptions_choose_the_devices_of_an_instance() -> None:
    planner = TpController(2, most=8)
    assert planner.after(100) == 2
    assert planner.after(106) == 4
    assert TpController(2, 8).after(100) == 2
    other = TpController(2, most=8)
    other.after(100)
    assert other.after(104) == 2
    calm = TpController(4, most=8)
    assert [calm.after(0, "short") for _ in range(4)] == [4, 4, 4, 2]
    assert calm.tp("long") == 4
    assert [calm.after(0, "short") for _ in range(4)] == [2, 2, 2, 1]
    assert [calm.after(0, "short") for _ in range(8)][-1] == 1
    edge = TpController(8, most=8)
    edge.after(1)
    assert edge.after(100) == 8


def test_half_of_the_devices_is_refused_where_it_cuts_an_instance_or_a_copy() -> None:
    assert half(16, 2, 4) == 8
    assert half(12, 4, 2) is None
    assert half(16, 2, 16) is None
    assert half(24, 2, 8) is None
    assert half(7, 1, 1) is None
    assert half(4, 4, 1) is None


def test_the_combined_gradient_is_the_synchronous_one() -> None:
    rng = np.random.default_rng(3)
    x, y, w = rng.normal(size=(30, 5)), rng.normal(size=30), rng.normal(size=5)

    def gradient(rows: np.ndarray) -> np.ndarray:
        return 2 * x[rows].T @ (x[rows] @ w - y[rows]) / len(rows)

    parts = [np.arange(0, 4), np.arange(4, 11), np.arange(11, 30)]
    combined = combine_gradients([gradient(p) for p in parts], [len(p) for p in parts])
    np.testing.assert_allclose(combined, gradient(np.arange(30)), rtol=1e-12)
    assert not np.allclose(np.mean([gradient(p) for p in parts], axis=0), gradient(np.arange(30)))
    with pytest.raises(InputError):
        combine_gradients([x], [0])


def test_the_combined_gradient_of_a_network_is_the_synchronous_one() -> None:
    torch = pytest.importorskip("torch")
    generator = torch.Generator().manual_seed(1)
    x, y = torch.randn(12, 6, generator=generator, dtype=torch.float64), torch.randn(12, 3, generator=generator, dtype=torch.float64)
    net = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.Tanh(), torch.nn.Linear(8, 3)).double()

    def gradient(rows: slice) -> object:
        net.zero_grad()
        torch.nn.functional.mse_loss(net(x[rows]), y[rows]).backward()
        return torch.cat([p.grad.flatten() for p in net.parameters()])

    whole = gradient(slice(0, 12))
    assert torch.allclose(combine_gradients([gradient(slice(0, 3)), gradient(slice(3, 12))], [3, 9]), whole, rtol=1e-10)


def test_streamed_work_is_done_as_it_arrives() -> None:
    ready, work = np.array([1.0, 5.0, 9.0]), np.array([2.0, 1.0, 4.0])
    # Half the devices: 2 s of work take 4 s, from 2 to 6; then 6 to 8; the last from 9 to 12, of 8 s.
    assert streamed(ready, work, 2.0, 12.0, 0.5) == pytest.approx(2.0 + 1.0 + 1.5)
    assert streamed(ready, work, 2.0, 2.0, 0.5) == 0.0
    assert streamed(ready, work, 2.0, 100.0, 0.5) == 7.0


def test_the_stream_trainer_looks_between_a_fifth_and_a_half_every_twentieth() -> None:
    trainer = StreamTrainer(history=np.array([10.0, 20.0, 60.0]))
    assert [trainer.looks(x) for x in (0.1, 0.2, 0.22, 0.25, 0.31, 0.6)] == [False, True, False, True, True, False]
    np.testing.assert_allclose(trainer.expected(np.array([0.0, 15.0, 60.0])), [30.0, 40.0, 60.0])
    assert trainer.accepts(np.array([5]), np.array([15.0]), 45.0)
    assert not trainer.accepts(np.array([5]), np.array([15.0]), 44.0)
    assert not StreamTrainer().accepts(np.array([5]), np.array([15.0]), 1e9)


def test_streamed_training_shortens_learning_and_moves_requests() -> None:
    work = small(p0=32, steps=5)
    plain, early = (RollPacker(parallelism=False, stream=stream).steps(work) for stream in ("none", "all"))
    assert sum(s.learn_s for s in early) < sum(s.learn_s for s in plain)
    assert sum(s.rollout_s for s in early) > sum(s.rollout_s for s in plain)
    # Moved requests compute again; nothing is lost or made twice.
    assert [int(s.lengths.sum()) > 0 for s in early] == [True] * len(early)


def test_tokens_that_were_given_up_are_counted_and_cost_time() -> None:
    work = small()
    steps = RollPacker(**OFF).steps(work)
    found = metrics(steps, work)
    assert found["wasted_tokens"] > 0
    made = sum(s.made_tokens for s in steps)
    assert made - sum(int(s.lengths.sum()) for s in steps) == pytest.approx(found["wasted_tokens"] * work.steps)
    lean = RollPacker(eta_prompts=1.25, eta_responses=1.0, **OFF).steps(work)
    assert metrics(lean, work)["wasted_tokens"] < found["wasted_tokens"]
    assert found["all_tokens_per_s"] > found["rollout_tokens_per_s"]
    assert metrics(Verl().steps(work), work)["wasted_tokens"] == 0


def test_the_judge_streams_layers_that_do_not_fit() -> None:
    setup = Setup("qwen2.5-7b", gpus=8, tp=2)
    resident, streamed_all = judge_s(setup, 1000, 2, 1e12), judge_s(setup, 1000, 2, 0.0)
    assert resident < judge_s(setup, 1000, 2, 8e9) < streamed_all
    weights = float(setup.shape.weight_bytes())
    assert streamed_all == pytest.approx(weights / (2 * 50e9), rel=1e-9)
    assert judge_s(setup, 100_000, 2, 0.0) == pytest.approx(judge_s(setup, 100_000, 2, 1e12), rel=1e-9)


def test_a_judge_slows_its_instance_while_it_reads() -> None:
    setup = Setup("qwen2.5-7b", gpus=4, tp=2, p0=2, r0=2, max_length=512)
    length = np.array([[50, 500], [400, 450]])
    quiet = RolloutWork.of(setup, [100, 100], length)
    judged = RolloutWork.of(setup, [100, 100], length, task=[2, 2])
    a, b = (Verl(async_reward=True).steps(w)[0] for w in (quiet, judged))
    assert b.rollout_s > a.rollout_s
    assert b.rollout_s < 1.35 * a.rollout_s
    assert b.reward_s > a.reward_s
    assert isinstance(Rewards(judged, 2).known_s, dict)


def test_rewards_at_once_shorten_the_step() -> None:
    work = small(p0=16)
    after, at_once = Verl().steps(work), Verl(async_reward=True).steps(work)
    assert sum(s.reward_s for s in at_once) < sum(s.reward_s for s in after)
    late, learned = (RollPacker(reward=r, parallelism=False, stream="none").steps(work) for r in ("async", "adaptive"))
    assert sum(s.reward_s for s in learned) <= sum(s.reward_s for s in late)


def test_partial_rollouts_train_on_everything_and_count_old_tokens() -> None:
    work = small()
    steps = PartialRollout(share=0.1).steps(work)
    assert sorted(p for s in steps for p in s.prompts) == list(range(len(work)))
    lengths = np.concatenate([s.lengths for s in steps])
    assert lengths.sum() == work.length[:, :4].sum()
    # What goes on in the next step is not said again.
    assert sum(s.made_tokens for s in steps) == lengths.sum()
    # A response made all but its last piece of 410 tokens in earlier steps, unless siblings held it up longer.
    assert metrics(steps, work)["offpolicy_fraction"] > 0
    whole = PartialRollout(share=1.0).steps(work)
    for a, b in zip(whole, Verl().steps(work), strict=True):
        assert a.seconds == pytest.approx(b.seconds, rel=1e-12)
        assert a.offpolicy_tokens == 0


def test_one_step_async_hides_the_shorter_side() -> None:
    work = small(p0=32)
    steps = OneStepAsync(share=0.5).steps(work)
    assert steps[0].hidden_s == 0
    for before, now in itertools.pairwise(steps):
        assert now.hidden_s == pytest.approx(min(before.learn_s, now.rollout_s + now.reward_s))
        assert now.offpolicy_tokens == now.lengths.sum()
    tuned = metrics(OneStepAsync().steps(work), work)["step_s"]
    assert tuned <= metrics(steps, work)["step_s"] * 1.05


def test_rlhfuse_with_a_threshold_of_zero_is_verl_with_rewards_at_once() -> None:
    work = small()
    for a, b in zip(RlhFuse(threshold=0.0).steps(work), Verl(async_reward=True).steps(work), strict=True):
        assert a.seconds == pytest.approx(b.seconds, rel=1e-12)


def test_rlhfuse_learns_while_the_last_responses_run() -> None:
    work = small(p0=32)
    fused, plain = RlhFuse(threshold=0.2).steps(work), Verl(async_reward=True).steps(work)
    assert sum(s.learn_s for s in fused) < sum(s.learn_s for s in plain)
    # Those that were moved have computed their KV again, and share fewer instances.
    assert sum(s.rollout_s for s in fused) > sum(s.rollout_s for s in plain)
    tuned = sum(s.seconds for s in RlhFuse().steps(work))
    assert tuned <= sum(s.seconds for s in plain) * 1.02
