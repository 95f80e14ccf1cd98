"""CRC-32C of many pieces of device memory at once, without a copy to the host.

A checksum that starts from zero is linear over GF(2): the words of a piece add up (exclusive or), each advanced by the bytes after it.
Let A advance a register by 32 zero bits. A lane of a program takes every LANES-th word of a segment, acc ← A^LANES acc ⊕ word; at its end
lane l is advanced by A^(LANES − l), and the lanes add up. Segments end where the piece ends (zeros before it change nothing), so that one
more fold, by A^SEGMENT, joins them. The start value 2^32 − 1 is the complement of the first word. The polynomial is that of
`armillary.files.checksums`.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
import triton
import triton.language as tl

_REFLECTED = 0x82F63B78
LANES, ROUNDS = 512, 64
SEGMENT = LANES * ROUNDS


def checksums(words: Any, starts: np.ndarray, counts: np.ndarray) -> Any:
    """Returns CRC-32C (int32 bits, on the device) of the pieces words[start : start + count] of an int32 tensor; counts of 0 give 0."""
    pieces, device = len(starts), words.device
    table = torch.from_numpy(np.stack([starts, counts]).astype(np.int64)).to(device)
    most = max(1, -(-int(counts.max(initial=0)) // SEGMENT))
    parts = torch.empty((pieces, most), dtype=torch.int32, device=device)
    out = torch.empty(pieces, dtype=torch.int32, device=device)
    if pieces:
        words_fold, words_lanes, parts_fold, parts_lanes = _tables(str(device))
        _fold_words[(most, pieces)](words, table[0], table[1], words_fold, words_lanes, parts, most, LANES=LANES, ROUNDS=ROUNDS)
        _fold_parts[(pieces,)](parts, table[1], parts_fold, parts_lanes, out, most, LANES=LANES, SEGMENT=SEGMENT)
    return out


def section_checksums(groups: Sequence[tuple[Any, np.ndarray, np.ndarray]]) -> list[list[int]]:
    """Returns CRC-32C of the sections of each group: (words, first words, bytes). All are read back together, and what is left of a last
    word is added on the host.
    """
    queued = []
    for words, starts, sizes in groups:
        whole, loose = sizes // 4, sizes % 4
        found = checksums(words, starts, whole)
        places = np.where(loose > 0, starts + whole, 0)
        last = words[torch.from_numpy(places).to(words.device)] if words.numel() and loose.any() else torch.zeros_like(found)
        queued.append(torch.stack([found, last]))
    if not queued:
        return []
    together = torch.cat(queued, dim=1).cpu().numpy().view(np.uint32)
    cuts = np.cumsum([len(sizes) for _, _, sizes in groups])[:-1]
    return [
        [_extended(int(c), int(tail).to_bytes(4, "little")[:n]) for c, tail, n in zip(*part, sizes % 4, strict=True)]
        for part, (_, _, sizes) in zip(np.split(together, cuts, axis=1), groups, strict=True)
    ]


def _extended(checksum: int, more: bytes) -> int:
    register = checksum ^ 0xFFFFFFFF
    for byte in more:
        register ^= byte
        for _ in range(8):
            register = (register >> 1) ^ (_REFLECTED if register & 1 else 0)
    return register ^ 0xFFFFFFFF


@triton.jit
def _advanced(acc, fold):
    """Returns the registers `acc` times a constant, by its table of 4 bytes · 256."""
    low = tl.load(fold + (acc & 0xFF).to(tl.int32)) ^ tl.load(fold + 256 + ((acc >> 8) & 0xFF).to(tl.int32))
    return low ^ tl.load(fold + 512 + ((acc >> 16) & 0xFF).to(tl.int32)) ^ tl.load(fold + 768 + (acc >> 24).to(tl.int32))


@triton.jit
def _xor(a, b):
    return a ^ b


@triton.jit
def _joined(acc, lanes, lane, LANES: tl.constexpr):
    """Returns all lanes, each advanced by what comes after it."""
    total = tl.zeros([LANES], tl.uint32)
    for b in range(32):
        factor = tl.load(lanes + b * LANES + lane).to(tl.uint32, bitcast=True)
        total ^= tl.where(((acc >> b) & 1) != 0, factor, 0)
    return tl.reduce(total, 0, _xor)


@triton.jit
def _fold_words(words, starts, counts, fold, lanes, parts, most, LANES: tl.constexpr, ROUNDS: tl.constexpr):
    segment, piece = tl.program_id(0), tl.program_id(1)
    start, count = tl.load(starts + piece), tl.load(counts + piece)
    segments = (count + LANES * ROUNDS - 1) // (LANES * ROUNDS)
    if segment < segments:
        lane = tl.arange(0, LANES)
        first = count - (segments - segment) * (LANES * ROUNDS)
        acc = tl.zeros([LANES], tl.uint32)
        # Rounds before the piece's first word would leave zero zero.
        for r in range((tl.maximum(-first, 0) // LANES).to(tl.int32), ROUNDS):
            at = first + r * LANES + lane
            word = tl.load(words + start + at, mask=at >= 0, other=0).to(tl.uint32, bitcast=True)
            word ^= tl.where(at == 0, 0xFFFFFFFF, 0).to(tl.uint32)
            acc = _advanced(acc, fold).to(tl.uint32, bitcast=True) ^ word
        tl.store(parts + piece * most + segment, _joined(acc, lanes, lane, LANES).to(tl.int32, bitcast=True))


@triton.jit
def _fold_parts(parts, counts, fold, lanes, out, most, LANES: tl.constexpr, SEGMENT: tl.constexpr):
    piece = tl.program_id(0)
    count = tl.load(counts + piece)
    segments = (count + SEGMENT - 1) // SEGMENT
    if segments > 1:
        lane = tl.arange(0, LANES)
        rounds = ((segments + LANES - 1) // LANES).to(tl.int32)
        acc = tl.zeros([LANES], tl.uint32)
        for r in range(rounds):
            at = segments - (rounds - r) * LANES + lane
            part = tl.load(parts + piece * most + at, mask=at >= 0, other=0).to(tl.uint32, bitcast=True)
            acc = _advanced(acc, fold).to(tl.uint32, bitcast=True) ^ part
        tl.store(out + piece, ~_joined(acc, lanes, lane, LANES).to(tl.int32, bitcast=True))
    else:
        tl.store(out + piece, ~tl.load(parts + piece * most, mask=segments > 0, other=-1))


@functools.cache
def _tables(device: str) -> tuple[Any, ...]:
    word = np.uint32(1) << np.arange(32, dtype=np.uint32)
    for _ in range(32):
        word = (word >> np.uint32(1)) ^ np.where(word & np.uint32(1), np.uint32(_REFLECTED), np.uint32(0))
    segment = _power(word, SEGMENT)
    made = [_bytes(_power(word, LANES)), _steps(word, 1), _bytes(_power(segment, LANES)), _steps(segment, 0)]
    return tuple(torch.from_numpy(table.view(np.int32)).to(device) for table in made)


def _applied(matrix: np.ndarray, v: np.ndarray) -> np.ndarray:
    """Returns a matrix over GF(2), given by the images of the 32 bits, times registers."""
    out = np.zeros_like(v)
    for b in range(32):
        out ^= np.where((v >> np.uint32(b)) & np.uint32(1), matrix[b], np.uint32(0))
    return out


def _power(matrix: np.ndarray, n: int) -> np.ndarray:
    out = np.uint32(1) << np.arange(32, dtype=np.uint32)
    while n:
        if n & 1:
            out = _applied(matrix, out)
        matrix, n = _applied(matrix, matrix), n >> 1
    return out


def _bytes(matrix: np.ndarray) -> np.ndarray:
    """Returns the table of `_advanced`."""
    return np.concatenate([_applied(matrix, np.arange(256, dtype=np.uint32) << np.uint32(8 * k)) for k in range(4)])


def _steps(matrix: np.ndarray, last: int) -> np.ndarray:
    """Returns the table of `_joined`, [bit, lane]: lane l advanced LANES − 1 − l + last times."""
    factors = np.empty((32, LANES), np.uint32)
    power = _power(matrix, last)
    for lane in range(LANES - 1, -1, -1):
        factors[:, lane] = power
        power = _applied(matrix, power)
    return factors
