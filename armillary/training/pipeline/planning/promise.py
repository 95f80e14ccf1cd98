"""What a step is expected to take before it is simulated: the closed forms of schedules.

f, b, i, w are seconds per stage or per rank (forward, whole backward, its two halves), p ranks, m micro-batches, v chunks. Transfers are
left out.
"""

from __future__ import annotations

import numpy as np

from ..simulation.simulator import FloatArray
from .layers import Division


def gpipe_seconds(forward: FloatArray, backward: FloatArray, micros: int) -> float:
    """Σf + (m − 1)·max f + Σb + (m − 1)·max b, which is exact."""
    return float(sum(each.sum() + (micros - 1) * each.max() for each in (forward, backward)))


def one_f_one_b_seconds(forward: FloatArray, backward: FloatArray, micros: int) -> float:
    """The lower bound max over s of Σ_{j<s} f_j + U_s + (m − w_s)·f_s + m·b_s + Σ_{j<s} b_j.

    w_s = min(m, p − s) forward passes come before the first backward pass of stage s, which starts after U_s = max(w_s·f_s,
    f_s + Σ_{j>s} (f_j + b_j)). It is exact for equal stages.
    """
    p = len(forward)
    ahead = np.minimum(micros, p - np.arange(p))
    before = np.concatenate([[0.0], np.cumsum(forward + backward)[:-1]])
    after = (forward + backward).sum() - before - forward - backward
    return float((before + np.maximum(ahead * forward, forward + after) + (micros - ahead) * forward + micros * backward).max())


def interleaved_seconds(rank_seconds: FloatArray, micros: int, chunks: int) -> float:
    """max over ranks of m·t + (1/v)·Σ of the other ranks' t, where t is a rank's work for one micro-batch."""
    return float((micros * rank_seconds + (rank_seconds.sum() - rank_seconds) / chunks).max())


def by_rank(values: FloatArray, ranks: int) -> FloatArray:
    """Sums over the chunks of each rank, for stages in pipeline order on looped ranks."""
    return values.reshape(-1, ranks).sum(0)


def promised(division: Division, order: str, ranks: int, micros: int, chunks: int = 1) -> float:
    """The closed form of a schedule's kind for these stages.

    Where the backward pass is split, the fill and drain cost Σ (f + i − w) over the other ranks (ZB-H1, DualPipeV) or half of that
    (ZB-V). Two directions leave (p − 2) backward passes, which is Chimera's figure for b = 2f.
    """
    forward, backward_input, backward_weight, again = division.seconds
    backward = backward_input + backward_weight + again
    if order == "gpipe":
        return gpipe_seconds(forward, backward, micros)
    if order == "1f1b":
        return one_f_one_b_seconds(forward, backward, micros)
    if order == "interleaved":
        return interleaved_seconds(by_rank(forward + backward, ranks), micros, chunks)
    if order == "chimera":
        whole = by_rank(forward + backward, ranks)
        return float((micros * (whole + whole[::-1]) / 2).max() + (ranks - 2) / ranks * backward.sum() / chunks)
    fold = np.arange(ranks) if order == "zb-h1" else np.concatenate([np.arange(ranks), np.arange(ranks)[::-1]])
    whole, wait = np.zeros(ranks), np.zeros(ranks)
    np.add.at(whole, fold, forward + backward)
    np.add.at(wait, fold, forward + backward - 2 * backward_weight)
    slowest = int(whole.argmax())
    share = {"zb-h1": 1.0, "zb-v": 0.5, "dualpipe-v": 1.0}[order]
    return float(micros * whole[slowest] + share * max(0.0, np.delete(wait, slowest).sum()))
