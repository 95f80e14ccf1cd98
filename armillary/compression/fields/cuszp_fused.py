"""cuSZp in one kernel: blocks of 32 values at a fixed width. SC 2023.
"""

from __future__ import annotations

from dataclasses import dataclass

from .pipeline.modular import Modular


@dataclass(frozen=True)
class CuszpFused(Modular):
    """cuSZp in one kernel."""

    def stages(self) -> str:
        """The pipeline as a string of stages."""
        return "range -> cuszp-fused"
