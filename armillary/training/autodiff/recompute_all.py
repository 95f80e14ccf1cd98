"""Computes every value again that can be computed again: the least memory, and the slowest.

A value that statements of the same pass set is computed again from what they read. What a loop carries from pass to pass is reached by
running the loop again from a snapshot of its beginning, T²/2 passes for T (Griewank and Walther, Evaluating Derivatives, 2008), on every
level of a nest. The analysis and the generated code are those of `dace-ad`.
"""

from __future__ import annotations

from dataclasses import dataclass

from armillary.arena import Technique

from .pipeline.gradient import Choices
from .running.measured import Measured
from .workload import Problem


@dataclass(frozen=True)
class RecomputeAll(Technique):
    """Nothing on a tape that can be had otherwise. Griewank and Walther, 2008."""

    def measure(self, problem: Problem) -> Measured:
        """Differentiates a problem and times it."""
        from .running.compiled_gradient import measure

        return measure(problem, "recompute", Choices())
