"""PRT: reuse against closed forms, exhaustive schedules and partitions, and what transfers do to it."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from armillary.arena import NotForThisCase
from armillary.errors import InputError
from armillary.training.pipeline import Division, LayeredWork, Layers, Links, OneFOneB, Prt, one_f_one_b_order, prt, simulate, unit_costs
from armillary.training.pipeline.planning.partition import balanced_cuts
from armillary.training.pipeline.prt import feasible_depth, ideal_seconds


def layers_of(seconds: list[float], kept: float = 1.0) -> Layers:
    f, n = np.array(seconds, float), len(seconds)
    table = np.full((n, 1), kept)
    return Layers(tuple(map(str, range(n))), ("body",) * n, ("none",), f, f, f, 0 * table, table, np.ones(n), np.ones(n), np.ones(n))


def seconds(schedule: object, reuse: int) -> float:
    return simulate(schedule, unit_costs(schedule, *[1 / reuse] * 3)).makespan  # type: ignore[arg-type]


def test_one_round_is_1f1b() -> None:
    for p, m in ((4, 8), (3, 2), (8, 8)):
        ours, plain = prt.schedule(p, m, reuse=1), one_f_one_b_order(p, m)
        assert [ours.actions(r) for r in range(p)] == [plain.actions(r) for r in range(p)]


@pytest.mark.parametrize(("reuse", "expected"), [(1, 45), (2, 34.5), (4, 29.25)])
def test_rounds_divide_the_fill(reuse: int, expected: float) -> None:
    assert seconds(prt.schedule(8, 8, reuse), reuse) == pytest.approx(expected)
    assert ideal_seconds(8, 8, reuse, 1.0, 2.0) == pytest.approx(expected)


def test_too_few_micro_batches_stall() -> None:
    found = seconds(prt.schedule(8, 4, 2), 2)
    assert found > 3 * (4 + 7 / 2)
    assert seconds(prt.schedule(8, 4, 1), 1) / found < (4 + 7) / (4 + 7 / 2)
    assert ideal_seconds(8, 4, 2, 1.0, 0.0) == pytest.approx(9.5)


def test_transfers_make_an_interior_optimum_and_auto_finds_it() -> None:
    work = LayeredWork(layers_of([1 / 8] * 32), 4, 8, 1e9, Links(0.2 / 8 * 8))
    times = {r: work.simulate(Prt(reuse=r).plan(work)).makespan for r in range(1, 9)}
    best = min(times, key=lambda r: times[r])
    assert 1 < best < 8
    assert work.simulate(Prt(shortest_s=0.0).plan(work)).makespan == times[best]
    assert 1 < feasible_depth(8, 4, 32, 1.0, 2.0, transfer_s=0.2) < 8
    assert feasible_depth(8, 4, 32) == 8
    assert feasible_depth(8, 4, 32, shortest_s=1.0) == 3


def test_the_snake_makes_fewer_transfers() -> None:
    for p, m, r in ((4, 8, 2), (3, 4, 3), (8, 8, 2)):
        loop, turned = prt.schedule(p, m, r), prt.schedule(p, m, r, mapping="snake")
        found = [simulate(each, unit_costs(each)).transfers for each in (loop, turned)]
        assert found[0] - found[1] == 2 * m * (r - 1)
        turned.validate()
    best = seconds(prt.schedule(8, 8, 2, mapping="snake"), 2)
    assert 34.5 <= best <= 38.0


def test_two_directions_hold_two_copies_and_add_their_gradients() -> None:
    work = LayeredWork(layers_of([1.0] * 16), 4, 8, 1e9, Links(0.0, 1e3))
    one, two = Prt(reuse=2).plan(work), Prt(reuse=2, direction="two").plan(work)
    assert two.copies == 2
    assert two.division.costs(copies=2).static.sum() == 2 * one.division.costs().static.sum()  # type: ignore[union-attr]
    schedule = two.schedule
    down = set(schedule.micro[schedule.stage < 8].tolist())
    assert down.isdisjoint(schedule.micro[schedule.stage >= 8].tolist())
    transfers = simulate(schedule, two.division.costs(copies=2)).transfers
    assert work.simulate(two).sent_bytes == pytest.approx(transfers + 2 * 16)


def test_partitions_have_the_least_longest_stage() -> None:
    rng = np.random.default_rng(0)
    for _ in range(60):
        n, parts = int(rng.integers(2, 9)), int(rng.integers(1, 5))
        parts = min(parts, n)
        layers = layers_of(rng.integers(1, 9, n).astype(float).tolist())
        longest = Division.uniform(layers, balanced_cuts(layers, parts)).seconds[0].max()
        every = [Division.uniform(layers, [0, *cuts, n]).seconds[0].max() for cuts in itertools.combinations(range(1, n), parts - 1)]
        assert longest == min(every)


def shortest(p: int, m: int, depth: int) -> float:
    """The shortest makespan of any order of F (1) and B (2) on stages j mod p, by exhaustive search over semi-active schedules."""
    total = 2 * depth * m
    best = [float("inf")]

    def grow(done: dict, free: tuple[float, ...], count: int) -> None:
        if max(free) >= best[0]:
            return
        left = [0.0] * p
        for s in range(depth):
            for k in range(m):
                left[s % p] += (0 if ("F", s, k) in done else 1) + (0 if ("B", s, k) in done else 2)
        if max(f + x for f, x in zip(free, left)) >= best[0]:
            return
        if count == total:
            best[0] = max(free)
            return
        choices = []
        for s in range(depth):
            for k in range(m):
                if ("F", s, k) not in done:
                    if s == 0 or ("F", s - 1, k) in done:
                        choices.append((max(free[s % p], done.get(("F", s - 1, k), 0.0)), "F", s, k, 1.0))
                elif ("B", s, k) not in done and (s == depth - 1 or ("B", s + 1, k) in done):
                    start = max(free[s % p], done[("F", s, k)] if s == depth - 1 else done[("B", s + 1, k)])
                    choices.append((start, "B", s, k, 2.0))
        soonest = min(start + length for start, _, _, _, length in choices)
        # Giffler and Thompson: some action that starts before the soonest end on that end's rank comes next.
        rank = next(s % p for start, _, s, _, length in choices if start + length == soonest)
        for start, kind, s, k, length in choices:
            if s % p == rank and start < soonest:
                after = list(free)
                after[rank] = start + length
                grow({**done, (kind, s, k): start + length}, tuple(after), count + 1)

    grow({}, (0.0,) * p, 0)
    return best[0]


@pytest.mark.parametrize(("p", "m", "r"), [(1, 2, 1), (2, 2, 1), (2, 2, 2), (2, 3, 1), (1, 2, 2)])
def test_no_order_is_shorter_than_the_shortest(p: int, m: int, r: int) -> None:
    best = shortest(p, m, p * r)
    schedule = prt.schedule(p, m, r)
    ours = simulate(schedule, unit_costs(schedule)).makespan
    # The loop's order is the shortest of all, or within one pass of it.
    assert best <= ours <= best * 1.1


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(InputError, match="at least one round"):
        prt.schedule(4, 8, 0)
    with pytest.raises(InputError, match="even number"):
        prt.schedule(4, 3, 2, direction="two")
    with pytest.raises(InputError, match="mapping"):
        prt.schedule(4, 4, 2, mapping="circle")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="at least one layer per rank"):
        feasible_depth(8, 8, 4)
    work = LayeredWork(layers_of([1.0] * 8), 4, 3, 1e9)
    with pytest.raises(NotForThisCase, match="more than 8 layers"):
        Prt(reuse=3).plan(work)
    with pytest.raises(NotForThisCase, match="even number"):
        Prt(direction="two").plan(work)


def test_a_large_schedule_is_quick_to_make_and_valid() -> None:
    schedule = prt.schedule(64, 256, 8)
    assert len(schedule) == 64 * 8 * 256 * 2
    assert simulate(schedule, unit_costs(schedule)).makespan == pytest.approx(3 * 8 * (256 + 63 / 8))


@pytest.mark.parametrize("times", [4, pytest.param(20, marks=pytest.mark.slow)])
def test_it_is_never_slower_than_1f1b_on_the_same_layers(times: int) -> None:
    rng = np.random.default_rng(3)
    for _ in range(times):
        work = LayeredWork(layers_of(rng.uniform(0.5, 2.0, 12).tolist()), 4, int(rng.integers(1, 9)), 1e9, Links(float(rng.uniform(0, 0.3))))
        assert work.simulate(Prt().plan(work)).makespan <= work.simulate(OneFOneB().plan(work)).makespan * (1 + 1e-12)  # type: ignore[arg-type]
