"""Miss-ratio curves: exact without sampling, near with it, and the choice that rests on them."""

import numpy as np
import pytest

from armillary.errors import InputError
from armillary.storage.eviction import Belady, FifoMep, Lru, S3Fifo, best_policy, from_ids, miss_ratio_curve
from armillary.storage.eviction.planning.curves import plot
from armillary.storage.eviction.workload import DELETE, LOOKUP, Trace


@pytest.fixture(scope="module")
def skewed():
    rng = np.random.default_rng(3)
    shares = 1 / np.arange(1, 40_001) ** 0.8
    return from_ids(rng.permutation(10**6)[rng.choice(40_000, 400_000, p=shares / shares.sum())])


def test_without_sampling_it_is_exact(skewed):
    curve = Lru().miss_ratio_curve(skewed, [10, 100, 1000], rate=1.0)
    assert curve.sizes == (10, 100, 1000)
    assert curve.miss_ratios == tuple(Lru().simulate(skewed, size).miss_ratio for size in (10, 100, 1000))


@pytest.mark.parametrize("policy", [Lru(), S3Fifo(), FifoMep(), Belady()], ids=str)
def test_a_twentieth_of_the_objects_is_enough(policy, skewed):
    sizes = [2000, 8000, 20_000]
    estimate = miss_ratio_curve(policy, skewed, sizes, rate=0.05).miss_ratios
    exact = miss_ratio_curve(policy, skewed, sizes, rate=1.0).miss_ratios
    assert np.abs(np.subtract(estimate, exact)).max() < 0.03


def test_an_lru_cache_that_grows_never_misses_more(skewed):
    ratios = Lru().miss_ratio_curve(skewed, rate=0.1).miss_ratios
    assert len(ratios) == 16
    assert list(ratios) == sorted(ratios, reverse=True)
    assert ratios[-1] == pytest.approx(skewed.distinct / len(skewed), rel=0.1)


def test_blocks_and_ids_give_the_same_as_the_trace_and_no_request_no_miss(skewed):
    whole = Lru().miss_ratio_curve(skewed, [4000], rate=0.1)
    assert Lru().miss_ratio_curve(skewed.blocks(7001), [4000], rate=0.1) == whole
    assert Lru().miss_ratio_curve(skewed.keys[skewed.objects].astype(np.int64), [4000], rate=0.1) == whole
    assert Lru().miss_ratio_curve(from_ids([]), [5]).miss_ratios == (0.0,)


def test_another_seed_is_another_sample(skewed):
    assert Lru().miss_ratio_curve(skewed, [4000], seed=1) != Lru().miss_ratio_curve(skewed, [4000], seed=2)


def test_bytes_and_deletions_are_sampled_along():
    rng = np.random.default_rng(4)
    objects = rng.integers(0, 2000, 60_000).astype(np.int32)
    operations = np.where(rng.random(60_000) < 0.1, DELETE, LOOKUP).astype(np.uint8)
    trace = Trace(objects, 2000, rng.integers(1, 100, 2000)[objects], operations)
    exact = Lru().simulate(trace, 40_000).miss_ratio
    assert Lru().miss_ratio_curve(trace, [40_000], rate=1.0).miss_ratios == (exact,)
    assert Lru().miss_ratio_curve(trace, [40_000], rate=0.3).miss_ratios[0] == pytest.approx(exact, abs=0.05)


def test_best_policy_finds_what_survives_a_loop():
    loop = from_ids(np.tile(np.arange(2000), 20))
    best, ratios = best_policy(loop, 1500, {"lru": Lru(), "mep": FifoMep(), "s3": S3Fifo()}, rate=0.5)
    assert ratios["lru"] == pytest.approx(1, abs=0.05)
    assert best != "lru"
    assert list(ratios.values()) == sorted(ratios.values())


def test_best_policy_tries_the_whole_arena_but_the_oracle():
    _, ratios = best_policy(from_ids([1, 2, 3, 1, 2, 3] * 50), 2, rate=1.0)
    assert "belady" not in ratios
    assert {"lru", "fifo-mep", "w-tinylfu"} <= set(ratios)


def test_table_and_plot(skewed):
    curves = [policy.miss_ratio_curve(skewed, [1000, 8000]) for policy in (Lru(), FifoMep())]
    assert curves[0].table().columns == ["policy", "size", "miss_ratio"]
    figure = plot(curves)
    assert [line.name for line in figure.data] == ["Lru", "FifoMep"]


@pytest.mark.parametrize(
    ("sizes", "rate", "says"), [([0], 0.5, "capacity"), *(([2], r, "rate") for r in (0, -1, 1.5, float("nan"), "some"))]
)
def test_bad_sizes_and_rates(sizes, rate, says):
    with pytest.raises(InputError, match=says):
        Lru().miss_ratio_curve([1, 2, 3], sizes, rate=rate)
