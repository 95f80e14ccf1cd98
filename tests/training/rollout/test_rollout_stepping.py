"""The compiled loop: equal to the ground's replica, and to a plain simulator that goes token by token."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from armillary.errors import InputError
from armillary.llm import AffineCost, CostArrays, Fleet, Replica, Requests, StepCost
from armillary.training.rollout import Generation, Instances, RolloutWork, RollPacker, Setup
from armillary.training.rollout.simulation import stepping as sp
from armillary.training.rollout.simulation.steps import Launch

#: An iteration takes 10 ms, 0.1 ms per token, and 1 µs per token computed before.
COST = CostArrays(np.array([0.0, 1.0]), np.array([0.0, 1e-4]), np.zeros(2), 0.0, 1e-6, 0.0, 0.0, 0.0, 10e-3, 0.0, 0.0)


def alone(prompt: int, length: int) -> float:
    """The seconds of one request by hand: the prompt, then one token after another, each of which reads all tokens so far."""
    return (10e-3 + 1e-4 * prompt) + sum(10e-3 + 1e-4 + 1e-6 * (prompt + k) for k in range(1, length))


def test_one_request_by_hand() -> None:
    generation = Generation(Instances(1, 160, COST), [20], [5], [0])
    generation.send(0, 0)
    assert generation.next() == [0]
    assert generation.now == pytest.approx(alone(20, 5), rel=1e-12)
    assert generation.next() == []
    assert generation.made_tokens == 5


@pytest.mark.parametrize(("blocks", "seed"), [(400, 0), (60, 1), (45, 2)])
@pytest.mark.parametrize("stop", [True, False])
def test_it_is_the_ground_replica(blocks: int, seed: int, stop: bool) -> None:
    rng = np.random.default_rng(seed)
    prompt, out = rng.integers(1, 120, 60), rng.integers(1, 300, 60)
    cost = StepCost.build("qwen2.5-7b", "h100-80", tp=2, host_s=1e-3, running_s=1e-5)
    replica = Replica(blocks=blocks, cost=cost, max_batched_tokens=256, max_seqs=16, prefix_cache=False)
    home = (np.arange(60) % 3).astype(np.int32)
    truth = Fleet([replica] * 3).run(Requests.of(np.zeros(60), prompt, out), home=home)
    generation = Generation(Instances(3, blocks * 16, cost.arrays(), max_seqs=16, budget=256), prompt, out, np.arange(60))
    for q in range(60):
        generation.send(q, int(home[q]))
    while stop and generation.next():
        pass
    generation.finish()
    np.testing.assert_allclose(generation.ended_at, truth.finish, rtol=1e-11)
    assert generation.preemptions == truth.preemptions.sum()
    assert (generation.preemptions > 0) == (blocks < 100)


class TokenByToken:
    """Simulates instances as lists, one iteration after another, with enough KV for all; it shares no code."""

    def __init__(self, cost: CostArrays, instances: int, prompt: list[int], length: list[int]) -> None:
        self.cost, self.prompt, self.length = cost, prompt, length
        self.queue: list[list[int]] = [[] for _ in range(instances)]
        self.running: list[list[int]] = [[] for _ in range(instances)]
        self.flying: list[list[int]] = [[] for _ in range(instances)]
        self.end = [float("inf")] * instances
        self.out = [0] * len(prompt)
        self.gone: set[int] = set()
        self.now = 0.0

    def begin(self, r: int) -> None:
        self.running[r] = [q for q in self.running[r] if q not in self.gone] + [q for q in self.queue[r] if q not in self.gone]
        self.queue[r] = []
        tokens = context = 0
        pairs = 0.0
        for q in self.running[r]:
            if self.out[q]:
                tokens += 1
                context += self.prompt[q] + self.out[q]
            else:
                tokens += self.prompt[q]
                pairs += self.prompt[q] * (self.prompt[q] + 1) / 2
        c, b = self.cost, len(self.running[r])
        seconds = (
            float(np.interp(tokens, c.tokens, c.body_s)) + float(np.interp(b, c.tokens, c.head_s)) + c.pair_s * pairs
            + c.context_s * context + c.host_s + c.running_s * b
        )  # fmt: skip
        self.flying[r] = list(self.running[r])
        self.end[r] = self.now + seconds if b else float("inf")

    def finished(self) -> list[int]:
        """The next requests to finish."""
        while True:
            for r in range(len(self.end)):
                if self.end[r] == float("inf") and (self.queue[r] or any(q not in self.gone for q in self.running[r])):
                    self.begin(r)
            r = min(range(len(self.end)), key=lambda i: self.end[i])
            if self.end[r] == float("inf"):
                return []
            self.now, done = self.end[r], []
            for q in self.flying[r]:
                if q not in self.gone:
                    self.out[q] += 1
                    if self.out[q] == self.length[q]:
                        done.append(q)
                        self.gone.add(q)
            self.end[r] = float("inf")
            if done:
                return done


@pytest.mark.parametrize("seed", range(4))
def test_rounds_of_tail_batching_end_when_a_token_by_token_simulator_says(seed: int) -> None:
    """With P0 = 4, R0 = 3 and η = 1.5, 6 × 5 responses are started and 4 × 3 kept; the simulator counts by itself."""
    rng = np.random.default_rng(seed)
    setup = Setup("qwen2.5-7b", gpus=8, tp=2, p0=4, r0=3, max_length=400)
    length = np.minimum(np.exp(rng.normal(3.5, 1.2, (12, 10))).astype(int) + 2, 400)
    prompt = rng.integers(20, 60, 12)
    work = RolloutWork.of(setup, prompt, length)
    steps = RollPacker(eta=1.5, reward="after", parallelism=False, stream="none").steps(work)
    instances = setup.instances()
    launch = Launch(work, np.arange(6), 5)
    plain = TokenByToken(instances.cost, instances.count, work.prompt[launch.prompt].tolist(), launch.length.tolist())
    for q in range(30):
        plain.queue[(q // 5) % instances.count].append(q)
    kept: dict[int, list[int]] = {}
    complete: list[int] = []
    while len(complete) < 4:
        for q in sorted(plain.finished()):
            g = q // 5
            if g in complete:
                continue
            kept.setdefault(g, []).append(q)
            if len(kept[g]) == 3:
                complete.append(g)
                plain.gone.update(range(5 * g, 5 * g + 5))
    assert steps[0].kind == "short"
    assert steps[0].rollout_s == pytest.approx(plain.now, abs=1e-9)
    assert set(steps[0].prompts) == set(complete)
    assert sorted(steps[0].lengths) == sorted(int(launch.length[q]) for g in complete for q in kept[g])


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**31), st.integers(1, 4), st.integers(30, 80), st.booleans())
def test_blocks_and_tokens_are_conserved_whatever_is_given_up(seed: int, count: int, blocks: int, moves: bool) -> None:
    rng = np.random.default_rng(seed)
    n = 24
    prompt, target = rng.integers(1, 60, n), rng.integers(1, 200, n)
    generation = Generation(Instances(count, blocks * 16, COST, max_seqs=8, budget=64), prompt, target, np.arange(n) // 4)
    for q in range(n):
        generation.send(q, int(rng.integers(count)))
    given_up, ended = {}, set()
    while done := generation.next():
        ended.update(done)
        live = generation.live
        if len(live) and rng.random() < 0.4:
            q = int(rng.choice(live))
            if moves:
                generation.move(q, int(rng.integers(count)))
            else:
                given_up[q] = generation.abort(q)
        held = generation.state.tag[:, sp.HELD]
        for r in range(count):
            here = generation.state.tag[:, sp.HOME] == r
            assert generation.state.eng[r, sp.FREE] + held[here].sum() == blocks
            assert generation.state.eng[r, sp.FREE] >= 0
    assert ended | set(given_up) == set(range(n))
    assert not ended & set(given_up)
    assert (generation.state.eng[:, sp.FREE] == blocks).all()
    assert generation.made_tokens == target[sorted(ended)].sum() + sum(given_up.values())


def test_an_abort_counts_the_iterations_that_were_over() -> None:
    generation = Generation(Instances(1, 1600, COST), [10, 10], [100, 100], [0, 1])
    generation.send(0, 0)
    generation.send(1, 0)
    two = (10e-3 + 20e-4) + (10e-3 + 2e-4 + 1e-6 * 22) + (10e-3 + 2e-4 + 1e-6 * 24)
    assert generation.next(two + 5e-3) == []
    assert generation.abort(0) == 3
    assert generation.next() == [1]
    rest = (10e-3 + 2e-4 + 1e-6 * 26) + sum(10e-3 + 1e-4 + 1e-6 * (10 + k) for k in range(4, 100))
    assert generation.now == pytest.approx(two + rest, rel=1e-12)


def test_an_abort_between_two_iterations_is_felt_by_the_next() -> None:
    cost = AffineCost(start=0.25, token=0.125).arrays()
    generation = Generation(Instances(1, 1600, cost), [2, 2], [10, 10], [0, 1])
    generation.send_all([0, 0])
    # The prompts take 0.75 s, an iteration of two half a second, of one three eighths.
    assert generation.next(1.75) == []
    assert generation.abort(0) == 3
    assert generation.next() == [1]
    assert generation.now == 1.75 + 7 * 0.375


def test_a_slower_instance_takes_longer_from_the_next_iteration_on() -> None:
    generation = Generation(Instances(1, 160, COST), [20], [5], [0])
    generation.send(0, 0)
    generation.at(0.0125, lambda: generation.slow(0, 2.0))
    generation.next()
    first, second = 10e-3 + 2e-3, 10e-3 + 1e-4 + 1e-6 * 21
    later = sum(10e-3 + 1e-4 + 1e-6 * (20 + k) for k in (2, 3, 4))
    assert generation.now == pytest.approx(first + second + 2 * later, rel=1e-12)


def test_drafts_keep_their_mean_and_nothing_else_changes() -> None:
    cost = AffineCost(start=10e-3).arrays()
    accept = np.ones((4, 17, 4))
    accept[:, 4:, :] = 2.5
    plain = Generation(Instances(1, 1600, cost), [10], [101], [0])
    drafted = Generation(Instances(1, 1600, cost), [10], [101], [0], accept=accept)
    for each in (plain, drafted):
        each.send(0, 0)
        each.next()
    assert plain.now == pytest.approx(1.01)
    # The first token comes with the prompt, the other hundred two and a half at a time.
    assert drafted.now == pytest.approx(0.01 + 40 * 0.01)
    assert drafted.done[0] == 101


@pytest.mark.parametrize(("prompt", "target"), [([200], [10]), ([0], [3]), ([3], [0])])
def test_what_can_never_run_is_refused(prompt: list[int], target: list[int]) -> None:
    with pytest.raises(InputError):
        Generation(Instances(1, 160, COST), prompt, target, [0])
    with pytest.raises(InputError):
        Instances(0, 160, COST)
