"""Statement by statement, from the syntax tree of a kernel to a program of regions.

Sizes are known: a program is lowered for the shapes of its arguments, and integer arguments are constants. Every array statement becomes
one nest of loops over scalar assignments; products of whole matrices stay calls of BLAS. A name that a loop or a branch assigns again keeps
one place in memory; any other assignment of a name makes a new array, so that as little as possible is overwritten.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from armillary.errors import InputError

from ..program.affine import Affine, Range, number, variable
from ..program.expressions import Idx, Num, loads, where
from ..program.fusion import fuse
from ..program.regions import Array, Branch, Loop, Program, While, written
from . import calls
from .expressions import BINARY, Expressions
from .liveness import assigned_in, assigned_names, live_after
from .scope import NAMED, Again, DType, Function, Scope, Unknown, said
from .source import Source
from .values import Value, elementwise, of_index, reals, same, scalar_of, whole

#: Functions inside functions, at most.
MOST_DEPTH = 20


def lower(source: Source, arguments: Mapping[str, Any], output: str | None = None) -> Program:
    """The program of a function for these arguments, of which only types, shapes and integers count.

    `output` names the argument whose final content is the result; by default it is what the function returns.
    """
    promoted: set[str] = set()
    for _ in range(50):
        try:
            return Lowering(source, promoted).program(arguments, output)
        except Again as again:
            promoted.add(str(again))
    raise InputError("the types of the kernel's names cannot be told", where=source.file)


class Lowering(Expressions):
    """Lowers the statements of a function."""

    def program(self, arguments: Mapping[str, Any], output: str | None) -> Program:
        """Lowers the whole function."""
        tree = self.source.tree
        self.scope.live = live_after(tree)
        names = self._parameters(tree)
        missing = [name for name in names if name not in arguments]
        if missing:
            raise InputError(f"argument {missing[0]} of {self.source.name} is missing", where=self.source.file)
        given: list[str] = []
        for name in names:
            self.scope.names[name] = self._argument(name, arguments[name], given)
        result = self._run(tree.body)
        returned = self._returned(result)
        if output is not None:
            if output not in names or not isinstance(self.scope.names.get(output), Value) or output not in self.arrays:
                raise InputError(f'found output "{output}"; expected an array argument of {self.source.name}', where=self.source.file)
            wanted = output
        elif returned:
            wanted = returned[0]
        else:
            raise InputError(f"{self.source.name} returns nothing; say which argument is the output", where=self.source.file)
        fuse(self.root)
        made = Program(self.source.name, self.arrays, given, self.root, wanted, tuple(returned))
        made.renumber()
        return made

    def _parameters(self, tree: ast.FunctionDef) -> list[str]:
        spec = tree.args
        if spec.vararg or spec.kwarg or spec.kwonlyargs or spec.posonlyargs:
            self.refuse("expected plain parameters, without * or **", tree)
        return [one.arg for one in spec.args]

    def _argument(self, name: str, value: Any, given: list[str]) -> Any:
        where = self.source.file
        if isinstance(value, bool | np.bool_):
            return scalar_of(Num(float(value), "b"), "bool")
        if isinstance(value, int | np.integer):
            return number(int(value))
        if isinstance(value, float | np.floating):
            self.arrays[name] = Array(name, (), str(np.asarray(value).dtype), True)
            given.append(name)
            return whole(name, self.arrays[name].dtype, ())
        if not isinstance(value, np.ndarray):
            raise InputError(f"argument {name}: found {type(value).__name__}; expected a NumPy array or a number", where=where)
        if value.dtype.kind not in "fiub" or value.dtype.itemsize > 8 or (value.dtype.kind == "f" and value.dtype.itemsize < 4):
            raise InputError(f"argument {name}: found an array of {value.dtype}; expected float32, float64 or integers", where=where)
        self.arrays[name] = Array(name, value.shape, str(value.dtype), True)
        given.append(name)
        return whole(name, str(value.dtype), [number(size) for size in value.shape])

    def _returned(self, result: Any) -> list[str]:
        found = []
        for one in result if isinstance(result, tuple) else () if result is None else (result,):
            if isinstance(one, Affine):
                one = of_index(one)
            if not isinstance(one, Value) or one.integral or one.truth:
                continue
            self._fresh_read(one)
            found.append(self._storage(one, "result"))
        return found

    def _storage(self, value: Value, hint: str) -> str:
        """The array that holds exactly this value; a copy where there is none."""
        if value.view is not None and value.view.index == tuple(variable(f"${k}") for k in range(value.ndim)):
            array = self.arrays[value.view.array]
            if value.shape == tuple(number(size) for size in array.shape):
                return array.name
        copied = self.materialise(value, hint)
        assert copied.view is not None
        return copied.view.array

    def _run(self, body: Sequence[ast.stmt]) -> Any:
        """Lowers the statements of a function; returns what it returns."""
        for place, statement in enumerate(body):
            self.node = statement
            if isinstance(statement, ast.Return):
                if place != len(body) - 1:
                    self.refuse("expected nothing after return")
                return None if statement.value is None else self._result(statement.value)
            self.statement(statement)
        return None

    def _result(self, node: ast.expr) -> Any:
        found = self.evaluate(node)
        if isinstance(found, tuple):
            return tuple(self.held(one) if isinstance(one, Value) else one for one in found)
        return self.held(found) if isinstance(found, Value) else found

    def statement(self, node: ast.stmt) -> None:
        """Lowers one statement."""
        self.node = node
        match node:
            case ast.Assign():
                self._assign(node)
            case ast.AugAssign():
                self._augmented(node)
            case ast.AnnAssign() if node.value is not None:
                self._bind_target(node.target, self.evaluate(node.value))
            case ast.For():
                self._for(node)
            case ast.While():
                self._while(node)
            case ast.If():
                self._if(node)
            case ast.Expr(value=ast.Constant()) | ast.Pass():
                pass
            case ast.Expr(value=ast.Call()):
                self.evaluate(node.value)
            case ast.Return():
                self.refuse("return inside a loop or a branch is not supported")
            case _:
                self.refuse(f"{NAMED.get(type(node), type(node).__name__.lower())} is not supported")

    def _assign(self, node: ast.Assign) -> None:
        value = self.evaluate(node.value)
        several = len(node.targets) > 1 or isinstance(node.targets[0], ast.Tuple | ast.List)
        if several:
            if isinstance(value, tuple):
                value = tuple(self._copied(one) for one in value)
            elif isinstance(value, Value):
                value = self._copied(value)
        for target in node.targets:
            self._bind_target(target, value)

    def _copied(self, value: Any) -> Any:
        """A value that assignments to its arrays do not change."""
        if not isinstance(value, Value) or not loads(value.element(tuple(variable(f"${k}") for k in range(value.ndim)))):
            return value
        if value.ndim and value.view is not None:
            return value
        return self.materialise(value, "t")

    def _bind_target(self, target: ast.expr, value: Any) -> None:
        if isinstance(target, ast.Tuple | ast.List):
            if isinstance(value, Value) and value.ndim == 1 and value.shape[0].fixed:
                value = tuple(self._item(value, k) for k in range(value.shape[0].constant))
            if not isinstance(value, tuple) or len(value) != len(target.elts):
                self.refuse(f"expected {len(target.elts)} values to unpack")
            for one, item in zip(target.elts, value):
                self._bind_target(one, item)
        elif isinstance(target, ast.Name):
            self._bind(target.id, value)
        elif isinstance(target, ast.Subscript):
            self._store(target, value)
        else:
            self.refuse(f"assignment to {NAMED.get(type(target), type(target).__name__.lower())} is not supported", target)

    def _item(self, value: Value, place: int) -> Value:
        return scalar_of(value.element((number(place),)), value.dtype)

    def _bind(self, name: str, value: Any) -> None:
        """`name = value`."""
        scope = self.scope
        self._stale_names.pop((id(scope), name), None)
        if name in scope.kept:
            self._bind_kept(name, value)
            return
        if isinstance(value, Value):
            if name in self._promoted or (value.ndim == 0 and loads(value.scalar)) or value.view is None:
                constant_ = value.ndim == 0 and not loads(value.scalar)
                if value.mask is not None:
                    self.refuse("an array that was indexed by truth values can only be assigned to the same places")
                value = value if constant_ else self.materialise(value, name)
            elif value.view is not None:
                self._fresh_read(value)
        scope.names[name] = value

    def _bind_kept(self, name: str, value: Any) -> None:
        if isinstance(value, Affine):
            value = of_index(value) if name in self._promoted else scalar_of(Idx(value), "int64")
        if not isinstance(value, Value):
            self.refuse(f"{name} cannot change inside a loop or a branch")
        place = self.scope.kept[name]
        if place is None:
            made = self.materialise(value, name, dtype=self._dtype(name, value))
            assert made.view is not None
            self.scope.kept[name] = made.view.array
            self.scope.names[name] = made
            return
        array = self.arrays[place]
        shape = tuple(number(size) for size in array.shape)
        if value.shape != shape:
            self.refuse(f"{name} has the shape {said(value.shape)} here and {said(shape)} before; expected one shape in a loop or a branch")
        if array.kind == "i" and not value.integral:
            raise Again(name)
        if value.view is not None and value.ndim:
            if value.view.array == place:
                self.refuse(f"{name} becomes a view of itself in a loop or a branch; make a copy")
            if self.arrays[value.view.array].argument or self._holders(value.view.array):
                self.stand_ins[place] = value.view.array
        self._replaced(place, name)
        target = whole(place, array.dtype, shape)
        self.assign(target, value)
        self.scope.names[name] = target

    def _dtype(self, name: str, value: Value) -> str:
        if name in self._promoted and (value.integral or value.dtype is None):
            return "float64"
        return value.dtype or "float64"

    def _replaced(self, array: str, name: str) -> None:
        """Notes that views of an array are out of date, because the name that it belongs to got another value."""
        for other, value in self.scope.names.items():
            if other != name and isinstance(value, Value) and value.view is not None and value.view.array == array and value.ndim:
                self._stale_names[id(self.scope), other] = f"{other} is a view of {name}, which got another value in line {self.line}"

    def _augmented(self, node: ast.AugAssign) -> None:
        names = BINARY | {ast.MatMult: "matmul"}
        kind = names.get(type(node.op))
        if kind is None:
            integer = isinstance(node.target, ast.Name) and isinstance(self.scope.names.get(node.target.id), Affine)
            if not integer:
                self.refuse(f"{type(node.op).__name__} is not supported")
        if isinstance(node.target, ast.Name):
            bound = self._name(node.target)
            if not (isinstance(bound, Value) and bound.ndim):
                load = ast.copy_location(ast.Name(node.target.id, ast.Load()), node.target)
                self._bind(node.target.id, self.evaluate(ast.copy_location(ast.BinOp(load, node.op, node.value), node)))
                return
            target = bound
            if target.view is None:
                self.refuse(f"{node.target.id} cannot be changed in place")
        elif isinstance(node.target, ast.Subscript):
            target = self._target(node.target)
        else:
            self.refuse(f"assignment to {NAMED.get(type(node.target), 'this')} is not supported")
        value = self.value(node.value)
        self._in_place(target)
        if target.mask is not None or value.mask is not None:
            self._store_masked(target, self.arithmetic(kind or "", target, value))
        elif kind in ("add", "sub"):
            if target.view is not None and any(one.loads for one in target.view.index) and target.ndim:
                self.refuse(
                    "an array indexed by integers cannot be changed in place, because repeated indices would count once; use a loop"
                )
            self.assign(target, value if kind == "add" else self.negative(value), add=True)
        else:
            made = calls.matmul(self, target, value) if kind == "matmul" else self.arithmetic(kind or "", target, value)
            self.assign(target, made)

    def _target(self, node: ast.Subscript) -> Value:
        owner = self.evaluate(node.value)
        if not isinstance(owner, Value) or owner.view is None:
            self.refuse("expected an array to assign to", node)
        return self.subscript(owner, node, store=True)

    def _store(self, node: ast.Subscript, value: Any) -> None:
        target = self._target(node)
        if isinstance(value, Affine):
            value = of_index(value)
        if not isinstance(value, Value):
            self.refuse("expected a number or an array on the right")
        self._in_place(target)
        if target.mask is not None:
            self._store_masked(target, value)
            return
        if value.mask is not None:
            self.refuse("an array that was indexed by truth values can only be assigned to the same places")
        self.assign(target, value)

    def _store_masked(self, target: Value, value: Value) -> None:
        mask = target.mask
        if mask is None or (value.mask is not None and not same(mask, value.mask)) or (value.mask is None and value.ndim):
            self.refuse("an assignment by truth values needs a number, or values indexed by the same truth values, on the right")
        assert target.view is not None
        plain = Value(target.shape, target.element, target.dtype, target.view)
        chosen = elementwise(where, mask, reals(Value(value.shape, value.element, value.dtype)), plain, dtype=target.dtype)
        assert chosen is not None
        self.assign(plain, chosen)

    def _in_place(self, target: Value) -> None:
        assert target.view is not None
        array = target.view.array
        if array in self.stand_ins:
            self.refuse(f"the array here is a view of {self.stand_ins[array]} that a copy stands for; it cannot be changed in place")
        for copy, base in self.stand_ins.items():
            if base == array:
                self._stale_arrays[copy] = f"a view of {base} is used after {base} was changed in line {self.line}; make a copy of it first"

    def _keep(self, node: ast.For | ast.While | ast.If, assigned: frozenset[str]) -> dict[str, str | None]:
        """Gives the names that a loop or a branch assigns, and that are read afterwards, one place each; returns what was kept before."""
        scope, before = self.scope, dict(self.scope.kept)
        needed = scope.live.get(id(node), frozenset())
        if not isinstance(node, ast.If):
            needed = needed | scope.live.get(id(node.body), frozenset())
        for name in sorted(assigned & needed):
            bound = scope.names.get(name)
            if name in scope.kept:
                continue
            if bound is None or isinstance(bound, Unknown):
                if isinstance(node, ast.If):
                    scope.kept[name] = None
                continue
            if isinstance(bound, Value) and bound.ndim and not _rebinds(node, name):
                continue
            if isinstance(bound, Affine):
                value: Value = of_index(bound)
                if name not in self._promoted:
                    value = scalar_of(Idx(bound), "int64")
            elif isinstance(bound, Value):
                value = bound
                if self._private(name, value):
                    assert value.view is not None
                    scope.kept[name] = value.view.array
                    continue
            else:
                continue
            made = self.materialise(value, name, dtype=self._dtype(name, value))
            assert made.view is not None
            if value.ndim and value.view is not None:
                self.stand_ins[made.view.array] = value.view.array
            scope.kept[name] = made.view.array
            scope.names[name] = made
        return before

    def _private(self, name: str, value: Value) -> bool:
        """Whether the program made an array to which nothing but this name refers."""
        view = value.view
        if view is None or self.arrays[view.array].argument or view.array in self.stand_ins:
            return False
        if name in self._promoted and self.arrays[view.array].kind != "f":
            return False
        if view.index != tuple(variable(f"${k}") for k in range(value.ndim)):
            return False
        return self._holders(view.array) == 1

    def _holders(self, array: str) -> int:
        """How many names refer to an array."""
        held = [one for scope in self.scopes for value in scope.names.values() for one in (value if isinstance(value, tuple) else [value])]
        return sum(isinstance(one, Value) and one.view is not None and one.view.array == array for one in held)

    def _check_stand_ins(self, loop: Loop | While, before: Mapping[str, str]) -> None:
        """A copy that stands for a view from one pass to the next must not miss a change of its base."""
        changed = written(loop)
        for copy, base in self.stand_ins.items():
            if before.get(copy) != base and base in changed:
                self.refuse(f"a view of {base} is kept from one pass of the loop to the next, and {base} changes; make a copy of it")

    def _for(self, node: ast.For) -> None:
        if node.orelse or not isinstance(node.target, ast.Name):
            self.refuse("expected a plain loop: for name in range(...)")
        call = node.iter
        if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "range" and not call.keywords):
            self.refuse("expected a loop over range(...)")
        limits = [self.integer(one) for one in call.args]
        if not 1 <= len(limits) <= 3:
            self.refuse("expected one to three arguments of range")
        low, high = (number(0), limits[0]) if len(limits) == 1 else (limits[0], limits[1])
        step = limits[2] if len(limits) == 3 else number(1)
        if not step.fixed or not step.constant:
            self.refuse("expected a step of range that is a number and not 0")
        if low.fixed and high.fixed and len(range(low.constant, high.constant, step.constant)) == 0:
            return
        assigned = assigned_in(node.body)
        before = self._keep(node, assigned - {node.target.id})
        name = self.fresh(node.target.id)
        loop = Loop(self.line, Range(name, low, high, step.constant))
        stand_ins = dict(self.stand_ins)
        self.scope.names[node.target.id] = variable(name)
        with self.inside(loop.body, loop.range):
            for statement in node.body:
                self.statement(statement)
        self.node = node
        self.scope.kept = before
        self._check_stand_ins(loop, stand_ins)
        self._forget(name, node)
        if loop.body:
            self.emit(loop)

    def _forget(self, name: str, node: ast.For) -> None:
        """After a loop its variable, and integers and views made from it, have no value that can be told."""
        for bound_name, bound in self.scope.names.items():
            index = (
                bound.view.index if isinstance(bound, Value) and bound.view is not None else (bound,) if isinstance(bound, Affine) else ()
            )
            shape = bound.shape if isinstance(bound, Value) else ()
            if any(name in set(one.names()) for one in (*index, *shape)):
                self.scope.names[bound_name] = Unknown(f"{bound_name} depends on the variable of the loop in line {self.line}")

    def _while(self, node: ast.While) -> None:
        if node.orelse:
            self.refuse("while with else is not supported")
        before = self._keep(node, assigned_in(node.body))
        condition = self.array("test", (), "bool")
        trips = self.array("trips", (), "int64")
        assert condition.view is not None
        assert trips.view is not None
        loop = While(self.line, condition.view.array, trips.view.array)
        ranges, stand_ins = Range(f"while{loop.serial}", number(0), number(1 << 40)), dict(self.stand_ins)
        with self.inside(loop.head, ranges):
            self.assign(condition, scalar_of(self.truth(node.test), "bool"))
        with self.inside(loop.body, ranges):
            for statement in node.body:
                self.statement(statement)
        self.node = node
        self.scope.kept = before
        self._check_stand_ins(loop, stand_ins)
        self.emit(loop)

    def _if(self, node: ast.If) -> None:
        test = self.truth(node.test)
        if isinstance(test, Num):
            for statement in node.body if test.value else node.orelse:
                self.statement(statement)
            return
        assigned = assigned_in(node.body) | assigned_in(node.orelse)
        before = self._keep(node, assigned)
        if loads(test):
            held = self.array("test", (), "bool")
            self.assign(held, scalar_of(test, "bool"))
            test = held.scalar
        branch = Branch(self.line, test)
        names = dict(self.scope.names)
        with self.inside(branch.then):
            for statement in node.body:
                self.statement(statement)
        then, self.scope.names = self.scope.names, dict(names)
        with self.inside(branch.otherwise):
            for statement in node.orelse:
                self.statement(statement)
        self.node = node
        for name in assigned:
            first, second = then.get(name), self.scope.names.get(name)
            if name in self.scope.kept:
                self.scope.names[name] = first if isinstance(first, Value) else second
            elif first is not second:
                self.scope.names[name] = Unknown(f"{name} is assigned in one branch of the if in line {self.line}")
        self.scope.kept = {**before}
        self.emit(branch)

    def call(self, node: ast.Call) -> Any:
        function = self.evaluate(node.func)
        if isinstance(function, DType):
            return reals(self.value(node.args[0])) if len(node.args) == 1 else self.refuse("expected one number", node)
        if not isinstance(function, Function):
            self.refuse("expected a function", node)
        if any(isinstance(one, ast.Starred) for one in node.args) or any(one.arg is None for one in node.keywords):
            self.refuse("* and ** in a call are not supported", node)
        arguments = [self.evaluate(one) for one in node.args]
        named = {one.arg or "": self.evaluate(one.value) for one in node.keywords}
        if function.source is None:
            if function.owner is not None:
                arguments.insert(0, function.owner)
            return calls.call(self, function.numpy, arguments, named, method=function.owner is not None)
        return self._inline(function.source, arguments, named, node)

    def _inline(self, source: Source, arguments: list[Any], named: dict[str, Any], node: ast.Call) -> Any:
        if source.name in self.calls or source.name == self.source.name:
            self.refuse(f"{source.name} calls itself; recursion is not supported", node)
        if len(self.calls) >= MOST_DEPTH:
            self.refuse(f"found more than {MOST_DEPTH} functions inside each other", node)
        parameters = self._parameters(source.tree)
        defaults = dict(zip(parameters[len(parameters) - len(source.tree.args.defaults) :], source.tree.args.defaults))
        if len(arguments) > len(parameters) or set(named) - set(parameters):
            self.refuse(f"found arguments that {source.name} does not take", node)
        bound = {**dict(zip(parameters, arguments)), **named}
        inner = Scope(source, live=live_after(source.tree))
        for name in parameters:
            if name in bound:
                value = bound[name]
                inner.names[name] = self.held(value, name) if isinstance(value, Value) else value
            elif name in defaults:
                inner.names[name] = self.evaluate(defaults[name])
            else:
                self.refuse(f"argument {name} of {source.name} is missing", node)
        outer, at = self.scope, self.node
        self.scope = inner
        self.scopes.append(inner)
        self.calls.append(source.name)
        try:
            return self._run(source.tree.body)
        finally:
            self.calls.pop()
            self.scopes.pop()
            self.scope, self.node = outer, at


def _rebinds(node: ast.AST, name: str) -> bool:
    """Whether a name gets a new value anywhere inside, rather than a change in place."""
    for one in ast.walk(node):
        if isinstance(one, ast.Assign | ast.For) and name in frozenset().union(
            *(assigned_names(target) for target in (one.targets if isinstance(one, ast.Assign) else [one.target]))
        ):
            return True
    return False
