"""Files that appear under their names only when they are complete."""

from __future__ import annotations

import gzip
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from armillary.errors import InputError


@contextmanager
def whole_files(paths: Iterable[Path]) -> Iterator[list[BinaryIO]]:
    """Opens files for writing, packed where a name ends in .gz; they replace older ones together, and only if nothing went wrong."""
    targets = list(paths)
    rooms = [path.with_name(path.name + ".partial") for path in targets]
    streams: list[BinaryIO] = []
    opened: list[BinaryIO] = []
    try:
        for path, room in zip(targets, rooms):
            raw: Any = open(room, "wb", buffering=0)  # noqa: SIM115
            opened.append(raw)
            packed: Any = gzip.GzipFile("", "wb", 1, raw, 0) if path.suffix == ".gz" else raw
            streams.append(packed)
        yield streams
        for stream in (*streams, *opened):
            stream.close()
        for path, room in zip(targets, rooms):
            os.replace(room, path)
    except BaseException as error:
        for one in opened:
            one.close()
        for room in rooms[: len(opened)]:
            room.unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise InputError(f"cannot be written: {error.strerror}", where=str(targets[0])) from None
        raise


def write_all(out: BinaryIO, data: bytes | memoryview) -> None:
    """Writes every byte, however many an unbuffered stream takes at once."""
    rest = memoryview(data)
    write: Callable[[memoryview], int] = out.write
    while rest:
        rest = rest[write(rest) :]
