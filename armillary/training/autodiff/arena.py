"""Which tool gives the gradient of a NumPy kernel with loops and in-place updates, fast, within this much memory, without a rewrite?"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from armillary.arena import Arena, Artifact, Case, Constant, Metric, Outcome, Result, parameter

if TYPE_CHECKING:
    import numpy as np

    from .workload import Problem

autodiff = Arena(
    "training/autodiff",
    question="Which tool gives the gradient of a NumPy kernel with loops and in-place updates, fast, within a limit of memory, unchanged?",
    telling=["seidel_2d", "durbin", "trisolv", "gemm", "jacobi_2d-256MiB"],
    metrics=[
        Metric("gradient_s", unit="s", kind="measured", doc="seconds of a gradient when everything is compiled, the median of seven"),
        Metric("overhead", kind="measured", doc="gradient_s over the seconds of the same tool's run of the kernel alone"),
        Metric("peak_extra_bytes", unit="B", kind="measured", steady=True, scale="difference",
               doc="tapes, snapshots and buffers, counted as they are allocated; for JAX what XLA reserves for temporaries"),
        Metric("max_rel_error", kind="measured", steady=True, scale="difference",
               doc="largest error of a directional derivative, against a complex step (central differences where that cannot be)"),
        Metric("source_changes", kind="measured", steady=True, scale="difference",
               doc="statements of the kernel that the tool's version changes or adds, counted by comparing both texts"),
        Metric("promise_error", kind="measured", steady=True, scale="difference",
               doc="|promised/counted bytes − 1|; 0 where nothing is planned"),
        Metric("compile_s", unit="s", better=None, kind="measured",
               doc="seconds until the first gradient, with machine code from a cache where there is some"),
    ],
    techniques={
        "dace-ad": ".dace_ad:DaceAd",
        "store-all": ".store_all:StoreAll",
        "recompute-all": ".recompute_all:RecomputeAll",
        "jax": ".jax:Jax",
        "jax-scan": ".jax_scan:JaxScan",
        "dace": ".dace:Dace",
        "finite-difference": ".finite_difference:FiniteDifference",
    },
    papers={"dace-ad": "dace-ad"},
    baseline="jax",
    tradeoff=("gradient_s", "peak_extra_bytes"),
    repeats=3,
    constants=[
        Constant("sizes", "NPBench", "", "preset S of bench_info/*.json at the small scale, M at the large one; data are ours"),
        Constant("limit of saved values", 4, "GiB", "a JAX version that XLA reserves more for is not run; our choice"),
        Constant("checkpoints", "√T", "steps", "segments of jax-scan where its temporaries pass the limit; our choice"),
    ],
)  # fmt: skip

#: Kernels that have a second case with half of the memory that storing everything takes.
LIMITED = ("cavity_flow", "nbody", "adi", "vadv", "gramschmidt")
PRESET = {"tiny": "tiny", "small": "S", "large": "M"}
#: The tiny scale has these only, because compilation takes longer than anything else.
TINY = ("seidel_2d", "durbin", "trisolv", "gemm", "jacobi_2d-256MiB")


@autodiff.cases
def cases(scale: str) -> Iterator[Case]:
    """Yields every kernel without a limit, jacobi_2d with one that it does not need, and some with half of what store-all takes."""
    from .kernels.catalogue import KERNELS

    preset = PRESET[scale]
    for name, kernel in KERNELS.items():
        # DaCe multiplies large matrices without BLAS, for minutes, so it gets the others.
        kinds = {"loop", "dace"} if kernel.loops else {"array"}
        if scale != "tiny" or name in TINY:
            yield Case(name, _make, {"kernel": name, "preset": preset, "limit": ""}, frozenset(kinds))
    yield Case("jacobi_2d-256MiB", _make, {"kernel": "jacobi_2d", "preset": preset, "limit": "256MiB"}, frozenset({"memory"}))
    for name in LIMITED if scale != "tiny" else ():
        yield Case(f"{name}-half", _make, {"kernel": name, "preset": preset, "limit": "half"}, frozenset({"limited"}))


def _make(case: Case, rng: np.random.Generator) -> Problem:
    from dataclasses import replace

    from .pipeline.gradient import bytes_of, gradient
    from .workload import built_in

    p = case.parameters
    problem = built_in(p["kernel"], p["preset"], rng)
    if p["limit"] == "half":
        arguments = problem.fresh()
        everything = gradient(problem.source, problem.active, strategy="store", output=problem.output)
        bytes_ = everything.plan_of(arguments).bytes
        return replace(problem, limit=bytes_ // 2)
    return replace(problem, limit=bytes_of(p["limit"] or None))


@dataclass(frozen=True)
class Reading:
    """Which of NPBench's kernels are read from a folder, at which size, and the limit of memory."""

    preset: str = parameter("S", "the size, a key of `parameters` in the JSON files")
    kernels: str = parameter("", "names of JSON files without .json, comma-separated; all if empty")
    memory: str = parameter("", "bytes that tapes, snapshots and buffers may take, such as 512MiB; no limit if empty")


@autodiff.read(Reading, folders=True)
def read(path: Path, how: Reading) -> list[Problem]:
    """Reads a folder of NPBench kernels; they are parsed, never imported."""
    from armillary.errors import InputError

    from .pipeline.gradient import bytes_of
    from .readers.npbench import read_folder

    if not path.is_dir():
        raise InputError("found a file; expected a folder with NPBench's JSON descriptions and Python files", where=path.name)
    return read_folder(path, how.preset, how.kernels, bytes_of(how.memory or None))


@autodiff.own_cases
def own_cases(problems: list[Problem], name: str, how: Reading) -> Iterator[Case]:
    """Yields one case per kernel."""
    for problem in problems:
        yield Case(problem.name, _own, {"kernel": problem.name, "preset": how.preset, "memory": how.memory}, frozenset({"file"}))


def _own(case: Case, rng: np.random.Generator) -> Problem:
    return next(problem for problem in case.loaded if problem.name == case.parameters["kernel"])


@autodiff.example
def example(folder: Path) -> tuple[Path, dict[str, str]]:
    """Writes a kernel of its own in NPBench's form: a damped wave, with its description and its data."""
    import json

    home = folder / "kernels"
    home.mkdir(exist_ok=True)
    (home / "wave.json").write_text(json.dumps({"benchmark": {
        "name": "Damped wave", "short_name": "wave", "relative_path": "", "module_name": "wave", "func_name": "wave",
        "parameters": {"S": {"T": 20, "N": 40}}, "input_args": ["T", "u", "v", "c"], "array_args": ["u", "v", "c"], "output_args": ["u"],
        "init": {"func_name": "initialize", "input_args": ["N"], "output_args": ["u", "v", "c"]},
    }}, indent=1))  # fmt: skip
    (home / "wave.py").write_text(
        "import numpy as np\n\n\n"
        "def initialize(N):\n"
        "    u = np.fromfunction(lambda i: np.sin(i / N), (N,), dtype=np.float64)\n"
        "    return u, np.zeros(N), np.full(N, 0.2)\n\n\n"
        "def wave(T, u, v, c):\n"
        "    for t in range(T):\n"
        "        v[1:-1] += c[1:-1] * (u[2:] - 2.0 * u[1:-1] + u[:-2])\n"
        "        u += v - 0.01 * v * v\n"
    )
    return home, {"preset": "S"}


@autodiff.run
def run(technique: Any, case: Case) -> Outcome:
    """Differentiates one kernel, checks the gradient and times it."""
    from .running.reference import error

    found = technique.measure(case.workload)
    counted, promised = found.extra_bytes, found.promised_bytes
    values = {
        "gradient_s": found.gradient_s,
        "overhead": found.gradient_s / found.forward_s,
        "peak_extra_bytes": counted,
        "max_rel_error": error(found.gradients, case.once(_probes)),
        "source_changes": float(found.changes),
        "promise_error": 0.0 if promised is None or not counted else abs(promised / counted - 1),
        "compile_s": found.compile_s,
    }
    left = [Artifact("plan.txt", "text/plain", found.report.encode())] if found.report else []
    return Outcome(values, left)


def _probes(case: Case) -> Any:
    from .running.reference import probes

    return probes(case.workload, case.stream("probes"))


@autodiff.answer
def answer(result: Result) -> str:
    """Names the fastest tool, and says by how much dace-ad beats both ports of JAX, as both kinds of mean."""
    if "gradient_s" not in result.metrics:
        return "Ask for the metric gradient_s to get an answer."
    firsts = result.first_places("gradient_s")
    if not firsts:
        return "No gradient was computed."
    best, count = next(iter(firsts.items()))
    said = f"{best} gives the fastest gradient on {count} of {len(result.cases)} kernels."
    parts = []
    for rival in ("jax", "jax-scan"):
        ratios = [ratio for case in result.cases if (ratio := result.ratio(case, "gradient_s", "dace-ad", rival))]
        if ratios:
            mean = sum(ratios) / len(ratios)
            parts.append(f"{mean:.3g} times as fast as {rival} (geometric mean {math.exp(sum(map(math.log, ratios)) / len(ratios)):.3g})")
    return f"{said} On average dace-ad is {' and '.join(parts)}." if parts else said


@autodiff.plots
def plots(result: Result) -> Sequence[Any]:
    """Seconds and bytes by kernel."""
    drawn = []
    for metric, title in (("gradient_s", "Seconds of a gradient"), ("peak_extra_bytes", "Bytes of tapes, snapshots and buffers")):
        if metric in result.metrics:
            drawn += result.panels(title, metric, y="s" if metric == "gradient_s" else "B", log_y=metric == "gradient_s")
    return drawn
