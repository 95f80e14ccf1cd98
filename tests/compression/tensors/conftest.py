"""Small matrices are decomposed on one thread, because a second one only waits."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from threadpoolctl import threadpool_limits


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> Iterator[None]:
    """Limits the threads of BLAS."""
    with threadpool_limits(1):
        yield
