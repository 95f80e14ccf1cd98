"""How far do these weights compress in tensor-train form at this error, how long does it take, and what would it cost at the edge?"""

from __future__ import annotations

import functools
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from armillary.arena import Arena, Case, Constant, Metric, NotForThisCase

if TYPE_CHECKING:
    import numpy as np

    from .workload import Tensors

_REAL, _EDGE = frozenset({"real"}), frozenset({"edge"})

tensors = Arena(
    "compression/tensors",
    question="How far do these weights compress in tensor-train form at this error, how long does it take, and what at the edge?",
    metrics=[
        Metric("ratio", better="higher", kind="measured", steady=True, on=_REAL, doc="values over values kept"),
        Metric(
            "relative_error",
            better=None,
            kind="measured",
            steady=True,
            on=_REAL,
            doc="‖A − Â‖ / ‖A‖ over all layers, of the tensors made again",
        ),
        Metric(
            "within",
            better="higher",
            kind="measured",
            steady=True,
            scale="difference",
            on=_REAL,
            doc="1 where every layer is within its error",
        ),
        Metric(
            "accuracy_drop",
            unit="points",
            better="lower",
            kind="measured",
            steady=True,
            scale="difference",
            on=frozenset({"digits"}),
            doc="held out",
        ),
        Metric("decompose_s", unit="s", better="lower", kind="measured", on=_REAL),
        Metric("edge_ms", unit="ms", better="lower", kind="modelled", on=_EDGE),
        Metric("edge_mJ", unit="mJ", better="lower", kind="modelled", on=_EDGE),
        Metric("edge_mW", unit="mW", better="lower", kind="modelled", on=_EDGE),
        *(
            Metric(f"edge_share_{phase}", better=None, kind="modelled", on=_EDGE, doc="share of the time")
            for phase in ("reduce", "accumulate", "diagonalise", "sort", "truncate", "product")
        ),
    ],
    techniques={
        "tt-svd": ".techniques:TtSvd",
        "tt-split": ".techniques:TtSplit",
        "tt-rsvd": ".techniques:TtRsvd",
        "tt-qr": ".techniques:TtQr",
        "tucker": ".techniques:Tucker",
        "svd": ".techniques:MatrixSvd",
        "gemm-only": ".techniques:GemmOnly",
        "tt-edge": ".techniques:TtEdge",
    },
    papers={"tt-edge": "tt-edge"},
    baseline="tt-svd",
    tradeoff=("ratio", "decompose_s"),
    constants=(
        Constant("core", "100 MHz, 2.5 cycles a flop", "", "ours"),
        Constant(
            "accelerator", "64 multiply-adds a cycle, fed 8 B a cycle; scratchpad 64 KiB; DMA 4 B a cycle, 600 cycles a call", "", "ours"
        ),
        Constant("engine", "16 flops a cycle, sort 2 cycles a compare, truncation 1 a value", "", "ours"),
        Constant("powers", "core 30 or 6 idle, accelerator 60, memory 40, rest 30 mW", "", "ours"),
        Constant("engine's power", 0.04, "of the whole", "arXiv 2511.13738: an input, not a result"),
    ),
    uses=("armillary.compression.tensors.tensor_train", "armillary.compression.tensors.split_svd", "armillary.compression.tensors.edge"),
)
WORK = ("resnet32", "gaussian", "video", "hilbert", "sum", "transformer", "digits")


@tensors.cases
def cases(scale: str) -> Iterator[Case]:
    """Weights and tensors to decompose, and ResNet-32's weights on modelled processors."""
    for name in WORK:
        kinds = {"real", "measured", name}
        yield Case(name, _make, {"name": name, "scale": scale}, frozenset(kinds))
    yield Case("resnet32-on-chip", _make, {"name": "resnet32", "scale": scale}, frozenset({"edge", "resnet32"}))


@tensors.read
def read(path: Path, *, layers: str = "*", edge: bool = False) -> Iterator[Case]:
    """Weights in a `.safetensors`, `.npz`, `.npy` or PyTorch file; `--layers 'layer3.*'` picks, `--edge` asks the processors too."""
    _file(path, path.stat().st_mtime_ns, layers)
    yield Case(path.name, _load, {"layers": layers}, frozenset({"real", "measured", "file"}), source=path)
    if edge:
        yield Case(f"{path.name}-on-chip", _load, {"layers": layers}, frozenset({"edge", "file"}), source=path)


@tensors.run
def run(technique: Any, case: Case) -> dict[str, float] | NotForThisCase:
    """Decomposes every layer, makes it again and checks the error; or models it."""
    import numpy as np

    work: Tensors = case.workload
    if "edge" in case.kinds:
        took = technique.estimate(work)
        shares = {f"edge_share_{name}": ms / took.ms for name, ms in took.phases.items()}
        return {"edge_ms": took.ms, "edge_mJ": took.mj, "edge_mW": took.mw, **shares}
    technique.compress(np.ones((4, 4, 4), np.float32))
    kept, error, whole, worst, seconds = 0, 0.0, 0.0, 0.0, 0.0
    again = {}
    for name, tensor in work.layers.items():
        start = time.perf_counter()
        made = technique.compress(tensor)
        seconds += time.perf_counter() - start
        again[name] = made.full().astype(tensor.dtype)
        off, norm = float(np.linalg.norm(again[name] - tensor)), float(np.linalg.norm(tensor))
        worst = max(worst, off / norm)
        error, whole, kept = error + off**2, whole + norm**2, kept + made.size
    # A check that fails is a failure, never a number.
    if worst > technique.eps * (1 + 1e-4) + 1e-6:
        raise AssertionError(f"found a relative error of {worst:g}; expected at most {technique.eps:g}")
    found = {"ratio": work.size / kept, "relative_error": (error / whole) ** 0.5, "within": 1.0, "decompose_s": seconds}
    if "digits" in case.kinds:
        found["accuracy_drop"] = work.judge({}) - work.judge(again)
    return found


def _make(case: Case, rng: np.random.Generator) -> Tensors:
    from .workload import built_in

    return built_in(case.parameters["name"], rng, case.parameters["scale"])


def _load(case: Case, rng: np.random.Generator) -> Tensors:
    from .workload import Tensors

    assert case.source is not None
    return Tensors(_file(case.source, case.source.stat().st_mtime_ns, case.parameters["layers"]))


@functools.lru_cache(maxsize=2)
def _file(path: Path, changed_ns: int, layers: str) -> Any:
    from .files import read_tensors

    return read_tensors(path, layers)
