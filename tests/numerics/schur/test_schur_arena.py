"""The arena from the command line and from files."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from scipy import sparse
from scipy.io import mmwrite

from armillary.arena import NotForThisCase
from armillary.numerics.schur.arena import schur
from armillary.numerics.schur.decomposition import inside

Command = Callable[..., subprocess.CompletedProcess[str]]
COMPARE = ("compare", "numerics/schur", "--repeats", "1", "--techniques", "stepped,implicit", "--work")


def test_every_technique_runs_or_declines() -> None:
    cases = {case.name: case.at(0, 0) for case in schur.built_in("tiny")}
    for name in schur.techniques:
        for case in ("heat-2d", "elasticity-3d", "cube-middle"):
            outcome = schur.execute(schur.make(name), cases[case])
            assert not isinstance(outcome, NotForThisCase)
            assert set(outcome.values) == {metric.name for metric in schur.metrics.values() if metric.applies(cases[case])}
            assert outcome.values["error"] < 1e-12
            assert outcome.values["assembly_with_factor_s"] > outcome.values["assembly_s"]
    explicit = schur.execute(schur.make("explicit"), cases["cube-middle"])
    assert explicit.values["flop_ratio"] == 1.0  # type: ignore[union-attr]
    finer = schur.execute(schur.make("stepped", {"trsm_chunk": 40, "syrk_chunk": 40}), cases["cube-middle"])
    assert finer.values["flop_ratio"] < 0.6  # type: ignore[union-attr]
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


def test_files_of_one_subdomain(armillary_command: Command, files: Path) -> None:
    ran = armillary_command(*COMPARE, "K.mtx", "--b", "B.mtx")
    assert ran.returncode == 0, ran.stderr
    assert "assembly_s" in ran.stdout
    assert armillary_command(*COMPARE, "K.mtx", "--b", "scaled.mtx", "--general", "true").returncode == 0


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("K.mtx",), "--b"),
        (("K.mtx", "--b", "missing.mtx"), "no such file"),
        (("K.mtx", "--b", "short.mtx"), "columns; expected"),
        (("K.mtx", "--b", "scaled.mtx"), "expected −1, 0 or 1"),
        (("unsymmetric.mtx", "--b", "B.mtx"), "not symmetric"),
        (("a.vtk",), "meshio"),
    ],
)
def test_bad_files_end_with_one_line(armillary_command: Command, files: Path, arguments: tuple[str, ...], says: str) -> None:
    ran = armillary_command(*COMPARE, *arguments)
    assert ran.returncode == 2
    assert says in ran.stderr.strip().splitlines()[-1]
    assert "Traceback" not in ran.stderr


@pytest.mark.skipif(find_spec("meshio") is None, reason="meshio is not installed")
def test_a_mesh_from_a_file(armillary_command: Command, files: Path) -> None:
    import meshio  # type: ignore[import-not-found,unused-ignore]

    from armillary.numerics.schur import grid

    mesh = grid(4, 4)
    meshio.write_points_cells(files / "square.vtk", np.column_stack((mesh.points, np.zeros(25))), [("triangle", mesh.cells)])
    ran = armillary_command(*COMPARE, "square.vtk", "--parts", "4")
    assert ran.returncode == 0, ran.stderr
    assert "solve_s" in ran.stdout
    ran = armillary_command(*COMPARE, "square.vtk", "--partition", "parts.npy")
    assert ran.returncode == 2
    assert "one entry for each of 32 cells" in ran.stderr
