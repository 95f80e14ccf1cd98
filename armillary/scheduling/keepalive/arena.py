"""How long should an idle function instance stay warm, at this hour, on this grid?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from armillary.arena import Arena, Artifact, Case, Constant, InputError, Metric, NotForThisCase, Outcome, Result, parameter
from armillary.wording import listed

if TYPE_CHECKING:
    import numpy as np

    from armillary.scheduling.energy import Carbon
    from armillary.scheduling.faas import Invocations

    from .simulation.scores import Point
    from .simulation.timing import States
    from .workload import Counted, KeepAliveWork

keepalive = Arena(
    "scheduling/keepalive",
    question="How long should an idle function instance stay warm, at this hour, on this grid?",
    metrics=[
        Metric("cost", kind="modelled", doc="(1 − λ)·cold-start seconds + λ·idle carbon, both over static-60's (at least one cold start)"),
        Metric("cold_starts", doc="invocations that had to wait for a new pod"),
        Metric("cold_ratio", scale="difference", doc="cold starts as a share of all invocations"),
        Metric("latency_mean_ms", unit="ms", doc="mean duration of an invocation, its cold start included"),
        Metric("latency_p99_ms", unit="ms", doc="99th percentile of the same, right to 0.3 %"),
        Metric("idle_gb_s", unit="GB·s", doc="memory of warm idle pods, summed over time"),
        Metric("idle_carbon_g", unit="g", kind="modelled", doc="carbon of warm idle pods"),
        Metric("joint_share", better="higher", kind="modelled", scale="difference", on=frozenset({"front"}),
               doc="share of both published reductions against static-60 that is reached at one λ"),
        Metric("pareto_gap", kind="modelled", scale="difference", on=frozenset({"front"}),
               doc="share of the oracle's hypervolume (λ = 0.1 … 0.9, cold starts by carbon) that is not reached"),
        Metric("decide_us", unit="µs", kind="measured", doc="time per decision on 2,000 recorded states; the oracle looks up its plan"),
    ],
    techniques={
        "static-60": ".static_60:Static60",
        "static-600": ".static_600:Static600",
        "none": ".none:NoKeepAlive",
        "histogram": ".histogram:Histogram",
        "latency-min": ".latency_min:LatencyMin",
        "carbon-min": ".carbon_min:CarbonMin",
        "break-even": ".break_even:BreakEven",
        "swarm": ".swarm:Swarm",
        "lace-rl": ".lace_rl:LaceRl",
        "oracle": ".oracle:Oracle",
    },
    papers={"lace-rl": "lace-rl"},
    baseline="static-60",
    tradeoff=("cold_starts", "idle_carbon_g"),
    repeats=2,
    telling=("flat-0.5", "solar-dip-0.5", "wind-noisy-0.5"),
    constants=[
        Constant("rates", "45 % ≤ 1/h, 81 % ≤ 1/min", "", "applications, here functions; Serverless in the Wild, USENIX ATC 2020"),
        Constant("arrivals", "0.3, 0.3, 0.25, 0.15", "", "shares of timers, Poisson, bursty and daily functions (ours)"),
        Constant("durations", 0.6, "s", "median; lognormal with σ = 1.2 between and 0.6 within functions (ours)"),
        Constant("cold starts", "0.4 to 2.2, at most 7", "s", "medians by runtime, after the analysis of Huawei's trace"),
        Constant("pools", "128 MB/300 m to 8 GB/6,600 m", "", "Huawei's trace; shares 0.45 to 0.01 (ours)"),
        Constant("idle vCPU", 0.74, "W", "Cloud Carbon Footprint's minimum"),
        Constant("DRAM", 0.3725, "W/GB", "Green Algorithms, Advanced Science 2021"),
        Constant("PUE", 1.2, "", "power at the meter over power of the machines (chosen)"),
        Constant("grids", "450; 120–480; 60–350", "g/kWh", "flat, solar dip and noisy wind (chosen)"),
    ],
)  # fmt: skip

#: Functions, days and the most invocations of grid cases with a front over λ, of those without, and of misfits.
SIZES = {
    "tiny": ((60, 1, 6_000),) * 3,
    "small": ((500, 1, 200_000),) * 3,
    "large": ((2_000, 7, 20_000_000), (50_000, 7, 100_000_000), (2_000, 1, 2_000_000)),
}
LAMBDAS = (0.3, 0.5, 0.7)
#: A misfit is played on the first grid with the knowledge of the second. These cases got new names, and so new draws, after the model was
#: trained, because an earlier draw had been looked at in its design.
MISFITS = (
    ("flat", "wind-noisy"), ("solar-dip", "flat"), ("wind-noisy", "solar-dip"),
    ("flat", "solar-dip"), ("solar-dip", "wind-noisy"), ("wind-noisy", "flat"),
)  # fmt: skip
DAY_S = 86400.0


@keepalive.cases
def cases(scale: str) -> Iterator[Case]:
    """A day of 500 functions on three grids at three λ, and misfits: shuffled gaps and the knowledge of another grid."""
    from armillary.scheduling.energy import GRIDS

    with_front, without, misfit = SIZES[scale]
    for name in GRIDS:
        for lam in LAMBDAS if scale != "tiny" else (0.5,):
            # At the large scale, nine plays of 10^8 invocations would be too many.
            weighed = lam == 0.5 or scale != "large"
            kinds = frozenset({"grid", "front"} if weighed else {"grid"})
            yield Case(f"{name}-{lam:g}", _built_in, _facts(name, lam, with_front if weighed else without), kinds)
    for name, known in MISFITS if scale != "tiny" else MISFITS[:1]:
        facts = _facts(name, 0.5, misfit) | {"known": known, "misfit": True}
        yield Case(f"misfit-{name}-{known}", _built_in, facts, frozenset({"misfit"}))


def _facts(grid: str, lam: float, size: tuple[int, int, int]) -> dict[str, Any]:
    functions, days, most = size
    return {"grid": grid, "lambda": lam, "functions": functions, "invocations": most, "days": days, "known": grid, "misfit": False}


@dataclass(frozen=True)
class Reading:
    """How a trace of a serverless platform is read and played."""

    durations: str = parameter("", "Azure 2019: the file with the durations of functions", file=True)
    memory: str = parameter("", "Azure 2019: the file with the memory of applications", file=True)
    cold_starts: str = parameter("", "Huawei: the file with cold starts", file=True)
    spread: str = parameter("uniform", "where in its minute a counted invocation arrives", choices=("uniform", "start", "even"))
    carbon: str = parameter("flat", "a file of carbon intensities, or flat, solar-dip or wind-noisy from midnight on", file=True)
    intensity: str = parameter("life-cycle", "which of Electricity Maps' two columns", choices=("life-cycle", "direct"))
    carbon_start: str = parameter(
        "", "when the trace begins in the carbon file (ISO 8601); by default its own dates if the file covers them, else the file's start"
    )
    lam: float = parameter(0.5, "λ, the weight of carbon against latency", range=(0.0, 1.0))
    cold_s: float = parameter(1.0, "seconds of a cold start if the trace does not say", range=(0.0, 3600.0))
    vcpu: float = parameter(0.3, "vCPUs of a pod if the trace does not say", range=(0.001, 1024.0))
    memory_mb: float = parameter(128.0, "MB of a pod if the trace does not say", range=(1.0, 1 << 24))
    history: float = parameter(0.7, "share of the time that the platform knows beforehand", range=(0.0, 0.95))
    validation: float = parameter(0.15, "share of the time after the history that is played but not counted", range=(0.0, 0.95))
    reuse: str = parameter("mru", "which idle pod serves: the most or the least recently used", choices=("mru", "lru"))
    startup: str = parameter("beside", "whether a cold start only delays the answer or also keeps the pod busy", choices=("beside", "busy"))

    def validate(self) -> None:
        """Refuses shares that leave nothing to count."""
        if self.history + self.validation > 0.99:
            raise InputError(f"found {self.history:g} + {self.validation:g}; expected at most 0.99 together", where="--history")


@keepalive.read(Reading, folders=True)
def read(path: Path, how: Reading) -> tuple[Invocations, Carbon]:
    """Reads a trace (Azure 2019, Azure 2021, Huawei 2025, or a table of our own) and its carbon intensities."""
    from armillary.scheduling.energy import GRIDS, grid, read_carbon
    from armillary.scheduling.faas import read_invocations
    from armillary.streams import stream

    trace = read_invocations(
        path, durations=how.durations, memory=how.memory, cold_starts=how.cold_starts, spread=how.spread, cold_s=how.cold_s, vcpu=how.vcpu,
        memory_mb=how.memory_mb,
    )  # fmt: skip
    if how.carbon in GRIDS:
        hours = int((trace.stop_s - trace.start_s) // 3600) + 48
        if hours > 24 * 366 * 20:
            raise InputError(f"found a trace of {hours:,} hours; expected at most 20 years", where=str(path))
        series = grid(how.carbon, stream(0, "keepalive", "grid"), hours).from_time(-trace.start_s)
    else:
        if not Path(how.carbon).is_file():
            raise InputError(f"found no such file; expected a file, or {', '.join(GRIDS)}", where=f"--carbon {how.carbon}")
        series = read_carbon(how.carbon, how.intensity)
        if how.carbon_start or not series.covers(trace.start_s, trace.stop_s):
            series = series.from_time(_moment(how.carbon_start, float(series.times_s[0])) - trace.start_s)
        series.check_covers(trace.start_s, trace.stop_s, how.carbon)
    return trace, series


def _moment(text: str, default: float) -> float:
    if not text:
        return default
    from armillary.cluster.traces import seconds

    try:
        return seconds(text)
    except InputError as error:
        raise InputError(error.message, where="--carbon-start") from None


@keepalive.own_cases
def own_cases(loaded: tuple[Invocations, Carbon], name: str, how: Reading) -> Iterator[Case]:
    """The file as one case, with the front over λ."""
    trace, carbon = loaded
    facts = {
        "lambda": how.lam, "functions": trace.functions, "invocations": len(trace),
        "days": round((trace.stop_s - trace.start_s) / DAY_S, 3),
        "carbon": Path(how.carbon).name, "interpolated": carbon.interpolated, "reordered": trace.reordered, "history": how.history,
        "validation": how.validation, "reuse": how.reuse, "startup": how.startup,
    }  # fmt: skip
    yield Case(name, _own, facts, frozenset({"file", "front"}))


@keepalive.example
def example(folder: Path) -> tuple[Path, dict[str, str]]:
    """Writes a day of four functions, two of them timers, and a grid with a dip at noon."""
    rows = [
        (f"{name}", start + period * k + wobble * (k * k % 7), length, memory, cold)
        for name, start, period, count, wobble, length, memory, cold in (
            ("nightly", 30.0, 90.0, 900, 0.5, 0.8, 256, 0.6),
            ("hourly", 100.0, 3600.0, 23, 5.0, 4.0, 1024, 2.1),
            ("orders", 5.0, 170.0, 480, 9.0, 0.3, 128, 0.4),
            ("thumbnails", 12.0, 41.0, 2000, 4.0, 1.1, 512, 1.2),
        )
        for k in range(count)
    ]  # fmt: skip
    rows.sort(key=lambda row: row[1])
    path = folder / "invocations.csv"
    lines = [f"{name},{at:.3f},{length},{memory},{cold}" for name, at, length, memory, cold in rows]
    path.write_text("\n".join(["function,arrival_s,duration_s,memory_mb,cold_s", *lines]) + "\n")
    day = [f"2024-06-{1 + h // 24:02d}T{h % 24:02d}:00Z,{480 - 360 * max(0.0, 1 - abs(h % 24 - 12) / 6):.0f}" for h in range(48)]
    (folder / "grid.csv").write_text("\n".join(["time,g_per_kwh", *day]) + "\n")
    return path, {"carbon": str(folder / "grid.csv"), "history": "0.4"}


@keepalive.warm_up
def warm_up(technique: Any, case: Case) -> None:
    """Compiles the loops, so that the clock sees decisions alone."""
    import numpy as np

    from .simulation.timing import decide_us, recorded
    from .workload import built_in

    work = built_in(np.random.default_rng(0), grid_name="flat", lam=0.5, functions=3, most=60, length_s=3600.0)
    (trace,) = work.parts()
    decide_us(work, technique.policy(work), recorded(trace, 5), trace)


@keepalive.run
def run(technique: Any, case: Case) -> Outcome:
    """Plays the case, at nine λ where the case asks for the front, and times decisions."""
    from .simulation.play import play
    from .simulation.timing import decide_us
    from .workload import Counted

    work: KeepAliveWork = case.workload
    policy = technique.policy(work)
    found = Counted.of(work, play(work, policy, work.lam))
    if not found.invocations:
        raise NotForThisCase("no invocation is left to count after the history; set --history and --validation")
    reference: Counted = case.once(_fixed, 60.0)
    trace, states = case.once(_states)
    n = found.invocations
    values = {
        "cold_starts": float(found.cold_starts),
        "cold_ratio": found.cold_starts / n,
        "latency_mean_ms": 1e3 * found.latency_s / n,
        "latency_p99_ms": 1e3 * found.latency_p99_s,
        "idle_gb_s": found.idle_gb_s,
        "idle_carbon_g": found.carbon_g,
        "cost": found.cost(work.lam, reference),
        "decide_us": decide_us(work, policy, states, trace),
    }
    if "front" not in case.kinds:
        return Outcome(values)
    from .simulation.scores import joint_share, pareto_gap

    best = case.once(_oracle_front)
    points = list(best) if technique.oracle else front(technique, work, found)
    corner = (float(case.once(_fixed, 0.0).cold_starts), case.once(_fixed, 600.0).carbon_g)
    values["joint_share"] = joint_share(points, (float(reference.cold_starts), reference.carbon_g))
    values["pareto_gap"] = pareto_gap(points, best, corner)
    rows = [{"lambda": lam, "cold_starts": cold, "idle_carbon_g": grams} for lam, (cold, grams) in zip(_lambdas(technique, work), points)]
    return Outcome(values, [Artifact.table("front", rows)])


def _lambdas(technique: Any, work: KeepAliveWork) -> tuple[float, ...]:
    from .simulation.scores import LAMBDAS

    return LAMBDAS if technique.weighs else (work.lam,)


def front(technique: Any, work: KeepAliveWork, known: Counted | None = None) -> list[Point]:
    """(cold starts, grams of idle carbon) at λ = 0.1 … 0.9; one point for techniques that do not weigh.

    known: what was counted at the work's own λ if that was played before.
    """
    from .simulation.play import play
    from .workload import Counted

    points = []
    at = technique.policies(work) if technique.oracle else lambda lam: technique.policy(work.at(lam))
    for lam in _lambdas(technique, work):
        found = known if known and lam == work.lam else Counted.of(work, play(work, at(lam), lam))
        points.append((float(found.cold_starts), found.carbon_g))
    return points


def _fixed(case: Case, keep_s: float) -> Counted:
    """A fixed keep-alive on the case, played once for all techniques."""
    from .simulation.decisions import FIXED
    from .simulation.play import Policy, play
    from .workload import Counted

    return Counted.of(case.workload, play(case.workload, Policy(FIXED, keep_s=keep_s), case.workload.lam))


def _oracle_front(case: Case) -> list[Point]:
    from .oracle import Oracle

    return front(Oracle(), case.workload)


def _states(case: Case) -> tuple[Invocations, States]:
    from .simulation.timing import recorded

    first = next(iter(case.workload.parts()))
    return first, recorded(first)


@keepalive.answer
def answer(result: Result) -> str:
    """Names the technique with the lowest cost, what it saves against static-60, and what the best timers would still save."""
    if "cost" not in result.metrics:
        return "Ask for the metric cost to get an answer."
    oracles = {name for name in result.techniques if name in keepalive.techniques and keepalive.technique(name).oracle}
    ranked = {case: found for case in result.cases if (found := result.on(case, "cost", without=oracles))}
    if not ranked:
        return "No technique could run any of the cases."
    near = {case: [t for t, value in found.items() if value <= 1.005 * min(found.values())] for case, found in ranked.items()}
    names = [t for best in near.values() for t in best]
    best = max((t for t in [*keepalive.techniques, *names] if t in names), key=names.count)
    won = [case for case, first in near.items() if best in first]
    said = f"{best} has the lowest cost on {won[0] if len(ranked) == 1 else f'{len(won)} of {len(ranked)} cases'}"
    shares = [100 * (1 - 1 / ratio) for case in won if best != "static-60" and (ratio := result.ratio(case, "cost", best, "static-60"))]
    if shares:
        low, high = f"{min(shares):.0f}", f"{max(shares):.0f}"
        said += f", {low if low == high else f'{low} to {high}'} % below static-60's"
    lost = list(dict.fromkeys(min(found, key=lambda t: found[t]) for case, found in ranked.items() if case not in won))
    said += (f"; elsewhere it is {listed(lost)}" if lost else "") + "."
    left = [1 - 1 / ratio for case in won if (ratio := result.ratio(case, "cost", "oracle", best))]
    if left and max(left) > 0.005:
        return said + f" A timer that knew every gap would save {100 * max(left):.0f} % more at the most."
    beyond = left and min(left) < 0
    return said + (" No timer costs less: only pre-warming avoids the idle time before a call that is sure to come." if beyond else "")


@keepalive.plots
def plots(result: Result) -> Sequence[Any]:
    """Costs, cold starts and idle carbon, by case, and the fronts over λ."""
    drawn = []
    for metric, title in (("cost", "Cost over static-60"), ("cold_starts", "Cold starts"), ("idle_carbon_g", "Idle carbon")):
        if metric in result.metrics:
            drawn += result.panels(title, metric, log_y=metric != "cost")
    fronts: dict[str, dict[str, list[tuple[float | str, float]]]] = {}
    for case in result.cases:
        for technique in result.techniques:
            rows = result.artifact_rows(technique, case, "front")
            points: list[tuple[float | str, float]] = [(float(row["cold_starts"]), float(row["idle_carbon_g"])) for row in rows]
            if points:
                fronts.setdefault(case, {})[technique] = sorted(points)
    if fronts:
        from armillary.figures import panels

        drawn.append(panels(fronts, "Cold starts and idle carbon over λ", "cold starts", "g of idle carbon", log_x=True, log_y=True))
    return drawn


def _built_in(case: Case, rng: np.random.Generator) -> KeepAliveWork:
    from .workload import TRAINING, built_in

    p = case.parameters
    functions, most = (p["functions"], p["invocations"]) if p["days"] == 1 else TRAINING
    return built_in(
        rng, grid_name=p["grid"], lam=p["lambda"], functions=p["functions"], most=p["invocations"], length_s=DAY_S * p["days"],
        misfit=p["misfit"], known=(p["known"], functions, most), seed=case.seed32("streamed"),
    )  # fmt: skip


def _own(case: Case, rng: np.random.Generator) -> KeepAliveWork:
    from .workload import own_work

    trace, carbon = case.loaded
    return own_work(trace, carbon, case.parameters, case.content)
