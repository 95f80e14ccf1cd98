"""Green work: pods with Borg's published shape on a cluster with panels, under skies that are drawn, or a user's own."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from armillary.errors import InputError
from armillary.scheduling.energy import Carbon, Panels, clearness
from armillary.workloads import bounded_pareto

from .problem.nodes import Nodes
from .problem.pods import BATCH, Pods, room_s
from .problem.sunshine import CELL, PAST, SLOT_S, Sunshine, length, measured, over, scaled_clear

Floats = npt.NDArray[np.float64]

DAY_S = 86400.0
#: Energy is counted for 12 hours after the last submission.
TAIL_S = 12 * 3600.0
MOST_SLOTS = 60 * 24 * 366
#: Shares of pods by tier: 60 % are batch work, and so are 60 % of the core-hours (chosen).
TIER_SHARES, BATCH_SHARE = (0.2, 0.2, 0.4, 0.2), 0.6
#: Mean requests over the days, as a share of all cores, and the applications that pods belong to (chosen).
LOAD, APPS = 0.5, 12
#: Run times have Pareto tails: shape, least and most seconds of services and of batch work; requests in cores likewise.
RUNS = ((0.5, 3600.0, 36 * 3600.0), (0.8, 300.0, 8 * 3600.0))
REQUESTS = ((0.9, 0.1, 4.0), (0.9, 0.25, 8.0))
MOST_CPU, MOST_MEMORY_GB = 12.0, 48.0
#: Mean usage over request by application (Borg's published range), its spread between pods and within one.
USAGE, POD_SPREAD, NOISE, DAILY = (0.3, 0.6), 0.1, 0.08, 0.15
#: What owners declare over what runs take: exp(N(0.1, 0.1)) (chosen).
DECLARED = (0.1, 0.1)
SLACK_H = 12.0
#: Panels give this share of what kube-scheduler's defaults need in a day.
PV_SHARE = 0.6
EFFICIENCY = 0.2


@dataclass(frozen=True)
class GreenWork:
    """Pods on nodes, under a sky, on a grid."""

    nodes: Nodes
    pods: Pods
    sun: Sunshine
    carbon: Carbon
    #: When slot 0 is on the clock of `carbon`.
    carbon_start_s: float = 0.0
    battery_kwh: float = 0.0
    #: Days of sunshine before the work, on which a forecaster can be retrained: (watts, clear-sky watts) per quarter of an hour.
    history: tuple[Floats, Floats] | None = field(default=None, repr=False)
    history_digest: str = ""

    @property
    def slots(self) -> int:
        """Minutes that are played and counted."""
        return self.sun.slots


def slots_of(pods: Pods, stop_s: float | None = None) -> int:
    """Minutes from 0 to 12 hours after the end of the trace: the last submission unless it is given."""
    stop = float(pods.submit_s.max()) if stop_s is None else stop_s
    found = math.ceil((stop + TAIL_S) / SLOT_S)
    if found > MOST_SLOTS:
        raise InputError(f"found pods over {stop / DAY_S:,.0f} days; expected at most a year")
    return found


def drawn_pods(rng: np.random.Generator, nodes: Nodes, many: int, days: float, *, tight: bool = False) -> Pods:
    """Pods over some days, in order of submission; `tight` pods use all that they request.

    A seventh of the services runs from the beginning. The others come more often in the afternoon (±30 %).
    """
    length_s = days * DAY_S
    tier = rng.choice(4, many, p=TIER_SHARES)
    batch = tier >= BATCH
    app = rng.integers(0, APPS, many)
    grid = np.linspace(0.0, length_s, 1000)
    rate = 1 + 0.3 * np.sin(2 * np.pi * (grid / DAY_S - 9 / 24))
    mass = np.concatenate(([0.0], np.cumsum((rate[1:] + rate[:-1]) / 2)))
    submit = np.interp(rng.random(many) * mass[-1], mass, grid)
    submit[~batch & (rng.random(many) < 1 / 7)] = 0.0
    duration, cpu = np.empty(many), np.empty(many)
    capacity = LOAD * float(nodes.cores.sum()) * length_s
    for kind, mine in enumerate((~batch, batch)):
        n = int(mine.sum())
        shape, least, most = RUNS[kind]
        run = bounded_pareto(rng, n, shape=shape, least=least, most=most)
        # Services end within the horizon, half of the tail after the last submission at the latest.
        duration[mine] = np.minimum(run, length_s + TAIL_S / 2 - submit[mine]) if kind == 0 else run
        shape, least, most = REQUESTS[kind]
        asked = bounded_pareto(rng, n, shape=shape, least=least, most=most)
        share = BATCH_SHARE if kind else 1 - BATCH_SHARE
        if n:
            asked *= share * capacity / float((asked * duration[mine]).sum())
        cpu[mine] = asked
    cpu = np.clip(np.round(cpu, 3), 0.01, min(MOST_CPU, float(nodes.cores.max())))
    memory = np.clip(cpu * rng.lognormal(math.log(2.5), 0.5, many), 0.05, min(MOST_MEMORY_GB, float(nodes.memory_gb.max())))
    declared = duration * np.exp(rng.normal(*DECLARED, many))
    room = room_s(duration)
    slack = np.where(batch, rng.uniform(0, SLACK_H * 3600.0, many), 0.0)
    deadline = submit + room + np.minimum(slack, np.maximum(0.0, length_s + TAIL_S - submit - room))
    usage, offsets = _drawn_usage(rng, submit, duration, cpu, app, batch, tight)
    return Pods(submit, duration, declared, cpu, memory, tier, app, deadline, usage, offsets).check()


def _drawn_usage(
    rng: np.random.Generator, submit: Floats, duration: Floats, cpu: Floats, app: Any, batch: Any, tight: bool
) -> tuple[Floats, Any]:
    """Cores in use per quarter of an hour of each pod's run."""
    sizes = np.maximum(1, np.ceil(duration / 900.0)).astype(np.int64)
    ends = np.cumsum(sizes)
    offsets = np.concatenate(([0], ends)).astype(np.int64)
    many = int(ends[-1])
    usual = rng.uniform(*USAGE, APPS)[app] * rng.lognormal(0.0, POD_SPREAD, len(cpu))
    noise = NOISE * rng.standard_normal(many)
    pod = np.repeat(np.arange(len(cpu)), sizes)
    if tight:
        return cpu[pod], offsets
    moment = submit[pod] + 900.0 * (np.arange(many) - np.repeat(ends - sizes, sizes))
    daily = np.where(batch[pod], 0.0, DAILY * np.sin(2 * np.pi * (moment / DAY_S - 9 / 24)))
    return cpu[pod] * np.clip(usual[pod] * (1 + daily) + noise, 0.02, 1.0), offsets


def built_in(
    rng: np.random.Generator, nodes: Nodes, *, many: int, days: float, latitude: float, weather: str, dark: bool = False,
    tight: bool = False, battery_kwh: float = 0.0,
) -> GreenWork:  # fmt: skip
    """The built-in work at a latitude, on a day of the year that is drawn, from midnight on by the sun.

    The panels are sized so that over the days they give 60 % of what kube-scheduler's defaults need in them.
    """
    pods = drawn_pods(rng, nodes, many, days, tight=tight)
    slots = slots_of(pods, days * DAY_S)
    start_s = 1704067200.0 + DAY_S * int(rng.integers(0, 366))
    clear = clearness(rng, length(slots), SLOT_S, prefers=weather)
    sky = over((latitude, 0.0), start_s, slots, clear, Panels(1.0, EFFICIENCY))
    if dark:
        sky = sky.scaled(0.0)
    work = GreenWork(nodes, pods, sky, Carbon.flat(450.0), battery_kwh=battery_kwh)
    return work if dark else sized(work, days)


def sized(work: GreenWork, days: float, share: float = PV_SHARE) -> GreenWork:
    """The work with panels that give a share of what kube-scheduler's defaults need over these days."""
    from .k8s_default import K8sDefault
    from .simulation.play import play

    played = play(work, K8sDefault().policy(work))
    until = min(work.slots, round(days * DAY_S / SLOT_S))
    light = float(work.sun.during[:until].sum())
    if light <= 0:
        raise InputError("found no sun over the days of the work; expected some, or no panels")
    return replace(work, sun=work.sun.scaled(share * float(played.power_w[:until].sum()) / light))


def own_work(loaded: Any, facts: Any, rng: np.random.Generator, digest: str = "") -> GreenWork:
    """A user's pods: `loaded` has `nodes`, `pods`, `sun` (or none), `carbon` and `place`, `facts` the options of the reader.

    Without a sun file the sky is drawn. Panels of 0 m² are sized so that they give a share of what kube-scheduler's defaults need.
    """
    slots = slots_of(loaded.pods)
    start_s = loaded.start_s
    days = max(slots * SLOT_S - TAIL_S, 3600.0) / DAY_S
    area = facts["area_m2"]
    carbon = GreenWork(loaded.nodes, loaded.pods, _night(slots), loaded.carbon, start_s, facts["battery_kwh"])
    if loaded.sun is None:
        clear = clearness(rng, length(slots), SLOT_S, prefers=facts["weather"])
        sky = over(loaded.place, start_s, slots, clear, Panels(area or 1.0, EFFICIENCY))
        work = replace(carbon, sun=sky)
    else:
        from .readers.sun import resampled

        moments = start_s + SLOT_S * (np.arange(length(slots)) - PAST + 0.5)
        values, air, covered = resampled(loaded.sun, moments, loaded.place, facts["sun"])
        if not covered[PAST : PAST + slots].all():
            raise InputError(
                f"found sun for {_moment(loaded.sun.times_s[0])} to {_moment(loaded.sun.times_s[-1])}; expected it to cover the work, "
                f"which lasts from {_moment(start_s)} to {_moment(start_s + slots * SLOT_S)}", where=facts["sun"],
            )  # fmt: skip
        watts = Panels(area or 1.0, EFFICIENCY).watts(values, air) if loaded.sun.irradiance else values
        sky = measured(loaded.place, start_s, slots, np.where(covered, watts, 0.0))
        # What the file does not cover, before the work and after it, is taken as half of a clear sky.
        sky = Sunshine(np.where(covered, sky.watts, 0.5 * sky.clear_w), sky.clear_w)
        work = replace(carbon, sun=sky, history=_history(loaded, start_s, facts["sun"]), history_digest=digest)
    rescale = loaded.sun is None or loaded.sun.irradiance
    return sized(work, days, facts["pv_share"]) if rescale and not area and work.sun.during.sum() > 0 else work


def _night(slots: int) -> Sunshine:
    return Sunshine(np.zeros(length(slots)), np.zeros(length(slots)))


def _history(loaded: Any, start_s: float, where: str) -> tuple[Floats, Floats] | None:
    """Watts and clear-sky watts per quarter of an hour before the work, at most a year; none if the file begins with the work."""
    from .readers.sun import resampled

    first = max(float(loaded.sun.times_s[0]), start_s - 366 * DAY_S)
    cells = int((start_s - first) // (CELL * SLOT_S))
    if cells < 1:
        return None
    moments = start_s + CELL * SLOT_S * (np.arange(-cells, 0) + 0.5)
    values, air, _ = resampled(loaded.sun, moments, loaded.place, where)
    watts = Panels(1.0).watts(values, air) if loaded.sun.irradiance else values
    return scaled_clear(loaded.place, moments, watts)


def _moment(seconds: float) -> str:
    return str(np.datetime64(int(seconds), "m")) + "Z"
