"""The program for one order and one pair of micro-batches is checked by hand, by brute force, and by what must not change."""

from __future__ import annotations

import importlib.util
import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from armillary.errors import InputError
from armillary.serving.offline.adabits import best_quality
from armillary.serving.offline.planning.ilp import objective_of, relaxed, solve, solver_of
from armillary.serving.offline.planning.problem import Choice, DoesNotFit, Problem, checked_bits, even
from armillary.serving.offline.splitquant_h import heuristic, quality_start

SOLVERS = ["scipy", pytest.param("highspy", marks=pytest.mark.skipif(not importlib.util.find_spec("highspy"), reason="no highspy"))]
BITS = (4, 8, 16)


def by_hand(**changes: object) -> Problem:
    """Returns four layers on two devices with room for 6 and 20; columns are 4, 8 and 16 bits."""
    made = Problem(
        bits=BITS, memory=np.tile([1.0, 2.0, 4.0], (4, 1)), budget=np.array([6.0, 20.0]),
        prefill=np.tile([[3.0, 3.0, 2.0], [8.0, 8.0, 6.0]], (4, 1, 1)), decode=np.tile([[1.0, 2.0, 4.0], [4.0, 6.0, 10.0]], (4, 1, 1)),
        omega=np.array([[4.0, 1, 0], [5, 1, 0], [6, 1, 0], [9, 2, 0]]), micro_prefill=2, micro_decode=2, output=10,
    )  # fmt: skip
    return replace(made, **changes)  # type: ignore[arg-type]


def bits_of(choice: Choice) -> list[int]:
    return [BITS[b] for b in choice.bits]


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize(
    ("theta", "objective", "cut", "bits"),
    [(0, 101, 3, [4, 4, 4, 4]), (1, 121, 3, [4, 4, 8, 4]), (10, 190, 3, [8, 8, 8, 8]), (100, 495, 2, [8, 16, 16, 16])],
)
def test_what_quality_is_worth_moves_the_plan_as_worked_out_by_hand(
    solver: str, theta: float, objective: float, cut: int, bits: list[int]
) -> None:
    found = solve(by_hand(), theta=theta, solver=solver)  # type: ignore[arg-type]
    assert found.objective == pytest.approx(objective)
    assert int((found.choice.device == 0).sum()) == cut
    assert bits_of(found.choice) == bits


@pytest.mark.parametrize("solver", SOLVERS)
def test_a_bound_on_quality_as_worked_out_by_hand(solver: str) -> None:
    problem = by_hand()
    found = solve(problem, quality=2.0, solver=solver)  # type: ignore[arg-type]
    assert found.objective == pytest.approx(327)
    assert problem.quality(found.choice) <= 2
    assert (found.choice.device.tolist(), bits_of(found.choice)) == ([0, 0, 1, 1], [8, 16, 8, 16])


def test_the_two_phases_of_the_fastest_plan_by_hand() -> None:
    problem = by_hand()
    choice = Choice(np.array([0, 0, 0, 1]), np.zeros(4, np.int64))
    pre, dec = problem.stage_times(choice)
    assert (pre.tolist(), dec.tolist()) == ([9, 8], [3, 4])
    assert pre.sum() + pre.max() == 26
    assert dec.sum() + problem.decode_turns * dec.max() == 75
    released = by_hand(released=True)
    assert released.seconds(choice) == 26 + 7 + 1 * 9 * 4


def everything(problem: Problem) -> list[Choice]:
    """Returns every contiguous choice in which each device has a layer."""
    found = []
    for cuts in itertools.combinations(range(1, problem.layers), problem.devices - 1):
        counts = np.diff([0, *cuts, problem.layers])
        device = np.repeat(np.arange(problem.devices), counts)
        every = itertools.product(range(len(problem.bits)), repeat=problem.layers)
        found += [Choice(device, np.array(bits)) for bits in every]
    return found


@st.composite
def problems(draw: st.DrawFn, most_layers: int = 5) -> Problem:
    devices = draw(st.integers(1, 3))
    layers = draw(st.integers(max(devices, 2), most_layers))
    kinds = draw(st.sampled_from([(4, 16), (4, 8, 16), (3, 4, 8)]))
    seed = draw(st.integers(0, 2**32 - 1))
    rng = np.random.default_rng(seed)
    size = np.sort(rng.uniform(0.5, 4.0, (layers, len(kinds))), axis=1)
    omega = -np.sort(-rng.uniform(0, 5, (layers, len(kinds))), axis=1)
    if kinds[-1] == 16:
        omega[:, -1] = 0
    return Problem(
        kinds, size, rng.uniform(0.6, 3.0, devices) * size.mean() * layers / devices * 1.5,
        rng.uniform(0.1, 5, (layers, devices, len(kinds))), rng.uniform(0.1, 5, (layers, devices, len(kinds))), omega,
        draw(st.integers(1, 4)), draw(st.integers(1, 4)), draw(st.integers(1, 12)),
        rng.uniform(0, 3, devices), rng.uniform(0, 3, devices), rng.uniform(0, 1, devices), rng.uniform(0, 1, devices),
        released=draw(st.booleans()),
    )  # fmt: skip


@settings(max_examples=40, deadline=None)
@given(problem=problems(), theta=st.sampled_from([0.0, 0.5, 5.0]), bounded=st.booleans())
def test_the_optimum_is_that_of_all_cuts_and_bits(problem: Problem, theta: float, bounded: bool) -> None:
    quality = float(np.median(problem.omega.sum(0))) if bounded else None
    feasible = [c for c in everything(problem) if problem.feasible(c) and (quality is None or problem.quality(c) <= quality)]
    if not feasible:
        with pytest.raises(DoesNotFit):
            solve(problem, theta=theta, quality=quality)
        return
    least = min(objective_of(problem, c, theta) for c in feasible)
    for solver in ("scipy", "highspy"):
        found = solve(problem, theta=theta, quality=quality, gap=0.0, solver=solver)  # type: ignore[arg-type]
        assert found.objective == pytest.approx(least, rel=1e-6, abs=1e-9)
        assert problem.feasible(found.choice)
    assert relaxed(problem, theta=theta, quality=quality) <= least * (1 + 1e-6) + 1e-9


@settings(max_examples=30, deadline=None)
@given(problem=problems(), theta=st.sampled_from([0.0, 1.0]))
def test_the_program_is_no_worse_than_the_heuristic_and_that_no_worse_than_its_start(problem: Problem, theta: float) -> None:
    try:
        start, _ = best_quality(problem)
    except DoesNotFit:
        return
    least = min(problem.quality(c) for c in everything(problem) if problem.feasible(c))
    assert problem.quality(start) == pytest.approx(least, abs=1e-6)
    quick = heuristic(problem, theta=theta)
    exact = solve(problem, theta=theta, start=quick, gap=0.0)
    assert problem.feasible(quick)
    tiny = 1 + 1e-6
    assert exact.objective <= objective_of(problem, quick, theta) * tiny
    assert objective_of(problem, quick, theta) <= objective_of(problem, quality_start(problem), theta) * tiny


def random_problem(seed: int) -> Problem:
    """Returns a problem of three to eight layers whose devices differ in both phases, with sizes and times that depend on bits."""
    rng = np.random.default_rng(seed)
    devices = int(rng.integers(2, 4))
    layers, kinds = int(rng.integers(3, 9)), np.array([3, 4, 8, 16])
    size = kinds / 4 * rng.uniform(0.9, 1.1, (layers, 1))
    prefill = rng.uniform(0.5, 3, devices)[:, None] * (1 + 0.1 * (16 - kinds) / 16) * np.ones((layers, 1, 1))
    decode = rng.uniform(0.5, 3, devices)[:, None] * kinds / 16 * np.ones((layers, 1, 1))
    omega = np.where(kinds == 16, 0, (16 - kinds) ** 2 / 30) * rng.uniform(0.5, 1.5, (layers, 1))
    budget = rng.uniform(0.6, 3, devices) * size.mean() * layers / devices
    turns = [int(x) for x in rng.integers(1, (5, 5, 12))]
    return Problem((3, 4, 8, 16), size, budget, prefill, decode, omega, *turns)


@pytest.mark.parametrize(("bounded", "count"), [(False, 30), (True, 12), pytest.param(True, 30, marks=pytest.mark.slow)])
def test_the_heuristic_is_near_the_best_on_small_problems(bounded: bool, count: int) -> None:
    """It ended 21 to 44 % from the best; 15 % is allowed."""
    worse = []
    for seed in range(count):
        problem = random_problem(seed)
        quality = float(np.median(problem.omega.sum(0))) if bounded else None
        try:
            best = solve(problem, quality=quality, gap=0.0).objective
        except DoesNotFit:
            continue
        worse.append(objective_of(problem, heuristic(problem, quality=quality), 0.0) / best - 1)
    assert len(worse) > 2 * count / 3
    assert max(worse) <= 0.15
    assert np.mean(worse) <= 0.01


def test_what_is_installed_does_not_choose_the_solver() -> None:
    assert solver_of("auto") == "scipy"


def test_the_heuristic_moves_layers_off_the_straggler() -> None:
    problem = by_hand()
    start, quick = quality_start(problem), heuristic(problem)
    assert problem.quality(start) == 0.0  # one layer of 16 bits on the first device, three on the second
    assert problem.seconds(quick) < problem.seconds(start)
    assert solve(problem, start=quick).objective == pytest.approx(101)
    assert problem.quality(heuristic(problem, quality=2.0)) <= 2.0


def test_dearer_quality_never_loses_more_of_it() -> None:
    problem, before = by_hand(), (np.inf, -np.inf)
    for theta in (0, 0.3, 1, 3, 10, 30, 100, 1000):
        choice = solve(problem, theta=theta, gap=0.0).choice
        now = (problem.quality(choice), problem.seconds(choice))
        assert now[0] <= before[0] + 1e-9
        assert now[1] >= before[1] - 1e-9
        before = now


def test_with_memory_enough_and_quality_dear_all_is_16_bits() -> None:
    found = solve(by_hand(budget=np.array([1e3, 1e3])), theta=1e6)
    assert bits_of(found.choice) == [16] * 4


def test_one_device_takes_all() -> None:
    whole = by_hand()
    one = replace(
        whole, budget=np.array([20.0]), prefill=whole.prefill[:, :1], decode=whole.decode[:, :1], names=("only",),
        send_prefill=np.zeros(1), send_decode=np.zeros(1), once_prefill=np.zeros(1), once_decode=np.zeros(1),
    )  # fmt: skip
    found = solve(one)
    assert found.choice.device.tolist() == [0, 0, 0, 0]
    assert found.objective == pytest.approx(12 + 12 + 4 + 17 * 4)


def test_a_device_without_memory_is_named_or_left_empty() -> None:
    problem = by_hand(budget=np.array([0.0, 20.0]), names=("old", "new"))
    with pytest.raises(InputError, match="device old has 0 bytes for layers"):
        solve(problem)
    found = solve(problem, empty=True)
    assert found.choice.device.tolist() == [1, 1, 1, 1]
    assert problem.feasible(found.choice, empty=True)


def test_too_large_a_model_says_by_how_much() -> None:
    with pytest.raises(DoesNotFit, match=r"need 4 bytes, the devices have 3 bytes for them: 1 bytes short"):
        solve(by_hand(budget=np.array([1.0, 2.0])))



def test_sends_bound_a_stage_from_below() -> None:
    slow = by_hand(send_decode=np.array([50.0, 0.0]))
    assert solve(slow).objective > solve(by_hand()).objective + 17 * (50 - 4) - 1e-6


def test_a_start_is_kept_where_time_is_out() -> None:
    problem = by_hand()
    start = Choice(np.array([0, 0, 1, 1]), np.array([1, 1, 1, 1]))
    found = solve(problem, start=start, limit_s=1e-6)
    assert found.objective <= problem.seconds(start)


@pytest.mark.parametrize("bits", [(5,), (), (4, 32), (1, 8)])
def test_bits_that_nobody_stores_are_refused(bits: tuple[int, ...]) -> None:
    with pytest.raises(InputError, match="expected some of 2, 3, 4, 8, 16"):
        checked_bits(bits)


def test_even_layers() -> None:
    assert even(10, 4) == [3, 3, 2, 2]
