"""Orders with several chunks of layers per rank: stage j is on rank j mod p, so a micro-batch passes through all ranks once per chunk."""

from __future__ import annotations

import numpy as np

from armillary.errors import InputError

from ..simulation.schedule import B, F, I, IntArray, Schedule, W


def groups_of(ranks: int, micros: int) -> list[int]:
    """Sizes of the groups of micro-batches that run chunk after chunk: max(1, ⌊m/p⌋) groups, as equal as possible, as torch has them."""
    rounds = max(1, micros // ranks)
    return [micros // rounds + (i < micros % rounds) for i in range(rounds)]


def interleaved(ranks: int, micros: int, chunks: int) -> Schedule:
    """Interleaved 1F1B (Narayanan et al., 2021): rank r starts with (v − 1)·g + 2(p − r − 1) forward passes for groups of g.

    Then it does one forward and one backward pass in turn. At most min(v·m, (v − 1)·p + 2(p − r − 1) + 1) chunks are in flight on rank r
    where p divides m.
    """
    _check(ranks, micros, chunks)
    sizes = groups_of(ranks, micros)
    chunk_f, micro_f = _sequence(sizes, chunks)
    total, longest = chunks * micros, max(sizes)
    rows = []
    for r in range(ranks):
        first = min((chunks - 1) * longest + 2 * (ranks - 1 - r), total)
        rest = total - first
        # A forward pass comes before its turn's backward pass, so this is `turns` with one more of them at the start.
        which, kind = _forward_first(np.arange(total), first, rest)
        back = kind == B
        chunk = np.where(back, chunks - 1 - chunk_f[which], chunk_f[which])
        rows.append((chunk * ranks + r, kind, micro_f[which]))
    return _of(rows)


def interleaved_zero_bubble(ranks: int, micros: int, chunks: int) -> Schedule:
    """Interleaved 1F1B whose backward pass is split: rank r does the gradients of weights r actions late.

    It is the order of torch's `ScheduleInterleavedZeroBubble`; with one chunk it is ZB-H1 (Qi et al., Zero Bubble Pipeline Parallelism,
    2024).
    """
    _check(ranks, micros, chunks)
    sizes = groups_of(ranks, micros)
    chunk_f, micro_f = _sequence(sizes, chunks)
    total, longest = chunks * micros, max(sizes)
    rows = []
    for r in range(ranks):
        first = min((chunks - 1) * longest + ranks - 1 - r, total)
        which, kind = _forward_first(np.arange(total), first, total - first)
        which, kind = _with_weights(which, kind, r)
        chunk = np.where(kind != F, chunks - 1 - chunk_f[which], chunk_f[which])
        rows.append((chunk * ranks + r, kind, micro_f[which]))
    return _of(rows)


def _check(ranks: int, micros: int, chunks: int) -> None:
    if ranks < 1 or micros < 1 or chunks < 1:
        raise InputError(f"found {ranks} ranks, {micros} micro-batches and {chunks} chunks per rank; expected at least one of each")


def _sequence(sizes: list[int], chunks: int) -> tuple[IntArray, IntArray]:
    """(chunk, micro-batch) of every forward pass of a rank: group after group, and in each of them chunk after chunk."""
    starts = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    chunk = np.concatenate([np.repeat(np.arange(chunks), size) for size in sizes])
    micro = np.concatenate([np.tile(np.arange(start, start + size), chunks) for start, size in zip(starts, sizes)])
    return chunk, micro


def _forward_first(each: IntArray, first: int, rest: int) -> tuple[IntArray, IntArray]:
    """(what, kind): `first` forward passes, then forward and backward in turn, then the remaining backward passes."""
    which, kind = np.empty(2 * len(each), np.int64), np.full(2 * len(each), B)
    which[:first], kind[:first] = each[:first], F
    which[first : first + 2 * rest : 2], kind[first : first + 2 * rest : 2] = each[first:], F
    which[first + 1 : first + 2 * rest : 2] = each[:rest]
    which[first + 2 * rest :] = each[rest:]
    return which, kind


def _with_weights(which: IntArray, kind: IntArray, late: int) -> tuple[IntArray, IntArray]:
    """Splits each backward pass: its I stays where it was, and from the one numbered `late` on, each I is followed by the oldest W."""
    order: list[int] = []
    kinds: list[int] = []
    backs = which[kind == B]
    seen = given = 0
    for item, what in zip(which.tolist(), kind.tolist()):
        order.append(item)
        kinds.append(F if what == F else I)
        if what == B:
            if seen >= late:
                order.append(int(backs[given]))
                kinds.append(W)
                given += 1
            seen += 1
    order += backs[given:].tolist()
    kinds += [W] * (len(backs) - given)
    return np.array(order, np.int64), np.array(kinds, np.int64)


def _of(rows: list[tuple[IntArray, IntArray, IntArray]]) -> Schedule:
    offsets = np.concatenate([[0], np.cumsum([len(stage) for stage, _, _ in rows])])
    return Schedule.of_arrays(offsets, *(np.concatenate([row[i] for row in rows]) for i in range(3)))
