"""Writes tables as TOML in the way a person would: short tables are inline, and large ones have headings."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

_BARE = re.compile(r"[A-Za-z0-9_-]+")
_LONGEST_LINE = 120


def write_toml(data: dict[str, Any]) -> str:
    """`data` as TOML text, from which tomllib reads exactly the same tables."""
    return "\n".join(_table(data, ())).strip("\n") + "\n"


def _table(data: dict[str, Any], at: tuple[str, ...]) -> Iterator[str]:
    headed = [key for key, value in data.items() if _is_headed(value, at)]
    for key, value in data.items():
        if key not in headed:
            yield from _lines(_key(key), value)
    for key in headed:
        path = (*at, key)
        heading = ".".join(_key(k) for k in path)
        if isinstance(data[key], dict):
            if not data[key] or any(not _is_headed(value, path) for value in data[key].values()):
                yield f"\n[{heading}]"
            yield from _table(data[key], path)
        else:
            for entry in data[key]:
                yield f"\n[[{heading}]]"
                yield from _table(entry, path)


def _is_headed(value: Any, at: tuple[str, ...]) -> bool:
    """Whether a table gets a heading of its own: the tables of the file, networks, and everything that
    contains or is an array of tables.
    """
    if isinstance(value, dict):
        return at in ((), ("network",)) or any(_is_headed(inner, (*at, key)) for key, inner in value.items())
    return _is_tables(value) and not _is_short(value)


def _is_tables(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(x, dict) for x in value)


def _is_short(value: list[Any]) -> bool:
    """Caches, levels and layers stay arrays; sockets, devices and the like get headings."""
    return all("level" in x or "down" in x or ("rate" in x and "kind" not in x and "network" not in x) for x in value)


def _lines(key: str, value: Any) -> Iterator[str]:
    """`key = value`; a table that is too long for one line becomes dotted keys, and an array of tables has one entry per line."""
    line = f"{key} = {_value(value)}"
    if len(line) > _LONGEST_LINE and isinstance(value, dict) and value and "value" not in value:
        for inner, entry in value.items():
            yield from _lines(f"{key}.{_key(inner)}", entry)
    elif len(line) > _LONGEST_LINE and _is_tables(value):
        yield f"{key} = ["
        yield from (f"  {_value(entry)}," for entry in value)
        yield "]"
    else:
        yield line


def _key(key: str) -> str:
    return key if _BARE.fullmatch(key) else _text(key)


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, list):
        return "[" + ", ".join(_value(x) for x in value) + "]"
    return "{" + ", ".join(f"{_key(k)} = {_value(v)}" for k, v in value.items()) + "}"


def _text(text: str) -> str:
    shown = []
    for c in text:
        if c in '"\\':
            shown.append("\\" + c)
        elif c.isprintable():
            shown.append(c)
        else:
            shown.append(f"\\u{ord(c):04x}" if ord(c) < 0x10000 else f"\\U{ord(c):08x}")
    return '"' + "".join(shown) + '"'
