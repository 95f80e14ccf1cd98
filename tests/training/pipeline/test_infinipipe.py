"""InfiniPipe: equal-time cuts, packing, recomputation that fits, and plans that reduce to their baselines."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import brentq

from armillary.errors import InputError
from armillary.training.pipeline import (
    Chunk,
    ChunkSampler,
    InfiniPipe,
    Interleaved1F1B,
    Links,
    OneFOneB,
    Polynomial,
    Seq1F1B,
    SequenceWork,
    TokenCosts,
    infinipipe,
    one_f_one_b_order,
    seq_one_f_one_b,
)
from armillary.training.pipeline.chunks.checkpointing import Burden, checkpoints, live_sets
from armillary.training.pipeline.chunks.packed import packs_of, sliced
from armillary.training.pipeline.chunks.polynomial import least_squares
from armillary.training.pipeline.chunks.processor import best_fit, boundaries, process
from armillary.training.pipeline.chunks.work import check_chunks

SECONDS = Polynomial(1e-9, 1e-5, 1e-5)
PARTS = [40_000, 25_000, *[1_500] * 40]
BYTES = {"none": 40.0, "selective": 36.0, "full": 4.0}


def costs(layers: int = 8, cost: Polynomial = SECONDS) -> TokenCosts:
    return TokenCosts(layers, cost, BYTES, keys=1.0, sent=2.0, state=1e3)


def work_of(lengths: list[int], capacity: float = 1e12, ranks: int = 4, cost: Polynomial = SECONDS) -> SequenceWork:
    return SequenceWork(np.array(lengths), costs(cost=cost), ranks, capacity, max(lengths), Links(1e-6, 1e12))


def test_slices_of_equal_time_by_hand() -> None:
    ends = boundaries(4096, 4, Polynomial(1.0, 0.0, 0.0), round_to=0)
    assert ends == pytest.approx([2048, 2896.309, 3547.240, 4096], abs=1e-3)
    assert boundaries(4096, 4, Polynomial(0.0, 1.0, 0.0), round_to=0) == [1024, 2048, 3072, 4096]
    assert boundaries(4096, 4, Polynomial(1.0, 0.0, 0.0), split="tokens") == [1024, 2048, 3072, 4096]


@given(length=st.integers(10, 200_000), n=st.integers(1, 10), a=st.floats(0, 1e-6), b=st.floats(1e-9, 1e-3))
@settings(max_examples=50)
def test_boundaries_are_the_roots(length: int, n: int, a: float, b: float) -> None:
    cost = Polynomial(a, b, 0.0)
    whole = cost.of(length)
    for j, end in enumerate(boundaries(length, n, cost, round_to=0)[:-1], start=1):
        root = brentq(lambda e, j=j: cost.of(e) - j / n * whole, 0, length, xtol=1e-9 * length)
        assert end == pytest.approx(root, rel=1e-5, abs=1e-3)
    rounded = boundaries(length, n, cost)
    assert all(x < y for x, y in itertools.pairwise([0.0, *rounded]))


@given(
    lengths=st.lists(st.integers(1, 60_000), min_size=1, max_size=30), target=st.floats(0.01, 1.0), cap=st.integers(2000, 100_000),
    hybrid=st.booleans(), split=st.sampled_from(["time", "tokens"]), granularity=st.sampled_from(["mixed", "token"]),
)  # fmt: skip
@settings(max_examples=60, deadline=None)
def test_every_token_is_in_one_chunk_with_its_context(lengths, target, cap, hybrid, split, granularity) -> None:
    found = process(np.array(lengths), SECONDS, target, cap, split=split, hybrid=hybrid, granularity=granularity)
    check_chunks(found, np.array(lengths))
    assert max(chunk.tokens for chunk in found) <= cap
    for k, chunk in enumerate(found):
        assert chunk.previous in (-1, k - 1)
        assert (chunk.previous >= 0) == (chunk.context > 0)
        if not hybrid or granularity == "token":
            assert chunk.kind != "hybrid"


def test_packing_is_close_to_the_best() -> None:
    from scipy.optimize import Bounds, LinearConstraint, milp

    rng = np.random.default_rng(0)
    for _ in range(15):
        sizes = np.sort(rng.integers(10, 70, int(rng.integers(3, 10))))[::-1]
        n = len(sizes)
        used = len(set(best_fit(sizes.astype(float), sizes, 100.0, 100).tolist()))
        # x[i, j]: item i in bin j; y[j]: bin j is used.
        one, cap = np.zeros((n, n * n + n)), np.zeros((n, n * n + n))
        for i, j in itertools.product(range(n), range(n)):
            one[i, i * n + j] = 1
            cap[j, i * n + j] = sizes[i]
        cap[:, n * n :] = -100 * np.eye(n)
        cost = np.concatenate([np.zeros(n * n), np.ones(n)])
        limits = [LinearConstraint(one, 1, 1), LinearConstraint(cap, -np.inf, 0)]
        best = round(milp(cost, integrality=np.ones(len(cost)), bounds=Bounds(0, 1), constraints=limits).fun)
        assert best <= used <= best + 1


def test_equal_short_sequences_are_1f1b_without_recomputation() -> None:
    found = infinipipe.plan([1000] * 12, costs(), 4, 1e12, granularity="token", fallback=False)
    plain = one_f_one_b_order(4, 12)
    assert [found.schedule.actions(r) for r in range(4)] == [plain.actions(r) for r in range(4)]
    assert not found.recompute.any()
    whole = process(np.full(12, 1000), SECONDS, SECONDS.of(1000), 100_000)
    assert [chunk.kind for chunk in whole] == ["batch"] * 12


def test_equal_slices_can_run_as_seq1f1b() -> None:
    work = work_of([8192] * 6)
    chunks = process(work.lengths, SECONDS, SECONDS.of(8192) / 4, 100_000)
    assert len(chunks) == 24
    burden = infinipipe.burden_of(work, chunks, 4)
    flat = replace(work, costs=costs(cost=Polynomial(0.0, 2.0**-10, 0.0)), links=Links())  # exact in binary
    even = tuple(replace(chunk, slices=((chunk.slices[0][0], 2048),)) for chunk in chunks)
    found = infinipipe.elastic_schedule(flat, even, np.full(4, 2), burden, np.full(4, np.inf), in_turn=True)
    expected = seq_one_f_one_b(4, np.full(6, 4))
    assert [found.actions(r) for r in range(4)] == [expected.actions(r) for r in range(4)]


def test_backward_passes_of_slices_are_reversed_on_every_stage() -> None:
    found = infinipipe.plan([60_000, 40_000, *[900] * 40], costs(), 4, 3e7, fallback=False)
    schedule = found.schedule.validate()
    for stage in range(4):
        at = (schedule.stage == stage) & (schedule.kind == 3)
        place = {int(k): i for i, k in enumerate(schedule.micro[at])}
        for k, before in enumerate(schedule.previous_slice.tolist()):
            if before >= 0:
                assert place[k] < place[before]


@given(lengths=st.lists(st.integers(100, 50_000), min_size=1, max_size=12), capacity=st.floats(6e6, 3e7))
@settings(max_examples=4, deadline=None)
def test_what_is_simulated_fits(lengths: list[int], capacity: float) -> None:
    fits(lengths, capacity)


@pytest.mark.slow
@given(lengths=st.lists(st.integers(100, 50_000), min_size=1, max_size=12), capacity=st.floats(6e6, 3e7))
@settings(max_examples=60, deadline=None)
def test_what_is_simulated_fits_on_many_batches(lengths: list[int], capacity: float) -> None:
    fits(lengths, capacity)


def fits(lengths: list[int], capacity: float) -> None:
    try:
        found = infinipipe.plan(lengths, costs(), 4, capacity, fallback=False)
    except InputError:
        return
    assert (found.simulated.peak <= capacity).all()
    assert (found.recompute >= 0).all()
    assert (found.recompute <= 2).all()


def test_less_memory_never_means_less_recomputation() -> None:
    lengths = [20_000, 9_000, *[3_000] * 10]
    chunks = process(np.array(lengths), SECONDS, SECONDS.of(20_000) / 4, 100_000)
    work = work_of(lengths)
    burden = infinipipe.burden_of(work, chunks, 4)
    schedule = infinipipe.elastic_schedule(work, chunks, np.full(4, 2), burden, np.full(4, np.inf))
    totals = []
    for room in (4e6, 2e6, 1.5e6, 1.2e6):
        found = checkpoints(schedule, np.full(4, 2), np.zeros(4), burden, np.full(4, room))
        totals.append(np.inf if found is None else int(found.sum()))
        if found is not None:
            for s in range(4):
                for flying, kept in live_sets(schedule, s):
                    bytes_ = (2 - found[flying, s]) @ burden.none[flying] + found[flying, s] @ burden.full[flying] + 2 * burden.keys[kept].sum()
                    assert bytes_ <= room * (1 + 1e-9)
    assert totals == sorted(totals)
    assert totals[0] < totals[2]


@pytest.mark.parametrize("times", [3, pytest.param(12, marks=pytest.mark.slow)])
def test_recomputation_is_the_best_of_all(times: int) -> None:
    rng = np.random.default_rng(2)
    schedule = one_f_one_b_order(2, 4)
    for _ in range(times):
        none = rng.uniform(4, 9, 4)
        burden = Burden(none, none * 0.1, np.zeros(4), rng.uniform(1, 3, 4), np.zeros((2, 4)))
        room = np.full(2, float(none.sum() * rng.uniform(0.5, 1.3)))
        found = checkpoints(schedule, np.array([3, 3]), np.zeros(2), burden, room, gap=0.0)
        for s in range(2):
            best = np.inf
            for choice in itertools.product(range(4), repeat=4):
                pick = np.array(choice)
                fits = all((3 - pick[f]) @ none[f] + pick[f] @ burden.full[f] <= room[s] * (1 + 1e-9) for f, _ in live_sets(schedule, s))
                best = min(best, burden.again @ pick) if fits else best
            if found is None:
                assert not np.isfinite(best) or s == 1
            else:
                # The busiest stage is as fast as can be; others may trade time for fewer layers, up to the busiest.
                assert (burden.again @ found).max() >= best - 1e-9
        if found is not None:
            assert (burden.again @ found).max() <= max(_least(schedule, s, none, burden, room[s]) for s in range(2)) * (1 + 1e-6) + 1e-9


def _least(schedule, stage, none, burden, room) -> float:
    best = np.inf
    for choice in itertools.product(range(4), repeat=4):
        pick = np.array(choice)
        if all((3 - pick[f]) @ none[f] + pick[f] @ burden.full[f] <= room * (1 + 1e-9) for f, _ in live_sets(schedule, stage)):
            best = min(best, float(burden.again @ pick))
    return best


def test_early_stages_recompute_more() -> None:
    schedule = one_f_one_b_order(4, 8)
    burden = Burden(np.full(8, 40.0), np.full(8, 4.0), np.zeros(8), np.ones(8), np.zeros((4, 8)))
    found = checkpoints(schedule, np.full(4, 5), np.zeros(4), burden, np.full(4, 500.0))
    assert found is not None
    totals = found.sum(0).tolist()
    assert totals == sorted(totals, reverse=True)
    assert totals[0] > 0 == totals[-1]


def test_one_long_sequence_is_cut_and_many_short_ones_are_packed() -> None:
    token = infinipipe.plan([192_000], costs(cost=Polynomial(1e-10, 1e-6, 1e-5)), 4, 1e12)
    assert token.plan.granularity == "token"
    batch = infinipipe.plan([1000] * 256, costs(cost=Polynomial(1e-10, 1e-6, 1e-3)), 4, 1e12)
    assert batch.plan.granularity == "batch"
    assert max(len(chunk.slices) for chunk in batch.chunks) > 1


def test_chunks_below_saturation_are_not_made() -> None:
    work = work_of([3000] * 20)
    least = SECONDS.of(infinipipe.SATURATING) - SECONDS.g
    assert all(target >= least for target in infinipipe.targets(work))
    assert infinipipe.targets(work_of([500] * 3)) == [pytest.approx(least)]


def test_a_wrong_cost_model_still_gives_a_plan_that_fits() -> None:
    lengths = [50_000, 20_000, *[2_000] * 30]
    right = SequenceWork(np.array(lengths), costs(), 4, 2.5e7, 50_000)
    wrong = replace(right, costs=costs(cost=replace(SECONDS, a=2 * SECONDS.a)))
    plan = InfiniPipe(fallback=False).plan(wrong)
    found = right.simulate(plan)
    assert right.fits(found)
    assert abs(plan.predicted / found.makespan - 1) > 0.01


@pytest.mark.parametrize("times", [1, pytest.param(4, marks=pytest.mark.slow)])
def test_with_the_fallback_it_is_never_slower_than_its_rivals(times: int) -> None:
    rng = np.random.default_rng(5)
    for _ in range(times):
        lengths = np.clip(np.exp(rng.normal(7.5, 1.3, 60)), 16, 60_000).astype(int).tolist()
        work = work_of(lengths, 4e7)
        best = work.simulate(InfiniPipe().plan(work)).makespan
        for rival in (OneFOneB(), Interleaved1F1B(), Seq1F1B()):
            assert best <= work.simulate(rival.plan(work)).makespan * (1 + 1e-12), rival  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def whole() -> float:
    """The step of the whole technique on the batch that its parts are tried on."""
    return infinipipe.plan(PARTS, costs(), 4, 4e7, fallback=False).simulated.makespan


@pytest.mark.parametrize("parts", [{"split": "tokens"}, {"hybrid": False}, {"checkpoint": "uniform"}, {"checkpoint": "full"}, {"granularity": "batch"}, {"granularity": "token"}])  # fmt: skip
def test_each_part_can_be_switched_off(whole: float, parts: dict) -> None:
    found = infinipipe.plan(PARTS, costs(), 4, 4e7, fallback=False, **parts)
    check_chunks(found.chunks, np.array(PARTS))
    assert (found.simulated.peak <= 4e7).all()
    if parts != {"hybrid": False}:  # Filling last slices may lose a little.
        assert found.simulated.makespan >= whole * 0.99
    if parts == {"checkpoint": "full"}:
        assert (found.recompute == 2).all()


def test_packs_cut_into_slices_keep_their_contexts() -> None:
    work = work_of([700, 500, 300, 300, 200])
    slices = sliced(packs_of(work, 1000), 4)
    check_chunks(slices, work.lengths)
    assert sum(chunk.previous < 0 for chunk in slices) == len(packs_of(work, 1000))


def test_chunks_as_others_take_them() -> None:
    chunk = Chunk(((3, 100), (5, 20), (1, 7)), context=50)
    assert chunk.cu_seqlens().tolist() == [0, 100, 120, 127]
    assert chunk.segments == ((100, 50), (20, 0), (7, 0))
    sampler = ChunkSampler([60_000, 900, 900], SECONDS, 0.3, 100_000)
    assert len(sampler) == len(list(sampler))
    seen = sorted((i, start, count) for chunk in sampler for i, start, count in chunk)
    assert sum(count for i, _, count in seen if i == 0) == 60_000
    assert infinipipe.pack([60_000, 900, 900], 0.3, 100_000, costs()) == list(sampler)


def test_least_squares_finds_its_polynomial() -> None:
    rows = [(x * x, x, 1.0) for x in (1.0, 2.0, 5.0, 9.0)]
    assert least_squares(rows, [3 * a + 2 * b + 1 for a, b, _ in rows]) == pytest.approx((3, 2, 1))
    assert min(least_squares(rows, [-b + 20 for _, b, _ in rows])) >= 0


@pytest.mark.parametrize(
    ("lengths", "capacity", "ranks", "says"),
    [
        ([0, 5], 1e9, 4, "found 0 tokens; expected 1 to"),
        ([1 << 25], 1e9, 4, "expected 1 to"),
        ([], 1e9, 4, "at least one sequence"),
        ([1.5], 1e9, 4, "whole numbers"),
        ([1000], 1e9, 9, "9 ranks for 8 layers"),
        ([1000], 100.0, 4, "stage 0 needs 2,000 bytes"),
        ([50_000], 2.1e3, 4, "does not fit"),
    ],
)
def test_bad_input_is_refused(lengths: list, capacity: float, ranks: int, says: str) -> None:
    with pytest.raises(InputError, match=says):
        infinipipe.plan(lengths, costs(), ranks, capacity)
    if lengths == [1000] and ranks == 4:
        with pytest.raises(InputError, match="expected 1 to 500"):
            infinipipe.plan(lengths, costs(), ranks, 1e9, longest=500)
