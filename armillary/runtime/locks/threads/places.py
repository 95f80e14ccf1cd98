"""Where the words of locks and threads lie in one array of uint64.

Lock `i` has its words from `i · lock_stride` on. What belongs to a thread begins at `threads`, then comes one word that counts blocks, and
then the waiting array. A word that several threads write has a line of 128 bytes to itself, because cores fetch two lines of 64 at once,
unless the caller wants small locks (`pad=False`).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from armillary.errors import InputError

LINE_WORDS = 16
LINE_BYTES = 8 * LINE_WORDS
MOST_WORDS = 1 << 28
Words = npt.NDArray[np.uint64]


class Places(NamedTuple):
    """Positions in the array, all in words."""

    #: From one lock to the next, and from one word of a lock to its next.
    lock_stride: int
    word_stride: int
    #: The first word of thread 0, and from one thread to the next.
    threads: int
    thread_stride: int
    #: The word that counts blocks of values.
    counter: int
    #: The first word of the waiting array, from one slot to the next, and the number of slots less one.
    array: int
    slot_stride: int
    slot_mask: int
    #: Values in a block.
    block: int
    lock_count: int
    thread_count: int
    #: In a lock, the word in which its holder keeps its token; 0 where the loop keeps it.
    held: int

    @property
    def size(self) -> int:
        """Words of the whole array."""
        return self.array + (self.slot_mask + 1) * self.slot_stride


def places(
    locks: int, threads: int, *, words_of_a_lock: int, slots: int = 0, pad: bool = True, pad_slots: bool = True, parks: bool = False,
    block: int = 1 << 16, words_of_a_thread: int = LINE_WORDS, held: int = 0,
) -> Places:  # fmt: skip
    """Lays out so many locks for so many threads.

    A word on which threads sleep (`parks`) has the number of sleepers beside it. After a lock's shared words come as many that belong to
    its holder as `held` says, on the line of the last shared one.
    """
    if locks < 1 or threads < 1:
        raise InputError(f"found {locks} locks and {threads} threads; expected at least one of each")
    word = LINE_WORDS if pad else 2 if parks else 1
    keeps = (words_of_a_lock - 1) * word + (2 if parks else 1)
    stride = word * words_of_a_lock if pad else keeps + held
    if locks * stride > MOST_WORDS or threads * LINE_WORDS > MOST_WORDS:
        raise InputError(f"found {locks} locks and {threads} threads; expected at most {MOST_WORDS // stride:,} of these locks")
    first = -(-locks * stride // LINE_WORDS) * LINE_WORDS
    own = -(-words_of_a_thread // LINE_WORDS) * LINE_WORDS
    counter = first + threads * own
    slot = LINE_WORDS if pad_slots else 2 if parks else 1
    return Places(
        stride, word, first, own, counter, counter + LINE_WORDS, slot, max(slots, 1) - 1, block, locks, threads, keeps
    )  # fmt: skip


def aligned(size: int) -> Words:
    """That many words of 0, the first of which begins a line."""
    raw = np.zeros(size + LINE_WORDS, np.uint64)
    return raw[-(raw.ctypes.data // 8) % LINE_WORDS :][:size]


def checked(words: Any, at: Places) -> Words:
    """The caller's array, if locks can lie in it."""
    if not isinstance(words, np.ndarray) or words.dtype != np.uint64:
        raise InputError(f"words: found {getattr(words, 'dtype', type(words).__name__)}; expected a NumPy array of uint64")
    if words.ndim != 1 or not words.flags.c_contiguous or not words.flags.writeable:
        raise InputError("words: found an array of another form; expected a C-contiguous one in one dimension that can be written")
    if words.ctypes.data % 8:
        raise InputError(f"words: found an array that begins at byte {words.ctypes.data % 8} of a word; expected one aligned to 8 bytes")
    if len(words) < at.size:
        raise InputError(f"words: found {len(words):,} words; expected at least {at.size:,} for these locks and threads")
    return words
