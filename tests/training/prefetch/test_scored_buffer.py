"""The scored buffer: published thresholds, exchanges by hand, and a reference of dictionaries."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prefetch_traces import SlowBuffer

from armillary.errors import InputError
from armillary.training.prefetch import ScoredBuffer
from armillary.training.prefetch.buffers.scored import highest, hottest

NOBODY = np.zeros(0, np.int64)


def test_an_entry_is_stale_after_one_miss_more_than_the_period() -> None:
    buffer = ScoredBuffer(2, range(10), [3, 4], alpha=0.05, period=25)
    assert buffer.threshold == 0.277
    for _ in range(25):
        buffer.look_up(np.array([4, 9]))
    assert buffer.score[0] == pytest.approx(0.27739, abs=1e-5)
    assert buffer.score[1] == pytest.approx(1.0, abs=1e-5)
    assert len(buffer.candidates()) == 0
    buffer.look_up(np.array([4, 9]))
    offer = buffer.candidates()
    assert buffer.ids[offer.out].tolist() == [3]
    assert buffer.halo[offer.entering].tolist() == [9]


def test_misses_need_not_come_in_a_row() -> None:
    buffer = ScoredBuffer(1, range(3), [0])
    for minibatch in range(52):
        buffer.look_up(np.array([0] if minibatch % 2 else [1]))
    assert buffer.score[0] < buffer.threshold


def test_an_exchange_swaps_the_scores() -> None:
    buffer = ScoredBuffer(2, [10, 20, 30, 40], [10, 20], alpha=0.5, period=1)
    for _ in range(3):
        buffer.look_up(np.array([20, 40]))
    buffer.look_up(np.array([20, 30, 40]))
    assert buffer.access.tolist() == [-1, -1, 1, 4]
    made = buffer.replace()
    assert buffer.halo[made.entering].tolist() == [40], "the hottest one, because one entry is stale"
    assert buffer.ids.tolist() == [20, 40]
    assert buffer.score.tolist() == [1.0, 4.0], "a newcomer takes its access score"
    assert buffer.access.tolist() == [0.0625, -1, 1, -1], "who left takes its eviction score"
    assert made.out.tolist() == [0], "its features go where those of vertex 10 were"
    assert buffer.row.tolist() == [1, 0]


def test_vacant_slots_are_filled_first() -> None:
    buffer = ScoredBuffer(3, range(5))
    assert len(buffer.replace()) == 0, "nothing was asked for yet"
    assert buffer.look_up(np.array([1, 2])).hits == 0
    assert buffer.replace().out.tolist() == [0, 1]
    assert buffer.ids.tolist() == [1, 2]
    buffer.look_up(np.array([0, 3, 4]))
    buffer.look_up(np.array([3]))
    assert buffer.halo[buffer.replace().entering].tolist() == [3]
    assert len(buffer) == buffer.capacity


def test_vertices_outside_the_halo_are_missed_and_never_buffered() -> None:
    buffer = ScoredBuffer(2, [2, 4])
    found = buffer.look_up(np.array([1, 2, 3, 5]))
    assert found.missed.tolist() == [-1, 0, -1, -1]
    assert buffer.access.tolist() == [1, 0]


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("start", [0, 40])
def test_a_thousand_minibatches_leave_what_dictionaries_leave(seed: int, start: int) -> None:
    rng = np.random.default_rng(seed)
    halo = np.sort(rng.choice(10_000, 200, replace=False))
    content = np.sort(rng.choice(halo, start, replace=False))
    fast = ScoredBuffer(40, halo, content, alpha=0.05, period=5)
    slow = SlowBuffer(40, halo.tolist(), content.tolist(), 0.05, 5)
    for minibatch in range(1000):
        asked = np.unique(np.concatenate([rng.choice(halo, 30), rng.integers(10_000, size=5)]))
        found = fast.look_up(asked)
        assert asked[found.slot >= 0].tolist() == slow.look_up(asked.tolist())
        if rng.random() < 0.1 or minibatch == 999:
            assert np.sort(halo[fast.replace().entering]).tolist() == slow.replace()
        if minibatch % 100 == 99:
            assert dict(zip(fast.ids.tolist(), fast.score.tolist(), strict=True)) == {v: float(s) for v, s in slow.score.items()}
            assert fast.access.tolist() == [float(slow.access[v]) for v in halo.tolist()]
    assert sorted(fast.row.tolist()) == list(range(len(fast))), "every entry has a row of its own"


@given(st.lists(st.floats(-1, 5, width=32), max_size=40), st.integers(0, 45))
def test_the_highest_scores_are_those_that_sorting_finds(scores: list[float], count: int) -> None:
    found = highest(np.asarray(scores, np.float32), count).tolist()
    order = sorted((i for i, s in enumerate(scores) if s > 0), key=lambda i: (-scores[i], i))
    assert found == sorted(order[:count])


@settings(max_examples=40)
@given(st.integers(1, 12), st.integers(1, 6), st.lists(st.tuples(st.sets(st.integers(0, 15)), st.booleans()), max_size=30))
def test_a_buffer_never_holds_more_than_its_capacity_nor_a_vertex_twice(
    capacity: int, period: int, minibatches: list[tuple[set[int], bool]]
) -> None:
    buffer = ScoredBuffer(min(capacity, 12), range(12), alpha=0.3, period=period)
    for asked, replaces in minibatches:
        buffer.look_up(np.asarray(sorted(asked), np.int64))
        if replaces:
            buffer.replace()
        assert len(buffer) <= buffer.capacity
        assert (np.diff(buffer.ids) > 0).all()
        assert np.array_equal(np.flatnonzero(buffer.access == -1), buffer.ids), "exactly the buffered vertices have no access score"


def test_a_copy_goes_its_own_way() -> None:
    buffer = ScoredBuffer(2, range(4), [0, 1])
    twin = buffer.copy()
    twin.look_up(np.array([2]))
    assert buffer.score.tolist() == [1, 1]
    assert buffer.access.tolist() == [-1, -1, 0, 0]


def test_the_highest_degrees_win_and_ties_go_to_the_first() -> None:
    assert hottest(np.array([5, 9, 9, 1, 5]), 3).tolist() == [0, 1, 2]


@pytest.mark.parametrize(
    ("what", "said"),
    [
        ({"halo": [2, 1]}, "ascending"),
        ({"halo": [1, 1]}, "ascending"),
        ({"capacity": 5}, "capacity"),
        ({"capacity": -1}, "capacity"),
        ({"content": [7]}, "content"),
        ({"capacity": 1, "content": [1, 2]}, "content"),
        ({"alpha": 1.0}, "alpha"),
        ({"period": 0}, "period"),
    ],
)
def test_bad_sizes_are_refused(what: dict[str, object], said: str) -> None:
    given_ = {"capacity": 2, "halo": [1, 2, 3], **what}
    with pytest.raises(InputError, match=said):
        ScoredBuffer(given_.pop("capacity"), given_.pop("halo"), given_.pop("content", ()), **given_)  # type: ignore[arg-type]
