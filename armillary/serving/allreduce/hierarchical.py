"""Hierarchical all-reduce does a reduce-scatter inside each server, a ring between the servers, and an all-gather inside each server.

The NICs carry 2(s−1)/s of the bytes for s servers, and the ring has only s steps each way.

Jia et al., Highly scalable deep learning training system with mixed-precision: training ImageNet in four minutes, 2018; and NCCL's
trees and rings over several nodes.
"""

from __future__ import annotations

from dataclasses import dataclass

from .collectives.path import Path
from .collectives.technique import Collective


@dataclass(frozen=True)
class Hierarchical(Collective):
    """NVLink reduce-scatter, a ring between servers, NVLink all-gather (2018)."""

    @property
    def path(self) -> Path:
        return Path()
