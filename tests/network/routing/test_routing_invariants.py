"""What must hold for every routing: nothing is lost, nothing waits in a circle, and the same seed gives the same run."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from armillary import catalogue
from armillary.errors import InputError
from armillary.network.routing import Dragonfly, Min, Par, Piar, Valiant, preset, simulate
from armillary.network.routing.analysis.dependencies import dependencies
from armillary.network.routing.simulation.play import _advance, _seeds, _start
from armillary.network.routing.simulation.state import CYCLE, occupancy
from armillary.network.routing.traffic.synthetic import traffic_of

ROUTINGS: dict[str, Any] = {name: catalogue.arena("network/routing").make(name) for name in catalogue.arena("network/routing").techniques}
MORE = {
    "valiant to routers": Valiant("router"), "class a": Piar(classes="a"), "class b": Piar(classes="b"), "raw": Piar(raw_credits=True),
    "no exchange": Piar(exchange=False), "not progressive": Piar(progressive=False), "slow": Piar(decision_cycles=2, status_period=37),
    "no local detour": Piar(local_detour=False), "hops ignored": Piar(weigh_hops=False), "eager": Piar(theta=0, t=-1000),
}  # fmt: skip


@pytest.mark.parametrize("name", [*ROUTINGS, *MORE])
@pytest.mark.parametrize("flits", [1, 5])
def test_packets_flits_and_credits_are_conserved(name: str, flits: int) -> None:
    net, routing = Dragonfly(2, 3, 1), {**ROUTINGS, **MORE}[name]
    drawn = traffic_of("mixed:0.3", net).drawn(net, 1.0, flits, np.random.default_rng(0))
    state = _start(
        net, routing, _seeds(3), 1200, 100, flits, 32, *drawn, status_cycles=0, record=False, max_bytes=1 << 28, source_packets=200
    )
    links = np.repeat(net.tables.kind != 0, 5)
    for until in range(200, 1201, 200):
        state, _ = _advance(routing, state, until, 0.0)
        credits, inside = occupancy(state)
        assert ((credits + inside)[links] == 32).all()
        assert (state.credit >= 0).all()
        # Every packet is free, queued, in an output queue or on a link.
        n = state.n
        packets = sum(_length(state, head) for head in (*state.queue[:, 0], *state.port[:, 8], *state.arriving[:, 0]))
        from armillary.network.routing.simulation import state as s

        assert n[s.INJECTED] == n[s.ARRIVED] + packets
        assert n[s.FREE_COUNT] + packets == len(state.packet)
        assert n[s.ALL_OFFERED] == n[s.DROPPED] + n[s.BACKLOG] + n[s.INJECTED]
        assert state.source_at[:, 1].sum() == n[s.BACKLOG]
        assert n[s.DROPPED] > 0 or until < 1200 or flits > 1
        used, wait = state.port[:, 7], state.port[:, 6]
        assert (used >= 0).all()
        assert (wait >= 0).all()
        taken = (32 - state.credit.reshape(-1, 5)).sum(1)
        assert (used + state.port[:, 10] == taken)[net.tables.kind != 0].all(), "credits in use are those of sent flits and queued ones"
        assert n[CYCLE] == until


def _length(state: Any, head: int) -> int:
    count = 0
    while head >= 0:
        count, head = count + 1, int(state.packet[head, 0])
    return count


@pytest.mark.parametrize("name", [*ROUTINGS, *MORE])
def test_no_channel_waits_for_itself(name: str) -> None:
    routing = {**ROUTINGS, **MORE}[name]
    graph = nx.DiGraph()
    for traffic in ("mixed:0.3", "phases:100"):
        played = simulate(Dragonfly(2, 3, 2, 5), routing, traffic, 1.0, cycles=2500, until_arrived=False, record=True)
        graph.update(dependencies(played))
    assert graph.number_of_edges() > 20
    assert nx.is_directed_acyclic_graph(graph)


@pytest.mark.slow
@pytest.mark.parametrize("name", [*ROUTINGS, *MORE])
def test_no_channel_waits_for_itself_in_a_long_saturated_run(name: str) -> None:
    routing = {**ROUTINGS, **MORE}[name]
    for traffic in ("adversarial:1", "mixed:0.5", "uniform"):
        played = simulate(preset("df-72"), routing, traffic, 1.0, cycles=50_000, until_arrived=False, record=True, max_bytes=1 << 31)
        assert nx.is_directed_acyclic_graph(dependencies(played))
        now = int(played.state.n[CYCLE])
        assert now - _injected(played).min(initial=now) < 100_000
        assert played.accepted > 0.1, "packets still move"


def _injected(played: Any) -> np.ndarray:
    heads = [head for head in (*played.state.queue[:, 0], *played.state.port[:, 8], *played.state.arriving[:, 0]) if head >= 0]
    return played.state.packet[np.array(heads, int), 4]


@pytest.mark.parametrize("name", list(ROUTINGS))
@pytest.mark.parametrize("traffic", ["uniform", "hotspot:2", "phases:300", "bursts:50"])
def test_everything_that_is_sent_at_a_low_load_arrives(name: str, traffic: str) -> None:
    played = simulate(preset("df-72"), ROUTINGS[name], traffic, 0.05, cycles=900, warm_up=300)
    assert not played.unfinished
    assert played.accepted == pytest.approx(played.offered, rel=0.25)
    assert played.counts["dropped"] == 0
    assert played.arrived >= 0.95 * played.counts["created"] / 3


@pytest.mark.parametrize("name", list(ROUTINGS))
def test_paths_have_at_most_as_many_hops_as_the_stages_allow(name: str) -> None:
    most = {"min": 3, "par": 6, "par-ph": 6, "auto": 6}.get(name, 5)
    played = simulate(preset("df-72"), ROUTINGS[name], "mixed:0.5", 1.0, cycles=1500, until_arrived=False)
    assert 3 <= played.counts["most_hops"] <= most


def test_piar_detours_at_most_once_and_takes_at_most_six_hops() -> None:
    for routing in (Piar(), *(one for one in MORE.values() if isinstance(one, Piar))):
        played = simulate(preset("df-72"), routing, "adversarial:h", 1.0, cycles=1200, until_arrived=False)
        assert played.counts["most_hops"] <= 5, "the second look takes class A only, so not even six"
        assert int(played.state.packet[:, 6].max()) <= 2, "two global hops are one detour"


def same(one: Any, other: Any) -> bool:
    ignored = ("settings", "own", "real", "status", "source")  # The ring of waiting packets has cells that nobody wrote.
    mine = all(np.array_equal(a, b) for name, a, b in zip(one.state._fields, one.state, other.state) if name not in ignored and name != "n")
    from armillary.network.routing.simulation.state import DECISION, STATUS_CYCLES

    columns = [i for i in range(len(one.state.n)) if i not in (DECISION, STATUS_CYCLES)]
    return mine and bool((one.state.n[columns] == other.state.n[columns]).all())


@pytest.mark.parametrize("traffic", ["uniform", "adversarial:1", "mixed:0.5"])
def test_piar_that_finds_every_port_free_is_min_to_the_bit(traffic: str) -> None:
    net = preset("df-72")
    runs = [simulate(net, routing, traffic, 0.9, cycles=2000, seed=5, until_arrived=False) for routing in (Min(), Piar(theta=1e12))]
    assert same(*runs)
    assert not same(runs[0], simulate(net, Piar(), traffic, 0.9, cycles=2000, seed=5, until_arrived=False))


def test_the_traffic_does_not_depend_on_the_routing() -> None:
    net = preset("df-72")
    runs = [simulate(net, routing, "mixed:0.4", 0.7, cycles=1500, seed=9, until_arrived=False) for routing in ROUTINGS.values()]
    assert len({int(run.state.rng[0]) for run in runs}) == 1
    assert len({run.counts["created"] for run in runs}) == 1


def test_the_same_seed_gives_the_same_run_in_another_process() -> None:
    code = (
        "from armillary.network.routing import *\n"
        "r = simulate(preset('df-72'), Piar(), 'mixed:0.5', 0.8, cycles=1500, seed=4)\n"
        "print(r.accepted, r.latency, r.hops, r.packet_hops, list(map(int, r.state.rng)))"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    r = simulate(preset("df-72"), Piar(), "mixed:0.5", 0.8, cycles=1500, seed=4)
    assert out == f"{r.accepted} {r.latency} {r.hops} {r.packet_hops} {[int(x) for x in r.state.rng]}\n"
    assert simulate(preset("df-72"), Piar(), "mixed:0.5", 0.8, cycles=1500, seed=5).latency != r.latency


def test_more_packets_than_rows_change_nothing() -> None:
    # The rows for packets double while it runs: long buffers hold more packets than there are rows at first.
    net = Dragonfly(2, 3, 1, local_cycles=40, global_cycles=60)
    played = simulate(net, Valiant(), "adversarial:1", 1.0, cycles=6000, until_arrived=False, buffer=2000)
    assert len(played.state.packet) > 4 * len(net.tables.router) + 2 * net.nodes + 1024
    assert played.counts["inside"] > 1024


@pytest.mark.parametrize("routing", [Min(), Par(), Piar()], ids=["min", "par", "piar"])
def test_turning_all_groups_changes_no_statistic_on_uniform_traffic(routing: Any) -> None:
    net = preset("df-72")
    turn = (np.arange(36) + 4 * 4) % 36
    from dataclasses import replace

    turned = replace(net, node_router=np.sort(net.node_router), a=turn[net.a], b=turn[net.b])
    one, other = (simulate(each, routing, "uniform", 0.6, cycles=6000, seed=2) for each in (net, turned))
    assert other.latency == pytest.approx(one.latency, rel=0.02)
    assert other.hops == pytest.approx(one.hops, rel=0.01)


@settings(max_examples=15, deadline=None)
@given(st.sampled_from([*ROUTINGS]), st.integers(0, 1000), st.floats(0.0, 0.35))
def test_failed_channels_are_never_used(name: str, seed: int, share: float) -> None:
    net = preset("df-72").fail_share(share, np.random.default_rng(seed))
    played = simulate(net, ROUTINGS[name], "adversarial:1", 0.5, cycles=600, seed=seed, until_arrived=False)
    assert played.state.sent[net.tables.dead].sum() == 0
    assert played.arrived > 0


def test_two_groups_have_no_detours_and_one_group_has_no_channels() -> None:
    for name, routing in ROUTINGS.items():
        for net, traffic in ((Dragonfly(2, 3, 1, 2), "adversarial:1"), (Dragonfly(3, 5, 1, 1), "uniform"), (Dragonfly(2, 1, 2), "uniform")):
            played = simulate(net, routing, traffic, 0.2, cycles=600)
            assert played.arrived > 0, name
            assert played.counts["dropped"] == 0, name


def test_full_source_queues_drop_and_say_so() -> None:
    played = simulate(preset("df-72"), Min(), "adversarial:1", 1.0, cycles=6000, warm_up=1000)
    assert played.saturated
    assert played.latency_at_least > 3000
    assert np.isfinite(played.quantile_at_least(0.99))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"load": 0.0}, "load: found 0.0"), ({"load": 1.5}, "load: found 1.5"), ({"load": float("nan")}, "load: found nan"),
        ({"cycles": 0}, "cycles: expected"), ({"warm_up": 600}, "warm_up: found 600"), ({"flits": 17}, "flits: found 17"),
        ({"buffer": 0}, "buffer: found 0"), ({"traffic": "nonsense"}, 'unknown traffic "nonsense"'),
        ({"traffic": "adversarial:9"}, "from 0 to 8"), ({"traffic": "mixed:2"}, "from 0 to 1"), ({"traffic": "mixed:nan"}, "from 0 to 1"),
        ({"traffic": "hotspot:73"}, "from 1 to 72"), ({"traffic": "shift:0"}, "from 1 to 71"), ({"traffic": "uniform:1"}, "without a number"),
        ({"traffic": "phases:x"}, "a number after the colon"), ({"max_bytes": 1000}, "max_bytes allows"),
    ],
)  # fmt: skip
def test_bad_arguments_say_what_is_wrong(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as error:
        simulate(preset("df-72"), Min(), **{"traffic": "uniform", "load": 0.5, "cycles": 500, **arguments})
    assert message.replace("cycles: expected", "cycles") in str(error.value)
