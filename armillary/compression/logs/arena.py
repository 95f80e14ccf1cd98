"""How much smaller do my logs get if only the order of the fields changes, and what do heavier log compressors add?"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from armillary.arena import Arena, Case, Metric, Result, parameter
from armillary.wording import listed

from .records import NAMES

if TYPE_CHECKING:
    import numpy as np

    from armillary.result import Lines

    from .planning.technique import Log, LogTechnique

#: The compressors as techniques are named after them, and as `compressor` takes them.
COMPRESSORS = {"gzip-6": "gzip-6", "bzip2": "bzip2-9", "zstd-3": "zstd-3", "zstd-19": "zstd-19", "xz-6": "xz-6", "brotli-9": "brotli-9",
               "ppmd": "ppmd-6"}  # fmt: skip
USUAL = "zstd-3"


def _behind(name: str, target: str) -> dict[str, str]:
    """Returns the technique with its usual compressor, and its variants with each of the others."""
    others = {f"{name}+{short}": f"{target}(compressor={full})" for short, full in COMPRESSORS.items() if short != USUAL}
    return {name: target, **others}


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
        Metric("decompress_MBps", unit="MB/s", better="higher", kind="measured",
               doc="bytes of the log per second until the reordered log is there, which is a log as well"),
        Metric("inverse_share", better="lower", kind="measured", scale="difference",
               doc="seconds that it takes to put the fields back over the seconds of decompression; 0 where nothing moved"),
        Metric("search_s", unit="s", better="lower", kind="measured", scale="difference",
               doc="seconds of the search for an order, which is made once for all later logs"),
        Metric("lossless", better="higher", kind="measured", steady=True, scale="difference",
               doc="1 where the SHA-256 is that of the log; otherwise the unit fails"),
    ],
    techniques={
        **_behind("cfseq", ".cfseq:CFseq"),
        **_behind("entropy-order", ".entropy_order:EntropyOrder"),
        **_behind("random-order", ".random_order:RandomOrder"),
        "denum": ".denum:Denum",
        "cfseq+denum": ".cfseq_denum:CFseqDenum",
        "columnar": ".columnar:Columnar",
        "columnar+types": ".columnar_types:ColumnarTypes",
        **{short: f".as_it_is:AsItIs(compressor={full})" for short, full in COMPRESSORS.items()},
    },
    papers=dict.fromkeys((*_behind("cfseq", ""), "cfseq+denum"), "cfseq"),
    baseline=USUAL,
    tradeoff=("compress_MBps", "ratio"),
    repeats=1,
    telling=["zeek-conn", "proxy~1", "json-events~2"],
)  # fmt: skip

SIZES = {"tiny": 30_000, "small": 300_000, "large": 20_000_000}
#: Limits of a search in the built-in study, beside the technique's own: bytes of the sample, orders, seconds.
SEARCHES = {"tiny": (30_000, 12, 2.0), "small": (150_000, 1500, 0.6), "large": (4 << 20, 20_000, 30.0)}
ORDERS = (0, 1, 2)
CALLS, SECONDS = 5, 0.2
#: A gain below this is none.
LEAST_TOLD = 0.001


@logs.cases
def cases(scale: str) -> Iterator[Case]:
    """Yields every built-in log with its fields as the vendor writes them, and in two other orders."""
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
    """Options: how a log is read and planned for."""

    format: str = parameter("auto", "the format of the log, where its lines do not tell it; lines is free text", choices=NAMES)
    lenient: bool = parameter(False, "whether any number of lines may not fit the format; they are left alone")
    search_s: float = parameter(30.0, "seconds that a search for an order may take", range=(0.0, 1e6))


@logs.read(Reading)
def read(path: Path, how: Reading) -> Log:
    """Reads a log with one record per line."""
    from armillary.files import read_bytes

    from .planning.technique import Log
    from .records.formats import detect
    from .records.sample import take_sample

    data = read_bytes(path)
    found = detect(data, how.format, where=str(path))
    if found is not None:
        take_sample(data, found, lenient=how.lenient, where=str(path))
    return Log(data, found, (4 << 20, 1 << 30, how.search_s), how.lenient)


@logs.own_cases
def own_cases(log: Log, name: str, how: Reading) -> Iterator[Case]:
    """Yields the log as one case; a log without fields is free text."""
    yield Case(name, kinds=frozenset({"file", "free-text" if log.format is None else "fields"}))


@logs.example
def example(folder: Path) -> tuple[Path, dict[str, str]]:
    """Writes two hundred lines as a web server does, in the Common Log Format."""
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
    """Plans on a sample, packs the log and restores it, compares the SHA-256, and then measures each of these steps."""
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
    """Returns seconds per call: the median of as many calls as fit into a fifth of a second, at least one and at most five."""
    from armillary.timing import timed

    first = timed(work, min_seconds=0.0, min_calls=1).median
    more = min(CALLS, int(SECONDS / max(first, 1e-9)))
    return first if more < 2 else timed(work, min_seconds=0.0, min_calls=more).median


def _alone(case: Case, name: str) -> int:
    """Returns the compressed bytes of the log in its own order."""
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
    """Says what the order of the fields alone gives, and which technique makes the logs smallest."""
    every = [(gain, name, case) for name in result.techniques if name.startswith("cfseq")
             for case, gain in result.medians(name, "gain").items()]  # fmt: skip
    said = []
    if every:
        best, name, case = max(every)
        mean = sum(gain for gain, _, _ in every) / len(every)
        if best < LEAST_TOLD:
            said.append("Reordering the fields alone makes no log smaller, so the order stays.")
        elif len(every) == 1:
            said.append(f"Reordering the fields alone raises the ratio by {best:.1%} ({name}).")
        else:
            most = f"by {best:.1%} at most ({name} on {case})"
            said.append(f"Reordering the fields alone raises the ratio by {mean:.1%} on average and {most}.")
    smallest = [result.best(case, "ratio") for case in result.cases] if "ratio" in result.metrics else []
    first = [name for name in dict.fromkeys(smallest) if name is not None]
    if len(first) == 1:
        said.append(f"{first[0]} makes {'every log' if len(smallest) > 1 else 'the log'} smallest.")
    elif first:
        said.append(f"{listed(first, joined_by='or')} makes a log smallest, depending on the log.")
    return " ".join(said) or "Nothing was compressed."


@logs.plots
def plots(result: Result) -> Sequence[Any]:
    """Draws the gain of each way to order the fields, by log and compressor."""
    from armillary.figures import panels

    lines: Lines = {}
    for technique in result.techniques:
        way, _, name = technique.partition("+")
        if way in ("cfseq", "entropy-order", "random-order"):
            found = result.medians(technique, "gain")
            if found:
                lines.setdefault(name or USUAL, {})[way] = [(case, 100 * gain) for case, gain in sorted(found.items())]
    return [panels(lines, "Gain in ratio by the order of the fields", "log", "%")] if lines else []


def _make(case: Case, rng: np.random.Generator) -> Log:
    from .planning.technique import Log
    from .workload import generate

    facts = case.parameters
    data, found = generate(facts["log"], facts["bytes"], rng, constant_share=facts["constant_share"], order=facts["order"])
    return Log(data, found, (facts["sample_bytes"], facts["most_orders"], facts["search_s"]))
