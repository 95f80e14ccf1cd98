"""slurm.conf and its neighbours, by hand and broken."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from armillary.cluster import Cluster, formats, load
from armillary.errors import InputError

CONF = r"""
# A cluster of two kinds of node
ClusterName=metro
SlurmctldHost=head(10.0.0.1)
SchedulerParameters=bf_max_job_test=1000,defer
Prolog=/etc/slurm/prolog.sh   # not read, not run
NodeName=DEFAULT Sockets=2 CoresPerSocket=56 ThreadsPerCore=2
NodeName=gpu[001-032] CPUs=224 RealMemory=2063936 \
    Gres=gpu:h100:8 \
    Feature=ndr,h100 Weight=100
NodeName=cpu[001-128,130] NodeAddr=10.1.0.[1-129] CoresPerSocket=64 RealMemory=515072 State=UNKNOWN
nodename=login1 CPUs=16 Sockets=1 CoresPerSocket=8 RealMemory=65536
PartitionName=gpu Nodes=gpu[001-032] Default=YES MaxTime=INFINITE
"""

TOPOLOGY = """
SwitchName=leaf1 Nodes=gpu[001-032]
SwitchName=leaf2 Nodes=cpu[001-064]
SwitchName=leaf3 Nodes=cpu[065-128,130],login1
SwitchName=spine Switches=leaf[1-3] LinkSpeed=400
"""


@pytest.fixture
def conf(tmp_path: Path) -> Path:
    (tmp_path / "slurm.conf").write_text(CONF)
    return tmp_path / "slurm.conf"


def read(path: Path, follow: bool = False) -> dict[str, Any]:
    data = formats.read(path, follow=follow)
    assert data is not None
    return data


def test_every_line_is_a_group(conf: Path) -> None:
    data = read(conf)
    assert data["name"] == "metro"
    gpu, cpu, login = data["group"]
    assert (gpu["name"], gpu["count"]) == ("gpu", 32)
    assert gpu["node"]["socket"] == [{"count": 2, "cores": 56, "threads_per_core": 2}]
    assert gpu["node"]["memory"] == [{"name": "dram", "kind": "dram", "size": 2_063_936 << 20, "attached": "socket"}]
    assert gpu["node"]["device"] == [{"count": 8, "kind": "gpu", "model": "h100"}]
    assert (cpu["count"], cpu["node"]["socket"][0]["cores"]) == (129, 64)
    assert login["node"]["socket"] == [{"count": 1, "cores": 8, "threads_per_core": 2}]
    facts = {fact["key"]: fact["value"] for fact in data["facts"]}
    assert facts["group.gpu.feature"] == "ndr,h100"
    assert facts["slurm.partition.gpu"] == "gpu[001-032]"
    cluster = load(conf)
    assert (cluster.nodes, cluster.devices("gpu")) == (162, 256)
    assert cluster.cores == 32 * 112 + 129 * 128 + 8


def test_switches_beside_it_become_a_tree(conf: Path) -> None:
    (conf.parent / "topology.conf").write_text(TOPOLOGY)
    data = read(conf)
    assert data["network"]["tree"]["levels"] == [
        {"down": 66, "up": 1, "switches": 3},
        {"down": 3, "up": 0, "switches": 1},
    ]
    assert all(group["node"]["nic"] == [{"count": 1, "network": "tree"}] for group in data["group"])
    Cluster.from_dict(data)


def test_three_even_levels_stay_three(conf: Path) -> None:
    lines = [f"SwitchName=leaf{k} Nodes=cpu[{32 * k + 1:03d}-{32 * k + 32:03d}]" for k in range(4)]
    lines += ["SwitchName=mid0 Switches=leaf[0-1]", "SwitchName=mid1 Switches=leaf[2-3]", "SwitchName=top Switches=mid[0-1]"]
    (conf.parent / "topology.conf").write_text("\n".join(lines))
    data = read(conf)
    levels = data["network"]["tree"]["levels"]
    assert [(level["down"], level["up"], level["switches"]) for level in levels] == [(41, 1, 4), (2, 1, 2), (2, 0, 1)]
    assert {f["key"]: f["value"] for f in data["facts"]}["network.tree.hosts_without_switch"] == 34
    Cluster.from_dict(data)


def test_an_uneven_tree_is_simplified_and_says_so(conf: Path) -> None:
    text = "SwitchName=a Nodes=cpu[001-128,130]\nSwitchName=b Nodes=gpu[001-032]\nSwitchName=m Switches=a\nSwitchName=t Switches=m,b\n"
    (conf.parent / "topology.conf").write_text(text)
    data = read(conf)
    assert len(data["network"]["tree"]["levels"]) == 2
    assert any(fact["key"] == "network.tree.simplified" for fact in data["facts"])
    Cluster.from_dict(data)


def test_gres_beside_it_names_the_gpus(tmp_path: Path) -> None:
    (tmp_path / "slurm.conf").write_text("NodeName=a[1-2] CPUs=4 Gres=gpu:4\nNodeName=b1 CPUs=4 Gres=gpu:a30:1(S:0),gpu:2,mps:100\n")
    (tmp_path / "gres.conf").write_text(
        "AutoDetect=off\nNodeName=a[1-2] Name=gpu Type=a100 File=/dev/nvidia[0-3] Cores=0-1\n"
        "NodeName=b1 Name=gpu Type=l40 File=/dev/nvidia1\n"
    )
    a, b = read(tmp_path / "slurm.conf")["group"]
    assert a["node"]["device"] == [{"count": 4, "kind": "gpu", "model": "a100"}]
    assert b["node"]["device"] == [{"count": 1, "kind": "gpu", "model": "a30"}, {"count": 2, "kind": "gpu", "model": "l40"}]


@pytest.mark.parametrize(
    ("line", "socket"),
    [
        ("CPUs=64", {"count": 1, "cores": 64, "threads_per_core": 1}),
        ("CPUs=64 ThreadsPerCore=2", {"count": 1, "cores": 32, "threads_per_core": 2}),
        ("CPUs=64 Sockets=2 ThreadsPerCore=2", {"count": 2, "cores": 16, "threads_per_core": 2}),
        ("CPUs=32 Sockets=2 CoresPerSocket=16 ThreadsPerCore=2", {"count": 2, "cores": 16, "threads_per_core": 2}),
        ("Boards=2 SocketsPerBoard=2 CoresPerSocket=8", {"count": 4, "cores": 8, "threads_per_core": 1}),
        ("CPUs=64 CoresPerSocket=16", {"count": 4, "cores": 16, "threads_per_core": 1}),
    ],
)
def test_what_slurm_leaves_out_is_worked_out(tmp_path: Path, line: str, socket: dict[str, int]) -> None:
    (tmp_path / "slurm.conf").write_text(f"NodeName=n1 {line}\n")
    assert read(tmp_path / "slurm.conf")["group"][0]["node"]["socket"] == [socket]


def test_include_is_followed_only_when_asked(conf: Path) -> None:
    conf.write_text("Include nodes.conf\nNodeName=x1 CPUs=2\n")
    (conf.parent / "nodes.conf").write_text("NodeName=y[1-3] CPUs=4\n")
    with pytest.raises(InputError, match=r"slurm\.conf:1: Include .* not followed"):
        read(conf)
    assert [group["count"] for group in read(conf, follow=True)["group"]] == [3, 1]
    (conf.parent / "nodes.conf").write_text("include slurm.conf\n")
    with pytest.raises(InputError, match="include each other"):
        read(conf, follow=True)
    conf.write_text("Include /nowhere/at/all\nNodeName=x1 CPUs=2\n")
    with pytest.raises(InputError, match="cannot be read"):
        read(conf, follow=True)


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("NodeName=n[1-999999999] CPUs=1", r"slurm\.conf:1: .*at most 1,000,000"),
        ("NodeName=n1 CPUs=1\n\nNodeName=n1 CPUs=1", r'slurm\.conf:3: host "n1" was defined before'),
        ("NodeName=n1 CPUs=many", 'cpus: found "many"; expected a whole number'),
        ("NodeName=n1 CPUs=0", "expected a whole number from 1"),
        ("NodeName=n1 CPUs=1000000000", "from 1 to 10,000,000"),
        ("NodeName=n1 CPUs=7 Sockets=2 CoresPerSocket=8", "2 sockets × 8 cores × 1 threads are 16"),
        ("NodeName=n1 CPUs=4 Gres=gpu:h100:x", "expected gpu:type:count"),
        ("NodeName=n1 CPUs=4 Gres=gpu:h100:9999", "Gres"),
        ("NodeName=n1 CPUs 4", "expected Key=value"),
        ("NodeName=n1 CPUs=4\nSwitchName=a Switches=b", "which is not defined"),
        ("NodeName=n1 CPUs=4\nSwitchName=a Switches=b\nSwitchName=b Switches=a", "lies below itself"),
        ("NodeName=n1 CPUs=4\nSwitchName=a Nodes=n1\nSwitchName=a Nodes=n1", "was defined before"),
        ("SwitchName=a Nodes=n1", "no NodeName line"),
        ("NodeName=DEFAULT CPUs=4", "only defaults"),
        ("NodeName=n1\nSwitchName=s Nodes=m[1-1000000]\nSwitchName=t Nodes=m1", "more than 1,000,000 names"),
    ],
)
def test_a_bad_file_says_where_and_what(tmp_path: Path, text: str, what: str) -> None:
    (tmp_path / "slurm.conf").write_text(text)
    with pytest.raises(InputError, match=what):
        read(tmp_path / "slurm.conf")


def test_what_is_not_slurm_is_left_to_others(tmp_path: Path) -> None:
    (tmp_path / "my.toml").write_text('armillary = 1\nname = "NodeName"\n')
    assert formats.read(tmp_path / "my.toml") is None
    (tmp_path / "empty").write_text("")
    assert formats.read(tmp_path / "empty") is None


@pytest.mark.parametrize(("content", "what"), [(b"\xff\xfe\xfa\xfb", "not UTF-8"), (b"NodeName=n\0", "zero byte")])
def test_what_is_not_text_is_refused(tmp_path: Path, content: bytes, what: str) -> None:
    (tmp_path / "slurm.conf").write_bytes(content)
    with pytest.raises(InputError, match=what):
        formats.read(tmp_path / "slurm.conf")


def test_folders_and_missing_files_are_input_errors(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "nowhere", Path("\0")):
        with pytest.raises(InputError):
            formats.read(path)
