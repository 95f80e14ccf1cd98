"""Divided rollout, context-aware scheduling and drafts: limits, orders, bounds."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from armillary.errors import InputError
from armillary.training.rollout import (
    ContextScheduler,
    DividedRequest,
    DividedRollout,
    KvPool,
    OracleLpt,
    RolloutWork,
    RollPackerSeer,
    Seer,
    Setup,
    Verl,
    chain_of_thought,
    metrics,
)
from armillary.training.rollout.drafting import acceptance
from armillary.training.rollout.simulation import stepping as sp
from armillary.training.rollout.simulation.steps import Launch

SETUP = Setup("qwen2-vl-72b", gpus=16, tp=4, p0=64, r0=8, max_length=16384, train_tp=4)


def rollout_s(technique: Seer | Verl | OracleLpt, work: RolloutWork) -> float:
    return metrics(technique.steps(work), work)["rollout_s"]


def chains(seed: int, *, between: float = 0.9, within: float = 0.35, setup: Setup = SETUP, mean: float = 5000) -> RolloutWork:
    rng = np.random.default_rng(seed)
    return chain_of_thought(setup, 1, mean, rng, between=between, within=within)


def test_whole_requests_of_groups_of_one_without_drafts_are_verl_balanced() -> None:
    setup = Setup("qwen2.5-7b", gpus=8, tp=2, p0=40, r0=1, max_length=4096)
    rng = np.random.default_rng(4)
    work = RolloutWork.of(setup, np.full(40, 100), rng.integers(10, 4000, (40, 1)))
    divided, pinned = Seer(chunk=4096, draft="none").steps(work)[0], Verl().steps(work)[0]
    assert divided.rollout_s == pytest.approx(pinned.rollout_s, rel=1e-12)
    assert divided.tail_s == pytest.approx(pinned.tail_s, rel=1e-12)


@settings(max_examples=12, deadline=None)
@given(
    st.integers(0, 2**31),
    st.sampled_from([1, 37, 512, 4096]),
    st.sampled_from(["memory", "best", "none"]),
    st.sampled_from(["context", "fifo"]),
)
def test_nothing_is_ever_preempted_and_all_is_said(seed: int, chunk: int, draft: str, order: str) -> None:
    setup = Setup("qwen2-vl-72b", gpus=8, tp=4, p0=6, r0=4, max_length=2048, train_tp=4)
    rng = np.random.default_rng(seed)
    work = chain_of_thought(setup, 1, 120 if chunk < 100 else 600, rng)
    launch = Launch(work, np.arange(6), 4)
    seer = Seer(chunk=chunk, draft=draft, order=order)  # type: ignore[arg-type]
    # Little KV: only a few chunks fit at once.
    instances = replace(setup.instances(), kv_tokens=4160)
    rollout = DividedRollout(
        launch, instances, ContextScheduler(2048, order), seer.pool(setup), chunk=chunk, max_length=2048, accept=seer.accept(work),
        best_draft=draft == "best",
    )  # fmt: skip
    capacity = rollout.generation.state.eng[:, sp.FREE].copy()
    rollout.run()
    assert rollout.generation.preemptions == 0
    assert (rollout.generation.done == launch.length).all()
    assert (rollout.generation.state.eng[:, sp.FREE] == capacity).all()
    assert len(rollout.scheduler) == 0
    assert rollout.promised.max() == 0


def test_equal_lengths_gain_nothing_from_scheduling() -> None:
    work = RolloutWork.of(SETUP, np.full(64, 200), np.full((64, 8), 3000))
    assert rollout_s(Seer(draft="none"), work) == pytest.approx(rollout_s(Seer(draft="none", order="fifo"), work), rel=0.01)


def test_probes_run_first_the_shortest_so_far_first() -> None:
    scheduler = ContextScheduler(1000)
    for g in range(3):
        for i in range(3):
            scheduler.submit((g, i), g, kv_tokens=10)
    first = [scheduler.next(100) for _ in range(3)]
    assert first == [(0, 0), (1, 0), (2, 0)]
    for (g, i), made in zip(first, (300, 100, 200), strict=True):  # type: ignore[misc]
        scheduler.submit((g, i), g, generated=made, kv_tokens=10)
    assert [scheduler.next(100) for _ in range(3)] == [(1, 0), (2, 0), (0, 0)]
    scheduler.finish((1, 0), 120)
    # Group 1 is known to be short now; the others count as long as can be.
    assert scheduler.estimate(1) == 120
    assert scheduler.estimate(0) == 1000
    assert [scheduler.next(100) for _ in range(6)] == [(0, 1), (0, 2), (2, 1), (2, 2), (1, 1), (1, 2)]
    assert scheduler.next(100) is None


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 1000)), min_size=1, max_size=40))
def test_estimates_are_never_below_a_finished_sibling(finished: list[tuple[int, int]]) -> None:
    scheduler = ContextScheduler(1000)
    longest: dict[int, int] = {}
    for k, (g, length) in enumerate(finished):
        scheduler.submit(k, g)
        scheduler.finish(k, length)
        longest[g] = max(length, longest.get(g, 0))
        assert all(scheduler.estimate(g) == most for g, most in longest.items())
    assert scheduler.estimate("unseen") == 1000


def test_a_request_that_does_not_fit_lets_others_pass() -> None:
    scheduler = ContextScheduler(1000, "fifo")
    scheduler.submit("large", 0, kv_tokens=500)
    scheduler.submit("small", 1, kv_tokens=50)
    assert scheduler.next(100) == "small"
    assert scheduler.next(100) is None
    assert len(scheduler) == 1
    assert scheduler.next(500) == "large"
    scheduler.submit("gone", 2)
    scheduler.cancel("gone")
    assert scheduler.next(1e9) is None


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(1, 60), min_size=1, max_size=7), st.integers(1, 3))
def test_known_lengths_keep_grahams_bound(lengths: list[int], machines: int) -> None:
    """List scheduling with the longest first takes at most 4/3 - 1/(3m) times the best of all assignments."""
    scheduler = ContextScheduler(60, "known", dict(enumerate(lengths)))
    for q in range(len(lengths)):
        scheduler.submit(q, q)
    free = [0] * machines
    while (q := scheduler.next(1)) is not None:
        r = free.index(min(free))
        free[r] += lengths[q]  # type: ignore[index]
    best = min(
        max(sum(x for x, where in zip(lengths, to, strict=True) if where == r) for r in range(machines))
        for to in itertools.product(range(machines), repeat=len(lengths))
    )
    assert max(free) <= (4 / 3 - 1 / (3 * machines)) * best + 1e-9


@pytest.mark.parametrize("seed", [1, 2])
def test_alike_siblings_come_near_the_oracle(seed: int) -> None:
    """The work is several times the longest response, because probes have to run before anything is known."""
    work = chains(seed, between=0.96, within=0.0, setup=replace(SETUP, p0=256))
    assert rollout_s(Seer(draft="none"), work) < rollout_s(Seer(draft="none", order="fifo"), work)
    assert rollout_s(Seer(draft="none"), work) <= 1.03 * rollout_s(OracleLpt(), work)


@pytest.mark.parametrize("seed", [1, 2])
def test_unlike_siblings_lose_little_against_first_come_first_served(seed: int) -> None:
    work = chains(seed, between=0.0, within=0.96)
    assert rollout_s(Seer(draft="none"), work) <= 1.05 * rollout_s(Seer(draft="none", order="fifo"), work)


def test_drafts_end_where_compute_begins_and_grow_as_the_batch_drains() -> None:
    launch = Launch(chains(1), np.arange(4), 8)
    state = Seer().rollout(launch).generation.state
    drafts = [sp._drafts(state, 0, batch, 3000.0 * batch)[0] for batch in (1024, 512, 64, 8, 1)]
    assert drafts[0] == 0
    assert drafts == sorted(drafts)
    assert drafts[-1] >= 8
    # As many as fit within 1.05 of an iteration without drafts, and no more.
    for batch in (8, 64):
        fixed = state.rate[1] * 3000.0 * batch + state.rate[2] + state.rate[3] * batch
        draft, paths = sp._drafts(state, 0, batch, 3000.0 * batch)
        plain = state.body[batch] + state.head[batch] + fixed
        now = batch * (1 + draft * paths)
        assert state.body[now] + state.head[now] + fixed <= 1.05 * plain
        if draft < sp.MOST_DRAFT:
            more = batch * (2 + draft)
            assert state.body[more] + state.head[more] + fixed > 1.05 * plain


def test_drafts_shorten_the_rollout() -> None:
    work = chains(3)
    assert rollout_s(Seer(), work) < 0.95 * rollout_s(Seer(draft="none"), work)
    assert rollout_s(Seer(draft="best"), work) < rollout_s(Seer(), work)


def test_a_slow_pool_makes_divided_rollout_slower_than_verl() -> None:
    work = chains(2)
    assert rollout_s(Seer(draft="none", chunk=1024), work) < rollout_s(Verl(), work)
    assert rollout_s(Seer(draft="none", chunk=1024, pool_rate=1e6), work) > rollout_s(Verl(), work)


def test_the_pool_counts_bytes_and_queues_reads() -> None:
    pool = KvPool(host_bytes=100.0, ssd_bytes=100.0, rate=10.0, ssd_rate=1.0, token_bytes=1.0)
    assert pool.put(0, 80, 20, now=5.0) == pytest.approx(7.0)
    # Twenty bytes of room are left on the host; the rest goes to SSD.
    assert pool.put(1, 40, 40, now=5.0) == pytest.approx(5.0 + 2.0 + 20.0)
    assert (pool.held, pool.spilled) == (100.0, 20.0)
    assert pool.get(0, 3, now=10.0) == pytest.approx(18.0)
    # The same ports are busy until 18 s.
    assert pool.get(1, 3, now=10.0) == pytest.approx(18.0 + 2.0 + 20.0)
    assert (pool.held, pool.spilled, pool.moved_bytes) == (0.0, 0.0, 120.0)
    assert pool.beyond == 0.0
    pool.put(2, 250, 250, now=50.0)
    assert (pool.held, pool.spilled, pool.beyond) == (100.0, 150.0, 50.0)
    with pytest.raises(InputError, match="at least one chunk"):
        pool.check(1000)


def test_a_pool_smaller_than_a_chunk_is_refused() -> None:
    with pytest.raises(InputError, match="at least one chunk"):
        Seer(host_bytes=1e6, ssd_bytes=0.0).steps(chains(1))


def test_a_divided_request_keeps_count() -> None:
    request = DividedRequest("r", "g", prompt_tokens=10, max_tokens=20, chunk=8)
    assert (request.next_max_tokens, request.kv_tokens) == (8, 18)
    assert not request.made(8, stopped=False)
    assert not request.made(8, stopped=False)
    assert (request.next_max_tokens, request.kv_tokens) == (4, 30)
    with pytest.raises(InputError, match="at most 4"):
        request.made(5, stopped=False)
    assert request.made(4, stopped=False)
    assert request.next_max_tokens == 0
    short = DividedRequest("r", "g", 10, 20, 8)
    assert short.made(3, stopped=True)
    with pytest.raises(InputError):
        DividedRequest("r", "g", 10, 20, 0)


@pytest.mark.parametrize(("arguments", "says"), [((0,), "max_length"), ((5, "oldest"), "order"), ((5, "known"), "lengths")])
def test_bad_schedulers_are_refused(arguments: tuple, says: str) -> None:
    with pytest.raises(InputError, match=says):
        ContextScheduler(*arguments)
    scheduler = ContextScheduler(5)
    scheduler.submit(1, 0)
    with pytest.raises(InputError, match="waits already"):
        scheduler.submit(1, 0)


def test_measured_drafts_replace_the_published_ones() -> None:
    work = chains(3)
    sure = RolloutWork.of(work.setup, work.prompt, work.length, accept=acceptance.table(np.full(8, 0.9)))
    assert rollout_s(Seer(), sure) < rollout_s(Seer(), work)
    never = RolloutWork.of(work.setup, work.prompt, work.length, accept=acceptance.table(np.zeros(8)) ** 0)
    assert rollout_s(Seer(), never) >= rollout_s(Seer(draft="none"), work)


def test_both_together_train_on_everything() -> None:
    setup = Setup("qwen2.5-7b", gpus=8, tp=2, p0=8, r0=4, max_length=4096)
    rng = np.random.default_rng(1)
    work = chain_of_thought(setup, 5, 600, rng)
    steps = RollPackerSeer(chunk=512).steps(work)
    assert sorted(p for s in steps for p in s.prompts) == list(range(40))
    assert all(len(s.lengths) == 32 for s in steps)
    assert sum(s.preemptions for s in steps) == 0
    plain = Seer(chunk=512).steps(work)
    same = RollPackerSeer(eta=1.0, chunk=512).steps(work)
    assert [s.rollout_s for s in same] == pytest.approx([s.rollout_s for s in plain])


def test_a_request_that_outlives_its_estimate_goes_before_the_groups_that_are_known_to_be_shorter() -> None:
    scheduler = ContextScheduler(10_000)
    for request, group, generated in (("short", "s", 0), ("short probe", "s", 0), ("middle", "m", 0), ("surprise", "s", 500)):
        scheduler.submit(request, group, generated, 1)
    assert scheduler.next(10) in ("short", "middle"), "the probes"
    scheduler.finish("short", 300)
    scheduler.finish("middle", 2_000)
    scheduler.submit("middle sibling", "m", 0, 1)
    order = [scheduler.next(10) for _ in range(4)]
    assert order.index("surprise") < order.index("middle sibling") < order.index("short probe")
