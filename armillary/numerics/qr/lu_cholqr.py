"""LU-CholeskyQR applies one pass of CholeskyQR to the L of a pivoted LU.

Q misses orthogonality by the squared condition number of L times roundoff.

Terao, Ozaki, Ogita: LU-Cholesky QR algorithms for thin QR decomposition, Parallel Computing 92, 2020.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from armillary.arena import Claim

from .lu_cholqr2 import LuCholQr2


@dataclass(frozen=True)
class LuCholQr(LuCholQr2):
    """LU-CholeskyQR with one pass (Terao, Ozaki, Ogita, 2020)."""

    name = "lu-cholqr"
    passes: ClassVar[int] = 1
    claims: ClassVar[tuple[Claim, ...]] = ()
