"""Can my float64 product run on int8 units without losing accuracy, for my matrices, and is it faster?"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from armillary.arena import Arena, Case, Constant, Metric, NotForThisCase, Result, parameter

if TYPE_CHECKING:
    import numpy as np

    from armillary.cluster import Device

    from .products.method import Method
    from .workload import Pair

_COMPUTED = frozenset({"computed"})
_MODELLED = frozenset({"modelled"})
_GRADES = "3 if every entry is within 2·k·u·(|A||B|), 2 if relative to norms of row and column, 1 to norms of the matrices, else 0"

INT8_EFFICIENCY = 0.7

gemm = Arena(
    "numerics/gemm",
    question="Can my float64 product run on int8 units without losing accuracy, for my matrices, and is it faster?",
    telling=["uniform", "graded-20", "not-a-number", "gpu-8192", "model-*-8192"],
    metrics=[
        Metric("tflops", unit="TFLOP/s", better="higher", kind="measured", on=_COMPUTED,
               doc="2·m·n·k per second, whatever the method computes inside"),
        Metric("error_u", better="lower", kind="measured", steady=True, on=_COMPUTED, unbounded=True,
               doc="largest |Ĉ − C| / (u·(|A||B|)) of any entry"),
        Metric("grade", better="higher", kind="measured", steady=True, scale="difference", on=_COMPUTED, doc=_GRADES),
        Metric("gemms", better="lower", kind="measured", steady=True, on=_COMPUTED,
               doc="number of low-precision matrix products, which is 1 for the native one"),
        Metric("overhead", better="lower", kind="measured", scale="difference", on=_COMPUTED,
               doc="share of the time that goes into inspecting and deciding"),
        Metric("fallback", better=None, kind="measured", steady=True, on=_COMPUTED, doc="1 where native float64 was used instead"),
        Metric("modelled_speedup", better="higher", kind="modelled", on=_MODELLED, doc="speed-up over native float64 at 55 bits"),
    ],
    techniques={
        "adp": ".adp:Adp",
        "ozaki1-signed": ".ozaki1_signed:Ozaki1Signed",
        "ozaki2": ".ozaki2:Ozaki2",
        "native": ".native:Native",
        "float32": ".float32:Float32",
        "double-double": ".double_double:DoubleDouble",
        "bf16x9": ".bf16x9:Bf16x9",
        "tf32x3": ".tf32x3:Tf32x3",
    },
    papers={"adp": "adp-ozaki"},
    baseline="native",
    tradeoff=("error_u", "tflops"),
    warmup=True,
    constants=[
        Constant("int8 efficiency", INT8_EFFICIENCY, "",
                 "share of the data sheet's int8 rate that large products reach, ours; 0.48 was measured on an H200"),
    ],
)  # fmt: skip

SIZES = {"tiny": 32, "small": 256, "large": 1024}
GPU_SIZES = (2048, 8192, 10240, 12288, 16384)
#: Machines of the paper, and the one that the GPU figures of the documentation come from.
MODELLED = {"gb200": "gb200-nvl72", "rtx-pro-6000": "rtx-pro-6000", "h200": "h200"}
#: Families whose exponents spread little along dot products, because rows and columns are scaled by their own maxima.
_PLAIN = ("uniform", "wide-0", "integers", "rows", "cancelling")


@gemm.cases
def cases(scale: str) -> Iterator[Case]:
    """Yields every family of matrices on the host, five sizes on a CUDA device, and machines modelled from their data sheets."""
    from .workload import FAMILIES

    for family in FAMILIES:
        kinds = {"computed", "accuracy", family.partition("-")[0], *(["plain"] if family in _PLAIN else [])}
        yield Case(family, _make, {"family": family, "n": SIZES[scale]}, frozenset(kinds))
    for n in GPU_SIZES:
        kinds = {"computed", "gpu", "uniform", f"n{n}", *(["n8192-up"] if n >= 8192 else [])}
        yield Case(f"gpu-{n}", _make, {"family": "uniform", "n": n, "device": "cuda"}, frozenset(kinds))
    for machine in MODELLED:
        for n in (2048, 4096, 8192, 16384):
            yield Case(f"model-{machine}-{n}", _nothing, {"machine": machine, "n": n}, frozenset({"modelled", machine}))


@dataclass(frozen=True)
class Reading:
    """Options: which matrices are multiplied."""

    b: str = parameter("", "the file of the right-hand matrix; without it the first one is multiplied by its transpose", file=True)


@gemm.read(Reading)
def read(path: Path, how: Reading) -> Pair:
    """Reads two matrices from files (.npy, .npz, .mtx)."""
    a = _matrix(path)
    return a, _matrix(Path(how.b)) if how.b else a.T.copy()


@gemm.own_cases
def own_cases(pair: Pair, name: str, how: Reading) -> Iterator[Case]:
    """Yields one product."""
    yield Case(name, kinds=frozenset({"computed", "file"}))


@gemm.example
def example(folder: Path) -> tuple[Path, dict[str, str]]:
    """Writes two matrices as NumPy files."""
    import numpy as np

    for name, shape in (("a.npy", (4, 3)), ("b.npy", (3, 5))):
        np.save(folder / name, np.arange(12.0 if name == "a.npy" else 15.0).reshape(shape))
    return folder / "a.npy", {"b": str(folder / "b.npy")}


@gemm.run
def run(method: Method, case: Case) -> dict[str, float] | NotForThisCase:
    """Multiplies against the clock and compares with the product in double-double precision."""
    if "modelled" in case.kinds:
        return _modelled(method, case)
    from armillary import arrays
    from armillary.timing import timed

    from .products.grading import accuracy
    from .products.method import check_pair

    if "gpu" in case.kinds and not _cuda():
        return NotForThisCase("needs PyTorch with a CUDA device")
    a, b = case.workload
    check_pair(a, b)
    left, right = _on_device(a, b) if "gpu" in case.kinds else (a, b)
    timing = timed(lambda: method.multiply(left, right), left, min_seconds=0, min_calls=5)
    product, info = method.multiply(left, right)
    arrays.synchronise(left)
    # The double-double reference costs n³ slow steps, so for large products only a sample of rows is checked.
    rows = _sample(case, a.shape[0], a.shape[1] * b.shape[1])
    found = accuracy(arrays.to_host(product)[rows], a[rows], b)
    return {
        "tflops": 2 * a.shape[0] * a.shape[1] * b.shape[1] / timing.median / 1e12, "error_u": found.error_u, "grade": found.grade,
        "gemms": info.gemms or 1, "overhead": min(1.0, info.overhead_s / timing.median), "fallback": float(bool(info.fallback)),
    }  # fmt: skip


def modelled_seconds(gemms: int, slices: int, n: int, device: Device) -> float:
    """Returns the seconds of an emulated n³ product on a device.

    It takes `gemms` int8 products at 70 % of the device's rate, and writes and reads the digits once.
    """
    from armillary.errors import InputError

    rate = device.peak.int8 or device.peak.int8_tensor
    if not rate or not device.memory or not device.memory.bandwidth:
        raise InputError(f"device {device.model}: found no int8 rate or memory bandwidth; expected both")
    moved = 2 * (8 + 2 * slices) * n * n + (4 * slices + 8) * n * n
    return gemms * 2 * n**3 / (INT8_EFFICIENCY * rate) + moved / device.memory.bandwidth


def _modelled(method: Method, case: Case) -> dict[str, float] | NotForThisCase:
    from armillary.cluster import preset

    from .adp import Adp
    from .digits.digit_products import products
    from .native import Native
    from .ozaki1_signed import Ozaki1Signed
    from .ozaki2 import Ozaki2

    shapes = {Adp: (products(7), 7), Ozaki1Signed: (products(8), 8), Ozaki2: (16, 15)}
    device = preset(MODELLED[case.parameters["machine"]]).groups[0].node.devices[0]
    native = device.peak.fp64_tensor or device.peak.fp64
    assert native is not None
    n = case.parameters["n"]
    if isinstance(method, Native):
        return {"modelled_speedup": 1.0}
    if type(method) not in shapes:
        return NotForThisCase("is not modelled")
    gemms, slices = shapes[type(method)]
    return {"modelled_speedup": 2 * n**3 / native / modelled_seconds(gemms, slices, n, device)}


@gemm.answer
def answer(result: Result) -> str:
    """Says which product with the accuracy of float64 is the fastest here, and what is modelled for machines with int8 units."""
    grades = {name: result.medians(name, "grade") for name in result.techniques}
    speeds = {name: result.medians(name, "tflops") for name in result.techniques}
    accurate = {name: {case: speed for case, speed in found.items() if grades[name].get(case) == 3} for name, found in speeds.items()}
    cases = sorted({case for found in accurate.values() for case in found})
    said = []
    if cases:
        first = [max((found[case], name) for name, found in accurate.items() if case in found)[1] for case in cases]
        best = max(sorted(set(first)), key=first.count)
        where = f" on {first.count(best)} of {len(cases)} cases" if len(cases) > 1 else ""
        said.append(f"Of the products with the accuracy of float64, {best} is the fastest{where} (measured).")
    modelled = {name: result.medians(name, "modelled_speedup").values() for name in ("adp", "ozaki2") if name in result.techniques}
    ranges = [f"{name} {min(values):.2g} to {max(values):.2g} times" for name, values in modelled.items() if values]
    if ranges:
        said.append(f"On machines with int8 units the model gives {' and '.join(ranges)} the speed of native float64.")
    return " ".join(said)


@gemm.plots
def plots(result: Result) -> Sequence[Any]:
    """Draws the error by family, with one line per technique."""

    def place(case: str, facts: Mapping[str, Any]) -> tuple[str, str] | None:
        return ("", case) if "accuracy" in facts["kinds"] else None

    return result.panels("Error in u·(|A||B|), by family", "error_u", place, x="family", y="error", log_y=True, least_points=2)


def _make(case: Case, rng: np.random.Generator) -> Pair:
    from .workload import pair

    return pair(case.parameters["family"], case.parameters["n"], rng)


def _nothing(case: Case, rng: np.random.Generator) -> None:
    return None


def _matrix(path: Path) -> np.ndarray:
    import numpy as np

    from armillary.files.matrices import read_dense

    matrix = read_dense(path, finite=False)
    return np.ascontiguousarray(matrix, dtype=np.float64) if matrix.dtype.kind in "biuf" else matrix


def _sample(case: Case, rows: int, work: int) -> np.ndarray:
    import numpy as np

    most = max(1, int(2e8 // max(1, work)))
    return np.arange(rows) if rows <= most else np.sort(case.stream("rows").choice(rows, most, replace=False))


@functools.cache
def _cuda() -> bool:
    return find_spec("torch") is not None and bool(import_module("torch").cuda.is_available())


def _on_device(a: np.ndarray, b: np.ndarray) -> tuple[Any, Any]:
    torch = import_module("torch")
    return torch.from_numpy(a).cuda(), torch.from_numpy(b).cuda()
