"""The sources of a project: files that were read with limits, their entry point, and which file an import names."""

from __future__ import annotations

import ast
import codecs
import io
import tokenize
import warnings
from collections.abc import Mapping
from pathlib import Path

from armillary.errors import InputError, one_line
from armillary.files import read_bytes

#: Bytes of one source, files of a project, and bytes of all of them.
MOST_BYTES, MOST_FILES, MOST_TOTAL = 10_000_000, 20_000, 200_000_000
#: Names under which an entry point is looked for, in this order.
ENTRIES = ("func.py", "function/func.py", "main.py", "app.py", "handler.py", "lambda_function.py", "__main__.py", "__init__.py")
#: Folders that hold no source of the function.
SKIPPED = frozenset({"__pycache__", "node_modules", "site-packages", "venv", "env", "build", "dist"})


def parse(text: str, where: str) -> ast.Module:
    """The syntax tree of a source. Nothing is executed; a fault is one line with its place."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(text, where)
    except SyntaxError as error:
        said = one_line(error.msg or "invalid syntax", 120)
        raise InputError(f"found no Python ({said})", where=f"{where}:{error.lineno or 1}") from None
    except (RecursionError, MemoryError):
        raise InputError("found expressions that are nested too deeply; expected at most 200 levels", where=where) from None
    except ValueError as error:  # Such as a number of more than 4,300 digits.
        raise InputError(f"found no Python ({one_line(str(error), 120)})", where=where) from None


def read_source(path: Path, shown: str = "") -> str:
    """The text of a source of at most 10 MB, in UTF-8 or in the encoding that its coding line names."""
    where = shown or str(path)
    data = read_bytes(path, limit=MOST_BYTES, unpack=False)
    if (at := data.find(b"\0")) >= 0:
        raise InputError("found a null byte; expected Python", where=f"{where}:{data.count(10, 0, at) + 1}")
    try:
        name, _ = tokenize.detect_encoding(io.BytesIO(data).readline)
        codecs.lookup(name)
    except (SyntaxError, LookupError) as error:
        raise InputError(f"found no text ({one_line(str(error), 120)}); expected UTF-8 or a coding line", where=f"{where}:1") from None
    try:
        text = data.decode(name)
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise InputError(f"found the byte 0x{data[error.start]:02x}; expected {name} text", where=f"{where}:{line}") from None
    except (LookupError, UnicodeError, ValueError) as error:  # An encoding that is none of text.
        raise InputError(f"found the coding {one_line(name, 40)} ({one_line(str(error), 80)}); expected one of text", where=where) from None
    return text.replace("\r\n", "\n").replace("\r", "\n")


def read_project(path: Path, entry: str = "") -> tuple[dict[str, Path], str]:
    """(files by their path inside the project, the entry's path) of a source, a package folder or a func project.

    Files are listed only; they are read when an import reaches them.
    """
    if path.is_file():
        return {path.name: path} | _beside(path), path.name
    if not path.is_dir():
        raise InputError("found no such file or folder; expected a Python source or a project's folder", where=str(path))
    files: dict[str, Path] = {}
    folders = [path]
    while folders:
        folder = folders.pop()
        for found in _listed(folder):
            if found.is_symlink() or found.name.startswith(".") or found.name in SKIPPED:
                continue
            if found.is_dir():
                folders.append(found)
            elif found.suffix == ".py":
                files[found.relative_to(path).as_posix()] = found
                if len(files) > MOST_FILES:
                    raise InputError(f"found more than {MOST_FILES:,} sources; expected at most that many", where=str(path))
    if not files:
        raise InputError("found no Python source; expected a .py file, or a folder that holds one", where=str(path))
    return files, entry_of(files, entry, str(path))


def _listed(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except OSError as error:
        raise InputError(f"cannot be listed ({error.strerror})", where=str(folder)) from None


def _beside(path: Path) -> dict[str, Path]:
    """Sources beside a file and in folders beside it, which it may import."""
    found = {}
    for other in _listed(path.parent):
        if other.suffix == ".py" and other.is_file() and not other.is_symlink():
            found[other.name] = other
        if len(found) >= MOST_FILES:
            break
    return found


def entry_of(files: Mapping[str, object], entry: str, where: str) -> str:
    """The file at which the function begins."""
    if entry:
        if entry not in files:
            raise InputError(f'found no "{one_line(entry, 80)}"; expected one of the project\'s sources', where=where)
        return entry
    for name in ENTRIES:
        if name in files:
            return name
    if len(files) == 1:
        return next(iter(files))
    raise InputError(f"found {len(files)} sources and none of {', '.join(ENTRIES)}; name the entry point", where=where)


def module_of(file: str) -> str:
    """The dotted name of a file: a/b.py is a.b, a/__init__.py is a."""
    parts = file.removesuffix(".py").split("/")
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts) or "__init__"


def candidates(module: str, entry: str) -> tuple[str, ...]:
    """Files that an absolute import of `module` may name, from the project's root or from the entry's folder."""
    path = module.replace(".", "/")
    folder = entry.rpartition("/")[0]
    roots = ("",) if not folder else ("", f"{folder}/")
    return tuple(f"{root}{path}{end}" for root in roots for end in (".py", "/__init__.py"))


def relative(file: str, level: int, module: str) -> str | None:
    """The dotted name of a relative import from this file, or None if it leads out of the project."""
    parts = file.split("/")[:-1]
    if level - 1 > len(parts):
        return None
    kept = parts[: len(parts) - (level - 1)]
    return ".".join([*kept, *([module] if module else [])])
