"""RaggedShard on ranks that are threads: shares, exchanges and what it refuses."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from armillary import comm
from armillary.errors import InputError
from armillary.training.sharding import RaggedShard, ragged


def test_a_prefix_of_dimensions_gives_the_granularity() -> None:
    assert RaggedShard((0, 1), (1, 1)).granularity((6, 4, 5)) == 5
    assert RaggedShard((0,), (1, 1)).granularity((6, 4, 5)) == 20
    assert RaggedShard((0,), (1, 2, 1, 1)).sizes((10, 3)) == [6, 12, 6, 6]
    assert RaggedShard.of_sizes((10, 3), [6, 12, 6, 6]) == RaggedShard((0,), (1, 2, 1, 1))
    assert RaggedShard.of_sizes((10, 3), [7, 23]) == RaggedShard((0, 1), (7, 23))
    assert RaggedShard.of_sizes((4, 3), [0, 12]) == RaggedShard((0,), (0, 1))


def shares(ranks: Any, shape: tuple[int, ...], one: RaggedShard, other: RaggedShard) -> dict[str, Any]:
    whole = np.arange(float(np.prod(shape))).reshape(shape)
    mine = one.split(whole, ranks.rank).copy()
    return {
        "mine": mine,
        "gathered": one.gather(ranks, mine, shape),
        "moved": one.redistribute(ranks, mine, shape, other),
        "rows": one.to_shard(ranks, mine, shape),
        "sum": one.reduce_scatter(ranks, whole * (ranks.rank + 1)),
        "norm": one.norm(ranks, mine),
    }


@pytest.mark.parametrize("kind", ["ragged", "one rank"])
def test_shares_are_gathered_moved_and_summed(kind: str) -> None:
    shape, n = (6, 4), 3
    one = RaggedShard((0,), (1, 3, 2)) if kind == "ragged" else RaggedShard((0,), (0, 0, 1))
    other = RaggedShard((0, 1), (11, 0, 13))
    whole = np.arange(24.0).reshape(shape)
    for rank, got in enumerate(comm.run(shares, shape, one, other, ranks=n, backend="threads").values):
        np.testing.assert_array_equal(got["gathered"], whole)
        np.testing.assert_array_equal(got["moved"], other.split(whole, rank))
        np.testing.assert_array_equal(got["rows"], whole[2 * rank : 2 * rank + 2])
        np.testing.assert_array_equal(got["sum"], 6 * got["mine"])
        assert got["norm"] == pytest.approx(np.linalg.norm(whole))


@given(st.integers(1, 5), st.integers(1, 6), st.integers(1, 4), st.data())
@settings(max_examples=15)
def test_every_placement_of_rows_can_be_reached_from_every_other(rows: int, columns: int, n: int, data: st.DataObject) -> None:
    def placement() -> RaggedShard:
        cuts = sorted(data.draw(st.lists(st.integers(0, rows), min_size=n - 1, max_size=n - 1)))
        return RaggedShard.of_sizes((rows, columns), (columns * np.diff([0, *cuts, rows])).tolist())

    one, other = placement(), placement()
    whole = np.arange(float(rows * columns)).reshape(rows, columns)
    for rank, got in enumerate(comm.run(shares, (rows, columns), one, other, ranks=n, backend="threads").values):
        np.testing.assert_array_equal(got["moved"], other.split(whole, rank))
        np.testing.assert_array_equal(got["gathered"], whole)


def test_tensors_are_split_without_a_copy() -> None:
    whole = torch.arange(12.0).view(4, 3)
    part = RaggedShard((0,), (1, 3)).split(whole, 1)
    assert part.data_ptr() == whole.data_ptr() + 3 * 4
    assert part.tolist() == [3, 4, 5, 6, 7, 8, 9, 10, 11]


def test_behind_tensor_parallelism_each_part_is_ragged_and_the_order_can_be_rebuilt() -> None:
    shape, placement = (6, 2), RaggedShard((0,), (1, 2), split_factor=2)
    whole = np.arange(12).reshape(shape)
    # Two parts of three rows, of which rank 0 holds one and rank 1 two.
    assert placement.intervals(shape, 0) == [(0, 2), (6, 8)]
    assert placement.intervals(shape, 1) == [(2, 6), (8, 12)]
    rebuilt = np.empty(12, int)
    for rank in (0, 1):
        for part, (start, stop) in enumerate(placement.intervals(shape, rank)):
            rebuilt[start:stop] = placement.split(whole, rank, part)
    np.testing.assert_array_equal(rebuilt, whole.ravel())
    assert ragged.composed((6, 4, 5), 2, dim=1) == 20
    assert ragged.composed((6, 4, 5), 8, dim=2) == 40


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: RaggedShard((1,), (1, 1)), "expected a prefix"),
        (lambda: RaggedShard((), (1, 1)), "expected a prefix"),
        (lambda: RaggedShard((0,), ()), "expected whole numbers from 0"),
        (lambda: RaggedShard((0,), (0, 0)), "not all 0"),
        (lambda: RaggedShard((0,), (1, -1)), "expected whole numbers from 0"),
        (lambda: RaggedShard((0,), (1, 1), split_factor=0), "split_factor"),
        (lambda: RaggedShard((0,), (1, 1, 1)).sizes((4, 2)), "found 3 units for 8 elements; expected a divisor"),
        (lambda: RaggedShard((0,), (1, 7)).sizes((4, 2)), "rank 0 would hold 1 elements; expected a multiple of 2"),
        (lambda: RaggedShard((0, 1, 2), (1, 1)).sizes((4, 2)), "found 3 for a tensor"),
        (lambda: RaggedShard((0,), (1, 1), split_factor=3).sizes((4, 2)), "found 3 for 4 rows"),
        (lambda: RaggedShard((0,), (1, 1)).split(np.zeros((4, 2)).T, 0), "not contiguous"),
        (lambda: RaggedShard((0,), (1, 1)).split(torch.zeros(4, 2).T, 0), "not contiguous"),
        (lambda: comm.run(shares, (4, 2), RaggedShard((0,), (1, 1)), RaggedShard((0,), (1, 1)), ranks=1, backend="one"), "found 2 for 1 ranks"),
        (lambda: ragged.composed((4, 2), 1, dim=0), "after the first"),
    ],
)  # fmt: skip
def test_bad_placements_are_one_line(call: Any, says: str) -> None:
    with pytest.raises((InputError, comm.RankFailed)) as error:
        call()
    assert says in str(error.value)
