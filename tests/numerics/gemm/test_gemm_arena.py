"""The arena from the command line and from files."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from armillary.cluster import preset
from armillary.numerics.gemm.arena import MODELLED, gemm, modelled_seconds

Command = Callable[..., subprocess.CompletedProcess[str]]


def test_modelled_seconds_by_hand() -> None:
    device = preset("rtx-pro-6000").groups[0].node.devices[0]
    # 28 products of 2·n³ at 70 % of 1000 Top/s; per matrix 8 bytes read, 7 written and read, 7·4 bytes read and 8 written at 1.79 TB/s.
    n = 4096
    expected = 28 * 2 * n**3 / 0.7e15 + (2 * (8 + 14) + 36) * n * n / 1.79e12
    assert modelled_seconds(28, 7, n, device) == pytest.approx(expected, rel=1e-12)
    assert set(MODELLED) == {"gb200", "rtx-pro-6000", "h200"}


def test_every_technique_runs_or_declines() -> None:
    cases = {case.name: case.at(0, 0) for case in gemm.built_in("tiny")}
    for name in gemm.techniques:
        for case in ("uniform", "graded-20", "model-gb200-8192"):
            outcome = gemm.execute(gemm.make(name), cases[case])
            if hasattr(outcome, "values"):
                asked = {metric.name for metric in gemm.metrics.values() if metric.applies(cases[case])}
                assert set(outcome.values) == asked
    adp = gemm.execute(gemm.make("adp"), cases["graded-20"])
    assert adp.values["grade"] == 3  # type: ignore[union-attr]
    assert adp.values["fallback"] == 1  # type: ignore[union-attr]


def test_files_are_multiplied(armillary_command: Command, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    np.save(tmp_path / "a.npy", rng.normal(size=(12, 20)))
    np.save(tmp_path / "b.npy", rng.normal(size=(20, 9)))
    arguments = ["compare", "numerics/gemm", "--repeats", "1", "--techniques", "adp,native", "--work"]
    ran = armillary_command(*arguments, "a.npy", "--b", "b.npy")
    assert ran.returncode == 0, ran.stderr
    assert "error_u" in ran.stdout
    assert armillary_command(*arguments, "a.npy").returncode == 0


@pytest.mark.parametrize(("name", "says"), [("wrong.npy", "not an array"), ("missing.npy", "no such file"), ("text.txt", "ending")])
def test_bad_files_end_with_one_line(armillary_command: Command, tmp_path: Path, name: str, says: str) -> None:
    (tmp_path / "wrong.npy").write_bytes(b"\x93NUMPY\x01\x00v\x00nonsense")
    (tmp_path / "text.txt").write_text("1 2 3")
    np.save(tmp_path / "a.npy", np.ones((3, 3)))
    for arguments in (["--work", name], ["--work", "a.npy", "--b", name]):
        ran = armillary_command("compare", "numerics/gemm", *arguments)
        assert ran.returncode == 2
        assert says in ran.stderr
        assert says in ran.stderr.strip().splitlines()[-1]
        assert "Traceback" not in ran.stderr
