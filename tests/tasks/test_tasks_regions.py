"""Which parts meet, which cover: by hand, then against sets of indices."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from armillary.errors import InputError
from armillary.tasks.regions import Regions, box_of, covers, elements, meet, spans_meet


def test_two_strides_meet_where_the_remainders_agree() -> None:
    assert not spans_meet((0, 8, 2), (1, 8, 2))
    assert spans_meet((0, 8, 2), (0, 8, 3))
    assert not spans_meet((1, 6, 2), (0, 6, 4))
    assert spans_meet((2, 9, 3), (0, 9, 4))  # 8
    assert not spans_meet((2, 8, 3), (0, 8, 4))


spans = st.tuples(st.integers(0, 12), st.integers(1, 12), st.integers(1, 5)).map(
    lambda s: box_of(slice(s[0], s[0] + s[1], s[2]), None, "x")[0]
)
boxes = st.lists(spans, min_size=2, max_size=2).map(tuple)


def points(box: tuple[tuple[int, int, int], ...]) -> set[tuple[int, ...]]:
    return {(i, j) for i in range(*box[0]) for j in range(*box[1])}


@given(boxes, boxes)
def test_boxes_meet_and_cover_as_sets_of_points_do(a: tuple, b: tuple) -> None:
    assert meet(a, b) == bool(points(a) & points(b))
    assert covers(a, b) == (points(b) <= points(a))
    assert elements(a) == len(points(a))


@given(st.lists(boxes, max_size=25, unique=True), boxes, st.data())
def test_the_grid_finds_what_a_scan_finds(held: list, asked: tuple, data: st.DataObject) -> None:
    regions = Regions()
    for box in held:
        regions.exactly(box)
    gone = data.draw(st.sets(st.sampled_from(held))) if held else set()
    for box in gone:
        regions.remove(regions.exactly(box))
    kept = [box for box in held if box not in gone]
    assert {r.box for r in regions.meeting(asked)} == {box for box in kept if meet(box, asked)}
    assert len(regions) == len(kept)


@pytest.mark.parametrize("index", [slice(3, 3), 9, -9, "a", (0, 0), 1.5])
def test_an_index_that_is_none_is_refused(index: object) -> None:
    with pytest.raises(InputError, match=r"found|outside"):
        box_of(index, (8,), "data x")


def test_indices_as_numpy_writes_them() -> None:
    assert box_of(slice(None), (8,), "x") == ()
    assert box_of((slice(None, None, -2), -1), (8, 3), "x") == ((1, 8, 2), (2, 3, 1))
    assert box_of((..., slice(1, 2)), (4, 5, 6), "x") == ((0, 4, 1), (0, 5, 1), (1, 2, 1))
