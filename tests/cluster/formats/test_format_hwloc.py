"""hwloc's XML by hand, with every part that is read; the real tool is asked in test_detect_oracle."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from armillary.cluster import Cluster, formats, load
from armillary.cluster.formats import xml
from armillary.errors import InputError

HEAD = '<?xml version="1.0" encoding="UTF-8"?>\n<!DOCTYPE topology SYSTEM "hwloc2.dtd">\n<topology version="2.0">\n'


def core(first: int) -> str:
    pus = "".join(f'<object type="PU" os_index="{cpu}"/>' for cpu in (first, first + 8))
    return (
        '<object type="L2Cache" cache_size="2097152" depth="2" cache_type="0">'
        '<object type="L1Cache" cache_size="49152" cache_type="1"><object type="L1iCache" cache_size="32768" cache_type="2">'
        f'<object type="Core" os_index="{first}">{pus}</object></object></object></object>'
    )


def package(index: int, mask: str, devices: str = "") -> str:
    cores = "".join(core(4 * index + k) for k in range(4))
    return (
        f'<object type="Package" os_index="{index}"><info name="CPUModel" value="Xeon  Platinum"/>'
        f'<object type="NUMANode" os_index="{index}" cpuset="{mask}" local_memory="1073741824"/>'
        f'<object type="L3Cache" cache_size="110100480" depth="3">{cores}</object>{devices}</object>'
    )


GPU = (
    '<object type="Bridge" bridge_type="0-1">'
    '<object type="PCIDev" pci_busid="0000:1b:00.0" pci_type="0302 [10de:2330] [10de:16c1] a1">'
    '<object type="OSDev" name="cuda0" osdev_type="5" subtype="CUDA"><info name="GPUModel" value="NVIDIA H100 80GB HBM3"/>'
    '<info name="CUDAGlobalMemorySize" value="83516416"/></object></object></object>'
)
NIC = (
    '<object type="PCIDev" pci_busid="0000:18:00.0" pci_type="0207 [15b3:1021] [15b3:0023] 00">'
    '<object type="OSDev" name="mlx5_0" osdev_type="3"/></object>'
)
VGA = '<object type="PCIDev" pci_busid="0000:02:00.0" pci_type="0300 [1a03:2000] [1a03:2000] 52"/>'
DRIVE = (
    '<object type="PCIDev" pci_busid="0000:03:00.0" pci_type="0108 [144d:a80a] [144d:a801] 00">'
    '<object type="OSDev" name="nvme0n1" osdev_type="0" subtype="Disk"><info name="Size" value="1875374424"/></object></object>'
)
FAR = '<object type="NUMANode" os_index="2" cpuset="0x0" local_memory="4294967296"/>'


def machine(content: str) -> str:
    return f'{HEAD}<object type="Machine" os_index="0"><info name="HostName" value="node7"/>{content}</object></topology>'


WHOLE = machine(package(0, "0x00000f0f", GPU + NIC) + package(1, "0x0000f0f0") + VGA + DRIVE + FAR)


def read(tmp_path: Path, text: str | bytes) -> dict[str, Any]:
    file = tmp_path / "machine.xml"
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    data = formats.read(file)
    assert data is not None
    return data


def test_every_part_of_the_machine_is_read(tmp_path: Path) -> None:
    data = read(tmp_path, WHOLE)
    node = data["group"][0]["node"]
    assert data["name"] == "node7"
    assert node["socket"] == [
        {
            "count": 2,
            "cores": 4,
            "threads_per_core": 2,
            "model": "Xeon Platinum",
            "caches": [
                {"level": 1, "size": 49152, "shared_by": 1},
                {"level": 2, "size": 2 << 20, "shared_by": 1},
                {"level": 3, "size": 105 << 20, "shared_by": 4},
            ],
        }
    ]
    assert node["memory"] == [
        {"name": "dram", "kind": "dram", "size": 2 << 30, "attached": "socket"},
        {"name": "cxl", "kind": "cxl", "size": 4 << 30, "attached": "node"},
        {"name": "nvme", "kind": "nvme", "count": 1, "size": 1_875_374_424 << 10, "attached": "node"},
    ]
    assert node["device"] == [
        {
            "count": 1,
            "kind": "gpu",
            "model": "NVIDIA H100 80GB HBM3",
            "memory": {"kind": "hbm", "size": 83_516_416 << 10},
            "near": "socket:0",
        }
    ]
    assert node["nic"] == [{"count": 1, "model": "ConnectX-7", "near": "socket:0"}]
    cluster = load(tmp_path / "machine.xml")
    assert (cluster.cores, cluster.threads) == (8, 16)


def test_a_second_memory_of_the_same_processors_is_a_tier_and_no_domain(tmp_path: Path) -> None:
    second = '<object type="NUMANode" os_index="4" cpuset="0x00000f0f" local_memory="1024" subtype="HBM"/>'
    node = read(tmp_path, machine(package(0, "0x00000f0f", second)))["group"][0]["node"]
    assert "numa" not in node["socket"][0]
    assert [(tier["kind"], tier["size"]) for tier in node["memory"]] == [("hbm", 1024), ("dram", 1 << 30)]


BOMB = (
    '<?xml version="1.0"?><!DOCTYPE topology [<!ENTITY a "ha">'
    + "".join(f'<!ENTITY {chr(98 + k)} "{f"&{chr(97 + k)};" * 10}">' for k in range(9))
    + ']><topology version="2.0">&j;</topology>'
)


@pytest.mark.parametrize(
    ("text", "what"),
    [
        (BOMB, "a DTD inside the file is refused"),
        ('<!DOCTYPE topology [<!ENTITY x SYSTEM "file:///etc/passwd">]><topology version="2.0">&x;</topology>', "refused"),
        ('<!DOCTYPE topology SYSTEM "x.dtd"><topology version="2.0">&x;</topology>', "Machine|entity"),
        ("<topology>", "not well-formed"),
        ("<topology/>", 'version "none"; expected 2.x'),
        ('<topology version="1.0"/>', "expected 2.x"),
        ('<topology version="2.0"/>', "found 0 objects"),
        (machine(""), "no hardware thread"),
        (machine('<object type="Core"/>'), "a core without hardware threads"),
        (machine('<object type="Core"><object type="PU" os_index="1"/><object type="PU" os_index="1"/></object>'), "appears twice"),
        (machine('<object type="Core"><object type="PU" os_index="99999999"/></object>'), "os_index"),
        (machine('<object type="NUMANode" cpuset="everything"/>'), "cpuset"),
        (machine('<object type="NUMANode" cpuset="0x1" local_memory="-3"/>'), "local_memory"),
        ("<a>" * 300, "nest deeper"),
        ("<note/>", "expected <topology> .hwloc. or <platform>"),
        ('<?xml version="1.0" encoding="martian"?><topology/>', "machine.xml"),
    ],
)
def test_bad_xml_says_what_is_wrong(tmp_path: Path, text: str, what: str) -> None:
    with pytest.raises(InputError, match=what):
        read(tmp_path, text)


def test_too_many_elements_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert xml.MOST_ELEMENTS == 200_000
    monkeypatch.setattr(xml, "MOST_ELEMENTS", 5_000)
    with pytest.raises(InputError, match="more than 5,000 elements"):
        read(tmp_path, HEAD + "<x/>" * 5_001 + "</topology>")


def test_another_encoding_is_read(tmp_path: Path) -> None:
    text = WHOLE.replace("UTF-8", "UTF-16")
    assert Cluster.from_dict(read(tmp_path, text.encode("utf-16"))).cores == 8
