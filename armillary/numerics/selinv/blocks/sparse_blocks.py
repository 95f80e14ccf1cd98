"""Takes blocks out of a sparse matrix and puts them back; finds block size and arrow, and names entries that do not fit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from armillary import arrays
from armillary.errors import InputError

from .block_arrow import ASYMMETRY, BlockArrow, check_room

if TYPE_CHECKING:
    from scipy.sparse import coo_array, csr_array

Array = np.ndarray[Any, Any]
#: Entries that an error names.
_NAMED = 3


def from_sparse(matrix: Any, block: int | str | Sequence[int], arrow: int | str) -> BlockArrow:
    """See `BlockArrow.from_sparse`."""
    found = _checked(matrix)
    order = found.shape[0]
    first = _first_columns(found)
    a = _arrow(first, order) if arrow == "auto" else _whole(arrow, "arrow")
    if not 0 <= a < order:
        raise InputError(f"found an arrow of {a} rows; expected fewer than the {order} of the matrix", where="arrow")
    sizes = _sizes(block, first, order, a)
    b = max(sizes)
    check_room((2 * b + a) * b * len(sizes) * found.data.itemsize, f"{len(sizes)} blocks of {b}×{b} with an arrow of {a}")
    return _filled(found, np.asarray(sizes), b, a)


def _filled(found: coo_array, sizes: Array, b: int, a: int) -> BlockArrow:
    n, chain = len(sizes), int(sizes.sum())
    starts = np.concatenate([[0], np.cumsum(sizes)])
    owner = np.repeat(np.arange(n), sizes)
    rows, columns, data = found.coords[0], found.coords[1], found.data
    below = rows >= columns
    rows, columns, data = rows[below], columns[below], data[below]
    in_chain, in_arrow = rows < chain, (rows >= chain) & (columns < chain)
    i, j = owner[rows[in_chain]], owner[columns[in_chain]]
    outside = i - j > 1
    if outside.any():
        _refuse(rows[in_chain][outside], columns[in_chain][outside], found, a)
    diagonal = np.zeros((n, b, b), data.dtype)
    diagonal[:, np.arange(b), np.arange(b)] = np.arange(b) >= sizes[:, None]
    lower, arrow, tip = np.zeros((n - 1, b, b), data.dtype), np.zeros((n, a, b), data.dtype), np.zeros((a, a), data.dtype)
    y, x, v = rows[in_chain] - starts[i], columns[in_chain] - starts[j], data[in_chain]
    same = i == j
    diagonal[i[same], y[same], x[same]] = v[same]
    diagonal[i[same], x[same], y[same]] = v[same].conj()
    lower[j[~same], y[~same], x[~same]] = v[~same]
    k = owner[columns[in_arrow]]
    arrow[k, rows[in_arrow] - chain, columns[in_arrow] - starts[k]] = data[in_arrow]
    last = columns >= chain
    tip[rows[last] - chain, columns[last] - chain] = data[last]
    tip[columns[last] - chain, rows[last] - chain] = data[last].conj()
    return BlockArrow(diagonal, lower, arrow, tip, () if (sizes == b).all() else tuple(sizes.tolist()))


def to_sparse(blocks: BlockArrow) -> csr_array:
    """See `BlockArrow.to_sparse`."""
    from scipy.sparse import block_array, bsr_array, csr_array

    n, b, a = blocks.n, blocks.b, blocks.a
    diagonal, lower, arrow, tip = (arrays.to_host(x) for x in (blocks.diagonal, blocks.lower, blocks.arrow, blocks.tip))
    numbers = np.arange(n)
    shape = (n * b, n * b)
    chain = bsr_array((diagonal, numbers, np.arange(n + 1)), shape=shape).tocsr()
    if n > 1:
        below = bsr_array((lower, numbers[:-1], np.concatenate([[0], np.arange(n)])), shape=shape).tocsr()
        chain = chain + below + below.conj().T
    kept = blocks.kept()
    chain = csr_array(chain)[kept][:, kept]
    if not a:
        return csr_array(chain)
    side = csr_array(arrow.transpose(1, 0, 2).reshape(a, n * b)[:, kept])
    rows: Any = [[chain, side.conj().T], [side, csr_array(tip)]]
    return csr_array(block_array(rows, format="csr"))


def _checked(matrix: Any) -> coo_array:
    from scipy.sparse import coo_array, issparse

    if not issparse(matrix) and not (isinstance(matrix, np.ndarray) and matrix.ndim == 2):
        raise InputError(f"found {type(matrix).__name__}; expected a SciPy sparse array", where="matrix")
    found = coo_array(cast(Any, matrix))
    if found.shape[0] != found.shape[1] or not found.shape[0]:
        raise InputError(f"found the shape {found.shape}; expected a square matrix, not empty", where="matrix")
    if found.dtype.kind not in "biufc":
        raise InputError(f"found {found.dtype}; expected numbers", where="matrix")
    wanted = np.result_type(found.dtype, np.float32 if found.dtype in (np.float32, np.complex64) else np.float64)
    found = coo_array((found.data.astype(wanted), found.coords), shape=found.shape)
    found.sum_duplicates()
    found.eliminate_zeros()
    bad = np.flatnonzero(~np.isfinite(found.data))
    if bad.size:
        at = found.coords[0][bad[0]], found.coords[1][bad[0]]
        raise InputError(f"found {found.data[bad[0]]} at ({at[0]}, {at[1]}); expected finite numbers", where="matrix")
    largest = np.abs(found.data).max(initial=0.0)
    difference = (found - found.conj().T).tocoo()
    wrong = np.flatnonzero(np.abs(difference.data) > ASYMMETRY * largest)
    if wrong.size:
        i, j = difference.coords[0][wrong[0]], difference.coords[1][wrong[0]]
        raise InputError(f"entry ({i}, {j}) is not the conjugate of ({j}, {i}); expected a Hermitian matrix", where="matrix")
    return found


def _first_columns(found: coo_array) -> Array:
    """Returns the column of the first entry of each row, at most that of the diagonal."""
    first = np.arange(found.shape[0])
    np.minimum.at(first, found.coords[0], found.coords[1])
    return first


def _width(first: Array, rows: int) -> int:
    return int((np.arange(rows) - first[:rows]).max(initial=0)) + 1


def _arrow(first: Array, order: int) -> int:
    """Returns rows at the end without which the rest is narrower, by more than they add: the least N·(w² + w·a + a²) for width w and arrow
    a.
    """
    reach = np.maximum.accumulate(np.arange(order) - first) + 1
    whole = int(reach[-1])
    taken = np.arange(order)
    width = reach[::-1].astype(np.float64)
    cost = (order - taken) * (width**2 + width * taken + taken.astype(np.float64) ** 2)
    cost[(taken > 0) & (width + taken >= whole)] = np.inf
    return int(np.argmin(cost))


def _smallest_block(first: Array, rows: int) -> int:
    """Returns the smallest b for which no entry of the first `rows` rows is more than one block away from the diagonal."""
    width = _width(first, rows)
    # Only rows whose first entry is far away can be too far; b = width − 1 fits always, below half of it nothing does.
    index = np.arange(rows)
    for b in range(max(1, width // 2), max(1, width - 1)):
        far = index[index - first[:rows] > b]
        if not far.size or bool((far // b - first[far] // b <= 1).all()):
            return b
    return max(1, width - 1)


def _sizes(block: int | str | Sequence[int], first: Array, order: int, a: int) -> list[int]:
    rows = order - a
    if isinstance(block, str) or not np.iterable(block):
        b = _smallest_block(first, rows) if block == "auto" else _whole(block, "block")
        if not 1 <= b <= rows:
            raise InputError(f"found a block of {b}; expected 1 to the {rows} rows before the arrow", where="block")
        if rows % b and block != "auto":
            raise InputError(
                f"blocks of {b} do not tile the {rows} rows before the arrow of {a}; expected a divisor or sizes", where="block"
            )
        return [b] * (rows // b) + ([rows % b] if rows % b else [])
    sizes = [_whole(size, "block") for size in block]
    if not sizes or min(sizes) < 1 or sum(sizes) != rows:
        raise InputError(
            f"the {len(sizes)} block sizes add up to {sum(sizes)}; expected sizes from 1 that tile the {rows} rows before the arrow of {a}",
            where="block",
        )
    return sizes


def _refuse(rows: Array, columns: Array, found: coo_array, a: int) -> None:
    where = ", ".join(f"({i}, {j})" for i, j in sorted(zip(rows.tolist(), columns.tolist()))[:_NAMED])
    more = f" and {rows.size - _NAMED} more" if rows.size > _NAMED else ""
    fits = _smallest_block(_first_columns(found), found.shape[0] - a)
    raise InputError(
        f"found entries more than one block from the diagonal at {where}{more}; expected none (block={fits} fits)", where="block"
    )


def _whole(found: Any, what: str) -> int:
    try:
        number = int(found)
    except (TypeError, ValueError):
        number = -1
    if number < 0 or isinstance(found, bool) or (not isinstance(found, str) and number != found):
        raise InputError(f'found {found!r}; expected a whole number or "auto"', where=what)
    return number
