"""Can I tell from cheap hardware counters that a sparse computation has been silently corrupted, and does that beat checks inside it?"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from armillary.arena import Arena, Artifact, Case, Constant, InputError, Metric, NotForThisCase, Outcome, Result, parameter

LABELLED, SOLVED = frozenset({"labelled"}), frozenset({"solved"})


def _found(name: str, doc: str, **how: Any) -> Metric:
    """A metric of alarms, which came to be like the counters."""
    return Metric(name, kind="by case", scale="difference", doc=doc, **{"better": "higher", "on": LABELLED, **how})


corruption = Arena(
    "trust/corruption",
    question="Can I tell from hardware counters that a sparse computation was silently corrupted, and does that beat checks inside it?",
    metrics=[
        _found("recall_at_5", "share of corrupted runs that alarm where 5 % of clean runs do, in equal shares over what was hit"),
        _found("recall", "share of corrupted runs that alarm at the technique's own threshold"),
        _found("precision", "share of alarming runs that are corrupted, if one run in ten is"),
        _found("f1", "harmonic mean of precision and recall"),
        _found("false_alarms", "share of clean windows that alarm at the technique's own threshold", better="lower"),
        _found("auc", "probability that a corrupted window scores above a clean one", better=None),
        _found("harm_missed", "share of runs whose result is off by more than 1e-6 that raise no alarm where 5 % of clean runs do",
               better="lower", on=SOLVED),
        Metric("latency", unit="iterations", kind="by case", on=LABELLED, unbounded=True,
               doc="from the fault to the first alarm, over the runs that alarm; inf if none does"),
        _found("alarms", "share of the second half of the windows that alarm after learning from the first", better=None,
               on=frozenset({"unlabelled"})),
        Metric("overhead", unit="%", kind="measured",
               doc="sampling and decision per window of 100 ms; of checks inside the algorithm, the check per product"),
        Metric("inference", unit="%", kind="measured", doc="the same without the sampling"),
        Metric("train_s", unit="s", kind="measured", doc="training, over all folds"),
    ],
    techniques={
        "counters-tree": ".counters_tree:CountersTree",
        "counters-forest": ".counters_forest:CountersForest",
        "counters-svm": ".counters_svm:CountersSvm",
        "counters-knn": ".counters_knn:CountersKnn",
        "counters-mlp": ".counters_mlp:CountersMlp",
        "counters-cnn": ".counters_cnn:CountersCnn",
        "counters-iforest": ".counters_iforest:CountersIforest",
        "counters-ocsvm": ".counters_ocsvm:CountersOcsvm",
        "counters-autoencoder": ".counters_autoencoder:CountersAutoencoder",
        "counters-standard": ".counters_chosen:CountersChosen(family=standard)",
        "counters-neural": ".counters_chosen:CountersChosen(family=neural)",
        "counters-unsupervised": ".counters_chosen:CountersChosen(family=unsupervised)",
        "forest-no-iterations": ".counters_forest:CountersForest(iterations=false)",
        "forest-no-caches": ".counters_forest:CountersForest(caches=false)",
        "forest-no-differences": ".counters_forest:CountersForest(differences=false)",
        "abft": ".abft:Abft",
        "residual": ".residual:Residual",
        "aid": ".aid:Aid",
        "range": ".range:Range",
        "duplicate": ".duplicate:Duplicate",
        "combined": ".combined:Combined",
        "none": ".none:NoDetection",
    },
    papers={
        "counters-tree": "sdc-from-counters", "counters-forest": "sdc-from-counters", "counters-svm": "sdc-from-counters",
        "counters-knn": "sdc-from-counters", "counters-mlp": "sdc-from-counters", "counters-cnn": "sdc-from-counters",
        "counters-iforest": "sdc-from-counters", "counters-ocsvm": "sdc-from-counters", "counters-autoencoder": "sdc-from-counters",
        "counters-standard": "sdc-from-counters", "counters-neural": "sdc-from-counters", "counters-unsupervised": "sdc-from-counters",
    },
    baseline="abft",
    tradeoff=("overhead", "harm_missed"),
    repeats=1,
    telling=("spmv/poisson-2d", "spmv/delaunay", "cg/poisson-2d", "cg/delaunay", "sssp/poisson-2d", "sssp/delaunay"),
    constants=[
        Constant("caches", "32 KiB, 512 KiB; 8 ways", "", "AMD, EPYC 7763 (Perlmutter's nodes), per core"),
        Constant("last level", "2 MiB; 16 ways", "", "scaled down, so that small matrices do not all fit (chosen)"),
        Constant("pages", "64 entries, 4 ways", "", "chosen"),
        Constant("branches", "gshare, 12 bits of history, two-bit counters", "", "chosen"),
        Constant("cycles", "0.35 instr + 12 L1 + 40 L2 + 180 LLC misses + 15 mispredicted + 150 assists", "", "chosen"),
        Constant("scatter", "0.5 %; clocks 1.5 %", "", "of each counter, lognormal (chosen)"),
        Constant("events", "one window in 50: 2 to 10 % more instructions, 20 % more misses", "", "of the operating system (chosen)"),
        Constant("natural share", "1 in 10", "runs", "corrupted, for the precision (chosen)"),
    ],
)  # fmt: skip

MATRICES = ("poisson-2d", "delaunay", "banded", "rmat")
#: Kernels by what depends on values, and by which checks inside the algorithm they have.
CONTROL = {
    "spmv": ("fixed", "sweeps"), "cg": ("iterations", "krylov"), "jacobi": ("fixed", "sweeps"), "bicgstab": ("iterations", "krylov"),
    "pagerank": ("iterations", "sweeps"), "trisolve": ("fixed", "passes"), "spgemm": ("pattern", "passes"), "sssp": ("pattern", "searches"),
}  # fmt: skip
#: Kernels on which parts of the forest are left out, on the matrices that `compare` does not run by itself.
ABLATED = ("spmv", "cg", "sssp", "spgemm")
#: (kernel taught, kernel judged) of the misfit.
MISFITS = (("spmv", "jacobi"), ("cg", "bicgstab"), ("spmv", "cg"), ("bicgstab", "pagerank"))
#: (fraction of the elements, relative sigma) of noise of a fixed size.
GRID = ((1e-5, 1e-2), (1e-3, 1e-6), (1e-3, 1.0), (1e-1, 10.0))
#: Rows, pairs of runs, flips of the study, trees and epochs.
SIZES = {"tiny": (144, 40, 10, 20, 2), "small": (2000, 60, 60, 200, 12), "large": (10_000, 1000, 2000, 200, 40)}
SIZE_NAMES = ("rows", "pairs", "flips", "trees", "epochs")
TINY = {"cg/rmat", "trisolve/delaunay", "sssp/repeated", "jacobi/unseen"}
CACHE_BYTES = {"l1": 32 << 10, "l2": 512 << 10, "llc": 2 << 20}
TARGETS = "values,vector,columns,pointers"
#: Runs of each kind in a labelled log.
LEAST_RUNS = 6


@corruption.cases
def cases(scale: str) -> Iterator[Case]:
    """Eight kernels on four matrices; a matrix or a kernel that nobody taught; runs that all have the same inputs; noise of fixed sizes."""
    return (case for case in _every(scale) if scale != "tiny" or case.name in TINY)


def _every(scale: str) -> Iterator[Case]:
    facts: dict[str, Any] = {**dict(zip(SIZE_NAMES, SIZES[scale])), **CACHE_BYTES}
    facts |= {"targets": TARGETS, "error": "spread", "fraction": 0.0, "sigma": 0.0, "others": "", "protocol": "folds", "inputs": "drawn"}
    kinds = {"labelled", "solved", "simulated"}
    for kernel, control in CONTROL.items():
        for matrix in MATRICES:
            extra = {"folds", *control} | ({"ablation"} if matrix in ("banded", "rmat") and kernel in ABLATED else set())
            yield Case(f"{kernel}/{matrix}", _drawn, facts | {"kernel": kernel, "matrix": matrix}, frozenset(kinds | extra))
        others = {"kernel": kernel, "matrix": "delaunay", "others": "poisson-2d,banded,rmat", "protocol": "matrix"}
        yield Case(f"{kernel}/unseen", _drawn, facts | others, frozenset(kinds | {"unseen"}))
        repeated = {"kernel": kernel, "matrix": "delaunay", "inputs": "same"}
        yield Case(f"{kernel}/repeated", _drawn, facts | repeated, frozenset(kinds | {"repeated"}))
    for taught, judged in MISFITS:
        others = {"kernel": judged, "matrix": "delaunay", "others": taught, "protocol": "kernel"}
        yield Case(f"{judged}/taught-on-{taught}", _drawn, facts | others, frozenset(kinds | {"misfit"}))
    for fraction, sigma in GRID:
        noise = {"kernel": "cg", "matrix": "delaunay", "error": "noise", "fraction": fraction, "sigma": sigma, "targets": "values,vector"}
        yield Case(f"cg/noise-{fraction:g}-{sigma:g}", _drawn, facts | noise, frozenset(kinds | {"grid"}))


@dataclass(frozen=True)
class Reading:
    """What is computed on a user's matrix, and how faults are drawn; none of it matters to a file of counters."""

    kernels: str = parameter("spmv,cg,sssp", "kernels, separated by commas")
    counters: str = parameter(
        "model", "where counters of the kernels come from: a modelled core, or this machine's hardware counters", choices=("model", "perf")
    )
    pairs: int = parameter(60, "pairs of runs, a clean and a corrupted one", range=(6, 5000))
    inputs: str = parameter("drawn", "whether every pair of runs has inputs of its own, or all have the same", choices=("drawn", "same"))
    error: str = parameter("spread", "kind of fault", choices=("spread", "flip", "noise"))
    targets: str = parameter(TARGETS, "what faults hit, separated by commas")
    fraction: float = parameter(1e-3, "share of the elements, of noise", range=(1e-9, 1.0))
    sigma: float = parameter(1e-2, "relative size, of noise", range=(1e-12, 1e6))
    l1: int = parameter(CACHE_BYTES["l1"], "bytes of the modelled first level", range=(4096, 1 << 26))
    l2: int = parameter(CACHE_BYTES["l2"], "bytes of the modelled second level", range=(4096, 1 << 26))
    llc: int = parameter(CACHE_BYTES["llc"], "bytes of the modelled last level", range=(8192, 1 << 30))

    def validate(self) -> None:
        """Known kernels and targets."""
        from armillary.errors import unknown

        for option, known in (("kernels", list(CONTROL)), ("targets", TARGETS.split(","))):
            for one in getattr(self, option).split(","):
                if one not in known:
                    raise unknown(option.removesuffix("s"), one, known, where=f"--{option}")


@corruption.read(Reading)
def read(path: Path, how: Reading) -> Any:
    """Reads a matrix (.mtx, .mtx.gz, .npz), windows of counters (.parquet, .csv, .jsonl), or the output of `perf stat -x`."""
    from .workload import read as read_work

    return read_work(path, how.counters)


@corruption.own_cases
def own_cases(loaded: Any, name: str, how: Reading) -> Iterator[Case]:
    """One case per kernel on a matrix; one for counters."""
    from .matrices.csr import Csr

    if not isinstance(loaded, Csr):
        kinds = {"measured", "file", "labelled" if loaded.corrupted.any() else "unlabelled"}
        bad, good = int(loaded.corrupted.sum()), int((~loaded.corrupted).sum())
        if bad and min(bad, good) < LEAST_RUNS:
            said = f"found {good} clean and {bad} corrupted runs; expected at least {LEAST_RUNS} of each to teach, to choose and to judge"
            raise InputError(said, where=name)
        yield Case(name, _own, {"runs": len(loaded), "windows": len(loaded.counters)}, frozenset(kinds))
        return
    facts = {
        "rows": loaded.rows, "pairs": how.pairs, "error": how.error, "targets": how.targets, "fraction": how.fraction, "sigma": how.sigma,
        "flips": 200, "l1": how.l1, "l2": how.l2, "llc": how.llc, "protocol": "folds", "inputs": how.inputs, "counters": how.counters,
    }  # fmt: skip
    for kernel in how.kernels.split(","):
        kinds = {"labelled", "solved", "file", "measured" if how.counters == "perf" else "simulated"}
        yield Case(f"{kernel}/{name}", _own, facts | {"kernel": kernel}, frozenset(kinds))


@corruption.example
def example(folder: Path) -> tuple[Path, dict[str, str]]:
    """Writes the matrix of a small grid."""
    from scipy.io import mmwrite
    from scipy.sparse import coo_matrix

    from .matrices.built_in import poisson

    mmwrite(folder / "grid.mtx", coo_matrix(poisson((9, 9)).scipy()))
    return folder / "grid.mtx", {"kernels": "jacobi", "pairs": "12"}


@corruption.run
def run(technique: Any, case: Case) -> Outcome:
    """Judges alarms on runs that nobody learned from, and times sampling, decision and training."""
    from .detection.alarms import by_target, figures

    if not getattr(technique, "whole", True) and not {"ablation", "file"} & case.kinds:
        raise NotForThisCase("takes cases on which parts are left out")
    work: Any = case.workload
    if "unlabelled" in case.kinds:
        return _unlabelled(technique, work)
    judged, seconds = technique.judge(work)
    values, rows = figures(judged)
    if "solved" not in case.kinds:
        del values["harm_missed"]
    values["overhead"], values["inference"] = technique.costs(work)
    values["train_s"] = seconds
    facts = [{"what": "runs that are judged", "number": len(rows)}, {"what": "pairs whose fault changed nothing", "number": work.runs.lost}]
    return Outcome(values, [Artifact.table("targets", by_target(rows)), Artifact.table("runs", rows), Artifact.table("facts", facts)])


def _unlabelled(technique: Any, work: Any) -> Outcome:
    """Learns what is normal from the first half of the windows, and looks at the second."""
    from .detection.unlabelled import watch

    share, rows, seconds, costs = watch(technique, work)
    values = {"alarms": share, "train_s": seconds, "overhead": costs[0], "inference": costs[1]}
    return Outcome(values, [Artifact.table("alarms", rows)])


def _drawn(case: Case, rng: Any) -> Any:
    from .workload import drawn

    return drawn(case, rng)


def _own(case: Case, rng: Any) -> Any:
    from .workload import own

    return own(case, rng)


@corruption.answer
def answer(result: Result) -> str:
    """Says what counters find, where they are blind, and what checks inside the algorithm find."""
    if "alarms" in result.metrics and any("unlabelled" in facts["kinds"] for facts in result.cases.values()):
        return _alarmed(result)
    if "recall_at_5" not in result.metrics:
        return "Ask for the metric recall_at_5 to get an answer."
    counters = _means(result, "recall_at_5", inside=False)
    if not counters:
        return _said_of_checks(result, "No detector from counters ran.")
    value, best = counters[0]
    said = f"With 5 % false alarms, {best} finds {100 * value:.0f} % of the corrupted runs from counters"
    by_case = result.medians(best, "recall_at_5")
    if len(by_case) > 1:
        least, most = min(by_case, key=lambda one: by_case[one]), max(by_case, key=lambda one: by_case[one])
        said += f", from {100 * by_case[least]:.0f} % on {least} to {100 * by_case[most]:.0f} % on {most}"
    where = _targets(result, best)
    if where:
        said += f"; by what is hit it finds {where}"
    return _said_of_checks(result, said + ".")


def _means(result: Result, metric: str, inside: bool) -> list[tuple[float, str]]:
    """(mean over the cases that it takes, technique), best first. inside: checks inside the algorithm."""
    from .detection.names import INSIDE

    found: list[tuple[float, str]] = []
    for name in result.techniques:
        values = result.medians(name, metric) if name != "none" and (name in INSIDE) == inside else {}
        if values and all(math.isfinite(value) for value in values.values()):
            found.append((sum(values.values()) / len(values), name))
    return sorted(found, key=lambda one: (-one[0], one[1]))


def _said_of_checks(result: Result, said: str) -> str:
    checks = [one for one in _means(result, "recall_at_5", inside=True) if one[1] != "duplicate"]
    for value, best in checks[:2]:
        cases = result.medians(best, "recall_at_5")
        cost = result.medians(best, "overhead") if "overhead" in result.metrics else {}
        said += f" {best} finds {100 * value:.0f} % on the {len(cases)} case{'s' if len(cases) > 1 else ''} that it takes"
        said += f", for {sum(cost.values()) / len(cost):.0f} % of the time of the products." if cost else "."
    counters = _means(result, "recall_at_5", inside=False)
    if counters and "harm_missed" in result.metrics:
        mine = result.medians(counters[0][1], "harm_missed")
        if mine:
            said += f" Of the runs with a wrong result, {counters[0][1]} misses {100 * sum(mine.values()) / len(mine):.0f} %."
    return said


def _targets(result: Result, technique: str) -> str:
    """Recall by what was hit, over all cases."""
    runs: dict[str, list[float]] = {}
    for case in result.cases:
        for row in result.artifact_rows(technique, case, "targets"):
            found = runs.setdefault(str(row["target"]), [0.0, 0.0])
            found[0] += float(row["corrupted"]) * float(row["recall_at_5"])
            found[1] += float(row["corrupted"])
    return ", ".join(f"{100 * a / b:.0f} % ({name})" for name, (a, b) in sorted(runs.items()) if b and name)


def _alarmed(result: Result) -> str:
    said = []
    for name in result.techniques:
        for case, share in result.medians(name, "alarms").items():
            rows = [row for row in result.artifact_rows(name, case, "alarms") if str(row["alarm"]).lower() == "true"]
            first = f", the first at window {rows[0]['window']}" if rows else ""
            said.append(f"{name} alarms in {100 * share:.1f} % of the later windows of {case}{first}.")
    return " ".join(said) or "No detector could learn from these windows without labels."


@corruption.plots
def plots(result: Result) -> Sequence[Any]:
    """Recall and missed harm by case."""
    drawn: list[Any] = []
    for metric, title in (
        ("recall_at_5", "Corrupted runs found at 5 % false alarms"), ("harm_missed", "Wrong results without an alarm"),
        ("overhead", "Overhead"),
    ):  # fmt: skip
        if metric in result.metrics:
            drawn += result.panels(title, metric)
    return drawn
