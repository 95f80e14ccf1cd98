"""The triggers, beside a brute force that shares no code with them."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from armillary.network.clocks.gcs_two_way import triggers

numbers = st.floats(-40, 40, allow_nan=False)


def by_force(ahead: list[float], delta: list[float], kappa: list[float], most: int = 50) -> tuple[bool, bool]:
    fast = slow = False
    each = list(zip(ahead, delta, kappa))
    for s in range(1, most + 1):
        fast |= any(x >= 2 * s * k - d for x, d, k in each) and all(-x <= 2 * s * k + d for x, d, k in each)
        slow |= any(-x >= (2 * s - 1) * k - d for x, d, k in each) and all(x <= (2 * s - 1) * k + d for x, d, k in each)
    return fast, slow


@given(st.lists(st.tuples(numbers, st.floats(0.01, 1), st.floats(2.05, 6)), min_size=1, max_size=6))
@settings(max_examples=300)
def test_the_triggers_are_those_of_a_brute_force_and_never_both(rows: list[tuple[float, float, float]]) -> None:
    ahead = np.array([row[0] for row in rows])
    delta = np.array([row[1] for row in rows])
    kappa = delta * np.array([row[2] for row in rows])
    fast, slow = triggers(ahead, delta, kappa)
    # Ties at a threshold may fall either way by a rounding.
    near = any(abs(abs(x) / k % 1 - d / k) < 1e-9 or abs(abs(x) / k % 1 - 1 + d / k) < 1e-9 for x, d, k in zip(ahead, delta, kappa))
    if not near and float((np.abs(ahead) / kappa).max()) < 98:
        assert (bool(fast), bool(slow)) == by_force(ahead.tolist(), delta.tolist(), kappa.tolist())
    assert not (fast and slow)


def test_a_clock_that_is_alone_behind_runs_fast() -> None:
    one, kappa = np.array([0.1]), np.array([1.0])
    assert triggers(np.array([2.0]), one, kappa) == (True, False)
    assert triggers(np.array([1.8]), one, kappa) == (False, False)  # 2κ − δ = 1.9
    assert triggers(np.array([-1.0]), one, kappa) == (False, True)


def test_a_neighbour_far_behind_forbids_it() -> None:
    delta, kappa = np.array([0.1, 0.1]), np.array([1.0, 1.0])
    assert triggers(np.array([2.0, -2.2]), delta, kappa)[0] is False
    assert triggers(np.array([2.0, -2.05]), delta, kappa)[0] is True
    assert triggers(np.array([4.0, -4.05]), delta, kappa)[0] is True, "a larger s allows more"
