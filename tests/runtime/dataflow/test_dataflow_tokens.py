"""The token pool: never more out than there are, wide kernels are passed a bounded number of times, and nothing is lost."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from armillary.errors import InputError
from armillary.runtime.dataflow import Apis, Kernel, Sim, Tokens
from armillary.tasks import Graph, Threads


class Held:
    """Counts the tokens that are out, from the side of those who hold them."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.out = self.most = 0

    def take(self, width: int) -> None:
        with self.lock:
            self.out += width
            self.most = max(self.most, self.out)

    def give(self, width: int) -> None:
        with self.lock:
            self.out -= width


def test_two_tokens_are_never_three() -> None:
    held, order = Held(), []

    def body(width: int) -> Callable[..., None]:
        def call(*args: Any) -> None:
            held.take(width)
            order.append(width)
            time.sleep(1e-4)
            held.give(width)

        return call

    with Apis("blas", tokens=2) as apis:
        graph = Graph()
        for i in range(60):
            width = 2 if i % 5 == 0 else 1
            apis.add(graph, "blas", Kernel(f"w{width}", {"blas": body(width)}), width=width)
        apis.run(graph, Threads(4)).raise_first()
        assert apis.tokens is not None
        assert apis.tokens.free == 2
    assert held.most <= 2
    assert sorted(order) == [1] * 48 + [2] * 12


def test_a_flood_of_narrow_kernels_passes_a_wide_one_eight_times() -> None:
    tokens, begun = Tokens(2), []
    tokens.request(1, lambda: begun.append("first"))
    tokens.request(2, lambda: begun.append("wide"))
    for i in range(100):
        tokens.request(1, lambda i=i: begun.append(i))
    # One narrow kernel ends at a time, as in an endless flood.
    while "wide" not in begun:
        tokens.give(1)
    assert begun.index("wide") == 1 + 8
    assert tokens.most_passed == 8
    assert tokens.free == 0


def test_kernels_that_take_all_tokens_keep_their_order() -> None:
    tokens, begun = Tokens(3), []
    for i in range(6):
        tokens.request(3, lambda i=i: begun.append(i))
    for _ in range(5):
        tokens.give(3)
    assert begun == list(range(6))


@given(
    st.integers(1, 4).flatmap(lambda count: st.tuples(st.just(count), st.lists(st.integers(1, count), max_size=40), st.integers(0, 4))),
    st.randoms(use_true_random=False),
)
def test_every_request_is_granted_once_and_never_too_many_are_out(given: tuple[int, list[int], int], rng: Any) -> None:
    count, widths, passes = given
    tokens = Tokens(count, passes)
    out: list[int] = []
    granted: list[int] = []

    def grant(i: int) -> None:
        granted.append(i)
        out.append(widths[i])
        assert sum(out) <= count

    waiting = list(range(len(widths)))
    while waiting or out:
        if waiting and (not out or rng.random() < 0.6):
            i = waiting.pop(0)
            tokens.request(widths[i], lambda i=i: grant(i))
        else:
            width = out.pop(rng.randrange(len(out)))
            tokens.give(width)
    assert sorted(granted) == list(range(len(widths)))
    assert tokens.free == count
    assert tokens.most_passed <= passes


def test_a_device_kernel_holds_its_tokens_until_the_device_is_done() -> None:
    sim = Sim(concurrency=100, manual=True)
    sim.on_cores = True  # As OpenCL's CPU device.
    with Apis(sim, tokens=2) as apis:
        graph = Graph()
        for _ in range(10):
            apis.add(graph, "sim", Kernel("k", {"sim": None}))
        thread = threading.Thread(target=lambda: apis.run(graph, Threads(2)).raise_first(), daemon=True)
        thread.start()
        seen = 0
        while thread.is_alive():
            with sim.changed:
                seen = max(seen, sim.outstanding)
                ready = bool(sim.running)
            if ready:
                sim.complete()
        assert seen == 2
        assert apis.outstanding == 0


def test_a_failed_kernel_gives_its_tokens_back() -> None:
    def fails(*args: Any) -> None:
        raise ArithmeticError("no")

    with Apis("blas", tokens=1) as apis:
        graph = Graph()
        apis.add(graph, "blas", Kernel("fails", {"blas": fails}))
        apis.add(graph, "blas", Kernel("works", {"blas": lambda: None}))
        run = apis.run(graph, Threads(1), on_error="continue")
        assert list(run.failed) == ["fails#0"]
        assert apis.tokens is not None
        assert apis.tokens.free == 1


def test_a_library_is_told_its_width() -> None:
    from threadpoolctl import threadpool_info  # type: ignore[import-untyped]

    full = {one["num_threads"] for one in threadpool_info() if one["user_api"] == "blas"}
    seen: list[set[int]] = []

    def body(a: np.ndarray) -> None:
        seen.append({one["num_threads"] for one in threadpool_info() if one["user_api"] == "blas"})

    with Apis("blas", tokens=2) as apis:
        graph = Graph()
        apis.add(graph, "blas", Kernel("k", {"blas": body}), np.zeros(1))
        apis.run(graph, Threads(1)).raise_first()
    assert seen == [{1}], threadpool_info()
    assert {one["num_threads"] for one in threadpool_info() if one["user_api"] == "blas"} == full


@pytest.mark.parametrize(("count", "width"), [(2, 3), (2, 0), (2, -1), (1, 2)])
def test_a_width_that_never_fits_is_one_sentence(count: int, width: int) -> None:
    with pytest.raises(InputError, match=f"width {width}; expected 1 to {count}"):
        Tokens(count).request(width, lambda: None)
    with pytest.raises(InputError, match="at least one token"):
        Tokens(0)
