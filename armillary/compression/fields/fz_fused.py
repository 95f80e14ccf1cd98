"""FZ-GPU's pipeline (HPDC 2023) in one kernel: Lorenzo prediction, bitshuffle and zero blocks."""

from __future__ import annotations

from dataclasses import dataclass

from .pipeline.modular import Modular


@dataclass(frozen=True)
class FzFused(Modular):
    """FZ-GPU's pipeline in one kernel."""

    def stages(self) -> str:
        """Returns the pipeline as a string of stages."""
        return "range -> fz-fused"
