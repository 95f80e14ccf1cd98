"""Products that add in a fixed order: values, shapes, and the order itself."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from armillary.learn.products import product


@given(st.integers(0, 5), st.integers(1, 9), st.integers(1, 9), st.integers(0, 1000))
def test_each_sum_runs_in_the_order_of_the_rows(n: int, k: int, m: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    a, b = rng.standard_normal((n, k)).astype(np.float32), rng.standard_normal((k, m)).astype(np.float32)
    expected = np.zeros((n, m), np.float32)
    for i in range(k):
        expected = expected + a[:, i : i + 1] * b[i]
    assert np.array_equal(product(a, b), expected)


@pytest.mark.parametrize(
    ("left", "right"), [((3, 4, 5, 6), (3, 4, 6, 7)), ((2, 3, 6), (6, 4)), ((6,), (6, 4)), ((2, 6), (6,)), ((0, 6), (6, 2))]
)
def test_shapes_are_those_of_matmul(left: tuple[int, ...], right: tuple[int, ...]) -> None:
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal(left), rng.standard_normal(right)
    assert product(a, b) == pytest.approx(a @ b)
    assert product(a, b).shape == (a @ b).shape


@pytest.mark.parametrize(("left", "right"), [((3, 4), (5, 2)), ((2, 3, 4), (3, 4, 2)), ((3,), (4,))])
def test_shapes_that_do_not_fit_are_refused(left: tuple[int, ...], right: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="expected as many columns as rows"):
        product(np.ones(left), np.ones(right))


def test_strides_do_not_matter() -> None:
    a, b = np.arange(12.0).reshape(3, 4), np.arange(20.0).reshape(5, 4)
    assert np.array_equal(product(a, b.T), a @ b.T)
    assert np.array_equal(product(a[::-1], b.T[:, ::2]), a[::-1] @ b.T[:, ::2])
