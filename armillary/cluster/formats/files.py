"""Reads a file from a stranger: it must be a plain file of limited size, and text must be UTF-8."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any

from armillary.errors import InputError, one_line

MOST_BYTES = 32 << 20
#: The longest name in a cluster description.
MOST_NAME = 100


def read_bytes(path: Path, most: int = MOST_BYTES) -> bytes:
    """The bytes of a file; one that is missing, not a plain file or longer than `most` raises an `InputError`."""
    try:
        # Without O_NONBLOCK, opening a named pipe would wait for a writer forever.
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", where=str(path)) from None
    except ValueError:
        raise InputError("not a file name", where=str(path)) from None
    try:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode):
            raise InputError("expected a plain file", where=str(path))
        if status.st_size > most:
            raise InputError(f"{status.st_size:,} bytes; expected at most {most:,}", where=str(path))
        with open(handle, "rb", closefd=False) as file:
            data = file.read(most + 1)
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", where=str(path)) from None
    finally:
        os.close(handle)
    if len(data) > most:
        raise InputError(f"more than {most:,} bytes", where=str(path))
    return data


def as_text(data: bytes, path: Path) -> str:
    """The bytes as UTF-8 text; anything else raises an `InputError`."""
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"byte {error.start} is not UTF-8; expected text", where=str(path)) from None
    if "\0" in text:
        raise InputError("holds a zero byte; expected text", where=str(path))
    return text


def label(text: str, instead: str = "unnamed") -> str:
    """A name in the form that a cluster description allows: one line, not empty, of at most 100 characters."""
    return one_line(text.strip(), MOST_NAME) or instead


def distinct(name: str, taken: dict[str, int]) -> str:
    """`name`, or `name-2`, `name-3`… if it is already in `taken`, to which the result is added."""
    name = label(name)
    while True:
        taken[name] = taken.get(name, 0) + 1
        if taken[name] == 1:
            return name
        name = f"{name[: MOST_NAME - 9]}-{taken[name]}"


def whole(text: str, key: str, where: str, low: int = 1, high: int = 10_000_000) -> int:
    """A whole number in range; anything else raises an `InputError` that names the key."""
    if not (text.isascii() and text.isdecimal() and len(text) <= 15) or not low <= int(text) <= high:
        raise InputError(f'{key}: found "{one_line(text, 40)}"; expected a whole number from {low:,} to {high:,}', where=where)
    return int(text)


def group(name: str, count: int, node: dict[str, Any]) -> dict[str, Any]:
    """A `group` table without the empty parts of the node."""
    return {"name": name, "count": count, "node": {key: part for key, part in node.items() if part}}


def fact(key: str, value: str | int | float | bool, source: str) -> dict[str, Any]:
    """A `facts` entry."""
    return {
        "key": one_line(key, 200),
        "value": one_line(value, 200) if isinstance(value, str) else value,
        "source": one_line(source, 200),
    }
