"""Rudder's buffer for a real training loop: ask it for features, and it fetches what it does not hold.

    buffer = RudderBuffer(capacity=100_000, halo_ids=halo, features_fetch=store.rows)
    x = buffer.gather(input_nodes)

`features_fetch(ids)` is any callable that returns the rows of these vertices: a DGL or PyTorch Geometric feature store, an RPC, an array.
The policy is asked in a thread of its own, and its answer is applied by the first minibatch that finds it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Any

import numpy as np
import numpy.typing as npt

from armillary.errors import InputError
from armillary.training.prefetch.control.fixed import Every
from armillary.training.prefetch.control.loop import ControlLoop, Decision, Policy, Question, Record, Static
from armillary.training.prefetch.control.stand_in import IclStandIn

from .scored import ScoredBuffer

Array = npt.NDArray[Any]
_log = logging.getLogger(__name__)


class RudderBuffer:
    """Features of at most `capacity` remote vertices, renewed when the policy says so.

    halo_ids: the remote vertices that may be buffered. features_fetch: ids (k,) to rows (k, …), in their order. policy: the stand-in by
    default; `Every(Δ)` replaces by the count alone. content: the vertices to start with, fetched at once. minibatches: how many there
    will be, if that is known. asynchronous: false asks the policy in this thread, and its answer is applied by the next minibatch.
    Calls must not overlap.
    """

    def __init__(
        self, capacity: int, halo_ids: npt.ArrayLike, features_fetch: Callable[[npt.NDArray[np.int64]], Array],
        policy: Policy | None = None, *, content: npt.ArrayLike = (), alpha: float = 0.05, period: int = 25, window: int = 25,
        kept: int = 5, minibatches: int = 0, epoch: int = 0, asynchronous: bool = True,
    ) -> None:  # fmt: skip
        halo = np.unique(np.asarray(halo_ids, np.int64))
        self.buffer = ScoredBuffer(capacity, halo, content, alpha=alpha, period=period)
        self.policy: Policy = IclStandIn() if policy is None else policy
        self._fetch = features_fetch
        static = Static(capacity, len(halo), minibatches, period=period, window=window)
        self.loop = ControlLoop(static, kept=kept)
        self._epoch = epoch
        #: Features by row, (capacity, …); made by the first fetch, whose rows say the shape.
        self._rows: Array | None = None
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="rudder") if asynchronous else None
        self._thinking: Future[Decision] | None = None
        self.minibatch = 0
        self.hits = self.asked = self.fetched = self.replaced = 0
        if len(self.buffer):
            self._keep(np.arange(len(self.buffer)), self._fetched(self.buffer.ids))

    def gather(self, ids: npt.ArrayLike) -> Array:
        """The features of these vertices, in their order; repeated ones and ones outside the halo are welcome."""
        wanted, back = np.unique(np.asarray(ids, np.int64), return_inverse=True)
        found = self.buffer.look_up(wanted)
        held = found.slot >= 0
        row = self.buffer.row[found.slot[held]]
        missing = wanted[~held]
        decision = self._decided()
        offer = self.buffer.candidates() if decision is not None and decision.replace and decision.valid else None
        entering = self.buffer.halo[offer.entering] if offer is not None else np.zeros(0, np.int64)
        # One request for the misses and for what enters the buffer; the buffer changes only once it was answered.
        both = np.union1d(missing, entering)
        try:
            rows = self._fetched(both) if len(both) else None
        except BaseException:
            # The decision waits for the next minibatch.
            if decision is not None and self.loop.pending:
                self.loop.answered(decision)
            raise
        features = self._assembled(wanted, held, row, missing, both, rows)
        if offer is not None and rows is not None and len(entering):
            into = self.buffer.replace(offer).out
            self._keep(into, rows[np.searchsorted(both, entering)])
        self._count(len(wanted), int(held.sum()), found.missed, decision, len(entering))
        result: Array = features[back.reshape(np.shape(ids))]
        return result

    def collate(self, samples: Sequence[npt.ArrayLike]) -> tuple[Any, Any]:
        """For `collate_fn` of `torch.utils.data.DataLoader`: (ids, features) of samples that are arrays of vertices, as tensors."""
        import torch

        ids = np.concatenate([np.atleast_1d(np.asarray(sample, np.int64)) for sample in samples])
        return torch.from_numpy(ids), torch.from_numpy(np.ascontiguousarray(self.gather(ids)))

    @property
    def hit_rate(self) -> float:
        """The share of the halo's vertices asked for that was buffered, since the beginning."""
        return self.hits / self.asked if self.asked else 0.0

    def close(self) -> None:
        """Waits for the policy's thread."""
        if self._executor is not None:
            self._executor.shutdown(wait=True, cancel_futures=True)

    def __enter__(self) -> RudderBuffer:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def _fetched(self, ids: npt.NDArray[np.int64]) -> Array:
        rows = np.asarray(self._fetch(ids))
        if rows.ndim < 1 or len(rows) != len(ids):
            raise InputError(f"features_fetch returned {len(rows) if rows.ndim else 'no'} rows; expected {len(ids)}, one for each vertex")
        if self._rows is None:
            self._rows = np.zeros((self.buffer.capacity, *rows.shape[1:]), rows.dtype)
        elif rows.shape[1:] != self._rows.shape[1:]:
            raise InputError(f"features_fetch returned rows of {rows.shape[1:]}; expected {self._rows.shape[1:]} as before")
        self.fetched += len(ids)
        return rows

    def _keep(self, into: npt.NDArray[np.int64], rows: Array) -> None:
        if self._rows is not None:
            self._rows[into] = rows

    def _assembled(self, wanted: Array, held: Array, row: Array, missing: Array, both: Array, rows: Array | None) -> Array:
        if self._rows is None:
            return np.zeros((len(wanted), 0))
        made = np.empty((len(wanted), *self._rows.shape[1:]), self._rows.dtype)
        made[held] = self._rows[row]
        if rows is not None:
            made[~held] = rows[np.searchsorted(both, missing)]
        return made

    def _decided(self) -> Decision | None:
        if isinstance(self.policy, Every):
            return Decision(True) if self.policy.due(self.minibatch) else None
        if self._thinking is not None and self._thinking.done():
            self.loop.answered(_answer(self._thinking))
            self._thinking = None
        return self.loop.take()

    def _count(self, asked: int, hits: int, missed: npt.NDArray[np.int64], decision: Decision | None, moved: int) -> None:
        inside = int((missed >= 0).sum())
        self.hits, self.asked, self.replaced = self.hits + hits, self.asked + hits + inside, self.replaced + moved
        number, self.minibatch = self.minibatch, self.minibatch + 1
        if isinstance(self.policy, Every):
            return
        if decision is not None and self.loop.applied(decision, number, moved) == "replaced":
            return
        total, rate = self.loop.static.minibatches, round(100 * self.hit_rate)
        epoch, step = divmod(number, self._epoch) if self._epoch else (0, number)
        question = self.loop.post(Record(number, epoch, step, total - number - 1 if total else -1, rate, inside, hits + inside))
        if question is not None:
            self._ask(question)

    def _ask(self, question: Question) -> None:
        if self._executor is not None:
            self._thinking = self._executor.submit(self.policy.decide, question.static, question.window, question.history)
            return
        thought: Future[Decision] = Future()
        try:
            thought.set_result(self.policy.decide(question.static, question.window, question.history))
        except Exception as error:
            thought.set_exception(error)
        self._thinking = thought


def _answer(thought: Future[Decision]) -> Decision:
    """The policy's decision; a policy that fails has decided nothing valid, and training goes on."""
    error = thought.exception()
    if error is None:
        return thought.result()
    _log.warning("the policy failed: %s", error)
    return Decision(False, reason=f"{type(error).__name__}: {error}", valid=False)
