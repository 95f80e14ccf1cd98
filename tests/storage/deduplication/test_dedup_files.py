"""What trees, traces, FIU text, OCI layouts, the advice and the filesystem give, and what they refuse."""

from __future__ import annotations

import gzip
import hashlib
import json
from pathlib import Path

import numpy as np
import polars
import pytest

from armillary.errors import InputError
from armillary.storage.deduplication import DedupStore, advise, read_fiu, read_oci, read_trace, read_tree
from armillary.storage.deduplication.arena import deduplication

K = 1024
HEADER = "time,client,file,offset,length,fingerprint\n"
A, B, C = "aa" * 20, "bb" * 20, "cc" * 20


def test_a_tree_is_chunked_and_hashed(tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "one").write_bytes(b"a" * K + b"b" * K)
    (tmp_path / "two").write_bytes(b"b" * K + b"c" * 10)
    (tmp_path / "empty").write_bytes(b"")
    (tmp_path / "link").symlink_to(tmp_path / "two")
    work = read_tree(tmp_path, chunk=K, writers=2)
    assert work.names == ("empty", "two", "d/one")
    assert [work.files.row(f).tolist() for f in range(3)] == [[], [0, 1], [2, 0]]
    assert work.sizes.tolist() == [K, 10, K]
    with pytest.raises(InputError):
        read_tree(tmp_path / "two")


def test_a_trace_gives_files_an_order_and_updates(tmp_path: Path) -> None:
    rows = [(0.0, "x", "f", 0, 100, A), (1.0, "y", "g", 0, 100, A), (1.0, "x", "f", 100, 50, B), (2.0, "x", "f", 0, 100, C)]
    names = ["time", "client", "file", "offset", "length", "fingerprint"]
    frame = polars.DataFrame(rows, schema=names, orient="row")
    frame.write_csv(tmp_path / "t.csv")
    frame.write_parquet(tmp_path / "t.parquet")
    for path in (tmp_path / "t.csv", tmp_path / "t.parquet"):
        work = read_trace(path)
        assert [work.files.row(f).tolist() for f in range(2)] == [[0, 1], [0]]
        assert work.stream.tolist() == [0, 2, 1]
        assert work.final().tolist() == [2, 1, 0]
        assert work.dedup_ratio() == 1.0


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (f"0,x,f,0,100,{A}\n1,x,f,100,100,{A[:-2]}\n", ":3: .*fingerprint"),
        (f"0,x,f,0,100,{A}\n1,x,f,50,100,{B}\n", ":3: .*overlap"),
        (f"0,x,f,50,100,{A}\n1,x,f,0,100,{B}\n", ":2: .*overlap"),
        (f"0,x,f,0,100,{A}\n1,x,f,0,50,{B}\n", ":3: .*overlap"),
        (f"0,x,f,-4,100,{A}\n", ":2: .*offset"),
        (f"0,x,f,0,0,{A}\n", ":2: .*length"),
        (f"5,x,f,0,100,{A}\n1,x,f,100,100,{B}\n", ":3: .*time"),
        ("0,x,f,0,100,zz\n", ":2: .*fingerprint"),
        (f"0,x,f,0,100,{A}\n1,x,f,100,60,{A}\n", ":3: .*as before"),
        (f"0,x,f,0,99999999999999,{A}\n", ":2: .*length"),
    ],
)
def test_a_bad_trace_is_refused(tmp_path: Path, lines: str, said: str) -> None:
    (tmp_path / "t.csv").write_text(HEADER + lines)
    with pytest.raises(InputError, match=said) as error:
        read_trace(tmp_path / "t.csv")
    assert "\n" not in str(error.value)


def test_fiu_text(tmp_path: Path) -> None:
    md5, other = (hashlib.md5(text, usedforsecurity=False).hexdigest() for text in (b"x", b"y"))
    lines = [f"100 7 httpd 0 8 W 8 1 {md5}", f"101 7 httpd 8 8 W 8 1 {other}", f"102 7 httpd 2048 8 W 8 1 {md5}", f"103 9 cron 0 8 R 8 1 {md5}",
             f"104 7 httpd 0 8 W 8 1 {other}"]  # fmt: skip
    (tmp_path / "fiu").write_text("\n".join(lines))
    work = read_fiu(tmp_path / "fiu")
    assert work.names == ("httpd@0", "httpd@1")
    assert [work.files.row(f).tolist() for f in range(2)] == [[0, 1], [0]]
    assert work.final().tolist() == [1, 1, 0]
    for bad in ("1 2 3", f"1 7 p 0 8 X 8 1 {md5}", f"1 7 p 0 16 W 8 1 {md5}", f"1 7 p 0 8 W 8 1 {md5[:-1]}", f"1 7 p -5 8 W 8 1 {md5}"):
        (tmp_path / "fiu").write_text(f"{lines[0]}\n{bad}\n")
        with pytest.raises(InputError, match=":2"):
            read_fiu(tmp_path / "fiu")


def oci(folder: Path, layers: list[bytes]) -> list[str]:
    """Writes a layout with one image of these layers, and returns their digests."""
    (folder / "blobs" / "sha256").mkdir(parents=True)

    def blob(data: bytes) -> str:
        value = hashlib.sha256(data).hexdigest()
        (folder / "blobs" / "sha256" / value).write_bytes(data)
        return f"sha256:{value}"

    digests = [blob(layer) for layer in layers]
    manifest = blob(json.dumps({"layers": [{"digest": digest} for digest in digests]}).encode())
    (folder / "index.json").write_text(json.dumps({"manifests": [{"digest": manifest}]}))
    return digests


def test_layers_of_an_image_are_files(tmp_path: Path) -> None:
    data = np.random.default_rng(0).bytes(10 * K)
    digests = oci(tmp_path, [gzip.compress(data), data[: 5 * K]])
    work = read_oci(tmp_path, chunk=K)
    assert work.names == tuple(digests)
    assert work.files.row(0).tolist() == list(range(10))
    assert work.files.row(1).tolist() == list(range(5))
    (case,) = deduplication.from_file(tmp_path, {"chunk": K})
    assert case.workload.references == 15
    (tmp_path / "another").write_bytes(b"x")
    assert deduplication.from_file(tmp_path, {"chunk": K})[0].digest != case.digest


def test_bad_layouts_are_refused(tmp_path: Path) -> None:
    oci(tmp_path / "bomb", [gzip.compress(bytes(3_000_000))])
    assert read_oci(tmp_path / "bomb").references == 184
    oci(tmp_path / "broken", [b"\x1f\x8b" + b"no gzip at all"])
    with pytest.raises(InputError, match="gzip"):
        read_oci(tmp_path / "broken")
    named = (json.dumps({"manifests": [{"digest": f"sha256:{name}"}]}) for name in ("../../etc/passwd", "0" * 64))
    for text in (*named, "[", "[]", '{"manifests": 3}'):
        (tmp_path / "bomb" / "index.json").write_text(text)
        with pytest.raises(InputError) as error:
            read_oci(tmp_path / "bomb")
        assert "\n" not in str(error.value)


def test_the_advice_of_a_tree(tmp_path: Path) -> None:
    shared = np.random.default_rng(0).bytes(200 * K)
    for i in range(8):
        (tmp_path / f"f{i}").write_bytes(shared[: 100 * K] + np.random.default_rng(i + 1).bytes(100 * K) + shared[100 * K :])
    found = advise(tmp_path, chunk=K, writers=8)
    assert found.logical_bytes == 8 * 300 * K
    assert found.physical_bytes == (200 + 800) * K
    assert found.runs_relocated < found.runs_arrival
    assert "2.40" in str(found)
    (tmp_path / "none").mkdir()
    assert str(advise(tmp_path / "none")) == "nothing to store"


def test_the_filesystem(tmp_path: Path) -> None:
    fsspec = pytest.importorskip("fsspec")
    from armillary.storage.deduplication import DedupFileSystem

    with DedupStore(tmp_path / "s", chunk=K, sync=False) as store:
        files = DedupFileSystem(store=store)
        data = np.random.default_rng(0).bytes(30_000)
        with files.open("d/x", "wb") as file:
            file.write(data)
        files.pipe("d/e/y", data[:100])
        assert store.get("d/x") == data
        assert files.cat("d/x") == data
        assert files.cat_file("d/x", 5, -5) == data[5:-5]
        assert files.ls("d", detail=False) == ["d/e", "d/x"]
        assert files.info("d/x")["size"] == 30_000
        assert files.isdir("d/e")
        assert files.find("") == ["d/e/y", "d/x"]
        with files.open("dedup://d/x", "rb") as file:
            file.seek(20_000)
            assert file.read(10) == data[20_000:20_010]
        with files.open("d/x", "ab") as file:
            file.write(b"end")
        assert store.get("d/x") == data + b"end"
        with pytest.raises(RuntimeError), files.open("d/z", "wb") as file:
            file.write(b"half")
            raise RuntimeError
        assert not files.exists("d/z")
        files.rm("d", recursive=True)
        assert store.names() == []
        for missing in (lambda: files.cat("no"), lambda: files.ls("no"), lambda: files.rm("no")):
            with pytest.raises(FileNotFoundError):
                missing()
        fsspec.register_implementation("dedup", DedupFileSystem, clobber=True)
        frame = __import__("pandas").DataFrame({"a": [1, 2]})
        frame.to_csv("dedup://t.csv", index=False, storage_options={"store": store})
        assert store.get("t.csv") == b"a\n1\n2\n"


def test_digits_of_other_scripts_are_no_block_numbers(tmp_path: Path) -> None:
    file = tmp_path / "trace.txt"
    file.write_text(f"0 1 p \u0661\u0662 8 W 8 0 {'ab' * 16}\n")
    with pytest.raises(InputError, match="expected a number"):
        read_fiu(file)
