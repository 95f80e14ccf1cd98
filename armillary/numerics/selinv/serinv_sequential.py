"""Block factorisation down the chain and selected inversion back up by one process, as every rank of Serinv does inside its stretch.

Takahashi, Fagan, Chin: Formation of a sparse bus impedance matrix and its application to short circuit study, 1973, by blocks.
"""

from __future__ import annotations

from dataclasses import dataclass

from .inversion.factorisation import factor, selected_inverse
from .inversion.method import Answer, Method, Problem


@dataclass(frozen=True)
class SerinvSequential(Method):
    """Selected inversion of all blocks by one process."""

    def invert(self, problem: Problem) -> Answer:
        f = factor(problem.blocks, check=False)
        return Answer(selected_inverse(f, overwrite=True).blocks(), f.logdet())
