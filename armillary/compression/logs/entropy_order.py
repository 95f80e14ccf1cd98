"""Sorts the fields by the ascending entropy per byte of a sample, without a search, which is CFseq's first module alone, 2025."""

from __future__ import annotations

from dataclasses import dataclass, replace

from armillary.parameters import parameter
from armillary.timing import Stopwatch

from .planning.entropy import entropy_order, similarity
from .planning.plan import Plan, with_header
from .planning.technique import Log, LogTechnique, NotForThisCase
from .records.sample import take_sample


@dataclass(frozen=True)
class EntropyOrder(LogTechnique):
    """Writes the fields by ascending entropy per byte of a sample, without a search."""

    compressor: str = parameter("zstd-3", "what compresses the reordered log")
    sample_bytes: int = parameter(1 << 20, "bytes of the sample, in eight stretches", range=(1, 1 << 30))

    def plan(self, log: Log) -> Plan:
        """Ranks the fields."""
        if log.format is None:
            raise NotForThisCase("free text has no fields to reorder")
        with Stopwatch() as watch:
            order = entropy_order(similarity(take_sample(log.data, log.format, self.sample_bytes, lenient=True)))
            plan = with_header(Plan(log.format, order, self.compressor))
        return replace(plan, search_s=watch.seconds)
