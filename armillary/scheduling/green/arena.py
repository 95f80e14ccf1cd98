"""Which pods run where and when on a cluster with solar panels, so that little is taken from the grid and deadlines are kept?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from armillary.arena import Arena, Artifact, Case, Constant, InputError, Metric, Outcome, Result, parameter
from armillary.wording import listed

if TYPE_CHECKING:
    import numpy as np

    from armillary.scheduling.energy import Carbon

    from .problem.nodes import Nodes
    from .problem.pods import Pods
    from .readers.sun import Sun
    from .simulation.play import Played
    from .workload import GreenWork

green = Arena(
    "scheduling/green",
    question="My Kubernetes cluster has solar panels: which pods run where and when, so that I burn little brown energy in time?",
    metrics=[
        Metric("energy_kwh", unit="kWh", kind="modelled", doc="energy of all nodes, over the trace and the 12 hours after it"),
        Metric("brown_kwh", unit="kWh", kind="modelled", doc="energy from the grid"),
        Metric("green_share", better="higher", kind="modelled", scale="difference", doc="share of the energy that the sun gave"),
        Metric("carbon_kg", unit="kg", kind="modelled", doc="energy from the grid times its carbon intensity"),
        Metric("wait_p95_s", unit="s", doc="95th percentile of the time from submission to the first start"),
        Metric("deadline_missed", scale="difference", doc="share of the pods that ended after their deadlines, or not at all"),
        Metric("cpu_throttled", scale="difference", doc="share of the wanted CPU time that crowded nodes did not give"),
        Metric("promise_error", scale="difference", doc="mean of |promised − delivered|/delivered time from submission to end"),
        Metric("forecast_nmae", kind="by case", steady=True, on=frozenset({"sun"}),
               doc="error of the forecast power an hour ahead over the mean power; persistence for those who forecast nothing"),
    ],
    techniques={
        "k8s-default": ".k8s_default:K8sDefault",
        "k8s-most": ".k8s_most:K8sMost",
        "pack-and-sleep": ".pack_and_sleep:PackAndSleep",
        "wait-awhile": ".wait_awhile:WaitAwhile",
        "greedy-green": ".greedy_green:GreedyGreen",
        "greenk8s": ".greenk8s:GreenK8s",
        "oracle-sun": ".oracle_sun:OracleSun",
    },
    papers={"greenk8s": "greenk8s"},
    baseline="k8s-default",
    tradeoff=("brown_kwh", "wait_p95_s"),
    repeats=1,
    telling=("clear-35n", "broken-52n", "overcast-35s", "dark", "tight"),
    constants=[
        Constant("power", "idle + (peak − idle)·u^e", "W", "e = 1; idle, peak, off and boot of the preset k8s-20 (chosen)"),
        Constant("panels", "A·0.2·G·(1 − 0.004·(T − 25))", "W", "T = air + 0.03·G; A for 60 % of the default scheduler's energy"),
        Constant("clear sky", "1098·cosθ·exp(−0.059/cosθ)", "W/m²", "Haurwitz 1945"),
        Constant("weathers", "3, 1, 4; the preferred one × 4", "h", "mean stays: clear, broken, overcast (× 4 is chosen)"),
        Constant("clearness", "0.95, 0.65, 0.25 ± 0.03, 0.15, 0.08", "", "by weather, remembered for 15 min (chosen)"),
        Constant("usage", "0.3 to 0.6", "of requests", "mean by application, as published for Borg"),
        Constant("tiers", "0.2, 0.2, 0.4, 0.2", "", "production, mid, batch, best effort; batch has 60 % of the core-hours (chosen)"),
        Constant("load", 0.5, "of all cores", "requested on average (chosen)"),
        Constant("slack", "0 to 12", "h", "of batch work; others must start within ten minutes"),
        Constant("declared durations", "exp(N(0.1, 0.1))", "× run time", "what planners are told (chosen)"),
        Constant("checkpoints", 15, "min", "from which drained batch pods go on (chosen)"),
        Constant("grid", 450, "g/kWh", "flat (chosen)"),
    ],
)  # fmt: skip

#: Pods, days, and how many times over there are the twenty nodes.
SIZES = {"tiny": (300, 1, 1), "small": (3_000, 2, 1), "large": (200_000, 7, 25)}
SITES = {"35n": 35.0, "52n": 52.0, "35s": -35.0}
WEATHERS = ("clear", "broken", "overcast")
#: Draws of the two misfits; the lit cases are three sites by three weathers.
DRAWS = {"tiny": 1, "small": 4, "large": 4}


@green.cases
def cases(scale: str) -> Iterator[Case]:
    """Two days at three sites in three weathers, and misfits: no sun at all, and pods that use all that they request."""
    pods, days, times = SIZES[scale]
    usual = {"clear-35n", "broken-52n", "overcast-35s"}
    facts = {"pods": pods, "days": days, "clusters": times}
    for weather in WEATHERS:
        for site, latitude in SITES.items():
            name = f"{weather}-{site}"
            if scale != "tiny" or name in usual:
                own = facts | {"latitude": latitude, "weather": weather, "dark": False, "tight": False}
                yield Case(name, _built_in, own, frozenset({"lit", "sun"}))
    for draw in range(1, DRAWS[scale] + 1):
        for kind in ("dark", "tight"):
            own = facts | {"latitude": 35.0, "weather": "clear", "dark": kind == "dark", "tight": kind == "tight"}
            kinds = frozenset({kind}) if kind == "dark" else frozenset({kind, "sun"})
            yield Case(kind if draw == 1 else f"{kind}-{draw}", _built_in, own, kinds)


@dataclass(frozen=True)
class Reading:
    """How pods, nodes and the sun are read, and what is taken where a file does not say."""

    cluster: str = parameter("k8s-20", "a preset or a cluster file with cores, dram and power", file=True)
    copies: int = parameter(1, "how many times over there are its nodes", range=(1, 1000))
    exponent: float = parameter(0.0, "exponent of utilisation in a node's power; 0 for that of the cluster file", range=(0.0, 1.4))
    sun: str = parameter("", "NSRDB, PVGIS or timestamp,watts; a drawn sky without", file=True)
    latitude: float = parameter(35.0, "degrees north, where neither the sun file nor the cluster says", range=(-90.0, 90.0))
    longitude: float = parameter(0.0, "degrees east, likewise", range=(-180.0, 180.0))
    weather: str = parameter("clear", "what a drawn sky prefers", choices=WEATHERS)
    start: str = parameter("", "when the pods begin (ISO 8601); by default a day into the sun file, or 2024-06-21")
    area_m2: float = parameter(0.0, "area of the panels; 0 sizes them by pv-share", range=(0.0, 1e6))
    pv_share: float = parameter(0.6, "what panels give, over what kube-scheduler's defaults need", range=(0.0, 100.0))
    battery_kwh: float = parameter(0.0, "a battery with 90 % round trip", range=(0.0, 1e6))
    carbon: str = parameter("450", "g/kWh of the grid, or a file of carbon intensities", file=True)
    usage_file: str = parameter("", "Google 2011: task_usage beside a task_events file", file=True)
    collections: str = parameter("", "Google 2019: collection_events beside an instance_usage file", file=True)
    machine_cores: float = parameter(32.0, "Google: cores of the largest machine", range=(0.1, 4096.0))
    machine_memory_gb: float = parameter(128.0, "Google: gigabytes of the largest machine", range=(0.1, 65536.0))
    usage: float = parameter(0.45, "cores in use over cores requested, where a file does not say", range=(0.0, 1.0))
    duration_s: float = parameter(3600.0, "seconds of a pod in a snapshot without the annotation", range=(1.0, 1e7))
    slack_h: float = parameter(6.0, "hours that batch pods may wait, where a file has no deadlines", range=(0.0, 1000.0))


@dataclass(frozen=True)
class Loaded:
    """A user's files."""

    nodes: Nodes
    pods: Pods
    sun: Sun | None
    carbon: Carbon
    #: Degrees north and east, and when the pods begin, in seconds since 1970.
    place: tuple[float, float]
    start_s: float


@green.read(Reading, folders=True)
def read(path: Path, how: Reading) -> Loaded:
    """Reads pods (a table, a Pod list, Google's cluster data of 2011 or 2019), with nodes, sun and grid from further files."""
    from armillary.cluster import find

    from .problem.nodes import EXPONENTS, Nodes
    from .readers.pods import Assumed, read_pods
    from .readers.sun import read_sun
    from .workload import slots_of

    if how.exponent and not EXPONENTS[0] <= how.exponent <= EXPONENTS[1]:
        raise InputError(f"found {how.exponent:g}; expected {EXPONENTS[0]:g} to {EXPONENTS[1]:g}, or 0", where="--exponent")
    machine = find(how.cluster)
    if how.copies > 1:
        machine = machine.scale(nodes=how.copies * sum(int(group.count) for group in machine.groups))
    nodes = Nodes.of(machine, how.exponent or None)
    assumed = Assumed(how.usage, how.duration_s, how.slack_h, how.machine_cores, how.machine_memory_gb)
    pods = read_pods(path, assumed, usage=how.usage_file, collections=how.collections)
    try:
        slots_of(pods)
    except InputError as error:
        raise InputError(error.message, where=str(path)) from None
    sun = read_sun(how.sun) if how.sun else None
    site = machine.site
    latitude, longitude = how.latitude, how.longitude
    said = (site, sun)
    for place in ((one.latitude, one.longitude) for one in said if one is not None):
        latitude = latitude if place[0] is None else float(place[0])
        longitude = longitude if place[1] is None else float(place[1])
    return Loaded(nodes, pods, sun, _carbon(how.carbon), (latitude, longitude), _start(how, sun))


def _start(how: Reading, sun: Sun | None) -> float:
    """When the pods begin."""
    from armillary.cluster.traces import seconds

    if how.start:
        try:
            return seconds(how.start)
        except InputError as error:
            raise InputError(error.message, where="--start") from None
    return seconds("2024-06-21T00:00Z") if sun is None else float(sun.times_s[0]) + 86400.0


def _carbon(text: str) -> Carbon:
    from armillary.scheduling.energy import Carbon, read_carbon

    if Path(text).is_file():
        return read_carbon(text)
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= 1e5:
        raise InputError(f'found "{text[:60]}"; expected g/kWh or a file', where="--carbon")
    return Carbon.flat(value)


@green.own_cases
def own_cases(loaded: Loaded, name: str, how: Reading) -> Iterator[Case]:
    """The file as one case."""
    facts = {
        "pods": len(loaded.pods), "nodes": len(loaded.nodes), "cores": float(loaded.nodes.cores.sum()), "latitude": loaded.place[0],
        "weather": how.weather, "area_m2": how.area_m2, "pv_share": how.pv_share, "battery_kwh": how.battery_kwh,
        "sun": Path(how.sun).name if how.sun else "",
    }  # fmt: skip
    kinds = {"file"} | ({"measured"} if how.sun else set())
    yield Case(name, _own, facts, frozenset(kinds))


@green.example
def example(folder: Path) -> tuple[Path, dict[str, str]]:
    """Writes forty pods and two days of a partly cloudy sun."""
    import math

    tiers = ("production", "mid", "batch", "batch", "best-effort")
    rows = [
        f"job-{i},{1500 * i + 300 * (i * i % 7)},{1800 + 900 * (i * 5 % 11)},{0.5 + i % 4},{1 + i % 6},{0.2 + 0.4 * (i % 4)},"
        f"{tiers[i % 5]},app-{i % 6},{1500 * i + 300 * (i * i % 7) + 2 * (1800 + 900 * (i * 5 % 11)) + 3600 * (i % 9)}"
        for i in range(40)
    ]
    path = folder / "pods.csv"
    path.write_text("\n".join(["pod,submit_s,duration_s,cpu,memory_gb,usage,tier,app,deadline_s", *rows]) + "\n")
    sun = [
        f"2024-06-{20 + q // 96:02d}T{q % 96 // 4:02d}:{15 * (q % 4):02d}Z,"
        f"{900 * max(0.0, math.sin(math.pi * (q % 96 / 4 - 6) / 12)) * (0.6 + 0.4 * math.cos(q * q % 17)):.0f}"
        for q in range(96 * 4)
    ]
    (folder / "sun.csv").write_text("\n".join(["timestamp,watts", *sun]) + "\n")
    return path, {"sun": str(folder / "sun.csv"), "latitude": "35"}


@green.warm_up
def warm_up(technique: Any, case: Case) -> None:
    """Compiles the loops."""
    import numpy as np

    from armillary.cluster import preset

    from .problem.nodes import Nodes
    from .simulation.play import play
    from .workload import built_in

    work = built_in(np.random.default_rng(0), Nodes.of(preset("k8s-20")), many=20, days=0.25, latitude=0.0, weather="clear", dark=True)
    play(work, technique.policy(work))


@green.run
def run(technique: Any, case: Case) -> Outcome:
    """Plays the case's pods under the technique's rules."""
    from .forecasting.forecaster import Forecaster, nmae
    from .simulation.play import play

    work: GreenWork = case.workload
    played = play(work, technique.policy(work))
    values = played.metrics()
    if "sun" in case.kinds:
        plain = Forecaster.shipped("persistence")
        expected = technique.expected_w(work, 0.5) if hasattr(technique, "expected_w") else plain.watts(work.sun, 0.5)
        values["forecast_nmae"] = nmae(expected, work.sun)
    artifacts = [Artifact.quantiles("wait", played.start_s - work.pods.submit_s, "s"), Artifact.table("power", power_rows(played))]
    if played.unschedulable:
        artifacts.append(Artifact.table("unschedulable", [{"pod": name} for name in played.unschedulable[:1000]]))
    return Outcome(values, artifacts)


def power_rows(played: Played) -> dict[str, Any]:
    """Watts of cluster and panels, watts from the sun and nodes awake, as means over quarters of an hour; at most 2,000 rows."""
    import numpy as np

    from .problem.sunshine import CELL

    slots = len(played.power_w) // CELL * CELL
    width = CELL * max(1, slots // CELL // 2000)
    slots = slots // width * width

    def mean(values: Any) -> Any:
        return np.round(np.asarray(values[:slots], float).reshape(-1, width).mean(1), 3)

    return {
        "hour": np.arange(slots // width) * width / 60.0, "power_w": mean(played.power_w), "panels_w": mean(played.work.sun.during),
        "green_w": mean(played.green_w), "awake": mean(played.state.awake),
    }  # fmt: skip


@green.answer
def answer(result: Result) -> str:
    """Names the technique that takes least from the grid, what it saves against kube-scheduler's defaults, and how long pods wait."""
    if "brown_kwh" not in result.metrics:
        return "Ask for the metric brown_kwh to get an answer."
    oracles = {name for name in result.techniques if name in green.techniques and green.technique(name).oracle}
    ranked = {case: found for case in result.cases if (found := result.on(case, "brown_kwh", without=oracles))}
    if not ranked:
        return "No technique could run any of the cases."
    near = {case: [t for t, value in found.items() if value <= 1.005 * min(found.values())] for case, found in ranked.items()}
    names = [t for best in near.values() for t in best]
    best = max((t for t in [*green.techniques, *names] if t in names), key=names.count)
    won = [case for case, first in near.items() if best in first]
    said = f"{best} takes least from the grid on {won[0] if len(ranked) == 1 else f'{len(won)} of {len(ranked)} cases'}"
    saved = [100 * (1 - 1 / r) for case in won if best != "k8s-default" and (r := result.ratio(case, "brown_kwh", best, "k8s-default"))]
    if saved:
        low, high = f"{min(saved):.0f}", f"{max(saved):.0f}"
        said += f", {low if low == high else f'{low} to {high}'} % less than kube-scheduler's defaults"
    lost = list(dict.fromkeys(near[case][0] for case in ranked if case not in won))
    said += f"; elsewhere it is {listed(lost)}." if lost else "."
    waits = [found[best] for case in won if "wait_p95_s" in result.metrics and best in (found := result.on(case, "wait_p95_s"))]
    if waits and max(waits) > 600:
        said += f" One pod in twenty waits longer than {max(waits) / 3600:.1f} h for the sun."
    return said


@green.plots
def plots(result: Result) -> Sequence[Any]:
    """Energy, energy from the grid and green shares by case, and power over time beside the sun."""
    drawn = []
    for metric, title in (
        ("energy_kwh", "Energy of all nodes"), ("brown_kwh", "Energy from the grid"), ("green_share", "Share of the sun"),
        ("deadline_missed", "Share of deadlines missed"),
    ):  # fmt: skip
        if metric in result.metrics:
            drawn += result.panels(title, metric)
    times: dict[str, dict[str, list[tuple[float | str, float]]]] = {}
    for case in result.cases:
        for technique in result.techniques:
            rows = result.artifact_rows(technique, case, "power")
            if rows:
                found = times.setdefault(case, {})
                found[technique] = [(float(row["hour"]), float(row["power_w"])) for row in rows]
                found.setdefault("panels", [(float(row["hour"]), float(row["panels_w"])) for row in rows])
    if times:
        from armillary.figures import panels

        drawn.append(panels(times, "Power over time, and what the panels give", "hour", "watts"))
    return drawn


def _built_in(case: Case, rng: np.random.Generator) -> GreenWork:
    from armillary.cluster import preset

    from .problem.nodes import Nodes
    from .workload import built_in

    p = case.parameters
    machine = preset("k8s-20")
    if p["clusters"] > 1:
        machine = machine.scale(nodes=20 * p["clusters"])
    return built_in(
        rng, Nodes.of(machine), many=p["pods"], days=p["days"], latitude=p["latitude"], weather=p["weather"], dark=p["dark"],
        tight=p["tight"],
    )  # fmt: skip


def _own(case: Case, rng: np.random.Generator) -> GreenWork:
    from .workload import own_work

    return own_work(case.loaded, case.parameters, rng, case.content)
