"""Implicit: assemble nothing; every application of F solves with the sparse factor.

FETI as it was first published: A method of finite element tearing and interconnecting and its parallel solution algorithm, Int. J. Numer.
Methods Eng. 1991.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from scipy import sparse

from armillary import arrays
from armillary.errors import InputError

from .complement.factor import Factor, Ordering
from .complement.method import Method, Work


@dataclass(frozen=True)
class Implicit(Method):
    """F applied as B, a sparse solve, and Bᵀ."""

    assembles = False
    on_device = False

    def plan(self, ordering: Ordering, b: sparse.csr_array) -> None:
        return None

    def assemble(self, factor: Factor, b: sparse.csr_array, plan: Any, like: arrays.Array) -> arrays.Array:
        raise InputError("assembles nothing; expected operator() or another method", where="implicit")

    def work(self, plan: Any) -> Work:
        return Work(0, 0)
