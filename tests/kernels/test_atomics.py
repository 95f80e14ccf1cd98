"""Atomic operations in compiled loops: what they do, on which arrays, from several threads, and from the cache."""

from __future__ import annotations

import os
import threading
import time
from typing import Any

import numpy as np
import pytest
from numba.core.errors import TypingError

from armillary.kernels import cache, kernel
from armillary.kernels.atomics import (
    add,
    cas,
    futex_wait,
    futex_wake,
    load,
    load_seq_cst,
    mutex_lock,
    mutex_unlock,
    pause,
    store,
    store_seq_cst,
    xchg,
    yield_core,
)
from armillary.kernels.content import digest

ONE, MOST = np.uint64(1), np.uint64(0xFFFFFFFFFFFFFFFF)


@kernel
def every(words):  # type: ignore[no-untyped-def]
    was = xchg(words, 0, np.uint64(5)), add(words, 0, MOST), cas(words, 0, np.uint64(4), np.uint64(9)), cas(words, 0, ONE, np.uint64(7))
    store(words, 1, np.uint64(3))
    store_seq_cst(words, 2, MOST)
    pause()
    yield_core()
    return was, load(words, 0), load_seq_cst(words, 2)


@kernel
def count(words, times):  # type: ignore[no-untyped-def]
    for _ in range(times):
        add(words, 0, ONE)
        while cas(words, 16, np.uint64(0), ONE) != np.uint64(0):
            pause()
        words[32] += ONE
        store(words, 16, np.uint64(0))
        mutex_lock(words, 48)
        words[64] += ONE
        mutex_unlock(words, 48)


@kernel
def sleep(words, most_ns):  # type: ignore[no-untyped-def]
    store(words, 1, ONE)
    while load(words, 0) == np.uint64(0):
        futex_wait(words, 0, np.uint64(0), most_ns)


@kernel
def wake(words):  # type: ignore[no-untyped-def]
    store(words, 0, ONE)
    futex_wake(words, 0)


@kernel
def look(words, index):  # type: ignore[no-untyped-def]
    return load(words, index)


@kernel
def write_float(words, value):  # type: ignore[no-untyped-def]
    store(words, 0, value)


def test_each_operation_does_what_its_name_says() -> None:
    words = np.array([1, 0, 0, 0], np.uint64)
    assert every(words) == ((1, 5, 4, 9), 9, int(MOST))
    assert words.tolist() == [9, 3, int(MOST), 0]


def test_threads_lose_no_update() -> None:
    words = np.zeros(80, np.uint64)
    count(words, 0)
    threads = [threading.Thread(target=count, args=(words, 20_000)) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert words[[0, 16, 32, 64]].tolist() == [60_000, 0, 60_000, 60_000]


def test_a_sleeper_is_woken_and_none_sleeps_on_another_value() -> None:
    words = np.ones(4, np.uint64)
    sleep(words, 1000)
    words[:] = 0
    sleeper = threading.Thread(target=sleep, args=(words, 900_000_000))
    sleeper.start()
    while not look(words, 1):
        time.sleep(0)
    wake(words)
    sleeper.join(timeout=60)
    assert not sleeper.is_alive()


@pytest.mark.parametrize(
    "words",
    [np.zeros(4), np.zeros(4, np.int64), np.zeros((2, 2), np.uint64), np.zeros(8, np.uint64)[::2], np.zeros(4, np.uint32),
     np.frombuffer(b"\0" * 33, np.uint64, 4, 1), np.frombuffer(b"\0" * 32, np.uint64), [1, 2]],
)  # fmt: skip
def test_other_arrays_are_refused(words: Any) -> None:
    with pytest.raises(TypingError, match="C-contiguous array of uint64"):
        look(words, 0)


def test_floating_point_numbers_are_refused() -> None:
    with pytest.raises(TypingError, match="no floating-point numbers"):
        write_float(np.zeros(4, np.uint64), 1.5)


def test_loops_with_atomics_are_kept(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(cache.VARIABLE, str(tmp_path / "kernels"))
    for compiled in (every, count, sleep, wake):
        assert len(digest(compiled)) == 40
    recompiled = kernel(every.py_func)
    recompiled(np.zeros(4, np.uint64))
    again = kernel(every.py_func)
    again(np.zeros(4, np.uint64))
    assert sum(again.stats.cache_hits.values()) == 1
    assert os.listdir(tmp_path / "kernels")
