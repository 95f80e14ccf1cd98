"""Many stations in flat arrays are what single stations are, also when their rates change."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from armillary.engine.compiled import advance, depart, join, next_departure, processor_sharing, set_rate, station
from armillary.engine.stations import depart_at, join_at, set_rate_at, stations
from armillary.errors import InputError
from armillary.kernels import kernel


@kernel
def _join(s, i, now, work, job):
    return join_at(s, i, now, work, job)


@kernel
def _depart(s, i):
    return depart_at(s, i)


@kernel
def _set_rate(s, i, now, rate):
    set_rate_at(s, i, now, rate)


def test_a_rate_that_changes_by_hand():
    s = station(1.0, 4)
    join(s, 0.0, 2.0, 7)
    join(s, 0.0, 4.0, 8)
    assert next_departure(s) == 4.0, "each gets half"
    set_rate(s, 2.0, 4.0)  # each has received 1, and gets 2 from now on
    assert next_departure(s) == 2.5
    assert depart(s) == 7
    assert next_departure(s) == 3.0, "2 are left, at the whole rate of 4"
    set_rate(s, 2.75, 0.5)
    assert next_departure(s) == 2.75 + 1.0 / 0.5


EVENTS = st.lists(
    st.tuples(st.integers(0, 6), st.floats(0.01, 2.0), st.floats(0.01, 3.0), st.one_of(st.none(), st.floats(0.2, 5.0))), max_size=40
)


@settings(max_examples=80, deadline=None)
@given(EVENTS, st.sampled_from([0.5, 1.0, np.inf]))
def test_many_stations_are_as_many_single_ones(events, most):
    rates = [0.7, 1.0, 3.0, 0.4, 2.0, 1.5, 0.9]
    ours, theirs = stations(np.array(rates), np.full(7, 64), most), [station(rate, 64, most) for rate in rates]
    now, left_ours, left_theirs = 0.0, [], []

    def settle(until):
        while True:
            i = int(ours.winner[1])
            if ours.departs[i] > until:
                break
            left_ours.append((i, _depart(ours, i), float(ours.now[i])))
        for k, s in enumerate(theirs):
            while next_departure(s) <= until:
                left_theirs.append((k, depart(s), float(s.state[2])))

    for number, (i, gap, work, rate) in enumerate(events):
        now += gap
        settle(now)
        if rate is not None:
            _set_rate(ours, i, now, rate)
            set_rate(theirs[i], now, rate)
        assert _join(ours, i, now, work, number)
        join(theirs[i], now, work, number)
    settle(1e9)
    assert sorted((i, job) for i, job, _ in left_ours) == sorted((i, job) for i, job, _ in left_theirs)
    by_job = {job: at for _, job, at in left_theirs}
    assert all(at == pytest.approx(by_job[job], rel=1e-9) for _, job, at in left_ours)
    assert [at for *_, at in left_ours] == sorted(at for *_, at in left_ours), "departures come in order over all stations"
    assert ours.done.sum() == pytest.approx(sum(work for _, _, work, _ in events))


def test_one_station_is_processor_sharing():
    rng = np.random.default_rng(0)
    arrivals, works = np.cumsum(rng.exponential(1, 200)), rng.exponential(0.8, 200)
    expected = processor_sharing(arrivals, works, 1.0)
    s, found, i = stations(np.array([1.0]), np.array([200])), np.zeros(200), 0
    while i < 200 or s.held[0]:
        if i < 200 and arrivals[i] <= s.departs[0]:
            assert _join(s, 0, arrivals[i], works[i], i)
            i += 1
        else:
            at = s.departs[0]
            found[_depart(s, 0)] = at
    np.testing.assert_allclose(found, expected, rtol=1e-10)


def test_a_full_station_says_so_and_odd_ones_are_refused():
    s = stations(np.array([1.0, 1.0]), np.array([1, 2]))
    assert _join(s, 0, 0.0, 1.0, 0)
    assert not _join(s, 0, 0.0, 1.0, 1)
    assert int(s.winner[1]) == 0
    for rates, rooms in (([], []), ([0.0], [1]), ([1.0], [0]), ([np.inf], [1]), ([1.0, 1.0], [1])):
        with pytest.raises(InputError, match="stations"):
            stations(np.array(rates), np.array(rooms, np.int64))
    advance(station(1.0, 1), 5.0)
