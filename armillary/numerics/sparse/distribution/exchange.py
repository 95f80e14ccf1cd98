"""Sends entries to the ranks that will own them, and builds a block from those that came."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from armillary.comm.collectives.operations import MAX
from armillary.errors import InputError

from ..rearranging.kernels import add_repeated, count_buckets, fill_buckets, sort_bucket
from ..rearranging.threaded import each, private_offsets, worthwhile
from .dcsc import Array, Dcsc, index_type, triple_type

if TYPE_CHECKING:
    from armillary.comm.communicator import Communicator

#: No send buffer of one round is longer, so that lengths fit what MPI libraries count with.
MAX_MESSAGE_BYTES = 1 << 30
_BUCKETS_PER_THREAD = 8
_SAMPLES_PER_BUCKET = 64
#: A column finds its range in a table of at most 2^12 places.
_LOOKUP_BITS = 12


def exchange(comm: Communicator, triples: Array, counts: Array, came: Array, max_message_bytes: int = MAX_MESSAGE_BYTES) -> Array:
    """Sends counts[r] of the triples, which lie side by side, to rank r; returns what came, came[r] of it from rank r.

    There are as many rounds as the limit asks for.
    """
    if max_message_bytes < 1:
        raise InputError(f"max_message_bytes: found {max_message_bytes}; expected at least 1")
    width = triples.itemsize
    received = np.empty(int(came.sum()), triples.dtype)
    room = max(1, max_message_bytes // width - comm.size)
    with comm.phase("rounds"):
        rounds = int(comm.allreduce(np.array([max(1, -(-int(counts.sum()) // room))], np.int64), op=MAX)[0])
    out, into = triples.view(np.uint8), received.view(np.uint8)
    starts, places = np.cumsum(counts) - counts, np.cumsum(came) - came
    for k in range(rounds):
        sent, taken = counts * k // rounds, came * k // rounds
        now, expected = counts * (k + 1) // rounds - sent, came * (k + 1) // rounds - taken
        comm.alltoallv(out, now * width, into, expected * width, (starts + sent) * width, (places + taken) * width)
    return received


def build(triples: Array, shape: tuple[int, int], dtype: np.dtype[Any], threads: int = 1, add: bool = False) -> Dcsc:
    """Builds the block of local triples in any order. With `add`, entries of one place are added up in order; otherwise none may repeat.

    Two passes spread the triples over ranges of columns with about equally many entries, by a sampled histogram; then every range is
    sorted by itself, by counting columns and then rows inside each.
    """
    n = triples.size
    if not n:
        return Dcsc.empty(shape, dtype)
    threads = worthwhile(threads, n)
    index = index_type(max(shape))
    shift = max(0, (shape[1] - 1).bit_length() - _LOOKUP_BITS)
    borders = _borders(triples, threads, shift)
    if borders.size > 1:
        bucket_of = (np.searchsorted(borders, np.arange(((shape[1] - 1) >> shift) + 1) << shift, side="right") - 1).astype(np.int32)
        edges = np.linspace(0, n, threads + 1).astype(np.int64)
        histograms = np.zeros((threads, borders.size), np.int64)
        each(lambda t: count_buckets(triples, edges[t], edges[t + 1], bucket_of, shift, histograms[t]), threads, threads)
        offsets = private_offsets(histograms)
        sorted_triples = np.empty_like(triples)
        each(lambda t: fill_buckets(triples, edges[t], edges[t + 1], bucket_of, shift, offsets[t], sorted_triples), threads, threads)
        triples = sorted_triples
        ends = np.cumsum(histograms.sum(axis=0))
    else:
        ends = np.array([n])
    firsts = np.concatenate(([0], ends[:-1]))
    widths = np.append(borders[1:], shape[1]) - borders
    ir, num = np.empty(n, index), np.empty(n, triple_type(index, dtype)["v"])
    found = each(lambda b: sort_bucket(triples, firsts[b], ends[b], borders[b], widths[b], ir, num), borders.size, threads)
    jc = np.concatenate([columns for columns, _ in found])
    cp = np.concatenate([np.zeros(1, np.int64), *(stops for _, stops in found)])
    values = num.view(dtype)
    if add:
        cp = add_repeated(cp, ir, values)
        ir, values = ir[: cp[-1]], values[: cp[-1]]
    return Dcsc(shape, jc, cp, ir, values)


def _borders(triples: Array, threads: int, shift: int) -> Array:
    """Returns first columns of ranges with about equally many entries, as a sample of the columns has them; multiples of 2^shift."""
    buckets = _BUCKETS_PER_THREAD * threads
    if triples.size < 4 * buckets * _SAMPLES_PER_BUCKET:
        return np.zeros(1, np.int64)
    step = triples.size // (buckets * _SAMPLES_PER_BUCKET)
    sample = np.sort(triples["j"][::step].astype(np.int64))
    cuts = sample[np.arange(1, buckets) * sample.size // buckets] >> shift << shift
    return np.unique(np.concatenate(([0], cuts)))


def pack_triples(rows: Array, cols: Array, values: Array, index: np.dtype[Any]) -> Array:
    """Returns local places and values, packed."""
    triples = np.empty(rows.size, triple_type(index, values.dtype))
    triples["i"], triples["j"], triples["v"] = rows, cols, values.view(triples.dtype["v"])
    return triples
