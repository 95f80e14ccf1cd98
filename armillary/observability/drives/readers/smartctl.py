"""Documents of `smartctl --json -a`: one drive at one time each. NVMe drives report the same things under other names."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import numpy as np

from armillary.errors import InputError, one_line
from armillary.files import read_json

from ..fleets.fleet import NEVER, Fleet, assembled, check

DOCUMENTS = 200_000
#: What the health log of NVMe says, by the attribute that means the same; the normalised value where there is one.
NVME = {
    "power_on_hours": 9, "power_cycles": 12, "available_spare": 170, "unsafe_shutdowns": 174, "media_errors": 187, "temperature": 194,
    "percentage_used": 233, "data_units_written": 241, "data_units_read": 242,
}  # fmt: skip


def read_smartctl(paths: str | Path | Iterable[str | Path]) -> Fleet:
    """A fleet of what `smartctl --json -a` said, from a document, a folder of documents, or some of them.

    No failure is known. The latest document of a drive and day (UTC) counts.
    """
    named = [Path(paths)] if isinstance(paths, str | Path) else [Path(one) for one in paths]
    files = [file for one in named for file in (sorted(one.rglob("*.json")) if one.is_dir() else [one])]
    where = str(named[0]) if named else "smartctl"
    if not files or len(files) > DOCUMENTS:
        raise InputError(f"found {len(files):,} documents; expected 1 to {DOCUMENTS:,} files .json", where=where)
    latest: dict[tuple[str, str, date], tuple[int, dict[int, tuple[float, float]]]] = {}
    for file in files:
        model, serial, at, values = _document(read_json(file), str(file))
        key = model, serial, datetime.fromtimestamp(at, UTC).date()
        if key not in latest or latest[key][0] <= at:
            latest[key] = at, values
    drives = sorted({(model, serial) for model, serial, _ in latest})
    models = sorted({model for model, _ in drives})
    attributes = sorted({a for _, values in latest.values() for a in values})
    number = {key: i for i, key in enumerate(drives)}
    first, final = min(day for _, _, day in latest), max(day for _, _, day in latest)
    raw = np.full((len(latest), len(attributes)), np.nan)
    normal = np.full(raw.shape, np.nan, np.float32)
    for row, (_, values) in enumerate(latest.values()):
        for a, (value, shown) in values.items():
            raw[row, attributes.index(a)], normal[row, attributes.index(a)] = value, shown
    days = (final - first).days + 1
    fleet = assembled(
        models, np.array([models.index(model) for model, _ in drives]), [serial for _, serial in drives],
        np.array([number[model, serial] for model, serial, _ in latest]), np.array([(day - first).days for _, _, day in latest]),
        np.array(attributes), raw, normal, np.full(len(drives), NEVER, np.int64), days=days, known_until=days, first_date=str(first),
        notes=("smartctl does not say which drives failed",),
    )  # fmt: skip
    return check(fleet, where)


def _document(document: Any, where: str) -> tuple[str, str, int, dict[int, tuple[float, float]]]:
    """(model, serial number, seconds since 1970, raw and normalised value by attribute)."""
    if not isinstance(document, dict):
        raise InputError("expected a document of smartctl --json -a", where=where)
    model, serial = (_text(document, name, where) for name in ("model_name", "serial_number"))
    at = _in(document, "local_time").get("time_t")
    if not isinstance(at, int) or isinstance(at, bool) or not 0 <= at < 1 << 33:
        raise InputError(f"local_time.time_t: found {_shown(at)}; expected seconds since 1970", where=where)
    table = _in(document, "ata_smart_attributes").get("table")
    health = document.get("nvme_smart_health_information_log")
    if isinstance(table, list):
        return model, serial, at, _ata(table, where)
    if isinstance(health, dict):
        return model, serial, at, _nvme(health, where)
    raise InputError("found neither ata_smart_attributes.table nor nvme_smart_health_information_log; expected one of them", where=where)


def _ata(table: list[Any], where: str) -> dict[int, tuple[float, float]]:
    found: dict[int, tuple[float, float]] = {}
    for i, row in enumerate(table):
        at = f"{where}: ata_smart_attributes.table[{i}]"
        a = row.get("id") if isinstance(row, dict) else None
        if not isinstance(a, int) or isinstance(a, bool) or not 1 <= a <= 255:
            raise InputError(f"id: found {_shown(a)}; expected a number from 1 to 255", where=at)
        if a in found:
            raise InputError(f"found attribute {a} again; expected it once", where=at)
        raw = _in(row, "raw").get("value")
        shown = row.get("value")
        found[a] = (np.nan if raw is None else _number(raw, "raw.value", at), np.nan if shown is None else _number(shown, "value", at))
    return found


def _nvme(health: dict[str, Any], where: str) -> dict[int, tuple[float, float]]:
    found: dict[int, tuple[float, float]] = {}
    for name, a in NVME.items():
        if health.get(name) is not None:
            value = _number(health[name], f"nvme_smart_health_information_log.{name}", where)
            shown = {"available_spare": value, "percentage_used": max(0.0, 100 - value)}.get(name, np.nan)
            found[a] = value, shown
    return found


def _in(document: dict[str, Any], name: str) -> dict[str, Any]:
    found = document.get(name)
    return found if isinstance(found, dict) else {}


def _text(document: dict[str, Any], name: str, where: str) -> str:
    found = document.get(name)
    if not isinstance(found, str) or not found.strip():
        raise InputError(f"{name}: found {_shown(found)}; expected text", where=where)
    return one_line(found.strip(), 200)


def _number(value: Any, name: str, where: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < 1 << 128:
        raise InputError(f"{name}: found {_shown(value)}; expected a number", where=where)
    return float(value)


def _shown(value: Any) -> str:
    return "nothing" if value is None else one_line(repr(value), 60)
