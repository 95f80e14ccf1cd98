"""Chooses the data-parallel rank of a request's left-over heads, and estimates how unevenly the ranks are loaded.

Load-aware routing sends each request that is admitted or restored to the rank with the least estimated load: its remaining prompt tokens
with their pairs, and the context of its decodes. A rank without room for the request's keys and values is skipped. When the busiest rank
exceeds the mean by more than `migrate_above`, one request's left-over heads move from it to the least loaded rank. The mechanism is
FailSafe's (arXiv 2511.14116); the formula is ours.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from armillary.llm import Serving
from armillary.llm.serving import state as st

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


class Ranks:
    """The rank of each request (a device's number, or -1), and a running estimate of the busiest rank's shares of an iteration."""

    def __init__(self, requests: int, *, load_aware: bool, migrate_above: float = 0.2, memory: float = 0.9) -> None:
        self.load_aware, self.migrate_above, self.memory = load_aware, migrate_above, memory
        self.of: Ints = np.full(requests, -1, np.int64)
        self.moved_tokens = 0
        self._turn = 0
        #: Exponential averages of the new tokens, pairs and cached tokens of the busiest rank and of all ranks.
        self._seen: Floats = np.zeros((2, 3))

    def _places(self, who: Ints, devices: Sequence[int]) -> Ints:
        """Returns the index of each request's rank in `devices`, or -1."""
        table = np.full(max(devices) + 2, -1, np.int64)
        table[list(devices)] = np.arange(len(devices))
        of = self.of[who]
        return np.asarray(table[np.where(of < len(table) - 1, of, -1)])

    def assign(self, serving: Serving, running: Ints, devices: Sequence[int], pair_ratio: float, room_tokens: float = np.inf) -> None:
        """Gives a rank to every running request without one on `devices`, and moves one off a rank that is too far above the mean."""
        at = self._places(running, devices)
        fresh = at < 0
        if not self.load_aware:
            for q in running[fresh]:
                self.of[q] = devices[self._turn % len(devices)]
                self._turn += 1
            return
        seq = serving.state.seq
        work = request_load(seq, running, pair_ratio)
        load = np.bincount(at[~fresh], weights=work[~fresh], minlength=len(devices)).astype(float)
        if fresh.any():
            held = np.bincount(at[~fresh], weights=seq[running[~fresh], st.COMPUTED], minlength=len(devices)).astype(float)
            for i in np.flatnonzero(fresh):
                tokens = int(seq[running[i], st.KNOWN])
                full = held + tokens > room_tokens
                best = int(np.argmin(np.where(full, np.inf, load))) if not full.all() else int(np.argmin(load))
                at[i] = best
                load[best] += work[i]
                held[best] += tokens
            self.of[running] = np.asarray(devices)[at]
        self._rebalance(seq, running, at, load, work, devices)

    def _rebalance(self, seq: npt.NDArray[np.int64], running: Ints, at: Ints, load: Floats, work: Floats, devices: Sequence[int]) -> None:
        high, low = int(np.argmax(load)), int(np.argmin(load))
        gap = load[high] - load[low]
        if self.migrate_above <= 0 or load[high] <= (1 + self.migrate_above) * load.mean():
            return
        there = np.flatnonzero(at == high)
        best = int(there[np.argmin(np.abs(work[there] - 0.5 * gap))])
        if 0 < work[best] < gap:
            self.of[running[best]] = devices[low]
            self.moved_tokens += int(seq[running[best], st.COMPUTED])

    def look(self, serving: Serving, r: int, devices: Sequence[int], seconds: tuple[float, float, float]) -> tuple[float, float, float]:
        """Returns the shares of new tokens, pairs and cached tokens on the busiest rank, averaged over recent iterations.

        The busiest rank is the one whose left-over heads take longest in the current iteration, at `seconds` per token, per pair and
        per cached token.
        """
        count = int(serving.state.eng[r, st.CHOSEN])
        if count:
            who, new = serving.state.lists[r, st.CHOICE, :count], serving.state.lists[r, st.SHARES, :count]
            seq = serving.state.seq
            before, known = seq[who, st.COMPUTED], seq[who, st.KNOWN]
            decode = (known > seq[who, st.PROMPT]) & (before == known - 1)
            pairs = np.where(decode, 0.0, new * (before + 0.5 * (new + 1.0)))
            context = np.where(decode, before + new, 0.0)
            at = np.searchsorted(devices, self.of[who])
            work = np.stack(
                [np.bincount(at, weights=w, minlength=len(devices))[: len(devices)] for w in (new.astype(float), pairs, context)]
            )
            busiest = int(np.argmax(np.asarray(seconds) @ work))
            self._seen = self.memory * self._seen + np.stack([work[:, busiest], work.sum(axis=1)])
        even = 1.0 / len(devices)
        share = np.divide(self._seen[0], self._seen[1], out=np.full(3, even), where=self._seen[1] > 0)
        return float(share[0]), float(share[1]), float(share[2])

    def forget(self) -> None:
        """Starts the estimate again for another group."""
        self._seen[:] = 0.0


def request_load(seq: npt.NDArray[np.int64], who: Ints, pair_ratio: float) -> Floats:
    """Returns each request's work in tokens: its remaining prompt tokens and `pair_ratio` times their pairs, or a decode's context."""
    done = np.maximum(seq[who, st.COMPUTED], seq[who, st.KEPT]).astype(float)
    left = seq[who, st.KNOWN] - done
    decode = (left <= 1) & (seq[who, st.KNOWN] > seq[who, st.PROMPT])
    return np.asarray(np.where(decode, done, left + pair_ratio * left * (done + 0.5 * (left + 1))))
