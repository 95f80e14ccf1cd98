"""Faults: how far they spread, which are no faults, and what the runs around them keep."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from armillary.errors import InputError
from armillary.trust.corruption import Faults, Processor, inject, pairs_of, study
from armillary.trust.corruption.detection.runs import Caches, together
from armillary.trust.corruption.faults.inject import flip_bit, silent, strike
from armillary.trust.corruption.faults.propagation import products
from armillary.trust.corruption.matrices.built_in import KINDS, poisson
from armillary.trust.corruption.matrices.csr import in_range
from armillary.trust.corruption.solvers.kinds import SOLVERS


def test_a_flip_spreads_to_the_neighbours_and_no_further() -> None:
    """The 5 x 5 grid, vertex 12 in the middle: 1, 5, 13 elements after 0, 1, 2 products, and never back."""
    matrix = poisson((5, 5), shift=0.0).scipy()
    found = products(matrix, np.random.default_rng(0).uniform(1, 2, 25), 3, (12, 51))
    assert [one.tolist() for one in found[:2]] == [[12], [7, 11, 12, 13, 17]]
    assert found[2].tolist() == [2, 6, 7, 8, 10, 11, 12, 13, 14, 16, 17, 18, 22]
    assert len(found[3]) == 21  # All within three hops.


def test_an_entry_deviates_in_its_row_first() -> None:
    """A high mantissa bit of entry (12, 13): after one product {12}, after two its neighbours, after three the 13 within two hops."""
    clean = poisson((5, 5), shift=0.0)
    bad = poisson((5, 5), shift=0.0)
    at = int(clean.pointers[12] + np.flatnonzero(clean.columns[clean.pointers[12] : clean.pointers[13]] == 13)[0])
    flip_bit(bad.values, at, 51)
    x = y = np.random.default_rng(0).uniform(1, 2, 25)
    found = []
    for _ in range(3):
        x, y = clean.scipy() @ x, bad.scipy() @ y
        found.append(np.flatnonzero(np.abs(x - y) > 1e-10 * np.abs(x)).tolist())
    assert found[:2] == [[12], [7, 11, 12, 13, 17]]
    assert found[2] == [2, 6, 7, 8, 10, 11, 12, 13, 14, 16, 17, 18, 22]


def test_a_study_sees_growth_and_leaves_out_what_is_no_silent_fault() -> None:
    matrix = KINDS["poisson-2d"](100, np.random.default_rng(0))
    found = study(lambda: SOLVERS["jacobi"](matrix, np.random.default_rng(1), Processor(counting=False)), np.random.default_rng(2), 150)
    assert found.share.shape == found.scale.shape == (10, 150 - found.vanished - found.loud)
    assert found.vanished > 5
    assert found.share.mean(1)[-1] > 2 * found.share.mean(1)[0]
    assert found.share.min() >= 0.01
    share, scale = found.draw(np.random.default_rng(3))
    assert 0.01 <= share <= 1
    assert scale > 0
    with pytest.raises(InputError, match="expected at least one of each"):
        study(lambda: SOLVERS["jacobi"](matrix, np.random.default_rng(1), Processor()), np.random.default_rng(2), 0)


def test_the_lowest_bit_vanishes_and_the_highest_exponent_is_loud() -> None:
    rng = np.random.default_rng(0)
    lost = 0
    for _ in range(200):
        array = rng.uniform(1, 2, 10)
        before = array.copy()
        flip_bit(array, int(rng.integers(10)), 0)
        lost += not silent(before, array)
    assert lost >= 180
    array = np.array([1.5])
    flip_bit(array, 0, 62)
    assert not np.isfinite(array[0])
    assert not silent(np.array([1.5]), array)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10_000), st.sampled_from(["columns", "pointers"]))
def test_a_struck_index_is_in_range_or_said_to_be_loud(seed: int, target: str) -> None:
    matrix = KINDS["delaunay"](30, np.random.default_rng(0))
    array = {"columns": matrix.columns, "pointers": matrix.pointers}[target]
    before = array.copy()
    limit = matrix.rows if target == "columns" else len(matrix.values) + 1
    fine = strike(array, "spread", np.random.default_rng(seed), limit=limit)
    assert (array != before).sum() == 1
    assert fine == in_range(matrix.columns, matrix.pointers)


def test_noise_hits_as_many_elements_as_it_says() -> None:
    matrix = KINDS["banded"](200, np.random.default_rng(0)).scipy()
    for fraction, sigma in ((1e-5, 1e-3), (0.1, 1e-6), (1.0, 10.0)):
        bad = inject.noise(matrix, fraction, sigma, np.random.default_rng(1))
        off = np.abs(bad.data / matrix.data - 1)
        assert (off > 0).sum() == max(1, round(fraction * matrix.nnz))
        assert off[off > 0].mean() < 3 * sigma
    with pytest.raises(InputError, match="expected a share"):
        inject.noise(matrix, 0, 1, np.random.default_rng(0))


def test_flips_are_of_one_bit_and_leave_a_matrix() -> None:
    matrix = KINDS["banded"](50, np.random.default_rng(0)).scipy()
    for target in ("values", "columns", "pointers"):
        bad = inject.flip(matrix, np.random.default_rng(5), target=target)
        same = [np.array_equal(getattr(bad, name), getattr(matrix, name)) for name in ("data", "indices", "indptr")]
        assert same.count(False) == 1
    exact = inject.flip(matrix, np.random.default_rng(0), element=3, bit=52)
    assert exact.data[3] in (2 * matrix.data[3], matrix.data[3] / 2)
    for wrong in ({"target": "rows"}, {"element": 10**9, "bit": 1}, {"target": "columns", "element": 0, "bit": 31}):
        with pytest.raises(InputError):
            inject.flip(matrix, np.random.default_rng(0), **wrong)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def runs() -> object:
    return pairs_of("cg", KINDS["poisson-2d"](100, np.random.default_rng(0)), 12, Faults(flips=20), Caches(), np.random.default_rng(1))


def test_both_runs_of_a_pair_are_the_same_until_the_fault(runs) -> None:  # type: ignore[no-untyped-def]
    assert len(runs) == 2 * (12 - runs.lost)
    assert runs.corrupted.tolist() == [False, True] * (len(runs) // 2)
    for number in range(0, len(runs), 2):
        clean, bad = (runs.exact[runs.first[one] : runs.first[one + 1]] for one in (number, number + 1))
        start = runs.start[number]
        assert runs.start[number + 1] == start
        assert runs.pair[number] == runs.pair[number + 1]
        assert np.array_equal(clean[:start], bad[:start])
        assert 1 <= start < len(clean)
        assert runs.differs[number + 1] or not np.array_equal(clean, bad)
    assert not (runs.harmed & ~runs.differs).any()
    assert not runs.harmed[~runs.corrupted].any()


def test_runs_of_several_origins_keep_apart(runs) -> None:  # type: ignore[no-untyped-def]
    both = together([runs, runs])
    assert len(both) == 2 * len(runs)
    assert len(np.unique(both.pair)) == 2 * len(np.unique(runs.pair))
    assert both.origin.tolist() == [0] * len(runs) + [1] * len(runs)
    assert np.array_equal(both.counters[both.first[len(runs)] :], runs.counters)


def test_the_same_seed_gives_the_same_runs(runs) -> None:  # type: ignore[no-untyped-def]
    again = pairs_of("cg", KINDS["poisson-2d"](100, np.random.default_rng(0)), 12, Faults(flips=20), Caches(), np.random.default_rng(1))
    assert np.array_equal(runs.counters, again.counters)
    assert np.array_equal(runs.checks, again.checks)


def test_kernels_that_do_not_suit_a_matrix_say_so() -> None:
    web = KINDS["web"](60, np.random.default_rng(0))
    with pytest.raises(InputError, match="not symmetric"):
        pairs_of("cg", web, 6, Faults(flips=5), Caches(), np.random.default_rng(1))
    hard = poisson((600, 2), (1.0, 1e-9), shift=1e-12)
    with pytest.raises(InputError, match="does not end within 240"):
        pairs_of("cg", hard, 6, Faults("noise", fraction=0.1, sigma=0.1), Caches(), np.random.default_rng(1))


def test_runs_can_be_counted_by_this_machine() -> None:
    """The path of hardware counters with events that every kernel has: only numbers come from elsewhere."""
    import os

    from armillary.trust.corruption.counters.perf import EVENTS, NoCounters, open_event

    try:
        os.close(open_event(*EVENTS["task_clock"]))
    except NoCounters:
        pytest.skip("perf_event_open is not allowed here")
    before = len(os.listdir("/proc/self/fd"))
    found = pairs_of(
        "cg", KINDS["poisson-2d"](400, np.random.default_rng(0)), 6, Faults(flips=10), Caches(), np.random.default_rng(1),
        events=("task_clock", "page_faults"),
    )  # fmt: skip
    assert found.columns == ("task_clock", "page_faults")
    assert found.counters.shape[1] == 2
    # Nanoseconds of a product with 2,000 entries and five vectors, which nothing else of the run is mixed into.
    assert 1e3 < np.median(found.counters[:, 0]) < 1e6
    assert found.differs[found.corrupted].all()
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_spread_error_is_drawn_from_the_study_of_a_matrix_of_ones_own() -> None:
    matrix = KINDS["delaunay"](80, np.random.default_rng(0))
    seen = study(lambda: SOLVERS["spmv"](matrix, np.random.default_rng(1), Processor(counting=False)), np.random.default_rng(2), 40)
    a = matrix.scipy()
    shares = set()
    for seed in range(8):
        bad = inject.spread(a, seen, np.random.default_rng(seed))
        off = np.abs(bad.data - a.data) > 0
        assert off.any()
        assert np.array_equal(bad.indices, a.indices)
        shares.add(int(off.sum()))
    assert len(shares) > 1
    assert np.array_equal(a.data, matrix.values)
