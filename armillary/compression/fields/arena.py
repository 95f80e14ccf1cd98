"""How small can I make this simulation output with every value within my bound, how fast, and does it pay on my link?"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from armillary.arena import Arena, Case, Constant, Metric

if TYPE_CHECKING:
    import numpy as np

    from armillary.study import Result

    from .compressor import Compressor

_GRID = frozenset({"grid"})

fields = Arena(
    "compression/fields",
    question="How small can I make this simulation output with every value within my bound, how fast, and does it pay on my link?",
    metrics=[
        Metric("ratio", better="higher", kind="measured", steady=True, doc="bytes of the array over all bytes needed to get it back"),
        Metric("bits_per_value", unit="bit", better="lower", kind="measured", steady=True, doc="compressed bits for each value"),
        Metric(
            "compress_MBps", unit="MB/s", better="higher", kind="measured", doc="bytes of the array a second, median of five, two threads"
        ),
        Metric("decompress_MBps", unit="MB/s", better="higher", kind="measured", doc="the same on the way back"),
        Metric("max_error", better="lower", kind="measured", steady=True, doc="largest error over the bound; above 1 the unit fails"),
        Metric(
            "psnr_dB",
            unit="dB",
            better="higher",
            kind="measured",
            steady=True,
            scale="difference",
            unbounded=True,
            doc="range over root mean square error",
        ),
        Metric("nrmse", better="lower", kind="measured", steady=True, doc="root mean square error over the range"),
        Metric("ssim", better="higher", kind="measured", steady=True, scale="difference", on=_GRID, doc="structural similarity of slices"),
        Metric(
            "spectrum_error",
            better="lower",
            kind="measured",
            steady=True,
            doc="largest relative error of the radial power spectrum, k below N/4",
        ),
        Metric(
            "peak_memory", better="lower", kind="measured", doc="most memory while compressing, the array itself included, over its bytes"
        ),
        Metric("overall_speedup", better="higher", kind="modelled", doc="moving the array over the case's link, compression in the way"),
        Metric("speedup_500MBps", better="higher", kind="modelled", doc="the same over 0.5 GB/s"),
        Metric("speedup_5GBps", better="higher", kind="modelled", doc="the same over 5 GB/s"),
        Metric("speedup_25GBps", better="higher", kind="modelled", doc="the same over 25 GB/s"),
    ],
    techniques={
        "fzmod-default": ".fzmod:FzmodDefault",
        "fzmod-quality": ".fzmod:FzmodQuality",
        "fzmod-speed": ".fzmod:FzmodSpeed",
        "fz-fused": ".fzmod:FzFused",
        "cuszp-fused": ".fzmod:CuszpFused",
        "sz3": ".sz3:Sz3",
        "zfp": ".zfp:Zfp",
        "bitround+zstd": ".bitround:BitroundZstd",
        "blosc2-shuffle-zstd": ".lossless_peers:Blosc2ShuffleZstd",
        "zstd": ".lossless_peers:ZstdAlone",
    },
    papers={"fzmod-default": "fzmodules", "fzmod-quality": "fzmodules", "fzmod-speed": "fzmodules"},
    baseline="sz3",
    tradeoff=("compress_MBps", "ratio"),
    uses=("armillary.arrays", "armillary.tasks"),
    repeats=1,
    constants=[Constant("default link", 1.0, "GB/s", "of overall_speedup where none is given; the other links are those of the claim")],
)

BOUNDS = ("1e-2", "1e-3", "1e-4")
SMOOTH = ("climate-T", "climate-cloud", "cosmology", "turbulence", "hurricane")
THREADS = 2


@fields.cases
def cases(scale: str) -> Iterator[Case]:
    """Every built-in field at three relative bounds, and one in float64 at a tight one."""
    from .workload import FIELDS, shape_of

    for name in FIELDS:
        for bound in BOUNDS:
            yield _case(name, shape_of(name, scale), bound, "float32")
    yield _case("turbulence", shape_of("turbulence", scale), "1e-6", "float64")


def _case(name: str, shape: tuple[int, ...], bound: str, dtype: str) -> Case:
    kinds = (
        {name, f"rel-{bound}", dtype}
        | ({"smooth"} if name in SMOOTH and dtype == "float32" else set())
        | ({"grid"} if len(shape) > 1 else set())
    )
    label = f"{name}@{bound}" if dtype == "float32" else f"{name}-f64@{bound}"
    return Case(
        label, _make, {"field": name, "shape": list(shape), "bound": float(bound), "dtype": dtype, "bandwidth": 1e9}, frozenset(kinds)
    )


@fields.read
def read(
    path: Path, *, shape: str = "", dataset: str = "", bound: float = 1e-3, mode: str = "rel", bandwidth: float = 1.0
) -> Iterator[Case]:
    """A field in a file: .f32, .f64, .dat, .d64, .npy, HDF5, NetCDF-4, Zarr; `shape` as 1800x3600, `bandwidth` of the link in GB/s."""
    from armillary.errors import InputError

    from .bounds import check_bound

    check_bound(mode, bound)
    if mode not in ("abs", "rel"):
        raise InputError(f"mode: found {mode}; every technique here takes abs or rel (pw_rel and psnr: use compress)")
    if not bandwidth > 0:
        raise InputError(f"bandwidth: found {bandwidth}; expected GB/s above 0")
    x = _file(path, shape, dataset, path.stat().st_mtime_ns)
    kinds = {"file", str(x.dtype)} | ({"grid"} if 1 < x.ndim < 4 else set())
    facts = {"shape": shape, "dataset": dataset, "bound": bound, "mode": mode, "bandwidth": bandwidth * 1e9}
    yield Case(path.name, _load, facts, frozenset(kinds), source=path)


@fields.run
def run(technique: Compressor, case: Case) -> dict[str, float]:
    """Compress, decompress from the bytes alone, check every value; then against the clock."""
    from armillary.timing import timed

    from . import metrics

    x, eps = case.workload
    data = technique.pack(x, eps, THREADS)
    back = technique.unpack(data, THREADS)
    largest, psnr, nrmse = metrics.errors(x, back)
    if back.shape != x.shape or back.dtype != x.dtype or not largest <= (0.0 if technique.lossless else eps):
        raise ArithmeticError(f"{case.name}: an error of {largest} with a bound of {eps}: the bound does not hold")
    packing = timed(lambda: technique.pack(x, eps, THREADS), min_seconds=0.0, min_calls=5)
    unpacking = timed(lambda: technique.unpack(data, THREADS), min_seconds=0.0, min_calls=5)
    peak = metrics.peak_bytes(lambda: technique.pack(x, eps, THREADS))
    ratio, rate = x.nbytes / len(data), x.nbytes / packing.median
    found = {
        "ratio": ratio, "bits_per_value": 8 * len(data) / x.size, "compress_MBps": rate / 1e6,
        "decompress_MBps": x.nbytes / unpacking.median / 1e6, "max_error": largest / eps, "psnr_dB": psnr, "nrmse": nrmse,
        "spectrum_error": metrics.spectrum_error(_spectrum(case), metrics.radial_spectrum(back)),
        "peak_memory": (peak + x.nbytes) / x.nbytes, "overall_speedup": metrics.overall_speedup(case.parameters["bandwidth"], ratio, rate),
    }  # fmt: skip
    for link, bandwidth in metrics.LINKS.items():
        found[f"speedup_{link}"] = metrics.overall_speedup(bandwidth, ratio, rate)
    if "grid" in case.kinds:
        found["ssim"] = metrics.ssim(x, back)
    return found


@fields.plots
def plots(result: Result) -> Sequence[Any]:
    """Rate and distortion: PSNR over bits a value, a panel for each field."""
    from armillary.figures import panels

    lines: dict[str, dict[str, list[tuple[float | str, float]]]] = {}
    for technique in result.techniques:
        bits, psnr = result.medians(technique, "bits_per_value"), result.medians(technique, "psnr_dB")
        for case in sorted(bits):
            if psnr.get(case, float("inf")) < 1e300:
                panel = lines.setdefault(case.partition("@")[0], {})
                panel.setdefault(technique, []).append((bits[case], psnr[case]))
    for panel in lines.values():
        for points in panel.values():
            points.sort()
    return [panels(lines, "Rate and distortion: up and to the left is better", "bits a value", "PSNR in dB")] if lines else []


@fields.answer
def answer(result: Result) -> str:
    """The smallest, the fastest, and the best over the case's link."""
    said = []
    for metric, words in (
        ("ratio", "Smallest"),
        ("compress_MBps", "Fastest to compress"),
        ("overall_speedup", "Best over the link (modelled)"),
    ):
        medians = {name: result.medians(name, metric) for name in result.techniques}
        cases = sorted({case for found in medians.values() for case in found})
        first = [max((found[case], name) for name, found in medians.items() if case in found)[1] for case in cases]
        wins = sorted(((first.count(name), name) for name in set(first)), reverse=True)
        if wins:
            said.append(f"{words}: {', '.join(f'{name} on {count}' for count, name in wins)} of {len(cases)}.")
    return " ".join(said) or "Nothing was compressed."


def _make(case: Case, rng: np.random.Generator) -> tuple[np.ndarray, float]:
    import numpy as np

    from .workload import field

    x = field(
        case.parameters["field"], tuple(case.parameters["shape"]), rng, np.float32 if case.parameters["dtype"] == "float32" else np.float64
    )
    return x, _eps(x, "rel", case.parameters["bound"])


def _load(case: Case, rng: np.random.Generator) -> tuple[np.ndarray, float]:
    assert case.source is not None
    facts = case.parameters
    x = _file(case.source, facts["shape"], facts["dataset"], case.source.stat().st_mtime_ns)
    return x, _eps(x, facts["mode"], facts["bound"])


def _eps(x: np.ndarray, mode: str, bound: float) -> float:
    from armillary.errors import InputError

    from .bounds import absolute_bound, finite_span

    eps = absolute_bound(mode, bound, finite_span(x))
    if not eps > 0:
        raise InputError("the field is constant or has no finite value: a relative bound says nothing of it")
    return eps


@functools.lru_cache(maxsize=1)
def _file(path: Path, shape: str, dataset: str, changed_ns: int) -> np.ndarray:
    from .readers import read_field

    return read_field(path, shape or None, dataset or None)


@functools.lru_cache(maxsize=2)
def _spectrum_of(digest: str, seed: int, repeat: int, holder: Any) -> np.ndarray:
    from .metrics import radial_spectrum

    return radial_spectrum(holder.workload[0])


def _spectrum(case: Case) -> np.ndarray:
    return _spectrum_of(case.digest, case.seed, case.repeat, _Once(case))


class _Once:
    """A case that is equal to every other one, so that the cache goes by what defines it."""

    def __init__(self, case: Case) -> None:
        self.workload = case.workload

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Once)

    def __hash__(self) -> int:
        return 0
