"""Traces in memory: ids of any kind become dense, sizes are checked, the next access is right."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from armillary.errors import InputError
from armillary.storage.eviction.workload import Block, from_ids


@pytest.mark.parametrize(
    "ids",
    [
        [30, 10, 30, 20], np.array([30, 10, 30, 20], np.int8), np.array([30, 10, 30, 20], np.uint64), np.array([30, 10, 30, 20], ">i4"),
        np.array([[30, 0], [10, 0], [30, 0], [20, 0]])[:, 0], pl.Series([30, 10, 30, 20]), pl.Series(["x", "", "x", "é"]), ["x", "", "x", "é"],
        (b"x", b"y", b"x", b"z"), np.array(["x", "yy", "x", "z"]), pl.Series(["x", "y", "x", "z"], dtype=pl.Categorical),
    ],
)  # fmt: skip
def test_every_kind_of_id(ids):
    trace = from_ids(ids)
    assert trace.objects.tolist() == [0, 1, 0, 2]
    assert trace.objects.dtype == np.int32
    assert trace.distinct == 3
    assert trace.next_access().tolist() == [2, 4, 4, 4]
    assert trace.keys is None or trace.keys.tolist() == [30, 10, 20]


def test_arrays_are_read_only_and_the_callers_are_left_alone():
    ids, sizes = np.array([1, 2]), np.array([5, 0])
    with pytest.warns(UserWarning, match="0 bytes"):
        trace = from_ids(ids, sizes)
    for array in (trace.objects, trace.sizes, trace.keys, trace.next_access()):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1
    ids[0] = sizes[0] = 9
    assert sizes[1] == 0
    assert trace.sizes.tolist() == [5, 1]


def test_empty():
    for nothing in ([], np.empty(0, np.int64), pl.Series([], dtype=pl.String)):
        trace = from_ids(nothing)
        assert (len(trace), trace.distinct, len(trace.next_access()), list(trace.blocks())) == (0, 0, 0, [])


@pytest.mark.parametrize(
    ("ids", "sizes", "says"),
    [
        ([1, -1], None, "id 1: found -1"),
        ([1.5, 2.0], None, "expected whole numbers"),
        (np.array([1.0, np.nan]), None, "float64"),
        ([True, False], None, "found True"),
        (np.array([True]), None, "bool"),
        ([1, "a"], None, "id 0: found 1"),
        (["a", 1], None, "id 1: found 1"),
        (["a", None], None, "id 1: found None"),
        ([None, 1], None, "found None"),
        ([[1, 2], [3, 4]], None, "2 dimensions"),
        ([[1], [2, 3]], None, "make no array"),
        ([2**70], None, "expected whole numbers"),
        ("abc", None, "found str"),
        (7, None, "found int"),
        (pl.Series([1, None]), None, "1 missing"),
        ([1, 2], [1], "1 sizes for 2 ids"),
        ([1, 2], [1, -5], "size of -5"),
        ([1, 2], [1, 2**41], "size of 2199023255552"),
        ([1, 2], [1.0, 2.0], "expected whole numbers of bytes"),
    ],
)
def test_bad_ids_and_sizes(ids, sizes, says):
    with pytest.raises(InputError) as error:
        from_ids(ids, sizes)
    assert says in str(error.value)
    assert "\n" not in str(error.value)


@given(st.lists(st.integers(0, 8), max_size=60))
def test_next_access_by_search(ids):
    expected = [next((j for j in range(i + 1, len(ids)) if ids[j] == one), len(ids)) for i, one in enumerate(ids)]
    assert from_ids(ids).next_access().tolist() == expected


@given(st.lists(st.integers(0, 30), min_size=1, max_size=80), st.integers(1, 90))
def test_blocks_put_together_are_the_trace(ids, requests):
    trace = from_ids(ids, [i + 1 for i in ids])
    blocks = list(trace.blocks(requests))
    assert all(isinstance(block, Block) and len(block) == requests for block in blocks[:-1])
    assert np.concatenate([block.objects for block in blocks]).tolist() == trace.objects.tolist()
    assert np.concatenate([block.sizes for block in blocks]).tolist() == trace.sizes.tolist()
    assert np.concatenate([block.next_access() for block in blocks]).tolist() == trace.next_access().tolist()
    for block in blocks:
        assert block.distinct == len(set(ids[: block.start + len(block)]))


def test_blocks_of_nothing_are_refused():
    with pytest.raises(InputError, match="requests=0"):
        list(from_ids([1]).blocks(0))
