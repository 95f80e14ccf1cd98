"""Huffman coding of many chunks on a device, as `default` and `quality` need it; code lengths and tables come from the host."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import triton

from armillary.errors import InputError

from ..stages.huffman import AHEAD, CHUNK, LONGEST, coding_tables, lookup_tables, read_table
from . import huffman_kernels as kernels
from .chunks import on_host

#: Lanes of `pack` and `unpack`.
LANES, DECODED = 1024, 32


def code_tables(rows: Sequence[np.ndarray], device: Any) -> tuple[list[bytes], Any]:
    """Returns the section `table` for the counts of each chunk, and its entries on the device, all zero where one symbol alone occurs."""
    tables, entries = [], np.zeros((len(rows), rows[0].size), np.uint32)
    for k, counts in enumerate(rows):
        table, found = coding_tables(counts[: int(np.flatnonzero(counts)[-1]) + 1], int(counts.sum()))
        tables.append(table.tobytes())
        if found is not None:
            entries[k] = found[: counts.size]
    return tables, torch.from_numpy(entries.view(np.int32)).to(device)


def chunk_words(codes: Sequence[Any], counts: Sequence[int], entries: Any) -> list[np.ndarray]:
    """Returns the words of each Huffman chunk of every chunk of codes; there are none where one symbol alone occurs."""
    found = []
    for k, (own, count) in enumerate(zip(codes, counts, strict=True)):
        words = torch.empty(triton.cdiv(count, CHUNK), dtype=torch.int32, device=own.device)
        kernels.count_words[(words.numel(),)](own, entries[k], words, count, CHUNK=CHUNK, num_warps=8)
        found.append(words)
    return [sizes.astype(np.int64) if sizes.any() else np.zeros(0, np.int64) for sizes in on_host(found)]


def pack(codes: Any, count: int, entries: Any, sizes: np.ndarray, bits: Any) -> None:
    """Writes the bits of `count` codes into words that are zero."""
    starts = torch.from_numpy(np.cumsum(sizes) - sizes).to(codes.device)
    kernels.pack[(sizes.size,)](codes, entries, starts, bits, count, LANES=LANES, EACH=CHUNK // LANES, num_warps=8)


@dataclass(frozen=True)
class Stream:
    """The codes of a chunk on their way back: `table` and `sizes` on the host, `bits` as words of the device; `start` among all codes."""

    table: np.ndarray
    sizes: np.ndarray
    bits: Any
    count: int
    start: int


def unpacked(streams: Sequence[Stream], total: int, device: Any, where: str | None) -> Any:
    """Returns the codes of all streams, whose bits lie in one memory; those of all chunks are decoded together, because a lane takes
    thousands of steps and one chunk has few of them.
    """
    codes = torch.empty(total, dtype=torch.int16, device=device)
    memory = streams[0].bits.untyped_storage()
    lanes: list[np.ndarray] = []
    tables: list[tuple[np.ndarray, np.ndarray]] = []
    for stream in streams:
        count, first, lengths = read_table(stream.table, stream.sizes, stream.bits.numel(), stream.count)
        if count != stream.count:
            raise InputError(f"codes: found {count} of uint16; expected {stream.count} of uint16", where=where)
        if lengths.size <= 1:
            codes[stream.start : stream.start + count] = np.array(first, np.uint16).view(np.int16).item()
            continue
        assert stream.bits.untyped_storage().data_ptr() == memory.data_ptr()
        ends = stream.bits.storage_offset() + np.cumsum(stream.sizes, dtype=np.int64)
        firsts = np.arange(stream.sizes.size) * CHUNK
        lanes.append(np.stack([
            ends - stream.sizes, ends, stream.start + firsts, np.minimum(CHUNK, count - firsts), np.full(stream.sizes.size, len(tables))
        ]))  # fmt: skip
        tables.append(lookup_tables(first, lengths))
    if lanes:
        _unpack(memory, np.concatenate(lanes, axis=1), np.stack([t[0] for t in tables]), np.stack([t[1] for t in tables]), codes, where)
    return codes


def _unpack(memory: Any, lanes: np.ndarray, looks: np.ndarray, longers: np.ndarray, codes: Any, where: str | None) -> None:
    assert (looks.shape[1], longers.shape[1]) == (1 << AHEAD, 1 << LONGEST)
    device, chunks = codes.device, lanes.shape[1]
    words = torch.empty(0, dtype=torch.int32, device=device).set_(memory)
    begins, ends, firsts = torch.from_numpy(lanes[:3]).to(device)
    counts, tables = torch.from_numpy(lanes[3:].astype(np.int32)).to(device)
    look, longer = (torch.from_numpy(t.view(np.int32)).to(device) for t in (looks, longers))
    wrong = torch.empty(chunks, dtype=torch.int32, device=device)
    kernels.unpack[(triton.cdiv(chunks, DECODED),)](
        words, begins, ends, firsts, counts, tables, look, longer, codes, wrong, chunks, LANES=DECODED, num_warps=1
    )
    if int(wrong.max()):
        raise InputError("Huffman bits: found a code that is none, or a chunk of another size than its codes", where=where)
