"""Rows of 32 bytes, which are encodings of bases or scalars, as raw bytes, JSON or CSV."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from armillary.errors import InputError, one_line
from armillary.files import Column, read_bytes, read_json, read_table
from armillary.trust.outsourcing.group.bases import MOST_TERMS, Bases, Scalars, as_scalars, words_of_bytes

Words = npt.NDArray[np.uint64]

HEX = re.compile(r"[0-9a-fA-F]{64}")
TABLES = (".csv", ".tsv", ".jsonl", ".parquet")


def read_bases(path: str | Path) -> Bases:
    """Bases from concatenated encodings (`.r255`), JSON (a list of hexadecimal strings, or `{"bases": [...]}`), or a table with `hex`."""
    words = read_rows(path, "bases")
    if not len(words):
        raise InputError("found no base; expected at least one", where=str(path))
    return Bases.from_bytes(words.astype("<u8").tobytes(), where=str(path))


def read_scalars(path: str | Path) -> Scalars:
    """Scalars below q, 32 bytes each, little-endian, in the same containers."""
    return as_scalars(read_rows(path, "scalars"), where=str(path))


def read_rows(path: str | Path, key: str) -> Words:
    """(n, 4) words of the rows in a file; `key` names their list in a JSON object."""
    where, name = str(path), str(path).lower().removesuffix(".gz").removesuffix(".zst")
    if name.endswith(".json"):
        return _of_hex(_listed(read_json(path), key, where), where)
    if name.endswith(TABLES):
        table = read_table(path, [Column("hex", "str", aliases=("encoding", key.removesuffix("s")))], row_limit=MOST_TERMS)
        for row, text in enumerate(table["hex"]):
            if not HEX.fullmatch(str(text)):
                raise table.error(row, f'found "{one_line(str(text), 70)}"; expected 64 hexadecimal digits', "hex")
        return words_of_bytes(bytes.fromhex("".join(map(str, table["hex"]))), where)
    # Any bytes may begin a row, those of a packed file too, so nothing is unpacked.
    return words_of_bytes(read_bytes(path, limit=32 * MOST_TERMS, unpack=False), where)


def _listed(found: Any, key: str, where: str) -> list[Any]:
    rows = found.get(key) if isinstance(found, dict) else found
    if not isinstance(rows, list):
        raise InputError(f'found no list; expected a list of hexadecimal strings, or an object with "{key}"', where=where)
    return rows


def _of_hex(rows: list[Any], where: str) -> Words:
    for i, text in enumerate(rows):
        if not isinstance(text, str) or not HEX.fullmatch(text):
            raise InputError(f'row {i}: found "{one_line(str(text), 70)}"; expected 64 hexadecimal digits', where=where)
    return words_of_bytes(bytes.fromhex("".join(rows)), where)
