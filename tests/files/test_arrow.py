"""Arrow files: what is sound is read, and what lies about rows, buffers or packed sizes is refused before Polars sees it."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from armillary.errors import InputError
from armillary.files.arrow import check_arrow, read_arrow

FRAME = pl.DataFrame({"k": np.arange(1000), "text": [f"t{i}" for i in range(1000)], "few": pl.Series(["a", "b"] * 500, dtype=pl.Categorical)})


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
