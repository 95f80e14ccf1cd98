"""Counts the operations of each phase, and states the rates at which the kernels run.

A dense kernel on blocks reaches a share of a core's peak that depends on the kernel; the shares here were measured once by
`benchmarks/selinv_speed.py` on blocks of 64 to 200, and are stated so that simulated seconds are reproducible.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from armillary.comm import Communicator

#: Share of a core's peak that a kernel reaches.
GEMM, TRSM, POTRF = 0.6, 0.10, 0.05
#: Seconds that one call of a kernel, a sum or a copy takes however small the block is.
CALL_S = 3e-6


@dataclass(frozen=True)
class Work:
    """Floating-point operations (multiplications and additions apart) by kernel."""

    gemm: float = 0.0
    trsm: float = 0.0
    potrf: float = 0.0
    #: The number of calls, each of which takes `CALL_S`.
    calls: float = 0.0

    def __add__(self, other: Work) -> Work:
        return Work(*(x + y for x, y in zip(self._all(), other._all())))

    def __mul__(self, times: float) -> Work:
        return Work(*(times * x for x in self._all()))

    def _all(self) -> tuple[float, ...]:
        return self.gemm, self.trsm, self.potrf, self.calls

    @property
    def flops(self) -> float:
        """All operations."""
        return sum(self._all()[:3])

    @property
    def at_peak(self) -> float:
        """Operations that a core at its peak does in the time that these take."""
        return sum(x / share for x, share in zip(self._all()[:3], (GEMM, TRSM, POTRF)))

    def seconds(self, peak: float) -> float:
        """Returns seconds on a core with this peak in operations per second."""
        return self.at_peak / peak + CALL_S * self.calls


def elimination(b: int, a: int, fill: bool = False) -> Work:
    """Returns the work of one block of the factorisation: Cholesky, two triangular solves, three products; `fill` adds one and three."""
    work = Work(gemm=2 * b**3 + 2 * a * b * b + 2 * a * a * b, trsm=b**3 + a * b * b, potrf=b**3 / 3, calls=20)
    return work + Work(gemm=4 * b**3 + 2 * a * b * b, trsm=b**3, calls=15) if fill else work


def inversion(b: int, a: int, fill: bool = False) -> Work:
    """Returns one block of the selected inverse: a triangular inverse, four products of blocks; with `fill` five more."""
    work = Work(gemm=8 * b**3 + 8 * a * b * b + 2 * a * a * b, trsm=b**3, calls=25)
    return work + Work(gemm=10 * b**3 + 4 * a * b * b, calls=15) if fill else work


def part_work(m: int, b: int, a: int, fill: bool, inverse: bool = True) -> Work:
    """Returns what a rank with m blocks does before and after the reduced system: it eliminates all but one block, or all but two."""
    count = m - 2 if fill else m - 1
    return (elimination(b, a, fill) + (inversion(b, a, fill) if inverse else Work())) * max(0, count)


def whole_work(n: int, b: int, a: int, inverse: bool = True) -> Work:
    """Returns a chain of n blocks on one rank."""
    return (elimination(b, a) + (inversion(b, a) if inverse else Work())) * n + Work(potrf=a**3 / 3, trsm=a**3)


def balance_from_flops(b: int, a: int) -> float:
    """Returns how many blocks rank 0 can take while another rank takes one."""
    plain, filled = elimination(b, a) + inversion(b, a), elimination(b, a, True) + inversion(b, a, True)
    return filled.flops / plain.flops


def charge(comm: Communicator | None, work: Work) -> None:
    """Lets simulated time pass on virtual ranks, and does nothing elsewhere."""
    if comm is not None:
        comm.compute(seconds=CALL_S * work.calls, flops=work.at_peak)
