"""Fleets drawn from a model of how drives fail. **Our design**, after published totals: 0.7 % of the drives fail per year.

Counters are compound Poisson processes with rates of the drive's own. Four modes of failure are planted: decline of the medium (45 %),
whose error rates grow as exp(t/τ); wear-out (10 %); a bad interface (10 %); and sudden death (35 %), before which nothing is to be seen.
No technique can find the last ones, so the generator knows the greatest possible recall. Healthy drives get harmless bursts of errors.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .fleet import NEVER, Array, Fleet, assembled
from .vendors import ATTRIBUTES, VENDORS, Vendor

MEDIA, WEAR, INTERFACE, SUDDEN = range(4)
SHARES = (0.45, 0.10, 0.10, 0.35)
#: Failures per year and drive in the published fleets.
NATURAL = 0.007
#: Errors per day of a healthy drive, by attribute.
QUIET = {5: 0.003, 12: 0.01, 171: 0.002, 172: 0.002, 174: 0.004, 183: 0.004, 184: 0.0004, 187: 0.002, 188: 0.005, 199: 0.006}
#: How a decline of the medium is shared out over attributes, before and after a drift.
DECLINE = {187: 0.45, 5: 0.30, 171: 0.10, 172: 0.15}
DRIFTED = {5: 0.50, 171: 0.05, 172: 0.45}
MISSING_DAYS, RESET_DRIVES, BURST_DRIVES = 0.03, 0.005, 0.05


def draw(
    rng: np.random.Generator, drives: int, days: int, failures: int, *, horizon: int = 30, models: int = 3, drift_day: int | None = None,
    natural: bool = False, shares: tuple[float, ...] = SHARES,
) -> Fleet:  # fmt: skip
    """A fleet of `drives` that is logged for `days`, of which `failures` fail in these days and in the `horizon` days after them.

    Failures are known for `horizon` days after the log, so that every alarm can be judged. drift_day: from here on, failures of some
    models show in other attributes. Unless `natural`, healthy drives were thinned, and `weight` makes up for it.
    """
    vendors = [VENDORS[i] for i in ((0, 2, 4, 1, 3, 5)[:models])]
    known = days + horizon
    rate = np.array([one.annual for one in vendors])
    model = rng.choice(len(vendors), drives, p=np.full(len(vendors), 1 / len(vendors)))
    failure = np.full(drives, NEVER, np.int64)
    mode, onset = np.full(drives, -1, np.int64), np.full(drives, NEVER, np.int64)
    chosen = rng.choice(drives, failures, replace=False, p=rate[model] / rate[model].sum())
    failure[chosen] = rng.integers(8, known, failures)
    mode[chosen] = rng.choice(4, failures, p=np.asarray(shares) / sum(shares))
    span = np.where(mode == MEDIA, rng.integers(10, 61, drives), np.where(mode == WEAR, 10_000, rng.integers(5, 21, drives)))
    precursor = (mode >= 0) & (mode != SUDDEN)
    onset[precursor] = np.maximum(0, failure - span)[precursor]
    joins = np.where(rng.random(drives) < 0.05, rng.integers(0, max(1, days // 3), drives), 0)
    joins = np.minimum(joins, np.maximum(0, failure - 8))
    parts = [
        _of_model(rng, vendors[m], np.flatnonzero(model == m), days, failure, mode, onset, joins, drift_day) for m in range(len(vendors))
    ]
    healthy = drives - failures
    expected = failures / (NATURAL * known / 365)
    weight = 1.0 if natural else max(1.0, (expected - failures) / max(1, healthy))
    drive, day, raw, normal = (np.concatenate([part[i] for part in parts]) for i in range(4))
    return assembled(
        [one.name for one in vendors], model, [str(i) for i in _serials(model)], drive, day, np.array(ATTRIBUTES), raw, normal, failure,
        days=days, known_until=known, weight=weight, first_date="2018-01-01", mode=mode, onset=onset,
    )  # fmt: skip


def _serials(model: Array) -> Array:
    """Numbers that are unique within a model only, as in public logs."""
    found = np.zeros(len(model), np.int64)
    for m in np.unique(model):
        found[model == m] = np.arange(int((model == m).sum())) + 1
    return found


def _of_model(
    rng: np.random.Generator, vendor: Vendor, who: Array, days: int, failure: Array, mode: Array, onset: Array, joins: Array,
    drift_day: int | None,
) -> tuple[Array, Array, Array, Array]:  # fmt: skip
    """(drive, day, raw, normal) of all drives of one model."""
    n, t = len(who), np.arange(days)
    kind, first, end = mode[who, None], onset[who, None], failure[who, None]
    in_precursor = (t >= first) & (t < end)
    # Load: a rate of the drive's own, a week, and regimes that last some weeks.
    regime = np.repeat(rng.lognormal(0, 0.25, (n, days // 21 + 1)), 21, axis=1)[:, :days]
    load = rng.lognormal(0, 0.6, (n, 1)) * (1 + 0.25 * np.sin(2 * np.pi * (t + rng.integers(0, 7)) / 7)) * regime
    written = 4e10 / 512 * load * rng.lognormal(0, 0.2, (n, days))  # Blocks of 512 bytes per day, 40 GB on average.
    age = rng.uniform(100, 1200, (n, 1))
    lbas = np.cumsum(written, 1) + age * 4e10 / 512 * load.mean(1, keepdims=True)
    intensity = {a: QUIET[a] * rng.gamma(0.5, 2.0, (n, 1)) * np.ones((1, days)) for a in QUIET}
    _add_bursts(rng, intensity, n, days, kind)
    _add_precursors(rng, vendor, intensity, kind, end, in_precursor, t, drift_day)
    raw: dict[int, Array] = {}
    for a, rates in intensity.items():
        events = rng.poisson(np.minimum(rates, 1e4))
        sizes = events + rng.poisson(events * 0.4)
        before = rng.poisson(QUIET[a] * age * rng.gamma(0.5, 2.0, (n, 1)))
        raw[a] = np.cumsum(sizes, 1) + before
    raw[9] = np.floor((age + t) * 24 * vendor.units.get(9, 1.0))
    warm = 30 + 4 * np.sin(2 * np.pi * t / 365) + 3 * np.tanh(load - 1) + rng.normal(0, 1.5, (n, days)) + rng.normal(0, 2, (n, 1))
    degrees = np.round(warm)
    raw[194] = degrees + (np.round(degrees.min(1, keepdims=True)) * 65536 + degrees.max(1, keepdims=True) * 2.0**32 if vendor.packed else 0)
    wear = _wear(rng, vendor, n, t, kind, end, load)
    raw[173] = np.floor(wear * vendor.cycles)
    raw[233] = np.floor(100 * wear)
    raw[170] = np.floor(np.maximum(0, 100 - 0.03 * raw[5] - 95 * np.maximum(0, wear - 0.95) * 20))
    noise = rng.poisson(3 + 0 * load)
    raw[1], raw[195], raw[206] = noise + raw[187], rng.poisson(50 * load), rng.poisson(0.02 + 0 * load)
    raw[197] = rng.poisson(np.minimum(50, 0.5 * np.diff(raw[5], axis=1, prepend=raw[5][:, :1])))
    raw[241], raw[242] = np.floor(lbas * vendor.units.get(241, 1.0)), np.floor(1.7 * lbas * vendor.units.get(242, 1.0))
    _reset(rng, raw, n, days)
    values = np.stack([raw.get(a, np.zeros((n, days))) for a in ATTRIBUTES], -1)
    shown = _normal(raw, wear, degrees, n, days)
    quiet = [i for i, a in enumerate(ATTRIBUTES) if a in vendor.silent]
    values[..., quiet], shown[..., quiet] = np.nan, np.nan
    there = (t < end) & (t >= joins[who, None]) & (rng.random((n, days)) >= MISSING_DAYS)
    there[:, 0] |= ~there.any(1)
    at, day = np.nonzero(there)
    return who[at], day, values[at, day], shown[at, day].astype(np.float32)


def _add_bursts(rng: np.random.Generator, intensity: dict[int, Array], n: int, days: int, kind: Array) -> None:
    """Harmless bursts on some healthy drives, which look like the beginning of a decline and stop."""
    for i in np.flatnonzero((rng.random(n) < BURST_DRIVES) & (kind[:, 0] < 0)):
        start, length = int(rng.integers(0, days)), int(rng.integers(3, 16))
        for a in ((5, 187), (171, 172), (199,), (5,))[int(rng.integers(4))]:
            intensity[a][i, start : start + length] += rng.lognormal(-0.7, 0.6)


def _add_precursors(
    rng: np.random.Generator, vendor: Vendor, intensity: dict[int, Array], kind: Array, end: Array, within: Array, t: Array,
    drift_day: int | None,
) -> None:  # fmt: skip
    n = len(kind)
    tau, height = rng.uniform(4, 20, (n, 1)), rng.lognormal(1.6, 0.6, (n, 1))
    growth = height * np.exp(-np.minimum(np.maximum(end - t, 0), 200) / tau) * (within & (kind == MEDIA))
    late = (end >= drift_day) if drift_day is not None and vendor.drifts else np.zeros_like(end, bool)
    for a in sorted({*DECLINE, *DRIFTED}):
        share = np.where(late, DRIFTED.get(a, 0.0), DECLINE.get(a, 0.0))
        intensity[a] += share * growth * 2
    bursts = (rng.random(within.shape) < 0.6) * rng.lognormal(0.5, 0.7, (n, 1)) * (within & (kind == INTERFACE))
    intensity[199] += bursts
    intensity[183] += 0.4 * bursts


def _wear(rng: np.random.Generator, vendor: Vendor, n: int, t: Array, kind: Array, end: Array, load: Array) -> Array:
    """The used share of the rated endurance."""
    del vendor
    begun = rng.beta(1.2, 3.0, (n, 1)) * 0.85
    begun = np.where(rng.random((n, 1)) < 0.01, rng.uniform(0.85, 1.02, (n, 1)), begun)
    wear = begun + np.cumsum(load, 1) * 1e-4
    # A worn drive dies a little beyond its endurance; it comes near slowly.
    worn = rng.uniform(1.0, 1.08, (n, 1)) - (end - t) * rng.uniform(0.0006, 0.0015, (n, 1))
    return np.where(kind == WEAR, np.maximum(worn, 0.3), wear)


def _reset(rng: np.random.Generator, raw: dict[int, Array], n: int, days: int) -> None:
    """A firmware update sets the counters of a few drives back to 0."""
    for i in np.flatnonzero(rng.random(n) < RESET_DRIVES):
        at = int(rng.integers(1, days)) if days > 1 else 0
        for a in (5, 171, 172, 183, 187, 188, 199):
            raw[a][i, at:] -= raw[a][i, at]


def _normal(raw: dict[int, Any], wear: Array, degrees: Array, n: int, days: int) -> Array:
    """Normalised values: 100 is good, and each vendor's own formula falls from there."""
    shown = np.full((n, days, len(ATTRIBUTES)), 100.0)
    for i, a in enumerate(ATTRIBUTES):
        if a in (173, 233):
            shown[..., i] = np.clip(np.floor(100 * (1 - wear)), 1, 100)
        elif a == 170:
            shown[..., i] = np.clip(raw[170], 1, 100)
        elif a == 194:
            shown[..., i] = 100 - degrees
        elif a in (5, 171, 172, 184, 187):
            shown[..., i] = np.clip(100 - np.floor(raw[a] / 10), 1, 100)
        elif a == 9:
            shown[..., i] = 99
    return shown
