"""Ranks read matrices and index vectors from files, each its range of bytes, and say in one line what is wrong."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.io import mmread, mmwrite

from armillary import comm
from armillary.errors import InputError
from armillary.numerics.sparse import DistributedMatrix, read_index
from armillary.numerics.sparse.arena import sparse
from armillary.numerics.sparse.readers.shares import read_share

HEAD = "%%MatrixMarket matrix coordinate {} {}\n% a comment\n"


def read(path: Path, ranks: int) -> sp.csc_array:
    return comm.run(lambda c: DistributedMatrix.read(path, c).to_scipy(None), ranks=ranks)[0]


@pytest.mark.parametrize("ranks", [1, 3, 4])
@pytest.mark.parametrize("field", ["real", "integer", "complex", "pattern"])
@pytest.mark.parametrize("symmetry", ["general", "symmetric", "skew-symmetric", "hermitian"])
def test_matrix_market_as_scipy_reads_it(tmp_path, field, symmetry, ranks):
    if (symmetry == "hermitian" and field != "complex") or (symmetry == "skew-symmetric" and field == "pattern"):
        pytest.skip("no such matrices")
    rng = np.random.default_rng(0)
    lower = [(i, j) for i in range(1, 8) for j in range(1, i + (symmetry != "skew-symmetric")) if rng.random() < 0.5]
    if symmetry == "general":
        lower += [(2, 7), (1, 6)]
    lines = []
    for i, j in lower:
        real, imaginary = rng.integers(-9, 9), 0 if symmetry == "hermitian" and i == j else rng.integers(-9, 9)
        value = {"real": f" {real + 0.1}", "integer": f" {real}", "complex": f" {real} {imaginary}", "pattern": ""}[field]
        lines.append(f"{i} {j}{value}")
    path = tmp_path / "a.mtx"
    path.write_text(HEAD.format(field, symmetry) + f"7 7 {len(lines)}\n" + "\n".join(lines) + "\n")
    assert np.array_equal(read(path, ranks).toarray(), mmread(path).toarray())


@pytest.mark.parametrize("ranks", [1, 2, 5])
def test_other_files(tmp_path, ranks):
    a = sp.random_array((30, 20), density=0.2, rng=np.random.default_rng(0), format="csr")
    mmwrite(tmp_path / "a.mtx", a, precision=17)
    (tmp_path / "a.mtx.gz").write_bytes(gzip.compress((tmp_path / "a.mtx").read_bytes()))
    sp.save_npz(tmp_path / "a.npz", a)
    np.save(tmp_path / "a.npy", a.toarray())
    for name in ("a.mtx", "a.mtx.gz", "a.npz", "a.npy"):
        assert np.array_equal(read(tmp_path / name, ranks).toarray(), a.toarray())


@pytest.mark.parametrize("ranks", [1, 3])
def test_edge_lists(tmp_path, ranks):
    (tmp_path / "g.txt").write_text("# nodes\n# edges\n0\t3\n2 1\n\n4 0\n# more\n1 1")
    assert sorted(zip(*read(tmp_path / "g.txt", ranks).nonzero())) == [(0, 3), (1, 1), (2, 1), (4, 0)]
    (tmp_path / "w.txt.gz").write_bytes(gzip.compress(b"0 1 2.5\n3 1 -1\n0 1 0.5\n"))
    found = read(tmp_path / "w.txt.gz", ranks).toarray()
    assert found.shape == (4, 4)
    assert (found[0, 1], found[3, 1]) == (3.0, -1.0)


def test_every_line_is_parsed_by_one_rank(tmp_path):
    path = tmp_path / "a.mtx"
    path.write_text(HEAD.format("real", "general") + "50 50 50\n" + "".join(f"{k} {k} {k}.5\n" for k in range(1, 51)))
    for size in (1, 2, 7, 60, 400):
        rows = np.concatenate([read_share(path, rank, size).rows for rank in range(size)])
        assert rows.tolist() == list(range(50))


BAD = {
    "fewer": ("3 3 3\n1 1 1\n2 2 2\n", "found 2 entries; expected the 3 that are announced"),
    "more": ("3 3 1\n1 1 1\n2 2 2\n", "found 2 entries; expected the 1"),
    "zero": ("3 3 2\n1 1 1\n0 2 2\n", "line 5: found row 0; expected 1 to 3"),
    "beyond": ("3 3 2\n1 1 1\n2 4 2\n", "line 5: found column 4; expected 1 to 3"),
    "nan": ("3 3 2\n1 1 1\n2 2 nan\n", 'line 5: found "nan"; expected a finite number'),
    "word": ("3 3 2\n1 1 1\n2 2 x\n", 'line 5: found "x"; expected a finite number'),
    "half": ("3 3 2\n1 1 1\n1.5 2 1\n", 'line 5: found "1.5"; expected a whole number'),
    "short": ("3 3 2\n1 1 1\n2 2\n", 'line 5: found "2 2"; expected 3 words'),
    "negative": ("3 3 -1\n", "expected rows, columns, entries"),
    "huge": ("3 3 99999999999\n1 1 1\n", "entries are announced, more than the file"),
}


@pytest.mark.parametrize("ranks", [1, 3])
@pytest.mark.parametrize("name", BAD)
def test_bad_matrix_market(tmp_path, name, ranks):
    body, says = BAD[name]
    (tmp_path / "a.mtx").write_text(HEAD.format("real", "general") + body)
    with pytest.raises(comm.RankFailed) as caught:
        read(tmp_path / "a.mtx", ranks)
    assert isinstance(caught.value.exception, InputError)
    assert says in str(caught.value.exception)


@pytest.mark.parametrize(
    ("text", "says"),
    [("0 1\n5 -1\n", "edge 5 -1"), ("0 1\n0 99999999999\n", "of this size"), ("0 1 2 3\n", "4 columns"), ("0 1\na b\n", "line 2")],
)
def test_bad_edge_lists(tmp_path, text, says):
    (tmp_path / "g.txt").write_text(text)
    with pytest.raises(InputError, match=says):
        read_share(tmp_path / "g.txt", 0, 1)


def test_index_vectors(tmp_path):
    (tmp_path / "p.txt").write_text("3\n1\n2\n")
    np.save(tmp_path / "p.npy", np.array([2, 0, 1]))
    assert read_index(tmp_path / "p.txt", base=1).tolist() == [2, 0, 1]
    assert read_index(tmp_path / "p.npy").tolist() == [2, 0, 1]
    (tmp_path / "bad.txt").write_text("3\nx\n")
    np.save(tmp_path / "float.npy", np.array([0.5]))
    wrong = ("p.npy", 1, "expected 1 or more"), ("bad.txt", 0, "line 2"), ("float.npy", 0, "whole numbers"), ("p.txt", 2, "base")
    for name, base, says in wrong:
        with pytest.raises(InputError, match=says):
            read_index(tmp_path / name, base)


def test_a_matrix_with_given_indices(tmp_path: Path) -> None:
    a = sp.random_array((12, 12), density=0.3, rng=np.random.default_rng(0), format="csr")
    mmwrite(tmp_path / "a.mtx", a)
    rows = str(tmp_path / "p.txt")
    Path(rows).write_text("\n".join(str(k) for k in range(12, 0, -1)))
    here, virtual = sparse.from_file(tmp_path / "a.mtx", {"rows": rows, "base": "1"})
    assert here.workload.operation.rows.tolist() == list(range(11, -1, -1))
    for case in (here, virtual):
        assert sparse.execute(sparse.make("ieb"), case.at(0, 0)).values["bytes_per_rank"] > 0
    wrong = ({"rows": rows}, "found index 12"), ({"rows": rows, "operation": "rcm"}, "found indices for rcm"), ({"cluster": "moon"}, "moon")
    for options, says in wrong:
        with pytest.raises(InputError, match=says):
            sparse.from_file(tmp_path / "a.mtx", options)
