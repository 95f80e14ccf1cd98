"""cuSZp (SC 2023) in one kernel, which packs blocks of 32 values at a fixed width."""

from __future__ import annotations

from dataclasses import dataclass

from .pipeline.modular import Modular


@dataclass(frozen=True)
class CuszpFused(Modular):
    """cuSZp in one kernel."""

    def stages(self) -> str:
        """Returns the pipeline as a string of stages."""
        return "range -> cuszp-fused"
