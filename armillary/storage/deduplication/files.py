"""A user's own work: a directory tree, a trace of writes, SNIA's FIU traces, an OCI image layout.

All of them stream; what a number in a file promises is checked before anything is made of it.
"""

from __future__ import annotations

import hashlib
import json
import os
import zlib
from collections.abc import Iterator
from dataclasses import replace
from io import RawIOBase
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from armillary.errors import InputError, one_line

from .chunking import Chunker, fingerprint
from .similarity import Rows
from .workload import NVME, Devices, Updates, Workload, interleave

HEX = frozenset("0123456789abcdef")
COLUMNS = ("time", "client", "file", "offset", "length", "fingerprint")
FIU_BLOCK, FIU_EXTENT = 4096, 1 << 20


class Gathered:
    """Chunks numbered as they are met, by name; the same name with another size is an error of the caller's file."""

    def __init__(self) -> None:
        self.numbers: dict[bytes, int] = {}
        self.sizes: list[int] = []

    def number(self, name: bytes, size: int, where: str) -> int:
        """The chunk of that name."""
        found = self.numbers.setdefault(name, len(self.sizes))
        if found == len(self.sizes):
            self.sizes.append(size)
        elif self.sizes[found] != size:
            raise InputError(f"found {size} bytes for a fingerprint; expected {self.sizes[found]}, as before", where=where)
        return found


def read_tree(
    path: str | os.PathLike[str], *, chunker: str = "fixed", chunk: int = 16384, writers: int = 16, io: int = 65536, devices: Devices = NVME
) -> Workload:
    """Every regular file under a directory, chunked and hashed here; symbolic links are left out.

    A tree does not say who wrote when: files come in order of their names, `writers` at once, interleaved in units of `io` bytes.
    """
    root, cut = Path(path), Chunker(chunker, chunk)
    if not root.is_dir():
        raise InputError("found no directory; expected a tree of files", where=str(root))
    gathered, recipes, names = Gathered(), [], []
    for file in _regular(root):
        with file.open("rb") as opened:
            recipes.append(_chunked(opened, cut, gathered))
        names.append(file.relative_to(root).as_posix())
    return _from_recipes(recipes, gathered, names, chunk, writers, io, devices)


def read_oci(
    path: str | os.PathLike[str], *, chunker: str = "fixed", chunk: int = 16384, writers: int = 16, io: int = 65536, devices: Devices = NVME
) -> Workload:
    """The layers of every image in an OCI image layout folder, each layer a file, uncompressed if it is gzip."""
    root, cut = Path(path), Chunker(chunker, chunk)
    gathered, recipes, names = Gathered(), [], []
    for digest in _layers(root):
        with _blob(root, digest).open("rb") as opened:
            magic = opened.read(2)
            opened.seek(0)
            stream: Any = _Inflated(opened, _blob(root, digest)) if magic == b"\x1f\x8b" else opened
            recipes.append(_chunked(stream, cut, gathered))
        names.append(digest)
    return _from_recipes(recipes, gathered, names, chunk, writers, io, devices)


def read_trace(path: str | os.PathLike[str], *, chunk: int = 16384, devices: Devices = NVME) -> Workload:
    """Writes in CSV or Parquet with columns time, client, file, offset, length, fingerprint (hex), in order of time.

    The first write of a file's extent makes it, a later one of the same extent is an update; extents that overlap otherwise are refused.
    """
    import polars

    file = Path(path)
    try:
        frame = polars.read_parquet(file) if file.suffix == ".parquet" else polars.read_csv(file, infer_schema=False)
    except (polars.exceptions.PolarsError, OSError) as error:
        raise InputError(f"found {one_line(str(error), 120)}; expected a table", where=str(file)) from None
    missing = [name for name in COLUMNS if name not in frame.columns]
    if missing:
        raise InputError(f'found no column "{missing[0]}"; expected {", ".join(COLUMNS)}', where=str(file))
    numbers = {}
    for name, kind in (("time", polars.Float64), ("offset", polars.Int64), ("length", polars.Int64)):
        column = frame[name].cast(kind, strict=False)
        if column.null_count():
            row = int(column.is_null().arg_true()[0])
            raise InputError(f'column "{name}": found "{frame[name][row]}"; expected a number', where=f"{file}:{row + 2}")
        numbers[name] = column.to_numpy()
    rows = zip(
        numbers["time"],
        frame["file"].cast(polars.String),
        numbers["offset"],
        numbers["length"],
        frame["fingerprint"].cast(polars.String),
        strict=True,
    )
    return _from_writes(_checked_rows(rows, file), chunk, devices)


def read_fiu(path: str | os.PathLike[str], *, devices: Devices = NVME) -> Workload:
    """SNIA's FIU IODedup text: `ts_ns pid process lba size_512 W|R major minor md5`; writes of 4 KiB blocks count.

    A file is what one process keeps in 1 MiB of addresses.
    """
    return _from_writes(_fiu_rows(Path(path)), FIU_BLOCK, devices)


def read_work(path: str | os.PathLike[str], **how: Any) -> Workload:
    """Whatever `path` is: an OCI layout or a tree if a directory, a table by its suffix, else FIU text."""
    found = Path(path)
    if found.is_dir():
        return (read_oci if (found / "index.json").is_file() and (found / "blobs").is_dir() else read_tree)(found, **how)
    devices = how.get("devices", NVME)
    if found.suffix in (".csv", ".parquet"):
        return read_trace(found, chunk=how.get("chunk", 16384), devices=devices)
    return read_fiu(found, devices=devices)


def _regular(root: Path) -> Iterator[Path]:
    for folder, folders, files in os.walk(root):
        folders.sort()
        for name in sorted(files):
            file = Path(folder, name)
            if file.is_file() and not file.is_symlink():
                yield file


def _chunked(file: BinaryIO, cut: Chunker, gathered: Gathered) -> np.ndarray:
    ids: list[int] = []
    for block, ends in cut.pieces(file):
        view, begin = memoryview(block), 0
        for end in ends.tolist():
            ids.append(gathered.number(fingerprint(view[begin:end]), end - begin, ""))
            begin = end
    return np.array(ids, np.int64)


def _from_recipes(
    recipes: list[np.ndarray], gathered: Gathered, names: list[str], chunk: int, writers: int, io: int, devices: Devices
) -> Workload:
    if writers < 1 or io < 1:
        raise InputError(f"found {writers} writers and units of {io} bytes; expected 1 or more")
    starts = np.concatenate(([0], np.cumsum([len(recipe) for recipe in recipes]))).astype(np.int64)
    values = np.concatenate([np.zeros(0, np.int64), *recipes]).astype(np.int32)
    stream = interleave(starts, writers, max(1, io // chunk), np.random.default_rng(len(values)))
    sizes = np.array(gathered.sizes, np.int64)
    return Workload(Rows(starts, values), sizes, stream, chunk, devices=devices, names=tuple(names))


def _hex(text: str | None, where: str, digits: int | None = None) -> bytes:
    """A fingerprint; `digits` is how many every one of this file has."""
    bad = not text or len(text) % 2 or not HEX.issuperset(text.lower()) or not 8 <= len(text) <= 128
    if bad or (digits is not None and len(text or "") != digits):
        wanted = f"{digits} hex digits" if digits is not None else "8 to 128 hex digits"
        raise InputError(f'column "fingerprint": found "{one_line(str(text), 60)}"; expected {wanted}', where=where)
    return bytes.fromhex(text or "")


def _checked_rows(rows: Any, path: Path) -> Iterator[tuple[str, str, int, int, bytes]]:
    """(where, file, offset, length, fingerprint) of each write."""
    last, digits = float("-inf"), None
    for line, (time, file, offset, length, name) in enumerate(rows, start=2):
        where = f"{path}:{line}"
        if not time >= last:
            raise InputError(f'column "time": found {time:g} after {last:g}; expected seconds that do not decrease', where=where)
        if offset < 0 or not 0 < length <= 1 << 30:
            raise InputError(f"found offset {offset} and length {length}; expected 0 or more, and 1 to 2^30 bytes", where=where)
        if not file:
            raise InputError('column "file": found nothing; expected a name', where=where)
        found = _hex(name, where, digits)
        last, digits = time, len(name)
        yield where, file, int(offset), int(length), found


def _fiu_rows(path: Path) -> Iterator[tuple[str, str, int, int, bytes]]:
    with path.open("rb") as file:
        for line, raw in enumerate(iter(lambda: file.readline(4096), b""), start=1):
            where, words = f"{path}:{line}", raw.decode("ascii", "replace").split()
            if not words:
                continue
            if len(words) != 9 or words[5] not in ("W", "R"):
                raise InputError(
                    f"found {one_line(' '.join(words), 80)}; expected ts pid process lba size W|R major minor md5", where=where
                )
            if not (words[3].isdecimal() and words[4].isdecimal()) or len(words[3]) > 15 or words[4] != "8":
                raise InputError(f"found block {words[3]} of {words[4]} sectors; expected a number, and 8 sectors", where=where)
            name = _hex(words[8], where, 32)
            if words[5] == "W":
                extent, offset = divmod(512 * int(words[3]), FIU_EXTENT)
                yield where, f"{words[2]}@{extent}", offset, FIU_BLOCK, name


def _from_writes(rows: Iterator[tuple[str, str, int, int, bytes]], chunk: int, devices: Devices) -> Workload:
    """Files from extents; their order of first writing is the stream, and what is written again is one round of updates."""
    gathered = Gathered()
    files: dict[str, dict[int, tuple[int, int, int]]] = {}
    again: list[tuple[str, int, int]] = []
    count = 0
    ends: dict[str, list[tuple[int, int, str]]] = {}
    for where, file, offset, length, name in rows:
        extents, number = files.setdefault(file, {}), gathered.number(name, length, where)
        known = extents.get(offset)
        if known is None:
            extents[offset] = (length, number, count)
            ends.setdefault(file, []).append((offset, length, where))
            count += 1
        elif known[0] == length:
            again.append((file, offset, number))
        else:
            raise InputError(
                f"found {length} bytes at {offset} over an extent of {known[0]}; expected extents that do not overlap", where=where
            )
    starts: list[int] = [0]
    values: list[int] = []
    order: list[int] = []
    place: dict[tuple[str, int], int] = {}
    for file, extents in files.items():
        before, reach = "", 0
        for offset, length, where in sorted(ends[file]):
            if before and offset < reach:
                raise InputError(f"found bytes from {offset} on over an extent that ends at {reach} ({before}); "
                                 "expected extents that do not overlap", where=where)  # fmt: skip
            before, reach = where, offset + length
            place[file, offset] = len(values)
            values.append(extents[offset][1])
            order.append(extents[offset][2])
        starts.append(len(values))
    stream = np.argsort(np.array(order, np.int64), kind="stable")
    work = Workload(Rows(np.array(starts, np.int64), np.array(values, np.int32)), np.array(gathered.sizes, np.int64), stream, chunk,
                    devices=devices, names=tuple(files))  # fmt: skip
    if not again:
        return work
    refs = np.array([place[file, offset] for file, offset, _ in again], np.int64)
    return replace(work, updates=(Updates(refs, np.array([number for _, _, number in again], np.int64)),))


def _json(path: Path) -> Any:
    try:
        if path.stat().st_size > 64 << 20:
            raise InputError(f"found {path.stat().st_size} bytes; expected at most 64 MiB of JSON", where=str(path))
        return json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(f"found {one_line(str(error), 100)}; expected JSON of an OCI image layout", where=str(path)) from None


def _blob(root: Path, digest: object) -> Path:
    kind, _, value = str(digest).partition(":")
    if kind != "sha256" or len(value) != 64 or not HEX.issuperset(value):
        raise InputError(f'found digest "{one_line(str(digest), 90)}"; expected sha256 and 64 hex digits', where=str(root))
    path = root / "blobs" / "sha256" / value
    if not path.is_file():
        raise InputError("found no such blob; expected what a manifest names", where=str(path))
    return path


def _layers(root: Path) -> list[str]:
    """Digests of all layers, each once, manifests and nested indexes followed."""
    waiting, seen, layers = [root / "index.json"], set(), {}
    while waiting:
        path = waiting.pop(0)
        found = _json(path)
        if not isinstance(found, dict):
            raise InputError("found no object; expected an index or a manifest", where=str(path))
        for key in ("manifests", "layers"):
            entries = found.get(key, [])
            if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
                raise InputError(f'"{key}": expected a list of objects', where=str(path))
            for entry in entries:
                blob = _blob(root, entry.get("digest"))
                if key == "layers":
                    layers[str(entry["digest"])] = True
                elif blob not in seen:
                    seen.add(blob)
                    waiting.append(blob)
    return list(layers)


class _Inflated(RawIOBase):
    """A gzip stream as it is read, block by block: it grows at most 1032 times, and only what is asked for is held."""

    def __init__(self, file: BinaryIO, path: Path) -> None:
        self._file, self._path = file, path
        self._inflate = zlib.decompressobj(31)

    def read(self, size: int = -1) -> bytes:
        """At most `size` bytes; fewer only at the end."""
        out = bytearray()
        while len(out) < size:
            raw = self._inflate.unconsumed_tail or self._file.read(1 << 16)
            if not raw or self._inflate.eof:
                break
            try:
                out += self._inflate.decompress(raw, size - len(out))
            except zlib.error as error:
                raise InputError(f"found {error}; expected gzip", where=str(self._path)) from None
        return bytes(out)


def tree_digest(path: Path) -> str:
    """Hex digest over names, sizes and times of a directory's files: whether it is still the same."""
    digest = hashlib.sha256()
    for file in _regular(path):
        found = file.stat()
        digest.update(f"{file.relative_to(path).as_posix()}\0{found.st_size}\0{found.st_mtime_ns}\n".encode("utf-8", "surrogateescape"))
    return digest.hexdigest()
