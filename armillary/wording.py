"""Counts and lists in messages, as a person would write them."""

from __future__ import annotations

from collections.abc import Sequence


def counted(number: int, noun: str, plural: str = "") -> str:
    """`1 case`, `3 cases`, `12,000 cases`; `plural` where it is not the noun with an s."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def listed(names: Sequence[str], most: int = 5, joined_by: str = "and") -> str:
    """`a`, `a and b`, `a, b and c`; beyond `most` names the rest is counted: `a, b, c, d and 3 others`."""
    shown = list(names) if len(names) <= most else [*names[: most - 1], f"{len(names) - most + 1} others"]
    return f" {joined_by} ".join([", ".join(shown[:-1]), shown[-1]]) if len(shown) > 1 else "".join(shown)
