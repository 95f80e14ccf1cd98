"""Which directories of a tree would be served from one granule, and which are too large."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from armillary.errors import InputError

if TYPE_CHECKING:
    import polars as pl


def advise(tree: str | os.PathLike[str], granule: int = 4096, *, tiny: int = 5, chain: int = 16) -> pl.DataFrame:
    """Returns one row per directory of a folder or of `find -printf` output: path, children, granules, advice, the largest first.

    `granules` is the number that a listing touches in MDSec's packed layout, a fraction for directories that share one. The advice is
    "shared" (at most `tiny` records, in a granule with siblings), "one granule", "several granules", or "hashed" (more than `chain`
    granules, which is worth splitting up if the directory is listed often).
    """
    import polars as pl

    from ..readers.trees import read_find, scanned

    root = Path(tree)
    if not root.exists():
        raise InputError("no such file or folder", where=str(tree))
    group = max(granule, 4096)
    if group > 16384 or granule < 64 or granule & (granule - 1):
        raise InputError(f"granule: found {granule}; expected a power of two from 64 to 16384")
    slots = group // 256 - 1
    records: Counter[bytes] = Counter()
    children: Counter[bytes] = Counter()
    for path, is_directory, *_ in scanned(root) if root.is_dir() else read_find(root):
        above, _, name = path.rstrip(b"/").rpartition(b"/")
        children[above] += 1
        # A name beyond 140 bytes takes a second record.
        records[above] += 2 if len(name) > 140 else 1
        if is_directory:
            children[path.rstrip(b"/")] += 0
            records[path.rstrip(b"/")] += 0
    rows = []
    for path, count in children.items():
        n = records[path]
        granules = n / slots if n <= tiny else float(-(-n // slots))
        says = "shared" if n <= tiny else "one granule" if n <= slots else "several granules" if n <= slots * chain else "hashed"
        rows.append((path.decode(errors="replace") or ".", count, granules, says))
    schema = {"path": pl.String, "children": pl.Int64, "granules": pl.Float64, "advice": pl.String}
    return pl.DataFrame(rows, schema=schema, orient="row").sort("children", "path", descending=[True, False])
