"""Rows of many days in the order of drives, with bounded memory.

Days come one after another, and a fleet needs the days of a drive together. Rows are kept in memory up to a bound. Beyond it they are
spread over Parquet files by drive, so that all rows of a drive stand in one file; at the end each file is sorted by itself. So memory holds
the bound, or one of these files. A folder for them can be kept, and then the next reading begins from it.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from armillary.errors import InputError
from armillary.files import Column, read_json, read_table

from .columns import NAN

if TYPE_CHECKING:
    import polars as pl

#: Bytes of rows in memory before they are spread over files, and the number of files.
BOUND, FILES = 1 << 28, 32
#: Rows of one file at the end. The layout of the files, written beside them.
ROWS_PER_FILE, LAYOUT = 200_000_000, 1
KEYS = ("model", "serial", "day", "failure")


class Gathering:
    """Takes frames of rows with the columns model, serial, day, r_* and n_*; gives frames of whole drives.

    `attributes` are those of the columns; `kept` is the folder in which the sorted files stay, if it is given.
    """

    def __init__(self, attributes: Sequence[int], kept: Path | None = None, bound: int = BOUND) -> None:
        self.attributes, self.kept, self.bound = tuple(attributes), kept, bound
        #: Rows in memory, and their bytes; the folder of the files once there is one.
        self._frames: list[pl.DataFrame] = []
        self._bytes, self._sorted = 0, False
        self._folder: Path | None = None
        self._pieces = 0

    def __enter__(self) -> Gathering:
        return self

    def __exit__(self, *_: object) -> None:
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)

    @property
    def spread(self) -> bool:
        """Whether rows went to files."""
        return self._folder is not None

    def add(self, frame: pl.DataFrame) -> None:
        """Takes some rows of one day."""
        self._frames.append(frame)
        self._sorted = False
        self._bytes += int(frame.estimated_size())
        if self._bytes > self.bound:
            self._spread()

    def parts(self, values: bool = True) -> Iterator[pl.DataFrame]:
        """Frames of whole drives, sorted by model, serial and day, with or without their values; as often as one likes."""
        import polars as pl

        if self._folder is None and self.kept is None:
            if self._frames:
                if len(self._frames) > 1 or not self._sorted:
                    self._frames, self._sorted = [pl.concat(self._frames).sort("model", "serial", "day")], True
                yield self._frames[0]
            return
        self._spread()
        assert self._folder is not None
        for i in range(FILES):
            sorted_file = self._folder / f"drives-{i:02d}.parquet"
            if not sorted_file.exists():
                pieces = sorted(self._folder.glob(f"piece-*-{i:02d}.parquet"))
                if not pieces:
                    continue
                pl.concat([pl.read_parquet(piece) for piece in pieces]).sort("model", "serial", "day").write_parquet(sorted_file)
                for piece in pieces:
                    piece.unlink()
            yield pl.read_parquet(sorted_file, columns=None if values else list(KEYS))

    def keep(self, source: str, notes: Sequence[str]) -> None:
        """Moves the sorted files to the folder that was asked for, with what they were made from."""
        if self.kept is None:
            return
        for _ in self.parts(values=False):
            pass
        assert self._folder is not None
        facts = {"layout": LAYOUT, "source": source, "attributes": list(self.attributes), "notes": list(notes)}
        (self._folder / "log.json").write_text(json.dumps(facts))
        try:
            self.kept.parent.mkdir(parents=True, exist_ok=True)
            if self.kept.exists():
                _refuse_foreign(self.kept)
                shutil.rmtree(self.kept)
            os.replace(self._folder, self.kept)
        except OSError as error:
            raise InputError(f"cannot be written ({error.strerror})", where=str(self.kept)) from None
        self._folder = None

    def _spread(self) -> None:
        import polars as pl

        if self._folder is None:
            where = None if self.kept is None else self.kept.parent
            try:
                if where is not None:
                    where.mkdir(parents=True, exist_ok=True)
                self._folder = Path(tempfile.mkdtemp(prefix=".armillary-", dir=where))
            except OSError as error:
                raise InputError(f"cannot be written ({error.strerror})", where=str(where)) from None
        if not self._frames:
            return
        whole = pl.concat(self._frames)
        self._frames, self._bytes = [], 0
        which = (pl.struct("model", "serial").hash(seed=1) % FILES).alias("file")
        for (number,), part in whole.with_columns(which).partition_by("file", as_dict=True, include_key=False).items():
            part.write_parquet(self._folder / f"piece-{self._pieces:05d}-{int(number):02d}.parquet")
        self._pieces += 1


class Kept:
    """The sorted files of an earlier reading."""

    def __init__(self, folder: Path, attributes: tuple[int, ...], notes: tuple[str, ...]) -> None:
        self.folder, self.attributes, self.notes = folder, attributes, notes

    def parts(self, values: bool = True) -> Iterator[pl.DataFrame]:
        """Frames of whole drives, as `Gathering` gives them."""
        told = [Column(f"{half}_{a}", default=NAN, finite=False) for a in self.attributes for half in ("r", "n")]
        names = [Column("model", "str"), Column("serial", "str"), Column("day", "int", least=0, most=1 << 20)]
        for file in sorted(self.folder.glob("drives-*.parquet")):
            columns = [*names, Column("failure", "bool"), *(told if values else ())]
            yield read_table(file, columns, row_limit=ROWS_PER_FILE).frame.sort("model", "serial", "day")


def kept(folder: Path, source: str, attributes: tuple[int, ...]) -> Kept | None:
    """The files in a folder, if they were made from this source; a folder that holds anything else is refused."""
    if not folder.exists():
        return None
    facts = _refuse_foreign(folder)
    if facts.get("source") != source or facts.get("attributes") != list(attributes) or facts.get("layout") != LAYOUT:
        return None
    notes = facts.get("notes")
    return Kept(folder, attributes, tuple(str(one) for one in notes) if isinstance(notes, list) else ())


def _refuse_foreign(folder: Path) -> dict[str, Any]:
    """What `log.json` says; raises InputError unless the folder holds sorted files of this module, or nothing."""
    if folder.is_dir() and not any(folder.iterdir()):
        return {}
    facts = read_json(folder / "log.json") if folder.is_dir() and (folder / "log.json").is_file() else None
    wrong = facts is None or any(one.name != "log.json" and not one.match("drives-*.parquet") for one in folder.iterdir())
    if wrong or not isinstance(facts, dict):
        raise InputError(
            "found something else than a kept log; expected an empty folder, or one that an earlier reading made", where=str(folder)
        )
    return facts
