"""Takes rare patterns apart: a pattern that hardly repeats becomes the words that make it rare and a skeleton that does repeat."""

from __future__ import annotations

import numpy as np

from armillary.kernels import loop

from ..records.split import intern
from .numbers import FIRST, MARK, RAW, WORD, _kind

#: A pattern that occurs less often is taken apart; a word in at least this share of the lines concerned stays in the skeleton.
RARE, FIXED = 3, 0.5


@loop
def _spans(text, starts, ends, chosen):
    # Returns (start, end, pattern) of each run of letters in the chosen patterns.
    count = 0
    for turn in range(2):
        if turn:
            begins = np.empty(count, np.int64)
            stops = np.empty(count, np.int64)
            owners = np.empty(count, np.int64)
            count = 0
        for pattern in range(len(starts)):
            if not chosen[pattern]:
                continue
            at, end = starts[pattern], ends[pattern]
            if end - at >= 2 and text[at] == MARK and text[at + 1] == RAW:
                continue
            while at < end:
                if text[at] == MARK:
                    at += 2
                    continue
                begin = at
                while at < end and _kind(text[at]) == 1:
                    at += 1
                if at > begin:
                    if turn:
                        begins[count], stops[count], owners[count] = begin, at, pattern
                    count += 1
                else:
                    at += 1
    return begins, stops, owners


@loop
def _skeletons(text, starts, ends, begins, stops, owners, taken):
    # Returns all patterns with the taken spans replaced by the mark of a word, and where each ends.
    out = np.empty(2 * len(text) + 2, np.uint8)
    limits = np.zeros(len(starts) + 1, np.int64)
    write, span = 0, 0
    for pattern in range(len(starts)):
        at = starts[pattern]
        while at < ends[pattern]:
            while span < len(begins) and (owners[span] < pattern or (owners[span] == pattern and begins[span] < at)):
                span += 1
            if span < len(begins) and owners[span] == pattern and begins[span] == at and taken[span]:
                out[write] = MARK
                out[write + 1] = FIRST + WORD
                write += 2
                at = stops[span]
                continue
            out[write] = text[at]
            write += 1
            at += 1
        limits[pattern + 1] = write
    return out[:write], limits


@loop
def _per_line(ids, first_span, span_ids):
    # Returns the word ids of all lines in line order.
    count = 0
    for pattern in ids:
        count += first_span[pattern + 1] - first_span[pattern]
    out = np.empty(count, np.int64)
    write = 0
    for pattern in ids:
        for span in range(first_span[pattern], first_span[pattern + 1]):
            out[write] = span_ids[span]
            write += 1
    return out


def take_apart(
    text: np.ndarray, starts: np.ndarray, ends: np.ndarray, ids: np.ndarray
) -> tuple[list[bytes], np.ndarray, list[bytes], np.ndarray]:
    """Returns (patterns, pattern of each line, words, word ids in line order).

    The arguments are the distinct patterns text[starts:ends] and the pattern of each line. Patterns and words are numbered from the most
    frequent down.
    """
    counts = np.bincount(ids, minlength=len(starts))
    rare = counts < RARE
    lines = int(counts[rare].sum())
    begins, stops, owners = _spans(text, starts, ends, rare)
    span_ids, firsts = intern(text, begins, stops)
    seen = np.zeros(len(firsts), np.int64)
    pairs = np.unique(np.stack([span_ids, owners]), axis=1) if len(owners) else np.empty((2, 0), np.int64)
    np.add.at(seen, pairs[0], counts[pairs[1]])
    taken = (seen < FIXED * lines)[span_ids] if len(firsts) else np.zeros(0, np.bool_)
    skeleton, limits = _skeletons(text, starts, ends, begins, stops, owners, taken)
    new_ids, new_firsts = intern(skeleton, limits[:-1], limits[1:])
    kept = np.flatnonzero(taken)
    order, rank = _by_frequency(np.bincount(new_ids, weights=counts, minlength=len(new_firsts)))
    patterns = [skeleton[limits[p] : limits[p + 1]].tobytes() for p in new_firsts[order]]
    used = np.zeros(len(firsts), np.int64)
    np.add.at(used, span_ids[kept], counts[owners[kept]])
    word_order, word_rank = _by_frequency(used)
    words = [text[begins[f] : stops[f]].tobytes() for f in firsts[word_order] if used[span_ids[f]]]
    first_span = np.zeros(len(starts) + 1, np.int64)
    np.cumsum(np.bincount(owners[kept], minlength=len(starts)), out=first_span[1:])
    return patterns, rank[new_ids][ids], words, _per_line(ids, first_span, word_rank[span_ids[kept]])


def _by_frequency(counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    order = np.argsort(-counts, kind="stable")
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order))
    return order, rank
