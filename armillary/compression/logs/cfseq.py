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
from .planning.plan import DRIFT, EMBED, Plan, embedded_plan, header_digest, reading, writing
from .planning.search import Scorer, search
from .planning.technique import Log, LogTechnique
from .records.formats import Format, detect
from .records.sample import take_sample
from .streams.compressors import Compressor, compressor

#: An order that is not better than this on the sample is not worth a plan.
LEAST_GAIN = 0.001
_WHY = "our logs are generated, and which of the paper's logs and compressors gave 32 % is not in its abstract"


def _claims(alone: str) -> tuple[Claim, ...]:
    up_to = Claim(
        "ratio", over=alone, by=Gain(percent=(32, None)), aggregate="max", honest=(25, None), part=10, why=_WHY,
        says=f"up to 32 % higher ratio than {alone} on the original order", source="abstract",
    )  # fmt: skip
    mean = Claim(
        "ratio", over=alone, by=Gain(percent=(4, None)),
        says=f"on the mean over all logs and orders over 4 % higher ratio than {alone}", source="our reading",
    )  # fmt: skip
    speed = Claim(
        "decompress_MBps", over=alone, by=Gain(ratio=(1.0, None)), honest=(0.95, None), part=0.9,
        why="speeds are measured on a shared machine",
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
        """Makes a plan for a log whose format is known."""
        real = compressor(self.compressor)
        with Stopwatch() as watch:
            sample = take_sample(source, form, self.sample_bytes, lenient=self.lenient)
            facts = similarity(sample)
            start = start_order(facts)
            scorer = Scorer(sample, real.stand_in, self.threads)
            met = search(
                scorer, start, blocks(facts, start),
                budget_s=self.budget_s, most_orders=self.most_orders, restarts=self.restarts, seed=len(sample),
            )  # fmt: skip
            order, gain = _chosen(scorer, real, met.finalists)
        return Plan(form, order, real.name, gain, header_digest(form.name, form.names), watch.seconds, met.tried, met.ended_early)

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


def _chosen(scorer: Scorer, real: Compressor, finalists: tuple[tuple[int, ...], ...]) -> tuple[tuple[int, ...], float]:
    """Returns the finalist that the real compressor makes smallest, and its gain.

    The original order stays unless another one is better by a tenth of a per cent.
    """
    original = tuple(range(len(finalists[0])))
    alone = len(real.compress(scorer.text(original)))
    size, _, order = min((len(real.compress(scorer.text(order))), place, order) for place, order in enumerate(finalists))
    if alone / size - 1 <= LEAST_GAIN:
        return original, 0.0
    return order, alone / size - 1


def gain_on(plan: Plan, source: Path | str | bytes, sample_bytes: int = 4 << 20) -> float:
    """Returns the plan's gain on a sample of this log with the plan's compressor, which is what `drifted` compares."""
    sample = take_sample(source, plan.format, sample_bytes, lenient=True)
    real = compressor(plan.compressor)
    scorer = Scorer(sample, real)
    original = tuple(range(plan.format.fields))
    return len(real.compress(scorer.text(original))) / len(real.compress(scorer.text(plan.order))) - 1


def drifted(plan: Plan, source: Path | str | bytes, sample_bytes: int = 4 << 20) -> bool:
    """Says whether the plan's gain on this log has fallen by over 30 % of what it was."""
    return gain_on(plan, source, sample_bytes) < (1 - DRIFT) * plan.estimated_gain


def replan(plan: Plan, source: Path | str | bytes, maker: CFseq | None = None) -> Plan:
    """Returns the same plan where it still gains what it promised on this log, and otherwise a new one."""
    chosen = maker or CFseq(compressor=plan.compressor)
    if not drifted(plan, source, chosen.sample_bytes):
        return plan
    return chosen.plan_for(source, plan.format)


def compress(
    path: Path | str, out: Path | str, compressor_name: str = "zstd-3", *, plan: Plan | None = None, maker: CFseq | None = None
) -> Plan:
    """Plans, reorders and compresses a log in one go; `out` is an ordinary compressed file whose log says its plan in a leading comment."""
    made = plan or (maker or CFseq(compressor=compressor_name)).fit(path)
    with reading(path) as source, writing(out) as target:
        data = source.read()
        target.write(compressor(made.compressor).compress(made.transform_bytes(data, embed=True)))
    return made


def decompress(path: Path | str, out: Path | str, compressor_name: str = "zstd-3") -> Plan:
    """Restores the original log from what `compress` wrote."""
    with reading(path) as source, writing(out) as target:
        plan, text = _restored(compressor(compressor_name).decompress(source.read()), str(path))
        target.write(text)
    return plan


def _restored(text: bytes, where: str) -> tuple[Plan, bytes]:
    line, newline, rest = text.partition(b"\n")
    if not newline or not line.startswith(EMBED):
        raise InputError("found no plan in front of the log", where=where)
    plan = embedded_plan(line, where)
    return plan, plan.inverse_bytes(rest)
