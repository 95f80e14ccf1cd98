"""Programs by name, as `module:function`, so that another process can import them."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from typing import Any

from armillary.errors import InputError


def named(program: Callable[..., Any] | str) -> str:
    """Return the name under which another process imports this program."""
    if isinstance(program, str):
        found(program)
        return program
    module = getattr(program, "__module__", None)
    name = getattr(program, "__qualname__", None)
    if module == "__main__":
        spec = getattr(sys.modules["__main__"], "__spec__", None)
        module = getattr(spec, "name", None) or module
    if module and name and module != "__main__" and "<" not in name and _reach(sys.modules.get(module), name) is program:
        return f"{module}:{name}"
    raise InputError(
        f"program: found {name or program!r} of module {module}; expected a function that other processes can import by name, which those "
        "of __main__ and inner functions are not"
    )


def found(name: str) -> Callable[..., Any]:
    """Return the program of this name."""
    module, _, attribute = name.partition(":")
    if not module or not attribute:
        raise InputError(f'program: found "{name}"; expected "module:function"')
    try:
        program = _reach(importlib.import_module(module), attribute)
    except ImportError as error:
        raise InputError(f'program: found "{name}"; expected a module that can be imported ({error})') from error
    if not callable(program):
        raise InputError(f'program: found "{name}"; expected the name of a function in module {module}')
    return program


def _reach(thing: Any, path: str) -> Any:
    for part in path.split("."):
        thing = getattr(thing, part, None)
    return thing
