"""One thread for PyTorch, because the tensors of these tests are small, and a cache of models for each test."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    with contextlib.suppress(ImportError):
        import torch

        threads = torch.get_num_threads()
        torch.set_num_threads(1)
        yield
        torch.set_num_threads(threads)
        return
    yield


@pytest.fixture
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder for cached models, through which compiled loops and parsed sources are still found."""
    from armillary.learn import recipes

    folder = tmp_path / "models"
    monkeypatch.setattr(recipes, "cache_folder", lambda: folder)
    return folder
