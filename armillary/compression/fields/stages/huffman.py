"""The stage `huffman` writes canonical Huffman codes of at most 16 bits, in chunks that are coded and decoded independently.

The code lengths are optimal under the limit (package-merge, Larmore and Hirschberg 1990) and computed on the host from the counts.
Decoding looks 12 bits ahead in a table; longer codes go on by the canonical rule.

Layout. `table`: bytes; u64 number of codes, u16 first symbol, then one byte per symbol: its length, 0 for one that does not occur. Codes
of one length rise with the symbol; longer codes come after shorter ones. Where one symbol alone occurs it takes no bits. `sizes`:
uint16, 32-bit words of each chunk of 2^14 codes (its offset is their sum before it). `bits`: uint32 words, each chunk from a word of
its own, codes from the most significant bit down, zeros at the end.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from armillary.errors import InputError
from armillary.kernels import loop

from .slabs import each, pieces
from .stage import Context, Port, Stage

CHUNK = 1 << 14
LONGEST = 16
AHEAD = 12
_GROUP = 32


@dataclass(frozen=True)
class Huffman(Stage):
    """Canonical Huffman coding, limited to 16 bits."""

    name = "huffman"
    inputs = (Port("codes", "codes"), Port("counts", "counts"))
    outputs = (Port("table", "bytes"), Port("sizes", "words"), Port("bits", "words"))

    def forward(self, ctx: Context, *, codes: np.ndarray, counts: np.ndarray) -> dict[str, np.ndarray]:  # type: ignore[override]
        """Returns the table, the sizes and the bits."""
        table, entries = coding_tables(counts, codes.size)
        if entries is None:
            return {"table": table, "sizes": np.zeros(0, np.uint16), "bits": np.zeros(0, np.uint32)}
        coded = each(lambda a, b: _encode(codes[a:b], entries), pieces(codes.size, _GROUP * CHUNK), ctx.threads)
        return {"table": table, "sizes": np.concatenate([c[0] for c in coded]), "bits": np.concatenate([c[1] for c in coded])}

    def inverse(self, ctx: Context, *, table: np.ndarray, sizes: np.ndarray, bits: np.ndarray) -> dict[str, np.ndarray]:  # type: ignore[override]
        """Returns the codes."""
        count, first, lengths = read_table(table, sizes, bits.size if bits.dtype == np.uint32 else -1, ctx.size)
        if lengths.size <= 1:
            return {"codes": np.full(count, first, np.uint16)}
        look, limits, offsets, symbols = _decoding_tables(_from_zero(first, lengths))
        starts = np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)])
        codes = np.empty(count, np.uint16)

        def part(a: int, b: int) -> int:
            return _decode(bits, starts, codes, a, b, look, limits, offsets, symbols)

        if sum(each(part, pieces(sizes.size, _GROUP), ctx.threads)):
            raise InputError("Huffman bits: found a code that is none, or a chunk of another size than its codes")
        return {"codes": codes}


def coding_tables(counts: np.ndarray, size: int) -> tuple[np.ndarray, np.ndarray | None]:
    """Returns the section `table` for `size` codes, and code·32 + length of each of 65536 symbols; None where one symbol alone occurs."""
    lengths = code_lengths(counts)
    used = np.flatnonzero(lengths if np.count_nonzero(counts) > 1 else counts)
    first, last = (int(used[0]), int(used[-1])) if used.size else (0, -1)
    table = np.concatenate([np.array([size], "<u8").view(np.uint8), np.array([first], "<u2").view(np.uint8), lengths[first : last + 1]])
    if used.size < 2:
        return table, None
    entries = np.zeros(65536, np.uint32)
    entries[: lengths.size] = canonical_codes(lengths) << np.uint32(5) | lengths.astype(np.uint32)
    return table, entries


def read_table(table: np.ndarray, sizes: np.ndarray, words: int, most: int) -> tuple[int, int, np.ndarray]:
    """Returns how many codes a section `table` is for (at most `most`), its first symbol and the lengths; `sizes` and `words` held against
    it.
    """
    if table.dtype != np.uint8 or table.size < 10:
        raise InputError(f"Huffman table: found {table.size} bytes; expected at least 10")
    count, first = int(table[:8].view("<u8")[0]), int(table[8:10].view("<u2")[0])
    lengths = table[10:]
    if count > most:
        raise InputError(f"Huffman table: found {count} codes; expected at most {most}")
    if first + lengths.size > 65536 or (lengths.size and int(lengths.max()) > LONGEST):
        raise InputError(
            f"Huffman table: found {lengths.size} symbols from {first}, codes of up to {lengths.max()} bits; expected 65536, {LONGEST}"
        )
    if count and not lengths.size:
        raise InputError(f"Huffman table: found no symbol for {count} codes")
    chunks = -(-count // CHUNK)
    if lengths.size > 1 and (sizes.dtype != np.uint16 or sizes.size != chunks or int(sizes.sum(dtype=np.int64)) != words):
        raise InputError(f"Huffman chunks: found {sizes.size} with {words} words; expected {chunks} whose sizes add up to the words")
    return count, first, lengths


def _from_zero(first: int, lengths: np.ndarray) -> np.ndarray:
    full = np.zeros(first + lengths.size, np.uint8)
    full[first:] = lengths
    return full


def lookup_tables(first: int, lengths: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns symbol·32 + length by the next 12 bits, 0 for a longer code; and the same by the next 16 bits, 0 for no code."""
    order = np.flatnonzero(lengths)
    order = order[np.argsort(lengths[order], kind="stable")]
    own = lengths[order].astype(np.uint32)
    covers = np.uint32(1) << (np.uint32(LONGEST) - own)
    if int(covers.sum(dtype=np.int64)) > 1 << LONGEST:
        raise _too_many()
    longer = np.zeros(1 << LONGEST, np.uint32)
    longer[: int(covers.sum())] = np.repeat((order + first).astype(np.uint32) << np.uint32(5) | own, covers)
    ahead = longer[:: 1 << (LONGEST - AHEAD)]
    return np.where(ahead & np.uint32(31) <= AHEAD, ahead, np.uint32(0)), longer


def _too_many() -> InputError:
    return InputError("Huffman table: found more codes than bits can tell apart")


def code_lengths(counts: np.ndarray, longest: int = LONGEST) -> np.ndarray:
    """Returns optimal code lengths of at most `longest` bits, uint8; a symbol that does not occur or is the only one has length 0."""
    lengths = np.zeros(counts.size, np.uint8)
    used = np.flatnonzero(counts)
    if used.size < 2:
        return lengths
    order = used[np.argsort(counts[used], kind="stable")]
    coins = counts[order].astype(np.int64)
    # There is one list per level: symbols (True) and pairs of the level below, by weight; equal weights put symbols first.
    levels, packages = [], np.zeros(0, np.int64)
    for _ in range(longest):
        weights = np.concatenate([coins, packages])
        by_weight = np.argsort(weights, kind="stable")
        levels.append(by_weight < coins.size)
        weights = weights[by_weight][: weights.size // 2 * 2]
        packages = weights[0::2] + weights[1::2]
    taken = 2 * coins.size - 2
    for is_symbol in reversed(levels):
        symbols = int(np.count_nonzero(is_symbol[:taken]))
        lengths[order[:symbols]] += 1
        taken = 2 * (taken - symbols)
    return lengths


def canonical_codes(lengths: np.ndarray) -> np.ndarray:
    """Returns the code of each symbol, uint32, by the canonical rule."""
    codes = np.zeros(lengths.size, np.uint32)
    code = 0
    for length in range(1, LONGEST + 1):
        code <<= 1
        symbols = np.flatnonzero(lengths == length)
        codes[symbols] = code + np.arange(symbols.size, dtype=np.uint32)
        code += symbols.size
    return codes


def _decoding_tables(lengths: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    # look: by the next 12 bits, symbol·32 + length, 0 for a longer code. limits[l]: the first 16-bit prefix beyond codes of l bits.
    # offsets[l] + code: the place in `symbols`, which are ordered by length, then value.
    if sum(int(n) << (LONGEST - length) for length, n in enumerate(np.bincount(lengths)) if length) > 1 << LONGEST:
        raise _too_many()
    codes = canonical_codes(lengths)
    symbols = np.concatenate([np.flatnonzero(lengths == length) for length in range(1, LONGEST + 1)]).astype(np.uint16)
    look = np.zeros(1 << AHEAD, np.uint32)
    limits, offsets = np.zeros(LONGEST + 2, np.int64), np.zeros(LONGEST + 2, np.int64)
    place, beyond = 0, 0
    for length in range(1, LONGEST + 1):
        own = np.flatnonzero(lengths == length)
        if own.size:
            offsets[length] = place - int(codes[own[0]])
            place += own.size
            beyond = (int(codes[own[-1]]) + 1) << (LONGEST - length)
            if length <= AHEAD:
                each_covers = 1 << (AHEAD - length)
                start = int(codes[own[0]]) * each_covers
                look[start : start + own.size * each_covers] = np.repeat(
                    own.astype(np.uint32) << np.uint32(5) | np.uint32(length), each_covers
                )
        limits[length] = beyond
    return look, limits, offsets, symbols


@loop
def _encode(codes, entries):
    chunks = -(-codes.size // CHUNK)
    sizes = np.zeros(chunks, np.uint16)
    out = np.empty(chunks * (CHUNK // 2) + 2, np.uint32)
    at = 0
    for c in range(chunks):
        begin = at
        # `held` has its `have` < 32 bits at the top; two codes of at most 16 bits fit below, and a full word leaves without a branch.
        held, have = np.uint64(0), np.uint64(0)
        part = codes[c * CHUNK : min(codes.size, (c + 1) * CHUNK)]
        for i in range(0, part.size - 1, 2):
            one, two = np.uint64(entries[part[i]]), np.uint64(entries[part[i + 1]])
            second = two & np.uint64(31)
            length = (one & np.uint64(31)) + second
            pair = ((one >> np.uint64(5)) << second) | (two >> np.uint64(5))
            have += length
            held |= pair << (np.uint64(64) - have)
            out[at] = np.uint32(held >> np.uint64(32))
            full = have >> np.uint64(5)
            at += np.int64(full)
            held = held << (full << np.uint64(5)) if full < np.uint64(2) else np.uint64(0)
            have &= np.uint64(31)
        if part.size & 1:
            one = np.uint64(entries[part[part.size - 1]])
            have += one & np.uint64(31)
            held |= (one >> np.uint64(5)) << (np.uint64(64) - have)
        while np.int64(have) > 0:
            out[at] = np.uint32(held >> np.uint64(32))
            at += 1
            held <<= np.uint64(32)
            have = have - np.uint64(32) if have > np.uint64(32) else np.uint64(0)
        sizes[c] = at - begin
    return sizes, out[:at].copy()


@loop
def _decode(bits, starts, codes, first, last, look, limits, offsets, symbols):
    # Returns how many chunks were not as they should be. A chunk read past its end sees zeros.
    wrong = 0
    for c in range(first, last):
        at, end = starts[c], starts[c + 1]
        held, have = np.uint64(0), 0
        begin, stop = c * CHUNK, min(codes.size, (c + 1) * CHUNK)
        used = 0
        for i in range(begin, stop):
            if have < LONGEST:
                if at < end:
                    held |= np.uint64(bits[at]) << np.uint64(32 - have)
                at += 1
                have += 32
            entry = look[held >> np.uint64(64 - AHEAD)]
            length = np.int64(entry & np.uint32(31))
            if length:
                codes[i] = np.uint16(entry >> np.uint32(5))
            else:
                prefix = np.int64(held >> np.uint64(48))
                length = AHEAD + 1
                while length <= LONGEST and prefix >= limits[length]:
                    length += 1
                if length > LONGEST:
                    wrong += 1
                    for rest in range(i, stop):
                        codes[rest] = 0
                    at = end
                    have = 0
                    break
                codes[i] = symbols[offsets[length] + (prefix >> (LONGEST - length))]
            held <<= np.uint64(length)
            have -= length
            used += length
        if -(-used // 32) != end - starts[c]:
            wrong += 1
    return wrong
