"""What machines say that they are: FRU memories to the bit, dumps of other tools, and every way in which they can be damaged."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from armillary.cluster.detect.fru import read_fru
from armillary.cluster.detect.identity import (
    ASSET,
    DEVICE_TREE,
    DMI_INTERFACE,
    FRU,
    PCIE,
    read_device_tree,
    read_dmi,
    read_dmidecode,
    read_fru_memory,
    read_inventory,
    read_pci,
)
from armillary.cluster.detect.tree import Tree
from armillary.errors import InputError


def text8(text: str) -> bytes:
    return bytes([0xC0 | len(text)]) + text.encode("latin-1")


def text6(text: str) -> bytes:
    """Four characters of six bits in three bytes, lowest bits first."""
    bits = sum((ord(c) - 32) << 6 * k for k, c in enumerate(text))
    size = -(-6 * len(text) // 8)
    return bytes([0x80 | size]) + bits.to_bytes(size, "little")


def area(head: bytes, fields: bytes) -> bytes:
    """An area: version, length in units of eight bytes, content, end mark, padding, checksum."""
    body = head[:1] + b"?" + head[1:] + fields + b"\xc1"
    length = -(-(len(body) + 1) // 8)
    body = body[:1] + bytes([length]) + body[2:].ljust(length * 8 - 3, b"\0")
    return body + bytes([-sum(body) % 256])


def good_fru() -> bytes:
    chassis = area(b"\x01\x17", text8("CH-1") + text6("CHSERIAL"))
    minutes = (8766 * 60 * 24).to_bytes(3, "little")  # 24 years of 365.25 days after 1996
    board = area(b"\x01\x19" + minutes, text8("Maker") + text6("BASEBOARD 1 ") + text8("S123") + text8("P/N 7") + b"\x00")
    fields = text8("Maker") + text8("HGX H100 8-GPU") + text8("P/N 9") + text8("A1") + text8("S9") + b"\x00" + b"\x00" + text8("extra")
    product = area(b"\x01\x19", fields)
    offsets = [1, 1 + len(chassis) // 8, 1 + (len(chassis) + len(board)) // 8]
    header = bytes([1, 0, *offsets, 0, 0])
    memory = header + bytes([-sum(header) % 256]) + chassis + board + product
    return memory.ljust(256, b"\xff")


def test_a_good_memory_is_read_in_both_encodings() -> None:
    areas = read_fru(good_fru())
    assert areas["chassis"] == {"type": "23", "part_number": "CH-1", "serial_number": "CHSERIAL"}
    assert areas["board"] == {
        "manufactured": "2020-01-01T00:00Z",
        "manufacturer": "Maker",
        "product_name": "BASEBOARD 1",
        "serial_number": "S123",
        "part_number": "P/N 7",
    }
    assert areas["product"]["product_name"] == "HGX H100 8-GPU"
    assert areas["product"]["serial_number"] == "S9"
    assert areas["product"]["custom_1"] == "extra"
    thing = read_fru_memory(good_fru())
    assert thing.get(ASSET, "Model") == "HGX H100 8-GPU"
    assert thing.get(FRU, "BOARD_PRODUCT_NAME") == "BASEBOARD 1"


def test_every_flipped_byte_in_a_covered_area_is_caught() -> None:
    memory = good_fru()
    covered = len(memory.rstrip(b"\xff"))
    for position in range(covered):
        damaged = bytearray(memory)
        damaged[position] ^= 0x5A
        with pytest.raises(InputError):
            read_fru(bytes(damaged))


def test_every_truncation_is_an_input_error() -> None:
    memory = good_fru()
    for length in range(len(memory.rstrip(b"\xff"))):
        with pytest.raises(InputError):
            read_fru(memory[:length])


def test_a_field_longer_than_its_area_is_named() -> None:
    content = area(b"\x01\x19", b"\xfc")
    header = bytes([1, 0, 0, 0, 1, 0, 0])
    with pytest.raises(InputError, match="field 0 of 60 bytes runs past"):
        read_fru(header + bytes([-sum(header) % 256]) + content)


@given(st.binary(max_size=300))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    with contextlib.suppress(InputError):
        read_fru(data)


@given(st.binary(min_size=1, max_size=60))
def test_any_fields_behind_a_right_checksum_are_read_or_refused(fields: bytes) -> None:
    content = area(b"\x01\x19", fields)
    header = bytes([1, 0, 0, 0, 1, 0, 0])
    with contextlib.suppress(InputError):
        read_fru(header + bytes([-sum(header) % 256]) + content)


def test_dmi_and_device_tree_of_the_copied_machines(trees: Path) -> None:
    (thing,) = read_dmi(Tree(trees / "h100-8"))
    assert thing.get(DMI_INTERFACE, "product_name") == "DGXH100"
    assert thing.get(ASSET, "Manufacturer") == "NVIDIA"
    assert read_dmi(Tree(trees / "vm-cgroup-v1")) == ()
    (board,) = read_device_tree(Tree(trees / "jetson"))
    assert board.get(DEVICE_TREE, "compatible") == ["nvidia,p3768-0000+p3767-0005", "nvidia,p3767-0005", "nvidia,tegra234"]
    assert board.get(ASSET, "Model") == "NVIDIA Jetson Orin Nano Developer Kit"
    devices = read_pci(Tree(trees / "h100-8"))
    assert sum(thing.get(PCIE, "DeviceId") == "0x2330" for thing in devices) == 8


def test_firmware_that_was_never_filled_in_says_nothing(trees: Path) -> None:
    (thing,) = read_dmi(Tree(trees / "arm-cxl"))
    assert thing.get(DMI_INTERFACE, "product_family") is None


DMIDECODE = """# dmidecode 3.3
Handle 0x0001, DMI type 1, 27 bytes
System Information
\tManufacturer: NVIDIA
\tProduct Name: DGXH100
\tUUID: Not Settable

Handle 0x0011, DMI type 17, 92 bytes
Memory Device
\tSize: 64 GB
\tFlags:
\t\tfirst
\t\tsecond
"""


def test_a_saved_dmidecode_is_read() -> None:
    system, memory = read_dmidecode(DMIDECODE)
    assert system.get(ASSET, "Model") == "DGXH100"
    assert system.get("org.kernel.Dmi.SystemInformation", "Type") == 1
    assert memory.get("org.kernel.Dmi.MemoryDevice", "Flags") == ["first", "second"]
    with pytest.raises(InputError, match="dmidecode prints"):
        read_dmidecode("nothing of the kind")
    with pytest.raises(InputError, match="DMI type"):
        read_dmidecode("Handle oops\n")


@given(st.text(max_size=200))
def test_any_text_is_a_dump_or_an_input_error(text: str) -> None:
    for reader in (read_dmidecode, read_inventory):
        with contextlib.suppress(InputError):
            reader("Handle 0x1, DMI type 1, 2\n" + text)


def test_a_dump_of_objects_is_read_in_both_shapes() -> None:
    (thing,) = read_inventory(json.dumps({"/xyz/gpu_0": {ASSET: {"Model": "H100"}}}))
    assert thing.get(ASSET, "Model") == "H100"
    (flat,) = read_inventory(json.dumps([{"/fru/0": {"BOARD_PRODUCT_NAME": "x", "ADDRESS": 80}}]))
    assert flat.get(FRU, "ADDRESS") == 80


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("{", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ('{"/a": {"i": {"p": 1, "p": 2}}}', "stands twice"),
        ('{"a b": {}}', "not an object path"),
        ('{"/a": 3}', "expected interfaces"),
        ('{"/a": {"i": {"p": null}}}', "expected a string"),
        ("[3]", "expected an object"),
    ],
)
def test_a_bad_dump_says_what_is_wrong(text: str, what: str) -> None:
    with pytest.raises(InputError, match=what):
        read_inventory(text)
