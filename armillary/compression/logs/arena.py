"""How much smaller do my logs get if only the order of the fields changes, and what do heavier log compressors add?"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from armillary.arena import Arena, Case, Metric, Result, parameter

if TYPE_CHECKING:
    import numpy as np

    from armillary.result import Lines

    from .planning.technique import Log, LogTechnique

logs = Arena(
    "compression/logs",
    question="How much smaller do my logs get if only the order of the fields changes, and what do heavier log compressors add?",
    metrics=[
        Metric("ratio", better="higher", kind="measured", steady=True,
               doc="bytes of the log over all bytes needed to get it back, the plan included"),
        Metric("gain", better="higher", kind="measured", steady=True, scale="difference",
               doc="ratio over that of the same compressor on the log as it is, less 1"),
        Metric("compress_MBps", unit="MB/s", better="higher", kind="measured",
               doc="bytes of the log per second with the transform and without the search; median of at most five calls"),
        Metric("decompress_MBps", unit="MB/s", better="higher", kind="measured", doc="to the reordered log, which is a log"),
        Metric("inverse_share", better="lower", kind="measured", scale="difference",
               doc="seconds of putting the fields back over those of decompressing; 0 where nothing moved"),
        Metric("search_s", unit="s", better="lower", kind="measured", scale="difference",
               doc="of looking for an order, once for all later logs"),
        Metric("lossless", better="higher", kind="measured", steady=True, scale="difference",
               doc="1 where the SHA-256 is that of the log; else the unit fails"),
    ],
    techniques={
        "cfseq": ".cfseq:CFseq",
        "cfseq+gzip-6": ".cfseq:CFseq(compressor=gzip-6)",
        "cfseq+bzip2": ".cfseq:CFseq(compressor=bzip2-9)",
        "cfseq+zstd-19": ".cfseq:CFseq(compressor=zstd-19)",
        "cfseq+xz-6": ".cfseq:CFseq(compressor=xz-6)",
        "cfseq+brotli-9": ".cfseq:CFseq(compressor=brotli-9)",
        "cfseq+ppmd": ".cfseq:CFseq(compressor=ppmd-6)",
        "entropy-order": ".entropy_order:EntropyOrder",
        "entropy-order+gzip-6": ".entropy_order:EntropyOrder(compressor=gzip-6)",
        "entropy-order+bzip2": ".entropy_order:EntropyOrder(compressor=bzip2-9)",
        "entropy-order+zstd-19": ".entropy_order:EntropyOrder(compressor=zstd-19)",
        "entropy-order+xz-6": ".entropy_order:EntropyOrder(compressor=xz-6)",
        "entropy-order+brotli-9": ".entropy_order:EntropyOrder(compressor=brotli-9)",
        "entropy-order+ppmd": ".entropy_order:EntropyOrder(compressor=ppmd-6)",
        "random-order": ".random_order:RandomOrder",
        "random-order+gzip-6": ".random_order:RandomOrder(compressor=gzip-6)",
        "random-order+bzip2": ".random_order:RandomOrder(compressor=bzip2-9)",
        "random-order+zstd-19": ".random_order:RandomOrder(compressor=zstd-19)",
        "random-order+xz-6": ".random_order:RandomOrder(compressor=xz-6)",
        "random-order+brotli-9": ".random_order:RandomOrder(compressor=brotli-9)",
        "random-order+ppmd": ".random_order:RandomOrder(compressor=ppmd-6)",
        "denum": ".denum:Denum",
        "cfseq+denum": ".cfseq_denum:CFseqDenum",
        "columnar": ".columnar:Columnar",
        "columnar+types": ".columnar_types:ColumnarTypes",
        "gzip-6": ".as_it_is:AsItIs(compressor=gzip-6)",
        "bzip2": ".as_it_is:AsItIs(compressor=bzip2-9)",
        "zstd-3": ".as_it_is:AsItIs(compressor=zstd-3)",
        "zstd-19": ".as_it_is:AsItIs(compressor=zstd-19)",
        "xz-6": ".as_it_is:AsItIs(compressor=xz-6)",
        "brotli-9": ".as_it_is:AsItIs(compressor=brotli-9)",
        "ppmd": ".as_it_is:AsItIs(compressor=ppmd-6)",
    },
    papers=dict.fromkeys(("cfseq", *(f"cfseq+{c}" for c in ("gzip-6", "bzip2", "zstd-19", "xz-6", "brotli-9", "ppmd", "denum"))), "cfseq"),
    baseline="zstd-3",
    tradeoff=("compress_MBps", "ratio"),
    repeats=1,
)  # fmt: skip

SIZES = {"tiny": 30_000, "small": 300_000, "large": 20_000_000}
#: What a search in the built-in study may use, of what the technique allows: bytes of the sample, orders, seconds.
SEARCHES = {"tiny": (30_000, 40, 2.0), "small": (150_000, 1500, 0.6), "large": (4 << 20, 20_000, 30.0)}
ORDERS = (0, 1, 2)
CALLS, SECONDS = 5, 0.2


@logs.cases
def cases(scale: str) -> Iterator[Case]:
    """Every built-in log with its fields as the vendor writes them and in two other orders."""
    from .workload import KINDS

    sample, orders, seconds = SEARCHES[scale]
    for name in KINDS if scale != "tiny" else ("zeek-conn", "json-events"):
        for order in ORDERS if scale != "tiny" else ORDERS[:2] if name == "zeek-conn" else ORDERS[:1]:
            facts = {
                "log": name, "bytes": SIZES[scale], "order": order, "constant_share": 0.97,
                "sample_bytes": sample, "most_orders": orders, "search_s": seconds,
            }  # fmt: skip
            kinds = {"fields", name, "vendor-order" if order == 0 else "shuffled"}
            yield Case(name if order == 0 else f"{name}~{order}", _make, facts, frozenset(kinds))


@dataclass(frozen=True)
class Reading:
    """How a log is read and planned for."""

    format: str = parameter("auto", "zeek, csv, tsv, w3c, combined, netflow, key-value, jsonl or text, where it cannot be told")
    lenient: bool = parameter(False, "whether any number of lines may not fit the format; they are left alone")
    search_s: float = parameter(30.0, "seconds that a search for an order may take", range=(0.0, 1e6))

    def validate(self) -> None:
        """The format is one that there is."""
        from armillary.errors import unknown

        from .records.formats import NAMES

        if self.format not in NAMES:
            raise unknown("format", self.format, NAMES, where="--format")


@logs.read(Reading)
def read(path: Path, how: Reading) -> Log:
    """A log, one record per line."""
    from armillary.files import read_bytes

    from .planning.technique import Log
    from .records.formats import detect
    from .records.sample import take_sample

    data = read_bytes(path)
    found = detect(data, how.format)
    if found is not None:
        take_sample(path, found, lenient=how.lenient)
    return Log(data, found, (4 << 20, 1 << 30, how.search_s), how.lenient)


@logs.own_cases
def own_cases(log: Log, name: str, how: Reading) -> Iterator[Case]:
    """The log; one without fields is free text."""
    yield Case(name, kinds=frozenset({"file", "free-text" if log.format is None else "fields"}))


@logs.example
def example(folder: Path) -> tuple[Path, dict[str, str]]:
    """Two hundred lines as a web server writes them, in the Common Log Format."""
    file = folder / "access.log"
    lines = (f'10.0.0.{i % 7} - - [10/Oct/2000:13:55:{i % 60:02} -0700] "GET /{i % 5} HTTP/1.0" 200 {i * 37 % 999}' for i in range(200))
    file.write_text("".join(f"{line}\n" for line in lines))
    return file, {"search_s": "0.1"}


@logs.warm_up
def warm_up(technique: LogTechnique, case: Case) -> None:
    """Compiles every kernel, so that no search pays for it."""
    _compiled()


@logs.run
def run(technique: LogTechnique, case: Case) -> dict[str, float]:
    """Plan on a sample, transform and compress the whole, decompress, invert, compare SHA-256; then against the clock."""
    log: Log = case.workload
    plan = technique.plan(log)
    packed = technique.pack(log, plan)
    decoded = technique.decode(packed)
    restored = technique.restore(decoded, plan)
    if hashlib.sha256(restored).digest() != hashlib.sha256(log.data).digest():
        raise ArithmeticError(f"{case.name}: what comes back is not the log")
    packing = _median(lambda: technique.pack(log, plan))
    decoding = _median(lambda: technique.decode(packed))
    inverse = _median(lambda: technique.restore(decoded, plan)) if plan is not None else 0.0
    ratio = len(log.data) / len(packed)
    return {
        "ratio": ratio,
        "gain": ratio / (len(log.data) / case.once(_alone, technique.alone)) - 1,
        "compress_MBps": len(log.data) / packing / 1e6,
        "decompress_MBps": len(log.data) / decoding / 1e6,
        "inverse_share": inverse / decoding,
        "search_s": plan.search_s if plan is not None else 0.0,
        "lossless": 1.0,
    }


def _median(work: Any) -> float:
    """Seconds per call: the median of as many calls as fit into a fifth of a second, at least one and at most five."""
    from armillary.timing import timed

    first = timed(work, min_seconds=0.0, min_calls=1).median
    more = min(CALLS, int(SECONDS / max(first, 1e-9)))
    return first if more < 2 else timed(work, min_seconds=0.0, min_calls=more).median


def _alone(case: Case, name: str) -> int:
    """Bytes of the log as it is behind a compressor."""
    from .streams.compressors import compressor

    return len(compressor(name).compress(case.workload.data))


@functools.cache
def _compiled() -> None:
    from armillary.streams import stream

    from .cfseq import CFseq
    from .workload import KINDS, generate

    for name in KINDS:
        data, _ = generate(name, 20_000, stream(0, "warm", name))
        plan = CFseq(sample_bytes=20_000, most_orders=30).fit(data)
        plan.inverse_bytes(plan.transform_bytes(data))


@logs.answer
def answer(result: Result) -> str:
    """What the order alone gives, what shuffling gives, and what is smallest."""
    gains = {name: result.medians(name, "gain") for name in result.techniques if name.startswith("cfseq")}
    said = []
    every = [(gain, name, case) for name, found in gains.items() for case, gain in found.items()]
    if every:
        best, name, case = max(every)
        mean = sum(gain for gain, _, _ in every) / len(every)
        said.append(f"Reordering the fields alone raises the ratio by {mean:.1%} on average and by {best:.1%} at most ({name} on {case}).")
    first = result.first_places("ratio") if "ratio" in result.metrics else {}
    if first:
        name, wins = next(iter(first.items()))
        said.append(f"{name} makes {wins} of {len(result.cases)} logs smallest.")
    return " ".join(said) or "Nothing was compressed."


@logs.plots
def plots(result: Result) -> Sequence[Any]:
    """Gain of each way to order the fields, by log and compressor."""
    from armillary.figures import panels

    lines: Lines = {}
    for technique in result.techniques:
        way, _, name = technique.partition("+")
        if way in ("cfseq", "entropy-order", "random-order"):
            found = result.medians(technique, "gain")
            if found:
                lines.setdefault(name or "zstd-3", {})[way] = [(case, 100 * gain) for case, gain in sorted(found.items())]
    return [panels(lines, "Gain in ratio by the order of the fields", "log", "%")] if lines else []


def _make(case: Case, rng: np.random.Generator) -> Log:
    from .planning.technique import Log
    from .workload import generate

    facts = case.parameters
    data, found = generate(facts["log"], facts["bytes"], rng, constant_share=facts["constant_share"], order=facts["order"])
    return Log(data, found, (facts["sample_bytes"], facts["most_orders"], facts["search_s"]))
