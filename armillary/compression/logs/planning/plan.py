"""A plan is the order in which the fields of a log are written; it can be applied to a stream and undone.

The reordered log is still a log: names in a header move with their fields, and lines that do not fit (comments, other field counts,
broken quotes) stay as they are and where they are. The plan itself is one line of JSON beside the log, or (`embed`) a comment in front of
it.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from armillary.errors import InputError, one_line
from armillary.files import open_file, read_bytes

from ..records.formats import Format, _names
from ..records.split import LONGEST_LINE, reorder

CHUNK = 4 << 20
EMBED = b"#armillary-cfseq "
#: What stands in place of a plan in front of a log whose fields keep their order.
UNCHANGED = EMBED + b"unchanged\n"
#: A sidecar is a few kilobytes; more is something else.
MOST_SIDECAR = 1 << 20
#: Formats whose names stand in the file, so that a plan for other names is noticed.
WITH_HEADER = ("zeek", "w3c", "csv", "tsv", "netflow")
#: Share of the planned gain that may be lost on a later file before a new plan is worth making.
DRIFT = 0.3


@dataclass(frozen=True)
class Applied:
    """Counts of one pass over a log: lines, lines left alone (without comments), the number of the first of those or -1, and bytes."""

    lines: int
    exceptions: int
    first_exception: int
    bytes: int


@dataclass(frozen=True)
class Plan:
    """An order of the fields of a format. `order[i]` is the field (counted as in the original) that is written in place i."""

    format: Format
    order: tuple[int, ...]
    compressor: str = "zstd-3"
    #: Ratio with the plan over ratio without, less 1, on the sample and with the real compressor.
    estimated_gain: float = 0.0
    #: SHA-256 of the original names, empty where the file holds none.
    header: str = ""
    #: What the search did; not part of the sidecar.
    search_s: float = field(default=0.0, compare=False)
    tried: int = field(default=0, compare=False)
    ended_early: bool = field(default=False, compare=False)

    def __post_init__(self) -> None:
        if sorted(self.order) != list(range(self.format.fields)):
            raise InputError(
                f"plan: found the order {one_line(str(list(self.order)), 80)}; expected each of 0 to {self.format.fields - 1} once"
            )

    @property
    def names(self) -> tuple[str, ...]:
        """The fields' names in the order written; places where the log has no names."""
        known = self.format.names or tuple(str(i) for i in range(self.format.fields))
        return tuple(known[i] for i in self.order)

    @property
    def moves(self) -> bool:
        """Whether any field changes its place."""
        return self.order != tuple(range(self.format.fields))

    def to_json(self) -> str:
        """Returns the plan as one line of JSON."""
        what = {
            "armillary": "cfseq", "version": 1, "format": self.format.to_json(), "permutation": list(self.order), "header": self.header,
            "compressor": self.compressor, "estimated_gain": self.estimated_gain,
        }  # fmt: skip
        return json.dumps(what, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str | bytes, where: str = "plan") -> Plan:
        """Reads a plan as `save` and `embed` write it; raises InputError where it is none."""
        try:
            found = json.loads(text)
        except (ValueError, RecursionError):
            raise InputError(f"found {one_line(repr(text[:40]), 60)}; expected a plan as one line of JSON", where=where) from None
        if not isinstance(found, dict) or found.get("armillary") != "cfseq":
            raise InputError('found no {"armillary": "cfseq"}; expected a plan', where=where)
        if found.get("version") != 1:
            raise InputError(f"found version {one_line(str(found.get('version')), 20)}; expected 1", where=where)
        order = found.get("permutation")
        if not isinstance(order, list) or not all(type(i) is int for i in order):
            raise InputError(f"permutation: found {one_line(str(order), 60)}; expected a list of whole numbers", where=where)
        gain = found.get("estimated_gain", 0.0)
        if not isinstance(gain, int | float):
            raise InputError(f"estimated_gain: found {one_line(str(gain), 40)}; expected a number", where=where)
        made = Format.from_json(found.get("format"), where)
        return cls(made, tuple(order), str(found.get("compressor", "")), float(gain), str(found.get("header", "")))

    def save(self, path: Path | str) -> None:
        """Writes the sidecar."""
        Path(path).write_text(self.to_json() + "\n")

    @classmethod
    def load(cls, path: Path | str) -> Plan:
        """Reads a sidecar."""
        return cls.from_json(read_bytes(path, limit=MOST_SIDECAR, unpack=False), str(path))

    def transform_bytes(self, data: bytes, *, embed: bool = False) -> bytes:
        """Reorders a log in memory."""
        stream = Reorder(self)
        return (self.comment() if embed else b"") + stream.feed(data) + stream.end()

    def inverse_bytes(self, data: bytes) -> bytes:
        """Restores the original log from a reordered one without an embedded plan."""
        stream = Reorder(self, inverse=True)
        return stream.feed(data) + stream.end()

    def comment(self) -> bytes:
        """Returns the leading comment that `embed` writes: only what the inverse needs, because its bytes count in a small log."""
        form = self.format
        what = [2, form.name, form.grammar, form.separator, form.comments, list(self.order)]
        return EMBED + json.dumps(what, separators=(",", ":")).encode() + b"\n"

    def transform(self, src: Path | str | BinaryIO, dst: Path | str | BinaryIO, *, embed: bool = False) -> Applied:
        """Writes the log `src` reordered to `dst`, in bounded memory; with `embed` the plan stands in front as a comment."""
        return _pass(src, dst, Reorder(self), self.comment() if embed else b"")

    def inverse(self, src: Path | str | BinaryIO, dst: Path | str | BinaryIO) -> Applied:
        """Writes the original log to `dst`; a plan embedded in `src` is left out, and must be this one."""
        return _pass(src, dst, Reorder(self, inverse=True), b"", embedded=lambda line: self._same(line, str(src)))

    def _same(self, line: bytes, where: str) -> None:
        other = embedded_plan(line, where)
        if (other.order, replace(other.format, names=())) != (self.order, replace(self.format, names=())):
            raise InputError("the plan in front of the log is not this one", where=where)

    def check_header(self, head: bytes, *, inverse: bool = False) -> None:
        """Refuses a log whose names are not those that the plan was made for."""
        if not self.header:
            return
        lines = [line.rstrip(b"\r") for line in head.split(b"\n")[:50] if line.rstrip(b"\r")]
        names = _names(self.format, lines) if lines else ()
        if inverse and names:
            restored = [""] * len(names)
            for place, original in enumerate(self.order):
                restored[original] = names[place]
            names = tuple(restored)
        if header_digest(self.format.name, names) != self.header:
            found, expected = (one_line(" ".join(some), 80) for some in (names, self.format.names))
            raise InputError(f"header: found {found or 'no names'}; the plan is for {expected}")


def written(plan: Plan | None, data: bytes, *, marked: bool = False) -> bytes:
    """Returns a log as it is compressed, with its plan in front; without either where no field moves.

    With `marked`, or where the log itself begins as if it held a plan, one short line says that nothing moved.
    """
    if plan is not None and plan.moves:
        return plan.transform_bytes(data, embed=True)
    return UNCHANGED + data if marked or data.startswith(EMBED) else data


def unwritten(text: bytes, where: str = "log") -> tuple[Plan | None, bytes]:
    """Undoes `written`; returns the plan, None where no field moved, and the log."""
    if not text.startswith(EMBED):
        return None, text
    if text.startswith(UNCHANGED):
        return None, text[len(UNCHANGED) :]
    line, newline, rest = text.partition(b"\n")
    if not newline:
        raise InputError("found a plan that does not end; expected one line", where=where)
    plan = embedded_plan(line, where)
    return plan, plan.inverse_bytes(rest)


def header_digest(format_name: str, names: tuple[str, ...]) -> str:
    """Returns the SHA-256 of the names, or an empty string for a format whose files hold none."""
    return hashlib.sha256("\x1f".join(names).encode()).hexdigest() if names and format_name in WITH_HEADER else ""


def embedded_plan(line: bytes, where: str = "log") -> Plan:
    """Reads the plan in the leading comment of a log."""
    if not line.startswith(EMBED):
        raise InputError(
            f"found {one_line(repr(line[:40]), 60)}; expected a comment that begins with {EMBED.decode().strip()}", where=where
        )
    text = line[len(EMBED) :]
    if not text.startswith(b"["):
        return Plan.from_json(text, where)
    try:
        version, name, grammar, separator, comments, order = json.loads(text)
        if version != 2:
            raise ValueError(f"found version {version}")
    except (ValueError, TypeError, RecursionError):
        raise InputError(f"found {one_line(repr(text[:40]), 60)}; expected a plan as one line of JSON", where=where) from None
    form = {"name": name, "grammar": grammar, "separator": separator, "comments": comments, "names": []}
    fields = {"fields": len(order) if isinstance(order, list) else 0}
    return Plan.from_json(json.dumps({"armillary": "cfseq", "version": 1, "format": form | fields, "permutation": order}), where)


class Reorder:
    """Applies a plan to a stream of bytes: `feed` pieces of any size, then `end`. It holds one chunk and at most one line of 16 MiB."""

    def __init__(self, plan: Plan, *, inverse: bool = False) -> None:
        order = np.array(plan.order, np.int64)
        self._order = np.argsort(order) if inverse else order
        self._plan, self._inverse = plan, inverse
        #: Bytes behind the last newline so far.
        self._rest = bytearray()
        #: Whether the head of the log has been compared with the plan's header.
        self._checked = False
        #: Whether the stream is inside a line that is too long to be reordered.
        self._passing = False
        self.lines, self.exceptions, self.first_exception, self.bytes = 0, 0, -1, 0

    def feed(self, piece: bytes | memoryview) -> bytes:
        """Returns the reordered lines that are complete by now."""
        view = memoryview(piece)
        out = [self._feed(bytes(view[at : at + CHUNK])) for at in range(0, len(view), CHUNK)]
        return b"".join(out) if len(out) != 1 else out[0]

    def _feed(self, piece: bytes) -> bytes:
        front = b""
        if self._passing:
            cut = piece.find(b"\n") + 1
            if not cut:
                self.bytes += len(piece)
                return piece
            self._passing = False
            self.bytes += cut
            front, piece = piece[:cut], piece[cut:]
        cut = piece.rfind(b"\n") + 1
        if not cut:
            self._rest += piece
            if len(self._rest) > LONGEST_LINE + 2:
                self._count_exception()
                self._passing = True
                front += bytes(self._rest)
                self.bytes += len(self._rest)
                self._rest.clear()
            return front
        whole = bytes(self._rest) + piece[:cut]
        self._rest[:] = piece[cut:]
        return front + self._apply(whole)

    def end(self) -> bytes:
        """Returns the last line where it has no newline."""
        whole = bytes(self._rest)
        self._rest.clear()
        return self._apply(whole)

    def _count_exception(self) -> None:
        self.first_exception = self.lines if self.first_exception < 0 else self.first_exception
        self.exceptions += 1
        self.lines += 1

    def _apply(self, whole: bytes) -> bytes:
        if not whole:
            return b""
        if not self._checked:
            self._plan.check_header(whole[: 1 << 16], inverse=self._inverse)
            self._checked = True
        data = np.frombuffer(whole, np.uint8)
        out = np.empty_like(data)
        lines, left, first = reorder(data, len(data), self._order, *self._plan.format.code, out)
        if left and self.first_exception < 0:
            self.first_exception = self.lines + first
        self.lines += lines
        self.exceptions += left
        self.bytes += len(data)
        return out.tobytes()


def _pass(
    src: Path | str | BinaryIO, dst: Path | str | BinaryIO, stream: Reorder, front: bytes, embedded: Callable[[bytes], None] | None = None
) -> Applied:
    with reading(src) as source, writing(dst) as target:
        target.write(front)
        piece = source.read(CHUNK)
        if embedded is not None and piece.startswith(EMBED):
            line, newline, piece = piece.partition(b"\n")
            if not newline:
                raise InputError("found a plan that does not end; expected one line", where=str(src))
            embedded(line)
        while piece:
            target.write(stream.feed(piece))
            piece = source.read(CHUNK)
        target.write(stream.end())
    return Applied(stream.lines, stream.exceptions, stream.first_exception, stream.bytes)


@contextmanager
def reading(src: Path | str | BinaryIO) -> Iterator[BinaryIO]:
    """Opens a path for reading; a file that is already open is used as it is."""
    if not isinstance(src, str | os.PathLike):
        yield src
        return
    with open_file(src, limit=None, unpack=False) as file:
        yield file


@contextmanager
def writing(dst: Path | str | BinaryIO) -> Iterator[Any]:
    """Opens a path for writing; it gets its new content if all went well and is left as it was otherwise. An open file is used as it is."""
    if not isinstance(dst, str | os.PathLike):
        yield dst
        return
    target = Path(dst)
    try:
        handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    except OSError as error:
        raise InputError(f"cannot be written ({error.strerror})", where=str(dst)) from None
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
        mode = target.stat().st_mode if target.exists() else 0o666 & ~_umask()
        Path(name).chmod(mode & 0o777)
        Path(name).replace(target)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def with_header(plan: Plan) -> Plan:
    """Returns the plan with the digest of its format's names."""
    return replace(plan, header=header_digest(plan.format.name, plan.format.names))
