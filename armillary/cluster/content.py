"""A cluster as plain tables again, for TOML, JSON and the digest."""

from __future__ import annotations

import hashlib
import json
from typing import Any, Literal

from armillary.cluster.edges import EdgeList
from armillary.cluster.fields import Table
from armillary.cluster.traces import Trace
from armillary.cluster.units import Count, Quantity

#: The forms of a quantity: `text` has units, as a person writes them; `number` is in base units; `exact` is for the digest, with files by
#: their content.
Form = Literal["text", "number", "exact"]


def tables(thing: Table, form: Form = "text") -> dict[str, Any]:
    """The keys of `thing` that are known and not the default, in the order of the schema."""
    found = {}
    for name, field in type(thing).model_fields.items():
        value = getattr(thing, name)
        if value is None or (value == field.default and getattr(value, "source", None) is None):
            continue
        plain = _plain(value, form)
        if name == "switches_per_group" and len(plain) == 1:
            plain = plain[0]
        if plain not in ({}, []):
            found[field.alias or name] = plain
    return found


def _plain(value: Any, form: Form) -> Any:
    if isinstance(value, Quantity):
        return _quantity(value, form)
    if isinstance(value, Count):
        return int(value) if value.source is None else {"value": int(value), "source": value.source}
    if isinstance(value, Table):
        return tables(value, form)
    if isinstance(value, tuple | list):
        return [_plain(entry, form) for entry in value]
    if isinstance(value, dict):
        return {key: _plain(entry, form) for key, entry in value.items()}
    if isinstance(value, Trace):
        return value.digest if form == "exact" else {"trace": str(value.path.resolve()), **_gaps(value)}
    if isinstance(value, EdgeList):
        return value.digest if form == "exact" else str(value.path.resolve())
    return value


def _gaps(trace: Trace) -> dict[str, Any]:
    return {} if trace.gaps == 86400.0 else {"gaps": trace.gaps}


def _quantity(value: Quantity, form: Form) -> Any:
    def number(x: float) -> Any:
        if not value.unit:
            return int(x) if x.is_integer() and abs(x) < 2**53 and form == "text" else float(x)
        if form == "exact":
            return [float(x), value.unit]
        priced = len(value.unit) >= 3 and value.unit[:3].isupper() and value.unit[3:4] in ("", "/") and value.unit not in ("OPS", "IPS")
        return Quantity(x, value.unit).text if form == "text" or priced else float(x)

    if value.source is None and value.measured is None:
        return number(float(value))
    table = {"value": number(float(value))}
    if value.measured is not None:
        table["measured"] = number(value.measured)
    if value.source is not None:
        table["source"] = value.source
    return table


def digest_of(thing: Table) -> str:
    """Hex SHA-256 of everything that `thing` states; it is the same in every process and changes when any number changes."""
    text = json.dumps(tables(thing, "exact"), sort_keys=True, ensure_ascii=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()
