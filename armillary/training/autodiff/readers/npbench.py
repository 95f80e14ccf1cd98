"""A folder of NPBench kernels: descriptions in JSON, kernels and their data in Python files that are parsed and never imported.

It may be NPBench's own tree (`bench_info/*.json` and `npbench/benchmarks/<relative_path>/<module>_numpy.py`), or a folder with a JSON file
and a Python file side by side.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from armillary.errors import InputError, unknown
from armillary.files import read_json

from ..frontend.source import Source, of_file
from ..workload import Problem
from .initialise import initialise

MOST_KERNELS = 200
KEYS = ("module_name", "func_name", "parameters", "input_args")
MOST_SIZE = 1 << 24


def read_folder(folder: Path, preset: str, wanted: str, limit: int | None) -> list[Problem]:
    """The kernels of a folder at one of their sizes; `wanted` are names, comma-separated, or all if empty."""
    found: dict[str, tuple[Path, Mapping[str, Any]]] = {}
    for path in itertools.islice(sorted(folder.rglob("*.json")), MOST_KERNELS):
        described = read_json(path)
        if isinstance(described, dict) and isinstance(described.get("benchmark"), dict):
            found[path.stem] = (path, described["benchmark"])
    if not found:
        raise InputError('no JSON file with the key "benchmark" is in it; expected NPBench\'s descriptions', where=folder.name)
    names = [one.strip() for one in wanted.split(",") if one.strip()] or list(found)
    for name in names:
        if name not in found:
            raise unknown("kernel", name, found, where=folder.name)
    return [_problem(folder, *found[name], preset, limit) for name in names]


def _problem(folder: Path, path: Path, about: Mapping[str, Any], preset: str, limit: int | None) -> Problem:
    where = path.name
    for key in KEYS:
        if key not in about:
            raise InputError(f'key "{key}" is missing', where=where)
    sizes = about["parameters"].get(preset) if isinstance(about["parameters"], dict) else None
    if not isinstance(sizes, dict):
        raise InputError(f'parameters: found no sizes "{preset}"', where=where)
    for name, value in sizes.items():
        if isinstance(value, bool) or not isinstance(value, int | float) or abs(value) > MOST_SIZE:
            raise InputError(f"parameters.{preset}.{name}: found {value!r}; expected a number up to {MOST_SIZE}", where=where)
    source = of_file(_file(folder, path, about, ("_numpy.py", ".py")), _word(about, "func_name", where))
    arguments = _arguments(folder, path, about, sizes, _names(about.get("input_args"), "input_args", where))
    outputs = _names(about.get("output_args") or [], "output_args", where)
    active = tuple(name for name, value in arguments.items() if isinstance(value, np.ndarray) and value.dtype.kind == "f")
    if not active:
        raise InputError("no argument is an array of real numbers", where=where)
    return Problem(path.stem, source, arguments, active, outputs[0] if outputs else None, limit)


def _arguments(folder: Path, path: Path, about: Mapping[str, Any], sizes: Mapping[str, Any], names: list[str]) -> dict[str, Any]:
    """The arguments of the kernel: sizes, and what its `initialize` returns."""
    made: dict[str, Any] = dict(sizes)
    init = about.get("init")
    if isinstance(init, dict):
        where = path.name
        results = _names(init.get("output_args"), "init.output_args", where)
        given = {name: _size(sizes, name, where) for name in _names(init.get("input_args"), "init.input_args", where)}
        source: Source = of_file(_file(folder, path, about, (".py",)), _word(init, "func_name", where))
        made.update(zip(results, initialise(source, given, len(results))))
    missing = [name for name in names if name not in made]
    if missing:
        raise InputError(f"input_args: {missing[0]} is neither a size nor made by init", where=path.name)
    return {name: made[name] for name in names}


def _size(sizes: Mapping[str, Any], name: str, where: str) -> Any:
    if name not in sizes:
        raise InputError(f"init.input_args: {name} is not among the sizes", where=where)
    return sizes[name]


def _word(about: Mapping[str, Any], key: str, where: str) -> str:
    found = about.get(key)
    if not isinstance(found, str) or not found.isidentifier():
        raise InputError(f"{key}: found {found!r}; expected the name of a function or module", where=where)
    return found


def _names(found: Any, key: str, where: str) -> list[str]:
    if not isinstance(found, list) or not all(isinstance(one, str) and one.isidentifier() for one in found):
        raise InputError(f"{key}: expected a list of names", where=where)
    return found


def _file(folder: Path, path: Path, about: Mapping[str, Any], endings: tuple[str, ...]) -> Path:
    """The Python file of a kernel, inside the folder."""
    module = _word(about, "module_name", path.name)
    relative = about.get("relative_path") if isinstance(about.get("relative_path"), str) else ""
    for ending in endings:
        for place in (path.parent, folder / str(relative), folder / "npbench" / "benchmarks" / str(relative)):
            file = place / f"{module}{ending}"
            if file.is_file() and file.resolve().is_relative_to(folder.resolve()):
                return file
    raise InputError(f"found no {module}{endings[0]} beside it", where=path.name)
