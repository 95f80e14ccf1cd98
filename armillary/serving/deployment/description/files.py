"""Reads descriptions from TOML, YAML and JSON files, and built-in ones by name."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from armillary.errors import InputError, one_line
from armillary.files import parse_json, read_text

from .service import Service

FOLDER = Path(__file__).parents[1] / "services"
MOST_BYTES = 4 << 20


def built_in() -> list[str]:
    """Returns the names of the descriptions that come with the package."""
    return sorted(path.name.removesuffix(".toml") for path in FOLDER.glob("*.toml"))


def text_of(path: str | Path) -> tuple[str, str]:
    """Returns (where, text) of a description. A string may name a built-in one; a `Path` is always a file."""
    if isinstance(path, str) and path in built_in():
        return path, (FOLDER / f"{path}.toml").read_text(encoding="utf-8")
    if not Path(path).exists():
        raise InputError(f"no such file; built in: {', '.join(built_in())}", where=str(path))
    return str(path), read_text(path, limit=MOST_BYTES)


def read(path: str | Path) -> Service:
    """Returns a description from a file, whose format follows from its suffix, or a built-in one by its name."""
    where, text = text_of(path)
    suffix = Path(where).suffix.lower()
    if suffix in (".yaml", ".yml"):
        from .yaml_files import load_all

        documents = load_all(text, where)
        if len(documents) != 1:
            raise InputError(f"found {len(documents)} documents; expected one", where=where)
        content: Any = documents[0]
        if isinstance(content, dict) and isinstance(content.get("services"), dict):
            from .command_lines import from_compose

            return from_compose(content, where)
        return Service.parse(content, where)
    if suffix == ".json":
        return Service.parse(parse_json(text, where), where)
    if suffix in (".sh", ".txt", ".cmd"):
        from .command_lines import from_command

        return from_command(text, where)
    try:
        return Service.parse(tomllib.loads(text), where)
    except (tomllib.TOMLDecodeError, RecursionError) as problem:
        raise InputError(f"not TOML: {one_line(str(problem), 120)}", where=where) from None
