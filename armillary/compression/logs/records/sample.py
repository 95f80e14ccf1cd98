"""A sample is eight evenly spaced runs of consecutive lines of a log, because matches occur between neighbours in time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from armillary.errors import InputError, one_line
from armillary.files import open_file

from .formats import Format
from .split import parse, take_header

STRETCHES = 8
MOST_EXCEPTIONS = 0.2


@dataclass(frozen=True)
class Sample:
    """All lines of a sample as they stand in the log; `starts` and `ends` are where the fields of each line that moves begin and end.

    Line i is data[begins[i]:begins[i + 1]]. `fits` marks the records, and `moves` the records and the headers whose names move with them.
    """

    format: Format
    data: np.ndarray
    begins: np.ndarray
    starts: np.ndarray
    ends: np.ndarray
    fits: np.ndarray
    moves: np.ndarray
    #: The line at which each stretch begins.
    stretches: tuple[int, ...]
    #: Lines of the sample that do not fit, with their number in it; comments and headers are not among them.
    exceptions: tuple[tuple[int, bytes], ...]
    #: Fitting and other lines, comments left out.
    lines: int

    def __len__(self) -> int:
        return int(self.fits.sum())

    @property
    def bytes(self) -> int:
        """Bytes of all lines, which no order of the fields changes."""
        return int(self.begins[-1] - self.begins[0])

    def records(self) -> tuple[np.ndarray, np.ndarray]:
        """Returns where the fields of the fitting lines begin and end."""
        return self.starts[self.fits], self.ends[self.fits]

    def part(self) -> Sample:
        """Returns the middle stretch, which is enough to see that an order is bad."""
        middle = len(self.stretches) // 2
        a = self.stretches[middle]
        b = self.stretches[middle + 1] if middle + 1 < len(self.stretches) else len(self.starts)
        begins, lines = self.begins[a : b + 1], slice(a, b)
        taken = self.starts[lines], self.ends[lines], self.fits[lines], self.moves[lines]
        return Sample(self.format, self.data, begins, *taken, (0,), (), b - a)


def read_sample(source: bytes | Path | str, sample_bytes: int = 4 << 20, stretches: int = STRETCHES) -> list[bytes]:
    """Reads the stretches of a log, each of whole lines; they are the whole log where it is no larger than the sample."""
    if sample_bytes <= 0:
        raise InputError(f"sample: found {sample_bytes} bytes; expected more than 0")
    if isinstance(source, bytes):
        return _stretches(len(source), sample_bytes, stretches, lambda at, size: source[at : at + size])
    with open_file(source, limit=None, unpack=False) as file:
        size = file.seek(0, 2)

        def read(at: int, length: int) -> bytes:
            file.seek(at)
            return file.read(length)

        return _stretches(size, sample_bytes, stretches, read)


def _stretches(size: int, sample_bytes: int, stretches: int, read: Callable[[int, int], bytes]) -> list[bytes]:
    if size <= sample_bytes:
        whole = read(0, size)
        cuts = [0]
        for i in range(1, stretches):
            at = whole.find(b"\n", max(cuts[-1], size * i // stretches - 1)) + 1
            cuts.append(at if at > 0 else size)
        return [whole[a:b] for a, b in zip(cuts, [*cuts[1:], size], strict=True) if b > a]
    length = max(1, sample_bytes // stretches)
    found = []
    for i in range(stretches):
        at = (size - length) * i // (stretches - 1) if stretches > 1 else 0
        piece = read(max(0, at - 1), length + 1)
        begin = 0 if at == 0 else piece.find(b"\n") + 1
        end = piece.rfind(b"\n") + 1
        if end > begin and (begin or at == 0):
            found.append(piece[begin:end])
    return found


def take_sample(
    source: bytes | Path | str, format: Format, sample_bytes: int = 4 << 20, *, lenient: bool = False, where: str | None = None
) -> Sample:
    """Takes a sample of a log, split into fields; raises InputError if more than a fifth of its lines do not fit, unless `lenient`.

    `where` names the file of a log that was read already.
    """
    where = where if isinstance(source, bytes) else str(source)
    pieces = read_sample(source, sample_bytes)
    data = np.frombuffer(b"".join(pieces), np.uint8)
    begins, starts, ends, fits = parse(data, format.fields, *format.code)
    comment = np.zeros(len(fits), np.bool_)
    if format.comments and len(fits):
        comment = data[np.minimum(begins[:-1], len(data) - 1)] == ord("#")
    bad = np.flatnonzero(~fits & ~comment)
    cuts, at = [], 0
    for piece in pieces:
        cuts.append(int(np.searchsorted(begins, at)))
        at += len(piece)
    exceptions = tuple((int(i), data[begins[i] : begins[i + 1]].tobytes()) for i in bad[:1000])
    lines = int((~comment).sum())
    if not fits.any():
        raise InputError(f"no line has the {format.fields} fields of {format.name}", where=where)
    if len(bad) > MOST_EXCEPTIONS * lines and not lenient:
        first = one_line(repr(exceptions[0][1][:60]), 80)
        raise InputError(
            f"{len(bad)} of {lines} lines of the sample do not have the {format.fields} fields of {format.name}, the first is {first}; "
            f"expected at most {MOST_EXCEPTIONS:.0%} (lenient leaves them alone)",
            where=where if where is None or len(pieces) > 1 else f"{where}:{exceptions[0][0] + 1}",
        )
    moves = fits.copy()
    for i in np.flatnonzero(comment).tolist():
        moves[i] = take_header(data, begins[i], begins[i + 1], format.code[1], starts[i], ends[i])
    stretches = tuple(sorted({cut for cut in cuts if cut < len(fits)}))
    return Sample(format, data, begins, starts, ends, fits, moves, stretches or (0,), exceptions, lines)
