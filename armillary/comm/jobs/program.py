"""Programs by name, as `module:function` or `/folder/file.py:function`, so that another process can import them."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from armillary.errors import InputError, one_line


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
    module, _, attribute = name.rpartition(":")
    if not module or not attribute:
        raise InputError(f'program: found "{name}"; expected "module:function"')
    try:
        program = _reach(_of_file(Path(module)) if module.endswith(".py") else importlib.import_module(module), attribute)
    except ImportError as error:
        raise InputError(f'program: found "{name}"; expected a module that can be imported ({error})') from error
    if not callable(program):
        raise InputError(f'program: found "{name}"; expected the name of a function in module {module}')
    return program


def _of_file(file: Path) -> Any:
    """The module in a file, under a name that tells its place and content.

    Its folder comes last on the path: the file finds the modules beside it, and none of those can take the place of another package.
    """
    try:
        digest = hashlib.sha256(str(file.resolve()).encode() + b"\0" + file.read_bytes()).hexdigest()[:16]
    except OSError as error:
        raise InputError(error.strerror or str(error), where=str(file)) from None
    name = f"program_{digest}"
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, file)
        assert spec is not None
        assert spec.loader is not None
        made = importlib.util.module_from_spec(spec)
        folder = str(file.resolve().parent)
        if folder not in sys.path:
            sys.path.append(folder)
        sys.modules[name] = made
        try:
            spec.loader.exec_module(made)
        except BaseException as error:
            del sys.modules[name]
            if isinstance(error, Exception):
                raise InputError(f"cannot be run ({type(error).__name__}: {one_line(str(error))})", where=str(file)) from error
            raise
    return sys.modules[name]


def _reach(thing: Any, path: str) -> Any:
    for part in path.split("."):
        thing = getattr(thing, part, None)
    return thing
