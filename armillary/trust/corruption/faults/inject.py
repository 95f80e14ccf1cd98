"""Faults in arrays: one flipped bit, noise on some elements, or a spread error as a study of propagation found them.

Indices are never computed from values, so errors do not spread into them: there a fault is one flipped bit among those that keep the
index in range. One out of range would end most programs at once, which is not silent.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from armillary.errors import InputError

if TYPE_CHECKING:
    from scipy.sparse import csr_array

    from .propagation import Study

Array = np.ndarray[Any, Any]
#: A change of data by less than this is no corruption.
VANISHED = 1e-14
KINDS = ("flip", "spread", "noise")


def flip_bit(array: Array, element: int, bit: int) -> None:
    """Flips one bit of one element in place; bit 0 is the lowest of the mantissa or of the integer."""
    bits = 8 * array.itemsize
    if array.ndim != 1 or not 0 <= element < len(array) or not 0 <= bit < bits:
        raise InputError(f"found element {element} and bit {bit}; expected an element of the array and a bit from 0 to {bits - 1}")
    words = array.view({4: np.uint32, 8: np.uint64}[array.itemsize])
    words[element] ^= words.dtype.type(1 << bit)


def strike(array: Array, kind: str, rng: np.random.Generator, *, study: Study | None = None, fraction: float = 0, sigma: float = 0,
           limit: int = 0) -> bool:  # fmt: skip
    """Puts a fault into an array in place; False if it vanished or cannot be silent, and then the array may be changed all the same.

    limit: for indices, the least number that is out of range.
    """
    if array.dtype.kind != "f":
        element, bits = int(rng.integers(len(array))), max(1, int(limit - 1).bit_length())
        flip_bit(array, element, int(rng.integers(bits)))
        return 0 <= int(array[element]) < limit
    before = array.copy()
    if kind == "flip":
        flip_bit(array, int(rng.integers(len(array))), int(rng.integers(8 * array.itemsize)))
    else:
        if kind == "spread":
            if study is None:
                raise InputError("a spread error needs a study of propagation")
            fraction, sigma = study.draw(rng)
        scatter(array, fraction, sigma, rng)
    return silent(before, array)


def scatter(array: Array, fraction: float, sigma: float, rng: np.random.Generator) -> None:
    """Multiplies a fraction of the elements, one at least, by 1 + sigma times a Gaussian number, in place."""
    count = min(len(array), max(1, round(fraction * len(array))))
    chosen = rng.choice(len(array), count, replace=False)
    array[chosen] *= 1 + sigma * rng.standard_normal(count)


def silent(before: Array, after: Array) -> bool:
    """Whether some element differs by more than 1e-14 of its size, and none is infinite or no number."""
    if not np.isfinite(after).all():
        return False
    return bool((np.abs(after - before) > VANISHED * np.abs(before)).any())


def flip(matrix: Any, rng: np.random.Generator, *, target: str = "values", element: int | None = None, bit: int | None = None) -> csr_array:
    """A copy of a sparse matrix with one flipped bit in its values, columns or pointers, drawn again until the indices are in range."""
    from ..matrices.csr import Csr, in_range

    found = Csr.of(matrix)
    arrays = {"values": found.values, "columns": found.columns, "pointers": found.pointers}
    if target not in arrays:
        raise InputError(f'found "{target}"; expected values, columns or pointers', where="target")
    kept = arrays[target].copy()
    for _ in range(1000):
        array = arrays[target]
        array[:] = kept
        flip_bit(
            array,
            int(rng.integers(len(array))) if element is None else element,
            int(rng.integers(8 * array.itemsize)) if bit is None else bit,
        )
        if in_range(found.columns, found.pointers) and np.isfinite(found.values).all() and (np.diff(found.pointers) >= 0).all():
            return found.scipy()
        if element is not None and bit is not None:
            break
    raise InputError("found no such fault that leaves a readable matrix", where="flip")


def spread(matrix: Any, study: Study, rng: np.random.Generator) -> csr_array:
    """A copy of a sparse matrix whose values have an error as the study found them."""
    from ..matrices.csr import Csr

    found = Csr.of(matrix)
    fraction, sigma = study.draw(rng)
    scatter(found.values, fraction, sigma, rng)
    return found.scipy()


def noise(matrix: Any, fraction: float, sigma: float, rng: np.random.Generator) -> csr_array:
    """A copy of a sparse matrix in which a fraction of the values has relative Gaussian noise."""
    from ..matrices.csr import Csr

    if not (0 < fraction <= 1 and 0 < sigma < 1e300):
        raise InputError(f"found fraction {fraction} and sigma {sigma}; expected a share and a positive number", where="noise")
    found = Csr.of(matrix)
    scatter(found.values, fraction, sigma, rng)
    return found.scipy()
