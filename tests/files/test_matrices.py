"""Tests of which matrix files are read, and which are refused before they cost anything."""

from __future__ import annotations

import gzip
import io
import tracemalloc
import zipfile
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
import scipy.io
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from armillary.errors import InputError
from armillary.files import map_array
from armillary.files.matrices import read_dense, read_matrix, read_sparse

COORDINATE = "%%MatrixMarket matrix coordinate real general\n"


def write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def test_a_small_file_by_hand(tmp_path: Path) -> None:
    found = read_sparse(write(tmp_path / "a.mtx", COORDINATE + "% a remark\n2 3 3\n1 1 3\n2 3 -4.5\n1 1 2\n"))
    assert found.shape == (2, 3)
    assert found.toarray().tolist() == [[5, 0, 0], [0, 0, -4.5]]


@pytest.mark.parametrize(
    ("banner", "entries", "expected"),
    [
        ("coordinate pattern symmetric", "2 1\n", [[0, 1], [1, 0]]),
        ("coordinate integer skew-symmetric", "2 1 5\n", [[0, -5], [5, 0]]),
        ("coordinate complex hermitian", "2 1 1 2\n", [[0, 1 - 2j], [1 + 2j, 0]]),
    ],
)
def test_symmetries_are_written_out(tmp_path: Path, banner: str, entries: str, expected: list[list[complex]]) -> None:
    path = write(tmp_path / "a.mtx", f"%%MatrixMarket matrix {banner}\n2 2 1\n{entries}")
    assert read_sparse(path).toarray().tolist() == expected


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 2**31), rows=st.integers(1, 9), columns=st.integers(1, 9), packed=st.booleans())
def test_what_was_written_is_read(tmp_path_factory: pytest.TempPathFactory, seed: int, rows: int, columns: int, packed: bool) -> None:
    rng = np.random.default_rng(seed)
    matrix = sp.random_array((rows, columns), density=0.4, rng=rng)
    folder = tmp_path_factory.mktemp("m")
    scipy.io.mmwrite(folder / "a.mtx", matrix)
    path = folder / "a.mtx"
    if packed:
        path = folder / "a.mtx.gz"
        path.write_bytes(gzip.compress((folder / "a.mtx").read_bytes()))
    np.testing.assert_allclose(read_sparse(path).toarray(), matrix.toarray(), rtol=1e-15)
    sp.save_npz(folder / "b.npz", matrix)
    assert (read_sparse(folder / "b.npz").toarray() == matrix.toarray()).all()
    np.save(folder / "c.npy", matrix.toarray())
    assert (read_dense(folder / "c.npy") == matrix.toarray()).all()
    np.savez_compressed(folder / "d.npz", matrix.toarray())
    assert (read_matrix(folder / "d.npz") == matrix.toarray()).all()


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("abc\n", "banner"),
        (COORDINATE, "no size line"),
        (COORDINATE + "2 2\n", "expected rows, columns, entries"),
        (COORDINATE + "2 2 -1\n", "expected rows, columns, entries"),
        (COORDINATE + "2 x 1\n", "not whole numbers"),
        (COORDINATE + "2 2 2\n1 1 3\n\n\n", "Truncated"),
        (COORDINATE + "2 2 1\n1 1 3\n2 2 4\n", "(?i)line 4"),
        (COORDINATE + "2 2 1\n0 1 3\n", "(?i)line 3"),
        (COORDINATE + "2 2 1\n3 1 3\n", "(?i)line 3"),
        (COORDINATE + "2 2 1\n1 1 nan\n", r"found nan at \(0, 0\)"),
        (COORDINATE + "2 2 1\n1 2 1e999\n", r"found inf at \(0, 1\)"),
        (COORDINATE + "2 2 1\n1 1 abc\n", "(?i)line 3"),
        (COORDINATE + "2 2 4000000000000\n1 1 3\n", "more than the file's"),
        (COORDINATE + f"{2**60} 2 1\n1 1 3\n", "rows or columns"),
        ("%%MatrixMarket matrix array real general\n100000 100000\n1\n", "more than the file's"),
        ("%%MatrixMarket matrix array real symmetric\n100000 100000\n1\n", "more than the file's"),
    ],
)
@pytest.mark.parametrize("packed", [False, True])
def test_bad_files_are_refused_in_one_line(tmp_path: Path, text: str, says: str, packed: bool) -> None:
    path = tmp_path / ("a.mtx.gz" if packed else "a.mtx")
    path.write_bytes(gzip.compress(text.encode()) if packed else text.encode())
    tracemalloc.start()
    with pytest.raises(InputError, match=says) as error:
        read_matrix(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 8 << 20
    assert "\n" not in str(error.value)
    assert "a.mtx" in str(error.value)


def test_every_spoiled_byte_of_an_npz_is_refused_or_read(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    sp.save_npz(path, sp.csr_array(np.array([[1.0, 0, 2], [0, 3, 0]])))
    whole = path.read_bytes()
    for place in range(0, len(whole), 2):
        spoiled = bytearray(whole)
        spoiled[place] ^= 0xFF
        path.write_bytes(spoiled)
        with suppress(InputError):
            read_matrix(path)


def test_archives_that_promise_too_much_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "<f8", "fortran_order": False, "shape": (1 << 40,)})
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("x.npy", header.getvalue())
    with pytest.raises(InputError, match="does not fit"):
        read_matrix(path)
    (tmp_path / "b.npy").write_bytes(header.getvalue())
    with pytest.raises(InputError, match="not an array"):
        map_array(tmp_path / "b.npy")


def test_objects_are_never_unpickled(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.array([{"x": 1}], dtype=object), allow_pickle=True)
    np.savez(tmp_path / "b.npz", np.array([{"x": 1}], dtype=object))
    for name in ("a.npy", "b.npz"):
        with pytest.raises(InputError):
            read_matrix(tmp_path / name)
    np.save(tmp_path / "c.npy", np.array(["text"]))
    with pytest.raises(InputError, match="expected numbers"):
        read_matrix(tmp_path / "c.npy")


def test_other_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="ending"):
        read_matrix(write(tmp_path / "a.csv", "1,2"))
    with pytest.raises(InputError, match="expected a dense matrix"):
        read_dense(write(tmp_path / "a.mtx", COORDINATE + "2 2 1\n1 1 3\n"))
    np.savez(tmp_path / "two.npz", a=np.ones(2), b=np.ones(2))
    with pytest.raises(InputError, match="a, b"):
        read_matrix(tmp_path / "two.npz")


FORMATS = {
    "csr": sp.csr_array(np.array([[1.0, 0, 2], [0, 3, 0]])),
    "csc": sp.csc_array(np.array([[1.0, 0, 2], [0, 3, 0]])),
    "bsr": sp.bsr_array(np.kron(np.array([[1.0, 0], [0, 2]]), np.ones((2, 3))), blocksize=(2, 3)),
    "coo": sp.coo_array(np.array([[1.0, 0, 2], [0, 3, 0]])),
    "dia": sp.dia_array(np.diag([1.0, 2, 3]) + np.diag([4.0, 5], 1)),
}


@pytest.mark.parametrize("form", FORMATS)
def test_every_format_of_scipy_comes_back(form: str, tmp_path: Path) -> None:
    sp.save_npz(tmp_path / "a.npz", FORMATS[form])
    assert (read_sparse(tmp_path / "a.npz").toarray() == FORMATS[form].toarray()).all()


@pytest.mark.parametrize(
    ("form", "change", "said"),
    [
        ("csr", {"indptr": [0, 2**40, 3]}, "indptr"),
        ("csr", {"indptr": [0, 2, -1]}, "indptr"),
        ("csr", {"indptr": [1, 2, 3]}, "indptr"),
        ("csr", {"indptr": [0, 3]}, "indptr"),
        ("csr", {"indices": [0, 2, 2**40]}, "outside"),
        ("csr", {"indices": [0, -1, 1]}, "outside"),
        ("csr", {"indices": [0.5, 1, 2]}, "whole numbers"),
        ("csc", {"indptr": [0, 1, 2, 2**62]}, "indptr"),
        ("csc", {"indices": [0, 1, 2]}, "outside"),
        ("bsr", {"indptr": [0, 9, 2]}, "indptr"),
        ("bsr", {"indices": [0, 7]}, "outside"),
        ("bsr", {"data": np.ones((2, 0, 3))}, "blocks"),
        ("bsr", {"data": np.ones((2, 3, 3))}, "blocks"),
        ("coo", {"row": [0, 0, 5]}, "outside"),
        ("coo", {"col": [0, 0]}, "entries"),
        ("dia", {"offsets": [0, 9]}, "offsets"),
        ("csr", {"shape": [-2, 3]}, "shape"),
        ("csr", {"shape": [2**60, 3]}, "shape"),
        ("csr", {"format": np.array(b"lil")}, "format"),
        ("csr", {"format": np.array(3)}, "word"),
    ],
)  # fmt: skip
def test_a_crafted_sparse_matrix_is_refused_before_a_loop_follows_it(form: str, change: dict[str, object], said: str, tmp_path: Path) -> None:
    """In a process of its own it was a crash: SciPy follows `indptr` without looking."""
    sp.save_npz(tmp_path / "a.npz", FORMATS[form])
    with np.load(tmp_path / "a.npz") as archive:
        arrays = dict(archive)
    np.savez(tmp_path / "b.npz", **{**arrays, **{name: np.asarray(value) for name, value in change.items()}})
    with pytest.raises(InputError, match=said):
        read_matrix(tmp_path / "b.npz")


@pytest.mark.parametrize(
    "entry", [b"1 1 4\0\0\0\0 4", b"1 1 \x01", b"1 1 \xff", b"1 1 .6952-+9.", b"1 1", b"1", b"1 1 1 1", b"1 -1 4", b"1 1 4e", b"1 1 0x10"],
)  # fmt: skip
@pytest.mark.parametrize("end", [b"\n", b""])
def test_a_torn_entry_is_refused_with_its_line(entry: bytes, end: bytes, tmp_path: Path) -> None:
    """Each of these, or the like, ended the process in SciPy's parser."""
    path = tmp_path / "a.mtx"
    path.write_bytes(COORDINATE.encode() + b"% a remark\n2 2 2\n2 2 1\n" + entry + end)
    with pytest.raises(InputError, match=r"line 5: found"):
        read_matrix(path)


def test_diagonals_are_those_of_scipy_and_cost_what_they_hold(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    for rows, columns in ((5, 9), (9, 5), (1, 1), (6, 6)):
        offsets = rng.permutation(np.arange(1 - rows, columns))[:4]
        data = rng.integers(-2, 3, (len(offsets), columns)).astype(float)
        made = sp.dia_array((data, offsets), shape=(rows, columns))
        sp.save_npz(tmp_path / "d.npz", made)
        found, expected = read_sparse(tmp_path / "d.npz"), made.tocoo()
        for mine, theirs in zip((found.row, found.col, found.data), (expected.row, expected.col, expected.data)):
            assert (mine.dtype, mine.tolist()) == (theirs.dtype, theirs.tolist())
    np.savez(tmp_path / "d.npz", format=b"dia", shape=[1 << 40, 3], data=np.ones((1, 3)), offsets=[0])
    assert read_sparse(tmp_path / "d.npz").nnz == 3
