"""Which dense id does this key have? 0 for the first key ever seen, 1 for the next new one, and so on.

An open-addressing table over arrays, filled as keys arrive: no sorting, no whole trace in memory. A slot is one 64-bit word, the
upper half of the key's hash beside its id, so a line of the processor's cache holds eight slots and a probe seldom looks at a key
that is not the right one. The home of a key is the top bits of its hash: a table doubles by one pass over its own words, in
order, and hashes no key again.

The hash is seeded afresh in every map, so that nobody can prepare keys that all meet in one place; ids depend on the order of the
keys only, never on the seed.
"""

from __future__ import annotations

import secrets

import numpy as np
from numba import types
from numba.extending import intrinsic

from armillary.errors import InputError
from armillary.kernels import loop

#: Ids are int32, so no map holds more keys than this.
MOST_KEYS = 2**31 - 1
_FIRST_BITS = 12
#: Keys hashed ahead of their probes; their slots are on the way from memory while the first of them is looked up.
_AHEAD = 64


class IdMap:
    """Dense int32 ids for keys of one or two 64-bit words, in order of first appearance.

    Memory: at most 8 B a key for each word of it and 8 to 32 B a key for the table (it doubles at three quarters full), and the
    old table beside the new one while it doubles.
    """

    def __init__(self, *, words: int = 1, seed: int | None = None) -> None:
        #: 64-bit words of a key, one or two.
        self.words = words
        self._seed = np.uint64((secrets.randbits(64) if seed is None else seed) & (2**64 - 1))
        self._bits = _FIRST_BITS
        self._slots = np.zeros(1 << _FIRST_BITS, np.uint64)
        self._first = np.empty(1 << _FIRST_BITS, np.uint64)
        self._second = np.empty(1 << _FIRST_BITS, np.uint64) if words == 2 else None
        self._count = 0

    def __len__(self) -> int:
        return self._count

    @property
    def keys(self) -> np.ndarray:
        """uint64[len(self)]: the key of each id (its first word)."""
        return self._first[: self._count]

    def map(self, keys: np.ndarray, second: np.ndarray | None = None) -> np.ndarray:
        """int32[n]: the id of each key; keys not seen before get the next ids. `keys` and `second` are uint64[n]."""
        if (second is None) != (self._second is None):
            raise TypeError("a map of two-word keys takes both words, a map of one-word keys one")
        out = np.empty(len(keys), np.int32)
        done = 0
        while done < len(keys):
            limit = min((len(self._slots) * 3) // 4, MOST_KEYS)
            done, self._count = _map(
                keys,
                second,
                done,
                self._seed,
                self._slots,
                np.uint64(64 - self._bits),
                self._first,
                self._second,
                self._count,
                limit,
                out,
            )
            if done < len(keys):
                self._grow()
        return out

    def _grow(self) -> None:
        if self._count >= MOST_KEYS:
            raise InputError(f"found more than {MOST_KEYS} different ids; expected at most that many (ids are 32-bit inside)")
        self._bits += 1
        grown = np.zeros(1 << self._bits, np.uint64)
        _rehash(self._slots, grown, np.uint64(64 - self._bits))
        self._slots = grown
        self._first = _longer(self._first, len(grown))
        if self._second is not None:
            self._second = _longer(self._second, len(grown))


def _longer(values: np.ndarray, length: int) -> np.ndarray:
    longer = np.empty(length * 3 // 4 + 1, values.dtype)
    longer[: min(len(values), len(longer))] = values[: len(longer)]
    return longer


@intrinsic
def _prefetch(typing_context, array, index):
    """Ask memory for `array[index]` (uint64) without waiting for it."""

    def generate(context, builder, signature, arguments):
        from llvmlite import ir  # type: ignore[import-untyped]
        from numba.np import arrayobj

        view = arrayobj.make_array(signature.args[0])(context, builder, arguments[0])
        byte_pointer = ir.IntType(8).as_pointer()
        pointer = builder.bitcast(builder.gep(view.data, [arguments[1]]), byte_pointer)
        i32 = ir.IntType(32)
        function = builder.module.declare_intrinsic(
            "llvm.prefetch", [byte_pointer], fnty=ir.FunctionType(ir.VoidType(), [byte_pointer, i32, i32, i32])
        )
        builder.call(function, [pointer, i32(0), i32(3), i32(1)])
        return context.get_dummy_value()

    return types.void(array, types.int64), generate


@loop(inline="always")
def mix(word, seed):
    """A 64-bit hash of a 64-bit word: two multiply-xorshift rounds, every output bit depends on every input bit."""
    h = (word ^ seed) * np.uint64(0x9E3779B97F4A7C15)
    h = (h ^ (h >> np.uint64(32))) * np.uint64(0xD6E8FEB86659FD93)
    h = (h ^ (h >> np.uint64(32))) * np.uint64(0xD6E8FEB86659FD93)
    return h ^ (h >> np.uint64(32))


@loop
def _map(keys, second, start, seed, slots, shift, first_of, second_of, count, limit, out):
    # Stops before the new key that would overfill the table; returns how far it came and how many keys the map holds.
    # A slot is hash[63:32] << 32 | id + 1; zero is free. Every key lies between its home and the next free slot.
    n = len(keys)
    last = len(slots) - 1
    half = np.uint64(32)
    low = np.uint64(0xFFFFFFFF)
    hashes = np.empty(_AHEAD, np.uint64)
    i = start
    while i < n:
        batch = min(_AHEAD, n - i)
        for j in range(batch):
            h = mix(keys[i + j], seed)
            if second is not None:
                h = mix(second[i + j], h)
            hashes[j] = h
            _prefetch(slots, np.int64(h >> shift))
        for j in range(batch):
            h = hashes[j]
            at = np.int64(h >> shift)
            mark = h >> half
            while True:
                word = slots[at]
                if word == np.uint64(0):
                    if count >= limit:
                        return i + j, count
                    slots[at] = (mark << half) | np.uint64(count + 1)
                    first_of[count] = keys[i + j]
                    if second is not None:
                        second_of[count] = second[i + j]
                    out[i + j] = count
                    count += 1
                    break
                if word >> half == mark:
                    known = np.int64(word & low) - 1
                    if first_of[known] == keys[i + j] and (second is None or second_of[known] == second[i + j]):
                        out[i + j] = known
                        break
                at = (at + 1) & last
        i += batch
    return n, count


@loop
def _rehash(old, new, shift):
    last = len(new) - 1
    short = shift - np.uint64(32)
    for i in range(len(old)):
        word = old[i]
        if word != np.uint64(0):
            at = np.int64((word >> np.uint64(32)) >> short)
            while new[at] != np.uint64(0):
                at = (at + 1) & last
            new[at] = word
