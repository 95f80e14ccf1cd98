"""The sun: zenith and clear sky beside pvlib's, panels by hand, clearness, forecasts, and the training of the forecaster."""

from __future__ import annotations

import datetime
from typing import Any

import numpy as np
import pytest
from green_works import nodes_of, noon_sun, pods_of, work_of

from armillary.errors import InputError
from armillary.learn import obtain
from armillary.scheduling.energy import Panels, clear_sky, clearness, zenith
from armillary.scheduling.green import Forecaster, GreenK8s
from armillary.scheduling.green.forecasting.forecaster import METHODS, SEEN, clearness_of, nmae, perfect, uncrossed, windows
from armillary.scheduling.green.problem.sunshine import AHEAD, CELL, PAST, length, over


def seconds(text: str) -> float:
    return datetime.datetime.fromisoformat(text).timestamp()


def test_the_sun_over_greenwich() -> None:
    for moment, angle, light in (("2024-06-21T12:00Z", 28.05, 906.4), ("2024-12-21T12:00Z", 74.92, 227.7)):
        found = zenith(seconds(moment), 51.48, 0.0)
        assert float(found) == pytest.approx(angle, abs=0.01)
        assert float(clear_sky(found)) == pytest.approx(light, abs=0.15)
    assert clear_sky([90.0, 120.0, 180.0]).tolist() == [0.0, 0.0, 0.0]


def test_zenith_and_clear_sky_are_pvlibs() -> None:
    pvlib, pd = pytest.importorskip("pvlib"), pytest.importorskip("pandas")
    rng = np.random.default_rng(5)
    moments = rng.uniform(seconds("1970-01-02T00:00Z"), seconds("2039-12-31T00:00Z"), 1000)
    places = np.stack([rng.uniform(-90, 90, 1000), rng.uniform(-180, 180, 1000)], 1)
    for group in np.split(np.arange(1000), 50):  # pvlib takes one place at a time
        latitude, longitude = places[group[0]]
        index = pd.DatetimeIndex(pd.to_datetime(np.round(moments[group]), unit="s", utc=True))
        theirs = pvlib.solarposition.get_solarposition(index, latitude, longitude)["zenith"].to_numpy()
        mine = zenith(np.round(moments[group]), latitude, longitude)
        assert np.abs(mine - theirs).max() < 0.1
        light = pvlib.clearsky.haurwitz(pd.Series(theirs, index=index))["ghi"].to_numpy()
        assert (np.abs(clear_sky(mine) - light) <= np.maximum(0.01 * light, 3.0)).all()


def test_panels_by_hand() -> None:
    # T_cell = 15 + 0.03·800 = 39 °C: 10·0.2·800·(1 − 0.004·14)
    assert float(Panels(10.0).watts(800.0)) == pytest.approx(1600 * 0.944)
    assert float(Panels(10.0).watts(0.0)) == 0.0
    with pytest.raises(InputError):
        Panels(-1.0)
    for latitude, longitude in ((90.5, 0.0), (0.0, 181.0), (float("nan"), 0.0)):
        with pytest.raises(InputError):
            zenith(0.0, latitude, longitude)


def test_clearness_stays_in_the_weather_that_the_sky_prefers() -> None:
    means = [clearness(np.random.default_rng(1), 60 * 24 * 60, prefers=name).mean() for name in ("overcast", "", "clear")]
    assert means[0] < means[1] < means[2]
    assert np.array_equal(clearness(np.random.default_rng(1), 100), clearness(np.random.default_rng(1), 100))
    with pytest.raises(InputError, match="weather"):
        clearness(np.random.default_rng(1), 10, prefers="hail")


def sky(seed: int, latitude: float, weather: str, days: int = 2) -> Any:
    rng = np.random.default_rng(seed)
    start = 1.7e9 - 1.7e9 % 86400 + 86400 * int(rng.integers(0, 365))
    return over((latitude, 0.0), start, 1440 * days, clearness(rng, length(1440 * days), prefers=weather), Panels(1.0))


def test_forecasts_are_zero_at_night_and_see_no_future() -> None:
    sun = sky(0, 52.0, "broken")
    _power, clear = sun.cells
    many = sun.slots // CELL
    night = np.stack([clear[SEEN + j : SEEN + j + many] == 0 for j in range(AHEAD)], 1)
    for method in METHODS:
        for level in (0.1, 0.3, 0.7, 0.9):
            found = Forecaster.shipped(method).watts(sun, level)
            assert found.shape == (many, AHEAD)
            assert (found[night] == 0).all()
            assert (found >= 0).all()
        # What comes after cell k changes nothing in the forecasts up to it.
        cut = PAST + 60 * CELL
        changed = type(sun)(np.concatenate([sun.watts[:cut], 0 * sun.watts[cut:]]), sun.clear_w)
        assert np.array_equal(Forecaster.shipped(method).watts(changed, 0.3)[:61], Forecaster.shipped(method).watts(sun, 0.3)[:61])
    low, high = (Forecaster.shipped().watts(sun, level) for level in (0.1, 0.9))
    assert (low <= high + 1e-9).all()


def test_the_learned_forecast_is_no_worse_than_persistence() -> None:
    errors: dict[str, list[float]] = {method: [] for method in METHODS}
    for latitude, weather in ((35.0, "clear"), (52.0, "broken"), (-35.0, "overcast")):
        for seed in range(6):
            sun = sky(100 + seed, latitude, weather)
            for method in METHODS:
                errors[method].append(nmae(Forecaster.shipped(method).watts(sun, 0.5), sun))
            assert nmae(perfect(sun), sun) == 0.0
    assert np.mean(errors["lstm"]) <= np.mean(errors["persistence"]) < np.mean(errors["climatology"])


def test_quantiles_hold_what_they_promise() -> None:
    below = []
    for seed in range(8):
        sun = sky(200 + seed, 45.0, "")
        power, clear = sun.cells
        many = sun.slots // CELL
        day = clear[SEEN + 4 : SEEN + 4 + many] > 0.02 * clear.max()
        found = Forecaster.shipped().watts(sun, 0.3)[:, 4]
        below.append((power[SEEN + 4 : SEEN + 4 + many] < found)[day].mean())
    assert 0.15 < np.mean(below) < 0.45


def test_the_frozen_lstm_is_pytorchs() -> None:
    torch = pytest.importorskip("torch")
    model = obtain(GreenK8s().recipe())
    watts, clear = sky(7, 40.0, "").cells
    seen = windows(watts, clear)[:20]
    lstm = torch.nn.LSTM(2, 32, batch_first=True)
    head = torch.nn.Linear(32, 96)
    arrays = {name.removeprefix("clearness."): torch.from_numpy(np.array(a)) for name, a in model.arrays.items() if name != "climatology"}
    lstm.load_state_dict({name.removeprefix("encoder."): a for name, a in arrays.items() if name.startswith("encoder.")})
    head.load_state_dict({name.removeprefix("head."): a for name, a in arrays.items() if name.startswith("head.")})
    with torch.no_grad():
        theirs = head(lstm(torch.from_numpy(seen))[0][:, -1]).numpy()
    assert np.abs(model.frozen()["clearness"](seen) - theirs).max() < 1e-4
    assert (np.diff(uncrossed(theirs.reshape(20, 24, 4).astype(float)), axis=-1) >= 0).all()


def test_clearness_is_held_at_night() -> None:
    found, day = clearness_of(np.array([0.0, 5.0, 0.0, 0.0, 8.0]), np.array([0.0, 10.0, 0.0, 0.0, 10.0]))
    assert found.tolist() == [0.5, 0.5, 0.5, 0.5, 0.8]
    assert day.tolist() == [False, True, False, False, True]


def test_equal_seeds_train_equal_forecasters_on_own_days() -> None:
    from armillary.scheduling.green.forecasting.train import trained

    days = [sky(9, 30.0, "broken", days=4).cells]
    a, b = (trained(days, 3, seed=1) for _ in range(2))
    assert a.digest == b.digest
    assert a.digest != trained(days, 3, seed=2).digest


def test_a_sun_without_light_has_no_forecast_error() -> None:
    work = work_of(nodes_of(), pods_of({}), hours=3)
    with pytest.raises(InputError, match="no power"):
        nmae(Forecaster.shipped("persistence").watts(work.sun, 0.5), work.sun)
    bright = work_of(nodes_of(), pods_of({}), hours=24, sun=noon_sun)
    assert nmae(perfect(bright.sun), bright.sun) == 0.0
