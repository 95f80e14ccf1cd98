"""Buffers, the sliding window, caches and buckets: exact small cases, invariants on random work, and each technique's limits."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plain_timing import plain
from test_offload_timing import GB, PLAIN, works

from armillary.arena import NotForThisCase
from armillary.errors import InputError
from armillary.training.offload import (
    Belady,
    LayerToLayer,
    Lru,
    Moves,
    OffloadWork,
    PrefetchTable,
    Schedule,
    SizeClasses,
    TenCache,
    Window,
    ZeroInfinity,
    ZeroOffload,
    break_even_rate,
    equal_work,
    simulate,
)  # fmt: skip
from armillary.training.offload.planning.buffers import least_buffers
from armillary.training.offload.planning.prefetch_table import next_rows
from armillary.training.offload.planning.promise import promise
from armillary.training.offload.planning.window import first_window
from armillary.training.offload.simulation.schedule import DROP, GPU, IN, NVME, OUT, READ, WRITE

MB = 10**6


def window_of(work: OffloadWork, buffers: int, *, slack: int = 0, host: int = 10**6) -> Window:
    """A window with so many buffers over work of equal tensors."""
    table, classes = PrefetchTable.of(work), SizeClasses.find(work.size)
    gpu, there = np.array([buffers]), np.array([host])
    return Window(table, classes, gpu, there, first_window(table, classes, gpu, slack))


def with_room(work: OffloadWork, nbytes: float) -> OffloadWork:
    return work.with_machine(work.machine.with_sizes(gpu_bytes=nbytes + 2**30))


# Buffers


def test_classes_get_buffers_by_their_share_of_the_bytes() -> None:
    classes = SizeClasses.find(np.array([10] * 300 + [1000] * 300 + [5000]))
    found = classes.buffers(155_000.0, classes.count, np.array([1, 1, 1]), min_buffers=0)
    # Shares are 3, 300 and 5 of 308 thousand bytes: 151 and 151 buffers, and the single tensor gets its own; three are taken back to fit.
    assert found.tolist() == [151, 148, 1]
    assert (found * classes.size).sum() <= 155_000


def test_a_poor_class_borrows_from_the_most_numerous_one() -> None:
    # 5 of 50 large tensors would have a buffer; 15 more cost 30 of the 150 that the small class has, each half as large.
    classes = SizeClasses(np.array([500, 1000]), np.array([1500, 50]), np.zeros(0, np.int64))
    found = classes._borrowed(np.array([150, 5]), 20)
    assert found.tolist() == [120, 20]
    assert classes._borrowed(np.array([110, 5]), 20).tolist() == [100, 10], "the rich class keeps a hundred"
    assert classes._borrowed(np.array([90, 5]), 20).tolist() == [90, 5]
    uneven = SizeClasses(np.array([300, 1000]), np.array([1500, 50]), np.zeros(0, np.int64))
    assert uneven._borrowed(np.array([150, 5]), 20).tolist() == [150, 5], "neither size divides the other"


@settings(max_examples=30)
@given(
    sizes=st.lists(st.sampled_from([8, 16, 32, 1000, 4096, 5000]), min_size=1, max_size=400), share=st.floats(0.0, 1.5),
    min_buffers=st.integers(0, 40),
)  # fmt: skip
def test_buffers_never_exceed_the_budget_nor_the_tensors(sizes: list[int], share: float, min_buffers: int) -> None:
    size = np.array(sizes)
    classes = SizeClasses.find(size)
    first, used = np.arange(len(sizes) + 1), np.arange(len(sizes))
    least = least_buffers(classes, first, used)
    budget = float((least * classes.size).sum()) + share * size.sum()
    found = classes.buffers(budget, classes.count, least, min_buffers=min_buffers)
    assert (found * classes.size).sum() <= budget
    assert (found >= least).all()
    assert (found <= classes.count).all()


def test_a_budget_below_what_one_operation_needs_is_refused() -> None:
    classes = SizeClasses.find(np.array([1000, 1000]))
    with pytest.raises(InputError, match="expected at least 2000"):
        classes.buffers(1999.0, classes.count, np.array([2]))


def test_next_accesses_count_on_into_the_next_iteration() -> None:
    assert next_rows(np.array([0, 1, 2, 2, 1, 0])).tolist() == [5, 4, 3, 8, 7, 6]


# The window


def test_ten_tensors_in_six_buffers_move_eight_times_and_hit_at_the_turn() -> None:
    work = with_room(equal_work(PLAIN, 10, 100 * MB, 1.0, iterations=4), 600.5 * MB)
    made = TenCache(gpu_factor=0, slack=0).schedule(work)
    assert made.facts["resident"] == 6
    ops = work.order.shape[1]
    for iteration in range(4):
        mine = made.moves.slot // (2 * ops) == iteration
        assert (made.moves.kind[mine] == IN).sum() == 2 * (10 - 6)
    found = simulate(work, made)
    backward = found.op_start[10::20]
    assert np.allclose(backward, found.op_end[9::20]), "the first backward operation does not wait"
    assert found.stall_s == 0.0, "0.1 s of transfer hide behind 1 s of computation"


def test_nothing_moves_at_the_turn() -> None:
    work = equal_work(PLAIN, 10, 100 * MB, 1.0, iterations=2)
    moves = window_of(work, 6).iteration(0)
    # The last six operations forward and the first six backward are served by what the window holds.
    turn = (moves.slot >= 2 * 4) & (moves.slot < 2 * 10)
    assert not turn.any()
    assert moves.tensor[moves.kind == IN].tolist() == [6, 7, 8, 9, 3, 2, 1, 0]


def test_everything_fits_so_nothing_moves_after_the_warm_up() -> None:
    work = equal_work(PLAIN, 10, 100 * MB, 1.0, iterations=4)
    made = TenCache(gpu_factor=0).schedule(work)
    found = simulate(work, made)
    assert len(made.moves) == 0
    assert found.hit_rate == 1.0
    assert made.facts["resident"] == 10


def test_with_room_for_one_layer_only_it_is_layer_to_layer() -> None:
    """Two buffers for layers of one tensor: every tensor comes once per pass, as with one layer ahead, and takes as long."""
    work = with_room(equal_work(PLAIN, 12, 100 * MB, 0.05, iterations=4), 200.5 * MB)
    ours, layers = (simulate(work, t.schedule(work)) for t in (TenCache(gpu_factor=0, slack=0), LayerToLayer(ahead=1)))
    # The turns save two fetches: at the end of a pass two tensors are there already.
    assert ours.moved[0] == pytest.approx((24 - 4) * 100 * MB + 2 * 100 * MB)
    assert layers.moved[0] == pytest.approx((24 - 2) * 100 * MB, rel=0.1)
    assert ours.iteration_s == pytest.approx(layers.iteration_s, rel=0.1)
    assert ours.stall_s == pytest.approx(layers.stall_s, rel=0.25)


def test_a_tensor_that_the_host_still_has_leaves_without_a_transfer() -> None:
    work = equal_work(PLAIN, 10, 100 * MB, 1.0, iterations=3)
    window = window_of(work, 6)
    first, second = window.iteration(0), window.iteration(1)
    assert first.tensor[first.kind == OUT].tolist() == [0, 1, 2, 3], "the first ones leave for the host once"
    assert (second.kind == OUT).sum() == 0
    assert (second.kind == DROP).sum() == 8


def test_a_full_host_sends_the_tensor_that_is_needed_last_to_the_drive() -> None:
    work = equal_work(PLAIN, 8, 100 * MB, 1.0, iterations=3)
    window = window_of(work, 3, host=2)
    assert window.place.tolist() == [GPU] * 3 + [1] * 2 + [NVME] * 3
    moves = window.iteration(0)
    assert (moves.kind == READ).any()
    assert (moves.kind == WRITE).any()
    for m in np.flatnonzero(moves.kind == READ):
        later = np.flatnonzero((moves.kind == IN) & (moves.tensor == moves.tensor[m]))
        assert any(moves.slot[k] > moves.slot[m] for k in later), "the second step comes after a later operation"


@settings(max_examples=30)
@given(work=works(), slack=st.integers(0, 3), prefetch=st.booleans())
def test_the_window_keeps_its_invariants(work: OffloadWork, slack: int, prefetch: bool) -> None:
    technique = TenCache(gpu_factor=0, slack=slack, prefetch=prefetch)
    try:
        window, buffers = technique.window(work)
    except NotForThisCase:
        return
    assert (buffers.gpu * buffers.classes.size).sum() <= work.capacity
    on_gpu = set(np.flatnonzero(buffers.resident).tolist())
    for iteration in range(work.iterations):
        tensor, op = work.rows(iteration)
        moves = window.iteration(iteration, tensor, op)
        by_slot: dict[int, list[int]] = {}
        for m, slot in enumerate(moves.slot.tolist()):
            by_slot.setdefault(slot, []).append(m)
        ops = work.order.shape[1]
        for position in range(ops):
            for half in (0, 1):
                for m in by_slot.get(2 * (iteration * ops + position) + half, []):
                    t = int(moves.tensor[m])
                    if moves.kind[m] == IN:
                        assert t not in on_gpu, "a tensor in two buffers"
                        on_gpu.add(t)
                    elif moves.kind[m] in (OUT, DROP):
                        on_gpu.remove(t)
                assert half or set(tensor[op == position].tolist()) <= on_gpu, "an access does not find its tensor"
        held = window.buffer[window.buffer >= 0]
        assert len(set(held.tolist())) == len(held), "one buffer holds two tensors"
        assert set(np.flatnonzero(window.place == GPU).tolist()) == on_gpu


@settings(max_examples=25)
@given(
    work=works(), data=st.data(), slack=st.integers(0, 2), prefetch=st.booleans(),
)  # fmt: skip
def test_three_memories_of_any_size_hold_every_tensor_somewhere(work: OffloadWork, data: st.DataObject, slack: int, prefetch: bool) -> None:
    """Few buffers on the GPU and in the host, so that parameters go to the drive and back in two steps."""
    classes = SizeClasses.find(work.size)
    least = least_buffers(classes, work.first, work.used)
    gpu = np.array([data.draw(st.integers(int(low), int(max(low, n)))) for low, n in zip(least, classes.count, strict=True)])
    host = np.array([data.draw(st.integers(int(low) + 1, int(low) + 3)) for low in least])
    table = PrefetchTable.of(work)
    window = Window(table, classes, gpu, host, first_window(table, classes, gpu, slack), prefetch=prefetch)
    first, parts, home = window.place, [], []
    for iteration in range(work.iterations):
        parts.append(window.iteration(iteration, *work.rows(iteration)))
        home.append(window.place)
        held = np.bincount(classes.of[window.copies], minlength=len(host))
        assert (held <= host).all(), "the host holds more than it has buffers"
        assert (window.copies | (window.place != 1)).all(), "a tensor of the host is not there"
    none = np.zeros(len(work.size), bool)
    made = Schedule(Moves.joined(parts), first == GPU, np.array(home, np.int8), none, 0.0, 0.0)
    roomy = work.with_machine(work.machine.with_sizes(gpu_bytes=float((gpu * classes.size).sum()) + 2**30))
    found, wanted = simulate(roomy, made), plain(roomy, made)
    assert found.iteration_s == pytest.approx(wanted["iteration_s"], rel=1e-9)


@settings(max_examples=25)
@given(
    count=st.integers(2, 24), share=st.floats(0.15, 1.0), seconds=st.sampled_from([0.01, 0.1, 0.3, 1.0]), iterations=st.integers(3, 5)
)  # fmt: skip
def test_hits_lie_between_those_of_lru_and_those_of_the_oracle(count: int, share: float, seconds: float, iterations: int) -> None:
    buffers = max(2, int(share * count))
    work = with_room(equal_work(PLAIN, count, 100 * MB, seconds, iterations=iterations), buffers * 100.0 * MB)
    rate = {
        name: simulate(work, t.schedule(work)).hit_rate
        for name, t in (("lru", Lru()), ("10cache", TenCache(gpu_factor=0, slack=0)), ("belady", Belady()))
    }
    assert rate["belady"] >= rate["10cache"] - 1e-12
    assert rate["10cache"] >= rate["lru"] - 1e-12


def test_an_order_that_changes_is_recorded_anew() -> None:
    work = equal_work(PLAIN, 6, 100 * MB, 1.0, iterations=2)
    window = window_of(work, 3)
    window.iteration(0)
    tensor, op = work.rows(0)
    other = np.array([2, 1, 0, 5, 4, 3, 3, 4, 5, 0, 1, 2])
    assert not window.known(other)
    moves = window.iteration(1, other, op)
    assert set(moves.tensor[moves.kind == IN].tolist()) >= {5, 4}
    assert window.known(other)
    assert not window.known(tensor)
    again = window.iteration(2, other, op)
    assert (again.kind == IN).sum() == 2 * 3


# Adam's states


def test_states_that_do_not_fit_stream_and_the_others_stay() -> None:
    work = equal_work(PLAIN, 10, 200 * MB, 0.1, iterations=3)  # 100 million parameters each, 1.2 GB of states each.
    roomy = work.with_machine(work.machine.with_sizes(host_bytes=30 * GB))
    assert not TenCache().schedule(roomy).streamed.any()
    tight = work.with_machine(work.machine.with_sizes(host_bytes=13 * GB))
    ours, theirs = TenCache(opt_factor=1.0).schedule(tight), ZeroInfinity().schedule(tight)
    assert 0 < ours.streamed.sum() < 10
    assert theirs.streamed.all()
    assert ours.host_most <= 13 * GB
    assert simulate(tight, ours).update_s < simulate(tight, theirs).update_s


def test_without_a_drive_what_does_not_fit_is_declined() -> None:
    work = equal_work(PLAIN, 10, 200 * MB, 0.1, iterations=3)
    no_drive = dataclasses.replace(work.machine, nvme_read=0.0, nvme_write=0.0)
    small = work.with_machine(no_drive.with_sizes(host_bytes=10 * GB))
    for technique in (ZeroInfinity(), LayerToLayer(), Lru(), Belady(), TenCache(), ZeroOffload()):
        with pytest.raises(NotForThisCase):
            technique.schedule(small)


# Baselines


def fetched(made: Schedule, work: OffloadWork, iteration: int) -> list[int]:
    ops = work.order.shape[1]
    mine = (made.moves.slot // (2 * ops) == iteration) & (made.moves.kind == IN)
    found: list[int] = made.moves.tensor[mine].tolist()
    return found


def test_zero_infinity_keeps_what_is_used_again_soon() -> None:
    work = equal_work(PLAIN, 10, 2 * MB, 1.0, iterations=3)  # A million elements each.
    made = ZeroInfinity(max_reuse_distance=3.5e6, max_live_parameters=1e9).schedule(work)
    # Tensors 9 and 8 are used again after 0 and 2 million elements, 7 after 4 million.
    assert fetched(made, work, 2) == [*range(10), *range(7, -1, -1)]
    none = ZeroInfinity(max_reuse_distance=0).schedule(work)
    assert fetched(none, work, 2) == [*range(10), *range(9, -1, -1)]


def test_zero_infinity_without_prefetch_is_on_demand() -> None:
    work = equal_work(PLAIN, 10, 100 * MB, 0.1, iterations=3)
    found = simulate(work, ZeroInfinity(prefetch_bucket_size=0, max_reuse_distance=0).schedule(work))
    assert found.hit_rate == 0.0
    assert found.stall_s == pytest.approx(20 * 0.1)


def test_a_bucket_that_holds_everything_prefetches_everything() -> None:
    work = equal_work(PLAIN, 10, 100 * MB, 0.1, iterations=3)
    made = ZeroInfinity(prefetch_bucket_size=1e12).schedule(work)
    ops = work.order.shape[1]
    mine = (made.moves.slot // (2 * ops) == 2) & (made.moves.kind == IN)
    assert set(made.moves.slot[mine].tolist()) == {2 * 2 * ops}


def test_layer_to_layer_waits_for_every_byte_and_hides_it_with_layers_ahead() -> None:
    work = equal_work(PLAIN, 8, 100 * MB, 1.0, iterations=3)
    found = simulate(work, LayerToLayer().schedule(work))
    assert found.stall_s == pytest.approx(15 * 0.1), "the layer at the turn stays"
    ahead = simulate(work, LayerToLayer(ahead=1).schedule(work))
    assert ahead.stall_s == pytest.approx(0.1), "the first layer of an iteration"


def test_zero_offload_moves_nothing_and_is_declined_where_parameters_do_not_fit() -> None:
    work = equal_work(PLAIN, 10, 100 * MB, 1.0, iterations=3)
    made = ZeroOffload().schedule(work)
    assert len(made.moves) == 0
    with pytest.raises(NotForThisCase, match="for parameters and gradients"):
        ZeroOffload().schedule(with_room(work, 900 * MB))


def test_lru_with_room_for_everything_moves_nothing() -> None:
    work = equal_work(PLAIN, 10, 100 * MB, 1.0, iterations=3)
    assert len(Lru().schedule(work).moves) == 0


# Parts and promises


def test_each_part_brings_something_where_transfers_take_longer_than_computation() -> None:
    """Equal tensors behind a slow link: prefetching hides transfers, and reused buffers spare the time to pin them."""
    fast = dataclasses.replace(PLAIN, pcie=20 * GB)
    work = with_room(equal_work(fast, 60, 100 * MB, 0.004, iterations=4), 3000 * MB)
    alone, prefetched, whole = (
        simulate(work, TenCache(gpu_factor=0, slack=0, **parts).schedule(work)).stall_s
        for parts in ({"prefetch": False, "reuse": False}, {"reuse": False}, {})
    )
    assert alone > prefetched > whole


@settings(max_examples=25)
@given(work=works())
def test_no_schedule_is_faster_than_it_promises(work: OffloadWork) -> None:
    """The busiest lane of each phase bounds an iteration that runs as planned from below; latencies come on top."""
    for technique in (ZeroInfinity(max_live_parameters=1e6), LayerToLayer(), Lru()):
        try:
            made = technique.schedule(work)
        except NotForThisCase:
            continue
        last = simulate(work, made)
        ops = work.order.shape[1]
        assert last.op_end[-1] - last.op_start[(work.iterations - 1) * ops] > 0 or work.seconds.sum() == 0
        assert promise(work, made) > 0


def test_the_link_at_which_waiting_ends_is_found() -> None:
    work = with_room(equal_work(PLAIN, 10, 100 * MB, 1.0, iterations=3), 600.5 * MB)
    technique = LayerToLayer()
    rate = break_even_rate(work, technique)
    # 19 transfers of 100 MB may take 1 % of 30 s of computation.
    assert rate == pytest.approx(19 * 100 * MB / 0.3, rel=0.02)
    assert break_even_rate(work, TenCache(gpu_factor=0, slack=0)) < rate / 10
    with pytest.raises(InputError, match="share"):
        break_even_rate(work, technique, share=2.0)
