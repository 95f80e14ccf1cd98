"""Lengths of sequences: text with one integer per line, JSON lines with a length or `input_ids`, or a column of a CSV or Parquet file."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from armillary.errors import InputError
from armillary.files import Column, read_json_lines, read_lines, read_table

from ..simulation.schedule import IntArray
from ..workload import MOST_TOKENS

#: Sequences of one step; a step with more is a mistake.
MOST_SEQUENCES = 200_000


def read_lengths(path: Path, column: str = "length") -> IntArray:
    """Reads the lengths of the sequences of one step, in tokens; in tables and JSON lines they are called `column`."""
    name = path.name.casefold().removesuffix(".gz").removesuffix(".zst")
    if name.endswith((".jsonl", ".ndjson")):
        return _of_json_lines(path, column)
    if name.endswith((".csv", ".tsv", ".parquet", ".pq")):
        table = read_table(path, [Column(column, "int", unit="tokens", least=1, most=MOST_TOKENS)], row_limit=MOST_SEQUENCES)
        return table[column].astype(np.int64)
    found: list[int] = []
    for number, line in read_lines(path):
        text = line.strip()
        if not text:
            continue
        if not text.isascii() or not text.isdigit() or len(text) > 9 or not 1 <= int(text) <= MOST_TOKENS:
            raise InputError(f'found "{text[:40]}"; expected a whole number of tokens from 1 to {MOST_TOKENS:,}', where=f"{path}:{number}")
        found.append(int(text))
        _check_count(len(found), path)
    return _array(found, path)


def _of_json_lines(path: Path, column: str) -> IntArray:
    found: list[int] = []
    for line, row in read_json_lines(path):
        where = f"{path}:{line}"
        if column in row:
            length = row[column]
        elif isinstance(row.get("input_ids"), list):
            length = len(row["input_ids"])
        else:
            raise InputError(f"found neither {column} nor input_ids; expected one of them", where=where)
        if isinstance(length, bool) or not isinstance(length, int) or not 1 <= length <= MOST_TOKENS:
            raise InputError(f"found {str(length)[:40]} tokens; expected a whole number from 1 to {MOST_TOKENS:,}", where=where)
        found.append(length)
        _check_count(len(found), path)
    return _array(found, path)


def _check_count(count: int, path: Path) -> None:
    if count > MOST_SEQUENCES:
        raise InputError(f"more than {MOST_SEQUENCES:,} sequences; expected those of one step", where=str(path))


def _array(found: list[int], path: Path) -> IntArray:
    if not found:
        raise InputError("found no lengths; expected at least one", where=str(path))
    return np.array(found, np.int64)
