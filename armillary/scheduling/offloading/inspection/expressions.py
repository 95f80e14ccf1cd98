"""Expressions: what is known about a value, without computing it."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Callable
from typing import Any

from armillary.errors import InputError

from . import work
from .calls import Calls
from .folding import GPU_TEXTS, compared, count_test, folded, truth_of
from .notes import MOST_WORK
from .scopes import Keys, Scope
from .values import (
    LONGEST_SEQUENCE,
    UNKNOWN,
    Available,
    Choice,
    Const,
    Device,
    Instance,
    Library,
    Local,
    Method,
    Prefix,
    Project,
    Tensor,
    Value,
    alternatives,
    constant,
    either,
    number_of,
    text_of,
)  # fmt: skip

#: Levels of nesting and of imports that are followed.
DEEPEST, IMPORT_DEPTH = 200, 5
_BUILTINS = frozenset(dir(builtins))


class Expressions(Calls):
    """Follows expressions."""

    def value(self, node: ast.expr, scope: Scope, guarded: bool) -> Value:
        """What is known about an expression."""
        kind = type(node)
        if kind is ast.Constant:
            return constant(node.value)  # type: ignore[attr-defined]
        if kind is ast.Name:
            return self.name(node, scope)  # type: ignore[arg-type]
        if self.inside:
            self.analysis.nodes_left -= 1
        self.level += 1
        if self.level > DEEPEST:
            raise InputError(f"found more than {DEEPEST} levels of nesting; expected fewer", where=self.where(node))
        follow = _EXPRESSIONS.get(kind)
        found = follow(self, node, scope, guarded) if follow is not None else self.others(node, scope, guarded)
        self.level -= 1
        return found

    def others(self, node: ast.AST, scope: Scope, guarded: bool) -> Value:
        """Expressions of which only the parts matter."""
        for part in ast.iter_child_nodes(node):
            if isinstance(part, ast.expr):
                self.value(part, scope, guarded)
        return UNKNOWN

    def name(self, node: ast.Name, scope: Scope) -> Value:
        """A name of the program, a builtin, or one that a star brought."""
        found = scope.get(node.id)
        if found is not None:
            return found
        if node.id in _BUILTINS:
            return Library(f"builtins.{node.id}")
        return Library(f"{self.stars[-1]}.{node.id}") if self.stars else UNKNOWN

    def attribute(self, node: ast.Attribute, scope: Scope, guarded: bool) -> Value:
        """a.b for every value that a may be."""
        home = self.value(node.value, scope, guarded)
        return either([self.part(one, node.attr) for one in alternatives(home)])

    def part(self, home: Value, name: str) -> Value:
        if isinstance(home, Library):
            return Library(f"{home.name}.{name}")
        if isinstance(home, Project):
            below = f"{home.module.removesuffix('__init__.py').removesuffix('.py')}".rstrip("/")
            found = self.exported(home.module, name)
            if found is None and (file := self.relative_file(f"{below}/{name}")):
                return Project(file)
            return UNKNOWN if found is None else found
        if isinstance(home, Instance) and (source := self.analysis.sources.get(home.module)):
            found = source.classes.get(home.name, {}).get(name)
            return Method(home, name) if found is None or isinstance(found, Local) else found
        if isinstance(home, Tensor) and name in ("T", "mT", "H"):
            return Tensor(None if home.shape is None else home.shape[::-1])
        if isinstance(home, Tensor) and name == "shape" and home.shape is not None:
            return Const(home.shape)
        if isinstance(home, Device) and name == "type" and (text := text_of(home)):
            return Const(text.partition(":")[0])
        return Method(home, name)

    def exported(self, file: str, name: str) -> Value | None:
        source = self.analysis.sources.get(file)
        return None if source is None else source.names.get(name)

    def project_file(self, module: str) -> str | None:
        """The project's file that a module stands in, followed now; None for a library."""
        file = self.analysis.find(module)
        return self.reached(file)

    def relative_file(self, module: str) -> str | None:
        path = module.replace(".", "/")
        for one in (f"{path}.py", f"{path}/__init__.py" if path else "__init__.py"):
            if one in self.analysis.files:
                return self.reached(one)
        return None

    def reached(self, file: str | None) -> str | None:
        if file is None or (file not in self.analysis.sources and self.depth >= IMPORT_DEPTH):
            return None
        self.analysis.load(file, self.depth + 1)
        return file

    def subscript(self, node: ast.Subscript, scope: Scope, guarded: bool) -> Value:
        """a[b] of a constant sequence, or of a tensor."""
        home, at = self.value(node.value, scope, guarded), self.value(node.slice, scope, guarded)
        index = number_of(at)
        if isinstance(home, Const) and isinstance(home.value, tuple | str) and index is not None:
            return constant(home.value[index]) if -len(home.value) <= index < len(home.value) else UNKNOWN
        if isinstance(home, Keys) and (key := text_of(at)) is not None:
            return dict(home.of).get(key, UNKNOWN)
        if isinstance(home, Tensor):
            return Tensor(home.shape[1:] if home.shape and index is not None else None)
        if isinstance(home, Available):
            return UNKNOWN
        return home if isinstance(home, Library) else UNKNOWN

    def sliced(self, node: ast.Slice, scope: Scope, guarded: bool) -> Value:
        """a:b."""
        for part in (node.lower, node.upper, node.step):
            if part is not None:
                self.value(part, scope, guarded)
        return UNKNOWN

    def sequence(self, node: Any, scope: Scope, guarded: bool) -> Value:
        """A tuple, a list or a set; constants are kept as a tuple."""
        long = len(node.elts) > LONGEST_SEQUENCE
        found = []
        for one in node.elts:
            if long and type(one) is ast.Constant:
                continue
            value = self.value(one, scope, guarded)
            if not long:
                found.append(value)
        if long or not all(isinstance(one, Const) for one in found):
            return UNKNOWN
        return Const(tuple(one.value for one in found))

    def dictionary(self, node: ast.Dict, scope: Scope, guarded: bool) -> Value:
        """A dictionary; constant keys are kept."""
        pairs = []
        for key, value in zip(node.keys, node.values):
            name = self.value(key, scope, guarded) if key is not None and type(key) is not ast.Constant else UNKNOWN
            if type(key) is ast.Constant:
                name = constant(key.value)
            if type(value) is ast.Constant and len(node.values) > LONGEST_SEQUENCE:
                continue
            found = self.value(value, scope, guarded)
            if (text := text_of(name)) is not None:
                pairs.append((text, found))
        return Keys(tuple(pairs)) if 0 < len(pairs) <= LONGEST_SEQUENCE else UNKNOWN

    def joined_text(self, node: ast.JoinedStr, scope: Scope, guarded: bool) -> Value:
        """An f-string, as far as it is known from its beginning."""
        text, known = "", True
        for part in node.values:
            inner = part.value if isinstance(part, ast.FormattedValue) else part
            found = self.value(inner, scope, guarded)
            piece = str(found.value) if isinstance(found, Const) and not isinstance(found.value, tuple) else None
            if piece is None:
                text += (text_of(found) or "") if known else ""
                known = False
            elif known:
                text += piece
        return constant(text) if known else Prefix(text[:200])

    def operated(self, node: ast.BinOp, scope: Scope, guarded: bool) -> Value:
        """a + b and the like, folded where both are known."""
        left, right = self.value(node.left, scope, guarded), self.value(node.right, scope, guarded)
        return self.combined(node, node.op, left, right)

    def combined(self, node: ast.AST, op: ast.operator, left: Value, right: Value) -> Value:
        if isinstance(op, ast.MatMult):
            return self.worked(node, *work.product(left, right))
        if isinstance(left, Tensor) or isinstance(right, Tensor):
            return work.elementwise(left, right)
        if isinstance(left, Choice) or isinstance(right, Choice):
            pairs = [(a, b) for a in alternatives(left) for b in alternatives(right)]
            return either([self.combined(node, op, a, b) for a, b in pairs[:16]]) if len(pairs) <= 16 else UNKNOWN
        if isinstance(left, Const) and isinstance(right, Const):
            return folded(op, left.value, right.value)
        if isinstance(op, ast.Add | ast.Mod) and (start := text_of(left)) is not None:
            more = (text_of(right) or "") if isinstance(left, Const) else ""
            return Prefix(start.partition("%")[0] if isinstance(op, ast.Mod) else start + more)
        return UNKNOWN

    def negated(self, node: ast.UnaryOp, scope: Scope, guarded: bool) -> Value:
        """not a, −a."""
        found = self.value(node.operand, scope, guarded)
        if isinstance(node.op, ast.Not):
            truth = truth_of(found)
            if isinstance(found, Available):
                return Available(not found.positive)
            return UNKNOWN if truth is None else Const(not truth)
        if isinstance(node.op, ast.USub) and isinstance(found, Const) and type(found.value) in (int, float):
            return Const(-found.value)
        return found if isinstance(found, Tensor) else UNKNOWN

    def both(self, node: ast.BoolOp, scope: Scope, guarded: bool) -> Value:
        """a and b, a or b; what stands behind a test for a GPU in `and` is guarded."""
        conjunction = isinstance(node.op, ast.And)
        found, under = [], guarded
        for one in node.values:
            value = self.value(one, scope, under)
            found.append(value)
            under = under or value == Available(conjunction)
            truth = truth_of(value)
            if truth is not None and truth is not conjunction:
                break
        if any(value == Available(conjunction) for value in found):
            return Available(conjunction)
        if all(isinstance(value, Available) for value in found):
            return Available(not conjunction)
        rest = [value for value in found[:-1] if truth_of(value) is None] + found[-1:]
        return either(rest)

    def compared(self, node: ast.Compare, scope: Scope, guarded: bool) -> Value:
        """Comparisons with the number of GPUs or the name of a device are tests for a GPU."""
        values = [self.value(one, scope, guarded) for one in [node.left, *node.comparators]]
        if len(values) != 2:
            return UNKNOWN
        (left, right), op = values, node.ops[0]
        if isinstance(left, Available) or isinstance(right, Available):
            known, other = (left, right) if isinstance(left, Available) else (right, left)
            return count_test(op, known, other, swapped=known is right)
        if isinstance(op, ast.Is | ast.IsNot) and isinstance(left, Library | Project) and isinstance(right, Const):
            return Const(isinstance(op, ast.IsNot))
        if isinstance(left, Const) and isinstance(right, Const):
            return compared(op, left.value, right.value)
        for known, other in ((left, right), (right, left)):
            text = text_of(known) if isinstance(known, Const) and not isinstance(other, Const) else None
            if text is not None and text.lower().startswith(GPU_TEXTS):
                return Available(not isinstance(op, ast.NotEq | ast.NotIn))
            if text is not None and text.lower() == "cpu":
                return Available(isinstance(op, ast.NotEq | ast.NotIn))
        return UNKNOWN

    def chosen(self, node: ast.IfExp, scope: Scope, guarded: bool) -> Value:
        """a if test else b."""
        test = self.value(node.test, scope, guarded)
        truth = truth_of(test)
        found, calls = [], [len(self.found.explicit)]
        if truth is not False:
            found.append(self.value(node.body, scope, guarded or test == Available(True)))
        calls.append(len(self.found.explicit))
        if truth is not True:
            found.append(self.value(node.orelse, scope, guarded or test == Available(False)))
        calls.append(len(self.found.explicit))
        if truth is None and (calls[0] == calls[1]) != (calls[1] == calls[2]):
            # One side needs a GPU and the other one does not, so the source runs anywhere.
            self.found.explicit[calls[0] :] = [(evidence, key, True) for evidence, key, _ in self.found.explicit[calls[0] :]]
        return either(found)

    def walrus(self, node: ast.NamedExpr, scope: Scope, guarded: bool) -> Value:
        """a := b."""
        found = self.value(node.value, scope, guarded)
        self.bind(node.target, found, scope, guarded)
        return found

    def inner(self, node: Any, scope: Scope, guarded: bool) -> Value:
        """await a, *a, yield a."""
        return UNKNOWN if node.value is None else self.value(node.value, scope, guarded)

    def anonymous(self, node: ast.Lambda, scope: Scope, guarded: bool) -> Value:
        """A lambda's body, with unknown arguments."""
        inner = Scope(scope)
        for one in [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]:
            inner.values[one.arg] = UNKNOWN
        self.value(node.body, inner, guarded)
        return UNKNOWN

    def bind(self, target: ast.expr, value: Value, scope: Scope, guarded: bool) -> None:
        """Gives a value to a name, to the names of a tuple, or to an attribute of self."""
        if isinstance(target, ast.Name):
            scope.values[target.id] = value
        elif isinstance(target, ast.Tuple | ast.List):
            parts = value.value if isinstance(value, Const) and isinstance(value.value, tuple) else None
            whole = parts is not None and len(parts) == len(target.elts) and not any(isinstance(t, ast.Starred) for t in target.elts)
            for k, one in enumerate(target.elts):
                self.bind(one, constant(parts[k]) if whole and parts is not None else UNKNOWN, scope, guarded)
        elif isinstance(target, ast.Starred):
            self.bind(target.value, UNKNOWN, scope, guarded)
        elif isinstance(target, ast.Attribute):
            home = self.value(target.value, scope, guarded)
            if isinstance(home, Instance) and (source := self.analysis.sources.get(home.module)):
                known = source.classes.setdefault(home.name, {})
                known[target.attr] = either([known[target.attr], value]) if target.attr in known else value
        else:
            self.value(target, scope, guarded)

    def trips(self, node: ast.expr, scope: Scope, guarded: bool) -> tuple[float, Value]:
        """(how often a loop over this runs, what its variable is); once where that is unknown."""
        called = node.func.id if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) else ""
        if isinstance(node, ast.Call) and called in ("tqdm", "enumerate", "list", "reversed") and node.args:
            return self.trips(node.args[0], scope, guarded)[0], UNKNOWN
        value = self.value(node, scope, guarded)
        if isinstance(node, ast.Call) and called == "range" and scope.get("range") is None:
            numbers = [number_of(self.value(one, scope, True)) for one in node.args]
            if numbers and all(one is not None for one in numbers):
                low, high, step = (0, numbers[0], 1) if len(numbers) == 1 else (*numbers[:2], numbers[2] if len(numbers) > 2 else 1)
                if step and low is not None and high is not None:
                    return float(max(0, -(-(high - low) // step))), UNKNOWN
        if isinstance(value, Const) and isinstance(value.value, tuple | str):
            parts = value.value
            return float(len(parts)), either([constant(one) for one in parts[:LONGEST_SEQUENCE]])
        return 1.0, UNKNOWN

    def comprehension(self, node: Any, scope: Scope, guarded: bool) -> Value:
        """A comprehension is a loop."""
        inner, kept = Scope(scope), self.times
        for generator in node.generators:
            times, item = self.trips(generator.iter, inner, guarded)
            self.bind(generator.target, item, inner, guarded)
            self.times = min(self.times * times, MOST_WORK)
            for test in generator.ifs:
                self.value(test, inner, guarded)
        for part in ("elt", "key", "value"):
            if hasattr(node, part):
                self.value(getattr(node, part), inner, guarded)
        self.times = kept
        return UNKNOWN


_EXPRESSIONS: dict[type, Callable[..., Value]] = {
    ast.Attribute: Expressions.attribute, ast.Subscript: Expressions.subscript, ast.Slice: Expressions.sliced,
    ast.Tuple: Expressions.sequence, ast.List: Expressions.sequence, ast.Set: Expressions.sequence, ast.Dict: Expressions.dictionary,
    ast.JoinedStr: Expressions.joined_text, ast.BinOp: Expressions.operated, ast.UnaryOp: Expressions.negated,
    ast.BoolOp: Expressions.both, ast.Compare: Expressions.compared, ast.IfExp: Expressions.chosen, ast.NamedExpr: Expressions.walrus,
    ast.Await: Expressions.inner, ast.Starred: Expressions.inner, ast.Yield: Expressions.inner, ast.YieldFrom: Expressions.inner,
    ast.Lambda: Expressions.anonymous, ast.ListComp: Expressions.comprehension, ast.SetComp: Expressions.comprehension,
    ast.DictComp: Expressions.comprehension, ast.GeneratorExp: Expressions.comprehension, ast.Call: Expressions.call,
}  # fmt: skip
