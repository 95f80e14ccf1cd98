"""The matrix that `nvidia-smi topo -m` prints."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from armillary.cluster import Cluster, formats
from armillary.errors import InputError


def matrix(rows: dict[str, str], more: str = "0-55,112-167\t0\t\tN/A") -> str:
    names = list(rows)
    lines = ["\t" + "\t".join(names) + "\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID"]
    lines += [name + "\t" + "\t".join(f" {cell} " if cell == "X" else cell for cell in rows[name].split()) + "\t" + more for name in names]
    return "\n".join(lines) + "\n\nLegend:\n\n  X    = Self\n  NV#  = Connection traversing a bonded set of # NVLinks\n"


def read(tmp_path: Path, text: str) -> dict[str, Any]:
    (tmp_path / "topo.txt").write_text(text)
    data = formats.read(tmp_path / "topo.txt")
    assert data is not None
    Cluster.from_dict(data)
    return data


def test_eight_gpus_behind_switches(tmp_path: Path) -> None:
    rows = {f"GPU{k}": " ".join("X" if k == other else "NV18" for other in range(8)) for k in range(8)}
    node = read(tmp_path, matrix(rows))["group"][0]["node"]
    assert node["device"] == [{"count": 8, "kind": "gpu"}]
    assert node["link"] == [{"kind": "nvlink", "name": "NV18", "between": "device", "topology": "switch"}]


def test_unequal_pairs_with_nics_and_colours(tmp_path: Path) -> None:
    rows = {
        "GPU0": "X NV2 NV1 SYS PIX",
        "GPU1": "NV2 X SYS NV1 PIX",
        "GPU2": "NV1 SYS X NV2 SYS",
        "GPU3": "SYS NV1 NV2 X SYS",
        "NIC0": "PIX PIX SYS SYS X",
    }
    text = matrix(rows).replace("\tGPU0\tGPU1", "\t\x1b[4mGPU0\tGPU1")
    data = read(tmp_path, text)
    node = data["group"][0]["node"]
    assert node["nic"] == [{"count": 1}]
    assert [(link["name"], link["topology"], link["pairs"]) for link in node["link"]] == [
        ("NV1", "pairs", [[0, 2], [1, 3]]),
        ("NV2", "pairs", [[0, 1], [2, 3]]),
        ("SYS", "pairs", [[0, 3], [1, 2]]),
    ]
    assert {fact["key"]: fact["value"] for fact in data["facts"]}["GPU0.cpus"] == "0-55,112-167"


def test_one_gpu_as_a_real_machine_printed_it(tmp_path: Path) -> None:
    text = "\t\x1b[4mGPU0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\x1b[0m\nGPU0\t X \t0-15\t0\t\tN/A\n\nLegend:\n\n  X    = Self\n"
    assert read(tmp_path, text)["group"][0]["node"] == {"device": [{"count": 1, "kind": "gpu"}]}


@pytest.mark.parametrize(
    ("rows", "what"),
    [
        ({"GPU0": "X NV2", "GPU1": "NV1 X"}, "NV2 in one direction and NV1 in the other"),
        ({"GPU0": "X WAY", "GPU1": "NV1 X"}, 'found "WAY"'),
        ({"GPU0": "X", "GPU1": "NV1 X"}, "row GPU0"),
    ],
)
def test_a_bad_matrix_says_what_is_wrong(tmp_path: Path, rows: dict[str, str], what: str) -> None:
    with pytest.raises(InputError, match=what):
        read(tmp_path, matrix(rows))


def test_a_missing_row_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match='no row for "GPU1"'):
        read(tmp_path, "\tGPU0\tGPU1\tCPU Affinity\nGPU0\t X \tNV1\t0-3\n")
