"""Does this function deserve a GPU, and does it still deserve it an hour later?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from armillary.arena import Arena, Artifact, Case, Constant, InputError, Metric, NotForThisCase, Outcome, Result, parameter
from armillary.wording import counted, listed

if TYPE_CHECKING:
    import numpy as np

    from .execution.real import RealWork
    from .inspection.modes import Inspection
    from .readers.request_logs import Log
    from .simulation.play import Played
    from .workload import OffloadingWork

_REQUESTS, _ACCELERABLE = frozenset({"requests"}), frozenset({"accelerable", "simulated"})

offloading = Arena(
    "scheduling/offloading",
    question="Does this function deserve a GPU, and does it still deserve it an hour later?",
    metrics=[
        Metric("latency_mean_ms", unit="ms", kind="by case", on=_REQUESTS, doc="mean latency, cold starts and queues included"),
        Metric("latency_p95_ms", unit="ms", kind="by case", on=_REQUESTS, doc="its 95th percentile"),
        Metric("slo_met", better="higher", kind="by case", scale="difference", on=_REQUESTS, doc="share of requests within the SLO of 1 s"),
        Metric("switches", better=None, kind="by case", on=_REQUESTS, doc="changes of backend, per function"),
        Metric("gpu_s", unit="s", better=None, kind="by case", on=_REQUESTS, doc="seconds of GPU pods"),
        Metric("gpu_share", kind="by case", scale="difference", on=_REQUESTS, doc="the GPU's share of all pod seconds"),
        Metric("cost_usd", unit="$", kind="modelled", on=_REQUESTS, doc="pod seconds times prices"),
        Metric("captured", better="higher", kind="modelled", scale="difference", on=_ACCELERABLE,
               doc="(cpu-only's mean latency − ours) / (cpu-only's − gpu-only's)"),
        Metric("mode_accuracy", better="higher", kind="measured", steady=True, scale="difference", on=frozenset({"corpus"}),
               doc="share of labelled sources whose mode is guessed right; one mode for all where nothing is inspected"),
        Metric("inspect_ms", unit="ms", kind="measured", on=frozenset({"inspection"}), doc="milliseconds per source"),
    ],
    techniques={
        "cpu-only": ".cpu_only:CpuOnly",
        "gpu-only": ".gpu_only:GpuOnly",
        "static-hint": ".static_hint:StaticHint",
        "one-shot": ".one_shot:OneShot",
        "bandit": ".bandit:Bandit",
        "gaia": ".gaia:Gaia",
        "oracle": ".oracle:Oracle",
    },
    papers={"gaia": "gaia"},
    baseline="cpu-only",
    tradeoff=("cost_usd", "latency_mean_ms"),
    repeats=5,
    telling=("*-closed", "matmul-bursts", "matmul-drift", "matmul-satellite", "corpus"),
    constants=[
        Constant("matmul", "110 to 20,564 and 110 to 3,218", "ms", "CPU and GPU by size, medians of the artifact's log"),
        Constant("resnet18", "189 and 152", "ms", "the artifact's log"),
        Constant("tinyllama", "600 and 140; 16,300 and 2,090", "ms", "short and long answers, the artifact's log"),
        Constant("idle-wait", "2,077 and 2,077", "ms", "the artifact's log"),
        Constant("cold starts", "3.2/2.3, 3.3/4.1, 23, 34, 2.64", "s", "matmul, resnet18, short, long, idle-wait; one run each"),
        Constant("variation", 0.05, "", "coefficient of variation of requests and starts, lognormal (specified)"),
        Constant("prices", "0.000038 and 0.000133", "$/s", "CPU pod and GPU pod, the artifact's"),
        Constant("load", "0.7; 1.5 within bursts", "of the CPU", "of arrivals that are no closed loop (chosen)"),
        Constant("bursts", "120 and 300", "s", "bursts and silences, exponential (chosen)"),
        Constant("satellite", "8 of every 20", "min", "without a GPU (specified)"),
    ],
)  # fmt: skip

#: Seconds of a case.
LENGTH_S = {"tiny": 420.0, "small": 1800.0, "large": 86_400.0}
#: Functions, seconds and invocations at the most of the fleet.
FLEETS = {"tiny": (6, 1200.0, 2_000), "small": (50, 7200.0, 100_000), "large": (1000, 86_400.0, 10_000_000)}
CLOSED = ("matmul", "resnet18", "tinyllama-short", "tinyllama-long", "idle-wait")
ACCELERABLE = frozenset({"matmul", "tinyllama-short", "tinyllama-long"})
#: Real runs: sweeps and the largest size of each kind, and how many platform seconds a second counts as.
REAL = {"threads": (3, 900, 1000.0), "cuda-matmul": (3, 6000, 100.0), "cuda-attention": (3, 8000, 100.0)}
REAL_STEPS = 30
TINY_REAL = (1, 160, 4000.0)


@offloading.cases
def cases(scale: str) -> Iterator[Case]:
    """Published functions in closed loops and under four loads, a fleet, the labelled sources, and real backends of this machine."""
    for name in CLOSED:
        kinds = {"requests", "simulated", "closed", name, *(["accelerable"] if name in ACCELERABLE else ["misfit"])}
        yield Case(f"{name}-closed", _built_in, {"function": name, "load": "closed", "seconds": LENGTH_S[scale]}, frozenset(kinds))
    for load in ("poisson", "bursts", "drift", "satellite"):
        # Without a GPU now and then, gpu-only is no bound of what a GPU brings.
        kinds = {"requests", "simulated", load, *(["accelerable"] if load != "satellite" else [])}
        yield Case(f"matmul-{load}", _built_in, {"function": "matmul", "load": load, "seconds": LENGTH_S[scale]}, frozenset(kinds))
    functions, seconds, most = FLEETS[scale]
    yield Case("fleet", _fleet, {"functions": functions, "seconds": seconds, "most": most}, frozenset({"requests", "simulated", "fleet"}))
    yield Case("corpus", _corpus, {}, frozenset({"inspection", "corpus"}))
    for kind, settings in REAL.items():
        sweeps, largest, stretch = settings if scale != "tiny" else TINY_REAL
        facts = {"kind": kind, "sweeps": sweeps, "largest": largest, "stretch": stretch}
        tags = {"requests", "measured", "real", *(["real-gpu"] if kind.startswith("cuda") else [])}
        yield Case(f"real-{kind}", _real, facts, frozenset(tags))


@dataclass(frozen=True)
class Reading:
    """How requests are read, and what the platform is like."""

    gpu: str = parameter("", "the log of the same function on a GPU", file=True)
    speedup: float = parameter(1.0, "without such a log: how many times faster the GPU is", range=(0.001, 1e6))
    source: str = parameter("", "the function's source (a file or a folder), whose mode is the first guess", file=True)
    entry: str = parameter("", "the file of a folder at which the function begins")
    mode: str = parameter("auto", "the first guess itself", choices=("auto", "cpu", "cpu_preferred", "gpu_preferred", "gpu"))
    load: str = parameter("log", "when requests come: as logged, or each after the answer to the one before", choices=("log", "closed"))
    revision: str = parameter("", "the revision of an answer of Prometheus")
    cold_cpu_s: float = parameter(3.0, "seconds that a CPU pod takes to start", range=(0.0, 1e5))
    cold_gpu_s: float = parameter(3.0, "seconds that a GPU pod takes to start", range=(0.0, 1e5))
    price_cpu: float = parameter(0.000038, "$ per second of a CPU pod", range=(1e-12, 1e6))
    price_gpu: float = parameter(0.000133, "$ per second of a GPU pod", range=(1e-12, 1e6))
    slo_ms: float = parameter(1000.0, "the latency that a request should have at the most", range=(0.001, 1e9))
    keep_s: float = parameter(0.0, "idle seconds after which a pod is scaled to zero; 0 keeps it", range=(0.0, 1e7))
    away_s: float = parameter(0.0, "seconds for which there is no GPU, every --every-s seconds", range=(0.0, 1e7))
    every_s: float = parameter(1200.0, "see --away-s", range=(60.0, 1e7))

    def validate(self) -> None:
        """The GPU must come back."""
        if self.away_s >= self.every_s:
            raise InputError(f"found {self.away_s:g} s; expected less than --every-s ({self.every_s:g} s)", where="--away-s")


@offloading.read(Reading, folders=True)
def read(path: Path, how: Reading) -> Any:
    """Reads requests (CSV, or Prometheus' JSON), or a Python source (a file, or a folder)."""
    name = path.name.lower().removesuffix(".gz").removesuffix(".zst")
    if path.is_dir() or name.endswith(".py"):
        from .inspection.inspect import explain_source

        return explain_source(path, entry=how.entry)
    log = _log(path, how.revision, name)
    gpu = _log(Path(how.gpu), how.revision, how.gpu.lower()) if how.gpu else None
    if how.gpu and not Path(how.gpu).is_file():
        raise InputError("found no such file; expected a log of requests", where=f"--gpu {how.gpu}")
    work = _own_work(log, gpu, how, _first_mode(how), 1.0, str(path))
    del work
    return log, gpu, _first_mode(how)


def _log(path: Path, revision: str, name: str) -> Log:
    if not path.is_file():
        raise InputError("found no such file; expected a log of requests", where=str(path))
    plain = name.removesuffix(".gz").removesuffix(".zst")
    if plain.endswith(".json"):
        from .readers.prometheus import log_of, read_prometheus

        return log_of(read_prometheus(path, revision), str(path))
    if not plain.endswith(".csv"):
        raise InputError(
            "found another ending; expected .csv (requests), .json (Prometheus), or .py or a folder (a source)", where=str(path)
        )
    from .readers.request_logs import read_log

    return read_log(path)


def _first_mode(how: Reading) -> int:
    from .runtime.controller import Mode

    if how.mode != "auto":
        return Mode.of(how.mode).rank
    if not how.source:
        return Mode.CPU_PREFERRED.rank
    from .inspection.inspect import explain_source

    return explain_source(Path(how.source), entry=how.entry).mode.rank


def _own_work(log: Log, gpu: Log | None, how: Reading, mode: int, phase: float, where: str) -> OffloadingWork:
    import math

    import numpy as np

    from .readers.request_logs import both_backends
    from .workload import given

    service = both_backends(log, gpu, how.speedup, where)
    closed = how.load == "closed"
    end = float(service[0].sum()) if closed else float(log.arrival_s[-1])
    begins = np.arange(how.every_s - how.away_s, end, how.every_s) if how.away_s > 0 else np.zeros(0)
    if len(begins) > 1_000_000:
        raise InputError(f"found {len(begins):,} times without a GPU; expected at most 1,000,000", where="--every-s")
    try:
        return given(
            service, arrival_s=None if closed else log.arrival_s, cold_s=(how.cold_cpu_s, how.cold_gpu_s), mode=mode, phase=phase,
            size=log.size, down_s=np.stack([begins, begins + how.away_s], 1), keep_s=how.keep_s or math.inf, slo_s=how.slo_ms / 1e3,
            prices=(how.price_cpu, how.price_gpu),
        )  # fmt: skip
    except InputError as error:
        raise InputError(error.message, where=error.where or where) from None


@offloading.own_cases
def own_cases(loaded: Any, name: str, how: Reading) -> Iterator[Case]:
    """The file as one case: requests to be played, or a source to be inspected."""
    from dataclasses import asdict

    from .inspection.modes import Inspection

    if isinstance(loaded, Inspection):
        yield Case(name, _own_source, {"entry": how.entry}, frozenset({"file", "inspection"}))
        return
    log, _, mode = loaded
    facts = {key: value for key, value in asdict(how).items() if key not in ("gpu", "source", "entry", "mode")}
    facts |= {"first_mode": mode, "requests": len(log), "failed": log.failed, "reordered": log.reordered, "form": log.kind}
    yield Case(name, _own, facts, frozenset({"file", "requests", "simulated"}))


@offloading.example
def example(folder: Path) -> tuple[Path, dict[str, str]]:
    """Writes logs of products of growing size on a CPU and on a GPU, as the artifact has them, and the function's source."""
    from .functions.sources import published

    for name, cubed in (("cpu.csv", 2.5e-9), ("gpu.csv", 4e-10)):
        rows, second = ["timestamp,matrix_size,response_time_ms"], 0.0
        for k in range(120):
            size = 100 * k
            ms = 110 + cubed * size**3
            second += ms / 1e3 + 0.5
            failed = name == "cpu.csv" and k == 77
            clock = f"{int(second // 3600):02d}:{int(second // 60) % 60:02d}:{second % 60:06.3f}"
            rows.append(f"2025-06-01T{clock},{size},{-1 if failed else round(ms, 1)}")
        (folder / name).write_text("\n".join(rows) + "\n")
    (folder / "func.py").write_text(published()["matmul"][0]["func.py"])
    return folder / "cpu.csv", {"gpu": str(folder / "gpu.csv"), "source": str(folder / "func.py"), "load": "closed"}


@offloading.run
def run(technique: Any, case: Case) -> Outcome:
    """Inspects sources, or plays requests with the technique's decisions."""
    if "inspection" in case.kinds:
        return _inspect(technique, case)
    if "real" in case.kinds:
        return _run_really(technique, case)
    from .simulation.play import play

    work: OffloadingWork = case.workload
    if not len(work):
        raise NotForThisCase("there is no request")
    played = technique.play(work) if technique.oracle else play(work, technique.policy(work.prices))
    values = _values(played, work, 1.0)
    if "accelerable" in case.kinds:
        cpu, gpu = (case.once(_mean_s, name) for name in ("cpu-only", "gpu-only"))
        values["captured"] = (cpu - float(played.latency_s.mean())) / (cpu - gpu)
    return Outcome(values, _artifacts(played, work))


def _values(played: Played, work: OffloadingWork, stretch: float) -> dict[str, float]:
    import numpy as np

    ms = 1e3 * played.latency_s / stretch
    return {
        "latency_mean_ms": float(ms.mean()),
        "latency_p95_ms": float(np.quantile(ms, 0.95)),
        "slo_met": float((played.latency_s <= work.slo_s).mean()),
        "switches": played.switches / work.functions,
        "gpu_s": float(played.pod_s[1]) / stretch,
        "gpu_share": played.gpu_share,
        "cost_usd": played.cost_usd(work.prices) / stretch,
    }


def _artifacts(played: Played, work: OffloadingWork) -> list[Artifact]:
    found = [Artifact.quantiles("latency", 1e3 * played.latency_s, "ms")]
    if played.log and work.functions == 1:
        rows = [{"time_s": one.time_s, "to": ("cpu", "gpu")[one.backend], "rule": one.rule} for one in played.log]
        found += [Artifact.table("switches", rows), Artifact.timeline(_events(played))]
    return found


def _events(played: Played) -> list[dict[str, Any]]:
    """The backend that the controller wanted over time, as bars."""
    begins = [0.0, *(one.time_s for one in played.log)]
    sides = [1 - played.log[0].backend, *(one.backend for one in played.log)]
    ends = [*begins[1:], played.end_s]
    return [
        {"name": ("CPU", "GPU")[side], "ph": "X", "pid": 0, "tid": side, "ts": 1e6 * begin, "dur": 1e6 * max(0.0, end - begin)}
        for side, begin, end in zip(sides, begins, ends)
    ]


def _mean_s(case: Case, name: str) -> float:
    """The mean latency of a baseline on the case, played once for all techniques."""
    from .simulation.play import play

    return float(play(case.workload, offloading.make(name).policy()).latency_s.mean())  # type: ignore[attr-defined]


def _run_really(technique: Any, case: Case) -> Outcome:
    from .execution.real import play_really

    work: RealWork = case.workload
    played, known = play_really(work, technique.policy())
    values = _values(played, known, work.stretch)
    return Outcome(values, [Artifact.quantiles("latency", 1e3 * played.latency_s / work.stretch, "ms")], kinds={"cost_usd": "measured"})


def _inspect(technique: Any, case: Case) -> Outcome:
    """The inspector's modes for techniques that begin with them; one mode for all for the two that do not look."""
    import time

    from .cpu_only import CpuOnly
    from .gpu_only import GpuOnly
    from .inspection.inspect import inspect_files
    from .runtime.controller import Mode

    fixed = Mode.CPU if isinstance(technique, CpuOnly) else Mode.GPU if isinstance(technique, GpuOnly) else None
    sources = case.workload
    begin = time.perf_counter()
    found = [None if fixed else inspect_files(one.files, one.entry) for one in sources]
    seconds = time.perf_counter() - begin
    modes = [fixed if one is None else one.mode for one in found]
    values = {"inspect_ms": 1e3 * seconds / len(sources)}
    if "corpus" in case.kinds:
        values["mode_accuracy"] = sum(mode is one.mode for mode, one in zip(modes, sources)) / len(sources)
        return Outcome(values)
    rows = [{"file": e.file, "line": e.line, "kind": e.kind, "what": e.what} for one in found if one for e in one.evidence]
    reason = found[0].reason if found[0] else "it does not look at sources"
    artifacts = [Artifact.table("mode", [{"mode": str(modes[0]), "reason": reason}])]
    return Outcome(values, [*artifacts, *([Artifact.table("evidence", rows)] if rows else [])])


@offloading.answer
def answer(result: Result) -> str:
    """Says the mode of a source, or which technique has the least latency times cost and what Gaia does to both."""
    said = [text for case in result.cases if (text := _source_said(result, case))]
    if not {"latency_mean_ms", "cost_usd"} <= set(result.metrics):
        return " ".join(said) or "Ask for the metrics latency_mean_ms and cost_usd to get an answer."
    ranked: dict[str, dict[str, float]] = {}
    for case in result.cases:
        latency, cost = result.on(case, "latency_mean_ms", without={"oracle"}), result.on(case, "cost_usd", without={"oracle"})
        if both := {name: latency[name] * cost[name] for name in latency if name in cost}:
            ranked[case] = both
    if not ranked:
        return " ".join(said) or "No technique could run any of the cases."
    near = {case: [t for t in found if found[t] <= 1.01 * min(found.values())] for case, found in ranked.items()}
    names = [t for best in near.values() for t in best]
    best = max((t for t in [*offloading.techniques, *names] if t in names), key=names.count)
    won = [case for case in ranked if best in near[case]]
    where = won[0] if len(ranked) == 1 else f"{len(won)} of {len(ranked)} cases"
    lost = list(dict.fromkeys(near[case][0] for case in ranked if case not in won))
    said.append(f"{best} has the least latency times cost on {where}" + (f"; elsewhere it is {listed(lost)}." if lost else "."))
    gaia = [(slow, dear) for case in ranked if (slow := result.ratio(case, "latency_mean_ms", "gaia", "cpu-only"))
            and (dear := result.ratio(case, "cost_usd", "gaia", "cpu-only"))]  # fmt: skip
    if gaia:
        said.append(f"Over {counted(len(gaia), 'case')}, gaia has {1 / _mean([g[0] for g in gaia]):.2g} times cpu-only's latency "
                    f"at {1 / _mean([g[1] for g in gaia]):.2g} times its cost.")  # fmt: skip
    return " ".join(said)


def _source_said(result: Result, case: str) -> str:
    for name in ("gaia", "static-hint"):
        rows = result.artifact_rows(name, case, "mode") if name in result.techniques else []
        if rows:
            return f"{case} is {rows[0]['mode']}, because {rows[0]['reason']}."
    return ""


def _mean(values: Sequence[float]) -> float:
    import math

    return math.exp(sum(math.log(value) for value in values) / len(values))


@offloading.plots
def plots(result: Result) -> Sequence[Any]:
    """Latency, cost and the GPU's share, by case."""
    drawn = []
    for metric, title in (("latency_mean_ms", "Mean latency"), ("cost_usd", "Cost"), ("gpu_share", "The GPU's share of pod seconds")):
        if metric in result.metrics:
            drawn += result.panels(title, metric, log_y=metric != "gpu_share")
    return drawn


def _built_in(case: Case, rng: np.random.Generator) -> OffloadingWork:
    from .workload import built_in

    p = case.parameters
    return built_in(rng, p["function"], p["load"], p["seconds"])


def _fleet(case: Case, rng: np.random.Generator) -> OffloadingWork:
    from .workload import fleet

    p = case.parameters
    return fleet(rng, p["functions"], p["seconds"], p["most"])


def _corpus(case: Case, rng: np.random.Generator) -> Any:
    from .functions.sources import corpus

    return corpus()


def _real(case: Case, rng: np.random.Generator) -> RealWork:
    import numpy as np

    from .execution.real import RealWork
    from .runtime.controller import Mode

    p = case.parameters
    sizes = np.tile(np.rint(np.linspace(0, p["largest"], REAL_STEPS)), p["sweeps"])
    return RealWork(sizes, p["kind"], p["stretch"], Mode.CPU_PREFERRED.rank, 1.0 - float(rng.random()))


def _own_source(case: Case, rng: np.random.Generator) -> Any:
    found: Inspection = case.loaded
    from .functions.sources import Labelled

    return (Labelled(case.name, found.mode, dict(found.texts), found.files[0]),)


def _own(case: Case, rng: np.random.Generator) -> OffloadingWork:
    p = case.parameters
    log, gpu, mode = case.loaded
    how = Reading(**{key: p[key] for key in ("speedup", "load", "revision", "cold_cpu_s", "cold_gpu_s", "price_cpu", "price_gpu", "slo_ms",
                                             "keep_s", "away_s", "every_s")})  # fmt: skip
    return _own_work(log, gpu, how, mode, 1.0 - float(rng.random()), case.name)
