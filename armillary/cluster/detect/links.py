"""Writes the links between the devices of one node as tables, whichever source reported them."""

from __future__ import annotations

from typing import Any


def pair_tables(kind: str, rates: dict[tuple[int, int], float], devices: int) -> list[dict[str, Any]]:
    """The `link` tables of devices that are joined pair by pair: one table per rate (bytes/s in each direction), or all-to-all if every
    pair is equal.
    """
    tables: list[dict[str, Any]] = []
    for rate in sorted(set(rates.values()), reverse=True):
        pairs = sorted([list(pair) for pair, value in rates.items() if value == rate])
        every = len(pairs) == devices * (devices - 1) // 2
        table: dict[str, Any] = {"kind": kind, "topology": "all-to-all" if every else "pairs", "between": "device", "rate": rate}
        tables.append(table if every else {**table, "pairs": pairs})
    return tables
