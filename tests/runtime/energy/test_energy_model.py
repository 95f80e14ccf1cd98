"""The model: exact systems, cut tasks, conservation, groups, wraps, weights, and what changes nothing."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import lsq_linear

from armillary.errors import InputError
from armillary.runtime.energy import (
    AutoLag,
    Average,
    BusyIdle,
    Intervals,
    Metered,
    Observed,
    Readings,
    Ridge,
    Share,
    Streaming,
    TaskPower,
    TaskTrace,
    Taskwise,
    bootstrap,
    drawn,
    intervals,
    mape,
    observe,
    overlaps,
    solve,
    standard_errors,
)  # fmt: skip
from armillary.runtime.energy.model.identifying import groups
from armillary.runtime.energy.simulation.power import NVML_LIKE, PERFECT, RAPL_LIKE, MeterModel, Truth, truth
from armillary.runtime.energy.simulation.runs import CORES, Ran, ran
from armillary.runtime.energy.sockets.hint import moves

MS = 1_000_000
EXACT_A = np.array([[0.2, 0, 0], [0.1, 0.1, 0], [0, 0.1, 0.1], [0.05, 0.05, 0.1]])
EXACT_E = np.array([12.0, 10.0, 5.0, 6.0])


def trace(rows: list[tuple[int, int, int, int]], types: tuple[str, ...] = ("a", "b", "c"), workers: int = 2, **more: Any) -> TaskTrace:
    """Rows of (start, end, type, worker)."""
    table = np.array(rows, np.int64).reshape(-1, 4)
    return TaskTrace(*(table[:, i].copy() for i in range(4)), types, tuple(map(str, range(workers))), ("cpu",) * workers, **more)


def stretches(edges: list[int], energy: Any = None) -> Intervals:
    at = np.array(edges, np.int64)
    return Intervals(at[:-1], at[1:], np.ones(len(at) - 1) if energy is None else np.asarray(energy, float))


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.Generator(np.random.PCG64DXSM(seed))


def metered(one: Ran, meter: MeterModel = RAPL_LIKE, *, misfit: str = "linear", seed: int = 1, **changes: Any) -> Metered:
    true = dataclasses.replace(truth("cpu", misfit), **changes)
    return drawn(one.trace, one.tile, range(CORES), true, meter, "package-0", rng(seed)).run


def test_the_exact_system_has_its_exact_solution() -> None:
    for options in ({}, {"weights": False}, {"nonnegative": False}, {"huber": False}):
        found = solve(EXACT_A, EXACT_E, **options)
        assert found.power == pytest.approx([60, 40, 10], abs=1e-10)
        assert np.abs(found.residual).max() < 1e-13
        assert found.outliers == ()
    model = TaskPower().fit(EXACT_A, EXACT_E, columns=["gemm", "trsm", "idle"])
    assert model.power_ == pytest.approx({"gemm": 60, "trsm": 40, "idle": 10})
    assert model.predict(EXACT_A) == pytest.approx(EXACT_E)


def test_a_task_is_cut_at_the_ends_of_intervals() -> None:
    one = trace([(30 * MS, 280 * MS, 0, 0)], ("a",), 1)
    seen = observe(one, (0,), stretches([0, 100 * MS, 200 * MS, 300 * MS]))
    assert seen.seconds[:, 0] == pytest.approx([0.07, 0.1, 0.08], abs=1e-15)
    assert seen.seconds[:, 1] == pytest.approx([0.03, 0.0, 0.02], abs=1e-15)


spans = st.lists(st.tuples(st.integers(0, 400), st.integers(0, 300), st.integers(0, 2)), max_size=40)


@given(spans, st.lists(st.integers(0, 800), min_size=2, max_size=30, unique=True), st.integers(0, 2**32 - 1))
@settings(max_examples=80, deadline=None)
def test_overlaps_are_those_of_a_brute_force_in_any_order(rows: list[tuple[int, int, int]], cuts: list[int], seed: int) -> None:
    start = np.array([a for a, _, _ in rows], np.int64)
    end = start + np.array([n for _, n, _ in rows], np.int64)
    column = np.array([j for _, _, j in rows], np.int64)
    edges = np.array(sorted(cuts), np.int64)
    first, last = edges[:-1], edges[1:]
    keep = np.arange(len(first)) % 3 != 2  # Intervals may have gaps between them.
    first, last = first[keep], last[keep]
    expected = np.zeros((len(first), 3), np.int64)
    for a, b, j in zip(start, end, column):
        expected[:, j] += np.maximum(0, np.minimum(b, last) - np.maximum(a, first))
    ones = np.ones(len(start), np.int64)
    assert (overlaps(start, end, column, ones, first, last, 3) == expected).all()
    order = rng(seed).permutation(len(start))
    assert (overlaps(start[order], end[order], column[order], ones, first, last, 3) == expected).all()


def test_worker_time_is_conserved() -> None:
    one = ran("cholesky", 14, "steal", False, 3)
    seen = metered(one).observed
    assert np.abs(seen.seconds.sum(axis=1) - CORES * seen.lengths).max() < 1e-12
    over = metered(one).intervals
    low, high = int(over.start[0]), int(over.end[-1])
    for j, name in enumerate(one.trace.types):
        rows = one.trace.type == j
        inside = np.clip(one.trace.end[rows], low, high) - np.clip(one.trace.start[rows], low, high)
        assert seen.seconds[:, seen.columns.index(name)].sum() == pytest.approx(int(inside.sum()) * 1e-9, rel=1e-12)


def test_types_in_fixed_proportion_are_one_group() -> None:
    draw = rng(4).uniform(0.01, 0.1, 60)
    seen = Observed(("a", "b", "c", "idle"), np.column_stack((2 * draw, draw, rng(5).uniform(0, 0.1, 60), rng(6).uniform(0, 0.1, 60))),
                    np.full(60, 0.1), np.ones(60), 4, (True, True, True, False))  # fmt: skip
    seen = dataclasses.replace(seen, energy=seen.seconds @ np.array([30.0, 60.0, 20.0, 5.0]))
    found = Taskwise().fit_observed(seen)
    assert found.groups == (("a", "b"), ("c",), ("idle",))
    assert found.power["a"] == found.power["b"] == pytest.approx(40.0)
    assert found.predict(seen) == pytest.approx(seen.energy)
    assert found.power["c"] == pytest.approx(20.0)
    alone = Taskwise(merging=False).fit_observed(seen)
    assert alone.condition > 1e7, "without groups the system cannot be told from a singular one"


def test_a_hidden_combination_of_three_columns_is_one_group() -> None:
    a, b = rng(7).uniform(0.01, 0.1, (2, 80))
    seen = Observed(("a", "b", "c", "d", "idle"), np.column_stack((a, b, a + b, rng(8).uniform(0, 0.1, 80), rng(9).uniform(0, 0.1, 80))),
                    np.full(80, 0.1), np.full(80, 5.0), 8, (True, True, True, True, False))  # fmt: skip
    assert groups(seen) == [[0, 1, 2], [3], [4]]


def test_a_type_in_few_intervals_gets_no_power_of_its_own() -> None:
    seconds = np.column_stack((rng(1).uniform(0.05, 0.1, 40), np.zeros(40), rng(2).uniform(0.05, 0.1, 40)))
    seconds[3, 1] = 0.01
    seen = Observed(("common", "rare", "idle"), seconds, np.full(40, 0.1), seconds @ np.array([10.0, 500.0, 1.0]), 2, (True, True, False))
    assert Taskwise().fit_observed(seen).groups == (("common", "rare"), ("idle",))


def test_a_counter_that_wraps_goes_on() -> None:
    quantum = 61e-6
    wrapped = Readings("p", np.array([0, 1, 2]), np.array([2**32 - 5, 3, 10]) * quantum, "energy", 2**32 * quantum)
    assert wrapped.steps() / quantum == pytest.approx([8, 7], rel=1e-6)
    with pytest.raises(InputError, match="falls from"):
        dataclasses.replace(wrapped, wrap_j=0.0).steps()
    with pytest.raises(InputError, match="at most its wrap"):
        dataclasses.replace(wrapped, wrap_j=1.0).steps()


def test_short_and_repeated_readings_are_merged_into_the_next() -> None:
    time = np.array([0, 100, 200, 210, 300, 400, 500]) * MS
    value = np.array([0.0, 1.0, 2.0, 2.1, 3.0, 3.0, 5.0])
    found = intervals(Readings("p", time, value))
    assert (found.start // MS).tolist() == [0, 100, 200, 300]
    assert (found.end // MS).tolist() == [100, 200, 300, 500]
    assert found.energy == pytest.approx([1.0, 1.0, 1.0, 2.0])
    assert found.energy.sum() == pytest.approx(5.0), "no energy is lost"


def test_a_counter_that_is_renewed_rarely_is_read_at_its_own_pace() -> None:
    time = np.arange(0, 1000, 10) * MS
    found = intervals(Readings("gpu0", time, np.floor(np.arange(100) / 9) * 8.1))
    assert set((found.end - found.start) // MS) == {90}


def test_a_power_that_is_read_more_often_than_it_is_renewed_counts_when_it_is() -> None:
    time = np.arange(0, 1000, 10) * MS
    value = np.repeat(np.arange(10.0, 20.0), 10)
    found = intervals(Readings("gpu0", time, value, "power"))
    assert found.energy == pytest.approx(np.arange(11.0, 20.0) * 0.1)
    steady = intervals(Readings("gpu0", time[:6], np.array([5.0, 5.0, 7.0, 7.0, 9.0, 3.0]), "power"))
    assert len(steady) == 5, "a power may stay the same for a while"


def test_order_and_names_change_nothing() -> None:
    one = ran("cholesky", 14, "priority", False, 5)
    base = Taskwise().fit(metered(one))
    order = rng(1).permutation(len(one.trace))
    t = one.trace
    mixed = dataclasses.replace(t, start=t.start[order], end=t.end[order], type=t.type[order], worker=t.worker[order], weight=t.weight[order],
                                flops=t.flops[order], bytes=t.bytes[order], keys=())  # fmt: skip
    run = metered(one)
    assert Taskwise().fit(Metered(mixed, run.readings, run.workers)).power == base.power, "bit for bit: times are whole numbers"
    names = list(t.types)
    turned = [3, 1, 0, 2]
    renamed = dataclasses.replace(t, types=tuple(names[i] for i in turned), type=np.argsort(turned)[t.type])
    again = Taskwise().fit(Metered(renamed, run.readings, run.workers)).power
    assert again == pytest.approx(base.power, rel=1e-9)
    seen = run.observed.rows(rng(2).permutation(len(run.observed.energy)))
    assert Taskwise().fit_observed(seen).power == pytest.approx(base.power, rel=1e-9)


def test_twice_the_energy_is_twice_the_power() -> None:
    run = metered(ran("cholesky", 14, "priority", False, 5))
    twice = Metered(run.trace, dataclasses.replace(run.readings, value=2 * run.readings.value), run.workers)
    one, two = Taskwise().fit(run).power, Taskwise().fit(twice).power
    assert two == pytest.approx({name: 2 * watts for name, watts in one.items()}, rel=1e-9)


def test_a_clock_that_is_off_by_three_periods_doubles_the_error() -> None:
    # Bursts with pauses, so that intervals differ; a steady mix would hide any offset.
    one = ran("cholesky", 5, "priority", False, 9, 60)
    run = metered(one, dataclasses.replace(RAPL_LIKE, delay=0.0, jitter=0.0))
    right = mape(run.observed.energy, Taskwise().fit(run).predict(run))
    late = Metered(run.trace.shifted(30 * MS), run.readings, run.workers)
    assert mape(late.observed.energy, Taskwise().fit(late).predict(late)) >= 2 * right


def test_auto_lag_finds_the_offset_and_then_the_error_is_the_old_one() -> None:
    one = ran("cholesky", 5, "priority", False, 9, 40)
    run = metered(one, dataclasses.replace(RAPL_LIKE, delay=0.0, jitter=0.0))
    right = mape(run.observed.energy, Taskwise().fit(run).predict(run))
    for off in (-13, 8):
        late = Metered(run.trace, run.readings.shifted(off * MS), run.workers)
        found = AutoLag().fit(late)
        assert abs(found.lag_ns - off * MS) < MS
        assert mape(late.observed.energy, found.predict(late)) < 1.3 * right
    kept = AutoLag().fit(run)
    assert abs(kept.lag_ns) < MS


def test_auto_lag_finds_the_window_of_a_meter_of_power() -> None:
    one = ran("cholesky", 5, "priority", False, 9, 120)
    meter = MeterModel(period=0.02, jitter=0.0, delay=0.0, quantum=0.0, window=0.005)
    run = metered(one, meter, drift=0.0)
    found = AutoLag().fit(run)
    assert found.window_s == pytest.approx(0.005, abs=0.0012)
    assert mape(run.observed.energy, found.predict(run)) < 0.7 * mape(run.observed.energy, Taskwise().fit(run).predict(run))
    assert AutoLag(windows=False).fit(run).window_s == 0.0


@pytest.mark.parametrize("graph", ["cholesky", "qr"])
def test_powers_are_found_again_without_noise(graph: str) -> None:
    one = ran(graph, 14, "steal", False, 2)
    run = metered(one, PERFECT, call_sigma=0.0, drift=0.0)
    found = Taskwise().fit(run).power
    # Times are rounded to whole nanoseconds, which every interval shares with the meter.
    expected = {name: truth("cpu", "linear").watts[name] + 35.0 / CORES for name in one.trace.types} | {"idle": 1.5 + 35.0 / CORES}
    assert found == pytest.approx(expected, rel=1e-9)
    with_base = Taskwise(base_w=35.0).fit(run).power
    assert with_base == pytest.approx({name: watts - 35.0 / CORES for name, watts in expected.items()}, rel=1e-8)


def test_powers_are_found_with_the_usual_noise() -> None:
    errors = []
    one = ran("qr", 38, "priority", False, 2)
    for seed in range(5):
        got = drawn(one.trace, one.tile, range(CORES), truth("cpu", "linear"), RAPL_LIKE, "package-0", rng(seed))
        found = Taskwise().fit(got.run)
        errors.append(np.mean([abs(found.power[name] / watts - 1) for name, watts in got.truth.items() if name != "idle"]))
    assert np.median(errors) < 0.03
    spread = bootstrap(found, draws=200)
    assert spread["tsmqr"][0] <= found.power["tsmqr"] <= spread["tsmqr"][1]
    assert 0 < standard_errors(found)["tsmqr"] < 0.2


def test_names_that_mean_nothing_do_no_harm() -> None:
    one = ran("cholesky", 30, "priority", False, 2)
    again = ran("cholesky", 30, "priority", False, 3)

    def shuffled(of: Ran, seed: int) -> Ran:
        # All tasks draw alike, and the names go to any task.
        return Ran(dataclasses.replace(of.trace, type=rng(seed).permutation(of.trace.type)), of.tile)

    same = {"watts": dict.fromkeys(truth("cpu", "linear").watts, 11.0)}
    fit, held = metered(shuffled(one, 1), seed=4, **same), metered(shuffled(again, 2), seed=5, **same)
    taskwise, plain = Taskwise().fit(fit), BusyIdle().fit(fit)
    error = [mape(held.observed.energy, model.predict(held)) for model in (taskwise, plain)]
    assert error[0] <= 1.05 * error[1]
    spread = [bootstrap(taskwise, draws=200, level=0.99)[name] for name in ("gemm", "syrk", "trsm")]
    assert max(low for low, _ in spread) < min(high for _, high in spread), "their intervals overlap"


def test_the_solver_agrees_with_scipy() -> None:
    for seed in range(20):
        draw = rng(seed)
        a = draw.uniform(0, 1, (50, 6))
        e = np.maximum(0.1, a @ np.array([5, 0, 3, -2, 8, 0.5]) + draw.normal(0, 0.5, 50))
        weight = 1.0 / np.maximum(e, np.median(e) / 10)
        bounded = lsq_linear(a * weight[:, None], e * weight, bounds=(0, np.inf), tol=1e-14)
        assert solve(a, e, huber=False).power == pytest.approx(bounded.x, abs=1e-7)
        free = np.linalg.lstsq(a * weight[:, None], e * weight, rcond=None)[0]
        assert solve(a, e, huber=False, nonnegative=False).power == pytest.approx(free, abs=1e-9)


def test_each_ablation_changes_what_it_should() -> None:
    draw = rng(3)
    a = draw.uniform(0.01, 1, (200, 3))
    e = a @ np.array([10.0, 5.0, 1.0])
    spoiled = e.copy()
    spoiled[::25] *= 4.0
    with_huber, without = (solve(a, spoiled, huber=one).power for one in (True, False))
    assert np.abs(with_huber - [10, 5, 1]).max() < 0.5 * np.abs(without - [10, 5, 1]).max()
    assert set(solve(a, spoiled * draw.normal(1, 0.01, 200)).outliers) >= set(range(0, 200, 25))
    low = solve(a, a @ np.array([10.0, 5.0, 0.0]) * draw.normal(1, 0.2, 200), nonnegative=False).power
    assert solve(a, np.maximum(0.01, a @ np.array([10.0, 5.0, -3.0]))).power.min() == 0.0
    assert solve(a, np.maximum(0.01, a @ np.array([10.0, 5.0, -3.0])), nonnegative=False).power.min() < 0.0
    assert low is not None
    wide = np.vstack((a, 100 * a))
    noisy = wide @ np.array([10.0, 5.0, 1.0]) * np.concatenate((draw.normal(1, 0.01, 200), draw.normal(1, 0.3, 200)))
    assert not np.allclose(solve(wide, noisy).power, solve(wide, noisy, weights=False).power, rtol=1e-3)


def test_baselines_by_hand() -> None:
    one = trace([(0, 100 * MS, 0, 0), (0, 100 * MS, 1, 1), (100 * MS, 200 * MS, 0, 0)], ("a", "b"))
    time = np.array([0, 100, 200, 300]) * MS
    # The trace ends at 300 ms with a task of no length, so that the idle interval counts.
    one = dataclasses.replace(one, start=np.append(one.start, 300 * MS), end=np.append(one.end, 300 * MS), type=np.append(one.type, 0),
                              worker=np.append(one.worker, 0), weight=np.append(one.weight, 1))  # fmt: skip
    run = Metered(one, Readings("p", time, np.array([0.0, 3.0, 5.0, 6.0])), (0, 1))
    share = Share().fit(run).power
    assert share == pytest.approx({"a": (1.5 + 2.0) / 0.2, "b": 1.5 / 0.1, "idle": 1.0 / 0.2})
    assert Average().fit(run).power == pytest.approx(dict.fromkeys(("a", "b", "idle"), 6.0 / 0.3 / 2))
    busy = BusyIdle().fit(run)
    # Energies 3, 2, 1 of busy worker-seconds 0.2, 0.1, 0 and idle 0, 0.1, 0.2: exactly 15 W and 5 W.
    assert busy.power == pytest.approx({"a": 15.0, "b": 15.0, "idle": 5.0})
    assert busy.predict(run) == pytest.approx([3.0, 2.0, 1.0])


def test_ridge_tends_to_least_squares_and_shrinks() -> None:
    run = metered(ran("cholesky", 20, "priority", False, 2))
    seen = run.observed
    free = solve(seen.seconds, seen.energy, nonnegative=False).power
    weak = Ridge(strength=1e-12).fit(run).power
    assert [weak[name] for name in seen.columns] == pytest.approx(free, rel=1e-4, abs=1e-4)
    strong = Ridge(strength=100.0).fit(run).power
    assert sum(strong.values()) < 0.2 * sum(weak.values())
    assert Ridge().fit(run).note.startswith("The penalty is")


def test_streaming_follows_a_change() -> None:
    stream = Streaming(forgetting=0.97)
    draw = rng(1)
    for step in range(800):
        watts = (20.0, 10.0, 2.0) if step < 400 else (20.0, 40.0, 2.0)
        a, b = draw.uniform(0, 0.1, 2)
        idle = 0.2 - a - b
        stream.update({"a": a, "b": b, "idle": idle}, a * watts[0] + b * watts[1] + idle * watts[2])
        if step == 399:
            assert stream.power == pytest.approx({"a": 20, "b": 10, "idle": 2}, rel=1e-3)
            assert stream.hungriest() == "a"
    assert stream.power == pytest.approx({"a": 20, "b": 40, "idle": 2}, rel=1e-2)
    assert stream.hungriest() == "b"
    with pytest.raises(InputError):
        stream.update({"a": 0.1}, -1.0)


def test_the_hint_moves_a_type_to_where_a_call_costs_less() -> None:
    one = TaskTrace(np.array([0, 0, 100 * MS, 10 * MS]), np.array([100, 10, 130, 20]) * MS, np.array([0, 0, 1, 1]), np.array([0, 1, 0, 1]),
                    ("gemm", "potrf"), ("0", "1"), ("cpu", "gpu"))  # fmt: skip
    from armillary.runtime.energy import Fitted

    models = {"cpu": Fitted({"gemm": 12.0, "potrf": 8.0, "idle": 2.0}), "gpu": Fitted({"gemm": 75.0 + 50.0, "potrf": 75.0 + 90.0, "idle": 75.0})}
    found = moves(one, models)
    assert [(move.type, move.source, move.target) for move in found] == [("potrf", "gpu", "cpu"), ("gemm", "cpu", "gpu")]
    assert found[1].joules_now == pytest.approx(1.0)
    assert found[1].joules_then == pytest.approx(0.5)
    assert "move gemm from cpu to gpu" in str(found[1])


def test_what_does_not_fit_is_said() -> None:
    one = trace([(0, 100 * MS, 0, 0), (100 * MS, 300 * MS, 1, 0)])
    far = Readings("p", np.array([10, 11, 12, 13]) * 10**9, np.arange(4.0))
    with pytest.raises(InputError, match=r"the trace from 0 to 0.3 s and the readings from 10 to 13 s"):
        _ = Metered(one, far, (0, 1)).observed
    near = Readings("p", np.array([0, 100, 200]) * MS, np.array([0.0, 1.0, 2.0]))
    with pytest.raises(InputError, match="intervals for"):
        Taskwise(merging=False).fit(Metered(one, near, (0, 1)))
    with pytest.raises(InputError, match="at least 3"):
        intervals(Readings("p", np.array([0, 1]), np.array([0.0, 1.0])))
    with pytest.raises(InputError, match="increase"):
        intervals(Readings("p", np.array([0, 5, 5]), np.array([0.0, 1.0, 2.0])))
    with pytest.raises(InputError, match="never changes"):
        intervals(Readings("p", np.array([0, 5, 9]), np.array([1.0, 1.0, 1.0])))
    with pytest.raises(InputError, match="while it runs another task"):
        trace([(0, 10, 0, 0), (5, 20, 1, 0)]).checked("x")
    with pytest.raises(InputError, match="busy worker-seconds"):
        observe(trace([(0, 100, 0, 0), (0, 100, 0, 0)]), (0,), stretches([0, 50, 100]))


def test_the_true_powers_of_a_linear_meter_are_those_that_were_set() -> None:
    one = ran("cholesky", 12, "priority", False, 2)
    true = Truth({name: 10.0 + i for i, name in enumerate(one.trace.types)}, 2.0, 40.0, call_sigma=0.0, drift=0.0)
    got = drawn(one.trace, one.tile, range(CORES), true, PERFECT, "p", rng(1)).truth
    assert got == pytest.approx({name: 10.0 + i + 5.0 for i, name in enumerate(one.trace.types)} | {"idle": 7.0}, rel=1e-9)


@pytest.mark.parametrize("misfit", ["turbo", "contention", "input", "stranger"])
def test_each_misfit_departs_from_the_linear_meter(misfit: str) -> None:
    one = ran("cholesky", 30, "priority", False, 2)
    plain, other = (metered(one, PERFECT, misfit=name, drift=0.0).observed.energy for name in ("linear", misfit))
    n = min(len(plain), len(other))
    ratio = other[:n] / plain[:n]
    assert {"turbo": ratio.min() < 0.9, "contention": ratio.min() < 0.97, "input": np.abs(ratio - 1).max() > 0.01,
            "stranger": ratio.max() > 1.05}[misfit]  # fmt: skip


def test_a_window_of_a_gpu_meter_sees_a_quarter_of_the_time() -> None:
    assert NVML_LIKE.window == pytest.approx(NVML_LIKE.period / 4)
    one = trace([(0, 75 * MS, 0, 0), (100 * MS, 175 * MS, 0, 0), (200 * MS, 200 * MS, 0, 0)], ("gemm",), 1)
    true = Truth({"gemm": 300.0}, 100.0, call_sigma=0.0, drift=0.0)
    meter = MeterModel(period=0.1, jitter=0.0, delay=0.0, quantum=0.0, window=0.025)
    got = drawn(one, np.zeros(3, np.int64), (0,), true, meter, "gpu0", rng(1)).run.readings
    assert got.form == "power"
    assert got.value[1:] == pytest.approx([100.0, 100.0]), "the kernels run before each window"


def test_windows_longer_than_the_period_overlap_and_are_exact() -> None:
    one = ran("cholesky", 10, "priority", False, 3)
    run = metered(one)
    wide = run.observe(window_s=0.05)
    over = run.intervals
    rng_rows = range(0, len(over), 7)
    for k in rng_rows:
        last = int(over.end[k])
        first = last - 50 * MS
        alone = observe(run.trace, run.workers, Intervals(np.array([first]), np.array([last]), np.ones(1)))
        scale = (over.end[k] - over.start[k]) / (50 * MS)
        for j, name in enumerate(alone.columns):
            assert wide.seconds[k, wide.columns.index(name)] == pytest.approx(alone.seconds[0, j] * scale, rel=1e-12)


def test_auto_lag_finds_a_window_of_several_periods() -> None:
    one = ran("cholesky", 5, "priority", False, 9, 120)
    meter = MeterModel(period=0.02, jitter=0.0, delay=0.0, quantum=0.0, window=0.1)
    run = metered(one, meter, drift=0.0)
    found = AutoLag().fit(run)
    assert found.window_s == pytest.approx(0.1, rel=0.05)
    assert mape(run.observed.energy, found.predict(run)) < 0.5 * mape(run.observed.energy, Taskwise().fit(run).predict(run))


def test_a_type_that_was_never_seen_is_said_or_taken_for_the_usual_one() -> None:
    run = metered(ran("cholesky", 14, "priority", False, 5))
    model = Taskwise().fit(run)
    other = metered(ran("lu", 8, "priority", False, 5))
    with pytest.raises(InputError, match='unknown type of task "getrf"'):
        model.predict(other)
    usual = model.predict(other, strict=False)
    assert mape(other.observed.energy, usual) < 15.0
    assert min(model.power.values()) <= model.usual <= max(model.power.values())


def test_an_estimator_of_several_domains_asks_for_one() -> None:
    one = ran("cholesky", 12, "steal", True, 1).trace
    readings = {name: Readings(name, np.arange(0, 500, 5) * MS, np.arange(100.0)) for name in ("package-0", "gpu0")}
    with pytest.raises(InputError, match="expected TaskPower"):
        TaskPower().fit(one, readings)
    with pytest.raises(InputError, match='unknown domain "gpu9"'):
        TaskPower(domain="gpu9").fit(one, readings)
