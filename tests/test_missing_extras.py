"""Optional packages: what is missing makes its techniques decline, and never an arena fail."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from armillary import extras
from armillary.errors import InputError


@pytest.mark.slow
def test_a_core_install_runs_every_arena() -> None:
    run = subprocess.run([sys.executable, str(Path(__file__).with_name("without_extras.py"))], capture_output=True, text=True, check=True)
    assert {path: faults for path, faults in json.loads(run.stdout).items() if faults} == {}


def test_the_extra_is_the_one_that_brings_the_package() -> None:
    for module, extra in {"brotli": "compression", "sklearn": "learn", "yaml": "deploy", "uvicorn": "serve", "mpi4py.MPI": "mpi"}.items():
        assert f"armillary[{extra}]" in str(extras.missing(module))
    assert str(extras.missing("nothing")) == "the package nothing is not installed (pip install nothing)"


def test_what_is_needed_is_imported_or_refused() -> None:
    assert extras.need("json") is json
    with pytest.raises(InputError, match="pip install no_such_package"):
        extras.need("no_such_package")
