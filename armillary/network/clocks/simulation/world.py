"""The state that compiled loops work on, and the parts that every technique's loop has in common.

A clock is kept as its offset from nominal time, L(t) − t in seconds, so that picoseconds can be told apart after hours. In each step all
clocks are first estimated from the state at its beginning and only then changed, so no result depends on the order of the nodes.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from armillary.kernels import part

Array = np.ndarray[Any, Any]

#: Places in `World.numbers`.
PERIOD, GRAIN, TURNAROUND, RHO, WHITE, WALK, STEP_MOST, WAVE, WAVE_STEP, NOISY, RUNAWAY = range(11)


class World(NamedTuple):
    """The network and its clocks."""

    #: The links by node, as `ClockNetwork.ways`.
    start: Array
    other: Array
    link: Array
    sign: Array
    #: The two ends of each link.
    a: Array
    b: Array
    #: Seconds by which a two-way estimate is wrong along a link: half of what its directions differ.
    lean: Array
    #: Seconds by which a one-way estimate is wrong, because the delay is not the one that is taken for it; alike in both directions.
    hidden: Array
    #: Seconds by which a stamp is later than the least that the delay may be.
    late: Array
    jitter: Array
    #: L(t) − t, in seconds; and the frequency above nominal of each hardware clock, now and without noise.
    clock: Array
    rate: Array
    still: Array
    numbers: Array
    #: The state of the random numbers, and the phase of the wave of temperature in −1 to 1.
    draws: Array
    phase: Array


class Seen(NamedTuple):
    """What was seen of the skew: the largest per link, the largest between any two clocks, and more about every so-and-so-many-th step."""

    link: Array
    overall: Array
    #: The largest skew of any link after each step.
    course: Array
    #: Every `every`-th step: the skew of each link.
    sample: Array
    every: int


@part
def draw(draws):  # type: ignore[no-untyped-def]
    """The next 64 random bits (SplitMix64)."""
    draws[0] += np.uint64(0x9E3779B97F4A7C15)
    z = draws[0]
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


@part
def spread(bits, shift):  # type: ignore[no-untyped-def]
    """The difference of two uniform numbers, from 32 of the bits: −1 to 1, triangular."""
    low = (bits >> np.uint64(shift)) & np.uint64(0xFFFF)
    high = (bits >> np.uint64(shift + 16)) & np.uint64(0xFFFF)
    return (np.float64(np.int64(high)) - np.float64(np.int64(low))) * 1.52587890625e-05


@part
def two_way(world, v, place):  # type: ignore[no-untyped-def]
    """L_w − L_v as v sees it after an exchange in both directions: the delay cancels, half the asymmetry stays."""
    w, link = world.other[place], world.link[place]
    bits = draw(world.draws)
    error = world.sign[place] * world.lean[link] + 0.5 * world.jitter[link] * spread(bits, 0)
    error += world.numbers[GRAIN] * spread(bits, 32)
    error += 0.5 * world.numbers[TURNAROUND] * (world.rate[w] - world.rate[v])
    return world.clock[w] - world.clock[v] + error


@part
def one_way(world, v, place):  # type: ignore[no-untyped-def]
    """L_w − L_v as v sees it from w's stamps alone, with the middle of what the delay may be taken for it."""
    w, link = world.other[place], world.link[place]
    bits = draw(world.draws)
    passage = np.float64(np.int64(bits >> np.uint64(48))) * 1.52587890625e-05
    error = world.hidden[link] + world.sign[place] * world.lean[link] + world.jitter[link] * (0.5 - passage)
    return world.clock[w] - world.clock[v] + error + world.numbers[GRAIN] * spread(bits, 0)


@part
def wander(world):  # type: ignore[no-untyped-def]
    """Changes the frequencies for the next period, if they change at all; noise is the sum of four uniform numbers."""
    n = world.numbers
    if n[NOISY] == 0.0:
        return
    phase = world.phase[0] + n[WAVE_STEP]
    world.phase[0] = phase - 2.0 if phase > 1.0 else phase
    for v in range(len(world.rate)):
        at = world.phase[0] + 0.37 * v
        at -= 2.0 * np.floor(0.5 * (at + 1.0))
        wave = 4.0 * at * (1.0 - abs(at))  # A parabola's sine, right to 6 %: no call of the C library.
        bits = draw(world.draws)
        # Each sum of two has a variance of 1/3.
        world.still[v] += n[WALK] * 1.7320508075688772 * (spread(bits, 0) + spread(bits, 32))
        bits = draw(world.draws)
        white = n[WHITE] * 1.7320508075688772 * (spread(bits, 0) + spread(bits, 32))
        wanted = min(max(world.still[v] + white + n[WAVE] * wave, 0.0), n[RHO])
        change = min(max(wanted - world.rate[v], -n[STEP_MOST]), n[STEP_MOST])
        world.rate[v] += change


@part
def look(world, seen, step):  # type: ignore[no-untyped-def]
    """Notes the skew of every link, and between the extremes."""
    clock, most = world.clock, 0.0
    sampled = step % seen.every == 0 and step // seen.every < len(seen.sample)
    for k in range(len(world.a)):
        skew = abs(clock[world.a[k]] - clock[world.b[k]])
        if skew > seen.link[k]:
            seen.link[k] = skew
        if skew > most:
            most = skew
        if sampled:
            seen.sample[step // seen.every, k] = skew
    low = high = clock[0]
    for v in range(len(clock)):
        low = min(low, clock[v])
        high = max(high, clock[v])
    if high - low > seen.overall[0]:
        seen.overall[0] = high - low
    if most > seen.course[step]:
        seen.course[step] = most
