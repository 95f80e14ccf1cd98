"""The simulator: closed forms by hand, an independent one on random schedules, and schedules that cheat."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plain_timing import plain

from armillary.training.offload import (
    LayerToLayer,
    Lru,
    Machine,
    Moves,
    OffloadWork,
    Schedule,
    TenCache,
    ZeroInfinity,
    equal_work,
    simulate,
)
from armillary.training.offload.simulation.schedule import DROP, GPU, IN

GB = 1e9
#: 1 GB/s both ways, no latency, Adam so fast that it takes nothing, and a drive.
PLAIN = Machine("plain", "v100-32", 100 * GB, 1000 * GB, 1 * GB, 0.0, 1 * GB, 0.5 * GB, 0.0, 1e18)


def schedule(work: OffloadWork, moves: list[tuple[int, int, int]], resident: Any, home: Any = None) -> Schedule:
    columns = np.array(moves, np.int64).reshape(-1, 3).T
    none = np.full(len(moves), -1, np.int64)
    where = np.full((work.iterations, len(work.size)), 1, np.int8) if home is None else home
    made = Moves(columns[0], columns[1], columns[2], none, np.zeros(len(moves)))
    return Schedule(made, np.array(resident, bool), where, np.zeros(len(work.size), bool), 0.0, 0.0)


def test_all_on_the_gpu_takes_compute_the_last_gradients_and_the_new_parameters() -> None:
    work = equal_work(PLAIN, 4, int(GB), 2.0, iterations=3)
    every = np.ones(4, bool)
    found = simulate(work, schedule(work, [], every, np.full((3, 4), GPU, np.int8)))
    # 4 × 2 s forward, 4 × 4 s backward; the last gradient leaves in 1 s, and 4 GB of new parameters come back in 4 s.
    assert found.iteration_s == pytest.approx(8 + 16 + 1 + 4)
    assert (found.stall_s, found.hit_rate, found.hit_rate_bytes) == (0.0, 1.0, 1.0)
    assert found.moved.tolist() == [4 * GB, 4 * GB, 0.0, 0.0]


def test_a_fetch_on_demand_is_waited_for_in_full() -> None:
    work = equal_work(PLAIN, 2, int(GB), 3.0, iterations=2)
    moves = [m for n in range(8) for m in ((2 * n, IN, (0, 1, 1, 0)[n % 4]), (2 * n + 1, DROP, (0, 1, 1, 0)[n % 4]))]
    found = simulate(work, schedule(work, moves, [False, False]))
    # Each of the four operations waits 1 s; the last gradient leaves 1 s after the end.
    assert found.stall_s == pytest.approx(4.0)
    assert found.iteration_s == pytest.approx(2 * 3 + 2 * 6 + 4 + 1)
    assert found.hit_rate == 0.0


def test_a_prefetch_hides_behind_computation_and_a_lane_serves_in_order() -> None:
    work = equal_work(PLAIN, 3, int(GB), 0.5, iterations=2)
    moves = [(0, IN, 0), (0, IN, 1), (0, IN, 2)]
    found = simulate(work, schedule(work, moves, [False] * 3))
    assert found.move_end[:3].tolist() == pytest.approx([1.0, 2.0, 3.0])
    assert found.op_start[:3].tolist() == pytest.approx([1.0, 2.0, 3.0])
    assert found.stall_s == 0.0  # All of them stay for the second iteration.


def test_streamed_states_take_the_slower_of_reading_and_writing() -> None:
    work = equal_work(PLAIN, 8, int(GB), 0.0, iterations=2)
    all_there = schedule(work, [], np.ones(8, bool), np.full((2, 8), 1, np.int8))
    found = simulate(work, replace(all_there, streamed=np.ones(8, bool)))
    # 8 gradients of 1 GB, then states of 6 GB each: the first read takes 6 s, and writes of 12 s follow one another.
    assert found.iteration_s == pytest.approx(8 + 6 + 8 * 12)


def test_allocation_delays_the_moves_and_not_computation() -> None:
    work = equal_work(PLAIN, 2, int(GB), 3.0, iterations=2)
    plan = schedule(work, [(0, IN, 1)], [True, False])
    slow = replace(plan, moves=replace(plan.moves, alloc_s=np.array([2.5])))
    found = simulate(work, slow)
    assert found.op_start[:2].tolist() == pytest.approx([0.0, 3.5])  # Allocated at 2.5 s, there at 3.5 s.


@pytest.mark.parametrize(
    ("moves", "resident", "says"),
    [
        ([], [True, False], "without one of its tensors"),
        ([(0, IN, 0)], [True, True], "from where it is not"),
        ([(1, DROP, 0), (2, DROP, 0)], [True, True], "from where it is not"),
        ([(2, IN, 1), (1, DROP, 1)], [True, False], "order of their slots"),
        ([(0, IN, 7)], [True, True], "does not exist"),
    ],
)
def test_a_schedule_that_cheats_is_refused(moves: list[tuple[int, int, int]], resident: list[bool], says: str) -> None:
    work = equal_work(PLAIN, 2, 1000, 1.0, iterations=2)
    with pytest.raises(AssertionError, match=says):
        simulate(work, schedule(work, moves, resident))


def test_a_schedule_that_overfills_the_gpu_is_refused() -> None:
    work = equal_work(PLAIN.with_sizes(gpu_bytes=2.5 * GB + 2**30), 4, int(GB), 1.0, iterations=2)
    with pytest.raises(AssertionError, match="more on the GPU than it holds"):
        simulate(work, schedule(work, [(0, IN, 0), (0, IN, 1), (0, IN, 2)], [False] * 4))


@st.composite
def works(draw: st.DrawFn) -> OffloadWork:
    """A few modules of a few sizes, some with two tensors, on a machine on which things do not fit."""
    count = draw(st.integers(2, 9))
    sizes = [draw(st.sampled_from([400_000, 800_000, 1_600_000, 1000])) for _ in range(count)]
    ahead = []
    for i in range(count):
        also = draw(st.integers(0, count - 1)) if draw(st.booleans()) else i
        ahead.append((0, i // 2, sorted({i, also}), draw(st.sampled_from([0.0, 0.5, 2.0]))))
    widest = max(sum(sizes[t] for t in op[2]) for op in ahead)
    gpu = draw(st.floats(1.0, 2.0)) * widest + draw(st.floats(0.0, 1.0)) * sum(sizes)
    rate = draw(st.sampled_from([3e5, 1e6, 1e7]))
    # Between a host that holds next to nothing and one that holds all states; buffers for the drive are a good part of it.
    host = sum(sizes) * draw(st.floats(1.2, 9.0)) + draw(st.sampled_from([0.0, 20e6, 50e6]))
    machine = Machine("random", "v100-32", gpu + 2**30, host, rate, 1e-3, 2e6, 1e6, 1e-3, 1e6)
    back = [(1, layer, used, 2 * seconds) for _, layer, used, seconds in reversed(ahead)]
    work = OffloadWork.of("random", machine, sizes, ahead + back, iterations=draw(st.integers(2, 4)))
    return work.shuffled(np.random.default_rng(draw(st.integers(0, 99)))) if draw(st.booleans()) else work


TECHNIQUES = [
    ZeroInfinity(prefetch_bucket_size=5e5, max_live_parameters=1e6, max_reuse_distance=1e6), ZeroInfinity(pooled=False), LayerToLayer(),
    LayerToLayer(ahead=1), Lru(), TenCache(gpu_factor=0, slack=1), TenCache(gpu_factor=0, slack=2, prefetch=False, reuse=False),
    TenCache(gpu_factor=0, slack=0, reuse=False),
]  # fmt: skip


@settings(max_examples=30)
@given(work=works(), number=st.integers(0, len(TECHNIQUES) - 1))
def test_an_independent_simulator_gives_the_same_seconds(work: OffloadWork, number: int) -> None:
    from armillary.arena import NotForThisCase

    try:
        made = TECHNIQUES[number].schedule(work)
    except NotForThisCase:
        return
    found, wanted = simulate(work, made), plain(work, made)
    assert found.iteration_s == pytest.approx(wanted["iteration_s"], rel=1e-9)
    assert found.stall_s == pytest.approx(wanted["stall_s"], rel=1e-9, abs=1e-9)
    assert found.hit_rate == pytest.approx(wanted["hit_rate"])
    assert made.host_most <= work.machine.host_bytes
