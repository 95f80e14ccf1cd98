"""Runs `cuda_passes.py` in a process of its own, because Triton decides once per process whether it interprets kernels."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")


@pytest.mark.slow
def test_kernels_factor_as_the_host_does(tmp_path: Path) -> None:
    pytest.importorskip("triton", reason="Triton is not installed")
    kept = {key: value for key, value in os.environ.items() if key != "TRITON_INTERPRET"}
    surroundings = kept | {"TRITON_CACHE_DIR": str(tmp_path)} | ({} if torch.cuda.is_available() else {"TRITON_INTERPRET": "1"})
    command = [sys.executable, "-m", "pytest", "-x", "-m", "", str(Path(__file__).with_name("cuda_passes.py"))]
    done = subprocess.run(command, cwd=Path(__file__).parents[3], env=surroundings, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert " passed" in done.stdout, done.stdout


def test_blocks_on_the_host_need_no_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    from armillary.numerics.qr import tall_qr
    from armillary.numerics.qr.factors import method

    def refused() -> None:
        raise AssertionError("the kernels were asked for")

    monkeypatch.setattr(method, "_kernels", refused)
    a = np.random.default_rng(0).normal(size=(40, 3))
    for block in (a, torch.from_numpy(a)):
        assert tall_qr(block)[2].method == "cholqr2"
