"""How small can I make this simulation output with every value within my bound, how fast, and does it pay on my link?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from armillary.arena import Arena, Case, Constant, Metric, Result, parameter
from armillary.wording import listed

if TYPE_CHECKING:
    import numpy as np

    from armillary.result import Lines

    from .pipeline.compressor import Compressor

_GRID = frozenset({"grid"})

fields = Arena(
    "compression/fields",
    question="How small can I make this simulation output with every value within my bound, how fast, and does it pay on my link?",
    metrics=[
        Metric("ratio", better="higher", kind="measured", steady=True, doc="bytes of the array over all bytes needed to get it back"),
        Metric("bits_per_value", unit="bit", better="lower", kind="measured", steady=True, doc="compressed bits for each value"),
        Metric("compress_MBps", unit="MB/s", better="higher", kind="measured",
               doc="bytes of the array per second, median of five, two threads"),
        Metric("decompress_MBps", unit="MB/s", better="higher", kind="measured", doc="the same for decompression"),
        Metric("max_error", better="lower", kind="measured", steady=True, doc="largest error over the bound; above 1 the unit fails"),
        Metric("psnr_dB", unit="dB", better="higher", kind="measured", steady=True, scale="difference", unbounded=True,
               doc="range over root mean square error"),
        Metric("nrmse", better="lower", kind="measured", steady=True, doc="root mean square error over the range"),
        Metric("ssim", better="higher", kind="measured", steady=True, scale="difference", on=_GRID, doc="structural similarity of slices"),
        Metric("spectrum_error", better="lower", kind="measured", steady=True,
               doc="largest relative error of the radial power spectrum, k below N/4"),
        Metric("peak_memory", better="lower", kind="measured",
               doc="most memory while compressing, the array itself included, over its bytes"),
        Metric("overall_speedup", better="higher", kind="modelled", clocked=True, doc="how much sooner the array crosses the case's link"),
        Metric("speedup_500MBps", better="higher", kind="modelled", clocked=True, doc="the same over 0.5 GB/s"),
        Metric("speedup_5GBps", better="higher", kind="modelled", clocked=True, doc="the same over 5 GB/s"),
        Metric("speedup_25GBps", better="higher", kind="modelled", clocked=True, doc="the same over 25 GB/s"),
    ],
    techniques={
        "fzmod-default": ".fzmod_default:FzmodDefault",
        "fzmod-quality": ".fzmod_quality:FzmodQuality",
        "fzmod-speed": ".fzmod_speed:FzmodSpeed",
        "fz-fused": ".fz_fused:FzFused",
        "cuszp-fused": ".cuszp_fused:CuszpFused",
        "sz3": ".sz3:Sz3",
        "zfp": ".zfp:Zfp",
        "bitround+zstd": ".bitround:BitroundZstd",
        "blosc2-shuffle-zstd": ".blosc2_shuffle_zstd:Blosc2ShuffleZstd",
        "zstd": ".zstd_alone:ZstdAlone",
    },
    papers={"fzmod-default": "fzmodules", "fzmod-quality": "fzmodules", "fzmod-speed": "fzmodules"},
    baseline="sz3",
    tradeoff=("compress_MBps", "ratio"),
    repeats=1,
    telling=["climate-T@1e-3", "cosmology@1e-2", "turbulence@1e-3", "turbulence@1e-4", "particles@1e-3", "weights@1e-3"],
    constants=[Constant("default link", 1.0, "GB/s", "of overall_speedup where none is given; the other links are those of the claim")],
)  # fmt: skip

BOUNDS = ("1e-2", "1e-3", "1e-4")
SMOOTH = ("climate-T", "climate-cloud", "cosmology", "turbulence", "hurricane")
THREADS = 2


@fields.cases
def cases(scale: str) -> Iterator[Case]:
    """Yields every built-in field at three relative bounds, and one in float64 at a tight bound."""
    from .workload import FIELDS, shape_of

    for name in FIELDS:
        for bound in BOUNDS if scale != "tiny" else BOUNDS[1:2]:
            yield _case(name, shape_of(name, scale), bound, "float32")
    yield _case("turbulence", shape_of("turbulence", scale), "1e-6", "float64")


def _case(name: str, shape: tuple[int, ...], bound: str, dtype: str) -> Case:
    smooth = {"smooth"} if name in SMOOTH and dtype == "float32" else set()
    kinds = {name, f"rel-{bound}", dtype} | smooth | ({"grid"} if len(shape) > 1 else set())
    label = f"{name}@{bound}" if dtype == "float32" else f"{name}-f64@{bound}"
    facts = {"field": name, "shape": list(shape), "bound": float(bound), "dtype": dtype, "bandwidth": 1e9}
    return Case(label, _make, facts, frozenset(kinds))


@dataclass(frozen=True)
class Reading:
    """Options: how a field is read, to which bound it is compressed, and over which link it moves."""

    shape: str = parameter("", "the extents of a raw file, as 1800x3600, where its name does not tell them")
    dataset: str = parameter("", "the dataset inside an HDF5, NetCDF-4 or Zarr file")
    bound: float = parameter(1e-3, "the error that is allowed", range=(1e-300, 1e300))
    mode: Literal["abs", "rel"] = parameter("rel", "whether the bound is absolute or relative to the range of the field")
    bandwidth: float = parameter(1.0, "the bandwidth of the link in GB/s", range=(1e-9, 1e9))

    def validate(self) -> None:
        """Refuses a relative bound of 1 or more."""
        from .stages.bounds import check_bound

        check_bound(self.mode, self.bound)


@fields.read(Reading, folders=True)
def read(path: Path, how: Reading) -> tuple[np.ndarray, float]:
    """Reads a field from a file: .f32, .f64, .dat, .d64, .npy, HDF5, NetCDF-4, or a Zarr folder."""
    from .readers.field_files import read_field

    x = read_field(path, how.shape or None, how.dataset or None)
    return x, _eps(x, how.mode, how.bound)


@fields.own_cases
def own_cases(loaded: tuple[np.ndarray, float], name: str, how: Reading) -> Iterator[Case]:
    """Yields the field at its bound."""
    x, _ = loaded
    kinds = {"file", str(x.dtype)} | ({"grid"} if 1 < x.ndim < 4 else set())
    yield Case(name, parameters={"bound": how.bound, "mode": how.mode, "bandwidth": how.bandwidth * 1e9}, kinds=frozenset(kinds))


@fields.example
def example(folder: Path) -> Path:
    """Writes a smooth field of 30 × 40 values as raw float32, with its extents in the name."""
    import numpy as np

    y, x = np.mgrid[0:1:30j, 0:1:40j]
    file = folder / "waves_30_40.f32"
    np.sin(6 * x * y).astype("<f4").tofile(file)
    return file


@fields.run
def run(technique: Compressor, case: Case) -> dict[str, float]:
    """Compresses the field, decompresses it from the bytes alone, checks every value, and then measures both."""
    from armillary.timing import timed

    from .advice import metrics

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
        "spectrum_error": metrics.spectrum_error(case.once(_spectrum), metrics.radial_spectrum(back)),
        "peak_memory": (peak + x.nbytes) / x.nbytes, "overall_speedup": metrics.overall_speedup(case.parameters["bandwidth"], ratio, rate),
    }  # fmt: skip
    for link, bandwidth in metrics.LINKS.items():
        found[f"speedup_{link}"] = metrics.overall_speedup(bandwidth, ratio, rate)
    if "grid" in case.kinds:
        found["ssim"] = metrics.ssim(x, back)
    return found


@fields.plots
def plots(result: Result) -> Sequence[Any]:
    """Draws rate and distortion: PSNR over bits per value, one panel per field."""
    from armillary.figures import panels

    lines: Lines = {}
    for technique in result.techniques:
        bits, psnr = result.medians(technique, "bits_per_value"), result.medians(technique, "psnr_dB")
        for case in sorted(bits):
            if psnr.get(case, float("inf")) < 1e300:
                lines.setdefault(case.partition("@")[0], {}).setdefault(technique, []).append((bits[case], psnr[case]))
    for panel in lines.values():
        for points in panel.values():
            points.sort()
    return [panels(lines, "Rate and distortion: up and to the left is better", "bits per value", "PSNR in dB")] if lines else []


@fields.answer
def answer(result: Result) -> str:
    """Names the smallest, the fastest, and the best over the case's link."""
    said = []
    for metric, words in (("ratio", "smallest"), ("compress_MBps", "fastest"), ("overall_speedup", "best over the link (modelled)")):
        first = result.first_places(metric) if metric in result.metrics else {}
        if first:
            name, wins = next(iter(first.items()))
            said.append(f"{name} is the {words}" + (f" on {wins} of {len(result.cases)} cases" if len(result.cases) > 1 else ""))
    return f"{listed(said)}." if said else "Nothing was compressed."


def _make(case: Case, rng: np.random.Generator) -> tuple[np.ndarray, float]:
    import numpy as np

    from .workload import field

    facts = case.parameters
    x = field(facts["field"], tuple(facts["shape"]), rng, np.float32 if facts["dtype"] == "float32" else np.float64)
    return x, _eps(x, "rel", facts["bound"])


def _eps(x: np.ndarray, mode: str, bound: float) -> float:
    from armillary.errors import InputError

    from .stages.bounds import absolute_bound, finite_span

    eps = absolute_bound(mode, bound, finite_span(x))
    if not eps > 0:
        raise InputError("the field is constant or has no finite value, so a relative bound says nothing about it")
    return eps


def _spectrum(case: Case) -> np.ndarray:
    """Returns the radial power spectrum of the field itself."""
    from .advice.metrics import radial_spectrum

    return radial_spectrum(case.workload[0])
