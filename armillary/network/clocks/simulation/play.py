"""Plays a network of clocks under a technique, with adversaries of frequencies and delays."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from armillary.network.clocks.graph.network import ClockNetwork, Floats
from armillary.network.clocks.workload import ClockWork, reference_kappa, turn_s
from armillary.streams import stream

from .discipline import Synchronised
from .world import Seen, World

#: Skews of single links that are kept for the 99th percentile, and points of the drawn course.
KEPT, DRAWN = 2_000_000, 400
#: The frequency of a runaway clock, in widths of the band.
RUNAWAY = 3.0


@dataclass(frozen=True)
class Played:
    """What was seen while the skew was judged, in seconds."""

    work: ClockWork
    #: The largest skew of each link.
    links: Floats
    local_skew: float
    local_skew_p99: float
    global_skew: float
    settle_s: float
    #: (seconds, the largest skew of any link in that part of the run).
    course: tuple[Floats, Floats]
    #: The clocks at the end, as offsets from nominal time.
    clocks: Floats

    def weighted_skew(self) -> float:
        """The largest skew of a link over its κ under two-way measurement with the usual settings."""
        w = self.work
        return float((self.links / reference_kappa(w.network, w.rho, w.period, w.grain, w.turnaround)).max())


def play(work: ClockWork, technique: Synchronised) -> Played:
    """Runs the clocks; the same work gives every technique the same frequencies, delays and starting times."""
    network, rng = work.network, stream(work.seed, "network", "clocks", "play")
    discipline = technique.start(work)
    world = world_of(work, rng)
    settle, judged = work.steps
    total = settle + judged
    course = np.zeros(total)
    unseen, seen = _seen(network, 0, course), _seen(network, judged, course)
    for first, steps in _pieces(work, world, rng):
        if first < settle:
            discipline.advance(world, unseen, first, steps)
        else:
            # The sample counts from where judging begins.
            discipline.advance(world, seen._replace(course=course[settle:]), first - settle, steps)
    later = float(course[settle:].max())
    above = np.flatnonzero(course[:settle] > later)
    return Played(
        work, seen.link, float(seen.link.max()), float(np.quantile(seen.sample, 0.99)), float(seen.overall[0]),
        (int(above[-1]) + 1) * work.period if len(above) else 0.0, _thinned(course, work.period), world.clock.copy(),
    )  # fmt: skip


def _seen(network: ClockNetwork, steps: int, course: Floats) -> Seen:
    every = max(1, -(-steps * network.links // KEPT))
    rows = -(-steps // every)
    return Seen(np.zeros(network.links), np.zeros(1), course, np.zeros((rows, network.links)), every)


def _thinned(course: Floats, period: float) -> tuple[Floats, Floats]:
    edges = np.unique(np.linspace(0, len(course), min(DRAWN, len(course)) + 1).astype(np.int64))
    return np.asarray(edges[1:] * period, np.float64), np.asarray(np.maximum.reduceat(course, edges[:-1]), np.float64)


def world_of(work: ClockWork, rng: np.random.Generator | None = None) -> World:
    """The state at the beginning, before an adversary has set the frequencies."""
    rng = stream(work.seed, "network", "clocks", "play") if rng is None else rng
    network, o, t = work.network, work.oscillators, work.period
    start, other, link, sign = network.ways
    still = o.drawn(network.nodes, rng)
    clocks = work.initial_s * rng.random(network.nodes)
    signs = np.ones(network.links) if work.delays == "bias" else 2 * rng.random(network.links) - 1
    hides = np.zeros(network.links) if work.delays == "reveal" else rng.random(network.links)
    # The frequency of noise over one period, in the units of its standard deviation over a second.
    numbers = np.array([
        t, work.grain, work.turnaround, o.rho, o.white / np.sqrt(t), o.walk * np.sqrt(t), o.nu * t, o.temperature, 2 * t / o.wave_s,
        float(o.noisy and work.rates == "random"), float(work.runaway),
    ])  # fmt: skip
    world = World(
        start, other, link, sign, network.a, network.b, signs * network.asymmetry / 2, np.zeros(network.links), np.zeros(network.links),
        network.jitter, clocks, np.zeros(network.nodes), still, numbers, rng.integers(0, 2**63, 1).astype(np.uint64), np.zeros(1),
    )  # fmt: skip
    _hide(work, world, hides)
    return world


def _hide(work: ClockWork, world: World, share: Floats) -> None:
    """Sets the delays: `share` of what a link does not tell beforehand is missing from its most."""
    unknown = work.uncertainty * work.network.delay
    world.hidden[:] = unknown * (share - 0.5)
    world.late[:] = unknown * (1 - share)


def _pieces(work: ClockWork, world: World, rng: np.random.Generator) -> Iterator[tuple[int, int]]:
    """(first step, steps) of parts in which the adversary stays as it is; it has set the world for the part that is given."""
    settle, judged = work.steps
    total = settle + judged
    cuts = {0, settle, total}
    beat = max(1, round(turn_s(work) / work.period)) if work.rates == "halves" else total
    cuts |= set(range(0, total, beat))
    reveal = settle + judged // 2
    if work.delays == "reveal":
        cuts.add(reveal)
    ordered = sorted(cuts)
    for first, end in itertools.pairwise(ordered):
        _set_rates(work, world, first // beat)
        if work.delays == "reveal" and first == reveal:
            levels = work.network.levels
            near = np.maximum(levels[work.network.a], levels[work.network.b]) <= levels.max() / 2
            _hide(work, world, near.astype(np.float64))
        yield first, end - first


def _set_rates(work: ClockWork, world: World, beat: int) -> None:
    levels, rho = work.network.levels, work.rho
    if work.rates == "halves":
        far = levels > np.median(levels)
        world.rate[:] = np.where(far == bool(beat % 2), rho, 0.0)
    elif work.rates == "slope":
        world.rate[:] = rho * levels / levels.max()
    elif work.rates == "end":
        world.rate[:] = np.where(levels == 0, rho, 0.0)
    elif beat == 0 and not world.rate.any():
        world.rate[:] = world.still
    if work.runaway:
        world.rate[len(world.rate) // 2] = RUNAWAY * rho
