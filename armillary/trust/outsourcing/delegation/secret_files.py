"""A client's secrets in a file: a magic number, a version, what the client holds, and a checksum over all of it.

The file is written beside its place with the wanted mode and then renamed, so that no other user can read it at any time and no half of it
is ever found.
"""

from __future__ import annotations

import hashlib
import os
import struct
import uuid
from pathlib import Path

import numpy as np
import numpy.typing as npt

from armillary.errors import InputError
from armillary.files import read_bytes
from armillary.trust.outsourcing.group.bases import MOST_TERMS, words_of_bytes
from armillary.trust.outsourcing.group.scalars import first_large

from .shifts import SEED_BYTES, SeededShifts, Shifts, StoredShifts

Words = npt.NDArray[np.uint64]

MAGIC = b"ARM-2G2T"
VERSION = 1
STORED, SEEDED = 0, 1
#: Magic number, version, kind, number of bases, limit, rejections, multiplier.
_HEAD = struct.Struct("<8sHHQQQ32s")
_CHECKSUM = 32


def write(path: str | Path, multiplier: Words, shifts: Shifts, limit: int, rejections: int, mode: int) -> None:
    """Writes the secrets."""
    kind = SEEDED if isinstance(shifts, SeededShifts) else STORED
    body = shifts.seed if isinstance(shifts, SeededShifts) else shifts.words(0, len(shifts)).astype("<u8").tobytes()
    data = _HEAD.pack(MAGIC, VERSION, kind, len(shifts), limit, rejections, multiplier.astype("<u8").tobytes()) + body
    target = Path(path)
    beside = target.with_name(f".{target.name}.{uuid.uuid4().hex}")
    try:
        descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
        with os.fdopen(descriptor, "wb") as file:
            file.write(data + hashlib.blake2b(data, digest_size=_CHECKSUM).digest())
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, target)
    except OSError as error:
        beside.unlink(missing_ok=True)
        raise InputError(f"cannot be written ({error.strerror})", where=str(path)) from None


def read(path: str | Path) -> tuple[Words, Shifts, int, int]:
    """(multiplier, shifts, limit, rejections) from a file."""
    data = read_bytes(path, limit=_HEAD.size + 32 * MOST_TERMS + _CHECKSUM, unpack=False)
    where = str(path)
    if len(data) < _HEAD.size + _CHECKSUM or not data.startswith(MAGIC):
        raise InputError("found no secrets of a 2G2T client; expected a file that Client.save wrote", where=where)
    _, version, kind, count, limit, rejections, multiplier = _HEAD.unpack_from(data)
    if version != VERSION:
        raise InputError(f"found version {version}; expected {VERSION}", where=where)
    if hashlib.blake2b(data[:-_CHECKSUM], digest_size=_CHECKSUM).digest() != data[-_CHECKSUM:]:
        raise InputError("found another checksum than that of the content; expected a whole file", where=where)
    body = data[_HEAD.size : -_CHECKSUM]
    k = words_of_bytes(multiplier, where)
    if kind not in (STORED, SEEDED) or count > MOST_TERMS or len(body) != (SEED_BYTES if kind == SEEDED else 32 * count):
        raise InputError(
            f"found {len(body):,} bytes of secrets for {count:,} bases of kind {kind}; expected as many as they need", where=where
        )
    if not k.any() or first_large(k) >= 0 or limit < 1:
        raise InputError("found a multiplier or a limit out of its range; expected 1 to q − 1, and at least 1", where=where)
    if kind == SEEDED:
        return k[0], SeededShifts(body, count), limit, rejections
    words = words_of_bytes(body, where)
    if first_large(words) >= 0:
        raise InputError(f"shift {first_large(words)}: found a number that is not below q", where=where)
    return k[0], StoredShifts(np.array(words)), limit, rejections
