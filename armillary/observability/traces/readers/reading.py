"""Files of either kind, told apart by their first bytes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from armillary.errors import InputError
from armillary.files import read_head

from ..run.merging import merged
from ..run.model import Run
from .kineto import read_kineto
from .nsys import read_nsys

#: Reports in one folder that are accepted.
REPORTS = 10_000
_ENDINGS = (".sqlite", ".json", ".json.gz", ".json.zst")


def read_trace(path: str | Path) -> Run:
    """Reads one file: an export of Nsight Systems, or a trace of PyTorch's profiler."""
    path = Path(path)
    if path.suffix in (".nsys-rep", ".qdrep", ".qdstrm") or read_head(path, 16).startswith(b"SQLite format 3\0"):
        return read_nsys(path)
    return read_kineto(path)


def read_run(path: str | Path, *, align: bool = True) -> Run:
    """Reads one file, or merges all exports and traces in a folder."""
    return merged([read_trace(one) for one in reports_in(Path(path))], align=align, spare=True)


def reports_in(path: Path) -> list[Path]:
    """The file itself, or the exports and traces in a folder, by name."""
    if not path.is_dir():
        return [path]
    found = sorted(one for one in path.iterdir() if one.is_file() and one.name.endswith(_ENDINGS))
    if not 0 < len(found) <= REPORTS:
        what = f"found {len(found)} files that end in {', '.join(_ENDINGS)}"
        raise InputError(f"{what}; expected from 1 to {REPORTS:,} exports or traces", where=str(path))
    return found


def read_reports(paths: Sequence[Path], *, align: bool = True) -> Run:
    """Reads and merges several files and folders."""
    found = [one for path in paths for one in reports_in(path)]
    return merged([read_trace(one) for one in found], align=align, spare=True)
