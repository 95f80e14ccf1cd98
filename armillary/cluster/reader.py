"""Reads cluster files: TOML, presets, and the files of other tools through `formats`."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from armillary.cluster.checks import check
from armillary.cluster.cluster import Cluster
from armillary.cluster.merge import merged, with_parts
from armillary.cluster.validation_messages import faults_of
from armillary.errors import InputError, one_line, unknown

PRESETS = Path(__file__).parent / "presets"
#: The largest cluster file; people write them, and no reasonable one is longer.
_LARGEST_FILE = 16 << 20
_DEEPEST_EXTENDS = 16


def load(path: str | Path, follow: bool = False) -> Cluster:
    """The cluster that a file describes: our TOML or JSON, or any format that `armillary.cluster.formats` reads.

    `follow` lets a slurm.conf include other files. Every fault of the file is reported at once (up to 20).
    """
    path = Path(path)
    where = str(path)
    data = None
    if path.suffix.lower() == ".json":
        data = _read_own_json(path)
    if data is None and path.suffix.lower() != ".toml":
        data = _read_foreign(path, follow)
    return from_dict(_read_toml(path) if data is None else data, where=where, base=path.parent)


def preset(name: str) -> Cluster:
    """A machine that comes with Armillary, by name; `presets()` lists them."""
    return _preset(_known(name))


@cache
def _preset(name: str) -> Cluster:
    return from_dict(_preset_data(name), where=name, base=PRESETS)


def presets() -> tuple[str, ...]:
    """The names of all presets."""
    return tuple(sorted(path.stem for path in PRESETS.glob("*.toml")))


def from_dict(data: Mapping[str, Any], where: str = "cluster", base: str | Path | None = None) -> Cluster:
    """The cluster that plain tables (as tomllib returns them) describe; files that they name are relative to `base`.

    An `InputError` lists every fault with `where`, the key path, what was found and what was expected.
    """
    if not isinstance(data, Mapping):
        raise InputError(f"found {type(data).__name__}; expected tables", where=where)
    folder = Path(base) if base is not None else Path(".")
    try:
        whole = with_parts(_extended(dict(data), where, folder, ()))
        if isinstance(whole.get("site"), dict):
            whole["site"] = [whole["site"]]
        cluster = Cluster.model_validate(whole, context={"base": folder})
    except ValidationError as error:
        raise _several(where, faults_of(error, whole, Cluster)) from None
    except RecursionError:
        raise InputError("tables nested too deep", where=where) from None
    faults = list(check(cluster))
    if faults:
        raise _several(where, faults)
    return cluster


def _several(where: str, faults: list[str]) -> InputError:
    return InputError.several(f"{one_line(where, 200)}: {fault}" for fault in faults)


def _known(name: str, where: str | None = None) -> str:
    if name not in presets():
        raise unknown("preset", name, presets(), where=where)
    return name


def _read_toml(path: Path) -> dict[str, Any]:
    text = _read_text(path)
    try:
        return tomllib.loads(text)
    except (tomllib.TOMLDecodeError, ValueError) as error:
        raise InputError(f"not a TOML file: {error}", where=str(path)) from None
    except RecursionError:
        raise InputError("tables nested too deep", where=str(path)) from None


def _read_own_json(path: Path) -> dict[str, Any] | None:
    """The tables of a file that `to_json` wrote, or None if it is some other JSON."""
    try:
        data = json.loads(_read_text(path))
    except (ValueError, RecursionError):
        return None
    return data if isinstance(data, dict) and "armillary" in data else None


def _read_foreign(path: Path, follow: bool) -> dict[str, Any] | None:
    from armillary.cluster import formats

    if not path.is_file():
        raise InputError("no such file", where=str(path))
    return formats.read(path, follow=follow)


def _read_text(path: Path) -> str:
    try:
        if not path.is_file():
            raise InputError("no such file", where=str(path))
        if path.stat().st_size > _LARGEST_FILE:
            raise InputError(f"{path.stat().st_size:,} bytes; a cluster file has at most {_LARGEST_FILE:,}", where=str(path))
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise InputError("not UTF-8 text", where=str(path)) from None
    except (OSError, ValueError) as error:
        raise InputError(getattr(error, "strerror", None) or "cannot be read", where=str(path)) from None


@cache
def _preset_data(name: str) -> dict[str, Any]:
    return _read_toml(PRESETS / f"{name}.toml")


def _extended(data: dict[str, Any], where: str, base: Path, chain: tuple[str, ...]) -> dict[str, Any]:
    """`data` merged over what it `extends`, which is a preset by name or a TOML file relative to this one."""
    if "extends" not in data:
        return data
    start, here = data["extends"], {k: v for k, v in data.items() if k != "extends"}
    if not isinstance(start, str) or "\0" in start:
        raise InputError("extends: expected the name of a preset or of a TOML file", where=where)
    if start.endswith(".toml"):
        path = base / start
        name, under, folder = str(path.resolve()), _read_toml(path), path.parent
    else:
        name, folder = _known(start, f"{one_line(where, 200)}: extends"), PRESETS
        under = _preset_data(name)
    if name in chain or len(chain) >= _DEEPEST_EXTENDS:
        raise InputError(f"extends: {' → '.join(Path(c).stem for c in (*chain, name))} goes in a circle", where=where)
    return merged(_anchored(_extended(under, name, folder, (*chain, name)), folder), here)


def _anchored(data: Any, folder: Path) -> Any:
    """`data` with the files that it names resolved from `folder`, so that another file may extend it."""
    if isinstance(data, list):
        return [_anchored(entry, folder) for entry in data]
    if not isinstance(data, dict):
        return data
    return {
        key: str(folder.resolve() / value) if key in ("trace", "edges") and isinstance(value, str) else _anchored(value, folder)
        for key, value in data.items()
    }
