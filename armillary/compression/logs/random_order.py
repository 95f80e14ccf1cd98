"""A random order of the fields, 2025: the floor that says what any change of the order does."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from armillary.parameters import parameter

from .planning.plan import Plan, with_header
from .planning.technique import Log, LogTechnique, NotForThisCase


@dataclass(frozen=True)
class RandomOrder(LogTechnique):
    """Writes the fields in a random order, which is drawn anew for every unit of a study."""

    compressor: str = parameter("zstd-3", "what compresses the reordered log")

    def plan(self, log: Log) -> Plan:
        """Draws a permutation."""
        if log.format is None:
            raise NotForThisCase("free text has no fields to reorder")
        rng: np.random.Generator = self.rng
        return with_header(Plan(log.format, tuple(int(i) for i in rng.permutation(log.format.fields)), self.compressor))
