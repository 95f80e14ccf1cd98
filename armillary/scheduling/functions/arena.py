"""How many vCPUs does each call of a function get, and on which node, if calls have deadlines and nodes are not alike?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from armillary.arena import Arena, Artifact, Case, Constant, InputError, Metric, NotForThisCase, Outcome, Result, parameter
from armillary.wording import listed

if TYPE_CHECKING:
    import numpy as np

    from .execution.here import HereWork
    from .readers.documents import Read
    from .simulation.play import Played
    from .workload import FunctionsWork

_PLAYED = frozenset({"simulated"})

functions = Arena(
    "scheduling/functions",
    question="My functions have deadlines and my nodes are not alike: how many vCPUs does each call get, and where?",
    metrics=[
        Metric("deadline_missed", kind="by case", scale="ratio", doc="share of the calls that ended after their deadlines"),
        Metric("deadline_met", kind="by case", better="higher", scale="difference", doc="share of the calls that ended in time"),
        Metric("core_s_allocated", kind="by case", unit="core·s", doc="vCPUs times seconds, from start to end of each run"),
        Metric("memory_gb_s_allocated", on=_PLAYED, unit="GB·s", doc="memory of pods, idle ones too"),
        Metric("core_s_per_met", kind="by case", unit="core·s", doc="core-seconds allocated per call in time"),
        Metric(
            "efficiency", kind="by case", better="higher", scale="difference",
            doc="CPU seconds that the work takes over core-seconds allocated",
        ),
        Metric("cost", kind="modelled", on=_PLAYED, doc="core-hours at the price of their nodes; a standard one is 1"),
        Metric(
            "promise_error", on=_PLAYED, scale="difference",
            doc="mean of |promised − delivered|/delivered time to the end; promised at the start",
        ),
        Metric(
            "calls_to_converge", on=_PLAYED, unbounded=True, doc="median over functions of the executions until size and memory stay right"
        ),
        Metric("latency_p95", kind="by case", unit="s", doc="95th percentile of the time from arrival to end"),
        Metric("killed", on=_PLAYED, doc="runs that were killed for memory and tried again"),
    ],
    techniques={
        "fixed-least-loaded": ".fixed_least_loaded:FixedLeastLoaded",
        "fixed-tuned": ".fixed_tuned:FixedTuned",
        "fixed-random": ".fixed_random:FixedRandom",
        "round-robin": ".round_robin:RoundRobin",
        "edf-fixed": ".edf_fixed:EdfFixed",
        "edf-tuned": ".edf_tuned:EdfTuned",
        "max-alloc": ".max_alloc:MaxAlloc",
        "first-fit": ".first_fit:FirstFit",
        "profiled": ".profiled:Profiled",
        "dhrt": ".dhrt:Dhrt",
        "oracle": ".oracle:Oracle",
    },
    papers={"dhrt": "dhrt"},
    baseline="fixed-least-loaded",
    tradeoff=("deadline_missed", "core_s_allocated"),
    repeats=1,
    telling=("load-0.4", "load-0.7", "load-0.95", "misfit-0.7"),
    constants=[
        Constant("nodes", "3 × 16 × 0.7, 4 × 32 × 1.0, 3 × 16 × 1.6", "", "nodes × cores × speed: old, standard, fast (chosen)"),
        Constant("prices", "0.65, 1, 1.9", "per core·h", "of the three node types (chosen)"),
        Constant("standard core", 10, "GFLOP/s", "ours"),
        Constant("coordination", 0.005, "of the work", "per further vCPU (chosen)"),
        Constant("contention", 0.3, "", "added to memory-bound calls at most, by their share of a node's busy cores (chosen)"),
        Constant("noise", "CV 0.08; 2 % twice as long", "", "of run times (chosen); peaks of memory 5 % (ours)"),
        Constant("deadlines", "1.5 to 4", "× p50 alone", "with the most vCPUs of which half are put to use (the rule is ours)"),
        Constant("owners", "2^−1, 2^0, 2^1", "", "by which sizes for the median deadline are misjudged; memory is twice the peak"),
        Constant("keep-alive", 60, "s", "of idle pods"),
        Constant("peak at", 0.5, "of the work", "where a run reaches its peak of memory, and may be killed (ours)"),
    ],
)  # fmt: skip

#: Calls, and how many times over there are the built-in ten nodes.
SIZES = {"tiny": (1_500, 1), "small": (20_000, 1), "large": (2_000_000, 20)}
LOADS = (0.4, 0.7, 0.95)
#: Each case is drawn so many times, because one draw of owners' misjudgements is one platform's luck; `compare` shows the first.
DRAWS = {"tiny": 1, "small": 8, "large": 8}
#: Calls that really run on this machine, and their load.
HERE_CALLS, HERE_LOAD = 60, 0.6


@functions.cases
def cases(scale: str) -> Iterator[Case]:
    """Twelve functions at three loads, only CPU-bound ones, a misfit in which times go in steps and inputs come in two sizes, and four that
    really run on this machine.
    """
    from .problem.functions import CPU_BOUND, PROFILES

    calls, times = SIZES[scale]
    works = [*(("load", load, PROFILES) for load in LOADS), ("cpu-bound", 0.7, CPU_BOUND), ("misfit", 0.7, PROFILES)]
    for draw in range(1, DRAWS[scale] + 1):
        for kind, load, names in works:
            facts = {"load": load, "functions": list(names), "calls": calls, "fleet": times, "misfit": kind == "misfit", "draw": draw}
            name = f"{kind}-{load:g}"
            yield Case(name if draw == 1 else f"{name}-{draw}", _built_in, facts, frozenset({kind, "simulated"}))
    if scale != "tiny":
        yield Case("here", _here, {"calls": HERE_CALLS, "load": HERE_LOAD}, frozenset({"measured"}))


@dataclass(frozen=True)
class Reading:
    """How functions and calls are read, and what is drawn where a file does not say."""

    nodes: str = parameter("", "a JSON file with nodes; the built-in ones by default", file=True)
    fleet: int = parameter(1, "how many times over there are the built-in nodes, if no others are given", range=(1, 1000))
    calls: int = parameter(20_000, "calls that are drawn, if the file has none", range=(1, 5_000_000))
    load: float = parameter(0.7, "load at which they are drawn", range=(0.001, 10.0))
    tight: float = parameter(1.5, "drawn deadlines are at least this many times the p50 alone", range=(0.01, 1e4))
    loose: float = parameter(4.0, "and at most this many times", range=(0.01, 1e4))
    parallel: float = parameter(0.0, "parallel fraction of the functions of a trace, which it does not say", range=(0.0, 1.0))
    told: bool = parameter(True, "whether planners are told the sizes of inputs that a JSON file gives")
    durations: str = parameter("", "Azure 2019: the file with the durations of functions", file=True)
    memory: str = parameter("", "Azure 2019: the file with the memory of applications", file=True)
    cold_starts: str = parameter("", "Huawei: the file with cold starts", file=True)
    spread: str = parameter("uniform", "where in its minute a counted call arrives", choices=("uniform", "start", "even"))

    def validate(self) -> None:
        """A range of deadlines has a beginning and an end."""
        if self.loose < self.tight:
            raise InputError(f"found {self.loose:g} below --tight {self.tight:g}; expected at least as much", where="--loose")


@functions.read(Reading, folders=True)
def read(path: Path, how: Reading) -> Read:
    """Reads functions (JSON), or a serverless trace (Azure 2019, Azure 2021, Huawei 2025, or a table of our own)."""
    from .problem.fleet import built_in
    from .readers.documents import read_functions, read_nodes
    from .readers.traces import read_trace
    from .workload import own_work

    try:
        if path.suffix.lower() == ".json":
            for name in ("durations", "memory", "cold_starts"):
                if getattr(how, name):
                    raise InputError(
                        "found a file that belongs to a trace; expected none beside a JSON file", where=f"--{name.replace('_', '-')}"
                    )
            found = read_functions(path, nodes=how.nodes)
        else:
            fleet = read_nodes(how.nodes) if how.nodes else built_in(how.fleet)
            files = {"durations": how.durations, "memory": how.memory, "cold_starts": how.cold_starts, "spread": how.spread}
            found = read_trace(path, fleet, how.parallel, files)
        own_work(found, how.__dict__ | {"calls": min(how.calls, 10)}, None)  # says what is wrong before anything runs
    except InputError as error:
        known = (str(path), how.nodes or str(path), how.durations or str(path), how.memory or str(path), how.cold_starts or str(path))
        if error.where is not None and error.where.startswith((*known, "--")):
            raise
        raise InputError(error.message if error.where is None else f"{error.where}: {error.message}", where=str(path)) from None
    return found


@functions.own_cases
def own_cases(loaded: Read, name: str, how: Reading) -> Iterator[Case]:
    """The file as one case."""
    drawn = loaded.calls is None
    many = how.calls if loaded.calls is None else len(loaded.calls.function)
    facts = {
        "functions": len(loaded.profiles), "nodes": sum(loaded.fleet.counts), "calls": many,
        "load": how.load, "tight": how.tight, "loose": how.loose, "told": how.told, "drawn": drawn,
    }  # fmt: skip
    yield Case(name, _own, facts, frozenset({"file", "simulated"}))


@functions.example
def example(folder: Path) -> tuple[Path, dict[str, str]]:
    """Writes four functions on two types of nodes, with 240 calls."""
    import json

    nodes = [
        {"type": "small", "count": 2, "cores": 8, "speed": 1.0, "price": 1.0, "memory_mb": 16384},
        {"type": "fast", "count": 1, "cores": 8, "speed": 1.6, "price": 1.9, "memory_mb": 16384},
    ]
    own = [
        {"name": "thumbnail", "work_gflop": 8, "parallel_fraction": 0.0, "memory_mb": 128, "vcpu": 1},
        {"name": "report", "work_gflop": 40, "parallel_fraction": 0.9, "memory_mb": 512, "vcpu": 1},
        {"name": "forecast", "work_gflop": 60, "parallel_fraction": 0.95, "memory_mb": 1024, "affinity": {"fast": 0.7}, "vcpu": 4},
        {"name": "upload", "work_gflop": 2, "parallel_fraction": 0.0, "io_ms": 900, "memory_mb": 256, "vcpu": 1},
    ]
    within = {"thumbnail": 2.5, "report": 3.0, "forecast": 2.8, "upload": 3.0}
    calls = []
    for i in range(240):
        name = own[(7 * i + i // 5) % 4]["name"]
        arrival = round(0.5 * i + 0.3 * (i * i % 5), 3)
        calls.append({"function": name, "arrival_s": arrival, "deadline_s": round(arrival + within[str(name)] * (1 + i % 4 / 4), 3)})
    calls.sort(key=lambda call: float(str(call["arrival_s"])))
    path = folder / "functions.json"
    path.write_text(json.dumps({"nodes": nodes, "standard": "small", "functions": own, "calls": calls}, indent=1) + "\n")
    return path, {}


@functions.warm_up
def warm_up(technique: Any, case: Case) -> None:
    """Compiles the loop."""
    import numpy as np

    from .problem.fleet import built_in as fleet
    from .simulation.play import play
    from .workload import built_in

    work = built_in(np.random.default_rng(0), fleet(), names=("hash",), calls=3, load=0.1)
    play(work, technique.policy(work), np.random.default_rng(0))


@functions.run
def run(technique: Any, case: Case) -> Outcome:
    """Plays the case's calls under the technique's rules, or really runs them."""
    from .simulation.play import play

    if "measured" in case.kinds:
        return _run_here(technique, case)

    played = play(case.workload, technique.policy(case.workload), technique.rng)
    artifacts = [Artifact.quantiles("latency", played.latency_s, "s"), Artifact.table("functions", by_function(played))]
    return Outcome(played.metrics(), artifacts)


def _run_here(technique: Any, case: Case) -> Outcome:
    from .execution.here import play
    from .planning.policy import CHOSEN, LEARNED

    policy = technique.policy(None)
    if policy.size == CHOSEN and policy.knowledge != LEARNED:
        raise NotForThisCase("it knows run times before a call has run, and nobody does here")
    values, ran = play(technique, case.workload)
    rows = [
        {"function": one.name, "cores": one.vcpu, "wall_s": one.wall_s, "cpu_s": one.cpu_s, "end_s": one.end_s, "in_time": one.in_time}
        for one in ran
    ]
    return Outcome(values, [Artifact.quantiles("latency", [one.end_s for one in ran], "s"), Artifact.table("calls", rows)])


def by_function(played: Played) -> list[dict[str, Any]]:
    """What became of each function's calls; the hundred with most calls."""
    import numpy as np

    work = played.work
    many = np.bincount(work.calls.function, minlength=len(work.profiles))
    rows = []
    for f in np.argsort(-many, kind="stable")[:100].tolist():
        mine = work.calls.function == f
        if mine.any():
            rows.append({
                "function": work.profiles[f].name, "calls": int(many[f]), "missed": float(played.missed[mine].mean()),
                "vcpu": float(work.sizes[played.size[mine]].mean()), "core_s": float(played.core_s[mine].sum()),
                "cold": int(played.cold[mine].sum()),
            })  # fmt: skip
    return rows


@functions.answer
def answer(result: Result) -> str:
    """Names the technique with the fewest missed deadlines, what it spends per call in time, and what better estimates could bring."""
    if "deadline_missed" not in result.metrics:
        return "Ask for the metric deadline_missed to get an answer."
    apart = {
        name for name in result.techniques if name == "profiled" or (name in functions.techniques and functions.technique(name).oracle)
    }
    ranked = {case: found for case in result.cases if (found := result.on(case, "deadline_missed", without=apart))}
    if not ranked:
        return "No technique could run any of the cases."
    near = {case: [t for t, value in found.items() if value <= 1.005 * min(found.values())] for case, found in ranked.items()}
    names = [t for best in near.values() for t in best]
    best = max((t for t in [*functions.techniques, *names] if t in names), key=names.count)
    won = [case for case, first in near.items() if best in first]
    shares = [ranked[case][best] for case in won]
    low, high = f"{100 * min(shares):.1f}", f"{100 * max(shares):.1f}"
    said = f"{best} misses the fewest deadlines on {won[0] if len(ranked) == 1 else f'{len(won)} of {len(ranked)} cases'}"
    said += f" ({low if low == high else f'{low} to {high}'} % of the calls"
    other = [min(rest) for case in won if (rest := [value for t, value in ranked[case].items() if t not in near[case]])]
    if other:
        low, high = f"{100 * min(other):.1f}", f"{100 * max(other):.1f}"
        said += f"; the next best {low if low == high else f'{low} to {high}'} %"
    said += ")"
    lost = list(dict.fromkeys(near[case][0] for case in ranked if case not in won))
    said += f"; elsewhere it is {listed(lost)}." if lost else "."
    spent = [r for case in won if best != "fixed-least-loaded" and (r := result.ratio(case, "core_s_per_met", best, "fixed-least-loaded"))]
    if spent:
        low, high = f"{100 * (1 - 1 / min(spent)):.0f}", f"{100 * (1 - 1 / max(spent)):.0f}"
        less = f"{low if low == high else f'{low} to {high}'} %"
        said += f" There {best} takes {less} fewer core-seconds per call in time than the owners' sizes." if min(spent) >= 1 else ""
    return said


@functions.plots
def plots(result: Result) -> Sequence[Any]:
    """Missed deadlines, core-seconds and memory, by case."""
    drawn = []
    for metric, title in (
        ("deadline_missed", "Share of deadlines missed"), ("core_s_per_met", "Core-seconds per call in time"),
        ("memory_gb_s_allocated", "Memory allocated"), ("promise_error", "Error of promised ends"),
    ):  # fmt: skip
        if metric in result.metrics:
            drawn += result.panels(title, metric, log_y=metric in ("core_s_per_met", "memory_gb_s_allocated"))
    return drawn


def _built_in(case: Case, rng: np.random.Generator) -> FunctionsWork:
    from .problem.fleet import built_in as fleet
    from .workload import built_in

    p = case.parameters
    return built_in(rng, fleet(p["fleet"]), names=p["functions"], calls=p["calls"], load=p["load"], misfit=p["misfit"])


def _here(case: Case, rng: np.random.Generator) -> HereWork:
    from .execution.here import drawn

    return drawn(rng, calls=case.parameters["calls"], load=case.parameters["load"])


def _own(case: Case, rng: np.random.Generator) -> FunctionsWork:
    from .workload import own_work

    return own_work(case.loaded, case.parameters, rng)
