"""Each field goes to a stream of its own, which is stronger than any order of fields but leaves no log that other tools can read.

It shows what an order gives up for staying readable, and bounds what an order can give. Column stores have stored tables so since
C-Store, VLDB 2005; `columnar+types` also stores whole numbers and decimals as numbers and few distinct values as a dictionary, as Parquet
does, 2013. Lines that do not fit are kept apart, as they are, with their numbers.
"""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass
from typing import Any

import numpy as np

from armillary.errors import InputError, one_line
from armillary.parameters import parameter

from .planning.plan import Plan
from .planning.technique import Log, LogTechnique, NotForThisCase
from .records.formats import Format
from .records.split import parse
from .streams.compressors import MOST_BYTES, compressor, too_large
from .streams.numbers import from_varints, to_varints

MAGIC = b"ARMCL1\n"
#: Share of rising steps from which whole numbers are kept as differences.
RISING = 0.9
MOST_DECIMALS = 18
#: Bytes of the head of an archive, which lists a thousand streams at most.
MOST_HEAD = 1 << 22


def pack(log: Log, name: str, typed: bool) -> bytes:
    """Returns the log as one archive of streams, each compressed by the compressor of this name."""
    if log.format is None:
        raise InputError("found free text; expected a log with fields")
    packer, form = compressor(name), log.format
    data = np.frombuffer(log.data, np.uint8)
    begins, starts, ends, fits = parse(data, form.fields, *form.code)
    streams: list[tuple[dict[str, Any], bytes]] = []

    def add(facts: dict[str, Any], raw: bytes) -> None:
        packed = packer.compress(raw)
        streams.append(({**facts, "raw": len(raw), "bytes": len(packed)}, packed))

    add({"kind": "fits"}, np.packbits(fits).tobytes())
    add({"kind": "odd"}, b"".join(log.data[begins[i] : begins[i + 1]] for i in np.flatnonzero(~fits).tolist()))
    kept = np.flatnonzero(fits)
    # What stands behind the last field: a brace, then \n, \r\n or nothing.
    tails = (begins[1:][kept] - ends[kept, -1] - form.braces).astype(np.uint8) if len(kept) else np.empty(0, np.uint8)
    add({"kind": "tails"}, tails.tobytes())
    for column in range(form.fields):
        spans = zip(starts[kept, column].tolist(), ends[kept, column].tolist(), strict=True)
        values = [log.data[a:b] for a, b in spans]
        choices = [({"kind": "text"}, b"\n".join(values)), *(_typed(values) if typed else ())]
        packed = [(packer.compress(raw), facts, raw) for facts, raw in choices]
        best, facts, raw = min(packed, key=lambda one: len(one[0]))
        streams.append(({**facts, "raw": len(raw), "bytes": len(best)}, best))
    head = {
        "lines": len(fits),
        "rows": len(kept),
        "compressor": packer.name,
        "format": form.to_json(),
        "streams": [facts for facts, _ in streams],
    }
    text = compressor("zstd-9").compress(json.dumps(head, separators=(",", ":")).encode())
    return MAGIC + struct.pack("<I", len(text)) + text + b"".join(body for _, body in streams)


def _typed(values: list[bytes]) -> list[tuple[dict[str, Any], bytes]]:
    found: list[tuple[dict[str, Any], bytes]] = []
    if not values:
        return found
    key = _key(values)
    values = [value[len(key) :] for value in values]
    places = values[0].rfind(b".")
    decimals = len(values[0]) - places - 1 if places > 0 else 0
    numbers = _numbers(values, decimals)
    if numbers is not None:
        rising = len(numbers) > 1 and float((np.diff(numbers) >= 0).mean()) >= RISING
        out = np.empty(10 * len(numbers), np.uint8)
        used = to_varints(numbers, rising, out)
        found.append(
            ({"kind": "numbers", "decimals": decimals, "differences": bool(rising), "key": key.decode("latin-1")}, out[:used].tobytes())
        )
    distinct = list(dict.fromkeys(values))
    if len(distinct) <= min(len(values) // 4, 1 << 16):
        kind = "<u1" if len(distinct) <= 256 else "<u2"
        where = {value: i for i, value in enumerate(distinct)}
        ids = np.fromiter((where[value] for value in values), np.dtype(kind), len(values)).tobytes()
        words = b"\n".join(distinct)
        found.append(({"kind": "dictionary", "words": len(words), "wide": kind == "<u2", "key": key.decode("latin-1")}, words + ids))
    return found


def _key(values: list[bytes]) -> bytes:
    """Returns the shared beginning of all values up to a = or :, as in key=value lines and JSON objects."""
    low, high = min(values), max(values)
    same = next((i for i in range(min(len(low), len(high))) if low[i] != high[i]), min(len(low), len(high)))
    shared = low[:same]
    return shared[: max(shared.rfind(b"="), shared.rfind(b":")) + 1]


def _numbers(values: list[bytes], decimals: int) -> np.ndarray | None:
    """Returns the values as whole numbers times 10^-decimals, or None where text would not come back byte for byte."""
    if max(map(len, values)) > 18:
        return None
    try:
        numbers = [int(value.replace(b".", b"", 1)) if decimals else int(value) for value in values]
    except ValueError:
        return None
    return np.array(numbers, np.int64) if _texts(numbers, decimals) == values else None


def _texts(numbers: list[int], decimals: int) -> list[bytes]:
    if not decimals:
        return [b"%d" % number for number in numbers]
    scale = 10**decimals
    return [b"%d.%0*d" % (number // scale, decimals, number % scale) if number >= 0 else b"-" for number in numbers]


def unpack(data: bytes, where: str = "archive", *, most_bytes: int = MOST_BYTES) -> bytes:
    """Restores the log from an archive; a log of more than `most_bytes` bytes is refused."""
    if not data.startswith(MAGIC) or len(data) < len(MAGIC) + 4:
        raise InputError("found no ARMCL1 in front; expected a columnar archive", where=where)
    (length,) = struct.unpack_from("<I", data, len(MAGIC))
    at = len(MAGIC) + 4
    if at + length > len(data):
        raise InputError(f"found a head of {length} bytes; the archive has {len(data) - at} left", where=where)
    try:
        head = json.loads(compressor("zstd-9").decompress(data[at : at + length], most_bytes=MOST_HEAD))
        form = Format.from_json(head["format"], where)
        packer, listed, lines, rows = compressor(head["compressor"]), head["streams"], int(head["lines"]), int(head["rows"])
        at += length
        # The streams of a log have little more bytes than the log; the marks and ends of its lines come on top.
        left = 2 * most_bytes + (1 << 16)
        streams: list[tuple[dict[str, Any], bytes]] = []
        for facts in listed:
            size = int(facts["bytes"])
            if not 0 <= size <= len(data) - at:
                raise InputError(f"stream {len(streams)}: found {size} bytes; the archive has {len(data) - at} left", where=where)
            streams.append((facts, packer.decompress(data[at : at + size], most_bytes=left)))
            left -= len(streams[-1][1])
            at += size
        return _joined(form, streams, lines, rows, where, most_bytes)
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, OverflowError) as error:
        raise InputError(f"the archive's head is damaged ({one_line(str(error), 60)})", where=where) from None


def _joined(form: Format, streams: list[tuple[dict[str, Any], bytes]], lines: int, rows: int, where: str, most_bytes: int) -> bytes:
    if len(streams) != form.fields + 3:
        raise InputError(f"found {len(streams)} streams; expected {form.fields + 3}", where=where)
    bits, odd, tails = (raw for _, raw in streams[:3])
    if 8 * len(bits) < lines or len(tails) != rows:
        raise InputError(f"found {8 * len(bits)} marks and {len(tails)} line ends; expected {lines} and {rows}", where=where)
    columns, left = [], most_bytes
    for facts, raw in streams[3:]:
        values, size = _values(facts, raw, rows, where, left)
        left -= size
        columns.append(values)
    texts = list(map(form.separator.encode().join, zip(*columns, strict=True)))
    if form.braces:
        texts = [b"{" + text + b"}" for text in texts]
    ends = (b"", b"\n", b"\r\n")
    fits = np.unpackbits(np.frombuffer(bits, np.uint8))[:lines]
    if fits.all() and tails == b"\x01" * rows:
        return b"\n".join(texts) + (b"\n" if rows else b"")
    apart = iter(_lines(odd))
    row = iter([text + ends[tail] for text, tail in zip(texts, tails, strict=True)])
    try:
        return b"".join(next(row) if fit else next(apart) for fit in fits.tolist())
    except (StopIteration, RuntimeError):
        raise InputError("found fewer lines than the archive counts", where=where) from None


def _lines(odd: bytes) -> list[bytes]:
    pieces = odd.split(b"\n")
    return [piece + b"\n" for piece in pieces[:-1]] + ([pieces[-1]] if pieces[-1] else [])


def _values(facts: dict[str, Any], raw: bytes, rows: int, where: str, most_bytes: int) -> tuple[list[bytes], int]:
    """Returns the values of a column and their bytes, of which there may be `most_bytes`."""
    kind, key = facts["kind"], str(facts.get("key") or "").encode("latin-1")
    if kind == "text":
        count, size = raw.count(b"\n") + 1 if rows else 0, len(raw)
    elif kind == "numbers":
        count, size = min(rows, len(raw)), 0
    elif kind == "dictionary":
        if not 0 <= int(facts["words"]) <= len(raw):
            raise InputError(f"found {facts['words']} bytes of words; the column has {len(raw)}", where=where)
        words = raw[: int(facts["words"])].split(b"\n")
        ids = np.frombuffer(raw[int(facts["words"]) :], np.dtype("<u2" if facts["wide"] else "<u1"))
        if len(ids) and int(ids.max()) >= len(words):
            raise InputError(f"found word {int(ids.max())}; the dictionary has {len(words)}", where=where)
        count, size = len(ids), int(np.array([len(word) for word in words])[ids].sum())
    else:
        raise InputError(f"found a stream of kind {one_line(str(kind), 20)}; expected text, numbers or dictionary", where=where)
    if count != rows:
        raise InputError(f"found a column of {count} values; expected {rows}", where=where)
    size += len(key) * rows
    if size > most_bytes:
        raise too_large("columnar", most_bytes)
    if kind == "text":
        values = raw.split(b"\n") if rows else []
    elif kind == "dictionary":
        values = [words[i] for i in ids.tolist()]
    else:
        numbers, decimals = np.empty(rows, np.int64), int(facts["decimals"])
        if not 0 <= decimals <= MOST_DECIMALS:
            raise InputError(f"found numbers of {decimals} decimals; expected 0 to {MOST_DECIMALS}", where=where)
        if from_varints(np.frombuffer(raw, np.uint8), bool(facts["differences"]), numbers) != len(raw):
            raise InputError(f"found other than {rows} numbers", where=where)
        values = _texts(numbers.tolist(), decimals)
        size = sum(map(len, values)) + len(key) * rows
    if size > most_bytes:
        raise too_large("columnar", most_bytes)
    return [key + value for value in values] if key else values, size


@dataclass(frozen=True)
class Columnar(LogTechnique):
    """Stores each field in a stream of its own, as text."""

    compressor: str = parameter("zstd-3", "what compresses each stream")

    typed = False

    def pack(self, log: Log, plan: Plan | None) -> bytes:
        """Returns the archive."""
        if log.format is None:
            raise NotForThisCase("free text has no fields to separate")
        return pack(log, self.compressor, self.typed)

    def decode(self, data: bytes) -> bytes:
        """Returns the log itself, because nothing in between is readable."""
        return unpack(data)
