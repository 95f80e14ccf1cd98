"""The simulator against theory: saturation by channel loads, latencies of an empty network, mean hops, bounds of Valiant."""

from __future__ import annotations

from typing import Literal

import numpy as np
import pytest

from armillary.errors import InputError
from armillary.network.routing import Dragonfly, Messages, Min, Piar, Valiant, channel_loads, preset, replay, saturation, simulate


@pytest.mark.parametrize(("name", "expected", "cycles"), [("df-72", 0.125, 6000), ("df-1056", 0.03125, 3000)])
def test_min_on_adversarial_traffic_accepts_one_over_a_p(name: str, expected: float, cycles: int) -> None:
    net = preset(name)
    played = simulate(net, Min(), "adversarial:1", 0.3, cycles=cycles, warm_up=cycles // 2, until_arrived=False)
    assert played.accepted == pytest.approx(expected, rel=0.01)
    assert channel_loads(net, Min(), "adversarial:1").saturation == pytest.approx(expected)


def test_latency_of_an_empty_network_is_that_of_the_links_plus_one_cycle_per_router() -> None:
    net = preset("df-72")
    t = net.tables
    seen = set()
    for target in range(1, 72):
        played = replay(net, Min(), _messages([0], [target], [1]))
        router, other = 0, int(net.node_router[target])
        hops, links = int(played.packet_hops), 0
        if net.group[other] == 0:
            links = 10 * (other != 0)
        else:
            channel = t.channels[t.channel_start[int(net.group[other])]]
            links = 15 + 10 * int(t.router[channel] != router) + 10 * int(t.router[t.peer[channel]] != other)
        assert played.latency == links + (hops + 1) * 1
        seen.add(hops)
    assert seen == {0, 1, 2, 3}


def test_a_longer_decision_adds_to_every_router_and_takes_no_throughput() -> None:
    net = preset("df-72")
    plain, long = Piar(theta=1e12), Piar(theta=1e12, decision_cycles=3)
    for target in (1, 2, 40):
        one, other = (replay(net, routing, _messages([0], [target], [1])) for routing in (plain, long))
        assert other.latency == one.latency + 3 * (one.packet_hops + 1)
    one, other = (simulate(net, routing, "adversarial:1", 1.0, cycles=3000, until_arrived=False, buffer=64) for routing in (plain, long))
    assert other.accepted == pytest.approx(one.accepted, rel=0.01)


def test_a_packet_of_sixteen_flits_takes_fifteen_cycles_longer() -> None:
    net = preset("df-72")
    one, all_of_it = (replay(net, Min(), _messages([0], [71], [n]), flits=16) for n in (1, 16))
    assert all_of_it.latency == one.latency + 15
    assert all_of_it.channel_load.sum() > one.channel_load.sum()


@pytest.mark.parametrize(("name", "expected"), [("df-72", 2.3380), ("df-1056", 2.6957)])
def test_mean_hops_of_min_on_uniform_traffic(name: str, expected: float) -> None:
    net = preset(name)
    assert simulate(net, Min(), "uniform", 0.2, cycles=2000).hops == pytest.approx(expected, rel=0.01)
    assert channel_loads(net, Min(), "uniform").hops == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize("to", ["group", "router"])
def test_valiant_never_accepts_more_than_its_channels_carry(to: Literal["group", "router"]) -> None:
    net = preset("df-72")
    assert simulate(net, Valiant(to), "adversarial:h", 1.0, cycles=5000, until_arrived=False).accepted <= 0.5 * 1.02
    for traffic in ("adversarial:1", "adversarial:h", "shift:8"):
        exact = channel_loads(net, Valiant(to), traffic)
        found = simulate(net, Valiant(to), traffic, 1.0, cycles=5000, until_arrived=False)
        assert found.accepted <= 1.02 * exact.saturation, traffic
        assert found.accepted <= 0.51


@pytest.mark.parametrize(
    ("routing", "traffic"), [(Min(), "uniform"), (Valiant(), "adversarial:1"), (Valiant("router"), "adversarial:h"), (Min(), "shift:9")]
)
def test_loads_of_channels_are_the_exact_ones(routing: Min | Valiant, traffic: str) -> None:
    net = preset("df-72")
    exact = channel_loads(net, routing, traffic)
    played = simulate(net, routing, traffic, 0.1, cycles=30_000, until_arrived=False)
    # One standard deviation of a Bernoulli count is at most 0.0024 here, and there are 180 channels.
    assert played.channel_load == pytest.approx(0.1 * exact.load, abs=4.5 * 0.0024)
    assert played.channel_load.sum() == pytest.approx(0.1 * exact.load.sum(), rel=0.01)
    assert played.hops == pytest.approx(exact.hops, rel=0.01)


def test_exact_loads_by_hand() -> None:
    # Two groups of two routers with one node each, one channel per pair of groups (a·h = 2 ports, two parallel channels).
    net = Dragonfly(1, 2, 1, 2)
    exact = channel_loads(net, Min(), "adversarial:1")
    by_kind = net.channels["is_global"].to_numpy()
    # Each node sends half of its packets to each node of the other group, over each channel with one half.
    assert exact.load[by_kind].tolist() == [0.5 * 2] * 4
    assert exact.load[~by_kind].tolist() == [0.5 + 0.5] * 4


def test_only_oblivious_routings_have_exact_loads() -> None:
    with pytest.raises(InputError, match="adapts to queues"):
        channel_loads(preset("df-72"), Piar(), "uniform")
    with pytest.raises(InputError, match="no fixed matrix"):
        channel_loads(preset("df-72"), Min(), "bursts")


def test_the_saturation_point_is_bisected() -> None:
    net = preset("df-72")
    assert saturation(net, Min(), "adversarial:1", cycles=3000) == pytest.approx(0.125 / 0.95, abs=0.012)
    # Every router of the only group sends to the next one, so no link has more than one source.
    assert saturation(Dragonfly(1, 4, 1, 1), Min(), "shift:1", cycles=1500, within=0.1) == 1.0


def test_parallel_channels_share_the_load() -> None:
    net = Dragonfly(2, 4, 2, 5)
    played = simulate(net, Min(), "adversarial:1", 1.0, cycles=4000, until_arrived=False)
    assert played.accepted == pytest.approx(0.25, rel=0.02)


def test_a_long_link_is_kept_busy_by_its_buffer() -> None:
    net = Dragonfly(1, 2, 1, local_cycles=10, global_cycles=100)
    played = simulate(net, Min(), "adversarial:1", 1.0, cycles=6000, warm_up=3000, until_arrived=False)
    assert played.accepted == pytest.approx(0.5, rel=0.01)
    short = simulate(net, Min(), "adversarial:1", 1.0, cycles=6000, warm_up=3000, until_arrived=False, buffer=32)
    # A credit is away for two latencies and the cycle between queue and link.
    assert short.accepted == pytest.approx(0.5 * 32 / 201, rel=0.02)


def _messages(source: list[int], target: list[int], flits: list[int]) -> Messages:
    leaving, arriving, size = (np.array(one, np.int64) for one in (source, target, flits))
    return Messages(leaving, arriving, size, np.zeros(len(source), np.int64))
