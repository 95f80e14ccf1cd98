"""The true residual: every ten iterations a solver's recurrence is compared with b - A x.

Conjugate gradients never look at A x again: they carry the residual along by a recurrence, which goes on converging after a fault that
the solution has long suffered. The extra product per ten iterations tells.

As in "Online-ABFT: An Online Algorithm Based Fault Tolerance Scheme for Soft Error Detection in Iterative Methods", PPoPP 2013.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from .detection.technique import AlgorithmDetector


@dataclass(frozen=True)
class Residual(AlgorithmDetector):
    """Alarms where the two residuals differ by more than 1e-9 of the right-hand side, every ten iterations and at the end."""

    needs: ClassVar[str] = "recurs"
    check_name: ClassVar[str] = "residual"
    column: ClassVar[int] = 1
