"""Can my float64 product run on int8 units without losing accuracy, for my matrices, and is it faster?"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from armillary.arena import Arena, Case, Constant, Metric, NotForThisCase

if TYPE_CHECKING:
    import numpy as np

    from armillary.cluster import Device
    from armillary.study import Result

    from .method import Method
    from .workload import Pair

_COMPUTED = frozenset({"computed"})
_MODELLED = frozenset({"modelled"})
_GRADES = "3: every entry within 2·k·u·(|A||B|); 2: by norms of row and column; 1: by norms of the matrices; 0: worse"

gemm = Arena(
    "numerics/gemm",
    question="Can my float64 product run on int8 units without losing accuracy, for my matrices, and is it faster?",
    metrics=[
        Metric("tflops", unit="TFLOP/s", better="higher", kind="measured", on=_COMPUTED, doc="2·m·n·k per second, whatever it took inside"),
        Metric("error_u", better="lower", kind="measured", steady=True, on=_COMPUTED, unbounded=True,
               doc="largest |Ĉ − C| / (u·(|A||B|)) of an entry"),
        Metric("grade", better="higher", kind="measured", steady=True, scale="difference", on=_COMPUTED, doc=_GRADES),
        Metric("gemms", better="lower", kind="measured", steady=True, on=_COMPUTED,
               doc="low-precision matrix products; 1 for the native one"),
        Metric("overhead", better="lower", kind="measured", scale="difference", on=_COMPUTED, doc="share of time to look and decide"),
        Metric("fallback", better=None, kind="measured", steady=True, on=_COMPUTED, doc="1 where native float64 was taken instead"),
        Metric("modelled_speedup", better="higher", kind="modelled", on=_MODELLED, doc="over native float64 at 55 bits"),
    ],
    techniques={
        "adp": ".adp:Adp",
        "ozaki1-signed": ".ozaki1:Ozaki1Signed",
        "ozaki2": ".ozaki2:Ozaki2",
        "native": ".native:Native",
        "float32": ".native:Float32",
        "double-double": ".double_double:DoubleDouble",
        "bf16x9": ".float32_split:Bf16x9",
        "tf32x3": ".float32_split:Tf32x3",
    },
    papers={"adp": "adp-ozaki"},
    baseline="native",
    tradeoff=("error_u", "tflops"),
    uses=("armillary.arrays",),
    warmup=True,
    constants=[Constant("int8 efficiency", 0.7, "", "share of the data sheet's int8 rate that large products reach; stated by the model")],
)  # fmt: skip

SIZES = {"tiny": 32, "small": 256, "large": 1024}
GPU_SIZES = (2048, 8192, 16384)
#: Machines of the paper, and the one that the GPU figures of the documentation come from.
MODELLED = {"gb200": "gb200-nvl72", "rtx-pro-6000": "rtx-pro-6000", "h200": "h200"}
_EFFICIENCY = 0.7
_PLAIN = ("uniform", "wide-0", "integers")


@gemm.cases
def cases(scale: str) -> Iterator[Case]:
    """Every family of matrices on the host, sizes on a CUDA device, and machines from their data sheets."""
    from .workload import FAMILIES

    for family in FAMILIES:
        kinds = {"computed", "accuracy", family.partition("-")[0], *(["plain"] if family in _PLAIN else [])}
        yield Case(family, _make, {"family": family, "n": SIZES[scale]}, frozenset(kinds))
    for n in GPU_SIZES:
        kinds = {"computed", "gpu", "uniform", f"n{n}"}
        yield Case(f"gpu-{n}", _make, {"family": "uniform", "n": n, "device": "cuda"}, frozenset(kinds))
    for machine in MODELLED:
        for n in (2048, 4096, 8192, 16384):
            yield Case(f"model-{machine}-{n}", _nothing, {"machine": machine, "n": n}, frozenset({"modelled", machine}))


@gemm.read
def read(path: Path, *, b: str = "") -> Iterator[Case]:
    """Two matrices in files (.npy, .npz, .mtx); without `b` the product of the one with its transpose."""
    if b:
        _file(Path(b), Path(b).stat().st_mtime_ns if Path(b).exists() else 0)
    _file(path, path.stat().st_mtime_ns)
    yield Case(path.name, _load, {"b": b}, frozenset({"computed", "file"}), source=path)


@gemm.run
def run(method: Method, case: Case) -> dict[str, float] | NotForThisCase:
    """Multiplies against the clock, then compares with the product in twice the precision."""
    if "modelled" in case.kinds:
        return _modelled(method, case)
    from armillary import arrays

    from .grading import accuracy
    from .method import check_pair

    if "gpu" in case.kinds and not _cuda():
        return NotForThisCase("needs PyTorch with a CUDA device")
    a, b = case.workload
    check_pair(a, b)
    left, right = _on_device(a, b) if "gpu" in case.kinds else (a, b)
    timing = arrays.timed(lambda: method.multiply(left, right), left, repeats=5)
    product, info = method.multiply(left, right)
    arrays.synchronise(left)
    # Twice the precision on the host takes n³ slow steps, so that of a large product some rows are looked at.
    rows = _sample(case, a.shape[0], a.shape[1] * b.shape[1])
    found = accuracy(arrays.to_host(product)[rows], a[rows], b)
    return {
        "tflops": 2 * a.shape[0] * a.shape[1] * b.shape[1] / timing.median_s / 1e12,
        "error_u": found.error_u,
        "grade": found.grade,
        "gemms": info.gemms or 1,
        "overhead": min(1.0, info.overhead_s / timing.median_s),
        "fallback": float(bool(info.fallback)),
    }


def modelled_seconds(gemms: int, slices: int, n: int, device: Device) -> float:
    """Seconds of an emulated n³ product on a device: `gemms` int8 products at 70 % of its rate, and the digits written and read once."""
    from armillary.errors import InputError

    rate = device.peak.int8 or device.peak.int8_tensor
    if not rate or not device.memory or not device.memory.bandwidth:
        raise InputError(f"device {device.model}: found no int8 rate or memory bandwidth; expected both")
    moved = 2 * (8 + 2 * slices) * n * n + (4 * slices + 8) * n * n
    return gemms * 2 * n**3 / (_EFFICIENCY * rate) + moved / device.memory.bandwidth


def _modelled(method: Method, case: Case) -> dict[str, float] | NotForThisCase:
    from armillary.cluster import preset

    from .adp import Adp
    from .digit_products import products
    from .native import Native
    from .ozaki1 import Ozaki1Signed
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


@gemm.plots
def plots(result: Result) -> Sequence[Any]:
    """Error by family, one line a technique."""
    from armillary.figures import panels

    families = [name for name, facts in result.cases.items() if "accuracy" in facts["kinds"]]
    if len(families) < 2:
        return []
    lines = {}
    for technique in result.techniques:
        medians = result.medians(technique, "error_u")
        lines[technique] = [(name, max(medians[name], 1e-3)) for name in families if name in medians and medians[name] < 1e300]
    return [panels({"": lines}, "Error in u·(|A||B|), by family", "family", "error", log_y=True)]


def _make(case: Case, rng: np.random.Generator) -> Pair:
    from .workload import pair

    return pair(case.parameters["family"], case.parameters["n"], rng)


def _nothing(case: Case, rng: np.random.Generator) -> None:
    return None


def _load(case: Case, rng: np.random.Generator) -> Pair:
    assert case.source is not None
    a = _file(case.source, case.source.stat().st_mtime_ns)
    other = Path(case.parameters["b"]) if case.parameters["b"] else None
    return a, a.T.copy() if other is None else _file(other, other.stat().st_mtime_ns)


@functools.lru_cache(maxsize=2)
def _file(path: Path, changed_ns: int) -> np.ndarray:
    import numpy as np

    from ..matrix_files import read_dense

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
