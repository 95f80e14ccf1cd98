"""Reads a source as an interpreter would run it, with values of which only something is known.

Statements are followed in order; both sides of a branch are followed and what they leave is joined; the body of a loop is followed once
and counted as often as it runs. Functions are followed on their own, and again with their arguments where they are called. Every call
knows whether it stands under a test for a GPU, or in a `try` that falls back. Nothing is executed.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from armillary.errors import InputError

from . import libraries
from .expressions import DEEPEST, Expressions
from .folding import EXITS, exits, paired, truth_of
from .notes import MOST_WORK
from .project import candidates, parse, relative
from .scopes import Frame, Scope
from .values import UNKNOWN, Available, Const, Instance, Library, Local, Project, Value, either

#: Levels of calls that are followed, and nodes that are visited again inside of calls.
CALL_DEPTH, CALL_NODES = 5, 100_000
#: How a block ends.
NEXT, LEAVES, RAISES = 0, 1, 2


class Analysis:
    """All files of a project that the entry point reaches, and who calls whom."""

    def __init__(self, read: Callable[[str], str], files: Iterable[str], entry: str) -> None:
        self.read, self.files, self.entry = read, frozenset(files), entry
        self.sources: dict[str, Source] = {}
        #: (function that is called, function that calls, whether the call is guarded).
        self.calls: list[tuple[tuple[str, str], tuple[str, str], bool]] = []
        self.nodes_left = CALL_NODES
        #: Results of calls, by function and arguments, that found nothing.
        self.idle_calls: dict[Any, Value] = {}

    def load(self, file: str, depth: int) -> Source:
        """The analysis of a file, made now if it is new; a file that imports itself again is met half-finished."""
        if file not in self.sources:
            made = Source(self, file, depth)
            self.sources[file] = made
            made.follow()
        return self.sources[file]

    def find(self, module: str) -> str | None:
        """The project's file that an absolute import names, or None."""
        return next((one for one in candidates(module, self.entry) if one in self.files), None)

    def only_guarded(self) -> set[tuple[str, str]]:
        """Functions that are called, and only where there is a GPU."""
        sites: dict[tuple[str, str], list[tuple[tuple[str, str], bool]]] = {}
        for callee, caller, guarded in self.calls:
            sites.setdefault(callee, []).append((caller, guarded))
        found: set[tuple[str, str]] = set()
        while True:
            more = {key for key, those in sites.items() if all(guarded or caller in found for caller, guarded in those)}
            if more == found:
                return found
            found = more


class Source(Expressions):
    """One file that is being followed."""

    def follow(self) -> None:
        """Follows the module, then every function that it defines."""
        tree = parse(self.analysis.read(self.file), self.file)
        self.block(tree.body, self.names, False)
        done: set[str] = set()
        while len(done) < len(self.functions):
            # A class's __init__ comes first, because other methods use what it sets.
            waiting = sorted((name for name in self.functions if name not in done), key=lambda name: not name.endswith("__init__"))
            for name in waiting:
                done.add(name)
                node, scope, owner = self.functions[name]
                self.frame, self.times = Frame((self.file, name), owner), 1.0
                self.body(node, scope, {})
        self.frame = Frame((self.file, ""))

    def body(self, node: ast.FunctionDef | ast.AsyncFunctionDef, scope: Scope, given: Mapping[str, Value]) -> None:
        """Follows the body of a function with these arguments; the others have their defaults."""
        inner = Scope(scope)
        a = node.args
        positional = [*a.posonlyargs, *a.args]
        for one in [*positional, *a.kwonlyargs, *filter(None, (a.vararg, a.kwarg))]:
            inner.values[one.arg] = UNKNOWN
        for one, default in zip(positional[len(positional) - len(a.defaults) :], a.defaults):
            inner.values[one.arg] = self.quiet(default, scope)
        for one, value in zip(a.kwonlyargs, a.kw_defaults):
            if value is not None:
                inner.values[one.arg] = self.quiet(value, scope)
        if self.frame.owner and positional:
            inner.values[positional[0].arg] = Instance(self.file, self.frame.owner)
        inner.values.update({name: value for name, value in given.items() if name in inner.values})
        self.block(node.body, inner, False)

    def quiet(self, node: ast.expr, scope: Scope) -> Value:
        """A default's value, if it is a plain one; defaults were looked at where the function was defined."""
        return self.value(node, scope, True) if isinstance(node, ast.Constant | ast.Name | ast.UnaryOp | ast.Tuple) else UNKNOWN

    def run(self, local: Local, arguments: Sequence[Value], keywords: Mapping[str, Value], guarded: bool) -> Value:
        """What a function of the project returns for these arguments; its work counts for the caller."""
        home = self.analysis.sources.get(local.module)
        if home is None or local.name not in home.functions:
            return UNKNOWN
        key = (local.module, local.name)
        node, scope, owner = home.functions[local.name]
        if key in self.inside or len(self.inside) >= CALL_DEPTH or self.analysis.nodes_left <= 0 or key == self.frame.key:
            return UNKNOWN
        names = [one.arg for one in [*node.args.posonlyargs, *node.args.args]][1 if owner else 0 :]
        given = dict(zip(names, arguments)) | dict(keywords)
        # A call with the same arguments that found nothing, and did no work, is not followed again.
        same = (key, tuple(given.items()))
        if same in self.analysis.idle_calls:
            return self.analysis.idle_calls[same]
        before = home.progress()
        kept = home.frame, home.times, home.level, home.inside
        home.frame, home.times, home.inside = Frame(self.frame.key, owner), self.times, [*self.inside, key]
        home.level = self.level
        inner, home.guarded_calls = home.guarded_calls, guarded
        home.body(node, scope, given)
        returned = home.frame.returns
        home.frame, home.times, home.level, home.inside = kept
        home.guarded_calls = inner
        result = either(returned) if returned else Const(None)
        if home.progress() == before:
            self.analysis.idle_calls[same] = result
        return result

    def progress(self) -> tuple[int, ...]:
        """Changes whenever a file of the project says something new."""
        found = [source.found for source in self.analysis.sources.values()] if len(self.analysis.sources) < 50 else [self.found]
        return tuple(len(one.explicit) + len(one.products) + len(one.tensors) + len(one.models) for one in found)

    def block(self, statements: Sequence[ast.stmt], scope: Scope, guarded: bool) -> int:
        """Follows statements until one of them leaves; what stands behind it is dead."""
        self.level += 1
        if self.level > DEEPEST:
            raise InputError(f"found more than {DEEPEST} levels of nesting; expected fewer", where=self.where(statements[0]))
        flow = NEXT
        for statement in statements:
            flow, guarded = self.statement(statement, scope, guarded)
            if flow != NEXT:
                break
        self.level -= 1
        return flow

    def statement(self, node: ast.stmt, scope: Scope, guarded: bool) -> tuple[int, bool]:
        """(how it ends, whether what follows stands under a test for a GPU)."""
        follow = _STATEMENTS.get(type(node))
        return follow(self, node, scope, guarded) if follow is not None else (NEXT, guarded)

    def expression(self, node: ast.Expr, scope: Scope, guarded: bool) -> tuple[int, bool]:
        """A call for its effect; one that ends the program leaves."""
        value = node.value
        if type(value) is ast.Constant:
            return NEXT, guarded
        self.value(value, scope, guarded)
        if isinstance(value, ast.Call):
            target = self.callee(value.func, scope)
            if isinstance(target, Library) and target.name in EXITS:
                return RAISES, guarded
        return NEXT, guarded

    def callee(self, node: ast.expr, scope: Scope) -> Value:
        """The value of a plain dotted name, without following anything."""
        if isinstance(node, ast.Name):
            return self.name(node, scope)
        if isinstance(node, ast.Attribute):
            home = self.callee(node.value, scope)
            return Library(f"{home.name}.{node.attr}") if isinstance(home, Library) else UNKNOWN
        return UNKNOWN

    def assign(self, node: ast.Assign, scope: Scope, guarded: bool) -> tuple[int, bool]:
        """Binds the value to every target."""
        first = node.targets[0]
        if len(node.targets) == 1 and isinstance(first, ast.Tuple) and isinstance(node.value, ast.Tuple) and paired(first, node.value):
            for target, found in zip(first.elts, [self.value(one, scope, guarded) for one in node.value.elts]):
                self.bind(target, found, scope, guarded)
            return NEXT, guarded
        value = self.value(node.value, scope, guarded)
        for target in node.targets:
            self.bind(target, value, scope, guarded)
        return NEXT, guarded

    def annotated(self, node: ast.AnnAssign, scope: Scope, guarded: bool) -> tuple[int, bool]:
        """An annotation says nothing; its value does."""
        if node.value is not None:
            self.bind(node.target, self.value(node.value, scope, guarded), scope, guarded)
        return NEXT, guarded

    def augmented(self, node: ast.AugAssign, scope: Scope, guarded: bool) -> tuple[int, bool]:
        """x += y is x = x + y."""
        value = self.value(node.value, scope, guarded)
        if isinstance(node.target, ast.Name):
            before = scope.get(node.target.id) or UNKNOWN
            scope.values[node.target.id] = self.combined(node, node.op, before, value)
        else:
            self.value(node.target, scope, guarded)
        return NEXT, guarded

    def imported(self, node: ast.Import, scope: Scope, guarded: bool) -> tuple[int, bool]:
        """import a.b as c."""
        for alias in node.names:
            file = self.project_file(alias.name)
            bound = alias.asname or alias.name.partition(".")[0]
            if file is not None:
                whole = file if alias.asname else self.project_file(alias.name.partition(".")[0]) or file
                scope.values[bound] = Project(whole)
                continue
            self.noted(node, alias.name, guarded)
            scope.values[bound] = Library(alias.name if alias.asname else bound)
        return NEXT, guarded

    def imported_from(self, node: ast.ImportFrom, scope: Scope, guarded: bool) -> tuple[int, bool]:
        """from a import b as c; a star brings all names of a."""
        module = node.module or ""
        if node.level:
            inside = relative(self.file, node.level, module)
            file = self.relative_file(inside) if inside is not None else None
            module = inside or ""
        else:
            file = self.project_file(module)
        for alias in node.names:
            bound = alias.asname or alias.name
            if node.level or file is not None:
                below = self.relative_file(f"{module}.{alias.name}" if module else alias.name)
                if alias.name == "*":
                    if file is not None and (source := self.analysis.sources.get(file)):
                        scope.values.update(source.names.values)
                elif file is not None and (value := self.exported(file, alias.name)) is not None:
                    scope.values[bound] = value
                else:
                    scope.values[bound] = Project(below) if below is not None else UNKNOWN
                continue
            self.noted(node, module if alias.name == "*" else f"{module}.{alias.name}", guarded)
            if alias.name == "*":
                self.stars.append(module)
            else:
                scope.values[bound] = Library(f"{module}.{alias.name}")
        return NEXT, guarded

    def defined(self, node: Any, scope: Scope, guarded: bool) -> tuple[int, bool]:
        """A function: its decorators and defaults run now, its body later."""
        for decorator in node.decorator_list:
            value = self.value(decorator, scope, guarded)
            self.used(decorator, value, guarded)
        for default in [*node.args.defaults, *filter(None, node.args.kw_defaults)]:
            self.value(default, scope, guarded)
        owner = self.building[-1] if self.building else ""
        inside = f"{self.frame.key[1]}." if self.frame.key[1] and not owner else ""
        name = f"{owner}.{node.name}" if owner else f"{inside}{node.name}"
        if not self.inside:
            self.functions.setdefault(name, (node, scope.outer if owner and scope.outer else scope, owner))
        scope.values[node.name] = Local(self.file, name)
        return NEXT, guarded

    def class_defined(self, node: ast.ClassDef, scope: Scope, guarded: bool) -> tuple[int, bool]:
        """A class: its body runs now, its methods are followed later."""
        for decorator in node.decorator_list:
            self.used(decorator, self.value(decorator, scope, guarded), guarded)
        bases = [self.value(base, scope, guarded) for base in node.bases]
        for keyword in node.keywords:
            self.value(keyword.value, scope, guarded)
        self.building.append(node.name)
        inner = Scope(scope)
        self.block(node.body, inner, guarded)
        self.building.pop()
        self.classes.setdefault(node.name, {}).update(inner.values)
        self.bases[node.name] = bases
        scope.values[node.name] = Local(self.file, node.name)
        return NEXT, guarded

    def branched(self, node: ast.If, scope: Scope, guarded: bool) -> tuple[int, bool]:
        """Both sides, unless the test is known; a long chain of elif is followed without nesting."""
        sides: list[tuple[int, Scope]] = []
        chain: list[ast.stmt] = [node]
        after = guarded
        while True:
            test = self.value(node.test, scope, guarded)
            truth = truth_of(test)
            if truth is not False:
                inner = Scope(scope)
                flow = self.block(node.body, inner, guarded or test == Available(True))
                sides.append((flow, inner))
                if truth is True:
                    break
                if test == Available(False):
                    # What follows runs only with a GPU, if the other way was left and not refused.
                    guarded = guarded or flow != RAISES
                    after = after or flow == LEAVES
            if len(node.orelse) == 1 and isinstance(node.orelse[0], ast.If):
                node = node.orelse[0]
                chain.append(node)
                continue
            inner = Scope(scope)
            sides.append((self.block(node.orelse, inner, guarded) if node.orelse else NEXT, inner))
            break
        return self.joined(sides, scope), after

    def joined(self, sides: Sequence[tuple[int, Scope]], scope: Scope) -> int:
        """Joins what several ways leave; ways that do not come out leave nothing."""
        out = [inner for flow, inner in sides if flow == NEXT]
        for name in dict.fromkeys(name for inner in out for name in inner.values):
            scope.values[name] = either([inner.get(name) or UNKNOWN for inner in out])
        if out:
            return NEXT
        return RAISES if sides and all(flow == RAISES for flow, _ in sides) else LEAVES

    def looped(self, node: Any, scope: Scope, guarded: bool) -> tuple[int, bool]:
        """A loop's body once, counted as often as it runs; it may also not run at all."""
        times, item = self.trips(node.iter, scope, guarded)
        inner = Scope(scope)
        self.bind(node.target, item, inner, guarded)
        kept = self.times
        self.times = min(self.times * times, MOST_WORK)
        flow = self.block(node.body, inner, guarded) if times > 0 else NEXT
        self.times = kept
        self.joined([(flow if flow == RAISES else NEXT, inner), (NEXT, Scope(scope))], scope)
        if node.orelse:
            self.block(node.orelse, scope, guarded)
        return NEXT, guarded

    def while_looped(self, node: ast.While, scope: Scope, guarded: bool) -> tuple[int, bool]:
        """A loop of unknown length counts once."""
        test = self.value(node.test, scope, guarded)
        if truth_of(test) is not False:
            inner = Scope(scope)
            flow = self.block(node.body, inner, guarded or test == Available(True))
            self.joined([(flow if flow == RAISES else NEXT, inner), (NEXT, Scope(scope))], scope)
        if node.orelse:
            self.block(node.orelse, scope, guarded)
        return NEXT, guarded

    def tried(self, node: Any, scope: Scope, guarded: bool) -> tuple[int, bool]:
        """A body whose failure is caught where there is no GPU, and that goes on, is guarded."""
        caught = [self.falls_back(handler, scope) for handler in node.handlers]
        inner = Scope(scope)
        flow = self.block(node.body, inner, guarded or any(caught))
        if flow == NEXT and node.orelse:
            flow = self.block(node.orelse, inner, guarded or any(caught))
        sides = [(flow, inner)]
        for handler in node.handlers:
            other = Scope(scope)
            if handler.name:
                other.values[handler.name] = UNKNOWN
            sides.append((self.block(handler.body, other, guarded), other))
        flow = self.joined(sides, scope)
        if node.finalbody:
            last = self.block(node.finalbody, scope, guarded)
            flow = last if last != NEXT else flow
        return flow, guarded

    def falls_back(self, handler: ast.ExceptHandler, scope: Scope) -> bool:
        """Whether a handler catches the lack of a GPU and does not raise again."""
        if any(isinstance(one, ast.Raise) for one in handler.body) or exits(handler.body):
            return False
        if handler.type is None:
            return True
        types = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
        for one in types:
            value = self.callee(one, scope)
            name = value.name if isinstance(value, Library) else one.id if isinstance(one, ast.Name) else ""
            last = name.rpartition(".")[2]
            if last in libraries.CATCHING or last == "CUDARuntimeError":
                return True
        return False

    def opened(self, node: Any, scope: Scope, guarded: bool) -> tuple[int, bool]:
        """with a as b; contextlib.suppress falls back as a handler does."""
        for item in node.items:
            value = self.value(item.context_expr, scope, guarded)
            self.used(item.context_expr, value, guarded)
            if item.optional_vars is not None:
                self.bind(item.optional_vars, UNKNOWN, scope, guarded)
        return self.block(node.body, scope, guarded), guarded

    def returned(self, node: ast.Return, scope: Scope, guarded: bool) -> tuple[int, bool]:
        """Keeps what a function returns."""
        self.frame.returns.append(self.value(node.value, scope, guarded) if node.value is not None else Const(None))
        return LEAVES, guarded

    def raised(self, node: ast.Raise, scope: Scope, guarded: bool) -> tuple[int, bool]:
        """An exception ends the block."""
        if node.exc is not None:
            self.value(node.exc, scope, guarded)
        return RAISES, guarded

    def left(self, node: ast.stmt, scope: Scope, guarded: bool) -> tuple[int, bool]:
        """break and continue."""
        return LEAVES, guarded

    def asserted(self, node: ast.Assert, scope: Scope, guarded: bool) -> tuple[int, bool]:
        """An assertion refuses; it does not fall back, so it guards nothing."""
        self.value(node.test, scope, guarded)
        return NEXT, guarded

    def matched(self, node: ast.Match, scope: Scope, guarded: bool) -> tuple[int, bool]:
        """Every case."""
        self.value(node.subject, scope, guarded)
        sides = [(NEXT, Scope(scope))]
        for one in node.cases:
            inner = Scope(scope)
            sides.append((self.block(one.body, inner, guarded), inner))
        return self.joined(sides, scope), guarded


_STATEMENTS: dict[type, Callable[..., tuple[int, bool]]] = {
    ast.Expr: Source.expression, ast.Assign: Source.assign, ast.AnnAssign: Source.annotated, ast.AugAssign: Source.augmented,
    ast.Import: Source.imported, ast.ImportFrom: Source.imported_from, ast.FunctionDef: Source.defined,
    ast.AsyncFunctionDef: Source.defined, ast.ClassDef: Source.class_defined, ast.If: Source.branched, ast.For: Source.looped,
    ast.AsyncFor: Source.looped, ast.While: Source.while_looped, ast.Try: Source.tried, ast.With: Source.opened,
    ast.AsyncWith: Source.opened, ast.Return: Source.returned, ast.Raise: Source.raised, ast.Break: Source.left,
    ast.Continue: Source.left, ast.Assert: Source.asserted, ast.Match: Source.matched, ast.TryStar: Source.tried,
}  # fmt: skip
