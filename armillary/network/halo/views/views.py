"""Views: every interior, send and receive region of some fields, for each library that reads them, made once and kept.

    views = Views({"density": a, "pressure": p}, width=2)
    torch_views = views.for_("torch")
    torch_views.send["density", (0, -1)]            # the two columns that go to the left neighbour
    torch_views.receive["density", (0, 1)]          # where the right neighbour's columns arrive

A conversion between libraries costs a microsecond or more, and so does a slice; neither moves a byte. So they are made at the start, and
every one is checked: its address must be that of the field plus the offset of the region.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from armillary.arrays import device_of, kind_of, on_accelerator
from armillary.errors import InputError

from .libraries import adopted, as_library, itemsize, pointer, strides
from .sides import Offset, offsets, received, sent

Array = Any


@dataclass(frozen=True)
class LibraryViews:
    """The views of one library: whole fields and interiors by name, halos by (name, offset of the neighbour)."""

    whole: dict[str, Array]
    interior: dict[str, Array]
    send: dict[tuple[str, Offset], Array]
    receive: dict[tuple[str, Offset], Array]


class Views:
    """The views of some fields of one shape, type and device, each with a halo of `width` layers.

    `arrays` maps names to arrays of NumPy, PyTorch or CuPy, or to anything with `__dlpack__` or `__cuda_array_interface__`; a sequence is
    numbered. `depth` layers are exchanged, `width` unless it is given. `extra` gives for staggered fields how many values they have beyond
    the cells along each axis (0 or 1), and `cells` the cells along each axis; by default they are what the array has inside its halo.
    """

    def __init__(
        self, arrays: Mapping[str, Array] | Sequence[Array], width: int, *, depth: int | None = None,
        extra: Mapping[str, Sequence[int]] | None = None, cells: Sequence[int] | None = None,
    ) -> None:  # fmt: skip
        given = dict(arrays) if isinstance(arrays, Mapping) else {str(i): x for i, x in enumerate(arrays)}
        if not given:
            raise InputError("arrays: found none; expected one field at least")
        self.fields = {name: adopted(name, x) for name, x in given.items()}
        self.width = int(width)
        self.depth = self.width if depth is None else int(depth)
        first = next(iter(self.fields.values()))
        self.shape = tuple(int(n) for n in first.shape)
        axes = len(self.shape)
        self.extra = {name: tuple((extra or {}).get(name, (0,) * axes)) for name in self.fields}
        self._check(first)
        self.cells = tuple(n - 2 * self.width for n in self.shape) if cells is None else tuple(int(n) for n in cells)
        self._check_cells()
        self.kind = kind_of(first)
        self.on_device = on_accelerator(first)
        self._made: dict[str, LibraryViews] = {}
        #: Conversions made so far; it stands still once every library has its views.
        self.conversions = 0

    def for_(self, library: str) -> LibraryViews:
        """Return the views for `numpy`, `torch`, `cupy` or `numba`, made at the first call; every later call returns the same ones."""
        if library not in self._made:
            self._made[library] = self._make(library)
        return self._made[library]

    def _make(self, library: str) -> LibraryViews:
        whole, interior = {}, {}
        send: dict[tuple[str, Offset], Array] = {}
        receive: dict[tuple[str, Offset], Array] = {}
        for name, field in self.fields.items():
            x = field if library == self.kind or (library == "numba" and self.kind == "numpy") else as_library(field, library)
            self.conversions += x is not field
            whole[name], extra = x, self.extra[name]
            inside = tuple(slice(self.width, self.width + n + e) for n, e in zip(self.cells, extra))
            interior[name] = self._checked(name, x, inside)
            for offset in offsets(len(self.shape)):
                send[name, offset] = self._checked(name, x, sent(self.cells, extra, self.width, self.depth, offset))
                receive[name, offset] = self._checked(name, x, received(self.cells, extra, self.width, self.depth, offset))
        return LibraryViews(whole, interior, send, receive)

    def _checked(self, name: str, x: Array, region: tuple[slice, ...]) -> Array:
        view, field = x[region], self.fields[name]
        wanted = pointer(field) + sum(part.start * step for part, step in zip(region, strides(field)))
        if pointer(view) != wanted:
            raise InputError(f"found a copy at {pointer(view):#x}; expected a view at {wanted:#x}", where=f'field "{name}"')
        return view

    def _check(self, first: Array) -> None:
        if self.width < 1 or not 1 <= self.depth <= self.width:
            raise InputError(f"width: found {self.width} with a depth of {self.depth}; expected 1 or more, and a depth up to the width")
        try:
            device_of(*self.fields.values())
        except InputError as error:
            raise InputError(f"{error.message}; fields of one exchange lie on one device", where="arrays") from None
        spans = []
        for name, x in self.fields.items():
            where = f'field "{name}"'
            if tuple(x.shape) != self.shape or x.dtype != first.dtype:
                wanted = f"{first.dtype} of shape {list(self.shape)}"
                raise InputError(f"found {x.dtype} of shape {list(x.shape)}; expected {wanted}", where=where)
            dense: list[int] = []
            step = itemsize(x)
            for n in reversed(self.shape):
                dense.insert(0, step)
                step *= n
            if strides(x) != tuple(dense):
                raise InputError(f"found strides {list(strides(x))}; expected {dense}, because rows must be dense", where=where)
            if len(self.extra[name]) != len(self.shape) or not set(self.extra[name]) <= {0, 1}:
                raise InputError(f"found extra {list(self.extra[name])}; expected 0 or 1 for each axis", where=where)
            spans.append((pointer(x), pointer(x) + step, name))
        spans.sort()
        for (_, end, one), (start, _, other) in itertools.pairwise(spans):
            if start < end:
                raise InputError(f'found fields "{one}" and "{other}" in the same memory; expected memory of their own', where="arrays")

    def _check_cells(self) -> None:
        most = [max(extra[axis] for extra in self.extra.values()) for axis in range(len(self.shape))]
        for axis, (n, size, e) in enumerate(zip(self.cells, self.shape, most)):
            if n < 1 or n + e + 2 * self.width > size:
                raise InputError(
                    f"cells: found {n} along axis {axis}; expected 1 to {size - 2 * self.width - e} in a field of {size} with its halos"
                )
            if self.depth > n:
                raise InputError(f"width: found a halo of {self.depth} layers along axis {axis}; expected at most its {n} cells")
