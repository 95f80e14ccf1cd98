"""Archives of arrays, checksums and digests: against the definitions, and with what does not fit."""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import zipfile
from pathlib import Path

import google_crc32c
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from armillary.errors import InputError
from armillary.files import check_archive, content_digest, crc32c, crc32c_pieces, file_digest, folder_digest, read_arrays

# Checksums


def defined_crc32c(data: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def test_checksums_of_the_standards_examples() -> None:
    assert crc32c(b"") == 0
    assert crc32c(b"123456789") == 0xE3069283
    # RFC 3720, B.4
    assert crc32c(bytes(32)) == 0x8A9136AA
    assert crc32c(b"\xff" * 32) == 0x62A8AB43
    assert crc32c(bytes(range(32))) == 0x46DD794E


@given(data=st.binary(max_size=300), cuts=st.lists(st.integers(0, 300), max_size=4))
def test_checksums_are_those_of_the_definition(data: bytes, cuts: list[int]) -> None:
    expected = defined_crc32c(data)
    assert crc32c(data) == crc32c(bytearray(data)) == crc32c(memoryview(data)) == google_crc32c.value(data) == expected
    ends = sorted(min(cut, len(data)) for cut in cuts)
    begins = [0, *ends]
    found = crc32c_pieces(np.frombuffer(data, np.uint8), np.array(ends, np.int64))
    assert found.dtype == np.uint32
    assert found.tolist() == [defined_crc32c(data[begins[k] : end]) for k, end in enumerate(ends)]


def test_checksums_of_memory_that_is_not_contiguous() -> None:
    data = np.arange(100, dtype=np.uint8)[::2]
    assert crc32c_pieces(data, np.array([50])).tolist() == [crc32c(data.tobytes())]


# Archives


def test_arrays_come_back(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    arrays = {"x": np.arange(5), "y": np.ones((2, 3)), "empty": np.zeros(0)}
    for save in (np.savez, np.savez_compressed):
        save(path, **arrays)
        assert check_archive(path) == set(arrays)
        found = read_arrays(path)
        assert all(np.array_equal(found[name], array) for name, array in arrays.items())
        assert list(read_arrays(path, ["y"])) == ["y"]
        with pytest.raises(InputError, match="found the arrays empty, x, y; expected x, z"):
            read_arrays(path, ["x", "z"])
        with pytest.raises(InputError, match="found arrays of more than 87 bytes; expected at most 87"):
            read_arrays(path, limit=87)
        assert check_archive(path, limit=88)


def archive(path: Path, entries: dict[str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as packed:
        for name, data in entries.items():
            packed.writestr(name, data)
    return path


def npy(array: np.ndarray, allow_pickle: bool = False) -> bytes:
    data = io.BytesIO()
    np.save(data, array, allow_pickle=allow_pickle)
    return data.getvalue()


def test_archives_that_lie(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    whole = npy(np.arange(100.0))
    cases: list[tuple[dict[str, bytes], str]] = [
        ({"x.txt": b"hello"}, "found x.txt inside; expected arrays only"),
        ({"x.npy": whole[:-8]}, "its header does not fit its size"),
        ({"x.npy": whole.replace(b"(100,)", b"((((((")}, "not an .npz of arrays"),
        ({"x.npy": whole.replace(b"(100,)", b"(9**9)")}, "not an .npz of arrays"),
        ({"x.npy": whole.replace(b"(100,)", b"(1e9,)")}, "not an .npz of arrays"),
        ({"x.npy": npy(np.array([{}], object), True)}, "found Python objects; expected numbers"),
        ({"x.npy": b""}, "not an .npz of arrays"),
        ({"x.npy": b"\x93NUMPY\x09\x00" + bytes(50)}, "not an .npz of arrays"),
    ]
    for entries, said in cases:
        with pytest.raises(InputError, match=said):
            check_archive(archive(path, entries))
    for data in (b"", b"PK", b"\x80\x04N.", os.urandom(100)):
        path.write_bytes(data)
        with pytest.raises(InputError, match=r"not an \.npz of arrays"):
            read_arrays(path)
    np.savez(path, x=np.zeros(1000))
    data = path.read_bytes()
    for keep in (10, len(data) // 2, len(data) - 5):
        path.write_bytes(data[:keep])
        with pytest.raises(InputError, match=r"not an \.npz of arrays"):
            read_arrays(path)


@given(at=st.integers(0, 600), byte=st.integers(0, 255))
def test_archives_with_a_wrong_byte_are_read_or_refused(tmp_path_factory: pytest.TempPathFactory, at: int, byte: int) -> None:
    path = tmp_path_factory.mktemp("npz") / "a.npz"
    np.savez_compressed(path, x=np.arange(40.0), y=np.ones(3, np.int8))
    data = bytearray(path.read_bytes())
    data[at % len(data)] = byte
    path.write_bytes(data)
    with contextlib.suppress(InputError):
        assert {name: array.shape for name, array in read_arrays(path).items() if name in "xy"} in (
            {"x": (40,), "y": (3,)},
            {"x": (40,)},
            {"y": (3,)},
        )


def test_archives_that_are_no_files(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "f.npz")
    for path, said in ((tmp_path / "f.npz", "found a FIFO"), (tmp_path, "found a folder"), (tmp_path / "none.npz", "no such file")):
        with pytest.raises(InputError, match=said):
            read_arrays(path)


# Digests


def test_a_files_digest_is_that_of_its_bytes_and_follows_them(tmp_path: Path) -> None:
    path = tmp_path / "a"
    for data in (b"", b"one", b"two", os.urandom(3 << 20)):
        path.write_bytes(data)
        assert file_digest(path) == content_digest(path) == hashlib.sha256(data).hexdigest()
    facts = path.stat()
    other = tmp_path / "b"
    other.write_bytes(data[::-1])
    os.utime(other, ns=(facts.st_atime_ns, facts.st_mtime_ns))
    other.replace(path)  # The same name, size and time, another inode.
    assert file_digest(path) == hashlib.sha256(data[::-1]).hexdigest()


def test_digests_of_packed_files_are_of_the_bytes_on_disk(tmp_path: Path) -> None:
    import gzip

    path = tmp_path / "a.gz"
    path.write_bytes(gzip.compress(b"x"))
    assert file_digest(path) == hashlib.sha256(path.read_bytes()).hexdigest()


def test_digests_of_what_is_no_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    for path, said in ((tmp_path / "fifo", "found a FIFO"), (tmp_path / "none", "no such file"), (Path("/dev/zero"), "found a device"),
                       (tmp_path, "found a folder")):  # fmt: skip
        with pytest.raises(InputError, match=said):
            file_digest(path)


def test_a_folders_digest_sees_every_change(tmp_path: Path) -> None:
    folder = tmp_path / "f"
    (folder / "inner").mkdir(parents=True)
    (folder / "a").write_text("1")
    seen = {content_digest(folder)}
    (folder / "inner" / "b").write_text("2")
    seen.add(folder_digest(folder))
    (folder / "a").rename(folder / "c")
    seen.add(folder_digest(folder))
    (folder / "link").symlink_to("c")
    seen.add(folder_digest(folder))
    (folder / "link").unlink()
    (folder / "link").symlink_to("inner")
    seen.add(folder_digest(folder))
    assert len(seen) == 5
    assert folder_digest(folder) in seen
