"""JSON from strangers: bounded in size and depth, no key twice in one object, no NaN and no infinity, and faults with their line."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from typing import Any

from armillary.errors import InputError, one_line

from .opening import LINE_BYTES, STREAM_BYTES, Name, decoded, line_blocks, read_bytes

#: Bytes of a JSON document, unless the caller says otherwise.
DOCUMENT_BYTES = 1 << 26
#: The deepest nesting of objects and arrays, unless the caller says otherwise.
DEPTH = 64
#: Lines of a JSONL file, unless the caller says otherwise.
LINES = 10_000_000
_MARKS = bytes(byte for byte in range(256) if byte not in b'[]{}"')
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\],:]|NaN|-?Infinity|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?', re.DOTALL)


def read_json(path: Name, *, limit: int = DOCUMENT_BYTES, depth: int = DEPTH) -> Any:
    """The value of a JSON file of at most `limit` bytes (plain, gzip or Zstandard), nested at most `depth` deep."""
    return parse_json(read_bytes(path, limit=limit).removeprefix(b"\xef\xbb\xbf"), str(path), depth=depth)


def read_json_lines(
    path: Name, *, limit: int | None = STREAM_BYTES, longest: int = LINE_BYTES, most: int = LINES, depth: int = DEPTH
) -> Iterator[tuple[int, dict[str, Any]]]:  # fmt: skip
    """(line number, object) of a file with one JSON object per line, streamed; blank lines are passed over.

    longest: bytes of the longest line. most: the number of objects that is refused when it is exceeded.
    """
    count = 0
    for block, first in line_blocks(path, limit=limit, longest=longest):
        decoded(block, path, first)
        for number, line in enumerate(block.split(b"\n"), first):
            if not line.strip():
                continue
            count += 1
            if count > most:
                raise InputError(f"found more than {most:,} rows; expected at most {most:,}", where=str(path))
            value = parse_json(line, str(path), depth=depth, line=number)
            if not isinstance(value, dict):
                raise InputError(f"found {_kind(value)}; expected an object", where=f"{path}:{number}")
            yield number, value


def parse_json(data: bytes | str, where: str, *, depth: int = DEPTH, line: int = 1) -> Any:
    """The value of some JSON text whose first line is line `line` of what `where` names."""
    raw = data.encode("utf-8", "surrogatepass") if isinstance(data, str) else data
    text = decoded(raw, where, line) if isinstance(data, bytes) else data
    if raw.count(b"[") + raw.count(b"{") > depth and _is_deeper(raw, depth):
        at = where if line == 1 else f"{where}:{line}"
        raise InputError(f"found JSON nested more than {depth} levels deep; expected at most {depth}", where=at)
    try:
        return _DECODER.decode(text)
    except json.JSONDecodeError as error:
        found = _found(text, error.pos)
        at = f"{where}:{line + error.lineno - 1}"
        raise InputError(f"found {found} in column {error.colno}; expected JSON ({error.msg.lower()})", where=at) from None
    except _NotPlain as error:
        raise InputError(error.args[0], where=f"{where}:{line + _line_of(text)}") from None
    except (ValueError, RecursionError) as error:  # Such as an integer of more than 4,300 digits.
        raise InputError(f"cannot be read as JSON ({one_line(str(error), 80)})", where=f"{where}:{line}") from None


class _NotPlain(ValueError):
    """JSON that Python reads and that we refuse."""


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        seen: set[str] = set()
        twice = next(name for name, _ in pairs if name in seen or seen.add(name))  # type: ignore[func-returns-value]
        raise _NotPlain(f'found the key "{one_line(twice, 60)}" twice in one object; expected it once')
    return found


def _constant(name: str) -> float:
    raise _NotPlain(f"found {name}; expected a finite number")


def _finite(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise _NotPlain(f"found {one_line(text, 40)}; expected a finite number")
    return value


_DECODER = json.JSONDecoder(object_pairs_hook=_once, parse_constant=_constant, parse_float=_finite)


def _kind(value: Any) -> str:
    kinds = {list: "an array", str: "a string", bool: "a truth value", int: "a number", float: "a number", type(None): "null"}
    return kinds.get(type(value), "an object")


def _found(text: str, at: int) -> str:
    return f'"{one_line(text[at : at + 20], 24)}"' if at < len(text) else "the end"


def _is_deeper(data: bytes, depth: int) -> bool:
    """Whether brackets outside of strings are nested more than `depth` deep."""
    import numpy as np

    # Escaped backslashes go first, so that a backslash that is left escapes what follows it.
    marks = data.replace(b"\\\\", b"").replace(b'\\"', b"").translate(None, _MARKS)
    level, inside = 0, 0
    for start in range(0, len(marks), 1 << 20):
        part = np.frombuffer(marks, np.uint8)[start : start + (1 << 20)]
        quoted = (np.cumsum(part == ord('"'), dtype=np.int32) + inside) & 1
        step = np.where((part == ord("[")) | (part == ord("{")), 1, np.where(part == ord('"'), 0, -1)) * (1 - quoted)
        levels = level + np.cumsum(step, dtype=np.int32)
        if levels.max() > depth:
            return True
        level, inside = int(levels[-1]), int(quoted[-1])
    return False


def _line_of(text: str) -> int:
    """How many lines stand before the first key that its object has twice, or the first number that is not finite."""
    keys: list[set[str] | None] = []
    last = None
    for token in _TOKEN.finditer(text):
        word = token[0]
        if word in "{[":
            keys.append(set() if word == "{" else None)
        elif word in "}]":
            keys.pop()
        elif word == ":" and last is not None and keys[-1] is not None:
            name = json.loads(last[0])
            if name in keys[-1]:
                return text.count("\n", 0, last.start())
            keys[-1].add(name)
        elif word.endswith(("NaN", "Infinity")) or (word[0] in "-0123456789" and math.isinf(float(word))):
            return text.count("\n", 0, token.start())
        last = token
    return 0
