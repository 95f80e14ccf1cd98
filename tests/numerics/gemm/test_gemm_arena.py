"""Tests of the model of a device, of the arena's fallback, and of matrices from files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import armillary
from armillary.cluster import preset
from armillary.errors import InputError
from armillary.numerics.gemm.arena import MODELLED, gemm, modelled_seconds


def test_modelled_seconds_by_hand() -> None:
    device = preset("rtx-pro-6000").groups[0].node.devices[0]
    # 28 products of 2·n³ at 70 % of 1000 Top/s; per matrix 8 bytes read, 7 written and read, 7·4 bytes read and 8 written at 1.79 TB/s.
    n = 4096
    expected = 28 * 2 * n**3 / 0.7e15 + (2 * (8 + 14) + 36) * n * n / 1.79e12
    assert modelled_seconds(28, 7, n, device) == pytest.approx(expected, rel=1e-12)
    assert set(MODELLED) == {"gb200", "rtx-pro-6000", "h200"}


def test_adp_falls_back_where_exponents_spread_too_far() -> None:
    graded = next(case for case in gemm.built_in("tiny") if case.name == "graded-20")
    values = gemm.execute(gemm.make("adp"), graded.at(0, 0)).values  # type: ignore[union-attr]
    assert values["grade"] == 3
    assert values["fallback"] == 1


def test_a_file_is_multiplied_by_its_transpose_or_by_another(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(12, 20)), rng.normal(size=(20, 9))
    np.save(tmp_path / "a.npy", a)
    np.save(tmp_path / "b.npy", b)
    for options, right in (({}, a.T), ({"b": str(tmp_path / "b.npy")}, b)):
        (case,) = gemm.from_file(tmp_path / "a.npy", options)
        assert np.array_equal(case.workload[0], a)
        assert np.array_equal(case.workload[1], right)
        assert gemm.execute(gemm.make("adp"), case.at(0, 0)).values["grade"] == 3  # type: ignore[union-attr]


def test_a_bad_file_is_refused_on_the_right_hand_side_too(tmp_path: Path) -> None:
    (tmp_path / "wrong.npy").write_bytes(b"\x93NUMPY\x01\x00v\x00nonsense")
    np.save(tmp_path / "a.npy", np.ones((3, 3)))
    with pytest.raises(InputError, match="not an array"):
        gemm.from_file(tmp_path / "a.npy", {"b": str(tmp_path / "wrong.npy")})


def test_the_answer_leaves_out_products_without_the_accuracy_of_float64(tmp_path: Path) -> None:
    names, cases = ["native", "float32", "adp"], ["uniform", "model-gb200-8192"]
    found = armillary.compare("numerics/gemm", techniques=names, cases=cases, scale="tiny", repeats=1, store=tmp_path / "s.db")
    said = found.answer()
    assert said.startswith("Of the products with the accuracy of float64, ")
    assert "float32" not in said
    assert "the model gives adp" in said
