"""Orders: torch's own, list schedules, snakes, two directions, and torch's schedule file."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from armillary.errors import InputError
from armillary.training.pipeline import (
    Course,
    Links,
    Schedule,
    dualpipe_v_order,
    interleaved,
    interleaved_zero_bubble,
    list_schedule,
    one_f_one_b_order,
    seq_one_f_one_b,
    simulate,
    unit_costs,
    zb_v_order,
)
from armillary.training.pipeline.orders.snake import snake, snake_ranks
from armillary.training.pipeline.orders.two_ways import two_way
from armillary.training.pipeline.planning.in_flight import in_flight, live


def cells(schedule: Schedule) -> list[list[str]]:
    return [[str(action) for action in schedule.actions(r)] for r in range(schedule.ranks)]


@pytest.mark.parametrize(
    ("name", "ours", "sizes"),
    [
        ("ScheduleInterleaved1F1B", lambda p, m: interleaved(p, m, 2), [(2, 4), (4, 4), (4, 8), (4, 12), (3, 9)]),
        ("ScheduleInterleavedZeroBubble", lambda p, m: interleaved_zero_bubble(p, m, 2), [(2, 4), (4, 8), (3, 9)]),
        ("ScheduleZBVZeroBubble", zb_v_order, [(2, 2), (2, 5), (4, 8), (4, 3), (3, 11)]),
        ("ScheduleDualPipeV", dualpipe_v_order, [(2, 4), (4, 8), (4, 13), (3, 6)]),
    ],
)
def test_orders_are_torchs(name: str, ours: object, sizes: list[tuple[int, int]]) -> None:
    visualizer = pytest.importorskip("torch.distributed.pipelining._schedule_visualizer")
    import torch.distributed.pipelining.schedules as schedules

    for p, m in sizes:
        theirs = visualizer.get_schedule_ops(getattr(schedules, name), p, m, 2)
        expected = [[str(op) for op in row if op is not None and str(op.computation_type.value) not in ("REDUCE_GRAD",)] for row in theirs]
        assert cells(ours(p, m)) == expected, (p, m)  # type: ignore[operator]


def test_torch_reads_our_file_and_we_read_torchs(tmp_path: Path) -> None:
    schedules = pytest.importorskip("torch.distributed.pipelining.schedules")
    for schedule in (interleaved(4, 8, 2), zb_v_order(4, 8), dualpipe_v_order(4, 8)):
        path = schedule.to_csv(tmp_path / "schedule.csv")
        with path.open(newline="") as file:
            rows = [[schedules._Action.from_str(cell) for cell in row] for row in csv.reader(file)]
        assert [[repr(action) for action in row] for row in rows] == cells(schedule)
        # torch's own writer pads with empty cells and quotes nothing.
        padded = tmp_path / "torch.csv"
        with padded.open("w", newline="") as file:
            csv.writer(file).writerows([[None, *row, None] for row in rows])
        assert cells(Schedule.from_csv(padded)) == cells(schedule)


def test_a_file_with_communication_is_read_without_it(tmp_path: Path) -> None:
    path = tmp_path / "comms.csv"
    path.write_text("0UNSHARD,0F0,0SEND_F0,0RECV_B0,0B0,0REDUCE_GRAD\n1RECV_F0,1F0,1B0,1SEND_B0\n")
    assert cells(Schedule.from_csv(path)) == [["0F0", "0B0"], ["1F0", "1B0"]]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("0F0x,0B0\n", r'schedule.csv:1: cell 1: found "0F0x"; expected an action'),
        ("0F0,0B0\n1F0,1Q0\n", r"schedule.csv:2: cell 2: found"),
        ("(0B0;0F1)OVERLAP_F_B\n", "expected an action"),
        ("0F0,,0SEND_F0,0B0\n", r"schedule.csv:1: cell 2: found an empty cell"),
        ("\n", "found no actions"),
        ("0F0,0B0\n0F1,0B1\n", "stage 0 is on rank"),
        ("0F0,0B0,0F1\n", "exactly one B"),
        ("9999999F0\n", "expected an action"),
        ("0F9999999,0B9999999\n", "too large|no action"),
    ],
)
def test_bad_files_are_refused_with_their_place(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "schedule.csv"
    path.write_text(text)
    with pytest.raises(InputError, match=says):
        Schedule.from_csv(path)


@given(
    rows=st.lists(
        st.lists(st.tuples(st.integers(0, 4), st.sampled_from("FIWB"), st.integers(0, 4)).map(lambda c: f"{c[0]}{c[1]}{c[2]}") | st.sampled_from(
            ["", "0SEND_F0", "(0F1;1B0)OVERLAP_F_B", "1UNSHARD", "x", "7F", "-1F0", '"']), max_size=8),
        min_size=1, max_size=4,
    )
)  # fmt: skip
@settings(max_examples=150, deadline=None)
def test_any_file_is_a_schedule_that_runs_or_one_line(tmp_path_factory: pytest.TempPathFactory, rows: list[list[str]]) -> None:
    path = tmp_path_factory.mktemp("any") / "schedule.csv"
    path.write_text("\n".join(",".join(row) for row in rows) + "\n")
    try:
        found = Schedule.from_csv(path)
    except InputError as error:
        found, said = None, str(error)
    if found is None:
        assert "\n" not in said
    else:
        assert simulate(found, unit_costs(found)).makespan > 0


def listed(p: int, m: int, slices: int = 1) -> Schedule:
    count = m * slices
    previous = np.array([k - 1 if k % slices else -1 for k in range(count)])
    backward = np.array([g * slices + slices - 1 - j for g in range(m) for j in range(slices)])
    turn = np.empty(count)
    turn[backward] = np.arange(count)
    ones = np.ones((p, count))
    return list_schedule(
        Course(
            np.arange(p), np.append(np.arange(1, p), -1), (np.arange(count),) * p, (backward,) * p, ones, 2 * ones,
            ones * np.arange(count) + count, ones * turn, p - np.arange(p) + slices - 1, previous_slice=previous, in_turn=True,
        )
    )  # fmt: skip


@given(p=st.integers(1, 6), m=st.integers(1, 12), slices=st.integers(1, 4))
@settings(max_examples=40, deadline=None)
def test_the_list_schedule_of_equal_work_is_1f1b_or_seq1f1b(p: int, m: int, slices: int) -> None:
    found = listed(p, m, slices).validate()
    if slices == 1:
        assert cells(found) == cells(one_f_one_b_order(p, m))
    else:
        expected = seq_one_f_one_b(p, np.full(m, slices))
        assert cells(found) == cells(expected)


def test_a_list_schedule_that_does_not_fit_says_so() -> None:
    ones = np.ones((2, 3))
    course = Course(
        np.arange(2), np.array([1, -1]), (np.arange(3),) * 2, (np.arange(3),) * 2, ones, ones, ones, ones, np.full(2, 3), room=np.array([0.5, 9.0]),
        kept=ones,
    )  # fmt: skip
    with pytest.raises(InputError, match="standstill after 0 of 12"):
        list_schedule(course)


@given(p=st.integers(2, 5), m=st.integers(1, 6), r=st.integers(1, 4), seed=st.integers(0, 99))
@settings(max_examples=8, deadline=None)
def test_snakes_are_valid_and_save_transfers(p: int, m: int, r: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    f = rng.uniform(0.5, 2, p * r)
    loop = interleaved(p, m, r)
    hops = simulate(loop, unit_costs(loop)).transfers
    for schedule in snake(p, m, r, f, 2 * f):
        schedule.validate()
        assert schedule.stage_rank.tolist() == snake_ranks(p, r).tolist()
        assert simulate(schedule, unit_costs(schedule)).transfers == hops - 2 * m * (r - 1)


@given(p=st.integers(2, 5), half=st.integers(1, 4), r=st.integers(1, 3))
@settings(max_examples=15, deadline=None)
def test_two_directions_are_valid_and_each_micro_batch_takes_one(p: int, half: int, r: int) -> None:
    f = np.full(p * r, 1 / r)
    for schedule in two_way(p, 2 * half, f, 2 * f, reuse=r):
        schedule.validate()
        down = set(schedule.micro[schedule.stage < p * r].tolist())
        up = set(schedule.micro[schedule.stage >= p * r].tolist())
        assert (down, up) == (set(range(half)), set(range(half, 2 * half)))


@pytest.mark.parametrize(("p", "m"), [(4, 4), (4, 8), (8, 8), (8, 16)])
def test_chimera_reaches_its_published_bubble(p: int, m: int) -> None:
    f = np.ones(p)
    best = min(simulate(s, unit_costs(s)).makespan for s in two_way(p, m, f, 2 * f))
    assert best == pytest.approx(3 * m / (1 - (p - 2) / (1.5 * m + p - 2)))


def test_an_odd_number_cannot_run_in_two_directions() -> None:
    with pytest.raises(InputError, match="even number"):
        next(two_way(4, 3, np.ones(4), np.ones(4)))
    f = np.ones(4)
    with pytest.raises(InputError, match="one direction"):
        next(two_way(4, 4, f, f)).to_csv("never.csv")


@pytest.mark.parametrize(("p", "m", "v"), [(4, 8, 2), (8, 16, 2), (8, 32, 4), (4, 4, 3)])
def test_counts_in_flight_are_what_the_simulator_holds(p: int, m: int, v: int) -> None:
    schedule = interleaved(p, m, v)
    peak = simulate(schedule, unit_costs(schedule)).peak
    assert in_flight("interleaved", p, m, v).reshape(v, p).sum(0).tolist() == peak.tolist()
    assert [moments.sum(1).max() for moments in live("interleaved", p, m, v)] == peak.tolist()


def test_transfers_make_more_rounds_worse() -> None:
    links = Links(0.2)
    times = []
    for r in range(1, 9):
        schedule = one_f_one_b_order(4, 8) if r == 1 else interleaved(4, 8, r)
        times.append(simulate(schedule, unit_costs(schedule, *[1 / r] * 3), links).makespan)
    best = times.index(min(times)) + 1
    assert 1 < best < 8
