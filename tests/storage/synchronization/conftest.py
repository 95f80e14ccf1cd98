"""Two empty directories for the tests of real ones."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Path, Path]:
    """Both empty."""
    a, b = tmp_path / "a", tmp_path / "b"
    a.mkdir()
    b.mkdir()
    return a, b
