"""A map as a file: an .npz of three plain arrays, written so that a crash leaves the old file or the new one.

`header` is JSON as bytes (magic, version, types, layout), `keys` and `values` are the slots. The file is written under another name,
flushed to the device, renamed, and the folder is flushed. Reading trusts nothing: members must be stored, not compressed, each as long
as its header says and as the file has; counters are counted anew.
"""

from __future__ import annotations

import contextlib
import json
import os
import struct
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import numpy as np

from armillary.errors import InputError, one_line
from armillary.files import open_file
from armillary.files.archives import ARCHIVE_FAULTS

from ..tables.buckets import FAILURES, LIVE, SIDE, STASH, STASH_LANES, STASHED, TOMBS, stash_lanes
from ..tables.keys import KEY_TYPES, aligned, empty_of
from ..tables.layout import MOST_BUCKETS, LayoutName, buckets_in, layout_of
from ..tables.probe import LINE

if TYPE_CHECKING:
    from .simd_map import SimdMap

#: In version 1 the stash had 64 lanes at any size, and keys lay anywhere in it.
MAGIC, VERSION = "armillary simd map", 2
VALUE_TYPES = KEY_TYPES
MOST_HEADER = 1 << 16


def save(index: SimdMap, path: Path, extra: Mapping[str, int] | None = None) -> None:
    """Writes the map; `extra` are integers to keep in the header."""
    header = {
        "magic": MAGIC, "version": VERSION, "keys": index.key_dtype.name, "values": index.value_dtype.name, "layout": index.layout_name,
        "buckets": index._buckets, "primary": index.primary, "insert": index.insertion, "load": index.load_wanted, "rows": index._rows,
        "failures": index.failures, "sides": index._state[SIDE : SIDE + 2].tolist(), "extra": dict(extra or {}),
    }  # fmt: skip
    held = np.frombuffer(json.dumps(header).encode(), np.uint8)
    scratch = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with scratch.open("wb") as file:
            np.savez(file, header=held, keys=index._keys, values=index._values)
            file.flush()
            os.fsync(file.fileno())
        os.replace(scratch, path)
    except BaseException:
        with contextlib.suppress(OSError):
            scratch.unlink()
        raise
    flush_folder(path.parent)


def flush_folder(folder: Path) -> None:
    """Makes the names in a folder survive a loss of power."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def load(path: Path) -> tuple[SimdMap, dict[str, int]]:
    """Reads the map in a file, and the `extra` that its header holds."""
    try:
        with open_file(path, limit=None, unpack=False) as file, zipfile.ZipFile(file) as archive:
            return _from(archive, path, os.fstat(file.fileno()).st_size)
    except (*ARCHIVE_FAULTS, NotImplementedError, struct.error) as error:
        raise InputError(f"found a file that cannot be read ({one_line(str(error), 120)}); expected a saved map", where=str(path)) from None


def _from(archive: zipfile.ZipFile, path: Path, size: int) -> tuple[SimdMap, dict[str, int]]:
    from .simd_map import MOST_LOAD, SimdMap

    where = str(path)
    header = _header(_array(archive, "header", path, size, np.dtype(np.uint8), most=MOST_HEADER), where)
    expect = _Expect(header, where)
    keys, values = np.dtype(expect.one_of("keys", KEY_TYPES)), np.dtype(expect.one_of("values", VALUE_TYPES))
    made = SimdMap(
        np.zeros(0, keys), np.zeros(0, values), expect.number("load", 1e-9, MOST_LOAD), primary=expect.number("primary", 1e-9, 1 - 1e-9),
        insert=expect.one_of("insert", ("first-fit", "two-choice")), layout=expect.one_of("layout", get_args(LayoutName)),
    )  # fmt: skip
    made._buckets = int(expect.number("buckets", 1, MOST_BUCKETS, whole=True))
    made._layout = layout_of(made.layout_name, made._buckets, made.primary)
    slots = buckets_in(made._layout) * (LINE // keys.itemsize)
    stash = stash_lanes(slots) if header["version"] == VERSION else STASH
    slots += stash
    made._keys = _array(archive, "keys", path, size, np.dtype(f"u{keys.itemsize}"), exactly=slots)
    made._values = _array(archive, "values", path, size, np.dtype(f"u{values.itemsize}"), exactly=slots + 2)
    made._rows = int(expect.number("rows", 0, 2**62, whole=True))
    sides, extra = header.get("sides"), header.get("extra")
    if not isinstance(sides, list) or len(sides) != 2 or any(side not in (0, 1) for side in sides):
        raise InputError(f'header, "sides": found {sides}; expected two of 0 and 1', where=where)
    if not isinstance(extra, dict) or any(type(value) is not int for value in extra.values()):
        raise InputError('header, "extra": expected integers by name', where=where)
    tomb = empty_of(made._keys.dtype) - 1
    state = made._state
    state[SIDE : SIDE + 2] = sides
    state[STASH_LANES] = stash
    state[STASHED] = np.count_nonzero(made._keys[-stash:] < tomb)
    state[LIVE] = np.count_nonzero(made._keys < tomb) + sum(sides)
    state[TOMBS] = np.count_nonzero(made._keys[:-stash] == tomb)
    state[FAILURES] = int(expect.number("failures", 0, 2**62, whole=True))
    if header["version"] != VERSION:
        made._rebuild(made._buckets)
    return made, extra


def _header(held: np.ndarray, where: str) -> dict[str, Any]:
    try:
        found = json.loads(held.tobytes())
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict) or found.get("magic") != MAGIC:
        raise InputError("found no header of a saved map; expected one", where=where)
    if found.get("version") not in (1, VERSION):
        raise InputError(f"found version {found.get('version')}; expected {VERSION}", where=where)
    return found


class _Expect:
    """Entries of the header, checked."""

    def __init__(self, header: Mapping[str, Any], where: str) -> None:
        self.header, self.where = header, where

    def one_of(self, name: str, legal: tuple[str, ...]) -> Any:
        found = self.header.get(name)
        if found not in legal:
            raise InputError(f'header, "{name}": found {found}; expected one of {", ".join(legal)}', where=self.where)
        return found

    def number(self, name: str, low: float, high: float, *, whole: bool = False) -> float:
        found = self.header.get(name)
        if type(found) not in ((int,) if whole else (int, float)) or not low <= found <= high:  # type: ignore[operator]
            raise InputError(f'header, "{name}": found {found}; expected {low:g} to {high:g}', where=self.where)
        return found  # type: ignore[return-value]


def _array(
    archive: zipfile.ZipFile, name: str, path: Path, size: int, dtype: np.dtype, *, exactly: int | None = None, most: int | None = None
) -> np.ndarray:
    """Reads a member as an array on a 64-byte line; its length is checked against the file before anything is allocated."""
    where = f"{path}: {name}"
    try:
        entry = archive.getinfo(f"{name}.npy")
    except KeyError:
        raise InputError("found no such array; expected one", where=where) from None
    if entry.compress_type != zipfile.ZIP_STORED or entry.file_size > size:
        raise InputError(f"found a compressed array of {entry.file_size} bytes in a file of {size}; expected a stored one", where=where)
    with archive.open(entry) as member:
        try:
            version = np.lib.format.read_magic(member)
            read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
            shape, _, found = read(member)
        except (ValueError, SyntaxError, TypeError) as error:
            raise InputError(f"found a header that cannot be read ({error}); expected that of an array", where=where) from None
        if found != dtype or len(shape) != 1:
            raise InputError(f"found {found} of shape {shape}; expected {dtype} in one dimension", where=where)
        length = shape[0]
        if (exactly is not None and length != exactly) or (most is not None and length > most):
            raise InputError(f"found {length} elements; expected {exactly if exactly is not None else f'at most {most}'}", where=where)
        if length * dtype.itemsize != entry.file_size - member.tell():
            raise InputError(
                f"found {entry.file_size - member.tell()} bytes for {length} elements; expected as many as they take", where=where
            )
        made = aligned(length, dtype)
        into = made.view(np.uint8).data
        got = 0
        while got < len(into):
            count = member.readinto(into[got : got + (1 << 24)])  # type: ignore[attr-defined]
            if not count:
                raise InputError(f"found {got} bytes; expected {len(into)}", where=where)
            got += count
        member.read(1)  # the end, where the checksum is compared
        return made
