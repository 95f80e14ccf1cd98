"""Drawn fleets: rates, modes, weights, what is missing, and what nobody can know."""

from __future__ import annotations

import numpy as np
import pytest
from small_fleets import drawn

from armillary.observability.drives.fleets.fleet import NEVER
from armillary.observability.drives.fleets.synthesis import MEDIA, NATURAL, SHARES, SUDDEN
from armillary.observability.drives.fleets.vendors import VENDORS


def test_the_same_seed_gives_the_same_fleet() -> None:
    one, again, other = drawn(1, drives=60, failures=20), drawn(1, drives=60, failures=20), drawn(2, drives=60, failures=20)
    assert np.array_equal(one.raw, again.raw, equal_nan=True)
    assert np.array_equal(one.failure, again.failure)
    assert not np.array_equal(one.failure, other.failure)


def test_modes_rates_and_weights_are_those_that_are_said() -> None:
    one = drawn(3, drives=3000, days=40, failures=1500, models=6)
    assert one.mode is not None
    shares = np.bincount(one.mode[one.failed], minlength=4) / one.failed.sum()
    assert shares == pytest.approx(SHARES, abs=0.05)
    annual = {vendor.name: vendor.annual for vendor in VENDORS}
    failing = {name: one.failed[one.model == i].mean() for i, name in enumerate(one.models)}
    assert failing["MB2"] > 2 * failing["MA2"]
    assert annual["MB2"] > 2 * annual["MA2"]
    # With weights, failures per drive and year are the published ones.
    drives = one.failed.sum() + one.weight * (~one.failed).sum()
    assert one.failed.sum() / drives * 365 / 50 == pytest.approx(NATURAL, rel=0.02)
    assert drawn(4, drives=200, failures=20, natural=True).weight == 1.0


def test_days_are_missing_and_end_with_the_failure() -> None:
    one = drawn(5, drives=600, failures=200)
    last = one.day[one.start[1:] - 1]
    assert (last < one.failure).all()
    span = last - one.day[one.start[:-1]] + 1
    assert 1 - np.diff(one.start).sum() / span.sum() == pytest.approx(0.03, abs=0.006)
    assert set(np.flatnonzero(np.isnan(one.raw[one.model[one.drive] == 0]).all(0)).tolist())


def test_a_precursor_shows_and_a_sudden_death_does_not() -> None:
    one = drawn(6, drives=1500, days=90, failures=900, horizon=30)
    assert one.mode is not None
    raw = one.raw[:, one.attributes.tolist().index(187)]
    rise = np.array([raw[one.start[i + 1] - 1] - raw[max(one.start[i], one.start[i + 1] - 10)] for i in range(len(one))])
    logged = one.failure < one.days
    assert np.median(rise[logged & (one.mode == MEDIA)]) > 5
    assert (rise[logged & (one.mode == SUDDEN)] > 5).mean() < 0.05
    assert (rise[one.failure >= NEVER] > 5).mean() < 0.05


def test_drift_moves_the_signs_of_some_models() -> None:
    one = drawn(7, drives=1500, days=90, failures=900, horizon=30, models=3, drift_day=45)
    assert one.mode is not None
    places = {a: one.attributes.tolist().index(a) for a in (187, 172)}
    rise = {
        a: np.array([one.raw[one.start[i + 1] - 1, at] - one.raw[one.start[i], at] for i in range(len(one))]) for a, at in places.items()
    }
    drifts = np.isin(one.model, [i for i, name in enumerate(one.models) if name in ("MA1", "MC1")])
    media = drifts & (one.mode == MEDIA) & (one.failure < one.days)
    early, late = media & (one.failure < 45) & (one.failure > 20), media & (one.failure >= 45)
    assert np.mean(rise[187][early]) > 2 * np.mean(rise[172][early])
    assert np.mean(rise[172][late]) > 5 * np.mean(rise[187][late])


def test_counters_of_some_drives_are_reset() -> None:
    one = drawn(8, drives=3000, days=40, failures=100)
    at = one.attributes.tolist().index(5)
    fell = np.diff(one.raw[:, at]) < 0
    fell[one.start[1:-1] - 1] = False
    assert 2 <= fell.sum() <= 30
    assert np.nanmin(one.raw) >= 0


def test_serial_numbers_are_unique_within_a_model_only() -> None:
    one = drawn(9, drives=50, failures=10)
    named = list(zip(one.model.tolist(), one.serial))
    assert len(set(named)) == 50
    assert len(set(one.serial)) < 50
