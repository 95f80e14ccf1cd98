"""GreenK8s as a scheduler's adviser: pods and nodes as they are now, the sun as it was measured, scores and start times as answers."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from armillary.errors import InputError
from armillary.scheduling.energy import Panels, clear_sky, zenith
from armillary.scheduling.energy.sun import check_place
from armillary.scheduling.green.forecasting.forecaster import COMING, LEVELS, SEEN
from armillary.scheduling.green.problem.pods import BATCH
from armillary.scheduling.green.problem.sunshine import AHEAD, CELL, SLOT_S, scaled_clear
from armillary.scheduling.green.readers.pods import APP, DEADLINE, DURATION, seconds, tier_of
from armillary.scheduling.kubernetes import Judged, Node, Pod

if TYPE_CHECKING:
    from armillary.scheduling.green.greenk8s import GreenK8s

Floats = npt.NDArray[np.float64]
CELL_S = CELL * SLOT_S
#: The label by which nodes say their type.
TYPE_LABEL = "node.kubernetes.io/instance-type"
#: Samples of a class before its usage is believed.
KNOWN = 10


@dataclass(frozen=True)
class Power:
    """Watts of an awake node, idle and at its peak, and of one that is off, with its cores."""

    idle_w: float
    peak_w: float
    off_w: float = 2.0
    cores: float = 16.0

    def __post_init__(self) -> None:
        if not (0 <= self.off_w <= self.idle_w <= self.peak_w < math.inf and self.cores > 0):
            raise InputError(f"found off {self.off_w:g}, idle {self.idle_w:g} and peak {self.peak_w:g} W; expected them in rising order")


@dataclass
class GreenScheduler:
    """Answers for one cluster. `observe_*` tell it what was measured; nothing is remembered between processes.

    place: degrees north and east. powers: by node type (a node's label) or name; `usual` is that of all others.
    """

    technique: GreenK8s
    place: tuple[float, float]
    powers: Mapping[str, Power] = field(default_factory=dict)
    usual: Power = Power(90.0, 300.0)
    clock: Callable[[], float] = time.time
    #: Cores in use by node, and watts that the cluster takes; what was deferred and asked so far.
    usage: dict[str, float] = field(default_factory=dict)
    cluster_w: float = 0.0
    asked: int = 0
    deferred: int = 0
    _classes: dict[tuple[int, str], tuple[int, float, float]] = field(default_factory=dict)
    _sun: tuple[Floats, Floats] | None = None
    _forecast: tuple[float, Floats] | None = None

    def __post_init__(self) -> None:
        check_place(*self.place)

    def observe_sun(self, times_s: npt.ArrayLike, watts: npt.ArrayLike) -> None:
        """Power of the panels at some times (seconds since 1970, rising); the last twelve hours matter for the forecast."""
        times, values = np.asarray(times_s, np.float64), np.asarray(watts, np.float64)
        if len(times) != len(values) or len(times) < 2 or np.any(np.diff(times) <= 0) or not np.isfinite(times).all():
            raise InputError("expected at least two rising times, each with a power", where="sun")
        if not np.isfinite(values).all() or values.min() < 0:
            raise InputError("found a power below 0 or none; expected watts", where="sun")
        self._sun, self._forecast = (times, values), None

    def observe_usage(self, cores: Mapping[str, float], cluster_w: float | None = None) -> None:
        """Cores in use by node, and if it is metered the power of the cluster."""
        if any(not (0 <= value < 1e6) for value in cores.values()):
            raise InputError("found a usage below 0 or none; expected cores", where="usage")
        self.usage = dict(cores)
        if cluster_w is not None:
            self.cluster_w = cluster_w

    def observe_pod(self, pod: Pod, cores: float) -> None:
        """Cores that a running pod uses, from which others of its tier and application are judged."""
        if pod.cpu > 0 and math.isfinite(cores) and cores >= 0:
            key = self._class(pod)
            n, mean, squares = self._classes.get(key, (0, 0.0, 0.0))
            off = cores / pod.cpu - mean
            mean += off / (n + 1)
            self._classes[key] = (n + 1, mean, squares + off * (cores / pod.cpu - mean))

    def guess(self, pod: Pod) -> float:
        """ũ = min(request, mean + z·sd) cores, or the request as long as the class is unknown."""
        n, mean, squares = self._classes.get(self._class(pod), (0, 0.0, 0.0))
        if not self.technique.oversubscribe or n < KNOWN:
            return pod.cpu
        t = self.technique
        z = (t.z_production, t.z_mid, t.z_batch, t.z_best_effort)[self._class(pod)[0]]
        return min(pod.cpu, pod.cpu * (mean + z * math.sqrt(squares / n)))

    def expected_w(self, now: float) -> Floats:
        """Forecast watts of the panels in the 96 quarters of an hour from now on, at the technique's caution; zeros without any sun."""
        if self._sun is None:
            return np.zeros(AHEAD)
        cell = math.floor(now / CELL_S)
        if self._forecast is not None and self._forecast[0] == cell:
            return self._forecast[1]
        times, watts = self._sun
        middles = CELL_S * (cell + np.arange(-SEEN, AHEAD) + 0.5)
        past = middles[:SEEN]
        _, clear_all = scaled_clear(self.place, times, watts)
        light = Panels(1.0).watts(clear_sky(zenith(middles, *self.place)))
        bright = Panels(1.0).watts(clear_sky(zenith(times, *self.place)))
        scale = float(clear_all.max() / bright.max()) if bright.max() > 0 else 0.0
        clear = light * scale
        seen = np.concatenate([np.interp(past, times, watts), np.zeros(AHEAD)])
        forecaster = self.technique.forecaster()
        near = forecaster.clearness(seen[: SEEN + 1], clear[: SEEN + 1], self.technique.caution)[0]
        far = float(np.interp(self.technique.caution, LEVELS, forecaster.model.arrays["climatology"]))
        found: Floats = clear[SEEN:] * np.concatenate([near, np.full(AHEAD - COMING, far)])
        self._forecast = (cell, found)
        return found

    def start(self, pod: Pod, now: float) -> float:
        """When a pod should start, in seconds since 1970: now, unless it may wait and the sun covers more of its energy later.

        A pod may wait if it is of a batch tier and its annotations say its duration and within how many seconds it must have ended.
        """
        lasts = seconds(pod.annotations.get(DURATION, ""), math.inf, f"{pod.name}: {DURATION}")
        within = seconds(pod.annotations.get(DEADLINE, ""), 0.0, f"{pod.name}: {DEADLINE}")
        submitted = _created(pod, now)
        latest = submitted + within - 1.1 * lasts
        if not self.technique.defer or self._class(pod)[0] < BATCH or not latest > now:
            return now
        watts = self.guess(pod) * min(power.peak_w / power.cores for power in self.powers.values() or (self.usual,))
        free = np.maximum(0.0, self.expected_w(now) - self.cluster_w)
        sums = np.concatenate(([0.0], np.cumsum(np.minimum(free, watts))))
        edges = CELL_S * (math.floor(now / CELL_S) + np.arange(AHEAD + 1))
        best, most = now, -math.inf
        for begin in [now, *edges[1:-1].tolist()]:
            if begin > latest:
                break
            sun = float(np.interp(begin + lasts, edges, sums) - np.interp(begin, edges, sums))
            value = sun * (1 - self.technique.discount * (begin - now) / 3600)
            if value > most + 1e-9 * max(1.0, watts):
                best, most = begin, value
        return best

    def prioritize(self, pod: Pod, nodes: Sequence[Node], now: float | None = None) -> dict[str, float]:
        """Scores from 0 to 10 of the nodes with room: added energy, cover by the sun, packing and coolness."""
        moment = self.clock() if now is None else now
        t, cores = self.technique, self.guess(pod)
        lasts = min(seconds(pod.annotations.get(DURATION, ""), 3600.0, f"{pod.name}: {DURATION}"), AHEAD * CELL_S)
        free = np.maximum(0.0, self.expected_w(moment) - self.cluster_w)
        edges = CELL_S * (math.floor(moment / CELL_S) + np.arange(AHEAD + 1))
        covers: dict[float, float] = {}  # nodes of a type add the same power

        def covered(watts: float) -> float:
            if watts not in covers:
                sums = np.concatenate(([0.0], np.cumsum(np.minimum(free, watts))))
                sun = float(np.interp(moment + lasts, edges, sums) - np.interp(moment, edges, sums))
                covers[watts] = sun * CELL_S / (watts * lasts) if watts > 0 else 0.0
            return covers[watts]

        rows = []
        for node in nodes:
            if not self.fits(pod, node, cores):
                continue
            size = node.cpu if math.isfinite(node.cpu) else 1.0
            used, power = self.usage.get(node.name, 0.0), self.power_of(node)
            watts = (power.peak_w - power.idle_w) * cores / size
            watts += power.idle_w - power.off_w if node.name not in self.usage else 0.0
            rows.append((node.name, watts * lasts, covered(watts), min(1.0, (used + cores) / size), min(1.0, used / size)))
        largest = max((row[1] for row in rows), default=0.0)
        return {
            name: 10 * (t.w_energy * (1 - energy / largest if largest > 0 else 1.0) + t.w_green * cover + t.w_packing * packing
                        + t.w_cool * (1 - heat))
            for name, energy, cover, packing, heat in rows
        }  # fmt: skip

    def fits(self, pod: Pod, node: Node, cores: float | None = None) -> bool:
        """Whether measured usage and the pod's estimate stay within κ of a node; memory and requests are the scheduler's own checks."""
        more = self.guess(pod) if cores is None else cores
        return pod.memory <= node.memory and self.usage.get(node.name, 0.0) + more <= self.technique.kappa * node.cpu

    def power_of(self, node: Node) -> Power:
        """The power of a node, by name, by type, or the usual one."""
        return self.powers.get(node.name) or self.powers.get(node.labels.get(TYPE_LABEL, "")) or self.usual

    def judge(self, pod: Pod, nodes: Sequence[Node]) -> Judged:
        """What the extender answers: a pod that should wait is refused on every node, with the time, and preemption would not help."""
        now = self.clock()
        self.asked += 1
        begin = self.start(pod, now)
        if begin > now:
            self.deferred += 1
            return Judged(hopeless={node.name: f"deferred until {moment_of(begin)}" for node in nodes})
        cores = self.guess(pod)
        full = {node.name: "estimated usage would exceed what the node takes" for node in nodes if not self.fits(pod, node, cores)}
        # A pod is never left without any node: it would wait for usage that nobody plans.
        return Judged(refused=full if len(full) < len(nodes) else {}, scores=self.prioritize(pod, nodes, now))

    def metrics(self) -> str:
        """What the extender knows, in the text format of Prometheus."""
        now = self.clock()
        ahead = self.expected_w(now)
        rows = [
            ("asked_total", "counter", "Pods that were asked about.", [("", float(self.asked))]),
            ("deferred_total", "counter", "Answers that told a pod to wait.", [("", float(self.deferred))]),
            ("cluster_watts", "gauge", "Power of the cluster as it was last told.", [("", self.cluster_w)]),
            ("sun_forecast_watts", "gauge", "Forecast power of the panels.",
             [(f'{{ahead_minutes="{m}"}}', float(ahead[m // 15])) for m in (0, 60, 180, 360)]),
            ("node_usage_cores", "gauge", "Cores in use by node.",
             [(f'{{node="{_escaped(name)}"}}', value) for name, value in sorted(self.usage.items())]),
        ]  # fmt: skip
        lines = []
        for name, kind, said, values in rows:
            lines += [f"# HELP armillary_green_{name} {said}", f"# TYPE armillary_green_{name} {kind}"]
            lines += [f"armillary_green_{name}{labels} {value:.10g}" for labels, value in values]
        return "\n".join(lines) + "\n"

    def _class(self, pod: Pod) -> tuple[int, str]:
        return tier_of(pod.raw), pod.labels.get(APP, pod.labels.get("app", ""))


def moment_of(seconds_: float) -> str:
    """A moment as ISO 8601 in UTC."""
    return datetime.fromtimestamp(math.ceil(seconds_), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _created(pod: Pod, now: float) -> float:
    """When a pod was submitted; now where it does not say."""
    meta = pod.raw.get("metadata") if isinstance(pod.raw, Mapping) else None
    text = meta.get("creationTimestamp") if isinstance(meta, Mapping) else None
    if not isinstance(text, str):
        return now
    try:
        return min(now, datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp())
    except (ValueError, OverflowError):
        return now


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
