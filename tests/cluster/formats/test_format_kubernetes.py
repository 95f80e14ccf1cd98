"""Nodes as kubectl prints them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from armillary.cluster import Cluster, formats, load
from armillary.errors import InputError


def node(cpu: str = "64", memory: str = "263856304Ki", gpus: str | None = None, **labels: str) -> dict[str, Any]:
    capacity = {"cpu": cpu, "memory": memory, "pods": "110", "ephemeral-storage": "100Gi", "hugepages-2Mi": "0"}
    if gpus:
        capacity["nvidia.com/gpu"] = gpus
    return {
        "kind": "Node",
        "metadata": {"name": "n", "labels": {key.replace("__", "/").replace("_", "."): value for key, value in labels.items()}},
        "status": {
            "capacity": capacity,
            "allocatable": {"cpu": "63500m", "memory": "250Gi"},
            "nodeInfo": {"architecture": "amd64"},
        },
    }


def read(tmp_path: Path, data: object) -> dict[str, Any]:
    (tmp_path / "nodes.json").write_text(data if isinstance(data, str) else json.dumps(data))
    found = formats.read(tmp_path / "nodes.json")
    assert found is not None
    Cluster.from_dict(found)
    return found


def nodes(*items: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "List", "items": list(items)}


def test_nodes_of_one_instance_type_are_a_group(tmp_path: Path) -> None:
    labels = {
        "node.kubernetes.io/instance-type": "p5.48xlarge",
        "nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3",
        "nvidia.com/gpu.memory": "81559",
    }
    items = [node("192", f"{2_097_152 - k}Mi", "8") for k in range(3)]
    for item in items:
        item["metadata"]["labels"] = labels
    data = read(tmp_path, nodes(*items, node()))
    gpu, plain = data["group"]
    assert (gpu["name"], gpu["count"]) == ("p5.48xlarge", 3)
    assert gpu["node"]["socket"] == [{"count": 1, "cores": 192, "threads_per_core": 1}]
    assert gpu["node"]["device"] == [
        {"count": 8, "kind": "gpu", "model": "NVIDIA-H100-80GB-HBM3", "memory": {"kind": "hbm", "size": 81_559 << 20}}
    ]
    assert gpu["node"]["memory"][0]["size"] == (2_097_152 - 2) << 20  # the least of the three
    assert gpu["node"]["usable"] == {"cores": 63.5, "memory": 250 << 30}
    assert (plain["name"], plain["count"]) == ("nodes", 1)
    cluster = load(tmp_path / "nodes.json")
    assert (cluster.nodes, cluster.devices("gpu")) == (4, 24)


def test_one_node_alone_is_read(tmp_path: Path) -> None:
    assert read(tmp_path, node())["group"][0]["count"] == 1


def test_without_a_type_only_equal_memory_makes_nodes_equal(tmp_path: Path) -> None:
    groups = read(tmp_path, nodes(node(memory="1Gi"), node(memory="1Gi"), node(memory="2Gi")))["group"]
    assert [(group["name"], group["count"]) for group in groups] == [("nodes", 2), ("nodes-2", 1)]


def test_hardware_threads_are_not_counted_as_cores_where_a_label_tells(tmp_path: Path) -> None:
    item = node()
    item["metadata"]["labels"] = {"feature.node.kubernetes.io/cpu-hardware_multithreading": "true"}
    (group,) = read(tmp_path, nodes(item))["group"]
    assert group["node"]["socket"] == [{"count": 1, "cores": 32, "threads_per_core": 2}]
    assert group["node"]["usable"]["cores"] == 31.75


@pytest.mark.parametrize(
    ("data", "what"),
    [
        ("{", "not JSON"),
        ("{" * 1 + '"a":' * 1 + "[" * 100_000, "JSON"),
        ({"hello": 1}, "status: expected an object"),
        ({"kind": "List", "items": [{"kind": "Pod"}]}, "expected nodes"),
        (nodes(node(cpu="lots")), r'items\[0\]: cpu: found "lots"'),
        (nodes(node(cpu="0")), "expected at least 1"),
        (nodes(node(memory="9999999Ei")), "expected at most"),
        (nodes(node(cpu="1e99")), "cpu"),
        (nodes({"kind": "Node", "status": {}}), "status.capacity: expected an object"),
        (nodes({"kind": "Node", "status": {"capacity": {"cpu": True}}}), "cpu"),
    ],
)
def test_bad_lists_say_what_is_wrong(tmp_path: Path, data: object, what: str) -> None:
    with pytest.raises(InputError, match=what):
        read(tmp_path, data)
