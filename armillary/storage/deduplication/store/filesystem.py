"""A DedupStore as an fsspec filesystem `dedup://`, which Dask, pandas and Zarr can read and write.

fsspec.filesystem("dedup", store="folder"), or a URL `dedup://name` with storage_options={"store": "folder"}. Directories are the
prefixes of names, and a file that is written exists once it is closed.
"""

from __future__ import annotations

import io
from typing import Any

from armillary.errors import InputError

try:
    from fsspec.spec import AbstractFileSystem  # type: ignore[import-untyped]
except ImportError:
    raise InputError("found no package fsspec; expected it for dedup:// (pip install fsspec)") from None

from .dedup_store import DedupStore, Writer


class DedupFileSystem(AbstractFileSystem):  # type: ignore[misc]
    """Reads, writes, lists and removes files of the store in the folder `store`."""

    protocol = "dedup"
    cachable = False

    def __init__(self, store: str | DedupStore, chunker: str = "fixed", chunk: int = 16384, readonly: bool = False, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.dedup = store if isinstance(store, DedupStore) else _shared(str(store), chunker, chunk, readonly)

    def ls(self, path: str, detail: bool = True, **kwargs: Any) -> list[Any]:
        """Files and directories right under `path`."""
        path = self._strip_protocol(path).strip("/")
        if path in self.dedup:
            found = {path: {"name": path, "size": self.dedup.size(path), "type": "file"}}
        else:
            prefix = f"{path}/" if path else ""
            found = {}
            for name in self.dedup.names():
                if name.startswith(prefix):
                    step, slash, _ = name[len(prefix) :].partition("/")
                    where = prefix + step
                    size = 0 if slash else self.dedup.size(name)
                    found.setdefault(where, {"name": where, "size": size, "type": "directory" if slash else "file"})
            if not found and path:
                raise FileNotFoundError(path)
        return sorted(found.values(), key=lambda entry: entry["name"]) if detail else sorted(found)

    def _open(self, path: str, mode: str = "rb", **kwargs: Any) -> Any:
        path = self._strip_protocol(path).strip("/")
        if mode == "rb":
            if path not in self.dedup:
                raise FileNotFoundError(path)
            return io.BufferedReader(_Reading(self.dedup, path), 1 << 20)
        if mode == "ab" and path in self.dedup:
            writing = _Writing(self.dedup.writer(path))
            for piece in self.dedup.pieces(path):
                writing.write(piece)
            return writing
        if mode in ("wb", "ab"):
            return _Writing(self.dedup.writer(path))
        raise InputError(f'found mode "{mode}"; expected rb, wb or ab', where=path)

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **kwargs: Any) -> bytes:
        """Bytes `start` to `end`; negative ones count from the end."""
        path = self._strip_protocol(path).strip("/")
        if path not in self.dedup:
            raise FileNotFoundError(path)
        first, last, _ = slice(start, end).indices(self.dedup.size(path))
        return self.dedup.get(path, first, max(0, last - first))

    def pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **kwargs: Any) -> None:
        """Stores bytes."""
        path = self._strip_protocol(path).strip("/")
        if mode == "create" and path in self.dedup:
            raise FileExistsError(path)
        self.dedup.put(path, value)

    def rm(self, path: str | list[str], recursive: bool = False, maxdepth: int | None = None) -> None:
        """Removes files, or whole directories with `recursive`."""
        for one in [path] if isinstance(path, str) else path:
            if "*" not in one and not self.exists(one):
                raise FileNotFoundError(one)
        super().rm(path, recursive=recursive, maxdepth=maxdepth)

    def _rm(self, path: str) -> None:
        path = self._strip_protocol(path).strip("/")
        # A recursive removal also passes directories, which go with their last file.
        if path in self.dedup:
            self.dedup.delete(path)

    def mkdir(self, path: str, create_parents: bool = True, **kwargs: Any) -> None:
        """Does nothing, because directories are prefixes."""

    def makedirs(self, path: str, exist_ok: bool = False) -> None:
        """Does nothing, because directories are prefixes."""

    def rmdir(self, path: str) -> None:
        """Does nothing, because directories are prefixes."""


class _Reading(io.RawIOBase):
    """A file of the store, read at any place."""

    def __init__(self, store: DedupStore, name: str) -> None:
        self._store, self._name, self._at = store, name, 0
        self._size = store.size(name)

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = 0) -> int:
        base = (0, self._at, self._size)[whence]
        if base + offset < 0:
            raise ValueError("negative seek position")
        self._at = base + offset
        return self._at

    def tell(self) -> int:
        return self._at

    def readinto(self, buffer: Any) -> int:
        data = self._store.get(self._name, self._at, len(buffer))
        buffer[: len(data)] = data
        self._at += len(data)
        return len(data)


class _Writing(io.RawIOBase):
    """A new file, which is in the store once it is closed, and never if its writer fails."""

    def __init__(self, writer: Writer) -> None:
        self._writer, self._at = writer, 0

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def write(self, data: Any) -> int:
        view = memoryview(data).cast("B")
        self._writer.write(view)
        self._at += len(view)
        return len(view)

    def close(self) -> None:
        if not self.closed:
            self._writer.close()
        super().close()

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if kind is not None:
            self._writer.abort()
        super().__exit__(kind, error, trace)

    def discard(self) -> None:
        """Forgets what was written."""
        self._writer.abort()


_OPENED: dict[str, DedupStore] = {}


def _shared(path: str, chunker: str, chunk: int, readonly: bool) -> DedupStore:
    """The one store of a folder in this process, because a folder has one writer."""
    import os

    key = os.path.realpath(path)
    found = _OPENED.get(key)
    if found is None or found.closed or (found.readonly and not readonly):
        found = _OPENED[key] = DedupStore(path, chunker, chunk, readonly=readonly)
    return found
