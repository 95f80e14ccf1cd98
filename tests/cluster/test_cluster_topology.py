"""Networks as graphs: counts by hand, distances and cuts against networkx and enumeration, routes that really lead there."""

from __future__ import annotations

import itertools
import json
import math
import subprocess
import sys

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from armillary import cluster
from armillary.errors import InputError


def dragonfly(p, a, g, links=1, arrangement="absolute", **more):
    return {
        "topology": "dragonfly", "groups": g, "switches_per_group": a, "endpoints_per_switch": p,
        "links_between_groups": links, "global": arrangement, **more,
    }  # fmt: skip


def test_a_fat_tree_of_four_port_switches(network_of):
    c = network_of(16, topology="fat-tree", k=4)
    g = c.graph("net")
    assert (len(g.endpoints), g.switches, g.edges) == (16, 20, 48)
    assert (c.diameter("net"), c.bisection("net"), c.taper("net")) == (6, 8e9, 1.0)
    assert not c.bisection_is_bound("net")


def test_a_fat_tree_of_sixteen_port_switches(network_of):
    g = network_of(1024, topology="fat-tree", k=16).graph()
    assert (len(g.endpoints), g.switches) == (1024, 320)


def test_a_tapered_fat_tree(network_of):
    levels = [{"down": 8, "up": 4, "switches": 4}, {"down": 4, "up": 0, "switches": 4}]
    c = network_of(32, topology="fat-tree", levels=levels)
    assert (c.graph().edges, c.taper(), c.bisection(), c.diameter()) == (48, 0.5, 8e9, 4)


def test_a_small_dragonfly(network_of):
    c = network_of(72, **dragonfly(2, 4, 9, global_ports=2))
    g = c.graph()
    local, world = (int((g.link_kind == k).sum()) for k in (1, 2))
    assert (len(g.endpoints), g.switches, local, world) == (72, 36, 54, 36)
    pairs = np.array(list(itertools.permutations(range(72), 2)))
    routes = g.routes(pairs[:, 0], pairs[:, 1])
    assert (routes >= 0).sum(axis=1).max() == 5  # two host links and at most three between switches
    used = routes >> 1
    assert ((g.link_kind[used] == 2) & (routes >= 0)).sum(axis=1).max() == 1


@pytest.mark.parametrize("arrangement", ["absolute", "relative", "circulant", "palmtree"])
@pytest.mark.parametrize(("a", "g", "links"), [(4, 9, 1), (4, 8, 1), (3, 4, 3), (8, 5, 4), (2, 2, 5)])
def test_every_pair_of_groups_is_joined_and_ports_are_shared_evenly(network_of, arrangement, a, g, links):
    graph = network_of(2 * a * g, **dragonfly(2, a, g, links, arrangement)).graph()
    world = graph.link_kind == 2
    pairs = np.sort(np.stack([graph.group[graph.u[world]], graph.group[graph.v[world]]], 1), axis=1)
    assert sorted(map(tuple, pairs.tolist())) == sorted(list(itertools.combinations(range(g), 2)) * links)
    degree = np.bincount(np.concatenate([graph.u[world], graph.v[world]]), minlength=graph.vertices)[graph.kind == 1]
    assert degree.max() - degree.min() <= 1


@pytest.mark.parametrize(("g", "links"), [(9, 1), (5, 2), (3, 4)])
def test_port_x_of_a_palmtree_leads_to_group_i_minus_x_minus_1_and_arrives_at_the_port_opposite(network_of, g, links):
    a, h = 4, 2
    graph = network_of(2 * a * g, **dragonfly(2, a, g, links, "palmtree")).graph()
    world = graph.link_kind == 2
    first = 2 * a * g
    found = sorted(tuple(sorted(pair)) for pair in zip((graph.u[world] - first).tolist(), (graph.v[world] - first).tolist()))
    expected = []
    for i in range(g):
        for x in range(a * h):
            j, y = (i - x % (g - 1) - 1) % g, a * h - 1 - x
            assert (j - y % (g - 1) - 1) % g == i, "the port at the other end leads back"
            expected.append(tuple(sorted((i * a + x // h, j * a + y // h))))
    assert found == sorted(expected)[::2], "each link was seen from both of its ends"


def test_groups_may_differ_in_size(network_of):
    g = network_of(4 * (2 + 2 + 3), **dragonfly(4, [2, 2, 3], 3)).graph()
    assert g.switches == 7
    assert np.bincount(g.group[g.kind == 1]).tolist() == [2, 2, 3]


def test_a_torus_of_sixty_four(network_of):
    c = network_of(64, topology="torus", dims=[4, 4, 4])
    assert (c.graph().edges, c.graph().switches, c.diameter(), c.bisection()) == (192, 0, 6, 32e9)


def test_rails_without_spines_do_not_meet(network_of):
    c = network_of(4, 8, topology="rail", rails=8, leaf_ports=64, spines=0)
    assert c.path(c.endpoint(0, 3), c.endpoint(1, 3)).rate == 1e9
    with pytest.raises(InputError, match=r"node 0 NIC 0 cannot reach node 1 NIC 3.*rails 0 and 3 do not meet"):
        c.path(c.endpoint(0, 0), c.endpoint(1, 3))
    assert c.bisection() == 0
    with pytest.raises(InputError, match="cannot reach"):
        c.diameter()


def test_rails_meet_at_the_spines(network_of):
    c = network_of(64, 8, topology="rail", rails=8, leaf_ports=64, spines=8)
    g = c.graph()
    assert (g.switches, int((g.link_kind == 2).sum())) == (16 + 8, 512)
    assert len(c.path(c.endpoint(0, 0), c.endpoint(1, 3)).links) == 4
    assert len(c.path(c.endpoint(0, 2), c.endpoint(1, 2)).links) == 2
    assert c.taper() == 1.0


def test_an_nvlink_domain_is_striped_over_its_switches(network_of):
    c = network_of(18, 4, topology="nvl", domain=72, switches=18, links_per_device=18)
    g = c.graph()
    assert (g.switches, g.edges, c.diameter(), c.bisection()) == (18, 72 * 18, 2, 36 * 18 * 1e9)
    assert c.path(0, 71).rate == 18e9


def test_star_full_hypercube_and_tiers(network_of):
    star = network_of(7, topology="star")
    assert (star.graph().edges, star.diameter(), star.bisection()) == (7, 2, 3e9)
    full = network_of(5, topology="full")
    assert (full.graph().edges, full.diameter(), full.bisection()) == (10, 1, 6e9)
    cube = network_of(16, topology="hypercube", dimension=4)
    assert (cube.graph().edges, cube.diameter(), cube.bisection()) == (32, 4, 8e9)
    tiers = cluster.preset("edge-fog-cloud")
    assert tiers.graph().edges == 13
    # device 0 - gateway 0 - gateway's proxy - cloud: 2 + 4 + 100 ms
    assert tiers.path(0, tiers.endpoint(13)).latency == pytest.approx(0.106)
    assert tiers.path(0, 7).latency == pytest.approx(2 * 0.002 + 2 * 0.004)


def test_edges_from_files(network_of, tmp_path):
    (tmp_path / "net.csv").write_text("from,to,rate,latency\nh0,s,1 GB/s,1 us\nh1,s,2 GB/s,2 us\nh2,s,8 Gb/s,0.000003\n")
    graphml = """<?xml version="1.0"?><graphml xmlns="http://graphml.graphdrawing.org/xmlns">
    <key id="r" for="edge" attr.name="rate"/>
    <key id="l" for="edge" attr.name="latency"/><graph edgedefault="undirected"><node id="h0"/><node id="s"/>
    <edge source="h0" target="s"><data key="r">1 GB/s</data><data key="l">1 us</data></edge>
    <edge source="h1" target="s"><data key="r">2 GB/s</data><data key="l">2 us</data></edge>
    <edge source="h2" target="s"><data key="r">8 Gb/s</data><data key="l">3 us</data></edge></graph></graphml>"""
    (tmp_path / "net.graphml").write_text(graphml)
    made = []
    for name in ("net.csv", "net.graphml"):
        data = {"armillary": 1, "name": "f", "network": {"n": {"topology": "file", "edges": name}},
                "group": [{"name": "g", "count": 3, "node": {"nic": [{"network": "n"}]}}]}  # fmt: skip
        c = cluster.from_dict(data, base=tmp_path)
        assert (c.path(0, 1).latency, c.path(1, 2).rate) == (pytest.approx(3e-6), 1e9)
        assert c.bisection_is_bound()
        made.append(c)
    assert made[0].digest == made[1].digest


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("from,to\n", "no edges"),
        ("a,b\n1,2\n", "found the columns a, b; expected from, to"),
        ("from,to,rate\na,a,1 GB/s\n", "two different vertices"),
        ("from,to,rate\na,b,1 gb/s\n", "net.csv:2: rate"),
        ("from,to,rate\na\n", "found 1 cell"),
        ("", "found no header"),
    ],
)
def test_bad_edge_files_name_the_line(tmp_path, text, says):
    (tmp_path / "net.csv").write_text(text)
    data = {
        "armillary": 1,
        "name": "f",
        "network": {"n": {"topology": "file", "edges": "net.csv"}},
        "group": [{"name": "g", "count": 1}],
    }
    with pytest.raises(InputError, match=r"network\.n\.edges") as error:
        cluster.from_dict(data, base=tmp_path)
    assert says in str(error.value)


def test_graphml_with_entities_is_refused(tmp_path):
    (tmp_path / "net.graphml").write_text('<!DOCTYPE x [<!ENTITY a "b"><!ENTITY c "&a;&a;">]><graphml>&c;</graphml>')
    data = {
        "armillary": 1,
        "name": "f",
        "network": {"n": {"topology": "file", "edges": "net.graphml"}},
        "group": [{"name": "g", "count": 1}],
    }
    with pytest.raises(InputError, match="document type"):
        cluster.from_dict(data, base=tmp_path)


def test_latencies_of_a_route_add_up(network_of):
    network = {"latency": {"nic": "600 ns", "switch": "100 ns", "metre": "5 ns"}, "length": {"local": "2 m", "global": "20 m"}}
    c = network_of(16, topology="fat-tree", k=4, **network)
    # two NICs, five switches, two host cables and two lower ones of 2 m, two upper ones of 20 m
    assert c.path(0, 15).latency == pytest.approx(2 * 600e-9 + 5 * 100e-9 + 4 * 10e-9 + 2 * 100e-9)
    torus = network_of(4, topology="torus", dims=[4], **network)
    assert torus.path(0, 2).latency == pytest.approx(2 * 600e-9 + 2 * (100e-9 + 10e-9))
    whole = network_of(16, topology="fat-tree", k=4, latency="1.8 us")
    assert whole.path(0, 15).latency == pytest.approx(1.8e-6)
    assert whole.alpha_beta(0, 1) == (pytest.approx(1.8e-6), 1e-9)


def test_an_unknown_latency_is_no_zero(network_of):
    c = network_of(2, topology="star", latency={})
    assert c.path(0, 1).latency is None
    with pytest.raises(InputError, match="latency of the network link"):
        c.alpha_beta(0, 1)


# oracles: networkx for distances, enumeration for cuts

SMALL = [
    (16, {"topology": "fat-tree", "k": 4}),
    (12, {"topology": "fat-tree", "k": 4}),
    (24, {"topology": "fat-tree", "levels": [
        {"down": 4, "up": 2, "switches": 6}, {"down": 3, "up": 2, "switches": 4}, {"down": 4, "switches": 2}]}),
    (27, {"topology": "torus", "dims": [3, 3, 3]}),
    (24, {"topology": "torus", "dims": [4, 3, 2]}),
    (30, {"topology": "mesh", "dims": [5, 3, 2]}),
    (32, {"topology": "hypercube", "dimension": 5}),
    (72, dragonfly(2, 4, 9)),
    (70, dragonfly(2, 4, 9, 1, "relative")),
    (60, dragonfly(3, 4, 5, 2, "circulant")),
    (9, {"topology": "star"}),
    (6, {"topology": "full"}),
    (40, {"topology": "rail", "rails": 2, "leaf_ports": 8, "spines": 3}),
    (12, {"topology": "nvl", "domain": 12, "switches": 3, "links_per_device": 6}),
]  # fmt: skip


@pytest.mark.parametrize(("nodes", "network"), SMALL)
def test_diameter_and_shortest_routes_are_those_of_networkx(network_of, nodes, network):
    c = network_of(nodes, **network)
    g, oracle = c.graph(), nx.Graph(c.to_networkx())
    assert oracle.number_of_nodes() == g.vertices
    ends = g.endpoints.tolist()
    lengths = dict(nx.all_pairs_shortest_path_length(oracle))
    assert c.diameter() == max(lengths[a][b] for a in ends for b in ends)
    pairs = np.array(list(itertools.product(range(nodes), repeat=2)))
    for algorithm in ("minimal", "ecmp"):
        routes = g.routes(pairs[:, 0], pairs[:, 1], algorithm, seed=3)
        hops = (routes >= 0).sum(axis=1)
        if network["topology"] != "dragonfly":  # its minimal routes keep to one global link, so some are longer
            assert hops.tolist() == [lengths[ends[a]][ends[b]] for a, b in pairs]
        for (a, b), route in zip(pairs, routes, strict=True):
            _check_route(g, ends[a], ends[b], route)


def _check_route(g, start, end, route):
    """A route's links join, begin at the start and finish at the end; the padding comes last."""
    here = start
    links = route[route >= 0]
    assert (route[: len(links)] >= 0).all()
    for link in links:
        edge, back = link >> 1, link & 1
        a, b = (g.v[edge], g.u[edge]) if back else (g.u[edge], g.v[edge])
        assert a == here
        here = b
    assert here == end


@pytest.mark.parametrize(("nodes", "network"), SMALL)
def test_valiant_routes_lead_there_by_way_of_a_switch(network_of, nodes, network):
    g = network_of(nodes, **network).graph()
    rng = np.random.default_rng(1)
    a, b = rng.integers(0, nodes, (2, 200))
    routes = g.routes(a, b, "valiant", seed=5)
    for i in range(200):
        _check_route(g, g.endpoints[a[i]], g.endpoints[b[i]], routes[i])
    assert np.array_equal(routes, g.routes(a, b, "valiant", seed=5))


def test_ties_go_to_the_lower_edge_and_ecmp_spreads(network_of):
    g = network_of(16, topology="fat-tree", k=4).graph()
    many = np.zeros(4000, int)
    up = g.routes(many, many + 15, "minimal")
    assert (up == up[0]).all()
    spread = g.routes(many, many + 15, "ecmp", seed=1)
    _, counts = np.unique(spread, axis=0, return_counts=True)
    assert len(counts) == 4  # two ways up at two levels
    assert counts.min() > 850
    one = g.routes(many[:1], many[:1] + 15, "ecmp", seed=1)
    assert np.array_equal(one[0], spread[0])
    assert not np.array_equal(spread, g.routes(many, many + 15, "ecmp", seed=2))


def _least_halving(graph):
    """The least cut over all halvings of the endpoints, switches where they suit best: enumeration and max-flow."""
    oracle = nx.Graph()
    for e in range(graph.edges):
        u, v = int(graph.u[e]), int(graph.v[e])
        old = oracle.get_edge_data(u, v, {"capacity": 0.0})["capacity"]
        oracle.add_edge(u, v, capacity=old + graph.rate[e])
    ends = graph.endpoints.tolist()
    best = math.inf
    for side in itertools.combinations(ends[1:], len(ends) // 2 - (1 - len(ends) % 2)):
        left = set(side) | ({ends[0]} if len(ends) % 2 == 0 else set())
        with_ends = oracle.copy()
        with_ends.add_edges_from(("s", x, {"capacity": math.inf}) for x in left)
        with_ends.add_edges_from(("t", x, {"capacity": math.inf}) for x in ends if x not in left)
        best = min(best, nx.minimum_cut_value(with_ends, "s", "t"))
    return best


@pytest.mark.parametrize(
    ("nodes", "network"),
    [
        (8, {"topology": "fat-tree", "levels": [{"down": 2, "up": 2, "switches": 4}, {"down": 4, "switches": 2}]}),
        (8, {"topology": "fat-tree", "levels": [{"down": 2, "up": 1, "switches": 4}, {"down": 4, "switches": 1}]}),
        (6, {"topology": "fat-tree", "levels": [{"down": 2, "up": 2, "switches": 3}, {"down": 3, "switches": 2}]}),
        (8, {"topology": "torus", "dims": [4, 2]}),
        (9, {"topology": "torus", "dims": [3, 3]}),
        (6, {"topology": "torus", "dims": [3, 2]}),
        (4, {"topology": "torus", "dims": [2, 2]}),
        (12, {"topology": "torus", "dims": [3, 2, 2]}),
        (10, {"topology": "torus", "dims": [5, 2]}),
        (12, {"topology": "torus", "dims": [4, 3]}),
        (12, {"topology": "mesh", "dims": [3, 2, 2]}),
        (9, {"topology": "mesh", "dims": [3, 3]}),
        (10, {"topology": "mesh", "dims": [5, 2]}),
        (8, {"topology": "hypercube", "dimension": 3}),
        (7, {"topology": "star"}),
        (6, {"topology": "full"}),
        (8, dragonfly(2, 2, 2)),
        (8, dragonfly(1, 2, 4)),
        (8, dragonfly(1, 4, 2, 1)),
        (8, dragonfly(1, 4, 2, 6)),
        (10, dragonfly(1, 2, 5)),
        (6, dragonfly(1, 2, 3, 1, "relative")),
        (9, dragonfly(1, 3, 3, 1, "circulant")),
        (8, {"topology": "rail", "rails": 2, "leaf_ports": 4, "spines": 2}),
        (6, {"topology": "nvl", "domain": 6, "switches": 2, "links_per_device": 2}),
    ],
)  # fmt: skip
def test_bisection_is_the_least_of_all_halvings(network_of, nodes, network):
    nics = 2 if network["topology"] == "rail" else 1
    c = network_of(nodes // nics, nics, **network)
    assert c.bisection() == pytest.approx(_least_halving(c.graph()))


def test_the_spectral_bound_is_below_the_least_halving(network_of, tmp_path):
    rng = np.random.default_rng(7)
    for trial in range(5):
        rows = [f"h{i},s{i % 4},{rng.integers(1, 5)} GB/s,1 us" for i in range(8)]
        rows += [f"s{a},s{b},{rng.integers(1, 4)} GB/s,1 us" for a, b in itertools.combinations(range(4), 2)]
        (tmp_path / f"{trial}.csv").write_text("from,to,rate,latency\n" + "\n".join(rows) + "\n")
        data = {"armillary": 1, "name": "f", "network": {"n": {"topology": "file", "edges": f"{trial}.csv", "endpoints": "h"}},
                "group": [{"name": "g", "count": 8, "node": {"nic": [{"network": "n"}]}}]}  # fmt: skip
        c = cluster.from_dict(data, base=tmp_path)
        least = _least_halving(c.graph())
        assert 0 < c.bisection() <= least * (1 + 1e-9)


@settings(max_examples=60, deadline=None)
@given(
    p=st.integers(1, 3), a=st.integers(1, 5), g=st.integers(1, 7), links=st.integers(1, 3),
    arrangement=st.sampled_from(["absolute", "relative", "circulant"]), seed=st.integers(0, 99),
)  # fmt: skip
def test_every_dragonfly_routes_all_pairs(network_of, p, a, g, links, arrangement, seed):
    graph = network_of(p * a * g, **dragonfly(p, a, g, links, arrangement)).graph()
    rng = np.random.default_rng(seed)
    ends = rng.integers(0, p * a * g, (2, 20))
    routes = graph.routes(*ends)
    assert ((graph.link_kind[routes >> 1] == 2) & (routes >= 0)).sum(axis=1).max() <= 1
    for i in range(20):
        _check_route(graph, graph.endpoints[ends[0, i]], graph.endpoints[ends[1, i]], routes[i])


def test_adjacency_holds_every_edge_both_ways(network_of):
    g = network_of(72, **dragonfly(2, 4, 9)).graph()
    rows = g.adjacency
    assert len(rows.link) == 2 * g.edges
    assert sorted(rows.link.tolist()) == list(range(2 * g.edges))
    for x in (0, 71, 80):
        for e in range(rows.start[x], rows.start[x + 1]):
            edge, back = rows.link[e] >> 1, rows.link[e] & 1
            assert (g.v if back else g.u)[edge] == x
            assert (g.u if back else g.v)[edge] == rows.neighbour[e]


def test_bad_questions_are_refused(network_of):
    c = network_of(16, topology="fat-tree", k=4)
    g = c.graph()
    for sources, targets in (([16], [0]), ([-1], [0]), ([0.5], [1]), ([0, 1], [1])):
        with pytest.raises(InputError):
            g.routes(np.array(sources), np.array(targets))
    with pytest.raises(InputError, match="unknown routing algorithm"):
        g.routes(np.array([0]), np.array([1]), "fastest")
    with pytest.raises(InputError, match="unknown network"):
        c.graph("nett")
    assert g.routes(np.array([], int), np.array([], int)).shape[0] == 0


def test_a_graph_too_large_to_build_is_refused_before_it_is(network_of):
    c = network_of(10**5, topology="full")
    with pytest.raises(InputError, match="edges; at most"):
        c.graph()


SIMGRID = """
import json, sys
from simgrid import Actor, Engine
engine = Engine(["routes", "--log=root.thres:critical"])
engine.load_platform(sys.argv[1])
hosts = sorted(engine.all_hosts, key=lambda h: int(h.name.rsplit("-", 1)[1]))
found = []
def ask():
    for a, b in json.loads(sys.argv[2]):
        links, latency = hosts[a].route_to(hosts[b])
        found.append((len(links), latency))
Actor.create("ask", hosts[0], ask)
engine.run()
print(json.dumps(found))
"""


@pytest.mark.parametrize(
    ("nodes", "network"),
    [
        (64, {"topology": "torus", "dims": [4, 4, 4]}),
        (16, {"topology": "fat-tree", "k": 4}),
        (24, {"topology": "fat-tree", "levels": [
            {"down": 4, "up": 2, "switches": 6}, {"down": 3, "up": 2, "switches": 4}, {"down": 4, "switches": 2}]}),
        (24, dragonfly(2, 4, 3)),
        (72, dragonfly(2, 4, 9)),
        (16, {"topology": "hypercube", "dimension": 4}),
        (9, {"topology": "star"}),
    ],
)  # fmt: skip
def test_simgrid_finds_routes_of_the_same_length(network_of, tmp_path, nodes, network):
    pytest.importorskip("simgrid")
    c = network_of(nodes, **network)
    c.to_simgrid(tmp_path / "p.xml")
    pairs = [(a, b) for a in range(nodes) for b in range(nodes) if a != b]
    run = [sys.executable, "-c", SIMGRID, str(tmp_path / "p.xml"), json.dumps(pairs)]
    found = json.loads(subprocess.run(run, capture_output=True, text=True, check=True).stdout.splitlines()[-1])
    hops = [links for links, _ in found]
    oracle = nx.Graph(c.to_networkx())
    lengths = [nx.shortest_path_length(oracle, a, b) for a, b in pairs]
    if nodes == 24 and network["topology"] == "dragonfly":
        # SimGrid wires the groups in its own order: as many routes have each length, but not the same ones.
        assert sorted(hops) == sorted((c.graph().routes(*np.array(pairs).T) >= 0).sum(axis=1))
        return
    nics = 2 if network["topology"] == "hypercube" else 0  # written as links there, so that their time counts
    assert hops == [length + nics for length in lengths]
    if network["topology"] != "dragonfly":
        longest = hops.index(max(hops))
        assert found[longest][1] == pytest.approx(c.path(*pairs[longest]).latency)
