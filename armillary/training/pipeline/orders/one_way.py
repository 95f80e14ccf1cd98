"""Orders with one stage per rank: GPipe, 1F1B, Seq1F1B and ZB-H1."""

from __future__ import annotations

import numpy as np

from armillary.errors import InputError

from ..simulation.schedule import B, F, IntArray, Schedule
from .interleaved import interleaved_zero_bubble


def gpipe_order(ranks: int, micros: int) -> Schedule:
    """All forward passes, then all backward passes, in the order of the micro-batches (Huang et al., GPipe, 2019)."""
    check_sizes(ranks, micros)
    each = np.arange(micros)
    return _of_rows([np.concatenate([each, each])] * ranks, [np.repeat([F, B], micros)] * ranks)


def one_f_one_b_order(ranks: int, micros: int) -> Schedule:
    """min(m, p − r) forward passes on rank r, then one backward and one forward pass in turn (PipeDream-Flush, 2021)."""
    check_sizes(ranks, micros)
    each = np.arange(micros)
    return _alternating(ranks, each, each, [ranks - r for r in range(ranks)])


def seq_one_f_one_b(ranks: int, slices: IntArray) -> Schedule:
    """1F1B over slices, `slices[i]` of them for sequence i: forward from the first slice to the last, backward the other way round.

    Rank r starts with p − r + (most slices) − 1 forward passes (Sun et al., Seq1F1B, 2024).
    """
    counts = np.asarray(slices, np.int64)
    if len(counts) == 0 or counts.min() < 1:
        raise InputError("slices: expected at least one sequence of at least one slice")
    total = int(counts.sum())
    check_sizes(ranks, total)
    first = np.concatenate([[0], np.cumsum(counts)[:-1]])
    backward = np.concatenate([np.arange(start + count - 1, start - 1, -1) for start, count in zip(first, counts)])
    before = np.arange(-1, total - 1)
    before[first] = -1
    most = int(counts.max())
    return _alternating(ranks, np.arange(total), backward, [ranks - r + most - 1 for r in range(ranks)]).with_slices(before)


def zb_h1_order(ranks: int, micros: int) -> Schedule:
    """1F1B with the gradients of weights put off: rank r does them r micro-batches late, so the drain has work (Qi et al., 2024)."""
    return interleaved_zero_bubble(ranks, micros, 1)


def check_sizes(ranks: int, micros: int, chunks: int = 1) -> None:
    """Raises an `InputError` unless there is at least one rank, micro-batch and chunk."""
    if ranks < 1 or micros < 1 or chunks < 1:
        raise InputError(f"found {ranks} ranks, {micros} micro-batches and {chunks} chunks per rank; expected at least one of each")


def _alternating(ranks: int, forward: IntArray, backward: IntArray, warm_up: list[int]) -> Schedule:
    """Each rank's first forward passes, then one backward and one forward pass in turn, then the other backward passes."""
    micros, kinds = [], []
    for r in range(ranks):
        row, kind = turns(forward, backward, min(warm_up[r], len(forward)))
        micros.append(row)
        kinds.append(kind)
    return _of_rows(micros, kinds)


def turns(forward: IntArray, backward: IntArray, first: int) -> tuple[IntArray, IntArray]:
    """(what, kind): `first` items of `forward`, then one of `backward` and one of `forward` in turn, then the rest of `backward`."""
    n, rest = len(forward), len(forward) - first
    row, kind = np.empty(2 * n, np.int64), np.full(2 * n, B)
    row[:first], kind[:first] = forward[:first], F
    row[first : first + 2 * rest : 2] = backward[:rest]
    row[first + 1 : first + 2 * rest : 2], kind[first + 1 : first + 2 * rest : 2] = forward[first:], F
    row[first + 2 * rest :] = backward[rest:]
    return row, kind


def _of_rows(micros: list[IntArray], kinds: list[IntArray]) -> Schedule:
    lengths = [len(row) for row in micros]
    stage = np.repeat(np.arange(len(micros)), lengths)
    return Schedule.of_arrays(np.concatenate([[0], np.cumsum(lengths)]), stage, np.concatenate(kinds), np.concatenate(micros))
