"""Reads YAML from strangers, without tags and with bounds on its size and on what its aliases expand to."""

from __future__ import annotations

from typing import Any

from armillary import extras
from armillary.files import parse_yaml

#: Characters of a YAML file, and values that it may hold once its aliases are expanded.
MOST_BYTES = 4 << 20
MOST_VALUES = 100_000


def yaml() -> Any:
    """Imports PyYAML when it is needed."""
    return extras.need("yaml")


def load_all(text: str, where: str) -> list[Any]:
    """Returns the documents of a YAML text as plain data."""
    return parse_yaml(text, where, limit=MOST_BYTES, most=MOST_VALUES)
