"""NumPy and SciPy on the BLAS that they were built with; calls compute on the calling thread and on the library's pool."""

from __future__ import annotations

import functools
import threading
from typing import Any

from .api import Api, Kernel


class Blas(Api):
    """Callables on NumPy arrays; the pool is that of OpenBLAS, MKL or BLIS, whichever is loaded."""

    name = "blas"

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._now: int | None = -1

    def call(self, kernel: Kernel, args: tuple[Any, ...]) -> Any:
        """Runs the callable."""
        return kernel.variant("blas")(*args)

    def limit(self, threads: int | None) -> None:
        """Sets the pool's size, which these libraries have once for the whole process; calls that change nothing cost nothing."""
        if threads == self._now:
            return
        with self._lock:
            for resize, full in _pools():
                resize(full if threads is None else min(threads, full))
            self._now = threads

    def close(self) -> None:
        """Gives the library its full pool back."""
        self.limit(None)


@functools.cache
def _pools() -> tuple[tuple[Any, int], ...]:
    """For each loaded BLAS library, what sets the size of its pool, and the size that it had at first."""
    import numpy.linalg  # noqa: F401
    import scipy.linalg.lapack  # noqa: F401
    from threadpoolctl import ThreadpoolController  # type: ignore[import-untyped]

    found = ThreadpoolController().select(user_api="blas").lib_controllers
    # threadpoolctl lets one thread of a process resize OpenBLAS and ignores the others; here it may be any worker, one after the other.
    return tuple((getattr(one, "_real_set_num_threads", one.set_num_threads), one.num_threads) for one in found)
