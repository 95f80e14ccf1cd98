"""The eight machines, unpacked once."""

from __future__ import annotations

import os
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path

import make_trees
import pytest


@pytest.fixture(scope="session")
def trees() -> Iterator[Path]:
    """A folder with one copied tree for each machine of `make_trees.MACHINES`: 19,000 files, in memory where that can be had."""
    with tempfile.TemporaryDirectory(dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None) as top:
        for name in make_trees.MACHINES:
            with tarfile.open(make_trees.HERE / f"{name}.tar.xz") as tar:
                # The archives are those of `make_trees`, which a test checks, so that no member needs to be looked at again.
                tar.extractall(Path(top) / name, filter="fully_trusted")
        yield Path(top)
