"""What the arena adds to a policy's outcome (demotion, bytes and cache sizes), checked by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from armillary.arena import Case
from armillary.storage.eviction import Fifo, Lru, built_in, from_ids
from armillary.storage.eviction.arena import _capacity, byte_miss_ratio, demotion, eviction


def test_demotion_by_hand() -> None:
    """In a FIFO of two, 0 leaves for 2 and is asked for at once (wrong), 1 and 2 leave for good (right), and each lived two requests."""
    trace = from_ids(np.array([0, 1, 2, 0, 3]))
    precision, age = demotion(trace, Fifo().simulate(trace, 2))
    assert (precision, age) == (pytest.approx(2 / 3), 2.0)


def test_far_enough_is_more_than_capacity_over_miss_ratio() -> None:
    """Every request misses, so the limit is the capacity of one; 7 returns after four requests (right) and the others never (right)."""
    trace = from_ids(np.array([7, 1, 2, 3, 4, 7]))
    assert demotion(trace, Fifo().simulate(trace, 1))[0] == 1.0
    back = from_ids(np.array([7, 1, 7]))
    assert demotion(back, Fifo().simulate(back, 1))[0] == pytest.approx(1 / 2)


def test_objects_that_were_hit_are_no_demotions() -> None:
    trace = from_ids(np.array([1, 1, 2, 2, 3]))
    assert demotion(trace, Lru().simulate(trace, 1)) == (1.0, 0.0)


def test_bytes_missed_per_byte_asked_for() -> None:
    trace = from_ids(np.array([5, 5, 6]), np.array([10, 10, 5]))
    assert byte_miss_ratio(trace, Lru().simulate(trace, 100)) == pytest.approx(15 / 25)


def test_cache_sizes() -> None:
    def case(share: float) -> Case:
        return Case("c", lambda case, rng: None, {"share": share})

    thousand = from_ids(np.arange(10_000))
    assert [_capacity(thousand, case(share)) for share in (0.1, 0.001, 77.0)] == [1000, 50, 77]
    sized = from_ids(np.array([1, 2, 1]), np.array([1000, 3000, 500]))
    assert _capacity(sized, case(0.5)) == 50 * 4000 // 2, "at least fifty objects of mean size"
    assert _capacity(sized, case(3000.0)) == 3000


def test_the_reduction_is_relative_to_fifo() -> None:
    case = next(c for c in eviction.built_in("tiny") if c.name == "zipf-1.0@large")
    fifo, lru, belady = (eviction.execute(eviction.make(name), case).values for name in ("fifo", "lru", "belady"))
    assert fifo["miss_reduction"] == 0.0
    assert lru["miss_reduction"] == pytest.approx(1 - lru["miss_ratio"] / fifo["miss_ratio"])
    assert belady["miss_ratio"] < lru["miss_ratio"]


def test_objects_of_one_size_are_demoted_alike_in_objects_and_in_bytes() -> None:
    trace = built_in("burst-short", np.random.default_rng(2), 20_000)
    sized = replace(trace, sizes=np.full(len(trace), 4096, np.int64))
    for policy in (Fifo(), Lru()):
        by_count = demotion(trace, policy.simulate(trace, 300, log=True))
        by_bytes = demotion(sized, policy.simulate(sized, 300 * 4096, log=True))
        assert by_count == pytest.approx(by_bytes)
        assert 0 < by_count[0] < 1
