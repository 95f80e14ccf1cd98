"""What the expressions of a kernel stand for: integers of loop variables, lazy values, shapes, types and functions."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any

import numpy as np

from ..program.affine import Affine, number
from ..program.expressions import Expr, Idx, Num, Op, compare, op, where
from . import calls
from .scope import NAMED, DType, Function, Unknown, said
from .source import CONSTANTS
from .subscripts import Subscripts
from .values import Value, constant, elementwise, of_index, reals, same, scalar_of

BINARY = {ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul", ast.Div: "div", ast.Pow: "pow"}
COMPARE = {ast.Lt: "lt", ast.LtE: "le", ast.Gt: "gt", ast.GtE: "ge", ast.Eq: "eq", ast.NotEq: "ne"}


class Expressions(Subscripts):
    """Evaluates expressions."""

    def truth(self, node: ast.expr) -> Expr:
        """A scalar condition."""
        found = self.evaluate(node)
        if isinstance(found, bool):
            return Num(float(found), "b")
        if isinstance(found, Value) and found.ndim == 0 and found.truth:
            return found.scalar
        return self.refuse("expected a comparison of numbers", node)

    def value(self, node: ast.expr) -> Value:
        """An expression that has to be a number or an array."""
        found = self.evaluate(node)
        if isinstance(found, Affine):
            return of_index(found)
        if isinstance(found, Value):
            return found
        return self.refuse("expected a number or an array", node)

    def evaluate(self, node: ast.expr) -> Any:
        """What an expression stands for."""
        match node:
            case ast.Constant(value=bool()):
                return scalar_of(Num(float(node.value is True), "b"), "bool")
            case ast.Constant(value=int() as whole_number):
                return number(whole_number)
            case ast.Constant(value=float() as real_number):
                return constant(real_number)
            case ast.Constant(value=None):
                return None
            case ast.Constant(value=complex()):
                self.refuse("complex numbers are not supported", node)
            case ast.Name():
                return self._name(node)
            case ast.Tuple() | ast.List():
                return tuple(self.evaluate(one) for one in node.elts)
            case ast.UnaryOp():
                return self._unary(node)
            case ast.BinOp():
                return self._binary(node)
            case ast.Compare():
                return self._comparison(node)
            case ast.BoolOp():
                return self._logic(node)
            case ast.Subscript():
                return self._subscripted(node)
            case ast.Attribute():
                return self._attribute(node)
            case ast.Call():
                return self.call(node)
            case ast.IfExp():
                test = self.truth(node.test)
                if isinstance(test, Num):
                    return self.evaluate(node.body if test.value else node.orelse)
                chosen = elementwise(where, scalar_of(test, "bool"), reals(self.value(node.body)), reals(self.value(node.orelse)))
                assert chosen is not None
                return Value(chosen.shape, chosen.element, "float64")
        return self.refuse(f"{NAMED.get(type(node), type(node).__name__.lower())} is not supported", node)

    def _name(self, node: ast.Name) -> Any:
        scope = self.scope
        if node.id in scope.names:
            found = scope.names[node.id]
            if isinstance(found, Unknown):
                self.refuse(f"{found.reason}, so its value here is not known", node)
            if (id(scope), node.id) in self._stale_names:
                self.refuse(self._stale_names[id(scope), node.id], node)
            if isinstance(found, Value):
                self._fresh_read(found)
            return found
        if node.id in scope.source.constants:
            value = scope.source.constants[node.id]
            return number(value) if isinstance(value, int) else constant(value)
        if node.id in ("abs", "max", "min", "float", "int", "len", "sum", "range"):
            return Function(None, node.id)
        if node.id == self.source.name or node.id in self.calls:
            self.refuse(f"{node.id} calls itself; recursion is not supported", node)
        other = scope.source.find(node.id)
        if other is not None:
            return Function(other)
        return self.refuse(f'unknown name "{node.id}"', node)

    def _unary(self, node: ast.UnaryOp) -> Any:
        found = self.evaluate(node.operand)
        if isinstance(node.op, ast.UAdd):
            return found
        if isinstance(node.op, ast.USub):
            return (
                -found
                if isinstance(found, Affine)
                else self.negative(found)
                if isinstance(found, Value)
                else self.refuse("expected a number")
            )
        if isinstance(found, Value) and found.truth and isinstance(node.op, ast.Not | ast.Invert):
            return elementwise(lambda one: compare("not", one), found, dtype="bool")
        return self.refuse(f"{type(node.op).__name__} is not supported", node)

    def negative(self, value: Value) -> Value:
        """The value with the other sign."""
        found = elementwise(lambda one: op("neg", one), value)
        assert found is not None
        return found

    def _binary(self, node: ast.BinOp) -> Any:
        left, right = self.evaluate(node.left), self.evaluate(node.right)
        if isinstance(left, tuple) and isinstance(right, tuple) and isinstance(node.op, ast.Add):
            return left + right
        if isinstance(left, Affine) and isinstance(right, Affine):
            found = self._integers(node, left, right)
            if found is not None:
                return found
        a, b = (of_index(one) if isinstance(one, Affine) else one for one in (left, right))
        if not isinstance(a, Value) or not isinstance(b, Value):
            self.refuse("expected numbers or arrays", node)
        if isinstance(node.op, ast.MatMult):
            return calls.matmul(self, a, b)
        if isinstance(node.op, ast.BitAnd | ast.BitOr) and a.truth and b.truth:
            return self.together(lambda x, y: compare("and" if isinstance(node.op, ast.BitAnd) else "or", x, y), a, b, dtype="bool")
        if type(node.op) in (ast.Add, ast.Sub, ast.Mult, ast.FloorDiv, ast.Mod) and self._both_integers(left, right):
            name = {ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul", ast.FloorDiv: "floordiv", ast.Mod: "mod"}[type(node.op)]
            if not a.ndim and not b.ndim and name in ("add", "sub"):
                x, y = self.as_integer(left), self.as_integer(right)
                return x + y if name == "add" else x - y
            x_, y_ = (one if isinstance(one, Value) else scalar_of(Idx(one), "int64") for one in (left, right))
            return self.together(lambda x, y: Op(name, (x, y), "i"), x_, y_, dtype="int64")
        if type(node.op) not in BINARY:
            self.refuse(f"{type(node.op).__name__} of real numbers is not supported", node)
        return self.arithmetic(BINARY[type(node.op)], a, b)

    def _both_integers(self, left: Any, right: Any) -> bool:
        return all(isinstance(one, Affine) or (isinstance(one, Value) and one.integral) for one in (left, right))

    def _integers(self, node: ast.BinOp, left: Affine, right: Affine) -> Affine | None:
        kind = type(node.op)
        if kind is ast.Add:
            return left + right
        if kind is ast.Sub:
            return left - right
        if kind is ast.Mult and (left.fixed or right.fixed):
            return right * left.constant if left.fixed else left * right.constant
        if left.fixed and right.fixed:
            a, b = left.constant, right.constant
            if kind in (ast.FloorDiv, ast.Mod):
                if not b:
                    self.refuse("division by zero", node)
                return number(a // b if kind is ast.FloorDiv else a % b)
            if kind is ast.Pow and 0 <= b <= 64:
                return number(a**b)
        return None

    def arithmetic(self, name: str, a: Value, b: Value) -> Value:
        """An operation on real numbers."""
        return self.together(lambda x, y: op(name, x, y), a, b)

    def together(self, make: Callable[..., Expr], *values: Value, dtype: str | None = None) -> Value:
        """An operation on every element, broadcast, or an error about the shapes."""
        masks = [value.mask for value in values if value.mask is not None]
        if masks and any(value.ndim and (value.mask is None or not same(value.mask, masks[0])) for value in values):
            self.refuse("arrays that were indexed by different truth values do not go together")
        found = elementwise(make, *values, dtype=dtype)
        if found is None:
            self.refuse(f"the shapes {' and '.join(said(value.shape) for value in values)} do not go together")
        return found

    def _comparison(self, node: ast.Compare) -> Any:
        if len(node.ops) > 1:
            parts = [node.left, *node.comparators]
            made: Any = None
            for k, one in enumerate(node.ops):
                part = self._comparison(ast.copy_location(ast.Compare(parts[k], [one], [parts[k + 1]]), node))
                made = part if made is None else self.together(lambda x, y: compare("and", x, y), made, part, dtype="bool")
            return made
        kind = COMPARE.get(type(node.ops[0]))
        if kind is None:
            self.refuse(f"{type(node.ops[0]).__name__} is not supported", node)
        left, right = self.evaluate(node.left), self.evaluate(node.comparators[0])
        if isinstance(left, Affine) and isinstance(right, Affine):
            difference = left - right
            if difference.fixed:
                value = {"lt": difference.constant < 0, "le": difference.constant <= 0, "gt": difference.constant > 0,
                         "ge": difference.constant >= 0, "eq": difference.constant == 0, "ne": difference.constant != 0}[kind]  # fmt: skip
                return scalar_of(Num(float(value), "b"), "bool")
            return scalar_of(compare(kind, Idx(left), Idx(right)), "bool")
        if isinstance(left, tuple) or isinstance(right, tuple) or left is None or right is None:
            self.refuse("expected numbers or arrays in a comparison", node)
        a, b = (scalar_of(Idx(one), "int64") if isinstance(one, Affine) else one for one in (left, right))
        if not (isinstance(a, Value) and isinstance(b, Value)):
            self.refuse("expected numbers or arrays in a comparison", node)
        return self.together(lambda x, y: compare(kind, x, y), a, b, dtype="bool")

    def _logic(self, node: ast.BoolOp) -> Any:
        name = "and" if isinstance(node.op, ast.And) else "or"
        made: Expr | None = None
        for one in node.values:
            part = self.truth(one)
            if isinstance(part, Num):
                if bool(part.value) == (name == "or"):
                    return scalar_of(part, "bool")
                continue
            made = part if made is None else compare(name, made, part)
        return scalar_of(made if made is not None else Num(float(name == "and"), "b"), "bool")

    def _attribute(self, node: ast.Attribute) -> Any:
        library = isinstance(node.value, ast.Name) and node.value.id in {*self.scope.source.numpy, "math"} - set(self.scope.names)
        if library:
            if node.attr in CONSTANTS:
                return constant(CONSTANTS[node.attr])
            if node.attr == "newaxis":
                return None
            return DType(calls.TYPES[node.attr]) if node.attr in calls.TYPES else Function(None, node.attr)
        owner = self.evaluate(node.value)
        if not isinstance(owner, Value):
            self.refuse(f"attribute {node.attr} is not supported", node)
        match node.attr:
            case "shape":
                return owner.shape
            case "size":
                sizes = [one.constant for one in owner.shape if one.fixed]
                if len(sizes) == owner.ndim:
                    return number(int(np.prod(sizes, dtype=object)))
                return owner.shape[0] if owner.ndim == 1 else self.refuse("the size here depends on a loop", node)
            case "ndim":
                return number(owner.ndim)
            case "dtype":
                return DType(owner.dtype or "float64")
            case "T":
                return calls.transposed(owner)
        if node.attr in calls.METHODS:
            return Function(None, node.attr, owner)
        return self.refuse(f"attribute {node.attr} is not supported", node)
