"""Stores every value that the reverse pass needs and that is overwritten: the fastest where memory does not matter.

The tape of reverse differentiation, as tools have had it since the 1980s (Griewank and Walther, Evaluating Derivatives, 2008), here on the
same analysis and the same generated code as `dace-ad`: what is still in memory is not stored.
"""

from __future__ import annotations

from dataclasses import dataclass

from armillary.arena import Technique

from .pipeline.gradient import Choices
from .running.measured import Measured
from .workload import Problem


@dataclass(frozen=True)
class StoreAll(Technique):
    """Everything on a tape; declines where that passes the limit. Griewank and Walther, 2008."""

    def measure(self, problem: Problem) -> Measured:
        """Differentiates a problem and times it."""
        from .running.compiled_gradient import measure

        return measure(problem, "store", Choices())
