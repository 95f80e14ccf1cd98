"""Directory trees and OCI image layouts, whose files are chunked and hashed here."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import numpy as np

from armillary.errors import InputError, one_line
from armillary.files import open_file, read_json

from ..relocation.similarity import Rows
from ..store.chunking import Chunker, fingerprint
from ..workload import NVME, Devices, Workload, interleave
from .fingerprints import HEX, Numbered

#: The most bytes that one byte of a packed layer may become: DEFLATE's own limit.
_DENSEST = 1032
_LONGEST = 1 << 42


def read_tree(
    path: str | os.PathLike[str], *, chunker: str = "fixed", chunk: int = 16384, writers: int = 16, io: int = 65536, devices: Devices = NVME
) -> Workload:
    """Every regular file under a directory, chunked and hashed here; symbolic links are left out.

    A tree does not say who wrote when, so files come in the order of their names, `writers` at once, interleaved in units of `io` bytes.
    """
    root, cut = Path(path), Chunker(chunker, chunk)
    if not root.is_dir():
        raise InputError("found no directory; expected a tree of files", where=str(root))
    numbered, recipes, names = Numbered(), [], []
    for file in _regular(root):
        with open_file(file, limit=None, unpack=False) as opened:
            recipes.append(_chunked(opened, cut, numbered))
        names.append(file.relative_to(root).as_posix())
    return _from_recipes(recipes, numbered, names, chunk, writers, io, devices)


def read_oci(
    path: str | os.PathLike[str], *, chunker: str = "fixed", chunk: int = 16384, writers: int = 16, io: int = 65536, devices: Devices = NVME
) -> Workload:
    """The layers of every image in an OCI image layout; each layer is one file, unpacked if it is gzip or Zstandard."""
    root, cut = Path(path), Chunker(chunker, chunk)
    numbered, recipes, names = Numbered(), [], []
    for digest in _layers(root):
        with open_file(_blob(root, digest), limit=_LONGEST, ratio=_DENSEST) as opened:
            recipes.append(_chunked(opened, cut, numbered))
        names.append(digest)
    return _from_recipes(recipes, numbered, names, chunk, writers, io, devices)


def _regular(root: Path) -> Iterator[Path]:
    for folder, folders, files in os.walk(root):
        folders.sort()
        for name in sorted(files):
            file = Path(folder, name)
            if file.is_file() and not file.is_symlink():
                yield file


def _chunked(file: BinaryIO, cut: Chunker, numbered: Numbered) -> np.ndarray:
    ids: list[int] = []
    for block, ends in cut.pieces(file):
        view, begin = memoryview(block), 0
        for end in ends.tolist():
            ids.append(numbered.number(fingerprint(view[begin:end]), end - begin))
            begin = end
    return np.array(ids, np.int64)


def _from_recipes(
    recipes: list[np.ndarray], numbered: Numbered, names: list[str], chunk: int, writers: int, io: int, devices: Devices
) -> Workload:
    if writers < 1 or io < 1:
        raise InputError(f"found {writers} writers and units of {io} bytes; expected 1 or more")
    starts = np.concatenate(([0], np.cumsum([len(recipe) for recipe in recipes]))).astype(np.int64)
    values = np.concatenate([np.zeros(0, np.int64), *recipes]).astype(np.int32)
    stream = interleave(starts, writers, max(1, io // chunk), np.random.default_rng(len(values)))
    sizes = np.array(numbered.sizes, np.int64)
    return Workload(Rows(starts, values), sizes, stream, chunk, devices=devices, names=tuple(names))


def _blob(root: Path, digest: object) -> Path:
    kind, _, value = str(digest).partition(":")
    if kind != "sha256" or len(value) != 64 or not HEX.issuperset(value):
        raise InputError(f'found digest "{one_line(str(digest), 90)}"; expected sha256 and 64 hex digits', where=str(root))
    path = root / "blobs" / "sha256" / value
    if not path.is_file():
        raise InputError("found no such blob; expected every blob that a manifest names", where=str(path))
    return path


def _layers(root: Path) -> list[str]:
    """Digests of all layers, each once; manifests and nested indexes are followed."""
    waiting, seen, layers = [root / "index.json"], set(), {}
    while waiting:
        path = waiting.pop(0)
        found = read_json(path)
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
