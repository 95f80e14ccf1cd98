"""Arrow files: what is sound is read, and what lies about rows, buffers or packed sizes is refused before Polars sees it."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from armillary.errors import InputError
from armillary.files.arrow import check_arrow, read_arrow

FRAME = pl.DataFrame(
    {"k": np.arange(1000), "text": [f"t{i}" for i in range(1000)], "few": pl.Series(["a", "b"] * 500, dtype=pl.Categorical)}
)


def checked(path: Path, limit: int | None = None) -> tuple[int, list[str]]:
    with path.open("rb") as file:
        return check_arrow(file, path.name, limit)


@pytest.mark.parametrize("packing", ["uncompressed", "lz4", "zstd"])
def test_sound_files_are_read(tmp_path: Path, packing: str) -> None:
    path = tmp_path / "x.arrow"
    FRAME.write_ipc(path, compression=packing, record_batch_size=300)  # type: ignore[arg-type]
    assert checked(path) == (1000, ["k", "text", "few"])
    with path.open("rb") as file:
        assert read_arrow(file, "x", "k").to_list() == list(range(1000))
    pl.DataFrame({"k": pl.Series([], dtype=pl.Int64)}).write_ipc(path)
    assert checked(path) == (0, ["k"])


def test_a_few_bytes_do_not_become_gigabytes(tmp_path: Path) -> None:
    path = tmp_path / "x.arrow"
    pl.DataFrame({"k": np.zeros(1 << 24, np.int64)}).write_ipc(path, compression="zstd")
    assert path.stat().st_size < 100_000
    with pytest.raises(InputError, match="unpack to 134,217,728 bytes"):
        checked(path)
    FRAME.write_ipc(path)
    with pytest.raises(InputError, match="expected at most 1,000"):
        checked(path, 1000)


def test_a_packed_size_that_lies_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.arrow"
    pl.DataFrame({"k": np.arange(1000)}).write_ipc(path, compression="zstd")
    whole = path.read_bytes()
    at = whole.index(struct.pack("<q", 8000) + b"\x28\xb5\x2f\xfd")
    for size, said in ((1 << 40, "unpack to"), (-5, "damaged Arrow data"), (10, "1,000 rows in 10 bytes")):
        path.write_bytes(whole[:at] + struct.pack("<q", size) + whole[at + 8 :])
        with pytest.raises(InputError, match=said):
            checked(path)


def test_cut_and_nested_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.arrow"
    FRAME.write_ipc(path)
    whole = path.read_bytes()
    for cut in (0, 5, 20, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:cut])
        with pytest.raises(InputError, match=r"Arrow (data|file)"):
            checked(path)
    value: object = 1
    for _ in range(40):
        value = [value]
    pl.DataFrame({"deep": [value]}).write_ipc(path)
    with pytest.raises(InputError, match="nested too deep"):
        checked(path)


def shared_children(levels: int) -> bytes:
    """A file whose footer has one column, with children that lead twice to the same child on each of some levels: 2^levels in all."""
    parts, places, leads = bytearray(4), {}, []

    def table(key: str, slots: dict[int, str]) -> None:
        fields = [4 * (1 + sorted(slots).index(slot)) if slot in slots else 0 for slot in range(6)]
        head = struct.pack("<8H", 16, 4 + 4 * len(slots), *fields)
        parts.extend(head + struct.pack("<i", len(head)))
        places[key] = len(parts) - 4
        lead(*(slots[slot] for slot in sorted(slots)))

    def lead(*keys: str) -> None:
        for key in keys:
            leads.append((len(parts), key))
            parts.extend(bytes(4))

    def vector(key: str, *members: str) -> None:
        places[key] = len(parts)
        parts.extend(struct.pack("<I", len(members)))
        lead(*members)

    table("footer", {1: "schema"})
    table("schema", {1: "columns"})
    vector("columns", "0")
    for level in range(levels):
        table(str(level), {0: "name", 5: f"under {level}"})
        vector(f"under {level}", str(level + 1), str(level + 1))
    table(str(levels), {0: "name"})
    places["name"] = len(parts)
    parts.extend(struct.pack("<I4s", 1, b"a"))
    struct.pack_into("<I", parts, 0, places["footer"])
    for at, key in leads:
        struct.pack_into("<I", parts, at, places[key] - at)
    return b"ARROW1\0\0" + parts + struct.pack("<I", len(parts)) + b"ARROW1"


def test_a_kilobyte_does_not_hold_a_billion_columns(tmp_path: Path) -> None:
    path = tmp_path / "x.arrow"
    path.write_bytes(shared_children(0))
    assert checked(path) == (0, ["a"])
    path.write_bytes(shared_children(30))
    with pytest.raises(InputError, match="damaged Arrow data"):
        checked(path)


def test_batches_that_overlap_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.arrow"
    pl.DataFrame({"k": np.arange(1000)}).write_ipc(path, record_batch_size=900)
    assert checked(path) == (1000, ["k"])
    whole = path.read_bytes()
    marks = [at for at in range(8, len(whole) - 8, 8) if whole[at : at + 4] == b"\xff\xff\xff\xff" and whole[at + 4 : at + 8] != bytes(4)]
    first, second = (whole.rindex(struct.pack("<q", at)) for at in marks[-2:])
    path.write_bytes(whole[:second] + whole[first : first + 24] + whole[second + 24 :])
    with pytest.raises(InputError, match="overlap"):
        checked(path)
