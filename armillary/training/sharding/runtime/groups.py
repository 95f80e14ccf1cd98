"""A group of modules on one rank, which is gathered before it computes, released after it, and reduced when its gradients are there.

The life of a group in a step: sharded → gathering → gathered (forward) → sharded → gathering → gathered (backward) → its gradients are
reduced → sharded. A resident group stays gathered from its first use to the end of the backward pass.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from .shards import Shards, Storage
from .wires import Transfer


class Pool:
    """Memory that several groups use in turn."""

    def __init__(self, elements: int, dtype: torch.dtype) -> None:
        self.tensor = torch.empty(elements, dtype=dtype)
        #: The buffers that use the memory now.
        self.user: Buffers | None = None


class Buffers:
    """Memory for one group's gathered weights or gradients: a place in a pool, or storage of its own that is freed in between."""

    def __init__(self, sizes: Sequence[int], dtype: torch.dtype, pool: Pool | None) -> None:
        self._sizes, self._pool = sizes, pool
        self._storage = None if pool is not None else Storage(sum(sizes), dtype)
        self.whole = pool.tensor if pool is not None else self._storage.tensor  # type: ignore[union-attr]
        #: One tensor per bucket; their addresses stay, so that weights can be views of them.
        self.parts = self._cut(self.whole)
        #: Whether the group may use the memory now.
        self.held = False

    def _cut(self, whole: Tensor) -> list[Tensor]:
        at, found = 0, []
        for size in self._sizes:
            found.append(whole[at : at + size])
            at += size
        return found

    def take(self, *, elsewhere: bool = False) -> list[Tensor]:
        """Return one tensor per bucket with memory behind them; `elsewhere` allows other memory while the pool is in use.

        The pool is in use only where units run in another order than they were given in.
        """
        if self._storage is not None:
            self._storage.allocate()
        elif self._pool is not None:
            if elsewhere and self._pool.user not in (None, self):
                self.whole = torch.empty(sum(self._sizes), dtype=self.whole.dtype)
                self.parts = self._cut(self.whole)
            else:
                self._pool.user = self
        self.held = True
        return self.parts

    def give(self) -> None:
        """Let others have the memory."""
        if self._storage is not None:
            self._storage.free()
        elif self._pool is not None:
            if self._pool.user is self:
                self._pool.user = None
            elif self.whole is not self._pool.tensor:
                self.whole = self._pool.tensor
                self.parts = self._cut(self.whole)
        self.held = False


class Group:
    """Buckets that are gathered and reduced together."""

    def __init__(self, number: int, shards: Sequence[Shards], *, resident: bool, replicated: bool) -> None:
        self.number, self.shards = number, list(shards)
        self.resident, self.replicated = resident, replicated
        self.gathered: Buffers | None = None
        self.gradients: Buffers | None = None
        self.ready = replicated
        self.under_way = False
        #: Weights whose gradients are still to come in this backward pass; None before it has reached the group.
        self.pending: int | None = None
        self._reducing: list[Transfer] = []

    @property
    def weights(self) -> int:
        """The number of weights that want a gradient."""
        return sum(w.requires_grad for s in self.shards for w in s.weights)

    def begin_gather(self) -> None:
        """Begin to gather, unless that is done or under way."""
        if self.ready or self.under_way:
            return
        assert self.gathered is not None
        for shards, part in zip(self.shards, self.gathered.take()):
            shards.gather(part)
        self.under_way = True

    def end_gather(self, event: Callable[[], None] = lambda: None) -> None:
        """Return when the weights hold their values; `event` is called while buffers and copies live side by side."""
        if self.ready:
            return
        for shards in self.shards:
            shards.arrive()
        self.under_way, self.ready = False, True
        event()
        # Where weights were copied out, the buffer has done its work.
        if self.gathered is not None and all(not s.views for s in self.shards):
            self.gathered.give()
            for shards in self.shards:
                shards.whole = None

    def release(self) -> None:
        """Give up the gathered weights."""
        if self.replicated or self.under_way or not self.ready:
            return
        for shards in self.shards:
            shards.release()
        if self.gathered is not None and self.gathered.held:
            self.gathered.give()
        self.ready = False

    def begin_backward(self) -> None:
        """Prepare the memory of the gradients."""
        self.pending = self.weights
        if any(s.gradient_views for s in self.shards):
            for shards, part in zip(self.shards, self._gradient_memory()):
                shards.accumulate_in(part)

    def begin_reduce(self, event: Callable[[], None] = lambda: None) -> None:
        """Begin to average the gradients; the group's weights are not needed any more. `event` is called before gradients are dropped."""
        self.pending = None
        if not any(s.gradient_views for s in self.shards):
            parts = self._gradient_memory()
            event()
            for shards, part in zip(self.shards, parts):
                shards.collect(part)
        if self.gradients is not None and not self.gradients.held:
            # No gradient arrived, so that zeros are averaged.
            for part in self._gradient_memory():
                part.zero_()
        self._reducing = [shards.reduce(part) for shards, part in zip(self.shards, self._parts())]

    def end_reduce(self) -> None:
        """Return when this rank's gradient is there."""
        for transfer in self._reducing:
            transfer.wait()
        if self._reducing:
            self._reducing = []
            for shards in self.shards:
                shards.reduced = None
            if self.gradients is not None:
                self.gradients.give()

    @property
    def reducing(self) -> bool:
        """Whether gradients are being averaged."""
        return bool(self._reducing)

    def _parts(self) -> list[Tensor]:
        return [s.gradient for s in self.shards] if self.gradients is None else self.gradients.parts

    def _gradient_memory(self) -> list[Tensor]:
        return self._parts() if self.gradients is None else self.gradients.take(elsewhere=True)
