"""Orders without a search: ascending entropy (CFseq's first module alone, 2025) and a random one (a floor: what any change of the
order does).
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace

import numpy as np

from .entropy import entropy_order, similarity
from .plan import Plan, with_header
from .sample import take_sample
from .technique import Log, LogTechnique, NotForThisCase


@dataclass(frozen=True)
class EntropyOrder(LogTechnique):
    """Fields by ascending entropy per byte of a sample; no search."""

    compressor: str = field(default="zstd-3", metadata={"doc": "what compresses the reordered log"})
    sample_bytes: int = field(default=1 << 20, metadata={"doc": "bytes of the sample, in eight stretches", "range": (1, 1 << 30)})

    def plan(self, log: Log) -> Plan:
        """The ranking as a plan."""
        if log.format is None:
            raise NotForThisCase("free text has no fields to reorder")
        began = time.perf_counter()
        order = entropy_order(similarity(take_sample(log.data, log.format, self.sample_bytes, lenient=True)))
        return replace(with_header(Plan(log.format, order, self.compressor)), search_s=time.perf_counter() - began)


@dataclass(frozen=True)
class RandomOrder(LogTechnique):
    """Fields in a random order, drawn anew for every unit of a study."""

    compressor: str = field(default="zstd-3", metadata={"doc": "what compresses the reordered log"})

    def plan(self, log: Log) -> Plan:
        """A permutation as a plan."""
        if log.format is None:
            raise NotForThisCase("free text has no fields to reorder")
        rng: np.random.Generator = self.rng
        return with_header(Plan(log.format, tuple(int(i) for i in rng.permutation(log.format.fields)), self.compressor))
