"""The simulator against closed forms, a second simulator, and schedules that cannot be."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plain_pipeline import run

from armillary.errors import InputError
from armillary.training.pipeline import (
    Action,
    Costs,
    Links,
    Pair,
    Schedule,
    dualpipe_v_order,
    gpipe_order,
    interleaved,
    interleaved_zero_bubble,
    one_f_one_b_order,
    seq_one_f_one_b,
    simulate,
    unit_costs,
    zb_h1_order,
    zb_v_order,
)


def seconds(schedule: Schedule, chunks: int = 1) -> float:
    """The makespan with F = I = W = 1 per rank."""
    return simulate(schedule, unit_costs(schedule, *[1 / chunks] * 3)).makespan


@pytest.mark.parametrize(
    ("schedule", "chunks", "makespan", "peaks"),
    [
        (gpipe_order(4, 8), 1, 33, [8, 8, 8, 8]),
        (one_f_one_b_order(4, 8), 1, 33, [4, 3, 2, 1]),
        (interleaved(4, 8, 2), 2, 28.5, [11, 9, 7, 5]),
        (interleaved(4, 4, 2), 2, 16.5, [8, 8, 7, 5]),
        (interleaved_zero_bubble(4, 8, 2), 2, 25.5, [8, 8, 8, 8]),
        (zb_v_order(4, 8), 2, 25.5, [8, 8, 8, 8]),
        (zb_v_order(4, 16), 2, 49.5, None),
        (dualpipe_v_order(4, 8), 2, 27.0, [9, 9, 9, 9]),
        (dualpipe_v_order(4, 16), 2, 51.0, [9, 9, 9, 9]),
        (zb_h1_order(4, 8), 1, 27, None),
    ],
)
def test_known_schedules_take_what_is_known(schedule: Schedule, chunks: int, makespan: float, peaks: list[float] | None) -> None:
    found = simulate(schedule.validate(), unit_costs(schedule, *[1 / chunks] * 3))
    assert found.makespan == pytest.approx(makespan, abs=1e-12)
    if peaks is not None:
        assert found.peak.tolist() == peaks


@pytest.mark.parametrize(("forward", "makespan"), [((1, 2, 1, 1), 41), ((2, 1, 1, 1), 39), ((1, 1, 1, 2), 45)])
def test_uneven_stages_by_hand(forward: tuple[float, ...], makespan: float) -> None:
    f = np.array(forward, float)
    assert simulate(one_f_one_b_order(4, 6), Costs(f, f, f)).makespan == makespan


@given(p=st.integers(1, 7), m=st.integers(1, 20), f=st.floats(0.1, 3), i=st.floats(0.1, 3), w=st.floats(0.1, 3))
@settings(max_examples=40)
def test_equal_stages_have_their_closed_forms(p: int, m: int, f: float, i: float, w: float) -> None:
    flush = (m + p - 1) * (f + i + w)
    for schedule in (gpipe_order(p, m), one_f_one_b_order(p, m)):
        assert simulate(schedule, unit_costs(schedule, f, i, w)).makespan == pytest.approx(flush)
    if m >= p and w <= f + i:
        schedule = zb_h1_order(p, m)
        assert simulate(schedule, unit_costs(schedule, f, i, w)).makespan >= m * (f + i + w) - 1e-9
        equal = simulate(schedule, unit_costs(schedule, f, f, f)).makespan
        assert equal == pytest.approx(3 * m * f + (p - 1) * f)


@given(p=st.integers(1, 6), rounds=st.integers(1, 4), v=st.integers(1, 4))
@settings(max_examples=40)
def test_interleaved_holds_what_it_says(p: int, rounds: int, v: int) -> None:
    m = p * rounds
    schedule = interleaved(p, m, v).validate()
    found = simulate(schedule, unit_costs(schedule))
    expected = [min(v * m, (v - 1) * p + 2 * (p - r - 1) + 1) for r in range(p)]
    assert found.peak.tolist() == expected


def some_schedule(kind: int, p: int, m: int, v: int) -> Schedule:
    makers = [
        lambda: gpipe_order(p, m), lambda: one_f_one_b_order(p, m), lambda: interleaved(p, m, v), lambda: interleaved_zero_bubble(p, m, v),
        lambda: zb_v_order(p, m), lambda: dualpipe_v_order(p, 2 * p + m), lambda: seq_one_f_one_b(p, np.array([1 + (k * v) % 3 for k in range(m)])),
    ]  # fmt: skip
    return makers[kind]()


@given(kind=st.integers(0, 6), p=st.integers(1, 5), m=st.integers(1, 7), v=st.integers(1, 3), seed=st.integers(0, 999), blocking=st.booleans())
@settings(max_examples=60, deadline=None)
def test_a_second_simulator_agrees(kind: int, p: int, m: int, v: int, seed: int, blocking: bool) -> None:
    schedule = some_schedule(kind, p, m, v).validate()
    rng = np.random.default_rng(seed)
    shape = (schedule.stages, schedule.micros)
    names = ("forward", "input", "weight", "again", "kept", "keys", "space", "sent")
    table = {name: rng.integers(1, 9, shape).astype(float) for name in names}
    latency, rate = float(rng.integers(0, 3)), float(rng.integers(1, 5))
    found = simulate(
        schedule,
        Costs(
            table["forward"], table["input"], table["weight"], table["again"], kept=table["kept"], keys=table["keys"],
            workspace=table["space"], sent=table["sent"],
        ),
        Links(latency, rate, blocking),
    )  # fmt: skip
    makespan, peak = run(schedule, {name: values.tolist() for name, values in table.items()}, latency, rate, blocking)
    assert found.makespan == pytest.approx(makespan)
    assert found.peak == pytest.approx(np.array(peak))
    assert found.busy.sum() <= schedule.ranks * found.makespan * (1 + 1e-12)
    assert 0 <= found.useful_fraction <= 1 - found.bubble_fraction + 1e-12


def test_a_link_serves_one_message_after_another() -> None:
    schedule = gpipe_order(2, 3)
    ones = np.ones(2)
    found = simulate(schedule, Costs(ones, ones, ones, sent=np.full(2, 5.0)), Links(0.0, 1.0))
    # Messages leave at 1, 2 and 3 and need 5 each: they arrive at 6, 11 and 16.
    second = schedule.offsets[1]
    assert found.start[second : second + 3].tolist() == [6, 11, 16]
    assert found.transfers == 6
    assert found.sent_bytes == 30
    blocked = simulate(schedule, Costs(ones, ones, ones, sent=np.full(2, 5.0)), Links(0.0, 1.0, blocking_sends=True))
    assert blocked.start[:3].tolist() == [0, 6, 12]


def test_split_backward_passes_release_a_share() -> None:
    schedule = Schedule.of([[Action(0, "F", 0), Action(0, "I", 0), Action(0, "F", 1), Action(0, "W", 0), Action(0, "I", 1), Action(0, "W", 1)]])
    one = np.ones(1)
    found = simulate(schedule.validate(), Costs(one, one, one, kept=np.array([10.0]), static=np.array([3.0]), overhead=1.0))
    assert found.peak.tolist() == [4 + 10 + 4]


def test_keys_stay_until_the_first_slice_ran_backward() -> None:
    schedule = seq_one_f_one_b(1, np.array([3, 1])).validate()
    one = np.ones(1)
    found = simulate(schedule, Costs(one, one, one, kept=np.array([10.0]), keys=np.array([1.0])))
    # After three slices, each backward pass is followed by the forward pass of the next sequence, whose keys come on top.
    assert found.peak.tolist() == [3 * 10 + 4]


def test_copies_add_their_gradients_when_both_are_done() -> None:
    order = [[Action(0, "F", 0), Action(0, "B", 0)], [Action(1, "F", 1), Action(1, "B", 1)]]
    schedule = Schedule.of(order, following=[-1, -1], replica=[1, 0])
    costs = Costs(np.array([1.0, 2.0]), np.ones(2), np.ones(2), gradients=np.array([6.0, 6.0]), sync_s=np.array([0.5, 0.5]))
    found = simulate(schedule.validate(), costs, Links(0.25, 2.0))
    assert found.makespan == 4 + 0.5 + 3 + 0.5
    assert found.sent_bytes == 12


@pytest.mark.parametrize(
    ("order", "says"),
    [
        ([["0F0", "0B0"], ["1B0", "1F0"]], "1B0 stands before 1F0"),
        ([["0F0", "0B0"], ["1F0"]], "exactly one B, or I and W"),
        ([["0F0", "0B0", "0B0"], ["1F0", "1B0"]], "0B0 stands in the schedule 2 times"),
        ([["0F0", "0I0"], ["1F0", "1B0"]], "W for each I"),
        ([["0F0", "0B0", "0F2", "0B2"], ["1F0", "1B0", "1F2", "1B2"]], "micro-batch 1 has no action"),
        ([["0F0", "0B0"], ["0F1", "0B1"]], "stage 0 is on rank"),
        ([["0F0", "0B0"], ["2F0", "2B0"]], "stage 1 has no action"),
        ([["0F0", "0B0", "0F1", "0B1"], ["1F1", "1B1", "1F0", "1B0"]], "comes to a standstill: rank 0 at 0B0, rank 1 at 1F1"),
    ],
)
def test_schedules_that_cannot_be_are_refused(order: list[list[str]], says: str) -> None:
    def action(cell: str) -> Action:
        return Action(int(cell[0]), cell[1], int(cell[2]))

    with pytest.raises(InputError, match=says):
        Schedule.of([[action(cell) for cell in row] for row in order]).validate()


def test_slices_run_forward_in_order_and_backward_reversed() -> None:
    wrong = Schedule.of([[Action(0, "F", 0), Action(0, "F", 1), Action(0, "B", 0), Action(0, "B", 1)]], previous_slice=[-1, 0])
    with pytest.raises(InputError, match="backward pass of slice 0 stands before that of slice 1"):
        wrong.validate()
    with pytest.raises(InputError, match="form a loop"):
        Schedule.of([[Action(0, "F", 0), Action(0, "F", 1), Action(0, "B", 1), Action(0, "B", 0)]], previous_slice=[1, 0]).validate()


@pytest.mark.parametrize("bad", [-1.0, float("nan"), float("inf")])
def test_costs_that_cannot_be_are_refused(bad: float) -> None:
    ones = np.ones(2)
    with pytest.raises(InputError, match="backward_weight: found"):
        simulate(gpipe_order(2, 2), Costs(ones, ones, np.array([1.0, bad])))
    with pytest.raises(InputError, match="shape"):
        simulate(gpipe_order(2, 2), Costs(np.ones(3), ones, ones))


def test_sizes_that_cannot_be_are_refused() -> None:
    for make in (gpipe_order, one_f_one_b_order, zb_v_order, zb_h1_order):
        with pytest.raises(InputError, match="at least one of each"):
            make(2, 0)
    with pytest.raises(InputError, match="as many micro-batches as stages"):
        dualpipe_v_order(4, 7)
    with pytest.raises(InputError, match="too large"):
        Schedule.of([[Action(0, "F", 1 << 24)]])


def test_pairs_deliver_both_results_at_their_end() -> None:
    order = [
        [Action(0, "F", 0), Pair(Action(0, "F", 1), Action(0, "B", 0)), Action(0, "B", 1)],
        [Action(1, "F", 0), Action(1, "B", 0), Action(1, "F", 1), Action(1, "B", 1)],
    ]
    schedule = Schedule.of(order).validate()
    found = simulate(schedule, unit_costs(schedule, 1, 1, 1))
    assert found.start.tolist() == [0, 4, 5, 10, 1, 2, 7, 8]


def test_the_timeline_has_one_bar_per_action() -> None:
    schedule = one_f_one_b_order(2, 2)
    bars = simulate(schedule, unit_costs(schedule)).timeline()
    assert len(bars) == len(schedule) == 8
    assert {bar["tid"] for bar in bars} == {0, 1}
    assert bars[0] == {"name": "0F0", "cat": "F", "ph": "X", "pid": 0, "tid": 0, "ts": 0.0, "dur": 1e6}
