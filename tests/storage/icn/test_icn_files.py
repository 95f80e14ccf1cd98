"""Topologies, prices, catalogues and requests from files, the errors for bad ones, and advice that is based on them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from test_icn_strategies import made

from armillary.errors import InputError
from armillary.storage import icn

ZOO = """graph [
  Network "Small"
  node [ id 0 label "Paris" Longitude 2.35 Latitude 48.86 ]
  node [ id 1 label "Lyon" Longitude 4.84 Latitude 45.76 ]
  node [ id 2 label "Nice" Longitude 7.27 Latitude 43.70 ]
  edge [ source 0 target 1 LinkSpeedRaw 10000000000.0 ]
  edge [ source 1 target 2 ]
]
"""
TIER = """[[tiers]]
name = 'x'\nshare = 0.7\nprice = 1\nlifetime = 1\nidle = 0\nendurance = 1
read_energy = 0\nwrite_energy = 0\nlatency = 0\nbandwidth = 1
"""
REQUESTS = "time_s,receiver,content,size,class\n0.5,edge,a,1000,gold\n1,edge,b,2000,bronze\n2,edge,a,1000,gold\n"


def test_abilene_is_the_network_that_it_is() -> None:
    found = icn.built_in("abilene")
    assert (len(found), len(found.ends)) == (11, 14)
    ends = {frozenset((found.names[a], found.names[b])) for a, b in found.ends}
    assert frozenset({"Chicago", "NewYork"}) in ends
    assert frozenset({"Seattle", "NewYork"}) not in ends
    # The great-circle distance is 1,146 km, which takes 7.4 ms one way.
    at = next(i for i, (a, b) in enumerate(found.ends) if {found.names[a], found.names[b]} == {"Chicago", "NewYork"})
    assert found.latency[at] == pytest.approx(1146 * 5e-6 * 1.3)


@pytest.mark.parametrize(("name", "nodes"), [("line", 3), ("tree", 127), ("grid", 25), ("isp", 79), ("web", 1000)])
def test_built_in_networks(name: str, nodes: int) -> None:
    found = icn.built_in(name)
    assert len(found) == nodes
    routes = found.routes(icn.Prices())
    for receiver in found.receivers[:5]:
        at, hops = int(receiver), 0
        while at != nodes:
            at = int(routes.toward[at, nodes])
            hops += 1
        assert hops < 40


def test_shortest_paths_against_networkx() -> None:
    networkx = pytest.importorskip("networkx")
    found = icn.built_in("isp")
    graph = networkx.Graph()
    for (a, b), latency in zip(found.ends.tolist(), found.latency):
        graph.add_edge(a, b, weight=latency)
    routes = found.routes(icn.Prices())
    for a in range(0, 79, 7):
        for b in range(0, 79, 5):
            at, far = a, 0.0
            while at != b:
                far += routes.latency[at, routes.toward[at, b]]
                at = int(routes.toward[at, b])
            assert far == pytest.approx(networkx.shortest_path_length(graph, a, b, weight="weight"))


def test_the_topology_zoo(tmp_path: Path) -> None:
    networkx = pytest.importorskip("networkx")
    (tmp_path / "small.gml").write_text(ZOO)
    found = icn.read_topology(tmp_path / "small.gml")
    assert found.names == ("Paris", "Lyon", "Nice")
    # Paris and Lyon are 392 km apart.
    assert found.latency[0] == pytest.approx(392e3 / 1e3 * 5e-6 * 1.3, rel=0.02)
    assert found.bandwidth[0] == 1.25e9
    graph = networkx.read_gml(tmp_path / "small.gml", label="id")
    networkx.write_graphml(graph, tmp_path / "small.graphml")
    assert icn.read_topology(tmp_path / "small.graphml").latency == pytest.approx(found.latency)
    assert icn.from_networkx(graph).names == found.names


def test_requests_and_catalogues(tmp_path: Path) -> None:
    (tmp_path / "r.csv").write_text(REQUESTS)
    (tmp_path / "c.csv").write_text("content,size,class,source\na,5000,silver,core\nb,7,gold,core\n")
    plain = icn.read_network(tmp_path / "r.csv", icn.built_in("line"), icn.Prices(), warm=0.0)
    assert plain.catalogue.size.tolist() == [1000, 2000]
    assert plain.catalogue.service.tolist() == [0, 2]
    listed = icn.read_network(tmp_path / "r.csv", icn.built_in("line"), icn.Prices(), catalogue=tmp_path / "c.csv", share=2.0, warm=0.0)
    assert listed.catalogue.size.tolist() == [5000, 7]
    assert icn.CostBased().simulate(listed).usage.latency.shape == (3,)


READERS = {
    "r.csv": lambda path: icn.read_network(path, icn.built_in("line"), icn.Prices()),
    "t.csv": icn.read_topology,
    "t.gml": icn.read_topology,
    "p.toml": icn.read_prices,
}


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("r.csv", "time_s,receiver,content\n1,edge,a\n0,edge,a\n", r'r\.csv:3: column "time_s": found "0" after 1.*do not decrease'),
        ("r.csv", "time_s,receiver,content\n1,nowhere,a\n", r"r\.csv:2: .*nowhere"),
        ("r.csv", "time_s,receiver\n1,edge\n", r"r\.csv:1: .*expected time_s, receiver, content"),
        ("r.csv", "time_s,receiver,content,size\n1,edge,a,0\n", r'r\.csv:2: column "size": found "0"; .*from 1 to'),
        ("r.csv", "time_s,receiver,content,class\n1,edge,a,platinum\n", r"r\.csv:2: .*platinum"),
        ("t.csv", "a,b,latency_ms\nx,y,-1\n", r't\.csv:2: column "latency_ms": found "-1"'),
        ("t.csv", "a,b,latency_ms,bandwidth_gbps,price_per_GB\nx,y,1,10,-0.1\n", r't\.csv:2: column "price_per_GB": found "-0.1"'),
        ("t.csv", "a,b,latency_ms\nx,y,1\nu,v,1\n", "no path from the node u"),
        ("t.csv", "a,b,latency_ms,bandwidth_gbps\nx,y,1,0\n", "bandwidth 0"),
        ("t.gml", "graph [ node", r"t\.gml"),
        ("p.toml", "electricity = -1", "electricity"),
        ("p.toml", "speed = 1", "speed"),
        ("p.toml", "classes = []", "no classes"),
        ("p.toml", TIER * 2, "add up to 1.4"),
        ("p.toml", "[[tiers", "p.toml"),
    ],
)
def test_bad_files(tmp_path: Path, name: str, text: str, said: str) -> None:
    if name == "t.gml":
        pytest.importorskip("networkx")
    (tmp_path / name).write_text(text)
    with pytest.raises(InputError, match=said):
        READERS[name](tmp_path / name)


def test_a_content_without_a_source_and_a_receiver_without_a_node(tmp_path: Path) -> None:
    (tmp_path / "r.csv").write_text(REQUESTS)
    (tmp_path / "c.csv").write_text("content,size,class,source\na,5000,silver,core\n")
    with pytest.raises(InputError, match=r'r\.csv:3: .*"b"'):
        icn.read_network(tmp_path / "r.csv", icn.built_in("line"), icn.Prices(), catalogue=tmp_path / "c.csv")
    with pytest.raises(InputError, match=r"expected \.graphml"):
        icn.read_topology(tmp_path / "t.txt")
    with pytest.raises(InputError, match="nobody"):
        icn.topology([("a", "b", 0.1)], ["nobody"])


def test_prices_keep_what_a_file_leaves_out(tmp_path: Path) -> None:
    (tmp_path / "p.toml").write_text("electricity = 0.3\n")
    assert icn.read_prices(tmp_path / "p.toml").electricity == 0.3
    assert icn.read_prices(tmp_path / "p.toml").tiers == icn.Prices().tiers


def test_advice_puts_what_is_asked_for_most_at_the_edge() -> None:
    line = icn.built_in("line")
    rates = np.zeros((3, 3))
    rates[0] = [1.0, 0.1, 0.0]
    table = icn.placement(line, rates, np.full(3, 10**6), capacity=np.full((3, 3), 10**6))
    first = table.row(0, named=True)
    assert (first["content"], first["node"]) == (0, "edge")
    assert 2 not in table["content"]
    assert (table["balance"] > 0).all()
    assert icn.placement(line, np.zeros((3, 3)), np.full(3, 10**6), capacity=np.full((3, 3), 10**6)).is_empty()


def test_advice_is_as_cheap_as_the_optimum() -> None:
    from armillary.storage.icn.optimal import best_placement
    from armillary.storage.icn.simulation.replay import NOWHERE, on_path

    network = made("line", 2, contents=8, requests=4000, warm=0, alpha=1.0, share=1.5)
    rates = np.zeros((3, 8))
    np.add.at(rates, (network.requests.receiver, network.requests.content), 1 / float(network.requests.time[-1] - network.requests.time[0]))
    c = network.catalogue
    table = icn.placement(network.topology, rates, c.size, capacity=network.capacity, services=c.service, origins=c.origin, stay=1e12)
    names = [tier.name for tier in network.prices.tiers]
    placed = (
        table["content"].to_numpy(), np.array([network.topology.names.index(n) for n in table["node"]]), np.array([names.index(t) for t in table["tier"]]),
    )  # fmt: skip
    ours = on_path(network, NOWHERE, placed=placed).bill.total
    best = on_path(network, NOWHERE, placed=best_placement(network)).bill.total
    assert best * (1 - 1e-9) <= ours <= 1.1 * best


def test_what_other_hardware_would_cost() -> None:
    network = made("abilene", 2, contents=200, requests=5000, warm=1000, alpha=0.9, share=0.05)
    tiers = icn.Prices().tiers
    table = icn.what_if(network, tiers=(tiers[0].model_copy(update={"share": 1.0}),))
    assert table["hardware"].to_list() == ["now", "then"]
    assert table["cost_per_GB"][0] != table["cost_per_GB"][1]
    same = icn.what_if(network, tiers=tiers)
    assert same["cost_per_GB"][0] == pytest.approx(same["cost_per_GB"][1], rel=1e-9)


def test_a_node_without_a_link_is_named() -> None:
    networkx = pytest.importorskip("networkx")
    graph = networkx.Graph([("a", "b"), ("b", "c")])
    graph.add_node("alone")
    with pytest.raises(InputError, match="no path from the node alone"):
        icn.from_networkx(graph)


@pytest.mark.parametrize(("what", "value"), [("content", -3), ("content", 99), ("receiver", -1), ("receiver", 77)])
def test_a_request_outside_the_network_is_named(what: str, value: int) -> None:
    from dataclasses import replace

    network = icn.generate(
        icn.built_in("line"), icn.Prices(), np.random.default_rng(0), contents=4, requests=10, warm=0, alpha=1.0, share=1.0
    )
    wrong = getattr(network.requests, what).copy()
    wrong[5] = value
    with pytest.raises(InputError, match=f"found the {what} {value};"):
        replace(network, requests=replace(network.requests, **{what: wrong}))
