"""CFseq puts the fields of every record in an order that suits the compressor, once for the whole log, and changes nothing else.

A window compressor finds long matches only if what repeats lies together. Some fields repeat almost always, others share beginnings with
a neighbour; between them stand fields of noise that cut every match short. CFseq has two modules: entropies and affinities of the fields
of a sample give a first order (`entropy.py`), and brute force over orders, scored by the compressor itself, improves it (`search.py`).
The paper's abstract names the two modules; the details of both are our design.

CFseq: A Framework for Constructing Compression-Friendly Field Sequences for Network Logs, IEEE CLUSTER 2025.

    plan = CFseq(compressor="zstd-3").fit("conn.log")
    plan.transform("conn.log", "conn.reordered.log"); plan.inverse("conn.reordered.log", "conn.again.log")
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

from armillary.arena import NotForThisCase
from armillary.claim import Claim, Gain
from armillary.errors import InputError
from armillary.parameters import parameter
from armillary.timing import Stopwatch

from .planning.entropy import blocks, similarity, start_order
from .planning.plan import DRIFT, EMBED, Plan, header_digest, reading, unwritten, writing, written
from .planning.search import EXHAUSTIVE_BLOCKS, Scorer, polish, search
from .planning.technique import Log, LogTechnique
from .records.formats import Format, detect
from .records.sample import Sample, read_sample, take_sample
from .streams.compressors import MOST_BYTES, Compressor, compressor

#: An order that is not better than this on the sample is not worth a plan.
LEAST_GAIN = 0.001
#: Share of the budget for the search with a stand-in; what is left is for the real compressor.
SEARCH_SHARE = 0.6
#: Bytes of the log on which a plan must prove its gain.
CONFIRMED_BYTES = 8 << 20
_WHY = (
    "our logs are generated, and which of the paper's logs and compressors gave 32 % is not in its abstract; over 40 % would be other work"
)


def _claims(alone: str) -> tuple[Claim, ...]:
    up_to = Claim(
        "ratio", over=alone, by=Gain(percent=(32, None)), aggregate="max", honest=(25, 40), part=10, why=_WHY,
        says=f"up to 32 % higher ratio than {alone} on the original order", source="abstract",
    )  # fmt: skip
    mean = Claim(
        "ratio", over=alone, by=Gain(percent=(4, None)),
        says=f"on the mean over all logs and orders over 4 % higher ratio than {alone}", source="our reading",
    )  # fmt: skip
    speed = Claim(
        "decompress_MBps", over=alone, by=Gain(ratio=(1.0, None)), honest=(0.95, None),
        why="the speed of one call varies by some per cent from run to run",
        says="the compressor decompresses as fast as before; putting the fields back is reported apart", source="abstract",
    )  # fmt: skip
    return up_to, mean, speed


@dataclass(frozen=True)
class CFseq(LogTechnique):
    """Writes the fields in the order that compresses best, which a search on a sample finds, and compresses the result."""

    compressor: str = parameter("zstd-3", "what compresses the reordered log")
    sample_bytes: int = parameter(4 << 20, "bytes of the sample, in eight stretches", range=(1, 1 << 30))
    budget_s: float = parameter(30.0, "seconds that the search may take", range=(0, 86400))
    most_orders: int = parameter(
        20_000, "orders that the search may try: a budget that gives the same plan on every machine", range=(1, None)
    )
    restarts: int = parameter(2, "shaken orders that the search starts from again", range=(0, 100))
    threads: int = parameter(2, "threads that score orders; the plan does not depend on it", range=(1, 256))
    lenient: bool = parameter(False, "plan even where over a fifth of the lines do not fit")
    format: str = parameter("auto", "zeek, csv, tsv, w3c, combined, netflow, key-value, jsonl, or auto")

    claims: ClassVar[tuple[Claim, ...]] = _claims("zstd-3")

    @classmethod
    def claims_with(cls, settings: Mapping[str, str]) -> tuple[Claim, ...]:
        """Returns the same claims over each compressor on the original order, which the arena names without its only level."""
        alone = settings.get("compressor", "zstd-3")
        return _claims({"bzip2-9": "bzip2", "ppmd-6": "ppmd"}.get(alone, alone))

    def validate(self) -> None:
        """Refuses an unknown compressor."""
        compressor(self.compressor)

    def fit(self, source: Path | str | bytes) -> Plan:
        """Makes a plan for this log and later ones of the same schema."""
        self.validate()
        found = detect(source, self.format)
        if found is None:
            where = None if isinstance(source, bytes) else str(source)
            raise InputError("found free text; expected a log with fields (set format where it has them)", where=where)
        return self.plan_for(source, found)

    def plan_for(self, source: Path | str | bytes, form: Format) -> Plan:
        """Makes a plan for a log whose format is known.

        The order stays as it is unless the log, as it will be written with its plan in front, is smaller in the new order. That is tried
        on the whole log up to 8 MiB, and on a sample of this size beyond.
        """
        real = compressor(self.compressor)
        with Stopwatch() as watch:
            sample = take_sample(source, form, self.sample_bytes, lenient=self.lenient)
            facts = similarity(sample)
            start = start_order(facts)
            scorer = Scorer(sample, self._scoring(real, sample), self.threads)
            share = 1.0 if scorer.compressor == real else SEARCH_SHARE
            met = search(
                scorer, start, blocks(facts, start), budget_s=share * self.budget_s, most_orders=max(1, int(share * self.most_orders)),
                restarts=self.restarts, seed=len(sample),
            )  # fmt: skip
            order, tried, early = met.order, met.tried, met.ended_early
            if scorer.compressor != real:
                left_s, left = max(0.0, self.budget_s - met.seconds), max(0, self.most_orders - met.tried)
                order, more = polish(Scorer(sample, real, self.threads), met.finalists, budget_s=left_s, most_orders=left)
                tried += more
            plan = Plan(form, order, real.name, header=header_digest(form.name, form.names))
            gain = gain_on(plan, source, CONFIRMED_BYTES)
            if gain <= LEAST_GAIN:
                plan, gain = replace(plan, order=tuple(range(form.fields))), 0.0
        return replace(plan, estimated_gain=gain, search_s=watch.seconds, tried=tried, ended_early=early)

    def _scoring(self, real: Compressor, sample: Sample) -> Compressor:
        """The compressor itself where the budget allows for as many orders as the search may try, and its stand-in elsewhere."""
        fields = sample.format.fields
        orders = min(self.most_orders, math.factorial(fields) if fields <= EXHAUSTIVE_BLOCKS else self.most_orders)
        return real if orders * sample.bytes <= self.budget_s * real.usual_bytes_per_s else real.stand_in

    def plan(self, log: Log) -> Plan:
        """Makes the same plan in a study, within the limits of the case."""
        if log.format is None:
            raise NotForThisCase("free text has no fields to reorder")
        sample, orders, seconds = log.search
        bounded = replace(
            self, sample_bytes=min(sample, self.sample_bytes), most_orders=min(orders, self.most_orders),
            budget_s=min(seconds, self.budget_s),
            lenient=self.lenient or log.lenient,
        )  # fmt: skip
        return bounded.plan_for(log.data, log.format)


def gain_on(plan: Plan, source: Path | str | bytes, sample_bytes: int = CONFIRMED_BYTES) -> float:
    """Returns the plan's gain with its compressor on this log, or on a sample of it; the bytes of the plan itself count.

    The log is compressed as it will be written: with its headers, its comments and the lines that do not fit.
    """
    real = compressor(plan.compressor)
    text = b"".join(read_sample(source, sample_bytes))
    return len(real.compress(text)) / len(real.compress(written(plan, text))) - 1


def drifted(plan: Plan, source: Path | str | bytes, sample_bytes: int = CONFIRMED_BYTES) -> bool:
    """Says whether the plan's gain on this log has fallen by over 30 % of what it was."""
    return gain_on(plan, source, sample_bytes) < (1 - DRIFT) * plan.estimated_gain


def replan(plan: Plan, source: Path | str | bytes, maker: CFseq | None = None) -> Plan:
    """Returns the same plan where it still gains what it promised on this log, and otherwise a new one."""
    chosen = maker or CFseq(compressor=plan.compressor)
    if not drifted(plan, source):
        return plan
    return chosen.plan_for(source, plan.format)


def compress(
    path: Path | str, out: Path | str, compressor_name: str = "zstd-3", *, plan: Plan | None = None, maker: CFseq | None = None
) -> Plan:
    """Plans, reorders and compresses a log in one go; `out` is an ordinary compressed file whose log says its plan in a leading comment."""
    made = plan or (maker or CFseq(compressor=compressor_name)).fit(path)
    with reading(path) as source, writing(out) as target:
        target.write(compressor(made.compressor).compress(written(made, source.read(), marked=True)))
    return made


def decompress(path: Path | str, out: Path | str, compressor_name: str = "zstd-3", *, most_bytes: int = MOST_BYTES) -> Plan | None:
    """Restores the original log from what `compress` wrote; returns its plan, or None where the fields kept their order.

    A log of more than `most_bytes` bytes is refused.
    """
    with reading(path) as source, writing(out) as target:
        text = compressor(compressor_name).decompress(source.read(), most_bytes=most_bytes)
        if not text.startswith(EMBED):
            raise InputError("found no plan in front of the log", where=str(path))
        plan, log = unwritten(text, str(path))
        target.write(log)
    return plan
