"""Machine code of compiled loops, kept in files that are named after the loops' content.

An entry is one file for one content, one signature and one processor. Because the name stands for all of that, clones of the tree share
their entries, an edit compiles again exactly what it changes, and no entry is ever out of date. A file is written whole and then renamed,
so processes may share the folder. It begins with a checksum, and a file that was cut or changed is ignored. Where the folder cannot be
written, each process compiles for itself. Entries that were not used for 60 days are removed.

The folder is `armillary/kernels` in the user's cache folder (XDG_CACHE_HOME, or `~/.cache`), or the one that ARMILLARY_KERNEL_CACHE names.
Entries are unpickled, so a folder that belongs to someone else, or that others may write to, is not used.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import itertools
import os
import pickle
import re
import time
import uuid
import warnings
from pathlib import Path
from typing import Any

from numba.core import sigutils
from numba.core.bytecode import FunctionIdentity
from numba.core.caching import _Cache
from numba.core.compiler import CompileResult
from numba.core.serialize import dumps

from .content import NoContentError, digest

VARIABLE = "ARMILLARY_KERNEL_CACHE"
DAY_S = 86_400.0
KEPT_S = 60 * DAY_S
_CHECKSUM_BYTES = 32
_ENTRY = re.compile(r"-[0-9a-f]{40}\.kernel(\.[0-9a-f]{32})?$")


class ContentCache(_Cache):
    """The cache of one compiled function, in the form that Numba's dispatchers call."""

    def __init__(self, compiled: Any) -> None:
        self._compiled = compiled
        self._enabled = True
        self._missed: dict[Any, tuple[Path, Any]] = {}

    @property
    def cache_path(self) -> str | None:
        """The folder of the entries, or None where no folder can be used."""
        found = folder()
        return None if found is None else str(found)

    def enable(self) -> None:
        """Turns the cache on, as it is at the start."""
        self._enabled = True

    def disable(self) -> None:
        """Turns the cache off."""
        self._enabled = False

    def flush(self) -> None:
        """Does nothing, because no entry is ever out of date."""

    def load_overload(self, sig: Any, target_context: Any) -> CompileResult | None:
        """The machine code for a signature, or None if it has to be compiled."""
        target_context.refresh()
        where = folder() if self._enabled else None
        signature = sigutils.normalize_signature(sig)
        described = repr((signature, target_context.codegen().magic_tuple()))
        if where is None or " at 0x" in described:  # A function among the arguments is described by its address.
            return None
        try:
            content = digest(self._compiled)
        except NoContentError:
            return None
        name = re.sub(r"\W+", ".", f"{self._compiled.__module__}.{self._compiled.__qualname__}", flags=re.ASCII)[-150:]
        path = where / f"{name}-{hashlib.blake2b(f'{content}{described}'.encode(), digest_size=20).hexdigest()}.kernel"
        found = _read(path, signature, target_context)
        if found is None:
            self._missed[sig] = path, signature
        return found

    def save_overload(self, sig: Any, data: Any) -> None:
        """Keeps what was just compiled, if it can be loaded again."""
        path, signature = self._missed.pop(sig, (None, None))
        if path is None or data.library.has_dynamic_globals or any(not lifted.can_cache for lifted in data.lifted):
            return
        unfinished = path.with_name(f"{path.name}.{uuid.uuid4().hex}")
        with contextlib.suppress(OSError, pickle.PicklingError, TypeError, AttributeError):
            body = dumps((signature, data._reduce()))
            try:
                unfinished.write_bytes(hashlib.sha256(body).digest() + body)
                unfinished.replace(path)
            except OSError:
                unfinished.unlink(missing_ok=True)


def _read(path: Path, signature: Any, target_context: Any) -> CompileResult | None:
    try:
        content = path.read_bytes()
        if hashlib.sha256(content[_CHECKSUM_BYTES:]).digest() != content[:_CHECKSUM_BYTES]:
            return None
        kept, reduced = pickle.loads(content[_CHECKSUM_BYTES:])  # noqa: S301 - only the user can write to the folder.
        found = CompileResult._rebuild(target_context, *reduced) if kept == signature else None
    except Exception:  # Whatever is wrong with an entry, the loop can still be compiled.
        return None
    with contextlib.suppress(OSError):
        if time.time() - path.stat().st_mtime > DAY_S:
            os.utime(path)
    return found


def folder() -> Path | None:
    """The folder of all entries, which is made if it is not there; None where it cannot be used."""
    named = os.environ.get(VARIABLE)
    if not named:
        caches = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
        named = os.path.join(caches, "armillary", "kernels") if os.path.isabs(caches) else os.devnull
    return _checked(os.path.abspath(named))


@functools.cache
def _checked(name: str) -> Path | None:
    path = Path(name)
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = path.stat()
    except OSError:
        return None
    if status.st_uid != os.getuid() or status.st_mode & 0o022:
        warnings.warn(f"{path}: found a folder that someone else owns or may write to, so it keeps no compiled loops", stacklevel=2)
        return None
    with contextlib.suppress(OSError):
        _clean(path)
    return path


def _clean(path: Path) -> None:
    """Removes the entries that were not used for long, at most once per day."""
    stamp, now = path / "cleaned", time.time()
    if stamp.exists() and now - stamp.stat().st_mtime < DAY_S:
        return
    stamp.touch()
    for entry in os.scandir(path):
        if _ENTRY.search(entry.name) and now - entry.stat().st_mtime > KEPT_S:
            with contextlib.suppress(OSError):
                os.unlink(entry.path)


def _number_apart() -> None:
    """Makes Numba number compiled functions from a random start.

    The number is part of the symbols that a loop defines, and Numba starts from 1 in every process. A closure from the cache and one of the
    same name that is compiled now could thus define one symbol differently, and a loop that calls both would call one of them twice.
    """
    FunctionIdentity._unique_ids = itertools.count(int.from_bytes(os.urandom(7), "big"))


_number_apart()
os.register_at_fork(after_in_child=_number_apart)
