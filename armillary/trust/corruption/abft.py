"""Checksums of columns: the sum of a product's elements is known before it is computed.

With w = 1'A, taken while A was whole, 1'(A x) must be w x but for rounding. A fault in the matrix, or one in the product, breaks that; a
fault in x before the product does not, since the product of a wrong vector is right.

Algorithm-based fault tolerance after Huang and Abraham, "Algorithm-Based Fault Tolerance for Matrix Operations", IEEE Transactions on
Computers 1984. Substitutions are checked block by block (the sums of a block's columns times x are the sum of its right-hand sides), and
the square of a matrix by the sum of each block, to which what was dropped is added. `AbftOperator` is the check for SciPy's solvers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from .detection.technique import AlgorithmDetector


@dataclass(frozen=True)
class Abft(AlgorithmDetector):
    """Alarms where a checksum is off by more than 8 units of rounding per entry, times the sum of |a| |x|."""

    needs: ClassVar[str] = "multiplies"
    check_name: ClassVar[str] = "abft"
    column: ClassVar[int] = 0
