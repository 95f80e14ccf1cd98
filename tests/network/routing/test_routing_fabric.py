"""The network: counts by hand, wiring by its definition, hops against networkx, and what bad networks say."""

from __future__ import annotations

import json
from pathlib import Path

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from armillary import cluster
from armillary.errors import InputError
from armillary.network.routing import Dragonfly, Network, network_of, preset, read_edges
from armillary.network.routing.fabric.dragonfly import ARRANGEMENTS


def routers_graph(net: Network) -> nx.Graph:
    graph = nx.Graph()
    graph.add_nodes_from(range(net.routers))
    graph.add_edges_from(zip(net.a.tolist(), net.b.tolist()))
    return graph


def test_df_1056_has_264_routers_1452_links_and_diameter_3() -> None:
    net = preset("df-1056")
    assert (net.routers, net.nodes, net.links, net.groups, net.global_per_router) == (264, 1056, 1452, 33, 4)
    assert nx.diameter(routers_graph(net)) == 3


@pytest.mark.parametrize(("name", "with_self", "without"), [("df-72", 2.3056, 2.3380), ("df-1056", 2.6932, 2.6957)])
def test_mean_minimal_hops_are_the_known_averages(name: str, with_self: float, without: float) -> None:
    net = preset(name)
    hops = dict(nx.all_pairs_shortest_path_length(routers_graph(net)))
    p = net.nodes // net.routers
    # Shortest paths are also minimal in the sense of this arena here: none of two hops has two global ones in these wirings.
    total = sum(_minimal(net, a, b) for a in range(net.routers) for b in range(net.routers)) * p * p
    assert total / net.nodes**2 == pytest.approx(with_self, abs=1e-4)
    assert total / (net.nodes * (net.nodes - 1)) == pytest.approx(without, abs=1e-4)
    assert all(_minimal(net, 0, b) >= hops[0][b] for b in range(net.routers))


def _minimal(net: Network, a: int, b: int) -> int:
    """Hops with at most one global channel, found without the tables."""
    if net.group[a] == net.group[b]:
        return int(a != b)
    return _over(net)[a, b]


_HOPS: dict[int, np.ndarray] = {}


def _over(net: Network) -> np.ndarray:
    if id(net) not in _HOPS:
        far = np.full((net.routers, net.routers), 99)
        for a, b in zip(net.a[net.is_global].tolist(), net.b[net.is_global].tolist()):
            for one, other in ((a, b), (b, a)):
                own, there = np.flatnonzero(net.group == net.group[one]), np.flatnonzero(net.group == net.group[other])
                far[np.ix_(own, there)] = np.minimum(far[np.ix_(own, there)], 1 + (own != one)[:, None] + (there != other)[None, :])
        _HOPS[id(net)] = far
    return _HOPS[id(net)]


def test_palmtree_port_x_leads_to_group_i_minus_x_minus_1_and_arrives_opposite() -> None:
    a, h = 4, 2
    net = Dragonfly(2, a, h)
    found = {frozenset(pair) for pair in zip(net.a[net.is_global].tolist(), net.b[net.is_global].tolist())}
    expected = {frozenset((i * a + x // h, (i - x - 1) % 9 * a + (a * h - 1 - x) // h)) for i in range(9) for x in range(a * h)}
    assert found == expected


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 3), st.integers(1, 6), st.integers(1, 4), st.sampled_from(ARRANGEMENTS), st.data())
def test_every_pair_of_groups_has_equally_many_channels(p: int, a: int, h: int, arrangement: str, data: st.DataObject) -> None:
    g = data.draw(st.integers(1, a * h + 1))
    net = Dragonfly(p, a, h, g, arrangement=arrangement)
    counts = np.diff(net.tables.channel_start).reshape(g, g)
    assert (counts == counts.T).all()
    assert g == 1 or set(counts[~np.eye(g, dtype=bool)].tolist()) == {a * h // (g - 1)}
    ends = np.bincount(np.concatenate([net.a[net.is_global], net.b[net.is_global]]), minlength=net.routers)
    assert ends.max() <= h
    t = net.tables
    links = np.flatnonzero(t.kind != 0)
    assert (t.peer[t.peer[links]] == links).all(), "the port at the other end leads back"
    assert (t.router[t.peer[links]] != t.router[links]).all()


@pytest.mark.parametrize("arrangement", ARRANGEMENTS)
@pytest.mark.parametrize(("p", "a", "h", "g"), [(2, 4, 2, 9), (2, 4, 2, 5), (1, 3, 2, 4)])
def test_the_wiring_is_that_of_the_cluster(p: int, a: int, h: int, g: int, arrangement: str) -> None:
    links = a * h // (g - 1)
    facts = {
        "armillary": 1,
        "name": "c",
        "group": [{"name": "n", "count": p * a * g, "node": {"nic": [{"network": "net", "rate": "25 GB/s", "count": 1}]}}],
        "network": {
            "net": {
                "topology": "dragonfly",
                "groups": g,
                "switches_per_group": a,
                "endpoints_per_switch": p,
                "links_between_groups": links,
                "global": arrangement,
                "rate": "25 GB/s",
                "latency": {"nic": "1 us", "switch": "25.6 ns", "metre": "5 ns"},
                "length": {"local": "0 m", "global": "5.12 m"},
            }
        },
    }
    net = network_of(cluster.from_dict(json.loads(json.dumps(facts))))
    ours = Dragonfly(p, a, h, g, arrangement=arrangement)
    assert sorted(map(sorted, zip(net.a.tolist(), net.b.tolist()))) == sorted(map(sorted, zip(ours.a.tolist(), ours.b.tolist())))
    assert net.node_router.tolist() == ours.node_router.tolist()
    # A flit of 64 bytes takes 2.56 ns: 25.6 ns of switch are 10 cycles, and 5.12 m of cable 10 more.
    assert set(net.latency[~net.is_global].tolist()) == {10}
    assert set(net.latency[net.is_global].tolist()) == {20}


def test_groups_of_a_cluster_may_differ_in_size() -> None:
    facts = {
        "armillary": 1,
        "name": "c",
        "group": [{"name": "n", "count": 14, "node": {"nic": [{"network": "net", "rate": "25 GB/s", "count": 1}]}}],
        "network": {
            "net": {
                "topology": "dragonfly",
                "groups": 3,
                "switches_per_group": [2, 2, 3],
                "endpoints_per_switch": 2,
                "rate": "25 GB/s",
                "latency": {"nic": "1 us", "switch": "100 ns", "metre": "5 ns"},
                "length": {"local": "1 m", "global": "10 m"},
            }
        },
    }
    net = network_of(cluster.from_dict(facts))
    assert np.bincount(net.group).tolist() == [2, 2, 3]
    assert net.nodes == 14


def test_to_networkx_has_nodes_routers_and_working_links() -> None:
    net = Dragonfly(2, 4, 2, failed=[60])
    graph = net.to_networkx()
    assert graph.number_of_nodes() == 36 + 72
    assert graph.number_of_edges() == 90 - 1 + 72
    assert nx.is_connected(graph)


def edges_file(tmp_path: Path, text: str, nodes: str = "") -> tuple[Path, Path | str]:
    path = tmp_path / "edges.csv"
    path.write_text(text)
    if nodes:
        (tmp_path / "nodes.csv").write_text(nodes)
    return path, (tmp_path / "nodes.csv") if nodes else ""


HEAD = "router_a,group_a,router_b,group_b,latency,width\n"
RING = HEAD + "10,1,11,1,5,1\n20,2,21,2,5,2\n10,1,20,2,30,1\n11,1,21,2,30,3\n"


def test_edges_are_read_with_any_numbers_and_widths(tmp_path: Path) -> None:
    net = read_edges(*edges_file(tmp_path, RING, "node,router\n1,21\n0,10\n2,21\n"))
    assert (net.routers, net.groups, net.nodes, net.links) == (4, 2, 3, 7)
    assert net.node_router.tolist() == [0, 3, 3]
    assert net.tables.local[2, 1].tolist()[1] == 2, "two parallel local links"
    assert np.diff(net.tables.channel_start).tolist() == [0, 4, 4, 0]


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(1, 4), min_size=6, max_size=6), st.permutations(range(12)))
def test_the_local_ports_lead_to_the_routers_that_they_are_listed_for(widths: list[int], order: list[int]) -> None:
    pairs = [(a, b) for base in (0, 4) for a in range(base, base + 4) for b in range(a + 1, base + 4)]
    rows = [pair for pair, width in zip([pairs[i] for i in order], [*widths, *widths]) for _ in range(width)] + [(0, 5), (7, 2)]
    a, b = np.array(rows).T
    net = Network(np.repeat([0, 1], 4), np.arange(8), a, b, np.full(len(a), 3), np.zeros(len(a), bool))
    t = net.tables
    for r in range(8):
        for other in range(r // 4 * 4, r // 4 * 4 + 4):
            first, count = t.local[r, t.place[other]].tolist()
            assert count == sum({one, two} == {r, other} for one, two in rows)
            assert all(t.router[port] == r and t.router[t.peer[port]] == other for port in range(first, first + count))


@pytest.mark.parametrize(
    ("text", "nodes", "message"),
    [
        (HEAD + "0,0,1,0,5,1\n2,1,3,1,5,1\n", "", "groups 0 and 1 are not connected"),
        (HEAD + "0,0,1,0,5,1\n1,0,2,0,5,1\n", "", "routers 0 and 2 have no link"),
        (HEAD + "0,0,1,0,5,1\n1,1,2,1,5,1\n", "", "edges.csv:3: found router 1 in group"),
        (HEAD + "0,0,0,0,5,1\n", "", 'edges.csv:2: column "router_b": found router 0 at both ends'),
        (HEAD + "0,0,-1,0,5,1\n", "", "from 0 to 2,147,483,647"),
        (HEAD + "0,0,4294967296,0,5,1\n", "", "from 0 to 2,147,483,647"),
        (HEAD + "0,0,1,0,0,1\n", "", "latency"),
        (HEAD + "0,0,1,0,5,0\n", "", "width"),
        (HEAD, "", "no rows"),
        (RING, "node,router\n0,99\n", 'nodes.csv:2: column "router": found router 99; expected a router of the edges'),
        (RING, "node,router\n5,10\n", "expected nodes from 0 to 0"),
        (RING, "node,router\n0,10\n0,11\n", "again"),
    ],
)
def test_a_bad_table_of_edges_says_what_is_wrong(tmp_path: Path, text: str, nodes: str, message: str) -> None:
    with pytest.raises(InputError) as error:
        read_edges(*edges_file(tmp_path, text, nodes))
    assert message in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("numbers", "message"),
    [
        ({"p": 0}, "p: found 0"), ({"a": 0}, "a: found 0"), ({"h": -1}, "h: found -1"), ({"g": 10}, "expected 1 to a·h + 1 = 9"),
        ({"g": 0}, "found 0 groups"), ({"a": 3000}, "at most 200,000 nodes"), ({"p": 10**9}, "at most 200,000 nodes"),
        ({"arrangement": "spiral"}, "unknown arrangement"), ({"failed": [3]}, "inside a group"), ({"failed": [90]}, "expected 0 to 89"),
        ({"p": 2.5}, "whole number"), ({"local_cycles": 0}, "latency"),
    ],
)  # fmt: skip
def test_bad_numbers_of_a_dragonfly(numbers: dict, message: str) -> None:
    with pytest.raises(InputError) as error:
        Dragonfly(**{"p": 2, "a": 4, "h": 2, **numbers})
    assert message in str(error.value)
