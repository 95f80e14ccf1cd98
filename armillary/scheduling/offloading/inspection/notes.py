"""One file that is being inspected: what is known about it so far, and how findings are written down."""

from __future__ import annotations

import ast
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from armillary.errors import one_line

from . import libraries, models
from .modes import Evidence
from .project import module_of
from .scopes import Found, Frame, Scope
from .values import Library, Local, Tensor, Value, alternatives, place

if TYPE_CHECKING:
    from .interpreter import Analysis

#: Bound on counted work, which keeps products finite.
MOST_WORK = 1e30


class Notes:
    """The state of one file. The parts that follow expressions and statements stand in the classes above it."""

    #: Whether the call through which a body is followed is guarded.
    guarded_calls = False

    def __init__(self, analysis: Analysis, file: str, depth: int) -> None:
        self.analysis, self.file, self.depth = analysis, file, depth
        self.module = module_of(file)
        self.names = Scope()
        self.found = Found(file)
        self.functions: dict[str, tuple[ast.FunctionDef | ast.AsyncFunctionDef, Scope, str]] = {}
        self.classes: dict[str, dict[str, Value]] = {}
        self.bases: dict[str, list[Value]] = {}
        self.stars: list[str] = []
        self.frame = Frame((file, ""))
        self.level, self.times = 0, 1.0
        self.inside: list[tuple[str, str]] = []
        #: Classes whose bodies are being followed, the innermost last.
        self.building: list[str] = []

    def value(self, node: ast.expr, scope: Scope, guarded: bool) -> Value:
        """What is known about an expression."""
        raise NotImplementedError

    def run(self, local: Local, arguments: Sequence[Value], keywords: Mapping[str, Value], guarded: bool) -> Value:
        """What a function of the project returns for these arguments."""
        raise NotImplementedError

    def part(self, home: Value, name: str) -> Value:
        """An attribute of a value."""
        raise NotImplementedError

    def where(self, node: ast.AST) -> str:
        """The place of a node."""
        return f"{self.file}:{place(node)[0]}"

    def noted(self, node: ast.AST, module: str, guarded: bool) -> None:
        """An import of a library; pycuda.autoinit needs a GPU by itself."""
        package = libraries.accelerator_of(module)
        if package is not None:
            self.found.imports.append(self.evidence(node, "import", f"imports {package}"))
        if module == "pycuda.autoinit":
            self.explicit(node, "pycuda.autoinit takes a GPU when it is imported", guarded)

    def found_of_frame(self) -> Found:
        """The findings of the file whose function is being followed: a callee's work counts for its caller."""
        home = self.analysis.sources.get(self.frame.key[0])
        return self.found if home is None else home.found

    def worked(self, node: ast.AST, found: Value, flops: float) -> Value:
        """Counts the work of a call, and notes large tensors."""
        if flops > 0:
            whole = min(flops * self.times, MOST_WORK)
            key = self.frame.key
            self.found_of_frame().flops[key] = min(self.found_of_frame().flops.get(key, 0.0) + whole, MOST_WORK)
            self.found.products.append((whole, self.evidence(node, "flops", f"computes a product of {whole:.3g} operations")))
        if isinstance(found, Tensor) and found.shape is not None:
            elements = float(math.prod(found.shape))
            if elements >= 1000:
                shape = " × ".join(map(str, found.shape[:6]))
                self.found.tensors.append((elements, self.evidence(node, "tensor", f"makes a tensor of {shape} elements")))
        return found

    def model(self, node: ast.AST, name: str, parameters: float) -> None:
        kind = "heavy" if parameters >= models.HEAVY else "model"
        said = f'loads "{one_line(name, 60)}" with {models.said(parameters)} parameters'
        self.found.models.append((parameters, self.evidence(node, kind, said)))

    def used(self, node: ast.AST, value: Value, guarded: bool) -> None:
        """A decorator or a context that is not called; one that is was noted as a call."""
        if not isinstance(node, ast.Call):
            options = alternatives(value)
            if options and all(isinstance(one, Library) and libraries.needs_gpu(one.name) for one in options):
                self.explicit(node, f"uses {options[0].name}", guarded)

    def explicit(self, node: ast.AST, what: str, guarded: bool) -> None:
        kind = "guarded" if guarded or self.guarded_calls else "explicit"
        self.found.explicit.append((self.evidence(node, kind, what), self.frame.key, guarded or self.guarded_calls))

    def evidence(self, node: ast.AST, kind: str, what: str) -> Evidence:
        line, column = place(node)
        return Evidence(self.file, line, column, kind, what)
