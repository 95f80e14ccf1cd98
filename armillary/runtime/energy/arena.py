"""Which types of tasks burn the energy, when the meter only reads every 10 to 100 ms, and what will another schedule cost?"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from armillary.arena import Arena, Artifact, Case, Constant, Metric, Outcome, Result, parameter

if TYPE_CHECKING:
    import numpy as np

    from .model.fitted import Fitted
    from .workload import EnergyWork

TRUTH, TRANSFER = frozenset({"truth"}), frozenset({"transfer"})

energy = Arena(
    "runtime/energy",
    question="Which types of tasks burn the energy, if the meter only reads every 10 to 100 ms, and what will another schedule cost?",
    metrics=[
        Metric("mape", "%", kind="by case", steady=True, doc="mean error of the intervals of a run that was not learnt from"),
        Metric("task_error", "%", kind="by case", steady=True, on=TRUTH, doc="mean error of the types' powers against the simulated truth"),
        Metric("transfer_error", "%", kind="by case", steady=True, on=TRANSFER, doc="error of a whole run's energy under another policy"),
        Metric("condition", better=None, kind="by case", steady=True, doc="largest over smallest singular value of the scaled system"),
        Metric("fit_seconds", "s", kind="measured", doc="time to fit all domains"),
    ],
    techniques={
        "taskwise": ".taskwise:Taskwise", "busy-idle": ".busy_idle:BusyIdle", "share": ".share:Share", "isolated": ".isolated:Isolated",
        "average": ".average:Average", "counters": ".counters:Counters", "ridge": ".ridge:Ridge", "auto-lag": ".auto_lag:AutoLag",
    },
    papers={"taskwise": "task-energy-model"},
    baseline="busy-idle",
    repeats=1,
    telling=("cpu-linear-*", "cpu-turbo-*", "cpu-stranger-*", "mix-1", "gpu-linear-1", "real-cholesky"),
    constants=[
        Constant("gemm, syrk, trsm, potrf on a core", "9.5, 9.0, 8.0, 6.5", "W above idle", "the arena's specification"),
        Constant("getrf, tsmqr, ormqr, geqrt, tsqrt on a core", "6.8, 9.2, 8.6, 6.2, 6.9", "W above idle", "our design"),
        Constant("idle core, package", "1.5, 35", "W", "the arena's specification"),
        Constant("gemm, syrk, trsm, copy, idle on a GPU", "380, 350, 260, 120, 75", "W", "the arena's specification"),
        Constant("CPU meter", "10 ms ± 1 ms, delay up to 1 ms, 61 µJ", "", "the arena's specification, after RAPL"),
        Constant("GPU meter", "100 ms ± 10 ms, window 25 ms, 1 mJ", "", "the arena's specification, after NVML; the jitter is ours"),
        Constant("turbo, contention", "0.25, 0.12", "share of a worker's power", "the arena's specification"),
        Constant("stranger", 15.0, "W", "the arena's specification; 0.1 to 2 s at a time, 30 % of the time"),
        Constant("calls", "0.03, 0.3 per tile in input", "sigma", "the arena's specification"),
    ],
)  # fmt: skip

#: Tiles per side of cholesky, lu and qr on eight cores, and of cholesky on a node with GPUs: 20,000 tasks, or 2 million.
TILES = {
    "tiny": {"cholesky": 22, "lu": 17, "qr": 17, "hybrid": 26}, "small": {"cholesky": 48, "lu": 38, "qr": 38, "hybrid": 48},
    "large": {"cholesky": 228, "lu": 181, "qr": 181, "hybrid": 228},
}  # fmt: skip
#: Tasks of a small factorisation of mix cases with this many tiles are few, so it runs this many times.
MIXED = {"tiny": 12, "small": 120, "large": 2000}
TINY = {"cpu-linear-1", "cpu-stranger-1", "mix-1", "gpu-linear-1", "real-cholesky", "meter-rapl-1"}
POLICIES = (("priority", "steal"), ("steal", "dmda"))
GRAPHS = ("cholesky", "qr")


@energy.cases
def cases(scale: str) -> Iterator[Case]:
    """Virtual runs with simulated meters, real runs with simulated meters, and real runs with this machine's meters."""
    return (case for case in _every(scale) if scale != "tiny" or case.name in TINY)


def _every(scale: str) -> Iterator[Case]:
    tiles = TILES[scale]
    for misfit in ("linear", "turbo", "contention", "input", "stranger"):
        for draw, (graph, policies) in enumerate(zip(GRAPHS, POLICIES), 1):
            facts = {"graph": graph, "tiles": tiles[graph], "held_tiles": tiles[graph], "held_times": 1, "policies": list(policies)}
            yield _simulated(f"cpu-{misfit}-{draw}", facts, misfit, draw, {"cpu", "same-mix"})
    for misfit in ("linear", "stranger"):
        yield _simulated(f"cpu-hybrid-{misfit}", _hybrid(tiles["hybrid"], 1), misfit, 1, {"cpu", "same-mix"}, hybrid=True)
    for number, (graph, small) in enumerate((("cholesky", 8), ("cholesky", 5), ("lu", 5), ("qr", 5)), 1):
        times = max(2, MIXED[scale] * 120 // (small**3 // 3 if graph != "cholesky" else small**3 // 5))
        facts = {"graph": graph, "tiles": tiles[graph], "held_tiles": small, "held_times": times, "policies": list(POLICIES[0])}
        yield _simulated(f"mix-{number}", facts, "linear", number, {"cpu", "mix"})
    for misfit in ("linear", "stranger", "input"):
        for draw in (1, 2):
            facts = _hybrid(tiles["hybrid"], draw)
            yield _simulated(f"gpu-{misfit}-{draw}", facts, misfit, draw, {"gpu", "same-mix"}, hybrid=True, domain="gpu")
    for graph, side in (("cholesky", 24 if scale == "tiny" else 40), ("lu", 30), ("qr", 18)):
        facts = {"graph": graph, "tiles": side, "tile": 96, "workers": 2, "policies": ["priority", "lifo"], "misfit": "linear"}
        yield Case(f"real-{graph}", _real, facts, frozenset({"measured", "real-trace", "truth", "transfer"}))
    seconds = 1.0 if scale == "tiny" else 5.0
    for draw, graph in enumerate(("cholesky", "lu", "qr", "cholesky"), 1):
        facts = {
            "source": "rapl", "graph": graph, "tiles": 16 if draw < 4 else 32, "tile": 128, "workers": 2, "seconds": seconds,
            "policies": ["priority", "lifo"],
        }  # fmt: skip
        yield Case(f"meter-rapl-{draw}", _metered, facts, frozenset({"measured", "meter", "cpu", "transfer"}))
    for draw, side in enumerate((1024, 2048, 3072, 4096), 1):
        facts = {"source": "nvml", "side": side, "seconds": 10.0, "policies": ["short", "long"]}
        yield Case(f"meter-nvml-{draw}", _metered, facts, frozenset({"measured", "meter", "gpu", "transfer"}))


def _hybrid(tiles: int, draw: int) -> dict[str, Any]:
    policies = ["priority", "steal"] if draw == 1 else ["steal", "priority"]
    return {"graph": "cholesky", "tiles": tiles, "held_tiles": tiles, "held_times": 1, "policies": policies}


def _simulated(
    name: str, facts: dict[str, Any], misfit: str, draw: int, kinds: set[str], hybrid: bool = False, domain: str = "cpu"
) -> Case:
    facts = {**facts, "misfit": misfit, "draw": draw, "hybrid": hybrid, "domain": domain}
    more = {"simulated", "truth", "transfer", "linear" if misfit == "linear" else "misfit"}
    return Case(name, _virtual, facts, frozenset(kinds | more))


@dataclass(frozen=True)
class Reading:
    """The readings that belong to a trace, and how the two fit together."""

    energy: str = parameter("", "the readings: a table of time_s, domain, and energy_j (cumulative) or power_w", file=True)
    map: str = parameter("", "a table of worker,domain, where the meter has several domains", file=True)
    domain: str = parameter("", "look at this domain only")
    offset: float = parameter(0.0, "seconds to add to the times of the trace, so that both have one clock", range=(-4e9, 4e9))
    wrap: float = parameter(0.0, "joules after which the counter starts anew; 0: it only grows", range=(0.0, 1e12))
    category: str = parameter("", "of a Chrome trace, the events of this cat only, such as kernel")


@energy.read(Reading)
def read(path: Path, how: Reading) -> EnergyWork:
    """Reads a trace of tasks and the readings of a meter."""
    from armillary.errors import InputError, unknown

    from .meters.readings import read_readings
    from .model.observed import Metered
    from .traces.reading import domains_of, is_subzone, read_map, read_trace
    from .workload import EnergyWork

    if not how.energy:
        raise InputError("a trace alone says no energy; expected the readings of a meter with --energy", where=str(path))
    trace = read_trace(path, category=how.category)
    shifted = trace.shifted(round(how.offset * 1e9)).checked(str(path))
    readings = read_readings(how.energy, wrap_j=how.wrap)
    if how.domain:
        if how.domain not in readings:
            raise unknown("domain", how.domain, readings, where=how.energy)
        if not how.map:
            readings = {how.domain: readings[how.domain]}
    belongs = domains_of(shifted, readings, read_map(how.map) if how.map else None, where=how.energy, map_where=how.map)
    runs, notes = [], []
    for name, workers in belongs.items():
        if how.domain and name != how.domain:
            continue
        run = Metered(shifted, readings[name], workers)
        try:
            count, columns = len(run.intervals), len(run.observed.columns)
        except InputError as error:
            raise InputError(error.message, where=how.energy) from None
        if count < 2 * columns:
            raise InputError(f"found {count} intervals of {name} for {columns} columns (types and idle); expected at least {2 * columns}, "
                             "as half of them are held out", where=how.energy)  # fmt: skip
        runs.append(run)
        notes.append(name)
    if not runs:
        raise InputError(f'no worker belongs to the domain "{how.domain}"', where=how.map or how.energy)
    left = [name for name in readings if name not in notes and not is_subzone(name, readings)]
    return EnergyWork(tuple(runs), notes=tuple(f"The domain {name} has no workers." for name in left[:5]))


@energy.own_cases
def own_cases(loaded: Any, name: str, how: Reading) -> Iterator[Case]:
    """The run, whose intervals are learnt from and predicted in turns."""
    work: EnergyWork = loaded
    del how
    facts = {"tasks": len(work.fit[0].trace), "domains": len(work.fit), "intervals": len(work.fit[0].intervals)}
    clean = "".join(c if c.isprintable() and c != "|" else "?" for c in name) or "run"
    yield Case(clean, _own, facts, frozenset({"file", "measured"}))


@energy.example
def example(folder: Path) -> tuple[Path, dict[str, str]]:
    """Writes the trace of a tiled Cholesky on eight virtual cores, and what a simulated meter read of it."""
    import numpy as np

    from .simulation.metering import drawn
    from .simulation.power import RAPL_LIKE, truth
    from .simulation.runs import CORES, ran

    one = ran("cholesky", 18, "priority", False, 1)
    stream = np.random.Generator(np.random.PCG64DXSM(1))
    meter = drawn(one.trace, one.tile, range(CORES), truth("cpu", "linear"), RAPL_LIKE, "package-0", stream)
    t = one.trace
    rows = ["name,worker,started,ended,flops,bytes"]
    rows += [f"{t.types[t.type[i]]},{t.worker[i]},{t.start[i]},{t.end[i]},{t.flops[i]:g},{t.bytes[i]:g}" for i in range(len(t))]
    (folder / "trace.csv").write_text("\n".join(rows) + "\n")
    read_ = meter.run.readings
    rows = ["time_s,domain,energy_j", *(f"{at * 1e-9:.9f},package-0,{joules:.6f}" for at, joules in zip(read_.time, read_.value))]
    (folder / "energy.csv").write_text("\n".join(rows) + "\n")
    return folder / "trace.csv", {"energy": str(folder / "energy.csv")}


@energy.warm_up
def warm_up(technique: Any, case: Case) -> None:
    """Compiles the loops with a tiny run."""
    import numpy as np

    from .simulation.metering import drawn
    from .simulation.power import NVML_LIKE, RAPL_LIKE, truth
    from .simulation.runs import CORES, ran
    from .simulation.sweep import call_factors

    one = ran("cholesky", 12, "priority", False, 0)
    call_factors(np.zeros(1), 0.1)
    # A meter of power makes auto-lag look for windows, too.
    meter = NVML_LIKE if "gpu" in case.kinds else RAPL_LIKE
    if one.trace.span[1] < 20 * meter.period * 1e9:
        meter = RAPL_LIKE
    stream = np.random.Generator(np.random.PCG64DXSM(1))
    run = drawn(one.trace, one.tile, range(CORES), truth("cpu", "linear"), meter, "package-0", stream).run
    if not hasattr(technique, "alone"):
        technique.fit(run).predict(run)


@energy.run
def run(technique: Any, case: Case) -> Outcome:
    """Fits each domain of a run and predicts others."""
    work: EnergyWork = case.workload
    if "file" in case.kinds:
        return _own_run(technique, work)
    for one in work.fit:
        _ = one.observed  # The system is the same for all techniques, so it is made before the clock starts.
    begun = time.perf_counter()
    models = [_fitted(technique, work, number) for number in range(len(work.fit))]
    spent = time.perf_counter() - begun
    from .model.fitted import mape, total

    errors = [mape(one.observed.energy, model.predict(one, strict=False)) for one, model in zip(work.held, models)]
    values = {"mape": _mean(errors), "condition": max(model.condition for model in models), "fit_seconds": spent}
    if "transfer" in case.kinds:
        found = [(total(one.observed.energy), total(model.predict(one, strict=False))) for one, model in zip(work.other, models)]
        values["transfer_error"] = _mean([100.0 * abs(predicted - read_) / read_ for read_, predicted in found])
    if "truth" in case.kinds:
        values["task_error"] = _mean([_task_error(model, true) for model, true in zip(models, work.truth)])
    rows = [
        {"domain": one.readings.domain, "type": name, "watts": watts, "truth": true.get(name)}
        for one, model, true in zip(work.fit, models, work.truth or [{}] * len(models)) for name, watts in model.power.items()
    ]  # fmt: skip
    return Outcome(values, [Artifact.table("powers", rows)])


def _fitted(technique: Any, work: EnergyWork, number: int) -> Fitted:
    if hasattr(technique, "alone") and work.alone:
        found: Fitted = technique.fit_alone(work.fit[number], work.alone[number])
    else:
        found = technique.fit(work.fit[number])
    return found


def _mean(values: list[float]) -> float:
    import math

    return math.fsum(values) / len(values)


def _task_error(model: Fitted, truth: dict[str, float]) -> float:
    from .model.observed import IDLE

    return _mean([100.0 * abs(model.power[name] - true) / true for name, true in truth.items() if name != IDLE and name in model.power])


def _own_run(technique: Any, work: EnergyWork) -> Outcome:
    """Fits to half of the blocks of intervals and predicts the other half, and the reverse; then to all, for the table of powers."""
    from .model.fitted import mape
    from .workload import folds

    errors, spent, rows, facts = [], 0.0, [], []
    worst = 1.0
    for one in work.fit:
        halves = folds(one)
        _ = one.observed
        parts = [(technique.fit(learnt), held) for learnt, held in halves]
        errors.append(_mean([mape(held.observed.energy, model.predict(held, strict=False)) for model, held in parts]))
        begun = time.perf_counter()
        model = technique.fit(one)
        spent += time.perf_counter() - begun
        worst = max(worst, model.condition)
        rows += _powers(one, model)
        outliers = () if model.solution is None else model.solution.outliers
        facts.append({
            "domain": one.readings.domain, "mape": errors[-1], "intervals": len(one.intervals), "tasks": len(one.trace),
            "outliers": len(outliers), "lag_ms": model.lag_ns * 1e-6, "window_ms": model.window_s * 1e3, "note": model.note,
            "said": " ".join(work.notes),
            "groups": "; ".join(" + ".join(group) for group in model.groups if len(group) > 1),
        })  # fmt: skip
    values = {"mape": _mean(errors), "condition": worst, "fit_seconds": spent}
    return Outcome(values, [Artifact.table("powers", rows), Artifact.table("domains", facts)])


def _powers(one: Any, model: Fitted) -> list[dict[str, Any]]:
    from .sockets.task_power import table_rows

    if model.groups:
        rows = table_rows(model)
    else:
        seconds = dict(zip(one.observed.columns, one.observed.seconds.sum(axis=0).tolist()))
        joules = {name: model.power.get(name, 0.0) * spent for name, spent in seconds.items()}
        total = sum(joules.values()) or 1.0
        rows = [
            {"type": name, "watts": model.power.get(name, 0.0), "low": None, "high": None, "standard_error": None, "seconds": seconds[name],
             "joules": joules[name], "share": joules[name] / total, "group": ""} for name in seconds
        ]  # fmt: skip
    trace = one.trace
    calls = {name: int((trace.type == j).sum()) for j, name in enumerate(trace.types)}
    made = [{"domain": one.readings.domain, **row, "calls": calls.get(str(row["type"]).split("@")[0], 0)} for row in rows]
    for row in made:
        row["group"] = row["group"] or "-"
        row |= {key: float("nan") if row[key] is None else row[key] for key in ("low", "high", "standard_error")}
    return made


@energy.answer
def answer(result: Result) -> str:
    """Says what burns the energy of a run of one's own, or who finds the powers of types most exactly."""
    own = [case for case, facts in result.cases.items() if "file" in facts["kinds"]]
    if own:
        return "\n".join(_about(result, case) for case in own)
    said = []
    for metric, what in (
        ("task_error", "finds the power of types most exactly"), ("transfer_error", "predicts the energy of another schedule most exactly"),
        ("mape", "predicts intervals of other runs most exactly"),
    ):  # fmt: skip
        means = {
            name: sum(found.values()) / len(found) for name in result.techniques if metric in result.metrics
            if (found := {case: v for case, v in result.medians(name, metric).items() if "gpu" not in result.cases[case]["kinds"]})
        }  # fmt: skip
        if means:
            best = min(means, key=lambda name: means[name])
            rest = [f"{name} {means[name]:.3g} %" for name in ("taskwise", "busy-idle", "average") if name in means and name != best]
            said.append(f"On CPUs {best} {what} ({means[best]:.3g} % off on average{'; ' + ', '.join(rest) if rest else ''}).")
    return " ".join(said) or "Ask for task_error, transfer_error or mape to get an answer."


def _about(result: Result, case: str) -> str:
    names = [name for name in ("taskwise", "auto-lag", *result.techniques) if name in result.techniques]
    for name in names:
        rows = result.artifact_rows(name, case, "powers")
        if not rows:
            continue
        said = []
        for facts in result.artifact_rows(name, case, "domains"):
            mine = [row for row in rows if row["domain"] == facts["domain"] and row["type"] != "idle"]
            idle = [row for row in rows if row["domain"] == facts["domain"] and row["type"] == "idle"]
            if not mine:
                continue
            first = max(mine, key=lambda row: float(row["joules"]))
            sure = "" if str(first["low"]) in ("", "nan", "NaN") else f" (95 %: {float(first['low']):.3g} to {float(first['high']):.3g})"
            each = f", {float(first['joules']) / max(1, int(first['calls'])):.3g} J per call" if int(first["calls"]) else ""
            type_ = first["type"] if first["group"] == "-" else f"the group {first['group']}, which cannot be told apart,"
            text = (
                f"{case}, {facts['domain']}: {type_} takes {100 * float(first['share']):.0f} % of the energy, "
                f"at {float(first['watts']):.3g} W per busy worker{sure}{each}."
            )
            if idle:
                text += f" Idle workers take {100 * float(idle[0]['share']):.0f} %."
            text += f" Intervals that {name} did not learn from are predicted {float(facts['mape']):.2g} % off."
            if int(facts["outliers"]):
                text += f" In {int(facts['outliers'])} of {int(facts['intervals'])} intervals something else seems to have drawn power."
            said.append(f"{text} {facts['note']} {facts['said'] or ''}".rstrip())
        return " ".join(said)
    return f"{case}: no technique could fit it."


@energy.plots
def plots(result: Result) -> Sequence[Any]:
    """Errors by case."""
    titles = {"mape": "Error of intervals", "task_error": "Error of types' powers", "transfer_error": "Error of another policy's energy"}
    drawn: list[Any] = []
    for metric, title in titles.items():
        if metric in result.metrics:
            drawn += result.panels(title, metric, log_y=True)
    return drawn


def _virtual(case: Case, rng: np.random.Generator) -> EnergyWork:
    from .workload import virtual_work

    return virtual_work(case.parameters, rng)


def _real(case: Case, rng: np.random.Generator) -> EnergyWork:
    from .workload import real_work

    return real_work(case.parameters, rng)


def _metered(case: Case, rng: np.random.Generator) -> EnergyWork:
    from .simulation.metered import real_meter_work

    return real_meter_work(case.parameters, rng)


def _own(case: Case, rng: np.random.Generator) -> EnergyWork:
    found: EnergyWork = case.loaded
    return found
