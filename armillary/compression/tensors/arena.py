"""How far do these weights compress in tensor-train form at this error, how long does it take, and what would it cost at the edge?"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from armillary.arena import Arena, Case, Constant, Metric, Result, parameter
from armillary.timing import Stopwatch
from armillary.wording import listed

if TYPE_CHECKING:
    import numpy as np

    from .workload import Tensors

_REAL, _EDGE = frozenset({"real"}), frozenset({"edge"})

tensors = Arena(
    "compression/tensors",
    question="How far do these weights compress in tensor-train form at this error, how long does it take, and at what cost at the edge?",
    metrics=[
        Metric("ratio", better="higher", kind="measured", steady=True, on=_REAL, doc="values over values kept"),
        Metric("relative_error", better=None, kind="measured", steady=True, on=_REAL,
               doc="‖A − Â‖ / ‖A‖ over all layers, after decompression"),
        Metric("within", better="higher", kind="measured", steady=True, scale="difference", on=_REAL,
               doc="1 where every layer is within its error"),
        Metric("accuracy_drop", unit="points", better="lower", kind="measured", steady=True, scale="difference", on=frozenset({"digits"}),
               doc="accuracy lost on the images that were held out"),
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
        "tt-svd": ".tt_by_lapack:TtSvd",
        "tt-split": ".tt_split:TtSplit",
        "tt-rsvd": ".tt_rsvd:TtRsvd",
        "tt-qr": ".tt_qr:TtQr",
        "tucker": ".tucker:Tucker",
        "svd": ".matrix_svd:MatrixSvd",
        "gemm-only": ".gemm_only:GemmOnly",
        "tt-edge": ".tt_edge:TtEdge",
    },
    papers={"tt-edge": "tt-edge"},
    baseline="tt-svd",
    tradeoff=("ratio", "decompose_s"),
    telling=["resnet32", "video", "transformer", "resnet32-on-chip"],
    constants=(
        Constant("core", "100 MHz, 2.5 cycles per flop", "", "ours"),
        Constant("accelerator", "64 multiply-adds and 8 B per cycle; scratchpad 64 KiB; DMA 4 B per cycle, 600 cycles per call", "",
                 "ours"),
        Constant("engine", "16 flops per cycle, sorting 2 cycles per comparison, truncation 1 cycle per value", "", "ours"),
        Constant("powers", "core 30 or 6 waiting, accelerator 60, memory 40, rest 30 mW", "", "ours"),
        Constant("engine's power", 0.04, "of the whole", "arXiv 2511.13738: an input, not a result"),
    ),
)  # fmt: skip
#: Weights whose singular values fall more slowly or faster than usual, or hold more noise, because how trained ones fall varies.
WEIGHTS = {"slow": (0.6, 0.05), "fast": (1.0, 0.05), "noisy": (0.8, 0.1)}
WORK = ("resnet32", "gaussian", "video", "hilbert", "sum", "transformer", "digits")


@tensors.cases
def cases(scale: str) -> Iterator[Case]:
    """Yields weights and tensors to decompose, and ResNet-32's weights on modelled processors."""
    for name in WORK:
        yield Case(name, _make, {"name": name, "scale": scale}, frozenset({"real", "measured", name}))
    yield Case("resnet32-on-chip", _make, {"name": "resnet32", "scale": scale}, frozenset({"edge", "resnet32"}))
    for other, (decay, noise) in WEIGHTS.items() if scale != "tiny" else ():
        facts = {"name": "resnet32", "scale": scale, "decay": decay, "noise": noise}
        yield Case(f"resnet32-{other}-on-chip", _make, facts, frozenset({"edge", "resnet32"}))


@dataclass(frozen=True)
class Reading:
    """Options: which tensors of a file are taken, and where they are decomposed."""

    layers: str = parameter("*", "a pattern for the names of the tensors, such as layer3.*")
    edge: bool = parameter(False, "whether the modelled edge processors decompose them too")


@tensors.read(Reading)
def read(path: Path, how: Reading) -> Tensors:
    """Reads weights from a `.safetensors`, `.npz`, `.npy` or PyTorch file."""
    from .models.weight_files import read_tensors
    from .workload import Tensors

    return Tensors(read_tensors(path, how.layers))


@tensors.own_cases
def own_cases(loaded: Tensors, name: str, how: Reading) -> Iterator[Case]:
    """Yields a case for this machine, and with `edge` another one for the modelled processors."""
    yield Case(name, kinds=frozenset({"real", "measured", "file"}))
    if how.edge:
        yield Case(f"{name}-on-chip", kinds=frozenset({"edge", "file"}))


@tensors.example
def example(folder: Path) -> Path:
    """Writes two small tensors as an `.npz`."""
    import numpy as np

    numbers = np.random.default_rng(0)
    np.savez(folder / "weights.npz", first=numbers.normal(size=(4, 6, 5)), second=numbers.normal(size=(8, 9)))
    return folder / "weights.npz"


@tensors.warm_up
def warm_up(technique: Any, case: Case) -> None:
    """Compresses a tensor of 64 values, so that the clock sees no compilation."""
    import numpy as np

    if "edge" not in case.kinds:
        technique.compress(np.ones((4, 4, 4), np.float32))


@tensors.run
def run(technique: Any, case: Case) -> dict[str, float]:
    """Decomposes every layer, restores it and checks the error, or models the decomposition on an edge processor."""
    import numpy as np

    work: Tensors = case.workload
    if "edge" in case.kinds:
        took = technique.estimate(work)
        shares = {f"edge_share_{name}": ms / took.ms for name, ms in took.phases.items()}
        return {"edge_ms": took.ms, "edge_mJ": took.mj, "edge_mW": took.mw, **shares}
    kept, error, whole, worst, seconds = 0, 0.0, 0.0, 0.0, 0.0
    again = {}
    for name, tensor in work.layers.items():
        with Stopwatch() as watch:
            made = technique.compress(tensor)
        seconds += watch.seconds
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


@tensors.answer
def answer(result: Result) -> str:
    """Names the smallest on each case, and what the engine saves at the edge."""
    said = []
    smallest = [name for case in result.cases if (name := result.best(case, "ratio"))] if "ratio" in result.metrics else []
    if smallest:
        first = list(dict.fromkeys(smallest))
        where = "in every case" if len(smallest) > 1 else "here"
        said.append(
            f"{first[0]} keeps the fewest values {where}." if len(first) == 1
            else f"{listed(first, joined_by='or')} keeps the fewest values, depending on the case."
        )  # fmt: skip
    gains = [gain for case in result.cases if (gain := result.ratio(case, "edge_ms", "tt-edge", "gemm-only"))]
    if gains and min(gains) > 1:
        least = "at least " if len(gains) > 1 else ""
        said.append(f"At the edge (modelled), tt-edge is {least}{min(gains):.2f} times as fast as gemm-only.")
    return " ".join(said) or "Nothing was decomposed."


def _make(case: Case, rng: np.random.Generator) -> Tensors:
    from .workload import built_in

    facts = dict(case.parameters)
    return built_in(facts.pop("name"), rng, **facts)
