"""Documents of a user: plain text, or a table whose column `text` holds one document per row."""

from __future__ import annotations

import re
from pathlib import Path

from armillary.errors import InputError
from armillary.files import Column, read_table, read_text

#: Bytes that are read at most, and documents.
MOST_BYTES = 64 << 20
MOST_DOCUMENTS = 1_000_000
KINDS = ("txt", "jsonl", "parquet")


def read_documents(path: Path) -> tuple[bytes, ...]:
    """The documents of a `.txt` file (paragraphs, which blank lines divide), or of the column `text` of `.jsonl` or `.parquet`."""
    kind = next((kind for kind in KINDS if f".{kind}" in [suffix.lower() for suffix in path.suffixes[-2:]]), "")
    if not kind:
        expected = "UTF-8 text (.txt), or a table with a column text (.jsonl or .parquet)"
        raise InputError(f'found "{path.name}"; expected {expected}', where=str(path))
    if kind == "txt":
        texts = re.split(r"\n\s*\n", read_text(path, limit=MOST_BYTES))
    else:
        table = read_table(path, [Column("text", "str", strip=False)], limit=MOST_BYTES, row_limit=MOST_DOCUMENTS)
        texts = [str(text) for text in table["text"]]
    found = tuple(text.encode() + b"\n" for text in texts if text.strip())
    if not found:
        raise InputError("found no text; expected at least one document", where=str(path))
    return found
