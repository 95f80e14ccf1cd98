"""Two empty directories for the tests of real ones."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def a(tmp_path: Path) -> Path:
    """Makes the left directory."""
    (tmp_path / "a").mkdir()
    return tmp_path / "a"


@pytest.fixture
def b(tmp_path: Path) -> Path:
    """Makes the right directory."""
    (tmp_path / "b").mkdir()
    return tmp_path / "b"


@pytest.fixture
def pair(a: Path, b: Path) -> tuple[Path, Path]:
    """Makes both."""
    return a, b
