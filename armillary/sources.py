"""Which code a unit can reach: the real import graph, from the arena and the technique down.

A module reaches what it imports, at its top or inside its functions, what it names as "package.module:function" for another process, and
every package on the way. `from package import name` and
`package.name` reach the module that the package's lazy stub (`__init__.pyi`) takes the name from, not all that the package offers. A
package's data files (presets, tables, schemas) count with the modules that stand beside them. Docstrings and lines that are comments
do not count, so rewording one makes no stored result stale.

What a source file reaches depends on its bytes alone, so it is kept by their digest in the user's cache folder.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import hashlib
import importlib.util
import inspect
import json
import os
import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

#: Raised when the meaning of what is kept changes.
FORM = 2
_TARGET = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)+:[A-Za-z_]\w*")
#: Sources that are kept before all but those of the present tree are forgotten.
MOST_KEPT = 20_000
#: Modules from which no value of a unit comes: claims are judged after the units have run.
JUDGING = frozenset({"armillary.claim"})
#: Files beside a module that are no data: sources of Python, and what only people read.
NO_DATA = {".py", ".pyi", ".pyc", ".md", ".so", ".typed"}


@dataclass(frozen=True)
class Source:
    """One source file: a digest of what it does, and the names that it imports, `module` or `module:name`."""

    meaning: str
    imports: tuple[str, ...]


def reached(start: Iterable[str]) -> dict[str, Path]:
    """Every module that these modules reach inside their own top-level packages, themselves included, with its source file."""
    inside = {module.partition(".")[0] for module in start}
    found: dict[str, Path] = {}
    waiting = list(start)
    while waiting:
        module = waiting.pop()
        file = _file_of(module) if module.partition(".")[0] in inside and module not in found else None
        if file is None:
            continue
        found[module] = file
        package, _, _ = module.rpartition(".")
        if package:
            waiting.append(package)
        here = module if file.name == "__init__.py" else package
        for wanted in source(file).imports:
            waiting += _modules(wanted, here)
    return found


def digest(start: Iterable[str], extra: bytes = b"") -> str:
    """Hex SHA-256 over the meaning of every module that `start` reaches, and over the data files of their packages."""
    modules = reached(start)
    total = hashlib.sha256(extra)
    for module in sorted(modules.keys() - JUDGING):
        total.update(f"{module} {source(modules[module]).meaning}\0".encode())
    for name, file in sorted(data_files(modules.values())):
        total.update(f"{name} {_data_digest(file)}\0".encode())
    return total.hexdigest()


def data_files(files: Iterable[Path]) -> set[tuple[str, Path]]:
    """(name for the digest, file) of the data beside these source files; that of a top-level package is about people and papers."""
    found = set()
    for folder in {file.parent for file in files}:
        if (folder.parent / "__init__.py").exists():
            found |= {(f"{folder.name}/{file.relative_to(folder)}", file) for file in _data(folder)}
    return found


@functools.cache
def source(file: Path) -> Source:
    """What a source file means and imports; read once per process, as Python itself does."""
    data = file.read_bytes()
    key = hashlib.sha256(data).hexdigest()
    kept = _kept().get(key)
    _used.add(key)
    if not (isinstance(kept, list) and len(kept) == 2 and isinstance(kept[1], list)):
        made = _parsed(data)
        _kept()[key] = [made.meaning, list(made.imports)]
        _new.append(key)
        return made
    return Source(kept[0], tuple(kept[1]))


def of_class(found: type) -> bytes:
    """The source of a class that stands in no file of a package (a notebook's), or nothing where it cannot be had."""
    try:
        return inspect.getsource(found).encode()
    except (OSError, TypeError):
        return b""


def _parsed(data: bytes) -> Source:
    tree = ast.parse(data)
    dropped: set[int] = set()
    inside_strings: set[int] = set()
    imports: set[str] = set()
    aliases: dict[str, str] = {}
    loads: list[ast.Attribute] = []
    bare: set[str] = set()
    for node in _walked(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            first = node.body[0] if node.body else None
            if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str):
                dropped.update(range(first.lineno, (first.end_lineno or first.lineno) + 1))
        elif isinstance(node, ast.Constant):
            if isinstance(node.value, str | bytes) and node.end_lineno and node.end_lineno > node.lineno:
                inside_strings.update(range(node.lineno, node.end_lineno + 1))
            # "package.module:function" names what another process imports and calls.
            if isinstance(node.value, str) and _TARGET.fullmatch(node.value):
                imports.add(node.value)
        elif isinstance(node, ast.JoinedStr):
            inside_strings.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
        elif isinstance(node, ast.Import):
            for alias in node.names:
                imports.add(alias.name)
                if alias.asname or "." not in alias.name:
                    aliases[alias.asname or alias.name] = alias.name
        elif isinstance(node, ast.ImportFrom):
            base = "." * node.level + (node.module or "")
            for alias in node.names:
                imports.add(f"{base}:{alias.name}")
                aliases[alias.asname or alias.name] = f"{base}:{alias.name}"
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            loads.append(node)
        elif isinstance(node, ast.Call) and _is_named(node.func, "import_module") and node.args:
            imports |= _called(node)
    through = {id(node.value) for node in loads}
    for node in _walked(tree):
        if isinstance(node, ast.Name) and id(node) not in through and node.id in aliases:
            bare.add(node.id)
    for load in loads:
        assert isinstance(load.value, ast.Name)
        if load.value.id in aliases:
            imports.add(f"{aliases[load.value.id]}>{load.attr}")
    imports |= {f"{aliases[name]}>*" for name in bare}
    lines = data.splitlines()
    kept = [
        line.rstrip()
        for number, line in enumerate(lines, start=1)
        if number not in dropped and line.strip() and (number in inside_strings or not line.lstrip().startswith(b"#"))
    ]
    return Source(hashlib.sha256(b"\n".join(kept)).hexdigest(), tuple(sorted(imports)))


def _walked(tree: ast.AST) -> Iterator[ast.AST]:
    """Every node that runs: what stands under `if TYPE_CHECKING` never does."""
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        yield node
        if isinstance(node, ast.If) and _is_named(node.test, "TYPE_CHECKING"):
            waiting += node.orelse
        else:
            waiting += ast.iter_child_nodes(node)


def _is_named(node: ast.expr, name: str) -> bool:
    return (isinstance(node, ast.Name) and node.id == name) or (isinstance(node, ast.Attribute) and node.attr == name)


def _called(node: ast.Call) -> set[str]:
    """What `import_module("a.b")` names, where it is a plain string."""
    first = node.args[0]
    return {first.value} if isinstance(first, ast.Constant) and isinstance(first.value, str) else set()


@functools.cache
def _modules(wanted: str, here: str) -> list[str]:
    """The modules that one import reaches: `a.b`, `a.b:name`, or either followed by `>attribute` (`>*` when it is passed around)."""
    wanted, _, attribute = wanted.partition(">")
    module, colon, name = wanted.partition(":")
    if module.startswith("."):
        level = len(module) - len(module.lstrip("."))
        parts = here.split(".")
        module = ".".join([*parts[: len(parts) - level + 1], *([module.lstrip(".")] if module.lstrip(".") else [])])
    found = [module]
    if colon:
        if name == "*":
            return [*found, *_offered(module, "*")]
        found += [f"{module}.{name}"] if _file_of(f"{module}.{name}") else _offered(module, name)
        module = f"{module}.{name}"
    if attribute and _file_of(module):
        found += [f"{module}.{attribute}"] if attribute != "*" and _file_of(f"{module}.{attribute}") else _offered(module, attribute)
    return found


def _offered(package: str, name: str) -> list[str]:
    """The modules from which a package's lazy stub takes a name; all of them for `*`."""
    file = _file_of(package)
    if file is None or file.name != "__init__.py":
        return []
    stub = _stub(file.with_suffix(".pyi"))
    names = stub if name == "*" else [name]
    return [f"{package}{stub[n]}" for n in names if n in stub]


@functools.cache
def _stub(file: Path) -> dict[str, str]:
    """Name to `.module`, as a lazy stub lists them."""
    if not file.exists():
        return {}
    found = {}
    for node in ast.parse(file.read_bytes()).body:
        if isinstance(node, ast.ImportFrom) and node.level == 1:
            for alias in node.names:
                found[alias.asname or alias.name] = f".{node.module}" if node.module else f".{alias.name}"
    return found


@functools.cache
def _file_of(module: str) -> Path | None:
    """The source file of a module, found without importing it where its parents are packages of ours."""
    if module == "__main__":
        return None
    top, *rest = module.split(".")
    root = _root(top)
    if root is None or not all(part.isidentifier() for part in rest):
        return None
    place = root.joinpath(*rest)
    for file in (place / "__init__.py", place.with_suffix(".py")) if rest else (place / "__init__.py",):
        if file.is_file():
            return file
    return None


@functools.cache
def _root(top: str) -> Path | None:
    loaded = sys.modules.get(top)
    origin = getattr(loaded, "__file__", None)
    if origin is None:
        with contextlib.suppress(ImportError, ValueError):
            spec = importlib.util.find_spec(top)
            origin = spec.origin if spec else None
    if not origin or Path(origin).name != "__init__.py":
        return None
    return Path(origin).parent


@functools.cache
def _data_digest(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


@functools.cache
def _data(folder: Path) -> list[Path]:
    """The data files in a package's folder and in the folders below it that are no packages themselves."""
    found = []
    for entry in sorted(folder.iterdir()):
        if entry.is_dir():
            if entry.name != "__pycache__" and not (entry / "__init__.py").exists():
                found += _data(entry)
        elif entry.suffix not in NO_DATA and not entry.name.startswith("."):
            found.append(entry)
    return found


#: Digests of the sources that this process met, and of those among them that it parsed.
_used: set[str] = set()
_new: list[str] = []


@functools.cache
def _kept() -> dict[str, Any]:
    """What was parsed before, by the digest of the source; a missing or damaged file is an empty one."""
    with contextlib.suppress(OSError, ValueError):
        found = json.loads(_kept_file().read_text())
        if isinstance(found, dict) and found.get("form") == FORM and isinstance(found.get("sources"), dict):
            return dict(found["sources"])
    return {}


def keep() -> None:
    """Writes what was parsed in this process to the cache folder, whole or not at all; silent where that cannot be written."""
    if not _new:
        return
    _new.clear()
    file = _kept_file()
    with contextlib.suppress(OSError):
        file.parent.mkdir(parents=True, exist_ok=True)
        part = file.with_name(f"{file.name}.{os.getpid()}")
        kept = _kept() if len(_kept()) <= MOST_KEPT else {key: _kept()[key] for key in _used}
        part.write_text(json.dumps({"form": FORM, "sources": kept}))
        part.replace(file)


def _kept_file() -> Path:
    cache = os.environ.get("XDG_CACHE_HOME")
    return (Path(cache) if cache else Path.home() / ".cache") / "armillary" / "sources.json"
