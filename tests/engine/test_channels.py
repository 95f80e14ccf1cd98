"""Message channels and clocks: each fault by itself, statistics, and repeatability."""

from __future__ import annotations

import math

import pytest

from armillary.engine import Channel, Clock, Simulation, exponential, uniform
from armillary.errors import InputError


def sent(count=200, gap=1.0, **how):
    sim, got = Simulation(), []
    channel = Channel(sim, lambda m: got.append((sim.now, m)), **how)
    for i in range(count):
        sim.at(i * gap, channel.send, i)
    sim.run()
    return channel, got


def test_a_constant_delay_by_hand():
    _, got = sent(3, delay=0.25)
    assert got == [(0.25, 0), (1.25, 1), (2.25, 2)]


def test_order_is_kept_though_delays_differ():
    _, got = sent(500, gap=0.01, delay=uniform(0.0, 1.0), seed=4)
    assert [m for _, m in got] == list(range(500))
    assert [t for t, _ in got] == sorted(t for t, _ in got)


def test_what_is_held_back_is_overtaken():
    _, got = sent(300, delay=0.1, reorder=0.2, hold=2.5, seed=1)
    assert sorted(m for _, m in got) == list(range(300))
    late = [m for t, m in got if t - m > 1.0]
    assert 30 < len(late) < 90
    assert all(t - m == pytest.approx(2.6) for t, m in got if m in late)


def test_losses_and_copies_come_at_their_rates():
    channel, got = sent(4000, loss=0.25, seed=2)
    assert abs(channel.lost / 4000 - 0.25) < 0.03
    assert len(got) == channel.delivered == 4000 - channel.lost
    channel, got = sent(4000, duplicate=0.1, delay=uniform(0.0, 0.5), seed=2)
    assert abs(len(got) / 4000 - 1.1) < 0.02
    assert sent(50, loss=1.0)[1] == []


def test_what_is_on_the_link_when_it_goes_down_is_lost():
    _, got = sent(10, delay=0.5, down=[(2.25, 4.0), (7.0, 7.4)])
    assert [m for _, m in got] == [0, 1, 4, 5, 6, 8, 9]


def test_a_message_has_its_fate_whatever_others_do():
    every = {m: t for t, m in sent(100, loss=0.3, delay=exponential(0.01, 0.1), seed=7)[1]}
    sim, got = Simulation(), {}
    channel = Channel(sim, lambda m: got.__setitem__(m, sim.now), loss=0.3, delay=exponential(0.01, 0.1), seed=7)
    for i in range(100):
        sim.at(i * 1.0, channel.send, i)
        if i == 50:
            sim.at(i * 1.0, Channel(sim, print, link="another", seed=7, loss=1.0).send, "noise")
    sim.run()
    assert got == every
    assert sent(100, loss=0.3, seed=7, link="other")[1] != sent(100, loss=0.3, seed=7)[1]
    assert sent(100, loss=0.3, seed=8)[1] != sent(100, loss=0.3, seed=7)[1]


def test_a_clock_is_off_and_drifts():
    sim = Simulation()
    clock = Clock(sim, offset=0.5, drift=1e-3)
    sim.run(until=100.0)
    assert clock.read() == pytest.approx(100.6, rel=1e-15)
    assert clock.true(clock.read()) == pytest.approx(100.0, rel=1e-15)
    clock.slew(0.0)
    assert clock.read() == pytest.approx(100.6)
    clock.step(-0.6)
    assert clock.until(110.0) == pytest.approx(10.0)
    assert clock.until(90.0) == 0.0


@pytest.mark.parametrize(
    "how", [{"loss": 1.5}, {"loss": math.nan}, {"duplicate": -1}, {"delay": -1.0}, {"hold": math.nan}, {"down": [(3.0, 1.0)]}]
)
def test_bad_channels_are_input_errors(how):
    with pytest.raises(InputError):
        Channel(Simulation(), print, **how)


def test_bad_clocks_are_input_errors():
    for offset, drift in ((math.nan, 0.0), (0.0, -1.0), (0.0, math.inf)):
        with pytest.raises(InputError):
            Clock(Simulation(), offset, drift)
