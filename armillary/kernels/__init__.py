"""The only door to Numba: how loops are compiled, and the cache that knows their content.

Every loop is compiled by one of the four decorators below, bare (`@loop`) or with further options (`@loop(error_model="numpy")`).
`content` says what the machine code of a loop depends on, and `cache` keeps the machine code under a name made from that.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import njit

from .cache import ContentCache

__all__ = ["kernel", "loop", "parallel_loop", "part"]


class _Decorator:
    """Compiles functions with fixed options; others may be added at each use."""

    def __init__(self, doc: str, **options: Any) -> None:
        self.__doc__ = doc
        self._options = options

    def __call__(self, function: Callable[..., Any] | None = None, /, **options: Any) -> Any:
        if function is None:
            return _Decorator(self.__doc__ or "", **self._options | options)
        compiled: Any = njit(**self._options | options)(function)
        if compiled is not function:  # It is the function itself where NUMBA_DISABLE_JIT is set.
            compiled._cache = ContentCache(compiled)
        return compiled


#: Without the counting of references, FIFO replays 105 million requests per second instead of 16 million.
kernel = _Decorator("Compiles a loop that allocates nothing, so that array references need not be counted.", nogil=True, _nrt=False)
part = _Decorator(
    "Compiles a part of a kernel, which is inlined because a call would pass seven numbers per array.",
    nogil=True,
    _nrt=False,
    forceinline=True,
)
loop = _Decorator("Compiles a loop that may allocate; it runs without the interpreter's lock.", nogil=True)
parallel_loop = _Decorator("Compiles a loop whose `numba.prange` is shared out over Numba's threads.", nogil=True, parallel=True)
