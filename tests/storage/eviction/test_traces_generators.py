"""Generated traces: each component does what its docstring says, a seed means one trace, and `cdn` has the published facts."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from armillary.errors import InputError
from armillary.storage.eviction.workload import BUILT_IN, Burst, Loop, OneHit, Scan, Zipf, built_in, mixture, object_sizes


def rng(seed=7):
    return np.random.default_rng(seed)


def everyone(component, requests=20_000):
    """The ids of a component that has every turn."""
    return component.ids(rng(), np.arange(requests))[0]


def test_loop_and_one_hit_and_scan_by_hand():
    assert everyone(Loop(3, 1.0), 7).tolist() == [0, 1, 2, 0, 1, 2, 0]
    assert everyone(OneHit(1.0), 4).tolist() == [0, 1, 2, 3]
    assert everyone(Scan(2, 1.0), 5).tolist() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("alpha", [0.0, 0.8, 1.0, 1.7])
def test_zipf_has_zipfs_probabilities(alpha):
    counts = np.bincount(everyone(Zipf(alpha, 50), 200_000), minlength=50)
    weights = np.arange(1, 51) ** -alpha
    assert stats.chisquare(counts, 200_000 * weights / weights.sum()).pvalue > 1e-3


def test_zipf_is_the_inverse_of_the_cumulated_probabilities():
    uniform = rng(3).random(50_000)
    weights = np.arange(1, 10_001) ** -0.9
    cumulated = np.cumsum(weights) / weights.sum()
    expected = np.searchsorted(cumulated, uniform, side="right")
    assert np.mean(Zipf(0.9, 10_000).ids(rng(3), np.arange(50_000))[0] == expected) > 0.9999  # a rounding may move a border


def test_drift_shifts_the_map_from_rank_to_object():
    still, moved = everyone(Zipf(1.0, 100), 30), everyone(Zipf(1.0, 100, 1.0, 10, 40), 30)
    assert ((moved - still) % 100).tolist() == [0] * 10 + [40] * 10 + [80] * 10


def test_bursts_have_their_length_and_their_gaps():
    turns = np.flatnonzero(rng(1).random(400_000) < 0.5)
    ids, appeared = Burst(0.5, 4, 2000).ids(rng(), turns)
    assert np.array_equal(np.unique(ids), np.arange(appeared))
    order = np.lexsort((turns, ids))
    gaps = np.diff(turns[order])[np.diff(ids[order]) == 0]
    assert abs(gaps.mean() / 500 - 1) < 0.05
    assert abs(np.median(gaps) / 500 - np.log(2)) < 0.05
    early = np.bincount(ids)[: appeared // 2]  # those that had the time to end
    expected = len(early) * stats.geom.pmf(np.arange(1, 16), 0.25)
    counts = np.array([np.count_nonzero(early == k) for k in range(1, 16)])
    assert stats.chisquare(counts, expected * counts.sum() / expected.sum()).pvalue > 1e-3


def test_a_burst_serves_what_is_due_longest_first():
    """An oracle that sorts a list instead of keeping a heap."""
    turns = np.flatnonzero(rng(2).random(6000) < 0.4)
    draws = rng()
    gaps, accesses = draws.exponential(300 / 5, len(turns)), draws.geometric(1 / 5, len(turns))
    waiting, expected, appeared = [], [], 0
    for i, now in enumerate(turns):
        waiting.sort()
        if waiting and waiting[0][0] <= now:
            _, who, left = waiting.pop(0)
            left -= 1
        else:
            who, left, appeared = appeared, accesses[i] - 1, appeared + 1
        expected.append(who)
        if left:
            waiting.append((now + gaps[i], who, left))
    assert Burst(0.4, 5, 300).ids(rng(), turns)[0].tolist() == expected


def test_scans_keep_the_turn():
    trace = mixture(rng(), 50_000, [Loop(1, 0.5), Scan(20, 0.5)])
    fresh = trace.objects != trace.objects[np.argmax(np.bincount(trace.objects)[trace.objects])]
    edges = np.flatnonzero(np.diff(np.concatenate(([0], fresh.view(np.int8), [0]))))
    lengths = edges[1::2] - edges[::2]
    assert (lengths[:-1] % 20 == 0).all()
    assert abs(fresh.mean() - 0.5) < 0.05


def test_shares_are_kept():
    trace = mixture(rng(), 100_000, [Loop(10, 0.7), OneHit(0.2), Loop(5, 0.1)])
    counts = np.bincount(trace.objects)
    assert abs(np.count_nonzero(counts == 1) / 20_000 - 1) < 0.05
    assert abs(np.sort(counts)[-10:].sum() / 70_000 - 1) < 0.02


@pytest.mark.parametrize("name", BUILT_IN)
def test_built_in_cases_are_dense_and_determined_by_their_seed(name):
    trace = built_in(name, rng(), 30_000)
    _, first = np.unique(trace.objects, return_index=True)
    assert trace.objects[np.sort(first)].tolist() == list(range(trace.distinct))
    assert trace.objects.dtype == np.int32
    assert (len(trace), trace.sizes, trace.operations, trace.name) == (30_000, None, None, name)
    assert np.array_equal(trace.objects, built_in(name, rng(), 30_000).objects)
    assert not np.array_equal(trace.objects, built_in(name, rng(8), 30_000).objects)
    sized = built_in(name, rng(), 30_000, bytes=True)
    assert np.array_equal(sized.objects, trace.objects)
    of_object = np.zeros(trace.distinct, np.int64)
    of_object[sized.objects] = sized.sizes
    assert np.array_equal(of_object[sized.objects], sized.sizes)  # an object keeps its size
    assert sized.sizes.min() >= 1


@pytest.mark.parametrize("name", BUILT_IN)
@pytest.mark.parametrize("requests", [0, 1, 2, 100])
def test_tiny_cases(name, requests):
    assert len(built_in(name, rng(), requests)) == requests


def test_sizes_are_log_normal():
    sizes = object_sizes(rng(), 200_000)
    assert abs(np.log(sizes).mean() - 8.5) < 0.01
    assert abs(np.log(sizes).std() - 1.4) < 0.01


def once(objects):
    counts = np.bincount(objects)
    return np.count_nonzero(counts == 1) / np.count_nonzero(counts)


@pytest.mark.parametrize("requests", [300_000, *(pytest.param(n, marks=pytest.mark.slow) for n in (1_000_000, 3_000_000))])
def test_cdn_has_the_published_share_of_objects_asked_for_once(requests):
    """Production traces: median 26 % over a whole trace, 72 % over stretches with a tenth of the objects (S3-FIFO, SOSP 2023)."""
    trace = built_in("cdn", rng(), requests)
    assert 0.2 <= once(trace.objects) <= 0.6
    start, stretches = 0, 0
    while start < len(trace):
        _, first = np.unique(trace.objects[start:], return_index=True)
        if len(first) < trace.distinct // 10:
            break
        end = start + int(np.sort(first)[trace.distinct // 10 - 1]) + 1
        assert once(trace.objects[start:end]) > 0.6
        start, stretches = end, stretches + 1
    assert stretches >= 5


def test_a_million_requests_of_cdn_have_four_tenths_of_one_hits():
    assert abs(once(built_in("cdn", rng(), 1_000_000).objects) - 0.4) < 0.03


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: built_in("zipf", rng(), 10), 'unknown built-in trace "zipf"'),
        (lambda: built_in("cdn", rng(), -1), "requests=-1"),
        (lambda: built_in("cdn", rng(), 2**31), "requests=2147483648"),
        (lambda: built_in("cdn", rng(), 1.5), "requests=1.5"),
        (lambda: mixture(rng(), 10, []), "shares []"),
        (lambda: mixture(rng(), 10, [OneHit(0.0)]), "shares [0.0]"),
        (lambda: mixture(rng(), 10, [OneHit(float("nan"))]), "shares [nan]"),
        (lambda: mixture(rng(), 10, [OneHit(1.0), Loop(5, -1.0)]), "shares [1.0, -1.0]"),
        (lambda: mixture(rng(), 10, [Zipf(0.8, 0)]), "objects=0"),
        (lambda: mixture(rng(), 10, [Zipf(float("nan"), 5)]), "alpha nan"),
        (lambda: mixture(rng(), 10, [Loop(0, 1.0)]), "length=0"),
        (lambda: mixture(rng(), 10, [Scan(-3, 1.0)]), "length=-3"),
        (lambda: mixture(rng(), 10, [Burst(1.0, 0.5, 10)]), "mean 0.5"),
        (lambda: mixture(rng(), 10, [Burst(1.0, 4, 0)]), "over 0 requests"),
    ],
)
def test_bad_parameters(make, says):
    with pytest.raises(InputError) as error:
        make()
    assert says in str(error.value)
