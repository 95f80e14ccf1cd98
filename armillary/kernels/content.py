"""A digest of everything that the machine code of a compiled loop depends on.

It covers the loop's own code and, through any number of modules, every part, constant, intrinsic and captured value that the code
reaches by name, with the options of each compiled function and the versions of Python, NumPy, Numba and llvmlite. Docstrings, comments,
annotations and line numbers are not part of it, nor is the folder that the code lies in.

Code and values are read from memory, because that is what Numba compiles, so a file that was edited after its import cannot mislead it.
"""

from __future__ import annotations

import dis
import functools
import hashlib
import platform
import sys
import types
from typing import Any

import llvmlite  # type: ignore[import-untyped]
import numba
import numpy as np
from numba.core import config
from numba.core.dispatcher import Dispatcher
from numba.core.extending import _Intrinsic

#: Packages that are told apart by their version, which every digest covers; all others are told apart by their content.
_VERSIONED = frozenset(sys.stdlib_module_names) - {"__main__"} | {"numpy", "numba", "llvmlite"}
_PLAIN = frozenset({bool, int, float, complex, str, bytes, types.NoneType, types.EllipsisType})
_LOAD_GLOBAL, _EXTENDED_ARG, _WITH_CONSTANT = dis.opmap["LOAD_GLOBAL"], dis.opmap["EXTENDED_ARG"], frozenset(dis.hasconst)
#: The flags of code that change what a call means: *args, **kwargs and generators.
_FLAGS = 0x04 | 0x08 | 0x20


class NoContentError(Exception):
    """Something that the loop reaches has no content to compare, such as a pointer, or the loop calls itself."""


def digest(compiled: Any) -> str:
    """The digest of a compiled function, in hexadecimal; raises NoContentError where there is none."""
    settings = [getattr(config, name) for name in ("OPT", "BOUNDSCHECK", "DEBUGINFO_DEFAULT", "LOOP_VECTORIZE", "SLP_VECTORIZE")]
    versions = platform.python_implementation(), sys.version, np.__version__, numba.__version__, llvmlite.__version__
    walk = _Walk()
    walk.say(settings, versions)
    try:
        walk.value(compiled)
    except (RecursionError, ImportError) as why:
        raise NoContentError(str(why)) from why
    return walk.hash.hexdigest()


class _Walk:
    """Follows names from a function and feeds a hash with what it meets; each function is followed once."""

    def __init__(self) -> None:
        self.hash = hashlib.blake2b(digest_size=20)
        self._met: dict[object, tuple[int, object]] = {}  # By id; the object is held so that no other one gets its id.
        self._open: set[int] = set()

    def say(self, *words: object) -> None:
        self.hash.update(repr(words).encode("utf-8", "surrogatepass"))

    def value(self, value: Any, names: tuple[str, ...] = ()) -> None:
        """Takes in a value; if it is a module, only the attributes that `names` holds."""
        kind = type(value)
        if kind in _PLAIN:
            self.say(value)
        elif isinstance(value, tuple | list):
            self.say(kind.__module__, kind.__qualname__, len(value))
            for item in value:
                self.value(item)
        elif kind in (dict, set, frozenset):
            self.value((kind.__qualname__, *sorted(value.items() if kind is dict else value, key=repr)))
        elif kind is np.ndarray or isinstance(value, np.generic):
            self._array(value)
        elif isinstance(value, Dispatcher):
            self._compiled(value)
        elif isinstance(value, _Intrinsic):
            self.value(("intrinsic", value._prefer_literal, value._defn))
        elif isinstance(value, types.FunctionType):
            self._function(value)
        elif isinstance(value, types.ModuleType):
            self._module(value, names)
        else:
            self._named(value)

    def _first(self, thing: object, key: object) -> bool:
        known = len(self._met)
        number, _ = self._met.setdefault(key, (known, thing))
        self.say(number)
        return number == known

    def _array(self, array: Any) -> None:
        if array.dtype.hasobject:
            raise NoContentError("an array of objects")
        self.say(array.dtype, array.shape, array.strides)
        self.hash.update(array.tobytes("A"))

    def _named(self, value: Any) -> None:
        """Takes in what its name tells apart: classes and functions of versioned packages, types of Numba, exceptions and named tuples."""
        name, free = getattr(value, "__qualname__", None), isinstance(getattr(value, "__self__", None), types.ModuleType | types.NoneType)
        if isinstance(value, numba.types.Type):
            self.say(repr(value))
        elif isinstance(name, str) and free and _versioned(value.__module__ or "builtins"):
            self.say(value.__module__, name)
        elif isinstance(value, type) and issubclass(value, BaseException | tuple):
            self.say(value.__module__, name)
            self.value((getattr(value, "_fields", ()), *getattr(value, "_field_defaults", {}).items()))
        else:
            raise NoContentError(repr(value))

    def _compiled(self, compiled: Any) -> None:
        if id(compiled) in self._open:  # LLVM aborts when it loads such code.
            raise NoContentError(f"{compiled.__qualname__} calls itself")
        if not self._first(compiled, id(compiled)):
            return
        function = compiled.py_func
        module = sys.modules.get(function.__module__)
        if module is None or module.__name__ in ("__main__", "__mp_main__") or vars(module) is not function.__globals__:
            raise NoContentError(f"{function.__qualname__} cannot be imported")
        self.value(sorted(compiled.targetoptions.items()))
        self.say(sorted((name, str(kind)) for name, kind in compiled.locals.items()))
        self._open.add(id(compiled))
        self._function(function)
        self._open.remove(id(compiled))

    def _function(self, function: types.FunctionType) -> None:
        self.say(function.__module__, function.__qualname__)
        if _versioned(function.__module__) or not self._first(function, id(function)):
            return
        text, reads, names = _summary(function.__code__)
        self.hash.update(text)
        self.value((function.__defaults__, function.__kwdefaults__))
        for name in reads:
            if name in function.__globals__:
                self.value(function.__globals__[name], names)
        for cell in function.__closure__ or ():
            try:
                captured = cell.cell_contents
            except ValueError:
                raise NoContentError(f"{function.__qualname__} captures a name that has no value yet") from None
            self.value(captured, names)

    def _module(self, module: types.ModuleType, names: tuple[str, ...]) -> None:
        self.say(module.__name__)
        if not _versioned(module.__name__) and self._first((module, names), (id(module), id(names))):
            for name in names:
                if hasattr(module, name):
                    self.say(name)
                    self.value(getattr(module, name), names)


def _versioned(module: str) -> bool:
    return module.partition(".")[0] in _VERSIONED


@functools.cache
def _summary(code: types.CodeType) -> tuple[bytes, tuple[str, ...], tuple[str, ...]]:
    """(what the code does, the globals that it reads, all names in it), with those of the functions inside it.

    Constants stand in the place of their numbers, because a docstring changes the numbers.
    """
    reads: dict[str, None] = {}
    names = dict.fromkeys(code.co_names)

    def constant(value: object) -> object:
        if isinstance(value, types.CodeType):
            text, inner_reads, inner_names = _summary(value)
            reads.update(dict.fromkeys(inner_reads))
            names.update(dict.fromkeys(inner_names))
            return text
        if isinstance(value, tuple):
            return tuple(constant(item) for item in value)
        return sorted(map(repr, value)) if isinstance(value, frozenset) else value

    words: list[object] = [code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags & _FLAGS]
    words += [code.co_varnames, code.co_cellvars, code.co_freevars, code.co_names, code.co_exceptiontable]
    argument = 0
    for operation, low in zip(code.co_code[::2], code.co_code[1::2]):
        argument = argument << 8 | low
        if operation == _EXTENDED_ARG:
            continue
        if operation == _LOAD_GLOBAL:
            reads[code.co_names[argument >> 1]] = None
        words.append((operation, constant(code.co_consts[argument]) if operation in _WITH_CONSTANT else argument))
        argument = 0
    return repr(words).encode("utf-8", "surrogatepass"), tuple(reads), tuple(names)
