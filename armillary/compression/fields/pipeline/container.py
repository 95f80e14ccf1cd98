"""A `.fzm` file describes by itself how the array is restored, and a changed byte in it is noticed.

Layout, all numbers little-endian: magic `ARMFZ1`; then the file's head and, for each chunk, a head with the chunk's sections after it.
A head is u32 length, u32 CRC-32C of length and text, and the text: JSON, which zlib packs where that is smaller. The file's head: dtype,
shape, mode, bound, span, chunk_bytes, pipeline (stages with versions and configuration). A chunk's head: method (`pipeline`, `constant`
or `store`) and sections as [name, dtype, bytes, CRC-32C], in their order. Nothing is allocated from a number here before it is compared
with the size of the file and with the most bytes that the caller allows.
"""

from __future__ import annotations

import json
import math
import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from armillary.errors import InputError
from armillary.files.checksums import crc32c

from .pipeline import Pipeline

MAGIC = b"ARMFZ1"
HEAD = struct.Struct("<II")
DTYPES = ("<f4", "<f8")
SECTION_DTYPES = ("<f4", "<f8", "<u2", "<u4", "<i4", "<i8", "|u1")
METHODS = ("pipeline", "constant", "store")
#: The most bytes of one chunk and the least of its head, which together bound the array that a short file can claim.
MOST_CHUNK_BYTES = 1 << 30
LEAST_CHUNK_HEAD = HEAD.size + 20
MOST_HEAD = 1 << 20
#: The most bytes of an array that is decoded where the caller sets no limit; a larger file may hold more, a thousand times its size.
MOST_BYTES = 1 << 30
MOST_RATIO = 1000


@dataclass(frozen=True)
class Head:
    """The facts about the whole array."""

    dtype: np.dtype
    shape: tuple[int, ...]
    mode: str
    bound: float
    span: tuple[float, float] | None
    chunk_bytes: int
    pipeline: Pipeline

    def pack(self) -> bytes:
        """Returns the first bytes of a file."""
        return MAGIC + _head({
            "dtype": self.dtype.str, "shape": list(self.shape), "mode": self.mode, "bound": self.bound,
            "span": None if self.span is None else list(self.span), "chunk_bytes": self.chunk_bytes, "pipeline": self.pipeline.to_json(),
        })  # fmt: skip

    @property
    def chunks(self) -> list[tuple[int, tuple[int, int, int, int]]]:
        """Where each chunk starts, in values, and its extents as (batch, z, y, x)."""
        return chunk_plan(self.shape, self.dtype.itemsize, self.chunk_bytes)


@dataclass(frozen=True)
class Section:
    """One named array of a chunk as its head lists it; `size` in bytes."""

    name: str
    dtype: np.dtype
    size: int
    checksum: int


def extents(shape: tuple[int, ...]) -> tuple[int, int, int, int]:
    """Returns a shape of up to four dimensions as (batch, z, y, x)."""
    if len(shape) > 4:
        raise InputError(f"found {len(shape)} dimensions; expected 1 to 4")
    b, z, y, x = (1,) * (4 - len(shape)) + tuple(shape)
    return b, z, y, x


def chunk_plan(shape: tuple[int, ...], itemsize: int, chunk_bytes: int) -> list[tuple[int, tuple[int, int, int, int]]]:
    """Returns contiguous chunks along the slowest axis, none above `chunk_bytes` unless one slice is."""
    whole = extents(shape)
    if 0 in whole:
        return []
    axis, rows, inner = _cut(whole, itemsize, chunk_bytes)
    one = math.prod(whole[axis:])
    plan = []
    for item in range(math.prod(whole[:axis])):
        for start in range(0, whole[axis], rows):
            cut = [1] * axis + [min(rows, whole[axis] - start), *whole[axis + 1 :]]
            plan.append((item * one + start * inner, (cut[0], cut[1], cut[2], cut[3])))
    return plan


def chunk_count(shape: tuple[int, ...], itemsize: int, chunk_bytes: int) -> int:
    """Returns the number of chunks of a plan without making it."""
    whole = extents(shape)
    if 0 in whole:
        return 0
    axis, rows, _ = _cut(whole, itemsize, chunk_bytes)
    return math.prod(whole[:axis]) * -(-whole[axis] // rows)


def _cut(whole: tuple[int, int, int, int], itemsize: int, chunk_bytes: int) -> tuple[int, int, int]:
    """Returns the axis along which an array is cut, the slices of a chunk, and the values of a slice."""
    axis = next((i for i, n in enumerate(whole) if n > 1), 3)
    if axis == 0 and math.prod(whole[1:]) * itemsize > chunk_bytes:
        # Each item of the batch is cut by itself.
        axis = next((i for i, n in enumerate(whole) if i and n > 1), 3)
    inner = math.prod(whole[axis + 1 :])
    rows = max(1, chunk_bytes // (inner * itemsize))
    if inner * itemsize > MOST_CHUNK_BYTES:
        raise InputError(f"one slice along the slowest axis has {inner * itemsize} bytes; expected at most {MOST_CHUNK_BYTES}")
    if rows >= 256 and rows < whole[axis]:
        rows = rows // 256 * 256  # so that blocks of `block` mode are not cut
    elif rows >= 16 and rows < whole[axis]:
        rows = rows // 16 * 16
    return axis, rows, inner


def check_size(values: int, itemsize: int, most_bytes: int | None, length: int, where: str | None = None) -> None:
    """Refuses an array of more than `most_bytes` bytes; None stands for 1 GiB, or a thousand times the `length` of a larger file."""
    most = max(MOST_BYTES, MOST_RATIO * length) if most_bytes is None else most_bytes
    if values * itemsize > most:
        raise InputError(f"found an array of {values * itemsize:,} bytes; expected at most {most:,} (set most_bytes)", where=where)


def pack_chunk(method: str, sections: dict[str, np.ndarray]) -> bytes:
    """Returns one chunk: its head and its sections."""
    parts = [np.ascontiguousarray(array).view(np.uint8).data if array.size else memoryview(b"") for array in sections.values()]
    listed = [Section(name, array.dtype, len(part), crc32c(part)) for (name, array), part in zip(sections.items(), parts, strict=True)]
    return b"".join([chunk_head(method, listed), *parts])


def chunk_head(method: str, sections: Sequence[Section]) -> bytes:
    """Returns the bytes before a chunk's sections."""
    return _head({"method": method, "sections": [[s.name, s.dtype.str, s.size, s.checksum] for s in sections]})


def read_head(buffer: memoryview, *, where: str | None = None, most_bytes: int | None = None) -> tuple[Head, int]:
    """Returns the head of a file and where its first chunk starts; the array has at most `most_bytes` bytes, as in `check_size`."""
    if bytes(buffer[: len(MAGIC)]) != MAGIC:
        raise InputError(f"found {bytes(buffer[: len(MAGIC)])!r}; expected a file that starts with {MAGIC!r}", where=where)
    facts, end = _read(buffer, len(MAGIC), where)
    try:
        dtype, shape, mode, bound, span, chunk_bytes = (facts[k] for k in ("dtype", "shape", "mode", "bound", "span", "chunk_bytes"))
        good = (
            dtype in DTYPES and isinstance(shape, list) and 1 <= len(shape) <= 4 and all(type(n) is int and 0 <= n < 1 << 48 for n in shape)
            and mode in ("abs", "rel", "pw_rel") and _number(bound) and bound > 0
            and type(chunk_bytes) is int and 1 <= chunk_bytes <= MOST_CHUNK_BYTES
            and (span is None or (isinstance(span, list) and len(span) == 2 and all(_number(v) for v in span)))
        )  # fmt: skip
    except (KeyError, TypeError):
        good = False
    if not good:
        raise InputError(
            "head: found a field that is missing or out of range; expected dtype, shape, mode, bound, span, chunk_bytes, pipeline",
            where=where,
        )
    values = math.prod(shape)
    room = (len(buffer) - end) // LEAST_CHUNK_HEAD * MOST_CHUNK_BYTES
    if values * np.dtype(dtype).itemsize > room:
        raise InputError(f"head: found {values} values; a file of {len(buffer)} bytes cannot hold their chunks", where=where)
    count = chunk_count(tuple(shape), np.dtype(dtype).itemsize, chunk_bytes)
    if count * LEAST_CHUNK_HEAD > len(buffer) - end:
        raise InputError(
            f"head: found chunks of {chunk_bytes} bytes for {values} values; the file is too short for their heads", where=where
        )
    check_size(values, np.dtype(dtype).itemsize, most_bytes, len(buffer), where)
    pipeline = Pipeline.from_json(facts.get("pipeline"), where=where)
    spans = None if span is None else (float(span[0]), float(span[1]))
    return Head(np.dtype(dtype), tuple(shape), mode, float(bound), spans, chunk_bytes, pipeline), end


def read_chunk(buffer: memoryview, start: int, *, where: str | None = None) -> tuple[str, dict[str, np.ndarray], int]:
    """Returns a chunk's method, its sections as copies, and where the next chunk starts; checksums are compared."""
    method, listed, at = read_chunk_head(buffer, start, where=where)
    sections = {}
    for section in listed:
        part = buffer[at : at + section.size]
        if crc32c(part) != section.checksum:
            raise damaged(section, where)
        # Sections are copied, because kernels want aligned arrays and sections start anywhere.
        sections[section.name] = np.frombuffer(part, section.dtype).copy()
        at += section.size
    return method, sections, at


def read_chunk_head(buffer: memoryview, start: int, *, where: str | None = None) -> tuple[str, list[Section], int]:
    """Returns a chunk's method, what its sections are, and where the first one starts; they lie within the file, one after another."""
    facts, first = _read(buffer, start, where)
    method, listed = facts.get("method"), facts.get("sections")
    if method not in METHODS or not isinstance(listed, list) or len(listed) > 256:
        raise InputError("chunk: found no known method with its sections", where=where)
    at, sections = first, []
    for entry in listed:
        good = isinstance(entry, list) and len(entry) == 4 and isinstance(entry[0], str) and entry[1] in SECTION_DTYPES
        if not good or type(entry[2]) is not int or type(entry[3]) is not int or entry[2] < 0 or entry[2] % np.dtype(entry[1]).itemsize:
            raise InputError("chunk: found a section that is not [name, dtype, bytes, checksum]", where=where)
        name, dtype, size, checksum = entry
        if size > len(buffer) - at:
            raise InputError(f"section {name}: found {size} bytes; {len(buffer) - at} are left in the file", where=where)
        sections.append(Section(name, np.dtype(dtype), size, checksum))
        at += size
    return method, sections, first


def damaged(section: Section, where: str | None = None) -> InputError:
    """Returns the error for a section whose bytes are not those that were written."""
    return InputError(f"section {section.name}: its CRC-32C does not match; the file was damaged", where=where)


def _head(facts: dict[str, Any]) -> bytes:
    text = json.dumps(facts, separators=(",", ":"), allow_nan=False).encode()
    text = min(text, zlib.compress(text, 9), key=len)
    return HEAD.pack(len(text), crc32c(struct.pack("<I", len(text)) + text)) + text


def _read(buffer: memoryview, start: int, where: str | None) -> tuple[dict[str, Any], int]:
    if len(buffer) - start < HEAD.size:
        raise InputError(f"found {max(0, len(buffer) - start)} bytes at {start}; expected a head", where=where)
    length, checksum = HEAD.unpack(buffer[start : start + HEAD.size])
    text = bytes(buffer[start + HEAD.size : start + HEAD.size + length]) if length <= min(MOST_HEAD, len(buffer)) else b""
    if len(text) != length or not length:
        raise InputError(f"head at {start}: found a length of {length} bytes in a file of {len(buffer)}", where=where)
    if crc32c(struct.pack("<I", length) + text) != checksum:
        raise InputError(f"head at {start}: its CRC-32C does not match; the file was damaged", where=where)
    try:
        facts = json.loads(zlib.decompressobj().decompress(text, MOST_HEAD) if text[:1] == b"x" else text)
    except (ValueError, RecursionError, zlib.error):
        raise InputError(f"head at {start}: found no JSON", where=where) from None
    if not isinstance(facts, dict):
        raise InputError(f"head at {start}: found {type(facts).__name__}; expected an object", where=where)
    return facts, start + HEAD.size + length


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
