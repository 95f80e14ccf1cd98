"""`extends` and the catalogue of parts: merges the tables of a file over those that it starts from.

Tables merge key by key. An entry of an array of tables replaces or refines the entry with the same name (or, where entries have no name,
the only one of the same kind or network); an entry that is new is added. A number with its source is one value and is replaced as a whole.
"""

from __future__ import annotations

import tomllib
from functools import cache
from pathlib import Path
from typing import Any

#: The keys that identify an entry in an array of tables; the first one that is present counts.
_IDENTITIES = ("name", "kind", "network", "level")
_PARTS = Path(__file__).parent / "parts"


def merged(under: Any, over: Any) -> Any:
    """`over` merged over `under`; neither is changed."""
    if isinstance(under, dict) and isinstance(over, dict):
        if _is_value(under) or _is_value(over) or _changes_topology(under, over):
            return over
        return {**under, **{k: merged(under[k], v) if k in under else v for k, v in over.items()}}
    if _is_tables(under) and _is_tables(over):
        return _merged_arrays(under, over)
    return over


def _is_value(table: dict[str, Any]) -> bool:
    return "value" in table or "trace" in table or set(table) == {"up", "down"}


def _changes_topology(under: dict[str, Any], over: dict[str, Any]) -> bool:
    return "topology" in under and "topology" in over and under["topology"] != over["topology"] and "between" not in under


def _is_tables(entry: Any) -> bool:
    return isinstance(entry, list) and bool(entry) and all(isinstance(x, dict) for x in entry)


def _merged_arrays(under: list[dict[str, Any]], over: list[dict[str, Any]]) -> list[dict[str, Any]]:
    result = list(under)
    for entry in over:
        at = _same(result[: len(under)], entry)
        if at is None:
            result.append(entry)
        else:
            result[at] = merged(result[at], entry)
    return result


def _same(entries: list[dict[str, Any]], wanted: dict[str, Any]) -> int | None:
    """The index of the entry that `wanted` refines, or None if it is new."""
    for identity in _IDENTITIES:
        if identity in wanted:
            found = [i for i, e in enumerate(entries) if e.get(identity) == wanted[identity]]
            if len(found) == 1:
                return found[0]
            if found or identity == "name":
                return None
    named = any(identity in wanted for identity in _IDENTITIES)
    return 0 if len(entries) == 1 and not named else None


def with_parts(data: dict[str, Any]) -> dict[str, Any]:
    """`data` with the sockets and devices whose `model` is in the catalogue completed from it; what the file itself states stays."""
    groups = data.get("group")
    if not isinstance(groups, list):
        return data
    return {**data, "group": [_group_with_parts(g) for g in groups]}


def _group_with_parts(group: Any) -> Any:
    node = group.get("node") if isinstance(group, dict) else None
    if not isinstance(node, dict):
        return group
    filled = {k: [_filled(k, e) for e in node[k]] for k in ("socket", "device") if isinstance(node.get(k), list)}
    return {**group, "node": {**node, **filled}}


def _filled(table: str, entry: Any) -> Any:
    model = entry.get("model") if isinstance(entry, dict) else None
    part = _catalogue()[table].get(part_name(model)) if isinstance(model, str) else None
    if part is None or ("cores" in entry and "cores" in part and _plain(entry["cores"]) != _plain(part["cores"])):
        return entry  # A virtual machine that names the processor of its host has a slice of it, not its caches and bandwidth.
    return merged(part, entry)


def _plain(number: Any) -> Any:
    return number.get("value") if isinstance(number, dict) else number


def part_keys(model: str) -> tuple[str, ...]:
    """The keys that the catalogue fills in for a model; none if the model is unknown."""
    found = (_catalogue()[table].get(part_name(model)) for table in ("socket", "device"))
    return tuple(key for part in found if part is not None for key in part)


def part_name(model: str) -> str:
    """The name of a model as the catalogue spells it: in lower case, with words joined by hyphens."""
    return "-".join("".join(c if c.isalnum() or c == "+" else " " for c in model[:200].lower()).split())


@cache
def _catalogue() -> dict[str, dict[str, dict[str, Any]]]:
    """{"socket" | "device": {name: table}}; a part appears under its name and under each of its other names."""
    found: dict[str, dict[str, dict[str, Any]]] = {"socket": {}, "device": {}}
    for path in sorted(_PARTS.glob("*.toml")):
        tables = tomllib.loads(path.read_text(encoding="utf-8"))
        for table, entries in tables.items():
            for name, entry in entries.items():
                part = {k: v for k, v in entry.items() if k != "also"}
                for known in (name, *entry.get("also", ())):
                    found[table][part_name(known)] = part
    return found


def parts() -> dict[str, tuple[str, ...]]:
    """The names that `model` may have, as `{"socket": (…), "device": (…)}`, with each part once under its own name."""
    return {table: tuple(sorted({_own_name(table, part) for part in entries.values()})) for table, entries in _catalogue().items()}


def _own_name(table: str, part: dict[str, Any]) -> str:
    return next(name for name, other in _catalogue()[table].items() if other is part)
