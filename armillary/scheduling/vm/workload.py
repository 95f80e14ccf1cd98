"""Work for the arena: a population of VMs on a fleet, what it wants over a week, what is true about it and what is measured of it.

A built-in population is packed by best fit. How many vCPUs a thread may promise is searched for, so that the packing leaves a mean QoS of
0.8: with much less there is no room, and with much more there is nothing to gain.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import numpy.typing as npt

from armillary.errors import InputError
from armillary.scheduling.contention import Model, draw_applications
from armillary.streams import stream

from .problem.fleet import MOST_VMS, Floats, Hosts, Ints
from .problem.fleet import built_in as built_in_hosts
from .problem.metrics import NOISE, READINGS, VM, VM_FEATURES, cpi_alone, measured
from .problem.state import State
from .simulation.packing import best_fit
from .simulation.quality import Judge, Quality

#: vCPUs of VMs and their shares (chosen), and GB per vCPU.
SIZES, SHARES = (2, 4, 8, 24), (0.55, 0.27, 0.13, 0.05)
GB_PER_VCPU, GB_SHARES = (1.0, 2.0, 4.0), (0.3, 0.4, 0.3)
#: VMs of a deployment on average and at the most, and how much they differ from each other (ours).
DEPLOYMENT, MOST_DEPLOYED, ALIKE = 8.0, 40, 0.1
DAYS, HOURS = 7, 24
#: The hours before this one are for training and validation; techniques are judged from here on.
TEST_DAY = 5
#: Readings of the CPU per hour: every five minutes.
INSTANTS = READINGS
#: The mean QoS that packing aims at, and how near it must come.
TARGET, WITHIN = 0.8, 0.01
#: Packing leaves room for migration: a host may come to promise this many times as much (ours).
HEADROOM = 1.25
#: vCPUs that a hardware thread promises at the most in a built-in packing (ours).
MOST_OVERCOMMIT = 2.5
KINDS = ("interfering", "bursty", "calm")
USUAL = Model()
#: Hours whose measurements are kept, and the largest population of which they are.
KEPT, KEPT_VMS = 64, 10_000


@dataclass(frozen=True)
class Population:
    """VMs: sizes, what is true about them, and the CPU that each wants alone, as a share of its vCPUs, [vms, hours, readings]."""

    vcpu: Ints
    memory_gb: Floats
    pressure: Floats
    sensitivity: Floats
    demand: npt.NDArray[np.float32]
    #: Hours in which each VM is there: from created until before deleted.
    created: Ints
    deleted: Ints
    #: Days that it had lived when the first hour began.
    age_days: Floats
    names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not 1 <= len(self.vcpu) <= MOST_VMS:
            raise InputError(f"found {len(self.vcpu):,} VMs; expected 1 to {MOST_VMS:,}")

    def __len__(self) -> int:
        return len(self.vcpu)


@dataclass(frozen=True)
class VmWork:
    """A population on a fleet, packed, with the rules of the game."""

    population: Population
    hosts: Hosts
    overcommit: float
    #: Where each VM is when the test begins, −1 for those that come later or found no room.
    host: Ints
    kind: str
    model: Model = USUAL
    #: The first hour that is judged and the number of rounds.
    start: int = TEST_DAY * HOURS
    rounds: int = 48
    #: The share of the VMs that is offered for migration in each round.
    offered: float = 0.01
    #: How many times what packing promised hosts may promise to VMs that move.
    headroom: float = HEADROOM
    #: VMs whose ranking of all hosts is compared with the true one.
    ranked: int = 100
    noise_seed: int = 0
    #: Hour of the day at hour 0.
    clock: float = 0.0
    #: Measured metrics of a user's VMs that replace those that follow from what is true.
    own_metrics: dict[str, Floats] = field(default_factory=dict)
    #: What was measured in an hour whatever the placement, kept for the techniques that follow.
    _seen: dict[int, tuple[Floats, Floats]] = field(default_factory=dict, init=False, compare=False, repr=False)

    @cached_property
    def judge(self) -> Judge:
        """What decides about QoS."""
        p = self.population
        return Judge(self.hosts, p.vcpu, p.pressure, p.sensitivity, p.demand, self.model)

    @cached_property
    def metrics(self) -> dict[str, Floats]:
        """Metrics of the VMs without noise, and without what others do to them."""
        return measured(self.population.pressure, self.population.sensitivity) | self.own_metrics

    def present(self, hour: int) -> npt.NDArray[np.bool_]:
        """The VMs that are there in an hour."""
        return (self.population.created <= hour) & (hour < self.population.deleted)

    def state(self, hour: int, host: Ints, quality: Quality) -> State:
        """What can be known at the end of an hour that was played with this quality."""
        kept, noise = self._measured(hour)
        x = kept.copy()
        x[:, VM["steal"]] *= quality.steal
        x[:, VM["cpi"]] = x[:, VM["cpi"]] * quality.slow * noise
        free_vcpus, free_gb = self.free(host)
        return State(x, host, self.hosts, free_vcpus, free_gb, quality.qos)

    def _measured(self, hour: int) -> tuple[Floats, Floats]:
        """(features of the VMs at the end of an hour [vms, 20], noise of the CPI); steal and CPI are still without what others did."""
        if hour in self._seen:
            return self._seen[hour]
        p, m = self.population, self.metrics
        factor = stream(self.noise_seed, "vm", "noise", str(hour)).lognormal(0.0, NOISE / READINGS**0.5, (len(p), 15))
        x = np.empty((len(p), len(VM_FEATURES)))
        past = p.demand[:, max(0, hour - 23) : hour + 1].reshape(len(p), -1)
        now = p.demand[:, hour].mean(1)
        x[:, VM["vcpu"]], x[:, VM["memory_gb"]] = p.vcpu, p.memory_gb
        x[:, VM["cpu"]] = now * factor[:, 0]
        x[:, VM["cpu_mean"]] = past.mean(1) * factor[:, 1]
        x[:, VM["cpu_p95"]] = np.partition(past, kth := int(0.95 * (past.shape[1] - 1)), axis=1)[:, kth] * factor[:, 2]
        x[:, VM["steal"]] = factor[:, 3]
        x[:, VM["cpi"]] = cpi_alone(m)
        names = ("ports", "l2_mpki", "llc_mpki", "net_mbps", "disk_mbps", "core_bound", "l2_bound", "llc_bound", "dram_bound")
        for k, name in enumerate(names):
            x[:, VM[name]] = m[name] * factor[:, 5 + k]
        x[:, VM["mem_gbps"]] = m["busy_gbps"] * p.vcpu * now * factor[:, 14]
        angle = 2 * math.pi * ((self.clock + hour + 1) % 24) / 24
        x[:, VM["hour_sin"]], x[:, VM["hour_cos"]] = math.sin(angle), math.cos(angle)
        x[:, VM["age_days"]] = p.age_days + hour / 24
        if len(self._seen) < KEPT and len(p) <= KEPT_VMS:
            self._seen[hour] = x, factor[:, 4]
        return x, factor[:, 4]

    def free(self, host: Ints) -> tuple[Floats, Floats]:
        """vCPUs and GB that each host may still promise."""
        here = host >= 0
        vcpus = np.bincount(host[here], self.population.vcpu[here], len(self.hosts))
        used = np.bincount(host[here], self.population.memory_gb[here], len(self.hosts))
        return self.hosts.room(self.overcommit * self.headroom) - vcpus, self.hosts.memory_gb - used

    def arrive(self, hour: int, host: Ints) -> Ints:
        """The placement after those that leave before an hour have left, and those that come have been placed by best fit."""
        there = self.present(hour)
        moved = np.where(there, host, -1)
        new = np.flatnonzero(there & (host < 0) & (self.population.created == hour))
        if len(new):
            free_vcpus, free_gb = self.free(moved)
            moved[new] = best_fit(self.population.vcpu[new], self.population.memory_gb[new], free_vcpus, free_gb)
        return moved


def draw_population(rng: np.random.Generator, kind: str, count: int) -> Population:
    """VMs of a kind with the CPU that they want over a week. They come in deployments, whose VMs are alike and arrive together."""
    many = np.minimum(rng.geometric(1 / DEPLOYMENT, count), MOST_DEPLOYED)
    of = np.repeat(np.arange(count), many)[:count]
    deployments = int(of[-1]) + 1
    apps = draw_applications(rng, deployments, "mixed")
    vcpu = rng.choice(np.array(SIZES, np.int64), deployments, p=SHARES)
    memory = vcpu * rng.choice(np.array(GB_PER_VCPU), deployments, p=GB_SHARES)
    age = rng.exponential(20.0, deployments)
    level = _level(rng, deployments)[of] * rng.lognormal(0.0, 0.2, count)
    both = (apps.pressure, apps.sensitivity)
    pressure, sensitivity = (np.clip(one[of] * rng.lognormal(0.0, ALIKE, (count, 5)), 0.0, 1.0) for one in both)
    return Population(
        vcpu[of], memory[of], np.zeros_like(pressure) if kind == "calm" else pressure, sensitivity, draw_demand(rng, kind, count, level),
        np.zeros(count, np.int64), np.full(count, DAYS * HOURS + 1, np.int64), age[of],
    )  # fmt: skip


def _level(rng: np.random.Generator, count: int) -> Floats:
    """Mean CPU of VMs as a share of their vCPUs."""
    return np.asarray(0.04 + 0.4 * rng.beta(2.0, 3.0, count), np.float64)


def draw_demand(rng: np.random.Generator, kind: str, count: int, mean: Floats | None = None) -> npt.NDArray[np.float32]:
    """CPU as a share of the vCPUs, [count, 168, readings]: a daily wave of up to 30 %, and bursts of half an hour for bursty VMs."""
    steps = DAYS * HOURS * INSTANTS
    level = _level(rng, count) if mean is None else mean
    wave, phase = rng.uniform(0.0, 0.3, count), rng.uniform(-3.0, 3.0, count)
    drift = rng.lognormal(0.0, 0.1, (count, DAYS))
    out = np.empty((count, DAYS * HOURS, INSTANTS), np.float32)
    # cos(a − b) from single cosines of the C library, because NumPy's array version differs between processors in the last bit.
    angles = [2 * math.pi * (t / INSTANTS - 14) / 24 for t in range(steps)]
    cosine, sine = np.array([math.cos(a) for a in angles]), np.array([math.sin(a) for a in angles])
    turned = [2 * math.pi * one / 24 for one in phase.tolist()]
    to_cosine, to_sine = np.array([math.cos(b) for b in turned]), np.array([math.sin(b) for b in turned])
    block = max(1, (1 << 22) // steps)
    for start in range(0, count, block):
        rows = slice(start, min(count, start + block))
        many = rows.stop - rows.start
        shape = 1 + wave[rows, None] * (to_cosine[rows, None] * cosine + to_sine[rows, None] * sine)
        made = level[rows, None] * shape * np.repeat(drift[rows], HOURS * INSTANTS, axis=1)
        if kind == "bursty":
            made *= 0.7 * _bursts(rng, many, steps)
        made *= rng.lognormal(0.0, NOISE, (many, steps))
        out[rows] = np.clip(made, 0.0, 1.0).reshape(many, DAYS * HOURS, INSTANTS)
    return out


def _bursts(rng: np.random.Generator, count: int, steps: int) -> Floats:
    """1 at rest and 2 to 4 in a burst, which begins with probability 1/30 and ends with 1/6 per reading, after half an hour on average."""
    height = rng.uniform(2.0, 4.0, count)
    draws = rng.random((count, steps))
    out = np.ones((count, steps))
    on = np.zeros(count, bool)
    for t in range(steps):
        on = np.where(on, draws[:, t] >= 1 / 6, draws[:, t] < 1 / 30)
        out[:, t] = np.where(on, height, 1.0)
    return out


def built_in(rng: np.random.Generator, *, kind: str = "interfering", hosts: int = 60, vms: int = 900, rounds: int = 48,
             ranked: int = 100, fleet: Hosts | None = None, overcommit: float | None = None) -> VmWork:  # fmt: skip
    """A population of a kind on a fleet, packed by best fit until the mean QoS is 0.8; `calm` VMs are not packed beyond the threads."""
    if kind not in KINDS:
        raise InputError(f"found {kind}; expected one of {', '.join(KINDS)}")
    owned = fleet or built_in_hosts(hosts)
    seed = int(rng.integers(1 << 31))
    population = draw_population(rng, kind, vms)
    model = Model(smt_base=0.0) if kind == "calm" else Model()
    return packed(population, owned, kind=kind, model=model, rounds=rounds, ranked=ranked, noise_seed=seed, overcommit=overcommit)


def packed(
    population: Population, hosts: Hosts, *, kind: str, model: Model = USUAL, rounds: int = 48, ranked: int = 100, noise_seed: int = 0,
    start: int = TEST_DAY * HOURS, overcommit: float | None = None, clock: float = 0.0,
) -> VmWork:  # fmt: skip
    """Places a population by best fit; `overcommit` is searched for where it is not given, and is 1 for calm VMs."""
    base = {"kind": kind, "model": model, "rounds": rounds, "ranked": ranked, "noise_seed": noise_seed, "start": start, "clock": clock}
    first = np.flatnonzero((population.created <= start) & (start < population.deleted))

    def placed(limit: float) -> VmWork:
        free_vcpus, free_gb = hosts.room(limit), hosts.memory_gb.copy()
        host = np.full(len(population), -1, np.int64)
        host[first] = best_fit(population.vcpu[first], population.memory_gb[first], free_vcpus, free_gb)
        return VmWork(population, hosts, limit, host, **base)  # type: ignore[arg-type]

    if overcommit is not None or kind == "calm":
        return placed(1.0 if overcommit is None else overcommit)
    # Below this, not all of them fit.
    low = max(0.25, float(population.vcpu[first].sum() / hosts.threads.sum()) * 1.02)
    high = MOST_OVERCOMMIT
    made = placed(low)
    for _ in range(12):
        middle = 0.5 * (low + high)
        made = placed(middle)
        quality = mean_quality(made)
        if abs(quality - TARGET) <= WITHIN:
            break
        low, high = (middle, high) if quality > TARGET else (low, middle)
    return made


def mean_quality(work: VmWork) -> float:
    """The mean QoS of the packing over four hours of the first day that is judged."""
    hours = work.population.demand.shape[1]
    at = [min(hours - 1, work.start + k) for k in (0, 6, 12, 18)]
    return float(np.mean([np.nanmean(work.judge.played(hour, work.host).qos) for hour in at]))


def digest(work: VmWork) -> str:
    """Hex SHA-256 of what a model that is trained on this work depends on."""
    total = hashlib.sha256()
    p = work.population
    for array in (p.vcpu, p.memory_gb, p.pressure, p.sensitivity, p.demand, work.host):
        total.update(np.ascontiguousarray(array).tobytes())
    return total.hexdigest()
