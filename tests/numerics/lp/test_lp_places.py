"""Steps are the same on other arrays and on several ranks, and programs are read from other files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array, random_array

from armillary import comm
from armillary.errors import InputError
from armillary.numerics.lp import LinearProgram, R2Hpdhg, read_lp, solve
from armillary.numerics.lp.first_order.placement import place, placed
from armillary.numerics.lp.first_order.scaled import norm2, scaled
from armillary.numerics.lp.program import kkt
from armillary.numerics.lp.readers.program_files import read_program
from armillary.numerics.lp.workload import family, planted

INF = np.inf


def infeasible() -> LinearProgram:
    """Returns x₁ + x₂ ≥ 3 where both are at most 1, beside rows that can be satisfied."""
    rows = csr_array(np.array([[1.0, 1.0], [1.0, -1.0], [2.0, 1.0]]))
    return LinearProgram(np.ones(2), rows, np.array([3.0, -INF, 0.0]), np.array([INF, 5.0, INF]), np.zeros(2), np.ones(2))


def unbounded() -> LinearProgram:
    """Returns min −x₁ over x₁ − x₂ ≤ 1, where both may grow for ever."""
    rows = csr_array(np.array([[1.0, -1.0], [0.0, -1.0]]))
    return LinearProgram(np.array([-1.0, 0.0]), rows, np.full(2, -INF), np.array([1.0, 4.0]), np.zeros(2), np.full(2, INF))


KINDS = ("numpy", "torch", "cupy")


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_array_takes_the_same_steps(kind: str) -> None:
    module = pytest.importorskip(kind)
    lp, x, _ = planted(16, np.random.default_rng(3))
    plain = R2Hpdhg(tolerance=1e-7).solve(lp)
    found = solve(lp, tol=1e-7, xp=module)
    assert found.status == "optimal"
    assert isinstance(found.x, np.ndarray)
    assert found.objective == pytest.approx(float(lp.cost @ x), rel=1e-5)
    # Sums are taken in another order, so many steps later an error may fall on the other side of the tolerance.
    assert abs(found.iterations - plain.iterations) <= 0.2 * plain.iterations + 200


@pytest.mark.parametrize("kind", KINDS)
def test_proofs_hold_from_every_kind_of_array(kind: str) -> None:
    module = pytest.importorskip(kind)
    found = solve(infeasible(), xp=module)
    assert found.status == "infeasible"
    assert kkt.proves_infeasible(infeasible(), found.ray, 1e-6)
    found = solve(unbounded(), xp=module)
    assert found.status == "unbounded"
    assert kkt.proves_unbounded(unbounded(), found.ray, 1e-6)


@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
def test_rows_shared_by_ranks_give_the_same_answer(ranks: int) -> None:
    lp, x, _ = planted(24, np.random.default_rng(5))
    whole = solve(lp, tol=1e-7)

    def program(ranked: Any) -> Any:
        found = solve(lp, tol=1e-7, comm=ranked)
        return found.status, found.x, found.y, found.objective, found.iterations

    every = comm.run(program, ranks=ranks, backend="threads").values
    for status, x_found, y_found, objective, iterations in every:
        assert status == "optimal"
        np.testing.assert_array_equal(x_found, every[0][1])
        np.testing.assert_array_equal(y_found, every[0][2])
        assert objective == pytest.approx(float(lp.cost @ x), rel=1e-5)
        assert objective == pytest.approx(whole.objective, rel=1e-6)
        assert y_found.shape == (lp.shape[0],)
        assert iterations == every[0][4]


def test_more_ranks_than_rows() -> None:
    lp = infeasible()
    found = comm.run(lambda ranked: (lambda f: (f.status, f.ray))(solve(lp, comm=ranked)), ranks=5, backend="threads").values
    assert {status for status, _ in found} == {"infeasible"}
    assert kkt.proves_infeasible(lp, found[4][1], 1e-6)


def test_a_step_sends_one_vector_of_columns() -> None:
    lp = family("transportation", 36, np.random.default_rng(0))

    def program(ranked: Any) -> int:
        problem = placed(scaled(lp), place(comm=ranked))
        with ranked.phase("step"):
            problem.gradient(np.ones(problem.row_lower.shape[0]))
        return ranked.counters["step"].bytes

    assert comm.run(program, ranks=3, backend="threads").values == [8 * lp.shape[1]] * 3


def test_errors_and_norms_agree_at_every_place() -> None:
    rng = np.random.default_rng(11)
    lp, _, _ = planted(20, rng)
    x, y = rng.normal(size=lp.shape[1]), rng.normal(size=lp.shape[0])
    here, norm = kkt.errors(lp, x, y), norm2(scaled(lp), np.random.default_rng(0))

    def program(ranked: Any) -> Any:
        at = place(comm=ranked)
        there = placed(lp, at)
        return kkt.errors(there, x, y[at.range(lp.shape[0])]), norm2(placed(scaled(lp), at), np.random.default_rng(0))

    for errors, found in comm.run(program, ranks=3, backend="threads").values:
        assert errors.primal == pytest.approx(here.primal, rel=1e-12)
        assert errors.dual == pytest.approx(here.dual, rel=1e-12)
        assert errors.gap == pytest.approx(here.gap, rel=1e-12)
        assert found == pytest.approx(norm, rel=1e-10)


def test_only_the_method_that_can_is_sent_elsewhere() -> None:
    with pytest.raises(InputError, match="r2hpdhg"):
        solve(infeasible(), "pdlp-average", xp=np)
    with pytest.raises(InputError, match="expected numpy, cupy, torch"):
        solve(infeasible(), xp=pytest)


LP_FILE = """\\ a comment
Maximize
 profit: 3 x + 2 y + 10
Subject To
 first: x + y <= 4
 second: x + 3 y >= 1
Bounds
 x <= 3
General
 y
End
"""


def test_lp_files(tmp_path: Path) -> None:
    pytest.importorskip("highspy")
    path = tmp_path / "small.lp"
    path.write_text(LP_FILE)
    program = read_lp(path)
    assert program.sense == -1
    assert program.columns == ["x", "y"]
    assert program.rows == ["first", "second"]
    assert program.notes == ("1 integer variables, relaxed",)
    assert solve(read_program(path)).objective == pytest.approx(3 * 3 + 2 * 1 + 10, abs=1e-4)


@pytest.mark.parametrize("text", ["", "Minimize\n x +* 3\nEnd\n", "Minimize\n [ x ^2 ]/2\nSubject To\n x >= 1\nEnd\n", "\x00\x01"])
def test_bad_lp_files(tmp_path: Path, text: str) -> None:
    pytest.importorskip("highspy")
    path = tmp_path / "bad.lp"
    path.write_text(text)
    with pytest.raises(InputError, match=r"bad\.lp"):
        read_lp(path)


def test_archives(tmp_path: Path) -> None:
    lp, x, _ = planted(15, np.random.default_rng(1))
    vectors = {"c": lp.cost, "l": lp.row_lower, "u": lp.row_upper, "lv": lp.lower, "uv": lp.upper}
    np.savez(tmp_path / "dense.npz", A=lp.matrix.toarray(), **vectors)
    np.savez(tmp_path / "sparse.npz", data=lp.matrix.data, indices=lp.matrix.indices, indptr=lp.matrix.indptr, **vectors)
    for name in ("dense.npz", "sparse.npz"):
        assert solve(read_program(tmp_path / name)).objective == pytest.approx(float(lp.cost @ x), rel=1e-4)


def test_bad_archives(tmp_path: Path) -> None:
    good = {"A": np.eye(2), "c": np.ones(2), "l": np.zeros(2), "u": np.ones(2), "lv": np.zeros(2), "uv": np.ones(2)}
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"c": np.ones(3)}, "expected"),
        ({"u": np.array([1.0, -1.0])}, "bounds"),
        ({"A": np.full((2, 2), np.nan)}, "finite"),
        ({"A": np.ones(2)}, "dimensions"),
        ({"c": np.array(["a", "b"])}, "numbers"),
        ({"c": np.array([{}, {}])}, "npz"),
    ]
    for i, (change, said) in enumerate(wrong):
        path = tmp_path / f"{i}.npz"
        np.savez(path, **(good | change))
        with pytest.raises(InputError, match=said):
            read_program(path)
    np.savez(tmp_path / "less.npz", A=np.eye(2), c=np.ones(2))
    out = random_array((2, 2), density=1.0, format="csr", rng=np.random.default_rng(0))
    np.savez(tmp_path / "far.npz", **{k: v for k, v in good.items() if k != "A"}, data=out.data, indices=out.indices + 9, indptr=out.indptr)
    for name, said in (("less.npz", "no array l, lv, u, uv"), ("far.npz", r"far\.npz")):
        with pytest.raises(InputError, match=said):
            read_program(tmp_path / name)
