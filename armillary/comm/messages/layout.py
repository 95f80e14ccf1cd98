"""Layouts: they select elements of an array that are not contiguous, such as a column, a face of a box or scattered blocks.

A buffer is given with its layout as `(array, layout)`. On MPI a layout becomes a derived datatype. Elsewhere the elements are packed into
one message and unpacked at the other end; `pack` and `unpack` are public.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from armillary.errors import InputError

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Layout:
    """A selection of elements of a C-contiguous array, in a fixed order.

    Layouts are made by `contiguous`, `vector`, `subarray`, `indexed` and `struct`. Positions count elements from the beginning of the
    array; in a `struct` they count bytes.
    """

    kind: str
    #: The numbers that the kind needs, in the order of the arguments of the function that makes it.
    numbers: tuple[Any, ...]

    @staticmethod
    def contiguous(count: int, start: int = 0) -> Layout:
        """Select `count` contiguous elements from `start` on."""
        _whole(count=count, start=start)
        return Layout("vector", (1 if count else 0, count, max(count, 1), start))

    @staticmethod
    def vector(count: int, length: int, stride: int, start: int = 0) -> Layout:
        """Select `count` blocks of `length` elements each; `stride` elements lie between the beginnings of two blocks."""
        _whole(count=count, length=length, stride=stride, start=start)
        if stride < length and count > 1:
            raise InputError(f"stride: found {stride}; expected at least the length of a block, {length}")
        return Layout("vector", (count, length, stride, start))

    @staticmethod
    def subarray(shape: Sequence[int], sizes: Sequence[int], starts: Sequence[int]) -> Layout:
        """Select the box of `sizes` that begins at `starts` in an array of `shape`."""
        if not 0 < len(shape) == len(sizes) == len(starts):
            raise InputError(
                f"subarray: found {len(shape)} dimensions, {len(sizes)} sizes and {len(starts)} starts; expected as many of each"
            )
        for whole, size, start in zip(shape, sizes, starts):
            _whole(shape=whole, size=size, start=start)
            if start + size > whole:
                raise InputError(f"subarray: found {size} elements from {start}; expected them inside {whole}")
        return Layout("subarray", (tuple(shape), tuple(sizes), tuple(starts)))

    @staticmethod
    def indexed(lengths: Sequence[int], starts: Sequence[int]) -> Layout:
        """Select blocks of the given lengths at the given positions, in this order."""
        if len(lengths) != len(starts):
            raise InputError(f"indexed: found {len(lengths)} lengths and {len(starts)} starts; expected as many of each")
        for length, start in zip(lengths, starts):
            _whole(length=length, start=start)
        return Layout("indexed", (tuple(int(n) for n in lengths), tuple(int(n) for n in starts)))

    @staticmethod
    def struct(parts: Sequence[tuple[int, Any, Layout]]) -> Layout:
        """Select elements of several types in one buffer. Each part is (byte offset, type, layout); its positions count from the offset."""
        made = []
        for offset, dtype, layout in parts:
            _whole(offset=offset)
            if layout.kind == "struct":
                raise InputError("struct: found a struct inside; expected layouts of elements")
            made.append((int(offset), np.dtype(dtype).str, layout))
        return Layout("struct", tuple(made))

    @cached_property
    def count(self) -> int:
        """The number of elements that the layout selects; bytes for a struct."""
        if self.kind == "vector":
            return int(self.numbers[0] * self.numbers[1])
        if self.kind == "subarray":
            return math.prod(self.numbers[1])
        if self.kind == "indexed":
            return sum(self.numbers[0])
        return sum(layout.count * np.dtype(dtype).itemsize for _, dtype, layout in self.numbers)

    @cached_property
    def extent(self) -> int:
        """The number of elements that the array must have at least; bytes for a struct."""
        if self.count == 0:
            return 0
        if self.kind == "vector":
            count, length, stride, start = self.numbers
            return int(start + (count - 1) * stride + length)
        if self.kind == "subarray":
            return math.prod(self.numbers[0])
        if self.kind == "indexed":
            return max(start + length for length, start in zip(*self.numbers) if length)
        return max(offset + layout.extent * np.dtype(dtype).itemsize for offset, dtype, layout in self.numbers if layout.count)

    def nbytes(self, dtype: Any) -> int:
        """Return the length of the packed message in bytes, for an array of `dtype`."""
        return self.count if self.kind == "struct" else self.count * int(np.dtype(dtype).itemsize)

    def pack(self, array: Array, out: Array | None = None) -> Array:
        """Return the selected elements of `array` as a contiguous array (bytes for a struct), written into `out` if it is given."""
        flat = self._flat(array)
        if out is None:
            out = np.empty(self.count, flat.dtype)
        elif out.size < self.count or out.dtype != flat.dtype:
            raise InputError(f"pack: found room for {out.size} of {out.dtype}; expected {self.count} of {flat.dtype}")
        if self.kind in ("vector", "subarray"):
            view = self._view(flat)
            out[: self.count].reshape(view.shape)[...] = view
        else:
            np.take(flat, self._positions, out=out[: self.count], mode="clip")
        return out

    def unpack(self, packed: Array, array: Array) -> None:
        """Write the contiguous elements of `packed` to the selected positions of `array`."""
        flat = self._flat(array)
        if packed.size < self.count:
            raise InputError(f"unpack: found {packed.size} elements; expected {self.count}")
        if self.kind in ("vector", "subarray"):
            view = self._view(flat)
            view[...] = packed[: self.count].reshape(view.shape)
        else:
            flat[self._positions] = packed[: self.count]

    def _flat(self, array: Array) -> Array:
        if not array.flags.c_contiguous:
            raise InputError("layout: found an array that is not C-contiguous; expected the whole array that the layout describes")
        flat = array.reshape(-1)
        if self.kind == "struct":
            flat = flat.view(np.uint8)
        if flat.size < self.extent:
            raise InputError(f"layout: found an array of {flat.size} elements; expected at least {self.extent}")
        return flat

    def _view(self, flat: Array) -> Array:
        if self.kind == "subarray":
            shape, sizes, starts = self.numbers
            box: Array = flat[: math.prod(shape)].reshape(shape)[tuple(slice(a, a + n) for a, n in zip(starts, sizes))]
            return box
        count, length, stride, start = self.numbers
        step = flat.strides[0]
        return np.lib.stride_tricks.as_strided(flat[start:], (count, length), (stride * step, step))

    @cached_property
    def _positions(self) -> Array:
        if self.kind == "indexed":
            runs = [np.arange(start, start + length) for length, start in zip(*self.numbers)]
            return np.concatenate(runs) if runs else np.zeros(0, np.intp)
        if self.kind == "struct":
            parts = [np.zeros(0, np.intp)]
            for offset, dtype, layout in self.numbers:
                size = np.dtype(dtype).itemsize
                parts.append((offset + layout._positions[:, None] * size + np.arange(size)).reshape(-1))
            return np.concatenate(parts)
        return self._view(np.arange(self.extent)).reshape(-1)


def _whole(**numbers: int) -> None:
    for name, number in numbers.items():
        if int(number) != number or number < 0:
            raise InputError(f"{name}: found {number!r}; expected a whole number from 0")
