"""The features of a day, by hand and against a slow reference: resets, gaps, missing halves, packed temperatures, and windows."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_fleets import by_hand, fleet

from armillary.errors import InputError
from armillary.observability.drives.features.daily import LONGEST_GAP, daily
from armillary.observability.drives.features.windows import ends, flat, flat_names, places
from armillary.observability.drives.fleets.fleet import NEVER, Fleet, assembled, check


def one_drive(days: list[int], raw: list[float], normal: list[float] | None = None, attribute: int = 5) -> Fleet:
    values = np.array(raw, float)[:, None]
    shown = np.full(values.shape, np.nan) if normal is None else np.array(normal, float)[:, None]
    return assembled(
        ["MA1"], np.zeros(1, int), ["1"], np.zeros(len(days), int), np.array(days), np.array([attribute]), values, shown, np.array([NEVER]),
        days=max(days) + 1, known_until=max(days) + 1,
    )  # fmt: skip


def of(found: Fleet, name: str) -> list[float]:
    days = daily(found)
    return days.values[:, days.names.index(name)].tolist()


def test_a_counter_and_its_changes() -> None:
    one = one_drive([0, 1, 2, 3], [0, 3, 3, 10])
    assert of(one, "value_5") == pytest.approx(np.log1p([0, 3, 3, 10]))
    assert of(one, "day_5") == pytest.approx(np.log1p([0, 3, 0, 7]))
    assert of(one, "week_5") == pytest.approx(np.log1p([0, 3, 3, 10]))


def test_a_reset_counts_from_zero() -> None:
    assert of(one_drive([0, 1, 2], [50, 52, 4]), "day_5") == pytest.approx(np.log1p([0, 2, 4]))


def test_a_gauge_may_fall() -> None:
    assert of(one_drive([0, 1], [40, 30], attribute=194), "day_194") == pytest.approx([0, -np.log1p(10)])


def test_a_packed_temperature_is_unpacked() -> None:
    assert of(one_drive([0], [31 + 22 * 65536 + 40 * 2.0**32], attribute=194), "value_194") == pytest.approx([np.log1p(31)])


def test_a_gap_of_three_days_is_filled_and_marked_and_a_longer_one_is_not() -> None:
    one = one_drive([0, 5], [7, 9], [90, 80])
    assert of(one, "value_5") == pytest.approx([*[np.log1p(7)] * 4, 0, np.log1p(9)])
    assert of(one, "normal_5") == pytest.approx([0.9, 0.9, 0.9, 0.9, 0, 0.8])
    assert of(one, "missing") == [0, 1, 1, 1, 1, 0]
    assert of(one, "since_report") == pytest.approx([0, 1 / 3, 2 / 3, 1, 4 / 3, 0])
    assert of(one, "day_5")[-1] == pytest.approx(np.log1p(2))


def test_a_value_that_is_not_reported_is_missing() -> None:
    one = one_drive([0, 1], [np.nan, 2], [np.nan, 99])
    assert of(one, "missing") == [1, 0]
    assert of(one, "value_5") == pytest.approx([0, np.log1p(2)])


def test_after_a_long_gap_a_drive_begins_anew() -> None:
    days = daily(one_drive([0, 1, 2 + LONGEST_GAP], [1, 2, 3]))
    assert days.day.tolist() == [2 + LONGEST_GAP]
    assert daily(one_drive([0, 1, 1 + LONGEST_GAP], [1, 2, 3])).day.tolist() == list(range(2 + LONGEST_GAP))


@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_it_equals_a_slow_reference(data: st.DataObject) -> None:
    days = sorted(data.draw(st.sets(st.integers(0, 25), min_size=1, max_size=20)))
    raw = [data.draw(st.one_of(st.integers(0, 50), st.just(np.nan))) for _ in days]
    found = daily(one_drive(days, raw))
    known, changes, values = np.nan, [], []
    since = 0
    for day in range(days[0], days[-1] + 1):
        value = raw[days.index(day)] if day in days else np.nan
        since = 0 if day in days else since + 1
        if np.isnan(value):
            values.append(known if since <= 3 and not np.isnan(known) else 0)
            changes.append(0)
        else:
            step = 0 if np.isnan(known) else value if value < known else value - known
            changes.append(step)
            values.append(value)
            known = value
    names = found.names
    assert found.values[:, names.index("value_5")] == pytest.approx(np.log1p(values), abs=1e-6)
    assert found.values[:, names.index("day_5")] == pytest.approx(np.log1p(changes), abs=1e-6)
    weeks = [sum(changes[max(1, i - 6) : i + 1]) for i in range(len(changes))]
    assert found.values[:, names.index("week_5")] == pytest.approx(np.log1p(weeks), abs=1e-5)


def test_windows_stay_within_their_drive() -> None:
    one = fleet()
    days = daily(one)
    rows = ends(days, 0, one.days)
    assert days.history[rows].min() == 7
    where = places(days, rows, 30)
    inside = where < len(days.day)
    assert (days.drive[np.minimum(where, len(days.day) - 1)] == days.drive[rows][:, None])[inside].all()
    assert (where[:, -1] == rows).all()
    assert (inside.sum(1) == np.minimum(30, days.history[rows])).all()


def test_rows_for_trees_hold_the_month() -> None:
    raw = [0.0] * 10 + [6.0] * 25
    days = daily(one_drive(list(range(35)), raw, [100.0] * 20 + [90.0] * 15))
    names, rows = flat_names(days, np.array([5])), np.array([9, 10, 34])
    found = flat(days, rows, 1)
    assert found.shape == (3, len(names))
    assert found[:, names.index("peak_5")] == pytest.approx(np.log1p([0, 6, 6]))
    assert found[:, names.index("month_5")] == pytest.approx(np.log1p([0, 6, 6]))
    assert found[:, names.index("often_5")] == pytest.approx([0, 1 / 30, 1 / 30])
    assert found[:, names.index("fall_5")] == pytest.approx([0, 0, 0.1])


def test_a_fleet_is_cut_at_a_day_and_by_drives() -> None:
    one = by_hand([20, None, 40], days=60)
    past = one.until(30)
    assert past.day.max() == 29
    assert past.failure.tolist() == [20, NEVER, NEVER]
    assert (past.days, past.known_until) == (30, 30)
    assert one.last(10).serial == ("2",)
    assert one.of(np.array([0, 2])).serial == ("1", "3")
    assert one.find("MA1", "3") == 2
    with pytest.raises(InputError, match="found no drive MA1/9"):
        one.find("MA1", "9")


def test_two_days_of_a_drive_that_are_one_are_refused() -> None:
    one = by_hand([None])
    day = one.day.copy()
    day[7] = 6
    with pytest.raises(InputError, match="found drive MA1/1 twice on 2018-01-07"):
        check(replace(one, day=day), "log")
