"""The rate of the link between host and GPU at which a technique no longer waits."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from armillary.errors import InputError
from armillary.training.offload.simulation.timing import simulate

if TYPE_CHECKING:
    from armillary.training.offload.workload import OffloadWork


def break_even_rate(work: OffloadWork, technique: Any, *, share: float = 0.01, most: float = 1e13) -> float:
    """Bytes per second of the link, within 1 %, from which on waiting takes at most `share` of the computation; inf if `most` is too slow.

    Everything but the link's rate stays. A schedule does not depend on the rate, so it is made once.
    """
    if not 0 < share < 1:
        raise InputError(f"share: found {share}; expected a number between 0 and 1")
    schedule = technique.schedule(work)

    def waits(rate: float) -> bool:
        timed = simulate(work.with_machine(replace(work.machine, pcie=rate)), schedule)
        return timed.stall_s > share * timed.compute_s

    if waits(most):
        return float("inf")
    low, high = 1e6, most
    if not waits(low):
        return low
    while high > 1.01 * low:
        middle = (low * high) ** 0.5
        low, high = (middle, high) if waits(middle) else (low, middle)
    return high
