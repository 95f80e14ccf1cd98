"""Tests of the arena's figures, and of its work from files."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from scipy import sparse
from scipy.io import mmwrite

from armillary.arena import NotForThisCase
from armillary.errors import InputError
from armillary.numerics.schur.arena import schur
from armillary.numerics.schur.feti.decomposition import inside


def test_techniques_agree_with_the_reference_and_are_compared_with_explicit() -> None:
    cases = {case.name: case.at(0, 0) for case in schur.built_in("tiny")}
    ratios = {}
    for name, settings in (("explicit", {}), ("stepped", {"trsm_chunk": 40, "syrk_chunk": 40}), ("implicit", {})):
        values = schur.execute(schur.make(name, settings), cases["cube-middle"]).values  # type: ignore[union-attr]
        assert values["error"] < 1e-12
        assert values["assembly_with_factor_s"] > values["assembly_s"]
        ratios[name] = values["flop_ratio"]
    assert ratios["explicit"] == 1.0
    assert ratios["stepped"] < 0.6
    assert isinstance(schur.execute(schur.make("implicit"), cases["gpu-20"]), NotForThisCase)


@pytest.fixture
def files(tmp_path: Path) -> Path:
    k, b = inside("heat", 2, 5)
    mmwrite(tmp_path / "K.mtx", k)
    mmwrite(tmp_path / "B.mtx", b)
    mmwrite(tmp_path / "scaled.mtx", 0.5 * b)
    mmwrite(tmp_path / "short.mtx", b[:, :-1])
    mmwrite(tmp_path / "unsymmetric.mtx", sparse.csr_array(k + sparse.coo_array(([1.0], ([0], [1])), shape=k.shape)))
    np.save(tmp_path / "parts.npy", np.zeros(3, int))
    (tmp_path / "a.vtk").write_text("nonsense")
    return tmp_path


def options_of(files: Path, **options: str) -> dict[str, str]:
    return {name: str(files / value) if name in ("b", "partition") else value for name, value in options.items()}


def test_a_general_b_from_a_file(files: Path) -> None:
    (case,) = schur.from_file(files / "K.mtx", options_of(files, b="scaled.mtx", general="true"))
    assert schur.execute(schur.make("stepped"), case.at(0, 0)).values["error"] < 1e-12  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("name", "options", "says"),
    [
        ("K.mtx", {}, "--b"),
        ("K.mtx", {"b": "short.mtx"}, "columns; expected"),
        ("K.mtx", {"b": "scaled.mtx"}, "expected −1, 0 or 1"),
        ("K.mtx", {"b": "B.mtx", "partition": "parts.npy"}, "--partition: .* with a mesh only"),
        ("unsymmetric.mtx", {"b": "B.mtx"}, "not symmetric"),
        ("a.vtk", {}, "meshio"),
        ("a.vtk", {"b": "B.mtx"}, "--b: .* with a matrix K only"),
    ],
)
def test_bad_files_are_refused(files: Path, name: str, options: dict[str, str], says: str) -> None:
    with pytest.raises(InputError, match=says):
        schur.from_file(files / name, options_of(files, **options))


@pytest.mark.skipif(find_spec("meshio") is None, reason="meshio is not installed")
def test_a_mesh_from_a_file(files: Path) -> None:
    import meshio  # type: ignore[import-not-found,unused-ignore]

    from armillary.numerics.schur import grid

    mesh = grid(4, 4)
    meshio.write_points_cells(files / "square.vtk", np.column_stack((mesh.points, np.zeros(25))), [("triangle", mesh.cells)])
    (case,) = schur.from_file(files / "square.vtk", {"parts": "4"})
    assert schur.execute(schur.make("explicit"), case.at(0, 0)).values["solve_s"] > 0  # type: ignore[union-attr]
    with pytest.raises(InputError, match="one entry for each of 32 cells"):
        schur.from_file(files / "square.vtk", options_of(files, partition="parts.npy"))
