"""Denum takes the numbers out of a log and compresses them as numbers, because they are most of a log and compress badly as text.

The log is cut into chunks of 100 000 lines. Every numeric token is replaced by a tag that names its shape, and its value goes to that
tag's stream: as a difference where the stream rises (timestamps), as 32 bits for IPv4 addresses. What is left of a line is a pattern,
which is kept once; words that make a pattern rare go to a dictionary. Every stream is then compressed by LZMA (or Zstandard), and all
streams stand in one archive. This is our own lossless implementation of the idea; the shapes (`numbers.py`) and the rule for words
(`words.py`) are our design.

Unlocking the Power of Numbers: Log Compression via Numeric Token Parsing, arXiv 2408.05760, 2024.
"""

from __future__ import annotations

import lzma
import struct
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, ClassVar

import numpy as np

from armillary.claim import Claim, Gain
from armillary.errors import InputError
from armillary.files.opening import STREAM_BYTES
from armillary.parameters import parameter

from .planning.plan import reading, writing
from .planning.technique import LogTechnique
from .records.split import intern
from .streams.compressors import MOST_BYTES, too_large
from .streams.numbers import GROUPS, TAGS, from_varints, restore, to_varints, tokenise
from .streams.words import take_apart

if TYPE_CHECKING:
    import polars as pl

MAGIC = b"ARMDN1\n"
LINES = 100_000
#: A chunk ends here even inside a line, so that memory is bounded.
MOST_CHUNK = 32 << 20
BACKENDS = ("xz", "zstd")
#: Streams beside the tags' own (0 to TAGS - 1).
PATTERNS, PATTERN_IDS, SHAPES, VARIABLES, VARIABLE_IDS, WORDS, WORD_IDS, PLAIN = range(TAGS, TAGS + 8)
_NAMES = {
    PATTERNS: "patterns", PATTERN_IDS: "pattern ids", SHAPES: "shapes", VARIABLES: "variables", VARIABLE_IDS: "variable ids",
    WORDS: "words", WORD_IDS: "word ids", PLAIN: "plain lines",
}  # fmt: skip
_STREAM = struct.Struct("<BBIII")  # stream, 1 where it is differences + 2 where it is stored, items, raw bytes, packed bytes
#: Share of rising steps from which a stream is kept as differences.
RISING = 0.9
#: Tokens per line below which a chunk may compress better as it stands.
FEW = 0.25
_SMALL_CHUNK = 1 << 16

Streams = dict[int, tuple[int, int, bytes]]


def compress(src: Path | str | BinaryIO, dst: Path | str | BinaryIO, *, backend: str = "xz", level: int = 6) -> None:
    """Writes the log `src` as an archive to `dst`, one chunk at a time; `backend` is xz (levels 0 to 9) or zstd (1 to 22)."""
    _check(backend, level)
    with reading(src) as source, writing(dst) as target:
        target.write(MAGIC)
        count = 0
        for chunk in _chunks(source):
            body = _pack_chunk(chunk, backend, level)
            target.write(struct.pack("<II", len(body), zlib.crc32(body)) + body)
            count += 1
        target.write(struct.pack("<II", 0, count))


def decompress(src: Path | str | BinaryIO, dst: Path | str | BinaryIO, *, most_bytes: int = STREAM_BYTES) -> None:
    """Writes the log that is in the archive `src` to `dst`, one chunk at a time; more than `most_bytes` bytes are refused."""
    with reading(src) as source, writing(dst) as target:
        line, left = 1, most_bytes
        for body in _bodies(source, str(src)):
            chunk = _unpack_chunk(body, f"{src}: lines from {line}", left)
            left -= len(chunk)
            target.write(chunk)
            line += chunk.count(b"\n")


def pack(data: bytes, *, backend: str = "xz", level: int = 6) -> bytes:
    """Compresses in memory."""
    import io

    out = io.BytesIO()
    compress(io.BytesIO(data), out, backend=backend, level=level)
    return out.getvalue()


def unpack(data: bytes, *, most_bytes: int = MOST_BYTES) -> bytes:
    """Decompresses in memory, at most `most_bytes` bytes."""
    import io

    out = io.BytesIO()
    decompress(io.BytesIO(data), out, most_bytes=most_bytes)
    return out.getvalue()


def stats(src: Path | str | BinaryIO) -> pl.DataFrame:
    """Returns a table of the streams of an archive: items, raw bytes and compressed bytes, summed over chunks, largest first."""
    import polars as pl

    found: dict[str, list[int]] = {}
    with reading(src) as source:
        for body in _bodies(source, str(src)):
            for stream, (_, items, raw, packed) in _directory(body, str(src)).items():
                name = _NAMES.get(stream) or ("shape " if stream >= GROUPS else "tag ") + str(stream)
                entry = found.setdefault(name, [0, 0, 0])
                for place, value in enumerate((items, raw, packed[1] - packed[0])):
                    entry[place] += value
    columns = list(zip(*found.values(), strict=True)) or [(), (), ()]
    table = {"stream": list(found), "items": list(columns[0]), "raw_bytes": list(columns[1]), "bytes": list(columns[2])}
    schema: Any = {"stream": pl.String, "items": pl.Int64, "raw_bytes": pl.Int64, "bytes": pl.Int64}
    return pl.DataFrame(table, schema=schema).sort("bytes", descending=True)


def _check(backend: str, level: int) -> None:
    least, most = (0, 9) if backend == "xz" else (1, 22)
    if backend not in BACKENDS or not least <= level <= most:
        raise InputError(f"denum: found {backend} {level}; expected xz 0 to 9 or zstd 1 to 22")


def _chunks(source: BinaryIO) -> Iterator[bytes]:
    """Yields pieces of at most 100 000 lines and 32 MiB, cut behind a newline where there is one."""
    rest = b""
    while True:
        piece = source.read(MOST_CHUNK - len(rest)) if len(rest) < MOST_CHUNK else b""
        rest += piece
        if not rest:
            return
        ends = np.flatnonzero(np.frombuffer(rest, np.uint8) == 10)
        if len(ends) >= LINES:
            cut = int(ends[LINES - 1]) + 1
        elif len(rest) < MOST_CHUNK:
            if piece:
                continue
            cut = len(rest)
        else:
            cut = int(ends[-1]) + 1 if len(ends) else len(rest)
        yield rest[:cut]
        rest = rest[cut:]


def _packer(backend: str, level: int) -> Callable[[bytes], bytes]:
    if backend == "zstd":
        import zstandard

        return zstandard.ZstdCompressor(level=level, write_content_size=False, write_checksum=False).compress
    return lambda data: lzma.compress(data, lzma.FORMAT_RAW, filters=_filters(len(data), level))


def _filters(size: int, level: int) -> list[dict[str, int]]:
    # The dictionary is no larger than the data, because LZMA clears it for every stream.
    return [{"id": lzma.FILTER_LZMA2, "preset": level, "dict_size": min(8 << 20, max(4096, 1 << max(0, size - 1).bit_length()))}]


def _pack_chunk(chunk: bytes, backend: str, level: int) -> bytes:
    packer = _packer(backend, level)
    streams, tokens, lines = _streams(chunk)
    best = _archive(streams, packer, backend, chunk)
    held = sum(len(raw) for _, _, raw in streams.values())
    if held > _most_raw(len(chunk)):
        return _archive({PLAIN: (0, lines, chunk)}, packer, backend, chunk)
    if tokens < FEW * lines or len(chunk) < _SMALL_CHUNK:
        plain = _archive({PLAIN: (0, lines, chunk)}, packer, backend, chunk)
        best = min(best, plain, key=len)
    return best


def _most_raw(size: int) -> int:
    """The most bytes that the streams of a chunk of this size have together; what has more is kept as plain lines."""
    return 8 * size + (64 << 10)


def _archive(streams: Streams, packer: Callable[[bytes], bytes], backend: str, chunk: bytes) -> bytes:
    head = struct.pack("<BIIBB", BACKENDS.index(backend), len(chunk), chunk.count(b"\n"), chunk.endswith(b"\n"), len(streams))
    directory, bodies = [], []
    for stream, (flags, items, raw) in sorted(streams.items()):
        packed = packer(raw)
        if len(packed) >= len(raw):
            flags, packed = flags | 2, raw
        directory.append(_STREAM.pack(stream, flags, items, len(raw), len(packed)))
        bodies.append(packed)
    listed = b"".join(directory)
    # The directory is stored column by column, because its columns are nearly constant.
    turned = zlib.compress(bytes(np.frombuffer(listed, np.uint8).reshape(-1, _STREAM.size).T.tobytes()), 9)
    return head + struct.pack("<H", len(turned)) + turned + b"".join(bodies)


def _streams(chunk: bytes) -> tuple[Streams, int, int]:
    data = np.frombuffer(chunk, np.uint8)
    most_lines = chunk.count(b"\n") + 1
    patterns = np.empty(2 * len(data) + 2 * most_lines + 2, np.uint8)
    line_ends = np.zeros(most_lines + 1, np.int64)
    tags, values = np.empty(len(data) // 2 + 1, np.uint8), np.empty(len(data) // 2 + 1, np.int64)
    places, lengths = np.empty(len(data) // 2 + 1, np.int64), np.empty(len(data) // 2 + 1, np.int64)
    shapes = np.zeros(TAGS - GROUPS, np.int64)
    used, lines, tokens, variables, shape_count = tokenise(data, shapes, 0, patterns, line_ends[1:], tags, values, places, lengths)
    ids, firsts = intern(patterns[:used], line_ends[:lines], line_ends[1 : lines + 1])
    distinct, ids, words, word_ids = take_apart(patterns[:used], line_ends[firsts], line_ends[firsts + 1], ids)
    found: Streams = {
        PATTERNS: (0, len(distinct), b"\n".join(distinct)),
        PATTERN_IDS: (0, lines, _ids(ids, len(distinct))),
    }
    if shape_count:
        found[SHAPES] = (0, shape_count, shapes[:shape_count].astype("<i8").tobytes())
    if words:
        found[WORDS] = (0, len(words), b"\n".join(words))
        found[WORD_IDS] = (0, len(word_ids), _ids(word_ids, len(words)))
    if variables:
        variable_ids, firsts = intern(data, places[:variables], places[:variables] + lengths[:variables])
        texts = [chunk[places[f] : places[f] + lengths[f]] for f in firsts.tolist()]
        # 0 says "the next new one", so that names met once cost nothing here.
        new = np.zeros(variables, np.bool_)
        new[firsts] = True
        found[VARIABLES] = (0, len(texts), b"\n".join(texts))
        found[VARIABLE_IDS] = (0, variables, _varints(np.where(new, 0, variable_ids + 1), False))
    order = np.argsort(tags[:tokens], kind="stable")
    sorted_tags, sorted_values = tags[:tokens][order], values[:tokens][order]
    for tag in np.unique(sorted_tags).tolist():
        own = sorted_values[np.searchsorted(sorted_tags, tag) : np.searchsorted(sorted_tags, tag, "right")]
        rising = len(own) > 1 and float((np.diff(own) >= 0).mean()) >= RISING
        found[tag] = (int(rising), len(own), _varints(own, rising))
    return found, tokens + variables, lines


def _varints(values: np.ndarray, differences: bool) -> bytes:
    out = np.empty(10 * len(values), np.uint8)
    return out[: to_varints(values.astype(np.int64), differences, out)].tobytes()


def _ids(ids: np.ndarray, count: int) -> bytes:
    return ids.astype(np.dtype(_id_type(count))).tobytes()


def _id_type(count: int) -> str:
    return "<u1" if count <= 1 << 8 else "<u2" if count <= 1 << 16 else "<u4"


def _bodies(source: BinaryIO, where: str) -> Iterator[bytes]:
    if source.read(len(MAGIC)) != MAGIC:
        raise InputError("found no ARMDN1 in front; expected a denum archive", where=where)
    count = 0
    while True:
        head = source.read(8)
        if len(head) < 8:
            raise InputError(f"the archive ends after {count} chunks; expected more", where=where)
        size, check = struct.unpack("<II", head)
        if not size:
            if check != count:
                raise InputError(f"found {count} chunks; the archive counts {check}", where=where)
            if source.read(1):
                raise InputError(f"found bytes behind the {count} chunks; expected none", where=where)
            return
        body = source.read(size) if size <= 2 * MOST_CHUNK else b""
        if len(body) < size:
            raise InputError(f"chunk {count}: found {len(body)} of {size} bytes", where=where)
        if zlib.crc32(body) != check:
            raise InputError(f"chunk {count}: the checksum does not fit, the archive is damaged", where=where)
        yield body
        count += 1


_HEAD = struct.Struct("<BIIBBH")


def _directory(body: bytes, where: str) -> dict[int, tuple[int, int, int, tuple[int, int]]]:
    """Maps each stream to (flags, items, raw bytes, where its packed bytes are)."""
    if len(body) < _HEAD.size:
        raise InputError(f"found a chunk of {len(body)} bytes; expected its head", where=where)
    backend, size, _, _, count, length = _HEAD.unpack_from(body)
    if backend >= len(BACKENDS) or size > MOST_CHUNK:
        raise InputError(f"found backend {backend} and {size} bytes; expected 0 or 1 and at most {MOST_CHUNK}", where=where)
    try:
        opened = zlib.decompressobj().decompress(body[_HEAD.size : _HEAD.size + length], count * _STREAM.size + 1)
    except zlib.error as error:
        raise InputError(f"the list of streams is damaged ({error})", where=where) from None
    if len(opened) != count * _STREAM.size:
        raise InputError(f"found a list of {len(opened)} bytes; expected {count} streams", where=where)
    listed = np.frombuffer(opened, np.uint8).reshape(_STREAM.size, -1).T.tobytes()
    found = {}
    at = _HEAD.size + length
    left = _most_raw(size)
    for stream, flags, items, raw, packed in _STREAM.iter_unpack(listed):
        left -= raw
        if at + packed > len(body) or left < 0 or items > raw + 1 or flags > 3 or stream in found:
            raise InputError(f"stream {stream}: found {items} items in {packed} bytes; the chunk has {len(body) - at} left", where=where)
        found[stream] = (flags, items, raw, (at, at + packed))
        at += packed
    if at != len(body):
        raise InputError(f"found {len(body) - at} bytes behind the streams; expected none", where=where)
    return found


def _unpack_chunk(body: bytes, where: str, most_bytes: int) -> bytes:
    backend, size, newlines, last, _, _ = _HEAD.unpack_from(body) if len(body) >= _HEAD.size else (0,) * 6
    if size > most_bytes:
        raise too_large("denum", most_bytes)
    directory = _directory(body, where)

    def raw(stream: int) -> bytes:
        if stream not in directory:
            return b""
        flags, _, length, (begin, end) = directory[stream]
        return body[begin:end] if flags & 2 else _opened(BACKENDS[backend], body[begin:end], length, f"{where}, stream {stream}")

    if PLAIN in directory:
        out = raw(PLAIN)
        if len(out) != size:
            raise InputError(f"found {len(out)} bytes; expected {size}", where=where)
        return out

    def pieces(stream: int) -> tuple[np.ndarray, np.ndarray]:
        # The texts end to end, and where each begins.
        if stream not in directory:
            return np.empty(0, np.uint8), np.zeros(1, np.int64)
        whole = np.frombuffer(raw(stream), np.uint8)
        ends = np.append(np.flatnonzero(whole == 10), len(whole))
        return whole[whole != 10], np.append(0, ends - np.arange(len(ends)))

    def numbers(stream: int) -> np.ndarray:
        flags, items, _, _ = directory.get(stream, (0, 0, 0, (0, 0)))
        packed = np.frombuffer(raw(stream), np.uint8)
        if items > len(packed):
            raise InputError(f"stream {stream}: found {len(packed)} bytes for {items} items", where=where)
        out = np.empty(items, np.int64)
        if from_varints(packed, bool(flags & 1), out) != len(packed):
            raise InputError(f"stream {stream}: found other than {items} numbers", where=where)
        return out

    def ids(stream: int, count: int) -> np.ndarray:
        packed, kind = raw(stream), np.dtype(_id_type(count))
        if len(packed) % kind.itemsize:
            raise InputError(f"stream {stream}: found {len(packed)} bytes; expected a multiple of {kind.itemsize}", where=where)
        return np.frombuffer(packed, kind).astype(np.int64)

    texts, starts = pieces(PATTERNS)
    variables, variable_starts = pieces(VARIABLES)
    words, word_starts = pieces(WORDS)
    variable_ids = numbers(VARIABLE_IDS)
    new = variable_ids == 0
    variable_ids = np.where(new, np.cumsum(new) - 1, variable_ids - 1)
    shapes = raw(SHAPES)
    if len(shapes) % 8:
        raise InputError(f"shapes: found {len(shapes)} bytes; expected eight each", where=where)
    values, value_starts = [], np.zeros(TAGS + 1, np.int64)
    for tag in range(TAGS):
        own = numbers(tag) if tag in directory else np.empty(0, np.int64)
        values.append(own)
        value_starts[tag + 1] = value_starts[tag] + len(own)
    lines = np.empty(size, np.uint8)
    written = restore(
        texts, starts, ids(PATTERN_IDS, len(starts) - 1), np.frombuffer(shapes, "<i8").astype(np.int64),
        np.concatenate(values), value_starts,
        variables, variable_starts, variable_ids, words, word_starts, ids(WORD_IDS, len(word_starts) - 1), bool(last), lines,
    )  # fmt: skip
    if written != size:
        raise InputError("the streams do not make the lines again", where=where)
    restored = lines.tobytes()
    if restored.count(b"\n") != newlines:
        raise InputError(f"found {restored.count(bytes([10]))} lines; the archive counts {newlines}", where=where)
    return restored


def _opened(backend: str, packed: bytes, size: int, where: str) -> bytes:
    try:
        if backend == "xz":
            out = lzma.LZMADecompressor(lzma.FORMAT_RAW, filters=_filters(size, 6)).decompress(packed, size + 1)
        else:
            import zstandard

            try:
                out = zstandard.ZstdDecompressor().stream_reader(packed).read(size + 1)
            except zstandard.ZstdError as error:
                raise InputError(f"found damaged bytes ({error})", where=where) from None
    except (lzma.LZMAError, EOFError) as error:
        raise InputError(f"found damaged bytes ({error})", where=where) from None
    if len(out) != size:
        raise InputError(f"found {len(out)} bytes; expected {size}", where=where)
    return out


@dataclass(frozen=True)
class Denum(LogTechnique):
    """Takes the numbers out of the text, keeps patterns and words in dictionaries, and compresses all of it by LZMA."""

    compressor: str = parameter("denum-6", "denum and the level of LZMA")

    claims: ClassVar[tuple[Claim, ...]] = (
        Claim("ratio", over="xz-6", by=Gain(percent=(8.7, 434.7)), honest=(10, 434.7), part=5,
              why="ours is another implementation, and the 16 public logs are not here: held is 1.1 times xz on the generated logs",
              says="average ratio 8.7 % to 434.7 % above xz-6, of the published range over other compressors on 16 public logs",
              source="abstract"),
        Claim("ratio", over=("gzip-6", "bzip2", "zstd-3", "zstd-19", "xz-6", "brotli-9", "ppmd"), by=Gain(percent=(8.7, 434.7)),
              says="average ratio at least 8.7 % above every other compressor, so above the best on each log", source="abstract"),
    )  # fmt: skip
