"""Finds the combination of order and compressor that makes a log smallest for the processor time at hand, by measuring on a sample."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from armillary.errors import InputError
from armillary.extras import MissingPackage

from .. import columnar
from ..cfseq import CFseq
from ..records.formats import detect
from ..records.sample import read_sample
from ..streams.compressors import Compressor, compressor
from .plan import Plan
from .technique import Log

if TYPE_CHECKING:
    import polars as pl

COMPRESSORS = ("zstd-1", "zstd-3", "gzip-6", "zstd-9", "zstd-19", "bzip2-9", "xz-6", "brotli-9", "ppmd-6", "denum-6")


@dataclass(frozen=True)
class Choice:
    """The smallest combination within the budget; `table` holds the ratio and the processor seconds per GB of every one on the sample."""

    name: str
    ratio: float
    cpu_s_per_GB: float
    table: pl.DataFrame

    def __str__(self) -> str:
        return f"{self.name}: ratio {self.ratio:.2f} at {self.cpu_s_per_GB:.0f} processor seconds per GB"


def best(
    path: Path | str | bytes, cpu_s_per_GB: float = 60.0, *, sample_bytes: int = 1 << 20, readable: bool = True, search_s: float = 5.0
) -> Choice:
    """Finds the combination of order and compressor with the best ratio among those that take at most `cpu_s_per_GB` processor seconds.

    `readable=False` also tries columnar storage, which other tools cannot read. The search for an order is not counted, because it is
    done once for all later logs.
    """
    import polars as pl

    if not cpu_s_per_GB > 0:
        raise InputError(f"cpu_s_per_GB: found {cpu_s_per_GB}; expected more than 0")
    form = detect(path)
    data = b"".join(read_sample(path, sample_bytes))
    if not data:
        raise InputError("found no line; expected a log", where=None if isinstance(path, bytes) else str(path))
    found: list[tuple[str, float, float]] = []
    for name in COMPRESSORS:
        own = compressor(name)
        try:
            found.append((name, *_measured(partial(own.compress, data), len(data))))
        except MissingPackage:
            continue
        if form is not None:
            plan = CFseq(compressor=name, sample_bytes=sample_bytes, budget_s=search_s, lenient=True).plan_for(data, form)
            if plan.moves:
                found.append((f"cfseq+{name}", *_measured(partial(_both, own, plan, data), len(data))))
    if form is not None and not readable:
        log = Log(data, form)
        for typed in (False, True):
            name = f"columnar{'+types' if typed else ''}+zstd-3"
            found.append((name, *_measured(partial(columnar.pack, log, "zstd-3", typed), len(data))))
    table = pl.DataFrame(found, schema=["combination", "ratio", "cpu_s_per_GB"], orient="row").sort("ratio", descending=True)
    within = [one for one in found if one[2] <= cpu_s_per_GB]
    if not within:
        fastest = min(found, key=lambda one: one[2])
        raise InputError(f"cpu_s_per_GB: found {cpu_s_per_GB:g}; the fastest here, {fastest[0]}, takes {fastest[2]:.1f}")
    name, ratio, seconds = max(within, key=lambda one: one[1])
    return Choice(name, ratio, seconds, table)


def _both(own: Compressor, plan: Plan, data: bytes) -> bytes:
    return own.compress(plan.transform_bytes(data, embed=True))


def _measured(work: Callable[[], bytes], size: int) -> tuple[float, float]:
    work()
    began = time.process_time()
    packed = work()
    return size / len(packed), (time.process_time() - began) / size * 1e9
