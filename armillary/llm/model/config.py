"""Reads a Hugging Face `config.json` as a file from a stranger: its size is bounded, every key is checked, and nothing is evaluated."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from armillary.errors import InputError, one_line

MOST_BYTES = 1 << 20
MOST_DEPTH = 20
MOST = 1 << 40

_MISSING = object()


@dataclass(frozen=True)
class Config:
    """The keys of one file, which families ask for by their own names."""

    keys: Mapping[str, Any]
    where: str

    @staticmethod
    def read(source: str | Path | Mapping[str, Any]) -> Config:
        """Reads a file, or a dict as `json.load` returns it."""
        if isinstance(source, Mapping):
            _check_depth(source, "config")
            return Config(source, "config")
        path = Path(source)
        try:
            if path.stat().st_size > MOST_BYTES:
                raise InputError(f"{path.stat().st_size} bytes; expected a config of at most 1 MiB", where=str(path))
            found = json.loads(path.read_bytes(), parse_constant=_no_constant)
        except OSError as error:
            raise InputError(error.strerror or "cannot be read", where=str(path)) from None
        except RecursionError:
            raise InputError(f"nested more than {MOST_DEPTH} deep", where=str(path)) from None
        except ValueError as error:
            raise InputError(f"not JSON: {error}", where=str(path)) from None
        if not isinstance(found, dict):
            raise InputError(f"found {_kind(found)}; expected an object with keys such as hidden_size", where=str(path))
        _check_depth(found, str(path))
        return Config(found, str(path))

    def error(self, key: str, message: str) -> InputError:
        """An error that names one key of this file."""
        return InputError(f'key "{key}": {message}', where=self.where)

    def has(self, key: str) -> bool:
        """Whether the key is present and not null."""
        return self.keys.get(key) is not None

    def size(self, *names: str, default: Any = _MISSING, least: int = 1) -> int:
        """The whole number under the first of `names` that is present and not null; `default` where none is."""
        for name in names:
            found = self.keys.get(name)
            if found is None:
                continue
            if isinstance(found, bool) or not isinstance(found, int):
                raise self.error(name, f"found {_kind(found)}; expected a whole number")
            if not least <= found <= MOST:
                raise self.error(name, f"found {one_line(str(found)[:40])}; expected {least} to 2^40")
            return found
        if default is _MISSING:
            raise self.error(names[0], "is missing; expected a whole number" + (f" (or {', '.join(names[1:])})" if names[1:] else ""))
        return int(default)

    def flag(self, name: str, default: bool) -> bool:
        """True or false; `default` where absent or null."""
        found = self.keys.get(name)
        if found is None:
            return default
        if not isinstance(found, bool):
            raise self.error(name, f"found {_kind(found)}; expected true or false")
        return found

    def text(self, name: str, default: str | None = None) -> str | None:
        """Text of at most 200 characters; `default` where absent or null."""
        found = self.keys.get(name)
        if found is None:
            return default
        if not isinstance(found, str) or len(found) > 200:
            raise self.error(name, f"found {_kind(found)}; expected a short text")
        return found

    def table(self, name: str) -> Config | None:
        """The object under a key, as a config of its own."""
        found = self.keys.get(name)
        if found is None:
            return None
        if not isinstance(found, Mapping):
            raise self.error(name, f"found {_kind(found)}; expected an object")
        return Config(found, f"{self.where}: {name}")

    def items(self, name: str, kind: type) -> list[Any] | None:
        """A list of values of one kind under a key."""
        found = self.keys.get(name)
        if found is None:
            return None
        if not isinstance(found, list) or any(not isinstance(x, kind) or isinstance(x, bool) for x in found):
            raise self.error(name, f"found {_kind(found)}; expected a list of {kind.__name__}")
        return found


def _kind(found: object) -> str:
    if isinstance(found, str):
        return f'"{one_line(found, 60)}"'
    if isinstance(found, Mapping):
        return "an object"
    if isinstance(found, list):
        return "a list"
    return one_line(json.dumps(found) if isinstance(found, bool | int | float | None) else type(found).__name__, 60)


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a JSON number")


def _check_depth(found: Any, where: str) -> None:
    level = [found]
    for _ in range(MOST_DEPTH):
        level = [x for each in level if isinstance(each, Mapping | list) for x in (each.values() if isinstance(each, Mapping) else each)]
        if not level:
            return
    if any(isinstance(x, Mapping | list) for x in level):
        raise InputError(f"nested more than {MOST_DEPTH} deep", where=where)
