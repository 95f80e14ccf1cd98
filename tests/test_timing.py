"""The timing helper: enough calls, quartiles in order, garbage collection as it was."""

from __future__ import annotations

import gc
import itertools

import pytest

from armillary import timing
from armillary.timing import timed


def test_calls_until_both_minima_are_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = itertools.count(0, 25_000_000)  # every look at the clock is 25 ms later
    monkeypatch.setattr(timing.time, "perf_counter_ns", lambda: next(clock))
    assert timed(lambda: None, min_seconds=0.19, min_calls=5).calls == 8
    assert timed(lambda: None, min_seconds=0.0, min_calls=5).calls == 5


def test_median_and_quartiles_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    lengths = iter([3, 1, 2, 5, 4])
    now = itertools.accumulate(itertools.chain.from_iterable((0, n * 1_000_000_000) for n in lengths))
    monkeypatch.setattr(timing.time, "perf_counter_ns", lambda: next(now))
    found = timed(lambda: None, min_seconds=0.0, min_calls=5)
    assert (found.median, found.lower_quartile, found.upper_quartile, found.calls) == (3.0, 2.0, 4.0, 5)


def test_garbage_collection_is_off_meanwhile_and_restored() -> None:
    seen = []
    timed(lambda: seen.append(gc.isenabled()), min_seconds=0.0)
    assert not any(seen)
    assert gc.isenabled()
    gc.disable()
    try:
        timed(lambda: None, min_seconds=0.0)
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_an_error_restores_it_too() -> None:
    with pytest.raises(ZeroDivisionError):
        timed(lambda: 1 // 0)
    assert gc.isenabled()
