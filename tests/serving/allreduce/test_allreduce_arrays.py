"""Real arrays are summed over ranks, with an emulated switch in fixed point."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from armillary.errors import InputError
from armillary.serving.allreduce import Aggregator, reduce_arrays, split


@pytest.mark.parametrize(("servers", "gpus"), [(1, 2), (2, 1), (2, 3), (4, 2)])
@pytest.mark.parametrize("x", [0.0, 0.619, 1.0])
def test_the_sum_is_right(servers: int, gpus: int, x: float) -> None:
    rng = np.random.default_rng(1)
    rows = rng.standard_normal((servers * gpus, 1000)) * 10.0 ** rng.integers(-3, 4)
    found, counts = reduce_arrays(rows, servers, gpus, x, slots=8 * gpus, payload=64)
    n = servers * gpus
    assert np.abs(found - rows.sum(0)).max() <= 2.0**-23 * n * np.abs(rows).max()
    assert counts["switch"] + counts["ring"] == 1000
    assert counts["switch"] == pytest.approx(1000 * x, abs=gpus)
    assert counts["overflows"] == 0
    assert counts["most_slots"] <= 8 * gpus


@given(
    rows=st.lists(st.lists(st.integers(-(1 << 20), 1 << 20), min_size=9, max_size=9), min_size=4, max_size=4),
    x=st.sampled_from([0.0, 0.3, 0.5, 1.0]),
)
@settings(max_examples=10, deadline=None)
def test_whole_numbers_are_exact(rows: list[list[int]], x: float) -> None:
    found, _ = reduce_arrays(np.array(rows, float), 2, 2, x, payload=8)
    assert found.tolist() == np.sum(rows, axis=0).tolist()


def test_on_virtual_ranks_of_the_cluster_with_the_best_share() -> None:
    x, _ = split(1 << 14, 4, 12.5e9, 6.5e9)
    rows = np.random.default_rng(2).standard_normal((8, 500))
    found, counts = reduce_arrays(rows, 4, 2, x, backend="virtual", cluster="ina-6x2", placement=[0, 0, 1, 1, 2, 2, 3, 3, 5])
    assert np.abs(found - rows.sum(0)).max() <= 2.0**-23 * 8 * np.abs(rows).max()
    assert counts["switch"] == pytest.approx(0.619 * 500, abs=2)


def test_the_aggregator_counts_slots_and_frees_them() -> None:
    switch = Aggregator(workers=2, slots=2)
    ones = np.ones(4, np.int32)
    assert switch.receive(0, 0, ones) is None
    assert switch.receive(1, 0, ones) is None
    assert switch.receive(2, 0, ones) is None
    assert (switch.most, switch.overflows) == (2, 1)
    assert np.asarray(switch.receive(0, 1, 2 * ones)).tolist() == [3, 3, 3, 3]
    assert len(switch.held) == 1
    assert np.asarray(switch.receive(2, 1, ones)).tolist() == [2, 2, 2, 2]
    with pytest.raises(InputError, match="worker 0 sent it twice"):
        switch.receive(1, 0, ones)


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: reduce_arrays(np.ones((3, 4)), 2, 2, 0.5), r"arrays: found \(3, 4\)"),
        (lambda: reduce_arrays(np.ones((4, 4)), 2, 2, 1.5), "x: found 1.5"),
        (lambda: reduce_arrays(np.full((4, 4), np.nan), 2, 2, 0.5), "finite"),
        (lambda: Aggregator(128, 4), "workers: found 128"),
        (lambda: Aggregator(4, 0), "slots: found 0"),
    ],
)
def test_bad_arrays_are_refused(call, says: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(InputError, match=says):
        call()
