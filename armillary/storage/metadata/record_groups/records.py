"""The bytes of MDSec: records of 256 B in groups of one granule, and the superblock. The format is our design, in the paper's granularity.

A record is four lines of 64 B. A line is the unit that the device writes as a whole or not at all, so every line that changes in place
carries its own checksum (CRC-32):

    line 0  id i64, parent i64, size i64, atime mtime ctime i64 (ns), mode uid gid u32, CRC of the line u32
    line 1  nlink u32, flags u32, name length u16, kind u8, extensions u8, CRC of the line u32, pointer i64, name[0:40]
    lines 2 and 3: name[40:140], padding, CRC of both u32

A directory's pointer is the first group of its set. A name longer than 140 B continues in an extension record of the same group, with id
and parent as in line 0, kind EXTENSION, and the rest of the name from byte 88 on.

A group is max(granule, 4096) bytes: four lines of header and 15 records (63 in 16 KiB). Header line 0:

    owner i64, bitmap u64, next i64, next bucket i64, generation u32, prefix u32, CRC u32, depth u8, kind u8, 15 fingerprints u8

With more than 15 records the fingerprints are in line 1. They are hints, and every record is compared before it is used. `next` links the
groups of one bucket, and `next bucket`, in a bucket's first group, links the buckets of one directory. 0 means none, because group 0 is
the superblock.
"""

from __future__ import annotations

import numpy as np

from armillary.kernels import kernel, part

RECORD, LINE = 256, 64
INLINE_NAME, LONGEST_NAME, NAME_AT = 140, 255, 88
FREE, FILE, DIRECTORY, SYMLINK, EXTENSION, INTENT = 0, 1, 2, 3, 4, 5
OWN, SHARED, INTENTS = 1, 2, 3
#: Flag of a directory whose children share a group with others.
TINY = 1
#: Most bits of a hash by which a directory is split into buckets.
DEEPEST = 24
#: Since version 2 names are hashed under a key, which stands in the superblock.
MAGIC, VERSION = 0x4345534D5241, 2
ROOT = 1


def _crc_tables() -> np.ndarray:
    tables = np.zeros((8, 256), np.uint32)
    for i in range(256):
        value = i
        for _ in range(8):
            value = (value >> 1) ^ (0xEDB88320 if value & 1 else 0)
        tables[0, i] = value
    for i in range(256):
        for t in range(1, 8):
            before = int(tables[t - 1, i])
            tables[t, i] = (before >> 8) ^ int(tables[0, before & 255])
    return tables


_TABLES = _crc_tables()


@part
def _crc_word(crc, word):
    one = np.uint64(word) ^ np.uint64(crc)
    return (
        _TABLES[7, one & np.uint64(255)]
        ^ _TABLES[6, (one >> np.uint64(8)) & np.uint64(255)]
        ^ _TABLES[5, (one >> np.uint64(16)) & np.uint64(255)]
        ^ _TABLES[4, (one >> np.uint64(24)) & np.uint64(255)]
        ^ _TABLES[3, (one >> np.uint64(32)) & np.uint64(255)]
        ^ _TABLES[2, (one >> np.uint64(40)) & np.uint64(255)]
        ^ _TABLES[1, (one >> np.uint64(48)) & np.uint64(255)]
        ^ _TABLES[0, one >> np.uint64(56)]
    )


@kernel
def crc(words, first, last, skip):
    """Returns the CRC-32 of words[first:last] (uint64), where the half word number `skip` counts as zero (-1 means none)."""
    value = np.uint32(0xFFFFFFFF)
    for i in range(first, last):
        word = words[i]
        if skip >> 1 == i and skip >= 0:
            word = word & (np.uint64(0xFFFFFFFF) if skip & 1 else np.uint64(0xFFFFFFFF00000000))
        value = _crc_word(value, word)
    return value ^ np.uint32(0xFFFFFFFF)


@part
def _sip_round(v0, v1, v2, v3):
    v0 = v0 + v1
    v1 = ((v1 << np.uint64(13)) | (v1 >> np.uint64(51))) ^ v0
    v0 = (v0 << np.uint64(32)) | (v0 >> np.uint64(32))
    v2 = v2 + v3
    v3 = ((v3 << np.uint64(16)) | (v3 >> np.uint64(48))) ^ v2
    v0 = v0 + v3
    v3 = ((v3 << np.uint64(21)) | (v3 >> np.uint64(43))) ^ v0
    v2 = v2 + v1
    v1 = ((v1 << np.uint64(17)) | (v1 >> np.uint64(47))) ^ v2
    return v0, v1, (v2 << np.uint64(32)) | (v2 >> np.uint64(32)), v3


@kernel
def joined_hash(text, start, length, more, more_length, key0, key1):
    """Returns SipHash-1-3 of text[start : start + length] and then text[more : more + more_length], under a key of two words.

    A keyed hash, because names come from strangers: without the key nobody can choose names that fall into one bucket.
    """
    k0, k1 = np.uint64(key0), np.uint64(key1)
    v0, v1 = k0 ^ np.uint64(0x736F6D6570736575), k1 ^ np.uint64(0x646F72616E646F6D)
    v2, v3 = k0 ^ np.uint64(0x6C7967656E657261), k1 ^ np.uint64(0x7465646279746573)
    word = np.uint64(0)
    total = length + more_length
    for i in range(total):
        byte = text[start + i] if i < length else text[more + i - length]
        word |= np.uint64(byte) << np.uint64(8 * (i & 7))
        if i & 7 == 7:
            v0, v1, v2, v3 = _sip_round(v0, v1, v2, v3 ^ word)
            v0 ^= word
            word = np.uint64(0)
    word |= np.uint64(total & 255) << np.uint64(56)
    v0, v1, v2, v3 = _sip_round(v0, v1, v2, v3 ^ word)
    v0 ^= word
    v2 ^= np.uint64(255)
    for _ in range(3):
        v0, v1, v2, v3 = _sip_round(v0, v1, v2, v3)
    return v0 ^ v1 ^ v2 ^ v3


@kernel
def name_hash(text, start, length, key0, key1):
    """Returns the 64-bit hash of a name under a key; its low byte is the fingerprint."""
    return joined_hash(text, start, length, 0, 0, key0, key1)


@kernel
def hash_names(text, offsets, key0, key1, out):
    """Writes the hash of every name in a table."""
    for i in range(len(offsets) - 1):
        out[i] = name_hash(text, offsets[i], offsets[i + 1] - offsets[i], key0, key1)


# Line checksums. `r` is the record's offset in 64-bit words, `b` bytes, `w` words, `h` half words of one space.


@part
def seal_line0(w, h, r):
    h[2 * r + 15] = crc(w, r, r + 8, 2 * r + 15)


@part
def seal_line1(w, h, r):
    h[2 * r + 19] = crc(w, r + 8, r + 16, 2 * r + 19)


@part
def seal_rest(w, h, r):
    h[2 * r + 63] = crc(w, r + 16, r + 32, 2 * r + 63)


@kernel
def record_ok(w, h, r):
    """Returns whether the three checksums of a record are right."""
    return (
        h[2 * r + 15] == crc(w, r, r + 8, 2 * r + 15)
        and h[2 * r + 19] == crc(w, r + 8, r + 16, 2 * r + 19)
        and h[2 * r + 63] == crc(w, r + 16, r + 32, 2 * r + 63)
    )


@part
def seal_header(w, h, g):
    h[2 * g + 10] = crc(w, g, g + 8, 2 * g + 10)


@kernel
def header_ok(w, h, g):
    """Returns whether a group header's checksum is right."""
    return h[2 * g + 10] == crc(w, g, g + 8, 2 * g + 10)


@kernel
def write_record(b, w, h, r, number, parent, attributes, row, nlink, flags, kind, extensions, pointer, text, start, length):
    """Writes a whole record; `attributes[row]` is mode, uid, gid, size, atime, mtime, ctime."""
    for i in range(r, r + 32):
        w[i] = np.uint64(0)
    w[r] = np.uint64(number)
    w[r + 1] = np.uint64(parent)
    w[r + 2] = np.uint64(attributes[row, 3])
    w[r + 3] = np.uint64(attributes[row, 4])
    w[r + 4] = np.uint64(attributes[row, 5])
    w[r + 5] = np.uint64(attributes[row, 6])
    h[2 * r + 12] = np.uint32(attributes[row, 0])
    h[2 * r + 13] = np.uint32(attributes[row, 1])
    h[2 * r + 14] = np.uint32(attributes[row, 2])
    h[2 * r + 16] = np.uint32(nlink)
    h[2 * r + 17] = np.uint32(flags)
    h[2 * r + 18] = np.uint32(length | (kind << 16) | (extensions << 24))
    w[r + 10] = np.uint64(pointer)
    at = 8 * r + NAME_AT
    for i in range(min(length, INLINE_NAME)):
        b[at + i] = text[start + i]
    seal_line0(w, h, r)
    seal_line1(w, h, r)
    seal_rest(w, h, r)


@kernel
def write_extension(b, w, h, r, number, parent, text, start, length):
    """Writes the extension record that holds a name's bytes from 140 on."""
    for i in range(r, r + 32):
        w[i] = np.uint64(0)
    w[r] = np.uint64(number)
    w[r + 1] = np.uint64(parent)
    h[2 * r + 18] = np.uint32((length - INLINE_NAME) | (EXTENSION << 16))
    at = 8 * r + NAME_AT
    for i in range(INLINE_NAME, length):
        b[at + i - INLINE_NAME] = text[start + i]
    seal_line0(w, h, r)
    seal_line1(w, h, r)
    seal_rest(w, h, r)


@part
def kind_of(b, r):
    return np.int64(b[8 * r + 74])


@part
def extensions_of(b, r):
    return np.int64(b[8 * r + 75])


@part
def name_length(h, r):
    return np.int64(h[2 * r + 18] & np.uint32(0xFFFF))
