"""Files are opened or refused in one line: kinds of file, limits, packed data whole and damaged, text and its lines."""

from __future__ import annotations

import gzip
import os
import resource
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from armillary.errors import InputError
from armillary.files import line_blocks, open_file, read_bytes, read_head, read_lines, read_text
from armillary.files.opening import FREE_BYTES

PACKERS: dict[str, Callable[[bytes], bytes]] = {
    "plain": lambda data: data,
    "gz": lambda data: gzip.compress(data, 1),
    "zst": zstandard.ZstdCompressor(write_checksum=True).compress,
}


def one_line(error: pytest.ExceptionInfo[InputError], *parts: str) -> None:
    assert "\n" not in str(error.value)
    for part in parts:
        assert part in str(error.value)


# Kinds of file


def test_a_fifo_is_refused_at_once_and_its_writer_is_not_woken(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo.csv"
    os.mkfifo(fifo)
    with pytest.raises(InputError) as error:
        open_file(fifo)
    one_line(error, "fifo.csv: found a FIFO; expected a regular file")
    with pytest.raises(OSError, match="No such device"):  # A writer would find no reader.
        os.open(fifo, os.O_WRONLY | os.O_NONBLOCK)


@pytest.mark.parametrize(
    ("path", "found"), [("/dev/zero", "a device"), ("/dev/null", "a device"), ("/", "a folder"), ("/proc/self/fd", "a folder")]
)
def test_devices_and_folders_are_refused(path: str, found: str) -> None:
    with pytest.raises(InputError) as error:
        read_bytes(path)
    one_line(error, f"found {found}; expected a regular file")


def test_a_socket_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind("s")
        with pytest.raises(InputError, match="found a socket"):
            read_bytes("s")


def test_a_file_that_becomes_a_fifo_between_the_look_and_the_opening(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "swapped"
    path.write_bytes(b"x")
    facts = os.stat(path)
    path.unlink()
    os.mkfifo(path)
    monkeypatch.setattr("os.stat", lambda *_: facts)
    with pytest.raises(InputError, match="found a FIFO"):
        open_file(path)


def test_names_that_are_none(tmp_path: Path) -> None:
    for name, message in ((tmp_path / "none", "no such file"), ("a\0b", "expected the name of a file"), (5.5, "expected the name of a file"),
                          ("x" * 5000, "file name too long")):  # fmt: skip
        with pytest.raises(InputError, match=message):
            read_bytes(name)  # type: ignore[arg-type]
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    with pytest.raises(InputError, match="symbolic links"):
        read_bytes(loop)


def test_files_without_a_size_are_bounded_as_they_are_read() -> None:
    assert read_bytes("/proc/self/cmdline")
    with pytest.raises(InputError, match="found more than 1 bytes"):
        read_bytes("/proc/self/cmdline", limit=1)


def test_descriptors_are_closed(tmp_path: Path) -> None:
    for kind in ("plain", "gz", "zst"):
        path = tmp_path / kind
        path.write_bytes(PACKERS[kind](b"x\n" * 1000))
        with open_file(path):
            pass
        with open_file(path, seekable=True):
            pass
        with pytest.raises(InputError):
            open_file(path, limit=1)
        with pytest.raises(InputError):
            read_bytes(path, limit=1999)
        assert list(read_lines(path))[-1] == (1000, "x")
    assert not [link for link in Path("/proc/self/fd").iterdir() if link.is_symlink() and str(tmp_path) in os.path.realpath(link)]


def test_declaring_columns_imports_nothing_heavy() -> None:
    code = (
        "import sys; from armillary.files import Column, read_table, open_file, read_json; import armillary.workloads; "
        "sys.exit(' '.join({'numpy', 'polars', 'zstandard', 'numba'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stderr.strip() == ""


# Packed data


@given(data=st.binary(max_size=5000), parts=st.integers(1, 3), pad=st.integers(0, 3))
@settings(max_examples=40)
def test_packed_data_come_out_as_they_went_in(tmp_path_factory: pytest.TempPathFactory, data: bytes, parts: int, pad: int) -> None:
    path = tmp_path_factory.mktemp("packed") / "file"
    for kind, pack in PACKERS.items():
        if kind == "plain":
            continue
        path.write_bytes(b"".join(pack(data) for _ in range(parts)) + (bytes(pad) if kind == "gz" else b""))
        assert read_bytes(path) == data * parts
        with open_file(path, seekable=True) as file:
            file.seek(len(data))
            assert file.read() == data * (parts - 1)
        with open_file(path, unpack=False) as file:
            assert file.read() == path.read_bytes()


def test_zstd_as_other_tools_write_it(tmp_path: Path) -> None:
    data = os.urandom(1000) * 300
    whole = zstandard.ZstdCompressor(write_checksum=True, write_content_size=False).compress(data)
    skippable = b"\x50\x2a\x4d\x18\x04\x00\x00\x00abcd"
    (tmp_path / "a").write_bytes(skippable + whole + skippable + whole)
    assert read_bytes(tmp_path / "a") == data * 2


@pytest.mark.parametrize("kind", ["gz", "zst"])
def test_truncated_and_damaged_data_are_input_errors(tmp_path: Path, kind: str) -> None:
    data = os.urandom(3000) + bytes(3000)
    packed = PACKERS[kind](data)
    path = tmp_path / f"t.csv.{kind}"
    for keep in (5, 10, len(packed) // 2, len(packed) - 1):
        path.write_bytes(packed[:keep])
        with pytest.raises(InputError) as error:
            read_bytes(path)
        one_line(error, f"t.csv.{kind}: found the end of the file within its", "expected a whole file")
    path.write_bytes(packed[: len(packed) // 2] + b"\xff" * 40 + packed[len(packed) // 2 + 40 :])
    with pytest.raises(InputError, match=r"found damaged|within its"):
        read_bytes(path)
    path.write_bytes(packed + b"garbage after it")
    with pytest.raises(InputError, match=r"found damaged|within its"):
        read_bytes(path)
    path.write_bytes(b"time\n1\n")
    with pytest.raises(InputError, match=f"as the name ends in .{kind}"):
        read_bytes(path)


@pytest.mark.parametrize("kind", ["gz", "zst"])
def test_bombs_end_early(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "bomb"
    if kind == "gz":
        path.write_bytes(gzip.compress(bytes(1 << 22), 9) * 320)  # 1.3 GiB in 1.3 MB
    else:
        path.write_bytes(zstandard.ZstdCompressor(level=1).compress(bytes(1 << 26)) * 320)  # 20 GiB in 0.7 MB
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(InputError, match="found more than 4,000,000 bytes after unpacking; expected at most 4,000,000"):
        read_bytes(path, limit=4_000_000)
    with pytest.raises(InputError, match="found bytes that unpack to more than 250 times as many"), open_file(path, limit=None) as file:
        while file.read(1 << 20):
            pass
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 400 << 10  # KiB


def test_the_ratio_leaves_ordinary_files_alone(tmp_path: Path) -> None:
    path = tmp_path / "zeros.gz"
    path.write_bytes(gzip.compress(bytes(1 << 23)))
    assert path.stat().st_size * 500 < len(read_bytes(path)) == 1 << 23 < FREE_BYTES


def test_a_window_of_gigabytes_is_refused(tmp_path: Path) -> None:
    # A frame header that asks for a window of 2^30 bytes, and nothing behind it.
    path = tmp_path / "window.zst"
    path.write_bytes(b"\x28\xb5\x2f\xfd\x00" + bytes([(30 - 10) << 3]) + b"\x01\x00\x00")
    with pytest.raises(InputError, match="found damaged Zstandard data"):
        read_bytes(path)


def test_a_file_larger_than_its_limit_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "sparse"
    with path.open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(InputError) as error:
        read_text(path)
    one_line(error, "found 1,099,511,627,776 bytes; expected at most 268,435,456")


# Text


def test_text_and_its_faults(tmp_path: Path) -> None:
    path = tmp_path / "t.txt"
    path.write_bytes(b"\xef\xbb\xbfa\r\n\xc3\xa9\nlast")
    assert read_text(path) == "a\r\né\nlast"
    assert list(read_lines(path)) == [(1, "a"), (2, "é"), (3, "last")]
    assert read_head(path, 4) == b"\xef\xbb\xbfa"
    path.write_bytes(b"a\nb\n\xff\n")
    for read in (read_text, lambda p: list(read_lines(p))):
        with pytest.raises(InputError) as error:
            read(path)
        one_line(error, "t.txt:3: found the byte 0xff; expected UTF-8 text")
    path.write_bytes(b"a\nb\0\n")
    with pytest.raises(InputError, match=r"t\.txt:2: found a NUL byte; expected text"):
        list(read_lines(path))


@given(data=st.text(st.sampled_from("ab\n\r"), max_size=60), longest=st.integers(1, 8), size=st.integers(1, 20))
def test_lines_are_those_of_python_or_too_long(tmp_path_factory: pytest.TempPathFactory, data: str, longest: int, size: int) -> None:
    path = tmp_path_factory.mktemp("lines") / "t.txt"
    path.write_text(data, newline="")
    lines = data.split("\n")[: -1 if data.endswith("\n") or not data else None]
    too_long = next((i for i, line in enumerate(lines, 1) if len(line) > longest), None)
    if too_long is None:
        assert list(read_lines(path, longest=longest)) == [(i, line.removesuffix("\r")) for i, line in enumerate(lines, 1)]
        blocks = list(line_blocks(path, longest=longest, size=size))
        assert b"".join(block for block, _ in blocks) == "".join(line + "\n" for line in lines).encode()
        assert all(block.endswith(b"\n") for block, _ in blocks)
        counted = 1
        for block, line in blocks:
            assert line == counted
            counted += block.count(b"\n")
    else:
        with pytest.raises(InputError, match=rf"t\.txt:{too_long}: found a line of more than {longest} bytes"):
            list(read_lines(path, longest=longest))


def test_a_line_without_an_end_is_not_gathered(tmp_path: Path) -> None:
    path = tmp_path / "wide.csv.gz"
    path.write_bytes(gzip.compress(b"," * (1 << 22), 1) * 256)
    with pytest.raises(InputError, match=r"wide\.csv\.gz:1: found a line of more than 1,048,576 bytes"):
        list(read_lines(path))


def test_too_many_lines(tmp_path: Path) -> None:
    (tmp_path / "t").write_text("x\n" * 11)
    assert len(list(read_lines(tmp_path / "t", most=11))) == 11
    with pytest.raises(InputError, match="found more than 10 lines"):
        list(read_lines(tmp_path / "t", most=10))
