"""Loops compiled by Numba that give up the interpreter's lock; with `prange` they use Numba's own pool."""

from __future__ import annotations

from typing import Any

from .api import Api, Kernel


class Numba(Api):
    """Compiled callables on NumPy arrays. The width is a mask of the calling thread, so that calls side by side do not disturb each
    other."""

    name = "numba"

    def __init__(self) -> None:
        import numba

        self._set = numba.set_num_threads
        self._full = int(numba.get_num_threads())

    def call(self, kernel: Kernel, args: tuple[Any, ...]) -> Any:
        """Runs the compiled loop."""
        return kernel.variant("numba")(*args)

    def limit(self, threads: int | None) -> None:
        """Masks the pool for the calling thread."""
        self._set(self._full if threads is None else min(threads, self._full))
