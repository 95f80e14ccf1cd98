"""Runs `gpu_kernels.py` and `gpu_assembly.py`, each in a process of its own.

Triton decides once per process whether it interprets kernels, so these tests must neither inherit that decision nor make it for others.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("triton", reason="Triton is not installed")
torch = pytest.importorskip("torch", reason="PyTorch is not installed")


def run(name: str, tmp_path: Path, marked: str, **environment: str) -> None:
    """Fails with what the tests in the file say."""
    command = [sys.executable, "-m", "pytest", "-x", "-m", marked, str(Path(__file__).with_name(name))]
    kept = {key: value for key, value in os.environ.items() if key != "TRITON_INTERPRET"}
    surroundings = kept | {"TRITON_CACHE_DIR": str(tmp_path)} | environment
    done = subprocess.run(command, cwd=Path(__file__).parents[3], env=surroundings, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert " passed" in done.stdout, done.stdout


@pytest.mark.slow
def test_kernels_give_the_bytes_of_the_host(tmp_path: Path) -> None:
    run("gpu_kernels.py", tmp_path, "", **({} if torch.cuda.is_available() else {"TRITON_INTERPRET": "1"}))


@pytest.mark.slow
def test_compiled_kernels_round_as_the_host_does(tmp_path: Path) -> None:
    run("gpu_assembly.py", tmp_path, "not slow")
