"""One λ for all tenants that keeps them together within a carbon budget; it is the dual price of the budget."""

from __future__ import annotations

from typing import Any

from armillary.errors import InputError
from armillary.scheduling.keepalive.simulation.play import play
from armillary.scheduling.keepalive.workload import Counted, KeepAliveWork


def lambda_for_budget(work: KeepAliveWork, technique: Any, budget_g: float, *, rounds: int = 20) -> tuple[float, Counted]:
    """The smallest λ, found by bisection, at which the technique's idle carbon stays within a budget in grams, and what is counted there.

    Carbon falls as λ grows, up to the noise of decisions, so the λ is right to 2^−rounds where it falls steadily.
    """
    if budget_g < 0:
        raise InputError(f"found {budget_g:g} g; expected at least 0", where="budget_g")

    def at(lam: float) -> Counted:
        return Counted.of(work, play(work, technique.policy(work.at(lam)), lam))

    low, high = 0.0, 1.0
    least, kept = at(low), at(high)
    if kept.carbon_g > budget_g:
        raise InputError(f"found a budget of {budget_g:g} g; even λ = 1 takes {kept.carbon_g:g} g", where="budget_g")
    if least.carbon_g <= budget_g:
        return low, least
    for _ in range(rounds):
        middle = (low + high) / 2
        found = at(middle)
        if found.carbon_g <= budget_g:
            high, kept = middle, found
        else:
            low = middle
    return high, kept
