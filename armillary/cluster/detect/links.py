"""How the links between devices of one node are written down, whoever reported them."""

from __future__ import annotations

from typing import Any


def pair_tables(kind: str, rates: dict[tuple[int, int], float], devices: int) -> list[dict[str, Any]]:
    """`link` tables of what joins devices pair by pair: a table a rate (bytes/s each way), all-to-all where every pair is alike."""
    tables: list[dict[str, Any]] = []
    for rate in sorted(set(rates.values()), reverse=True):
        pairs = sorted([list(pair) for pair, value in rates.items() if value == rate])
        every = len(pairs) == devices * (devices - 1) // 2
        table: dict[str, Any] = {"kind": kind, "topology": "all-to-all" if every else "pairs", "between": "device", "rate": rate}
        tables.append(table if every else {**table, "pairs": pairs})
    return tables
