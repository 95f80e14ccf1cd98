"""Interprets the function that makes a benchmark's data, over a small part of NumPy.

The file is somebody else's, so nothing of it is imported or run by Python: every statement is looked at here, only the listed functions are
called, arrays together stay below a limit of bytes, and loops below a limit of passes.
"""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

import numpy as np

from armillary.errors import InputError

from ..frontend.source import Source

MOST_BYTES = 2 << 30
MOST_PASSES = 1_000_000
BINARY: dict[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv, ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod, ast.MatMult: operator.matmul,
}  # fmt: skip
COMPARE: dict[type, Callable[[Any, Any], Any]] = {
    ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt, ast.GtE: operator.ge, ast.Eq: operator.eq, ast.NotEq: operator.ne,
}  # fmt: skip
PLAIN = {"ceil", "floor", "sqrt", "exp", "log", "sin", "cos", "abs", "transpose", "minimum", "maximum", "mod", "power"}
SHAPED = {"empty", "zeros", "ones", "full", "random"}
TYPES = {"float64": np.float64, "float32": np.float32, "int64": np.int64, "int32": np.int32, "uint32": np.uint32}


class _Rng:
    """A generator that a file may draw from."""

    def __init__(self, seed: int) -> None:
        self.generator = np.random.default_rng(seed)


class _Lambda:
    """A function of indices, for `fromfunction`."""

    def __init__(self, node: ast.Lambda) -> None:
        self.node = node


def initialise(source: Source, arguments: Mapping[str, Any], results: int) -> tuple[Any, ...]:
    """What the function returns for these sizes, as a tuple of `results` entries."""
    made = Interpreter(source).call(arguments)
    found = made if isinstance(made, tuple) else (made,)
    if len(found) != results:
        raise InputError(f"{source.name} returns {len(found)} values; expected {results}", where=source.file)
    return found


class Interpreter:
    """Runs one function."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.names: dict[str, Any] = dict(source.constants)
        self.bytes = 0
        self.passes = 0

    def refuse(self, node: ast.AST, message: str) -> NoReturn:
        """Raises an error at a node."""
        raise InputError(message, where=self.source.where(node))

    def call(self, arguments: Mapping[str, Any]) -> Any:
        """Runs the function."""
        tree = self.source.tree
        names = [one.arg for one in tree.args.args]
        defaults = dict(zip(names[len(names) - len(tree.args.defaults) :], tree.args.defaults))
        for name in names:
            if name in arguments:
                self.names[name] = arguments[name]
            elif name in defaults:
                self.names[name] = self.value(defaults[name])
            else:
                self.refuse(tree, f"argument {name} of {self.source.name} has no value")
        try:
            return self.body(tree.body)
        except (ArithmeticError, ValueError, TypeError, IndexError, MemoryError, RecursionError) as error:
            raise InputError(f"{self.source.name} cannot be run ({type(error).__name__}: {error})", where=self.source.file) from None

    def body(self, statements: list[ast.stmt]) -> Any:
        """Runs statements; returns what a return gives."""
        for statement in statements:
            match statement:
                case ast.Return():
                    return None if statement.value is None else self.value(statement.value)
                case ast.Assign():
                    made = self.value(statement.value)
                    for target in statement.targets:
                        self.bind(target, made)
                case ast.AugAssign():
                    kind = BINARY.get(type(statement.op)) or self.refuse(statement, "this operator is not supported")
                    load = ast.copy_location(ast.parse(ast.unparse(statement.target), mode="eval").body, statement)
                    self.bind(statement.target, kind(self.value(load), self.value(statement.value)))
                case ast.For():
                    self.loop(statement)
                case ast.If():
                    found = self.body(statement.body if self.value(statement.test) else statement.orelse)
                    if found is not None:
                        return found
                case ast.ImportFrom() if statement.module == "numpy.random":
                    pass
                case ast.Expr(value=ast.Constant()):
                    pass
                case _:
                    self.refuse(statement, f"{type(statement).__name__} is not supported in a function that makes data")
        return None

    def loop(self, node: ast.For) -> None:
        """Runs a loop over range."""
        if not isinstance(node.target, ast.Name) or not (isinstance(node.iter, ast.Call) and ast.unparse(node.iter.func) == "range"):
            self.refuse(node, "expected a loop over range")
        for value in range(*(int(self.value(one)) for one in node.iter.args)):
            self.passes += 1
            if self.passes > MOST_PASSES:
                self.refuse(node, f"found more than {MOST_PASSES} passes of loops")
            self.names[node.target.id] = value
            self.body(node.body)

    def bind(self, target: ast.expr, value: Any) -> None:
        """Assigns to a name, several names, or elements."""
        if isinstance(target, ast.Name):
            self.names[target.id] = value
        elif isinstance(target, ast.Tuple):
            for one, item in zip(target.elts, value, strict=True):
                self.bind(one, item)
        elif isinstance(target, ast.Subscript):
            owner = self.value(target.value)
            if not isinstance(owner, np.ndarray):
                self.refuse(target, "expected an array")
            owner[self.index(target.slice)] = value
        else:
            self.refuse(target, "this assignment is not supported")

    def index(self, node: ast.expr) -> Any:
        """An index of an array."""
        if isinstance(node, ast.Tuple):
            return tuple(self.index(one) for one in node.elts)
        if isinstance(node, ast.Slice):
            return slice(*(None if one is None else self.value(one) for one in (node.lower, node.upper, node.step)))
        return self.value(node)

    def value(self, node: ast.expr) -> Any:
        """The value of an expression."""
        match node:
            case ast.Constant(value=int() | float() | None):
                return node.value
            case ast.Name():
                if node.id not in self.names:
                    self.refuse(node, f'unknown name "{node.id}"')
                return self.names[node.id]
            case ast.Tuple() | ast.List():
                return tuple(self.value(one) for one in node.elts)
            case ast.BinOp():
                return self.binary(node)
            case ast.UnaryOp(op=ast.USub()):
                return -self.value(node.operand)
            case ast.Compare() if len(node.ops) == 1 and type(node.ops[0]) in COMPARE:
                return COMPARE[type(node.ops[0])](self.value(node.left), self.value(node.comparators[0]))
            case ast.Subscript():
                return self.value(node.value)[self.index(node.slice)]
            case ast.Lambda():
                return _Lambda(node)
            case ast.Attribute():
                return self.attribute(node)
            case ast.Call():
                return self.counted(self.called(node), node)
        return self.refuse(node, f"{type(node).__name__} is not supported in a function that makes data")

    def binary(self, node: ast.BinOp) -> Any:
        """An operation on two values."""
        a, b = self.value(node.left), self.value(node.right)
        if isinstance(node.op, ast.Pow):
            if isinstance(a, int) and isinstance(b, int) and (abs(a) > 1 << 32 or abs(b) > 64):
                self.refuse(node, "found a power that is too large")
            return a**b
        if type(node.op) not in BINARY:
            self.refuse(node, f"{type(node.op).__name__} is not supported")
        if isinstance(a, tuple | str) or isinstance(b, tuple | str):
            self.refuse(node, "expected numbers or arrays")
        return self.counted(BINARY[type(node.op)](a, b), node)

    def counted(self, value: Any, node: ast.AST) -> Any:
        """Notes the bytes of a new array."""
        if isinstance(value, np.ndarray):
            self.bytes += value.nbytes
            if self.bytes > MOST_BYTES:
                self.refuse(node, f"found arrays of more than {MOST_BYTES} bytes")
        return value

    def attribute(self, node: ast.Attribute) -> Any:
        """A type of NumPy, or a property of an array."""
        if isinstance(node.value, ast.Name) and node.value.id in self.source.numpy:
            if node.attr in TYPES:
                return TYPES[node.attr]
            if node.attr == "pi":
                return math.pi
        elif node.attr in ("shape", "dtype", "T", "size"):
            owner = self.value(node.value)
            if isinstance(owner, np.ndarray):
                return getattr(owner, node.attr)
        return self.refuse(node, f"{ast.unparse(node)[:60]} is not supported")

    def called(self, node: ast.Call) -> Any:
        """A call of one of the functions that are known."""
        named = {one.arg: self.value(one.value) for one in node.keywords if one.arg}
        arguments = [self.value(one) for one in node.args]
        if isinstance(node.func, ast.Name):
            return self.plain(node, node.func.id, arguments, named)
        if not isinstance(node.func, ast.Attribute):
            self.refuse(node, "this call is not supported")
        name = node.func.attr
        if ast.unparse(node.func.value) in {*self.source.numpy, "math"}:
            return self.numpy(node, name, arguments, named)
        if ast.unparse(node.func.value) in {f"{one}.random" for one in self.source.numpy} and name == "default_rng":
            return _Rng(int(arguments[0]) if arguments else 0)
        owner = self.value(node.func.value)
        if isinstance(owner, _Rng) and name in ("random", "standard_normal", "rand"):
            shape = self.shape(node, arguments[0] if arguments else ())
            return getattr(owner.generator, "standard_normal" if name == "standard_normal" else "random")(
                shape, named.get("dtype", np.float64)
            )
        if isinstance(owner, np.ndarray) and name in ("astype", "copy"):
            return owner.astype(arguments[0]) if name == "astype" else owner.copy()
        return self.refuse(node, f"{ast.unparse(node.func)[:60]} is not supported")

    def plain(self, node: ast.Call, name: str, arguments: list[Any], named: dict[str, Any]) -> Any:
        """A function of Python, or a type that the caller chose."""
        if name == "default_rng":
            return _Rng(int(arguments[0]) if arguments else 0)
        if name in ("int", "float", "len", "abs", "max", "min") and not named:
            known: dict[str, Callable[..., Any]] = {"int": int, "float": float, "len": len, "abs": abs, "max": max, "min": min}
            return known[name](*arguments)
        found = self.names.get(name)
        if isinstance(found, type) and found in TYPES.values():
            return found(*arguments)
        return self.refuse(node, f"{name} is not supported")

    def shape(self, node: ast.AST, given: Any) -> tuple[int, ...]:
        """A shape whose array stays within the limit."""
        shape = tuple(int(one) for one in (given if isinstance(given, tuple) else (given,)))
        if min(shape, default=1) < 0 or 8 * math.prod(shape) > MOST_BYTES:
            self.refuse(node, f"found the shape {shape}; expected at most {MOST_BYTES} bytes")
        return shape

    def numpy(self, node: ast.Call, name: str, arguments: list[Any], named: dict[str, Any]) -> Any:
        """A function of NumPy."""
        dtype = named.get("dtype", np.float64)
        if name in TYPES:
            return TYPES[name](*arguments)
        if name in ("empty", "zeros", "ndarray"):
            if len(arguments) > 1:
                dtype = arguments[1]
            return np.zeros(self.shape(node, arguments[0]), dtype)
        if name == "ones":
            return np.ones(self.shape(node, arguments[0]), dtype)
        if name == "full":
            return np.full(self.shape(node, arguments[0]), arguments[1], dtype)
        if name == "eye":
            return np.eye(*self.shape(node, (arguments[0], arguments[0])), dtype=dtype)
        if name in ("empty_like", "zeros_like", "ones_like", "copy", "array") and isinstance(arguments[0], np.ndarray):
            return np.array(arguments[0]) if name in ("copy", "array") else np.full_like(arguments[0], float(name == "ones_like"))
        if name == "fromfunction" and isinstance(arguments[0], _Lambda):
            return self.from_function(node, arguments[0].node, self.shape(node, arguments[1]), dtype)
        if name == "arange":
            return np.arange(self.shape(node, arguments[0])[0])
        if name == "linspace":
            return np.linspace(
                arguments[0], arguments[1], self.shape(node, arguments[2] if len(arguments) > 2 else named.get("num", 50))[0]
            )
        if name in PLAIN:
            return getattr(np, name)(*arguments)
        return self.refuse(node, f"numpy.{name} is not supported in a function that makes data")

    def from_function(self, node: ast.AST, function: ast.Lambda, shape: tuple[int, ...], dtype: Any) -> Any:
        """An array from a function of its indices."""
        names = [one.arg for one in function.args.args]
        if len(names) != len(shape):
            self.refuse(node, f"found a function of {len(names)} indices; expected {len(shape)}")
        before = dict(self.names)
        self.names.update(zip(names, np.indices(shape, dtype=dtype)))
        made = self.value(function.body)
        self.names = before
        return np.broadcast_to(np.asarray(made, dtype), shape).copy()
