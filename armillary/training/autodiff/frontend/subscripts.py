"""Indices and slices: views of the same array, scalars, or what integers and truth values pick.

An index that can be proved to be inside its array costs nothing; any other is checked when the program runs.
"""

from __future__ import annotations

import ast
from typing import Any

from ..program.affine import Affine, Range, number, variable
from ..program.expressions import Expr, Load
from ..program.regions import Check
from .building import Building
from .scope import said
from .values import Index, Value, of_view


class Subscripts(Building):
    """Evaluates subscripts."""

    def _subscripted(self, node: ast.Subscript) -> Any:
        owner = self.evaluate(node.value)
        if isinstance(owner, tuple):
            place = self.integer(node.slice)
            if not place.fixed or not -len(owner) <= place.constant < len(owner):
                self.refuse(f"found the place {place}; expected one from 0 to {len(owner) - 1}", node)
            return owner[place.constant]
        if not isinstance(owner, Value):
            self.refuse("expected an array", node)
        return self.subscript(owner, node, store=False)

    def subscript(self, owner: Value, node: ast.Subscript, *, store: bool) -> Value:
        """`owner[...]`: a view, a scalar, or what integers or truth values pick."""
        items = list(node.slice.elts) if isinstance(node.slice, ast.Tuple) else [node.slice]
        found: list[Any] = []
        for item in items:
            if isinstance(item, ast.Slice):
                found.append(item)
            elif isinstance(item, ast.Constant) and item.value is Ellipsis:
                found.append(Ellipsis)
            else:
                found.append(self.evaluate(item))
        used = sum(1 for one in found if one is not None and one is not Ellipsis)
        if sum(one is Ellipsis for one in found) > 1 or used > owner.ndim:
            self.refuse(f"found {used} indices; expected at most {owner.ndim}", node)
        if len(found) == 1 and isinstance(found[0], Value) and found[0].truth:
            if found[0].shape != owner.shape:
                self.refuse(f"found truth values of the shape {said(found[0].shape)}; expected {said(owner.shape)}", node)
            return Value(owner.shape, owner.element, owner.dtype, owner.view if store else None, found[0])
        if Ellipsis in [one for one in found if one is Ellipsis]:
            k = next(k for k, one in enumerate(found) if one is Ellipsis)
            found[k : k + 1] = [ast.Slice() for _ in range(owner.ndim - used)]
        else:
            found += [ast.Slice() for _ in range(owner.ndim - used)]
        return self._picked(owner, found, node)

    def _picked(self, owner: Value, items: list[Any], node: ast.Subscript) -> Value:
        shape: list[Affine] = []
        index: list[Affine] = []  # For each dimension of the owner, over the places of the result.
        gathered: list[tuple[Value, int]] = []
        dimension = 0
        for item in items:
            place = variable(f"${len(shape)}")
            if item is None:
                shape.append(number(1))
                continue
            size = owner.shape[dimension]
            if isinstance(item, ast.Slice):
                length, at = self._slice(item, size, place)
                shape.append(length)
                index.append(at)
            elif isinstance(item, Value) and item.integral and item.ndim:
                if gathered or item.ndim != 1:
                    self.refuse("expected at most one index that is an array of integers, of one dimension", node)
                gathered.append((item, dimension))
                load = item.element((place,))
                if not isinstance(load, Load):
                    load = self.materialise(item, "picked", dtype="int64").element((place,))
                assert isinstance(load, Load)
                shape.append(item.shape[0])
                index.append(Affine(((load, 1),)))
                name = self.fresh("c")
                names = {str(place): variable(name)}
                self._check(index[-1].with_names(names), size, (Range(name, number(0), item.shape[0]),))
            else:
                index.append(self._element(self.as_integer(item, node), size))
            dimension += 1
        if owner.view is not None:
            made = of_view(owner.view.array, owner.dtype or "float64", shape, owner.view.at(tuple(index)))
        else:
            found = tuple(index)

            def element(places: Index) -> Expr:
                names = {f"${k}": one for k, one in enumerate(places)}
                return owner.element(tuple(one.with_names(names) for one in found))

            made = Value(tuple(shape), element, owner.dtype)
        if gathered or not shape:  # A copy in NumPy, not a view.
            return Value(
                made.shape, made.element, made.dtype, made.view if isinstance(node.ctx, ast.Store) or not shape else None, owner.mask
            )
        return made

    def _element(self, at: Affine, size: Affine) -> Affine:
        if at.fixed and at.constant < 0:
            at = at + size
        if self.proved(at) and self.proved(size - 1 - at):
            return at
        if self.proved(-at - 1) and self.proved(at + size):
            return at + size
        if at.fixed and size.fixed:
            self.refuse(
                f"found the index {at.constant if at.constant >= 0 else at.constant - size.constant}; the array has {size} elements there"
            )
        self._check(at, size, ())
        return at

    def _check(self, at: Affine, size: Affine, ranges: tuple[Range, ...], *, ends: bool = False) -> None:
        if not size.fixed:
            if not (self.proved(at, ranges) and self.proved(size - (0 if ends else 1) - at, ranges)):
                self.refuse("an index here may leave the array, and its size depends on a loop")
            return
        self.emit(Check(self.line, ranges, at, size.constant, ends))

    def _slice(self, item: ast.Slice, size: Affine, place: Affine) -> tuple[Affine, Affine]:
        """The length of a slice, and the index that a place in it stands for."""
        step = number(1) if item.step is None else self.integer(item.step)
        if not step.fixed or not step.constant:
            self.refuse("expected a step that is a number and not 0")
        if step.constant < 0:
            if item.lower is not None or item.upper is not None or step.constant != -1:
                if not size.fixed:
                    self.refuse("a slice with a negative step needs a fixed size")
                ends = [None if one is None else self.integer(one) for one in (item.lower, item.upper)]
                if any(one is not None and not one.fixed for one in ends):
                    self.refuse("a slice with a negative step needs fixed ends")
                first, last = (None if one is None else one.constant for one in ends)
                picked = range(size.constant)[first : last : step.constant]
                return number(len(picked)), place * step.constant + (picked[0] if len(picked) else 0)
            return size, size - 1 - place
        low = number(0) if item.lower is None else self._end(self.integer(item.lower), size)
        high = size if item.upper is None else self._end(self.integer(item.upper), size)
        length = high - low
        if length.fixed and length.constant < 0:
            high, length = low, number(0)
        if step.constant > 1:
            if not length.fixed:
                self.refuse("a slice with a step needs a fixed length")
            length = number(-(-length.constant // step.constant))
        return length, place * step.constant + low

    def _end(self, at: Affine, size: Affine) -> Affine:
        if at.fixed and size.fixed:
            picked = at.constant + size.constant if at.constant < 0 else at.constant
            return number(min(max(picked, 0), size.constant))
        if at.fixed and at.constant < 0:
            at = at + size
        if self.proved(-at - 1) and self.proved(at + size):
            at = at + size
        if not (self.proved(at) and self.proved(size - at)):
            if not size.fixed:
                self.refuse("a slice here may leave the array, and its size depends on a loop")
            self._check(at, size, (), ends=True)
        return at
