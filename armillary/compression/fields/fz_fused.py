"""FZ-GPU's pipeline in one kernel: Lorenzo prediction, bitshuffle, zero blocks. HPDC 2023.
"""

from __future__ import annotations

from dataclasses import dataclass

from .pipeline.modular import Modular


@dataclass(frozen=True)
class FzFused(Modular):
    """FZ-GPU's pipeline in one kernel."""

    def stages(self) -> str:
        """The pipeline as a string of stages."""
        return "range -> fz-fused"
