"""The eight machines, unpacked once."""

from __future__ import annotations

import tarfile
from pathlib import Path

import make_trees
import pytest


@pytest.fixture(scope="session")
def trees(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with one copied tree for each machine of `make_trees.MACHINES`."""
    top = tmp_path_factory.mktemp("trees")
    for name in make_trees.MACHINES:
        with tarfile.open(make_trees.HERE / f"{name}.tar.xz") as tar:
            tar.extractall(top / name, filter="data")
    return top
