"""How much CPU does each service of an application need right now to hold its latency objective?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from armillary.arena import Arena, Artifact, Case, Constant, InputError, Metric, Outcome, Result, parameter
from armillary.wording import listed

if TYPE_CHECKING:
    import numpy as np

    from .readers.documents import Read
    from .simulation.play import Played
    from .workload import MicroservicesWork

microservices = Arena(
    "scheduling/microservices",
    question="How much CPU does each service of my application really need right now to hold the end-to-end SLO?",
    metrics=[
        Metric("score", unit="core·s", kind="modelled", doc="cpu_core_s · (1 + 10 · max(0, slo_violation − 0.01)): both in one number"),
        Metric("cpu_core_s", unit="core·s", doc="cores allocated, summed over time; replicas that start or stop included"),
        Metric("slo_violation", scale="difference", doc="share of 1-s windows whose 99th percentile of latency is above the objective"),
        Metric("p99_ms", unit="ms", doc="99th percentile of the latency of all requests; failed ones count as the timeout"),
        Metric("changes", doc="changes of a service's quota or replicas"),
        Metric("brier", scale="difference", doc="mean squared error of the promised probability of a violation in the next window"),
        Metric("decide_ms", unit="ms", kind="measured", doc="mean time per decision for all services"),
    ],
    techniques={
        "static": ".static:Static",
        "hpa": ".hpa:Hpa",
        "vpa": ".vpa:Vpa",
        "step-rule": ".step_rule:StepRule",
        "deepest-first": ".deepest_first:DeepestFirst",
        "predict-only": ".predict_only:PredictOnly",
        "rl-only": ".rl_only:RlOnly",
        "ddrm": ".ddrm:Ddrm",
    },
    papers={"ddrm": "ddrm"},
    baseline="step-rule",
    tradeoff=("slo_violation", "cpu_core_s"),
    repeats=1,
    telling=("shop-8-diurnal", "shop-8-step", "shop-8-flash"),
    constants=[
        Constant("CPU times", "6 to 16", "ms", "lognormal with CV 1, 0.5 for databases; means of the shop's calls (chosen)"),
        Constant("threads", 16, "", "per replica, two replicas (chosen)"),
        Constant("objectives", 8, "× critical path", "by request type, rounded up to 10 ms (chosen)"),
        Constant("owners' quotas", "1/3", "busy", "at the nominal rate (chosen)"),
        Constant("timeout", 5, "s", "after which a request has failed"),
        Constant("delays", "0.2 and 20", "s", "until quotas and replicas take effect"),
        Constant("quotas", "0.1 to 16", "cores", "per replica"),
        Constant("control", 1, "s", "between decisions; HPA looks every 15 s, VPA every 60 s"),
    ],
)  # fmt: skip

LOADS = ("diurnal", "step", "flash")
#: Seconds of a run, and how often each load is drawn, because a claim on fewer than four cases cannot be held.
SECONDS = {"tiny": 40, "small": 300, "large": 600}
DRAWS = {"tiny": 1, "small": 4, "large": 4}
#: Further applications, with their rates.
OTHERS = (("social-28", 500.0), ("hotel-17", 300.0), ("drawn-100", 150.0))


@microservices.cases
def cases(scale: str) -> Iterator[Case]:
    """The shop under three loads, drawn several times; loads without order; other applications, with the shop's predictor if small."""
    for draw in range(1, DRAWS[scale] + 1):
        for load in LOADS:
            kinds = {"load", load, *(["varying"] if load != "diurnal" else [])}
            yield _case(f"shop-8-{load}", draw, kinds, scale, application="shop-8", load=load)
    for draw in range(1, DRAWS[scale] + 1):
        yield _case("misfit-shuffled", draw, {"misfit"}, scale, application="shop-8", load=LOADS[draw % len(LOADS)], shuffled=True)
    if scale == "tiny":
        return
    for draw in range(1, 3):
        yield _case("misfit-foreign", draw, {"misfit"}, scale, application="hotel-17", load=LOADS[draw % len(LOADS)], foreign=True)
    yield _case("shop-8-sinusoid", 1, {"sinusoid"}, scale, application="shop-8", load="sinusoid")
    # A predictor of their own takes minutes to train, so at the small scale these applications borrow the shop's, for half a minute.
    for application, rate in OTHERS:
        for load in (*LOADS, "sinusoid"):
            facts = {"application": application, "load": load, "rate": rate}
            facts |= {"foreign": True, "seconds": 30} if scale != "large" else {}
            yield _case(f"{application}-{load}", 1, {"other"}, scale, **facts)


def _case(name: str, draw: int, kinds: set[str], scale: str, **facts: Any) -> Case:
    plain = {"rate": 150.0, "seconds": SECONDS[scale], "shuffled": False, "foreign": False, "draw": draw}
    return Case(name if draw == 1 else f"{name}-{draw}", _built_in, plain | facts, frozenset(kinds))


@dataclass(frozen=True)
class Reading:
    """How an application or a trace is read, and the load that is drawn where the file has none."""

    load: str = parameter("diurnal", "the shape of the load, if the file has no rates", choices=("diurnal", "step", "flash", "sinusoid"))
    rate: float = parameter(0.0, "mean requests per second; 0 for what the file says", range=(0.0, 1e6))
    seconds: int = parameter(300, "seconds that are played, if the file has no rates", range=(10, 86_400))
    rates: str = parameter("", "a Prometheus range query of requests per second (JSON), instead of a drawn load", file=True)
    slo_ms: float = parameter(0.0, "the latency objective; 0 for what the file says, or eight times the critical path", range=(0.0, 1e7))
    threads: int = parameter(16, "threads of a replica, which traces do not say", range=(1, 100_000))
    replicas: int = parameter(2, "replicas of a service, which traces do not say", range=(1, 1000))


@microservices.read(Reading)
def read(path: Path, how: Reading) -> Read:
    """Reads an application (JSON), Jaeger's traces (JSON), or a call graph of Alibaba's 2021 trace (CSV, .tar.gz)."""
    from .readers.files import read_any

    found = read_any(path, how)
    _work(found, how.__dict__ | {"seconds": min(how.seconds, 10)}, None)  # says what is wrong before anything runs
    return found


@microservices.own_cases
def own_cases(loaded: Read, name: str, how: Reading) -> Iterator[Case]:
    """The file as one case."""
    app = loaded.application
    facts = {
        "services": len(app.services), "types": len(app.requests), "load": how.load if loaded.rates is None else "file",
        "rate": how.rate or app.rate, "seconds": how.seconds if loaded.rates is None else len(loaded.rates), "dropped": loaded.dropped,
    }  # fmt: skip
    yield Case(name, _own, facts, frozenset({"file"}))


@microservices.example
def example(folder: Path) -> tuple[Path, dict[str, str]]:
    """Writes the shop as JSON, under other names."""
    import json

    from .application.built_in import built_in
    from .readers.documents import document_of

    path = folder / "application.json"
    text = json.dumps(document_of(built_in("shop-8")), indent=1)
    for old, new in (("frontend", "gateway"), ("orders-db", "ledger"), ("recommender", "advice"), ("node-", "worker-")):
        text = text.replace(old, new)
    path.write_text(text + "\n")
    return path, {"seconds": "40", "load": "step"}


@microservices.warm_up
def warm_up(technique: Any, case: Case) -> None:
    """Compiles the loops, so that the clock sees decisions alone."""
    import numpy as np

    from .simulation.play import play
    from .workload import drawn

    app = case.workload.application
    work = drawn(np.random.default_rng(0), app, np.full(3, 0.2 * app.rate))
    play(work, _asked(technique, case).controller(app))


def _asked(technique: Any, case: Case) -> Any:
    """The technique; on a case for a foreign predictor, without a predictor of the application's own."""
    foreign = case.parameters.get("foreign") and hasattr(technique, "cold_start")
    return replace(technique, cold_start=False).with_rng(technique.rng) if foreign else technique


@microservices.run
def run(technique: Any, case: Case) -> Outcome:
    """Plays the case under the technique's controller."""
    from .simulation.play import play

    work: MicroservicesWork = case.workload
    found = _asked(technique, case)
    played = play(work, found.foresee(work) if found.oracle else found.controller(work.application))
    artifacts = [Artifact.table("seconds", by_second(played)), Artifact.table("services", by_service(played))]
    if len(played.latency_s):
        artifacts.append(Artifact.quantiles("latency", played.latency_s, "s"))
    return Outcome(played.metrics(), artifacts)


def by_second(played: Played) -> list[dict[str, Any]]:
    """Load, cores and latency over time, at most 300 rows."""
    step = max(1, len(played.windows) // 300)
    return [
        {"second": k + 1, "requests": window.arrived, "cores": float(window.cores.sum()), "used": float(window.used.sum()),
         "p99_over_slo": window.p99_slo, "failed": window.failed}
        for k, window in enumerate(played.windows) if k % step == 0
    ]  # fmt: skip


def by_service(played: Played) -> list[dict[str, Any]]:
    """Mean cores, use and occupancy of each service; the hundred with most cores."""
    import numpy as np

    app = played.work.application
    cores, used, taken = (np.mean([getattr(w, name) for w in played.windows], 0) for name in ("cores", "used", "occupancy"))
    return [
        {"service": app.names[s], "cores": float(cores[s]), "used": float(used[s]), "threads_taken": float(taken[s])}
        for s in np.argsort(-cores, kind="stable")[:100].tolist()
    ]  # fmt: skip


@microservices.answer
def answer(result: Result) -> str:
    """Names the technique with the best score, its violations, and what it saves against the step rule."""
    if "score" not in result.metrics:
        return "Ask for the metric score to get an answer."
    apart = {name for name in result.techniques if name in microservices.techniques and microservices.technique(name).oracle}
    ranked = {case: found for case in result.cases if (found := result.on(case, "score", without=apart))}
    if not ranked:
        return "No technique could run any of the cases."
    near = {case: [t for t, value in found.items() if value <= 1.005 * min(found.values())] for case, found in ranked.items()}
    names = [t for best in near.values() for t in best]
    best = max((t for t in [*microservices.techniques, *names] if t in names), key=names.count)
    won = [case for case, first in near.items() if best in first]
    said = f"{best} has the best score on {won[0] if len(ranked) == 1 else f'{len(won)} of {len(ranked)} cases'}"
    lost = list(dict.fromkeys(near[case][0] for case in ranked if case not in won))
    said += f"; elsewhere it is {listed(lost)}." if lost else "."
    bad = [found[best] for case in won if "slo_violation" in result.metrics and best in (found := result.on(case, "slo_violation"))]
    if bad:
        low, high = f"{100 * min(bad):.1f}", f"{100 * max(bad):.1f}"
        said += f" It violates the objective in {low if low == high else f'{low} to {high}'} % of the seconds."
    saved = [r for case in won if best != "step-rule" and (r := result.ratio(case, "cpu_core_s", best, "step-rule"))]
    if saved and min(saved) > 1:
        low, high = f"{100 * (1 - 1 / min(saved)):.0f}", f"{100 * (1 - 1 / max(saved)):.0f}"
        said += f" It takes {low if low == high else f'{low} to {high}'} % fewer core-seconds than step-rule."
    return said


@microservices.plots
def plots(result: Result) -> Sequence[Any]:
    """Score, cores and violations, by case."""
    drawn = []
    for metric, title in (
        ("score", "Score"), ("cpu_core_s", "Core-seconds allocated"), ("slo_violation", "Share of seconds violated"),
        ("brier", "Error of promised violations"),
    ):  # fmt: skip
        if metric in result.metrics:
            drawn += result.panels(title, metric)
    return drawn


def _built_in(case: Case, rng: np.random.Generator) -> MicroservicesWork:
    from .workload import made

    return made(rng, case.parameters)


def _own(case: Case, rng: np.random.Generator) -> MicroservicesWork:
    return _work(case.loaded, case.parameters, rng)


def _work(found: Read, how: Any, rng: np.random.Generator | None) -> MicroservicesWork:
    import numpy as np

    from .workload import drawn, rates_of

    rng = np.random.default_rng(0) if rng is None else rng
    app = found.application
    rates = found.rates if found.rates is not None else rates_of(how["load"], rng, int(how["seconds"]), float(how["rate"]) or app.rate)
    try:
        return drawn(rng, app, rates)
    except InputError as error:
        raise InputError(error.message, where=error.where) from None
