"""Descriptions from files: TOML, YAML and JSON, built-in ones by name."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

from armillary.errors import InputError, one_line

from .service import Service

FOLDER = Path(__file__).parent / "services"
MOST_BYTES = 4 << 20


def built_in() -> list[str]:
    """The names of the descriptions that come with the package."""
    return sorted(path.name.removesuffix(".toml") for path in FOLDER.glob("*.toml"))


def text_of(path: str | Path) -> tuple[str, str]:
    """(where, text) of a file or of a built-in description."""
    source = Path(path)
    if not source.exists() and str(path) in built_in():
        source = FOLDER / f"{path}.toml"
    try:
        size = source.stat().st_size
        if size > MOST_BYTES:
            raise InputError(f"{size:,} bytes; expected a description of at most {MOST_BYTES:,}", where=str(path))
        return str(path), source.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as problem:
        known = ", ".join(built_in())
        said = "no such file" if isinstance(problem, FileNotFoundError) else one_line(str(problem), 100)
        raise InputError(f"{said}; built in: {known}", where=str(path)) from None


def read(path: str | Path) -> Service:
    """A description from a file whose kind is seen from its suffix, or a built-in one by its name."""
    where, text = text_of(path)
    suffix = Path(where).suffix.lower() if where not in built_in() else ".toml"
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
        try:
            return Service.parse(json.loads(text), where)
        except (ValueError, RecursionError) as problem:
            raise InputError(f"not JSON: {one_line(str(problem), 120)}", where=where) from None
    if suffix in (".sh", ".txt", ".cmd"):
        from .command_lines import from_command

        return from_command(text, where)
    try:
        return Service.parse(tomllib.loads(text), where)
    except (tomllib.TOMLDecodeError, RecursionError) as problem:
        raise InputError(f"not TOML: {one_line(str(problem), 120)}", where=where) from None
