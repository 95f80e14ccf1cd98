"""The bytes of a trace file in bounded pieces, unpacked where its name ends in .gz or .zst.

The ending decides, because a file of records may begin with any bytes. How much a file unpacks to is not bounded: a trace of one
object alone is a sound trace, and nothing but the piece at hand is kept.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from armillary.errors import InputError
from armillary.files import check_readable, open_file

PIECE_BYTES = 2**20
#: Bytes of the longest line that is read, its end not counted.
LINE_BYTES = 2**16
PACKED = (".gz", ".zst")


def check_file(path: Path) -> int:
    """The number of bytes in the file `path`; an error if it is no regular file or is empty."""
    length = check_readable(path).st_size
    if not length:
        raise InputError("found an empty file; expected at least one request", where=str(path))
    return length


def pieces(path: Path) -> Iterator[bytes]:
    """The content of `path`, in pieces of at most 1 MiB."""
    with open_file(path, limit=None, unpack=path.suffix.lower() in PACKED, ratio=math.inf) as file:
        while piece := file.read(PIECE_BYTES):
            yield piece


def whole_lines(path: Path) -> Iterator[tuple[np.ndarray, int]]:
    """uint8[≤ 1 MiB + one line] of whole lines, each with its end, and the number (from 1) of the first of them.

    The byte-order mark that some programs put before UTF-8 text is left out.
    """
    line = 1
    rest = b""
    mark = b"\xef\xbb\xbf"
    for piece in pieces(path):
        part, mark = rest + piece.removeprefix(mark), b""
        cut = part.rfind(b"\n") + 1
        rest = part[cut:]
        if len(rest) > LINE_BYTES + 1:
            at = line + part.count(b"\n")
            raise InputError(f"found a line of more than {LINE_BYTES} bytes; expected shorter lines of text", where=f"{path}:{at}")
        if cut:
            yield np.frombuffer(part, np.uint8, cut), line
            line += part.count(b"\n")
    if rest:
        yield np.frombuffer(rest + b"\n", np.uint8), line
