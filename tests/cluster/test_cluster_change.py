"""Slices, scaled copies, changed keys, differences, exports."""

from __future__ import annotations

import pickle
import tomllib
import xml.etree.ElementTree as ET

import networkx as nx
import numpy as np
import pytest

from armillary import cluster
from armillary.cluster.pingpong import fit_classes
from armillary.errors import InputError


@pytest.fixture
def c(file_text):
    return cluster.from_dict(tomllib.loads(file_text))


def test_slices_keep_the_node_type(c):
    part = c.slice(nodes=range(8))
    assert (part.nodes, part.devices("gpu"), part.endpoints()) == (8, 64, 64)
    assert part.node(3).device(0).memory.bandwidth == 3.35e12
    assert c.slice(range(32)) == c
    mixed = cluster.preset("perlmutter").slice([0, 1, 1600, 4000])
    assert [(g.name, g.count) for g in mixed.groups] == [("gpu", 2), ("gpu-80", 1), ("cpu", 1)]
    assert cluster.preset("torus-4096").slice(range(100)).endpoints() == 100
    for bad in (range(0), [32], [-1]):
        with pytest.raises(InputError):
            c.slice(bad)


@pytest.mark.parametrize(
    ("name", "nodes", "offers"),
    [
        ("frontier", 1280, 10 * 512),
        ("fat-tree-1k", 128, 128),
        ("fat-tree-1k", 129, 250),
        ("torus-4096", 64, 64),
        ("dragonfly-10k", 1000, 8 * 128),
        ("dgx-h100", 64, None),
    ],
)
def test_networks_follow_the_number_of_nodes(name, nodes, offers):
    scaled = cluster.preset(name).scale(nodes=nodes)
    assert (scaled.nodes, scaled.network().offers) == (nodes, offers)
    assert scaled.bisection() > 0


def test_groups_grow_in_proportion():
    assert [g.count for g in cluster.preset("k8s-20").scale(nodes=41).groups] == [17, 16, 8]
    assert [g.count for g in cluster.preset("k8s-20").scale(nodes=30, group="large").groups] == [8, 8, 30]
    assert cluster.preset("tiers-3").scale(nodes=8, group="edge").graph().vertices == 13
    with pytest.raises(InputError):
        cluster.preset("k8s-20").scale(nodes=0)


def test_one_key_is_replaced_and_checked(c):
    more = c.replace("group.gpu.node.device.memory.size", "141 GB")
    assert more.memory("hbm") == 256 * 141e9
    assert more.node(0).device(0).memory.size.source is None
    assert c.replace("group.gpu.node.link.pcie.rate", "128 GB/s").node(0).type.links[1].rate == 128e9
    assert c.replace("group.gpu.node.link[0].rate", "900 GB/s").node(0).type.links[0].rate == 900e9
    assert c.replace("network.compute.spines", 0).network().spines == 0
    assert c.replace("site.pue", 1.5).site.pue == 1.5
    assert c.replace("name", "other").name == "other"
    with pytest.raises(InputError, match="unit not understood"):
        c.replace("group.gpu.node.device.memory.size", "141 gb")
    for key in ("group.cpu.count", "group.gpu.node.device.memory.size.more", "group.gpu", "", "nonsense.key"):
        with pytest.raises(InputError):
            c.replace(key, 1)


def test_another_model_brings_its_own_figures():
    h200 = cluster.preset("dgx-h100").replace("group.gpu.node.device.model", "h200-141")
    assert h200.memory("hbm") == 8 * 141e9
    assert h200.node(0).device(0).near == "socket:0"


def test_differences_are_said_in_words(c):
    assert cluster.diff(c, c) == ""
    other = c.replace("group.gpu.count", 64).replace("group.gpu.node.device.memory.size", "141 GB").replace("site.grid_zone", "GB")
    assert set(cluster.diff(c, other).split("\n")) == {
        "group.gpu.count: 32 became 64 (×2)",
        "group.gpu.node.device.memory.size: 80 GB became 141 GB (×1.76)",
        "site.grid_zone: GB is new",
    }
    assert "site.grid_zone: GB is gone" in cluster.diff(other, c)
    assert cluster.diff(cluster.preset("dgx-h100"), cluster.preset("dgx-h200"))


def test_clusters_travel_between_processes(c):
    c.graph()
    back = pickle.loads(pickle.dumps(c))  # noqa: S301
    assert back == c
    assert back.node(0).device(0).memory.bandwidth.source == "data sheet"
    assert len(pickle.dumps(c)) < 20_000


def test_clusters_are_frozen(c):
    with pytest.raises(Exception, match="frozen"):
        c.name = "x"
    with pytest.raises(Exception, match="frozen"):
        c.groups[0].count = 3
    assert {c: 1}[c] == 1


# paths inside nodes


def test_paths_inside_a_node(c):
    near = c.path("n0/device:0", "n0/device:5")
    assert (len(near.links), near.latency, near.rate) == (1, 0.5e-6, 450e9)
    host = c.path("n0/socket:0", "n0/device:5")
    assert (host.latency, host.rate, host.links[0].kind) == (0.9e-6, 63e9, "pcie")
    far = c.path("n0/device:1", "n9/device:1")
    assert [h.kind for h in far.links] == ["attachment", "network", "network", "attachment"]
    assert far.rate == 50e9
    assert c.path("n3", "n3").latency == 0
    # between the two sockets the file names no link, so its speed is unknown
    assert c.path("n0/socket:1", "n0/device:0").latency is None
    for a, b in (("n0/device:8", "n0"), ("x", "n0"), ("n99", "n0"), (0, 999)):
        with pytest.raises(InputError):
            c.path(a, b)


def test_devices_on_different_rails_meet_over_nvlink_when_rails_do_not(c):
    apart = c.replace("network.compute.spines", 0)
    way = apart.path("n0/device:0", "n1/device:3")
    assert sorted(h.kind for h in way.links) == ["attachment", "attachment", "network", "network", "nvlink"]


def _node_with(link, devices=4):
    node = {"socket": [{"count": 2, "cores": 4}], "device": [{"count": devices, "kind": "gpu"}], "link": [link]}
    return cluster.from_dict({"armillary": 1, "name": "x", "group": [{"name": "g", "count": 1, "node": node}]})


@pytest.mark.parametrize(
    ("link", "pair", "hops", "rate"),
    [
        ({"topology": "all-to-all"}, (0, 3), 1, 100e9),
        ({"topology": "switch"}, (0, 3), 1, 300e9),
        ({"topology": "ring"}, (0, 2), 2, 150e9),
        ({"topology": "pairs"}, (2, 3), 1, 300e9),
        ({"topology": "mesh", "dims": [2, 2]}, (0, 3), 2, 75e9),
        ({"topology": "pairs", "pairs": [[0, 2], [2, 3]]}, (0, 3), 2, 300e9),
    ],
)
def test_links_inside_a_node_share_an_endpoints_rate(link, pair, hops, rate):
    c = _node_with({"kind": "nv", "between": "device", "rate": "300 GB/s", "latency": "1 us", **link})
    way = c.path(f"n0/device:{pair[0]}", f"n0/device:{pair[1]}")
    assert (len(way.links), way.rate, way.latency) == (hops, rate, pytest.approx(hops * 1e-6))


def test_directions_may_differ():
    c = _node_with(
        {
            "kind": "pcie",
            "topology": "tree",
            "between": ["socket", "device"],
            "rate": {"up": "20 GB/s", "down": "10 GB/s"},
            "latency": "1 us",
        }
    )
    assert c.path("n0/socket:0", "n0/device:0").rate == 20e9
    assert c.path("n0/device:0", "n0/socket:0").rate == 10e9
    assert cluster.from_dict(tomllib.loads(c.to_toml())) == c
    nic = {"rate": {"up": "10 Mb/s", "down": "100 Mb/s"}, "network": "n"}
    edge = cluster.from_dict(
        {
            "armillary": 1,
            "name": "x",
            "network": {"n": {"topology": "star"}},
            "group": [{"name": "g", "count": 2, "node": {"nic": [nic]}}],
        }
    )
    port = edge.node(0).nic(0)
    assert (port.up, port.down, port.bandwidth) == (1.25e6, 12.5e6, 1.25e6)


# exports


def test_networkx_gets_every_vertex_and_edge(c):
    graph = c.to_networkx()
    assert isinstance(graph, nx.MultiGraph)
    assert (graph.number_of_nodes(), graph.number_of_edges()) == (c.graph().vertices, c.graph().edges)
    assert graph.nodes[0]["kind"] == "endpoint"
    assert next(iter(graph.edges(data=True)))[2]["rate"] == 50e9


@pytest.mark.parametrize(
    ("nodes", "network", "topology", "parameters"),
    [
        (64, {"topology": "torus", "dims": [4, 4, 4]}, "TORUS", "4,4,4"),
        (16, {"topology": "fat-tree", "k": 4}, "FAT_TREE", "3;2,2,4;1,2,2;1,1,1"),
        (
            24,
            {"topology": "dragonfly", "groups": 3, "switches_per_group": 4, "endpoints_per_switch": 2},
            "DRAGONFLY",
            "3,1;1,1;4,1;2",
        ),
    ],
)
def test_simgrid_clusters(network_of, tmp_path, nodes, network, topology, parameters):
    network_of(nodes, **network).to_simgrid(tmp_path / "p.xml")
    root = ET.parse(tmp_path / "p.xml").getroot()
    made = root.find("cluster")
    assert root.get("version") == "4.1"
    assert (made.get("topology"), made.get("topo_parameters"), made.get("radical")) == (topology, parameters, f"0-{nodes - 1}")
    assert made.get("bw") == "1000000000Bps"


def test_simgrid_zones_name_every_host_and_route(c, tmp_path):
    c.to_simgrid(tmp_path / "p.xml")
    zone = ET.parse(tmp_path / "p.xml").getroot().find("zone")
    hosts = {h.get("id") for h in zone.findall("host")}
    links = {e.get("id") for e in zone.findall("link")}
    names = hosts | {r.get("id") for r in zone.findall("router")}
    assert len(hosts) == 32
    for route in zone.findall("route"):
        assert {route.get("src"), route.get("dst")} <= names
        assert {e.get("id") for e in route} <= links
    oracle = nx.Graph([(r.get("src"), r.get("dst")) for r in zone.findall("route")])
    assert nx.is_connected(oracle)
    assert nx.shortest_path_length(oracle, "gpu-0", "gpu-9") == 4  # node, port, leaf, port, node


def test_names_are_quoted_in_xml(c, tmp_path):
    c.replace("name", 'a "b" <c> & d').to_simgrid(tmp_path / "p.xml")
    assert ET.parse(tmp_path / "p.xml").getroot().find("zone").get("id") == 'a "b" <c> & d'


def test_the_summary_says_the_main_figures(c):
    text = c.summary()
    for part in ("32 nodes", "256 GPUs", "80 GB", "rail, 256 endpoints", "power", "pue 1.2", "8 × Some GPU"):
        assert part in text, part


# ping-pong


def test_alpha_and_beta_are_fitted_per_class(tmp_path):
    sizes = 2.0 ** np.arange(0, 24)
    rows = ["class,bytes,us"]
    for name, alpha, rate in (("nvlink", 0.5e-6, 450e9), ("fabric", 1.8e-6, 25e9)):
        rows += [f"{name},{s:.0f},{float(alpha + s / rate) * 1e6!r}" for s in sizes]
    path = tmp_path / "measured.csv"
    path.write_text("\n".join(rows) + "\n")
    fabric, nvlink = fit_classes(path)
    assert (nvlink.name, fabric.name) == ("nvlink", "fabric")
    assert (nvlink.alpha, 1 / nvlink.beta) == (pytest.approx(0.5e-6), pytest.approx(450e9))
    assert (fabric.alpha, 1 / fabric.beta, fabric.error) == (pytest.approx(1.8e-6), pytest.approx(25e9), pytest.approx(0, abs=1e-9))
    data = tomllib.loads(cluster.fit(path))
    assert data["link"]["fabric"]["rate"]["source"] == "measured"


def test_fitted_figures_are_written_back_into_a_cluster(c, tmp_path):
    path = tmp_path / "m.csv"
    rows = [f"{name},{size},{start + size / 1e4}" for name, start in (("nvlink", 3), ("compute", 5)) for size in (1, 10**6)]
    path.write_text("link,bytes,us\n" + "\n".join(rows) + "\n")
    measured = cluster.from_dict(tomllib.loads(cluster.fit(path, c)))
    link = measured.groups[0].node.links[0]
    assert (link.rate, link.rate.source, link.latency) == (pytest.approx(1e10), "measured", pytest.approx(3e-6))
    assert measured.path(0, 9).latency == pytest.approx(5e-6)
    path.write_text("class,bytes,us\nnvlnk,1,3\nnvlnk,1000,4\n")
    with pytest.raises(InputError, match='unknown link class "nvlnk"'):
        cluster.fit(path, c)


def test_osu_output_is_read(tmp_path):
    path = tmp_path / "osu.txt"
    path.write_text("# OSU MPI Latency Test v7.3\n# Size          Latency (us)\n0 1.0\n1 1.001\n1000 2.0\n1000000 1001.0\n")
    (one,) = fit_classes(path)
    assert (one.alpha, one.beta) == (pytest.approx(1e-6, rel=1e-3), pytest.approx(1e-9, rel=1e-3))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "found no header"),
        ("bytes\n1\n", "no column seconds or us"),
        ("bytes,us\n1,x\n2,3\n", 'column "us": found "x"'),
        ("bytes,us\n1,1\n1,2\n", "one message size"),
        ("bytes,us\n1,5\n1000,2\n", "not slower"),
        ("bytes,us\n1,0\n2,1\n", "a time of 0"),
        ("# OSU MPI Bandwidth Test\n1 2\n", "bandwidth test"),
        ("# OSU MPI Latency Test\n1\n", "expected a size"),
    ],
)
def test_bad_measurements_are_said(tmp_path, text, says):
    path = tmp_path / "m.csv"
    path.write_text(text)
    with pytest.raises(InputError, match=says):
        fit_classes(path)
