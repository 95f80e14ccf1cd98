"""Tests of least squares, singular values, other arrays, Dask and files."""

from __future__ import annotations

import subprocess
import sys

import dask.array as da
import numpy as np
import polars as pl
import pytest
import qr_programs
import torch

from armillary import comm
from armillary.errors import InputError
from armillary.numerics.qr import Breakdown, lstsq, read_rows, tall_qr, tall_svd
from armillary.numerics.qr.arena import qr
from armillary.numerics.qr.factors.tall import METHODS


@pytest.mark.parametrize("p", [1, 3])
@pytest.mark.parametrize("how", [{}, {"method": "lu-cholqr2", "q": "implicit"}, {"method": "tsqr"}])
def test_least_squares_as_numpy(p, how):
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(200, 5)), rng.normal(size=(200, 2))
    expected, squares, _, _ = np.linalg.lstsq(a, b)

    def program(ranks):
        mine = slice(ranks.local_range(200).start, ranks.local_range(200).stop)
        x, norms = lstsq(a[mine], b[mine], ranks, **how)
        one, norm = lstsq(a[mine], b[mine, 0].copy(), ranks, **how)
        return x, norms, one, norm

    for x, norms, one, norm in comm.run(program, ranks=p).values:
        np.testing.assert_allclose(x, expected, atol=1e-13)
        np.testing.assert_allclose(norms, np.sqrt(squares), rtol=1e-12)
        np.testing.assert_allclose(one, expected[:, 0], atol=1e-13)
        assert norm == pytest.approx(float(np.sqrt(squares[0])))


def test_least_squares_of_dependent_columns_is_refused():
    a = np.random.default_rng(0).normal(size=(30, 3))
    a[:, 2] = a[:, 0] + a[:, 1]
    for b, says in ((np.ones(30), "column 2"), (np.ones(29), "30 rows"), (np.ones(30, np.float32), "float64")):
        with pytest.raises(InputError, match=says):
            lstsq(a, b)


@pytest.mark.parametrize("how", [{}, {"method": "lu-cholqr2", "q": "implicit"}])
def test_singular_values_as_numpy(how):
    a = np.random.default_rng(0).normal(size=(120, 6))

    def program(ranks):
        mine = ranks.local_range(120)
        return tall_svd(a[mine.start : mine.stop], ranks, **how)

    values = comm.run(program, ranks=2).values
    u, s, vt = np.concatenate([v[0] for v in values]), *values[0][1:]
    np.testing.assert_allclose(s, np.linalg.svd(a, compute_uv=False), rtol=1e-13)
    np.testing.assert_allclose(u * s @ vt, a, atol=1e-13)
    np.testing.assert_allclose(u.T @ u, np.eye(6), atol=1e-13)


@pytest.mark.parametrize("method", ["auto", *METHODS])
@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128])
def test_torch_in_torch_out(method, dtype):
    a = torch.from_numpy(np.random.default_rng(0).normal(size=(300, 7))).to(dtype)
    before = a.clone()
    q, r, _ = tall_qr(a, None, method)
    assert type(q) is type(r) is torch.Tensor
    assert q.dtype == r.dtype == dtype
    assert torch.equal(a, before)
    assert torch.linalg.norm(q.mH @ q - torch.eye(7)) < 1e-12
    assert torch.linalg.norm(q @ r - a) < 1e-12


def test_what_a_device_does_where_pivots_are_sampled(monkeypatch):
    from armillary import arrays

    monkeypatch.setattr(arrays, "on_accelerator", lambda x: True)
    a = qr_programs.whole("kappa-1e15", 5000, 8)
    q, _, info = tall_qr(a, None, "lu-cholqr2")
    assert info.method == "lu-cholqr2"
    assert np.linalg.norm(q.T @ q - np.eye(8)) < 1e-13
    # The growth of L shows six rows that a sample misses, and they are added.
    a = 1e-12 * np.random.default_rng(1).normal(size=(5000, 6))
    a[2500:2506] = np.eye(6) + 0.1
    q, _, info = tall_qr(a, None, "lu-cholqr2")
    assert info.method == "lu-cholqr2"
    assert info.growth < 2
    assert np.linalg.norm(q.T @ q - np.eye(6)) < 1e-14


@pytest.mark.parametrize(("family", "taken"), [("kappa-1e2", "cholqr2"), ("kappa-1e12", "lu-cholqr2"), ("wilkinson", "tsqr")])
def test_dask_arrays_as_dask_factors_them(family, taken):
    n = 60 if family == "wilkinson" else 6
    a = qr_programs.whole(family, 500, n)
    x = da.from_array(a, chunks=(150, n))
    q, r, info = tall_qr(x, None, "auto" if n == 6 else "lu-cholqr2")
    assert info.method == taken
    assert isinstance(q, da.Array)
    assert q.chunks == x.chunks
    _, theirs = da.linalg.qr(x)
    theirs = theirs.compute()
    mine, rr = q.compute(), r.compute()
    np.testing.assert_allclose(rr, theirs * np.sign(np.diagonal(theirs))[:, None], atol=1e-13 * np.linalg.norm(a) * (1 if n == 6 else 100))
    np.testing.assert_allclose(mine.T @ mine, np.eye(n), atol=1e-13)
    np.testing.assert_allclose(mine @ rr, a, atol=1e-13)


def test_dask_arrays_that_cannot_be_factored():
    a = np.random.default_rng(0).normal(size=(40, 4))
    with pytest.raises(InputError, match="whole rows"):
        tall_qr(da.from_array(a, chunks=(10, 2)))
    with pytest.raises(InputError, match="as many rows"):
        tall_qr(da.from_array(a.T, chunks=(2, 40)))
    with pytest.raises(InputError, match="another method"):
        tall_qr(da.from_array(a, chunks=(10, 4)), None, "mgs")
    a[13, 2] = np.nan
    for method in ("auto", "lu-cholqr2"):
        with pytest.raises(InputError, match="NaN"):
            tall_qr(da.from_array(a, chunks=(10, 4)), None, method)
    with pytest.raises(Breakdown, match="column 2"):
        tall_qr(da.from_array(np.eye(4, 4)[:, [0, 1, 0, 3]], chunks=(2, 4)))


def test_rows_from_files(tmp_path):
    a = np.arange(21.0).reshape(7, 3)
    np.save(tmp_path / "a.npy", a)
    (tmp_path / "a.mtx").write_text("%%MatrixMarket matrix array real general\n7 3\n" + "\n".join(str(x) for x in a.T.ravel()) + "\n")
    frame = pl.DataFrame({"x": a[:, 0], "name": list("abcdefg"), "y": a[:, 1].astype(int), "z": a[:, 2]})
    frame.write_csv(tmp_path / "a.csv")
    frame.write_parquet(tmp_path / "a.parquet")
    for name in ("a.npy", "a.mtx", "a.csv", "a.parquet"):
        parts = comm.run(lambda ranks, path: read_rows(path, ranks), tmp_path / name, ranks=3).values
        assert [len(part) for part in parts] == [3, 3, 1]
        assert np.array_equal(np.concatenate(parts), a)
    assert np.array_equal(read_rows(tmp_path / "a.csv", columns="z,x"), a[:, [2, 0]])


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("a.csv", "x,y\n1,2\n3,\n", 'column "y", row 1: found nothing'),
        ("a.csv", "x,y\na,b\nc,d\n", "numeric columns"),
        ("a.parquet", "PAR1 nonsense", "not a table"),
        ("a.npy", "nonsense", "not an array"),
        ("a.mtx", "nonsense", "not a Matrix Market file"),
        ("a.txt", "1 2", "ending"),
        ("wide.csv", "x,y\n1,2\n", "as many rows"),
        ("nan.csv", "x,y\n1,2\n3,NaN\n4,5\n", "row 1, column 1"),
    ],
)
def test_bad_files_are_refused(tmp_path, name, text, says):
    (tmp_path / name).write_text(text)
    with pytest.raises(InputError, match=says):
        qr.from_file(tmp_path / name)


def test_a_file_on_three_ranks(tmp_path):
    np.save(tmp_path / "a.npy", np.random.default_rng(0).normal(size=(200, 5)))
    (case,) = qr.from_file(tmp_path / "a.npy", {"ranks": "3"})
    values = qr.execute(qr.make("lu-cholqr2"), case.at(0, 0)).values
    assert values["stable"] == 1
    assert values["bytes_per_rank"] > 0


def test_one_rank_needs_neither_polars_nor_pydantic_nor_greenlet():
    code = (
        "import sys\n"
        "for name in ('polars', 'pydantic', 'greenlet', 'dask', 'mpi4py'): sys.modules[name] = None\n"
        "import numpy as np\n"
        "from armillary.numerics.qr import tall_qr\n"
        "for method in ('auto', 'lu-cholqr2', 'cholqr2'): print(tall_qr(np.eye(4, 2), None, method)[2].method)\n"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert ran.stdout.split() == ["cholqr2", "lu-cholqr2", "cholqr2"], ran.stderr
