"""Works on a rank's block of rows piece by piece, so that no step needs a second copy of it, in NumPy, CuPy or PyTorch.

Products with n×n matrices, which come from the host and go there. What crosses is n×n (or a sample of 4 n rows) and counted by
`arrays.copied_bytes`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from importlib import import_module
from importlib.util import find_spec
from typing import Any, TypeVar

import numpy as np

from armillary import arrays

from ..factors.triangles import Array, inverse, pivot_order, row_conditioned

#: Bytes of a piece: within the cache of a core, or enough to fill a GPU.
_HOST_PIECE, _DEVICE_PIECE = 1 << 20, 1 << 29
#: A product with the inverse of a triangle is taken where its rows are conditioned at most like this: a residual of tens of u.
INVERSE_BELOW = 100.0
#: Rows of a leaf of the local tournament, in units of n, and how many leaves meet in one match.
_LEAF, _FAN_IN = 8, 8
#: Rows of a device's sample in units of n: an LU of 4 n rows takes the host a tenth of a millisecond, one of 16 n six.
_SAMPLE = 4
#: Blocks of fewer bytes are worked on by one thread.
_LARGE = 1 << 24
_T = TypeVar("_T")
#: The threads among which the pieces of a block on the host are dealt, where there are any.
_pool: ContextVar[ThreadPoolExecutor | None] = ContextVar("pool", default=None)


@contextmanager
def dealt(x: arrays.Array) -> Iterator[None]:
    """Deals pieces of a large host block, within the `with` block, among as many threads as BLAS has; BLAS itself has one.

    Threads that meet at the end of a pass rather than inside every product wait less for each other. The bits do not depend on how
    many there are. BLAS is limited in the whole process meanwhile.
    """
    if not isinstance(x, np.ndarray) or x.nbytes < _LARGE or find_spec("threadpoolctl") is None:
        yield
        return
    from threadpoolctl import threadpool_info, threadpool_limits  # type: ignore[import-untyped]

    threads = max((library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"), default=1)
    if threads == 1:
        yield
        return
    with threadpool_limits(1, "blas"), ThreadPoolExecutor(threads) as pool:
        before = _pool.set(pool)
        try:
            yield
        finally:
            _pool.reset(before)


def each(parts: list[Any], work: Callable[[Any], _T]) -> list[_T]:
    """Returns the results of `work` on every part, in their order."""
    pool = _pool.get()
    return [work(part) for part in parts] if pool is None or len(parts) < 4 else list(pool.map(work, parts))


def pieces(x: arrays.Array) -> Iterator[arrays.Array]:
    """Yields views of x, some rows each."""
    size = _DEVICE_PIECE if arrays.on_accelerator(x) else _HOST_PIECE
    rows = max(1, size // max(1, x.shape[1] * x.dtype.itemsize))
    for start in range(0, x.shape[0], rows):
        yield x[start : start + rows]


def like(small: Array, x: arrays.Array) -> arrays.Array:
    """Returns a small host matrix beside x."""
    return small if isinstance(x, np.ndarray) else arrays.namespace(x).asarray(np.ascontiguousarray(small), device=arrays.device_of(x))


@functools.cache
def _kernels() -> Any:
    return import_module(".cuda_rows", __package__) if find_spec("triton") is not None else None


def _cuda(x: arrays.Array) -> Any:
    """Returns the module of Triton kernels where x is a block that they take, else None."""
    if arrays.kind_of(x) != "torch" or not arrays.on_accelerator(x):
        return None
    kernels = _kernels()
    return kernels if kernels is not None and kernels.fits(x) else None


def gram(x: arrays.Array) -> Array:
    """Returns xᴴ x on the host."""
    if kernels := _cuda(x):
        return np.asarray(kernels.gram(x))
    return _added(each(list(pieces(x)), lambda piece: arrays.syrk(piece, "c")), x)


def _added(products: list[arrays.Array], x: arrays.Array) -> Array:
    if not products:
        return np.zeros((x.shape[1], x.shape[1]), host_type(x))
    total = products[0]
    for product in products[1:]:
        total = total + product
    return arrays.to_host(total)


def inner(x: arrays.Array, y: arrays.Array) -> Array:
    """Returns xᴴ y on the host."""
    total = None
    for left, right in zip(pieces(x), _same(x, y)):
        product = (left.conj() if np.dtype(host_type(x)).kind == "c" else left).T @ right
        total = product if total is None else total + product
    if total is None:
        return np.zeros((x.shape[1], y.shape[1]), host_type(x))
    return arrays.to_host(total)


def _same(x: arrays.Array, y: arrays.Array) -> Iterator[arrays.Array]:
    start = 0
    for piece in pieces(x):
        yield y[start : start + piece.shape[0]]
        start += piece.shape[0]


def multiply(x: arrays.Array, right: Array) -> None:
    """Multiplies in place, x ← x·right, with n×n `right`."""
    factor = like(right, x)

    def work(piece: arrays.Array) -> None:
        piece[...] = piece @ factor

    each(list(pieces(x)), work)


def divide(x: arrays.Array, r: Array, with_gram: bool = False) -> Array | None:
    """Divides in place, x ← x·r⁻¹, by an upper triangular r without zeros on its diagonal; `with_gram` gives xᴴ x of the answer while a
    piece is in the cache.

    Substitution by blocks: where the rows of a diagonal block are conditioned well, its inverse is multiplied with, else it is halved. So
    the residual does not know the condition of r, as with substitution by columns, and nearly all flops are products.
    """
    if (kernels := _cuda(x)) and (blocks := kernels.steps(r, INVERSE_BELOW)) is not None:
        kernels.divide(x, x, blocks)
        return np.asarray(kernels.gram(x)) if with_gram else None
    steps = [(lo, mid, hi, like(block, x)) for lo, mid, hi, block in _steps(r, 0, r.shape[0])]

    def work(piece: arrays.Array) -> arrays.Array:
        for lo, mid, hi, block in steps:
            if mid:
                piece[:, mid:hi] -= piece[:, lo:mid] @ block
            else:
                piece[:, lo:hi] = piece[:, lo:hi] @ block
        return arrays.syrk(piece, "c") if with_gram else None

    products = each(list(pieces(x)), work)
    return _added(products, x) if with_gram else None


def quotient(x: arrays.Array, factors: Array, r: Array) -> tuple[arrays.Array, Array]:
    """Returns x·diag(factors)·r⁻¹ in a fresh block, and its Gram matrix."""
    if (kernels := _cuda(x)) and (blocks := kernels.steps(r, INVERSE_BELOW)) is not None:
        room = arrays.namespace(x).empty_like(x)
        kernels.divide(x, room, blocks, factors)
        return room, np.asarray(kernels.gram(room))
    room = scaled(x, factors)
    product = divide(room, r, with_gram=True)
    assert product is not None
    return room, product


def _steps(r: Array, lo: int, hi: int) -> Iterator[tuple[int, int, int, Array]]:
    """Yields (lo, 0, hi, inverse): these columns times the inverse; (lo, mid, hi, block): columns lo:mid times the block out of columns
    mid:hi.
    """
    block = np.ascontiguousarray(r[lo:hi, lo:hi])
    if row_conditioned(block) <= INVERSE_BELOW:
        yield lo, 0, hi, np.ascontiguousarray(inverse(block))
        return
    mid = (lo + hi) // 2
    yield from _steps(r, lo, mid)
    yield lo, mid, hi, np.ascontiguousarray(r[lo:mid, mid:hi])
    yield from _steps(r, mid, hi)


def magnitudes(x: arrays.Array) -> Array:
    """Returns the largest |entry| of each column as float64 on the host; infinite where a column holds an infinity or NaN."""
    if kernels := _cuda(x):
        found = kernels.magnitudes(x)
        return np.where(np.isnan(found), np.inf, found)
    xp, complex_type = arrays.namespace(x), np.dtype(host_type(x)).kind == "c"

    def work(piece: arrays.Array) -> Array:
        if complex_type:
            return arrays.to_host(xp.max(xp.abs(piece), axis=0))
        return np.maximum(arrays.to_host(xp.max(piece, axis=0)), -arrays.to_host(xp.min(piece, axis=0)))

    most = np.max([np.zeros(x.shape[1]), *each(list(pieces(x)), work)], axis=0)
    return np.where(np.isnan(most), np.inf, most)


def first_not_finite(x: arrays.Array) -> tuple[int, int] | None:
    """Returns row and column of the first infinity or NaN."""
    xp, start = arrays.namespace(x), 0
    for piece in pieces(x):
        bad = arrays.to_host(xp.isfinite(piece))
        if not bad.all():
            row, column = np.argwhere(~bad)[0]
            return start + int(row), int(column)
        start += piece.shape[0]
    return None


def scaled(x: arrays.Array, factors: Array) -> arrays.Array:
    """Returns a copy of x by rows, each column times its factor."""
    if isinstance(x, np.ndarray):
        room = np.empty(x.shape, x.dtype)
        each(list(zip(_same(room, x), pieces(room))), lambda pair: np.multiply(pair[0], factors, out=pair[1]))
        return room
    return x * like(factors.astype(factors.dtype), x)


def top_rows(x: arrays.Array, factors: Array | None = None) -> Array:
    """Returns the rows of x·diag(factors) that win the local tournament, in order: at most n indices.

    On the host leaves of 8 n rows are factored with partial pivoting and eight winners at a time meet again. On a device, where
    pivoting column by column is slow, the winners are those of a sample of 4 n rows; what it missed shows as growth.
    """
    rows, n = x.shape
    if arrays.on_accelerator(x):
        return _won(x, sampled_rows(rows, n), factors)
    return winners(x, [np.arange(i, min(rows, i + _LEAF * n)) for i in range(0, rows, _LEAF * n)])


def sampled_rows(rows: int, n: int) -> Array:
    """Returns which rows a device's sample has, in order: 4 n of them, or all."""
    return np.sort(np.random.Generator(np.random.PCG64DXSM(0)).choice(rows, min(rows, _SAMPLE * n), replace=False))


def winners(x: arrays.Array, groups: list[Array], factors: Array | None = None) -> Array:
    """Returns the winners among groups of rows of x·diag(factors), which are at most n."""
    if not groups:
        return np.empty(0, np.int64)
    level = each(groups, lambda group: _won(x, group, factors))
    while len(level) > 1:
        level = each([np.concatenate(level[i : i + _FAN_IN]) for i in range(0, len(level), _FAN_IN)], lambda group: _won(x, group, factors))
    return level[0]


def _won(x: arrays.Array, group: Array, factors: Array | None) -> Array:
    return group[pivot_order(take(x, group, factors))]


def take(x: arrays.Array, rows: Array, factors: Array | None = None) -> Array:
    """Returns some rows of x·diag(factors) on the host."""
    found = x[rows] if isinstance(x, np.ndarray) else arrays.to_host(x[like(rows, x)])
    return found if factors is None else found * factors


def largest_rows(x: arrays.Array) -> Array:
    """Returns for each column the row in which it is largest."""
    if not x.shape[0]:
        return np.empty(0, np.int64)
    xp = arrays.namespace(x)
    best, where, start = np.full(x.shape[1], -1.0), np.zeros(x.shape[1], np.int64), 0
    for piece in pieces(x):
        size = xp.abs(piece)
        found, at = arrays.to_host(xp.max(size, axis=0)), arrays.to_host(xp.argmax(size, axis=0))
        better = found > best
        best, where = np.where(better, found, best), np.where(better, start + at, where)
        start += piece.shape[0]
    return np.unique(where)


def host_type(x: arrays.Array) -> Any:
    """Returns the NumPy type of the entries of x."""
    return x.dtype if isinstance(x, np.ndarray) else np.dtype(str(x.dtype).removeprefix("torch."))
