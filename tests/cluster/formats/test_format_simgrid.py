"""SimGrid's platforms: each topology by hand, units, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from armillary.cluster import Cluster, formats, load, preset
from armillary.cluster.networks import FatTree
from armillary.errors import InputError

HEAD = (
    '<?xml version="1.0"?>\n<!DOCTYPE platform SYSTEM "https://simgrid.org/simgrid.dtd">\n'
    '<platform version="4.1"><zone id="world" routing="Full">'
)


def cluster(topology: str, parameters: str, radical: str, more: str = "") -> str:
    return (
        f'<cluster id="c" prefix="n-" suffix=".x" radical="{radical}" speed="1Gf" bw="125MBps" lat="50us" '
        f'topology="{topology}" topo_parameters="{parameters}" {more}/>'
    )


def read(tmp_path: Path, content: str) -> dict[str, Any]:
    file = tmp_path / "platform.xml"
    file.write_text(f"{HEAD}{content}</zone></platform>")
    data = formats.read(file)
    assert data is not None
    Cluster.from_dict(data)
    return data


def test_a_flat_cluster_is_a_star(tmp_path: Path) -> None:
    data = read(tmp_path, '<cluster id="c" radical="0-9,12" speed="2Gf,1Gf" core="4" bw="10Gbps" lat="10ms" bb_bw="2.25GBps"/>')
    assert data["name"] == "world"
    assert data["group"] == [
        {
            "name": "c",
            "count": 11,
            "node": {"socket": [{"count": 1, "cores": 4, "flops": {"fp64": 8e9}}], "nic": [{"count": 1, "network": "c"}]},
        }
    ]
    assert data["network"]["c"] == {"topology": "star", "rate": 1.25e9, "latency": {"switch": 0.01}}
    assert {fact["key"]: fact["value"] for fact in data["facts"]}["network.c.backbone"] == 2.25e9


def test_a_torus(tmp_path: Path) -> None:
    data = read(tmp_path, cluster("TORUS", "3,2,2", "0-11"))
    assert data["network"]["c"]["dims"] == [3, 2, 2]
    assert data["network"]["c"]["latency"] == {"nic": pytest.approx(50e-6)}


def test_a_fat_tree_of_two_levels(tmp_path: Path) -> None:
    """Four leaves of four hosts, each with two links to either of two roots."""
    levels = read(tmp_path, cluster("FAT_TREE", "2;4,4;1,2;1,2", "0-15"))["network"]["c"]["levels"]
    assert levels == [{"down": 4, "up": 4, "switches": 4}, {"down": 8, "up": 0, "switches": 2}]


def test_a_fat_tree_of_three_levels(tmp_path: Path) -> None:
    levels = read(tmp_path, cluster("FAT_TREE", "3;4,4,2;1,2,2;1,1,1", "0-31"))["network"]["c"]["levels"]
    assert levels == [{"down": 4, "up": 2, "switches": 8}, {"down": 4, "up": 2, "switches": 4}, {"down": 2, "up": 0, "switches": 4}]


def test_a_dragonfly(tmp_path: Path) -> None:
    data = read(tmp_path, cluster("DRAGONFLY", "3,4;1,1;5,1;2", "0-29"))
    network = data["network"]["c"]
    assert (network["groups"], network["switches_per_group"], network["endpoints_per_switch"]) == (3, 5, 2)
    assert (network["links_between_groups"], network["links_in_group"]) == (4, 1)
    assert not any(fact["key"] == "simgrid.simplified" for fact in data["facts"])
    grid = read(tmp_path, cluster("DRAGONFLY", "3,4;4,3;5,1;2", "0-119"))
    assert grid["network"]["c"]["switches_per_group"] == 20
    assert any(fact["key"] == "simgrid.simplified" for fact in grid["facts"])


def test_hosts_by_themselves_are_grouped_and_routes_counted(tmp_path: Path) -> None:
    hosts = "".join(f'<host id="h{k}" speed="{98.095 if k < 3 else 76.296}Mf" core="2"/>' for k in range(5))
    data = read(tmp_path, hosts + '<link id="l" bandwidth="1MBps" latency="1ms"/><route src="h0" dst="h1"><link_ctn id="l"/></route>')
    assert [(group["count"], group["node"]["socket"][0]["flops"]["fp64"]) for group in data["group"]] == [
        (3, pytest.approx(196.19e6)),
        (2, pytest.approx(152.592e6)),
    ]
    assert {fact["key"]: fact["value"] for fact in data["facts"]}["simgrid.not_read.route"] == 1


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (cluster("TORUS", "3,2,2", "0-12"), "make 12 hosts, radical names 13"),
        (cluster("TORUS", "3,x", "0-12"), "expected 1 to 8 numbers"),
        (cluster("TORUS", "1000000,1000000,1000000,1000000", "0-12"), "1,000,000,000,000,000,000,000,000 hosts"),
        (cluster("FAT_TREE", "2;4,4;1,2", "0-15"), "levels;children"),
        (cluster("FAT_TREE", "3;4,4;1,2;1,2", "0-15"), "3 numbers"),
        (cluster("DRAGONFLY", "3,4;4,3;5,1", "0-15"), "groups,links"),
        (cluster("BUTTERFLY", "", "0-15"), 'unknown topology "BUTTERFLY"'),
        (cluster("TORUS", "4", "0-999999999999"), "at most 1,000,000"),
        (cluster("TORUS", "4", "3-0"), "radical"),
        ('<host id="a" speed="fast"/>', 'speed: found "fast"'),
        ('<host id="a" speed="0f"/>', "more than 0"),
        ('<host id="a" speed="1Gf" core="0"/>', "core"),
        ("", "no host and no cluster"),
    ],
)
def test_bad_platforms_say_what_is_wrong(tmp_path: Path, content: str, what: str) -> None:
    with pytest.raises(InputError, match=what):
        read(tmp_path, content)


@pytest.mark.parametrize("name", ["fat-tree-1k", "torus-4096"])
def test_what_we_write_for_simgrid_is_read_back(tmp_path: Path, name: str) -> None:
    ours = preset(name)
    ours.to_simgrid(tmp_path / "platform.xml")
    theirs = load(tmp_path / "platform.xml")
    (mine,), (other,) = ours.networks.values(), theirs.networks.values()
    assert theirs.nodes == ours.nodes
    assert (type(other), other.offers, other.rate) == (type(mine), mine.offers, mine.rate)
    if isinstance(mine, FatTree) and isinstance(other, FatTree):
        assert [(x.down, x.up, x.switches) for x in other.shape] == [(x.down, x.up, x.switches) for x in mine.shape]


def test_a_large_platform_of_routes_is_counted_and_its_hosts_read(tmp_path: Path) -> None:
    routes = '<route src="a" dst="b"><link_ctn id="l"/></route>' * 150_000
    data = read(tmp_path, '<host id="a" speed="1Gf"/>' + routes + '<host id="b" speed="1Gf"/>')
    assert data["group"][0]["count"] == 2
    assert {fact["key"]: fact["value"] for fact in data["facts"]}["simgrid.not_read.route"] == 150_000


def test_another_version_is_refused(tmp_path: Path) -> None:
    (tmp_path / "p.xml").write_text('<platform version="3"/>')
    with pytest.raises(InputError, match=r'version "3"; expected 4\.1'):
        formats.read(tmp_path / "p.xml")
