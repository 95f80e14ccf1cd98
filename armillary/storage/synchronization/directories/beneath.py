"""Opening what lies below a directory without ever leaving it: no component of a path may be a link, or lead up.

Linux 5.6 and later resolves a whole path so in one call (`openat2`); elsewhere the path is walked, one component at a time.
"""

from __future__ import annotations

import ctypes
import errno
import functools
import os
import platform
import struct
from typing import Any

#: The call's number on these machines, the length of its argument, and RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS.
_NUMBER = {"x86_64": 437, "aarch64": 437, "riscv64": 437}
_HOW, _RESOLVE = struct.Struct("QQQ"), 0x08 | 0x04 | 0x02
_WALKS = (errno.ENOSYS, errno.EPERM, errno.EINVAL, errno.E2BIG)


def open_beneath(root: int, path: bytes, flags: int) -> int:
    """Opens a path below the directory `root` and returns its descriptor. A link on the way, or at the end, is ELOOP or EXDEV."""
    if not path or path.startswith(b"/") or any(part in (b"", b".", b"..") for part in path.split(b"/")):
        raise OSError(errno.EXDEV, "leads out of the directory")
    flags |= os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    call = _openat2()
    if call is not None:
        how = _HOW.pack(flags, 0, _RESOLVE)
        opened: int = call(root, path, how, len(how))
        if opened >= 0:
            return opened
        found = ctypes.get_errno()
        if found not in _WALKS:
            raise OSError(found, os.strerror(found))
    return _walked(root, path, flags)


def _walked(root: int, path: bytes, flags: int) -> int:
    *folders, name = path.split(b"/")
    within = os.dup(root)
    try:
        for folder in folders:
            below = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=within)
            os.close(within)
            within = below
        return os.open(name, flags, dir_fd=within)
    finally:
        os.close(within)


def create_new(path: str | os.PathLike[str]) -> int:
    """Opens a new file for writing, in place of whatever had the name, which is unlinked and never followed."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        return os.open(path, flags, 0o600)
    except FileExistsError:
        os.unlink(path)
        return os.open(path, flags, 0o600)


@functools.cache
def _openat2() -> Any:
    number = _NUMBER.get(platform.machine())
    if platform.system() != "Linux" or number is None:
        return None
    library = ctypes.CDLL(None, use_errno=True)
    library.syscall.restype = ctypes.c_long
    return lambda root, path, how, size: library.syscall(ctypes.c_long(number), root, ctypes.c_char_p(path), ctypes.c_char_p(how),
                                                         ctypes.c_size_t(size))  # fmt: skip
