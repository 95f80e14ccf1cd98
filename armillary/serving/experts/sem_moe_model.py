"""Sem-MoE's placement alone: requests go to devices in turn, and tokens by position.

Semantic Parallelism: Redefining Efficient MoE Inference via Model-Data Co-Scheduling, arXiv 2503.04398, 2025.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from .sem_moe import SemMoE


@dataclass(frozen=True)
class SemMoEModel(SemMoE):
    """Experts move, requests and tokens do not."""

    by_score: ClassVar[bool] = False
    claims: ClassVar = ()
