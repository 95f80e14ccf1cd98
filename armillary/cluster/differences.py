"""The differences between two clusters, in words."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from armillary.cluster.units import shown

if TYPE_CHECKING:
    from armillary.cluster.cluster import Cluster


def diff(a: Cluster, b: Cluster) -> str:
    """One line per key that differs, such as `group.gpu.count: 32 became 64 (×2)`; empty if the machines are equal."""
    return "\n".join(differences(a, b))


def differences(a: Cluster, b: Cluster) -> list[str]:
    """The lines of `diff`; another source is not a difference between the machines."""
    return list(_tables(a.to_dict(), b.to_dict(), ""))


def _tables(a: Any, b: Any, at: str) -> Any:
    a, b = _value(a), _value(b)
    if isinstance(a, dict) and isinstance(b, dict):
        for key in dict.fromkeys((*a, *b)):
            path = f"{at}.{key}" if at else str(key)
            if key not in b:
                yield f"{path}: {_words(a[key])} is gone"
            elif key not in a:
                yield f"{path}: {_words(b[key])} is new"
            else:
                yield from _tables(a[key], b[key], path)
    elif _are_tables(a) and _are_tables(b):
        left, right = _named(a), _named(b)
        for name in dict.fromkeys((*left, *right)):
            path = at if len(left) == len(right) == 1 and name in left and name in right and "name" not in left[name] else f"{at}.{name}"
            if name not in right:
                yield f"{path}: is gone"
            elif name not in left:
                yield f"{path}: is new"
            else:
                yield from _tables(left[name], right[name], path)
    elif a != b:
        yield f"{at}: {_words(a)} became {_words(b)}{_factor(a, b)}"


def _value(entry: Any) -> Any:
    """The number of `{value, source}`, because another source does not change the machine."""
    return entry["value"] if isinstance(entry, dict) and "value" in entry else entry


def _are_tables(entry: Any) -> bool:
    return isinstance(entry, list) and bool(entry) and isinstance(entry[0], dict)


def _named(entries: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for i, entry in enumerate(entries):
        name = str(entry.get("name") or entry.get("kind") or entry.get("network") or i)
        found[name if name not in found else f"{name}[{i}]"] = entry
    return found


def _words(entry: Any) -> str:
    entry = _value(entry)
    if isinstance(entry, str):
        return entry if len(entry) <= 60 else entry[:59] + "…"
    if isinstance(entry, list):
        return "[" + ", ".join(_words(x) for x in entry[:8]) + ("…]" if len(entry) > 8 else "]")
    return shown(entry)


def _factor(a: Any, b: Any) -> str:
    """` (×1.76)` for two numbers, with or without units."""
    x, y = _number(a), _number(b)
    return f" (×{y / x:.3g})" if x and y and x > 0 else ""


def _number(entry: Any) -> float | None:
    from armillary.cluster.units import DIMENSIONS, UnitError, read

    if isinstance(entry, bool):
        return None
    if isinstance(entry, int | float):
        return float(entry)
    if isinstance(entry, str) and entry[:1].isdigit():
        for dimension in DIMENSIONS:
            try:
                return float(read(entry, dimension))
            except UnitError:
                continue
    return None
