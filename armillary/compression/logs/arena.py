"""How much smaller do my logs get if only the order of the fields changes, and what do heavier log compressors add?"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from armillary.arena import Arena, Case, Metric

if TYPE_CHECKING:
    import numpy as np

    from armillary.study import Result

    from .technique import Log, LogTechnique

logs = Arena(
    "compression/logs",
    question="How much smaller do my logs get if only the order of the fields changes, and what do heavier log compressors add?",
    metrics=[
        Metric("ratio", better="higher", kind="measured", steady=True,
               doc="bytes of the log over all bytes needed to get it back, the plan included"),
        Metric("gain", better="higher", kind="measured", steady=True, scale="difference",
               doc="ratio over that of the same compressor on the log as it is, less 1"),
        Metric("compress_MBps", unit="MB/s", better="higher", kind="measured",
               doc="bytes of the log a second with the transform, without the search; median of at most five calls in a fifth of a second"),
        Metric("decompress_MBps", unit="MB/s", better="higher", kind="measured", doc="to the reordered log, which is a log; alike"),
        Metric("inverse_share", better="lower", kind="measured", scale="difference",
               doc="seconds of putting the fields back over those of decompressing; 0 where nothing moved"),
        Metric("search_s", unit="s", better="lower", kind="measured", scale="difference",
               doc="of looking for an order, once for all later logs"),
        Metric("lossless", better="higher", kind="measured", steady=True, scale="difference",
               doc="1 where the SHA-256 is that of the log; else the unit fails"),
    ],
    techniques={
        "cfseq": ".cfseq:CFseq",
        "cfseq+gzip-6": ".pairings:CFseqGzip6",
        "cfseq+bzip2": ".pairings:CFseqBzip2",
        "cfseq+zstd-19": ".pairings:CFseqZstd19",
        "cfseq+xz-6": ".pairings:CFseqXz6",
        "cfseq+brotli-9": ".pairings:CFseqBrotli9",
        "cfseq+ppmd": ".pairings:CFseqPpmd",
        "entropy-order": ".orders:EntropyOrder",
        "entropy-order+gzip-6": ".pairings:EntropyGzip6",
        "entropy-order+bzip2": ".pairings:EntropyBzip2",
        "entropy-order+zstd-19": ".pairings:EntropyZstd19",
        "entropy-order+xz-6": ".pairings:EntropyXz6",
        "entropy-order+brotli-9": ".pairings:EntropyBrotli9",
        "entropy-order+ppmd": ".pairings:EntropyPpmd",
        "random-order": ".orders:RandomOrder",
        "random-order+gzip-6": ".pairings:RandomGzip6",
        "random-order+bzip2": ".pairings:RandomBzip2",
        "random-order+zstd-19": ".pairings:RandomZstd19",
        "random-order+xz-6": ".pairings:RandomXz6",
        "random-order+brotli-9": ".pairings:RandomBrotli9",
        "random-order+ppmd": ".pairings:RandomPpmd",
        "denum": ".denum:Denum",
        "cfseq+denum": ".denum:CFseqDenum",
        "columnar": ".columnar:Columnar",
        "columnar+types": ".columnar:ColumnarTypes",
        "gzip-6": ".general:Gzip6",
        "bzip2": ".general:Bzip2",
        "zstd-3": ".general:Zstd3",
        "zstd-19": ".general:Zstd19",
        "xz-6": ".general:Xz6",
        "brotli-9": ".general:Brotli9",
        "ppmd": ".general:Ppmd",
    },
    papers=dict.fromkeys(("cfseq", *(f"cfseq+{c}" for c in ("gzip-6", "bzip2", "zstd-19", "xz-6", "brotli-9", "ppmd", "denum"))), "cfseq"),
    baseline="zstd-3",
    tradeoff=("compress_MBps", "ratio"),
    repeats=1,
)  # fmt: skip

SIZES = {"tiny": 48_000, "small": 300_000, "large": 20_000_000}
#: What a search in the built-in study may use, of what the technique allows: bytes of the sample, orders, seconds.
SEARCHES = {"tiny": (48_000, 60, 2.0), "small": (150_000, 1500, 0.6), "large": (4 << 20, 20_000, 30.0)}
ORDERS = (0, 1, 2)
CALLS, SECONDS = 5, 0.2


@logs.cases
def cases(scale: str) -> Iterator[Case]:
    """Every built-in log with its fields as the vendor writes them and in two other orders."""
    from .workload import KINDS

    sample, orders, seconds = SEARCHES[scale]
    for name in KINDS:
        for order in ORDERS:
            facts = {
                "log": name, "bytes": SIZES[scale], "order": order, "constant_share": 0.97,
                "sample_bytes": sample, "most_orders": orders, "search_s": seconds,
            }  # fmt: skip
            kinds = {"fields", name, "vendor-order" if order == 0 else "shuffled"}
            yield Case(name if order == 0 else f"{name}~{order}", _make, facts, frozenset(kinds))


@logs.read
def read(path: Path, *, format: str = "auto", lenient: bool = False, search_s: float = 30.0) -> Iterator[Case]:
    """A log in a file; `format` where it cannot be told, `lenient` to leave alone any number of lines that do not fit."""
    from armillary.errors import InputError

    from .formats import NAMES, detect
    from .sample import take_sample

    if format not in NAMES:
        from armillary.errors import unknown

        raise unknown("format", format, NAMES, where="--format")
    if not search_s >= 0:
        raise InputError(f"found {search_s}; expected seconds, 0 or more", where="--search-s")
    found = detect(path, format)
    if found is not None:
        take_sample(path, found, lenient=lenient)
    facts = {"format": format, "lenient": lenient, "sample_bytes": 4 << 20, "most_orders": 1 << 30, "search_s": search_s}
    yield Case(path.name, _load, facts, frozenset({"file", "free-text" if found is None else "fields"}), source=path)


@logs.run
def run(technique: LogTechnique, case: Case) -> dict[str, float]:
    """Plan on a sample, transform and compress the whole, decompress, invert, compare SHA-256; then against the clock."""
    _warm()
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
        "gain": ratio / (len(log.data) / _alone(technique.alone, case)) - 1,
        "compress_MBps": len(log.data) / packing / 1e6,
        "decompress_MBps": len(log.data) / decoding / 1e6,
        "inverse_share": inverse / decoding,
        "search_s": plan.search_s if plan is not None else 0.0,
        "lossless": 1.0,
    }


def _median(work: Any) -> float:
    """Seconds of a call: the median of as many as fit in a fifth of a second, at least one and at most five."""
    from armillary.timing import timed

    first = timed(work, min_seconds=0.0, min_calls=1).median
    more = min(CALLS, int(SECONDS / max(first, 1e-9)))
    return first if more < 2 else timed(work, min_seconds=0.0, min_calls=more).median


#: Plans and sizes that several techniques of one case share; emptied when the case changes.
_SHARED: dict[tuple[str, int, int], dict[Any, Any]] = {}


def _shared(case: Case) -> dict[Any, Any]:
    key = (case.digest, case.seed, case.repeat)
    if key not in _SHARED:
        _SHARED.clear()
        _SHARED[key] = {}
    return _SHARED[key]


def _alone(name: str, case: Case) -> int:
    from .compressors import compressor

    known = _shared(case)
    if name not in known:
        known[name] = len(compressor(name).compress(case.workload.data))
    return int(known[name])


@functools.cache
def _warm() -> None:
    """Compiles every kernel once, so that no search pays for it."""
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
        said.append(f"Reordering the fields alone raises the ratio by {mean:.1%} on the mean, {best:.1%} at most ({name} on {case}).")
    ratios = {name: result.medians(name, "ratio") for name in result.techniques}
    where = sorted({case for found in ratios.values() for case in found})
    first = [max((found[case], name) for name, found in ratios.items() if case in found)[1] for case in where]
    wins = sorted(((first.count(name), name) for name in set(first)), reverse=True)
    if wins:
        said.append(f"Smallest: {', '.join(f'{name} on {count}' for count, name in wins[:3])} of {len(where)}.")
    return " ".join(said) or "Nothing was compressed."


@logs.plots
def plots(result: Result) -> Sequence[Any]:
    """Gain of each way to order the fields, by log and compressor."""
    from armillary.figures import panels

    lines: dict[str, dict[str, list[tuple[float | str, float]]]] = {}
    for technique in result.techniques:
        way, _, name = technique.partition("+")
        if way in ("cfseq", "entropy-order", "random-order"):
            found = result.medians(technique, "gain")
            if found:
                lines.setdefault(name or "zstd-3", {})[way] = [(case, 100 * gain) for case, gain in sorted(found.items())]
    return [panels(lines, "Gain in ratio by the order of the fields", "log", "%")] if lines else []


def _make(case: Case, rng: np.random.Generator) -> Log:
    from .technique import Log
    from .workload import generate

    facts = case.parameters
    data, found = generate(facts["log"], facts["bytes"], rng, constant_share=facts["constant_share"], order=facts["order"])
    return Log(data, found, (facts["sample_bytes"], facts["most_orders"], facts["search_s"]))


def _load(case: Case, rng: np.random.Generator) -> Log:
    from .formats import detect
    from .technique import Log

    assert case.source is not None
    data, facts = case.source.read_bytes(), case.parameters
    return Log(data, detect(data, facts["format"]), (facts["sample_bytes"], facts["most_orders"], facts["search_s"]), facts["lenient"])
