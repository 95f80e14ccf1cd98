"""One bucket on one rank: its shard, the buffers of its collectives, and the weights and gradients in them.

What is copied between weights and buffers is counted in `copied` (bytes).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from ..layouts.bucket import Bucket, Flat, Interleaved, Whole
from .wires import Transfer, Wires


class Storage:
    """A flat tensor whose memory can be freed and allocated again while autograd and views keep pointing at it. Views are made while
    it is there, as at first.
    """

    def __init__(self, elements: int, dtype: torch.dtype) -> None:
        self.tensor = torch.empty(elements, dtype=dtype)
        self._bytes = self.tensor.untyped_storage().nbytes()

    def allocate(self) -> Tensor:
        """Return the tensor with memory behind it; its content is arbitrary."""
        storage = self.tensor.untyped_storage()
        if storage.nbytes() == 0:
            storage.resize_(self._bytes)
        return self.tensor

    def free(self) -> None:
        """Give the memory back."""
        self.tensor.untyped_storage().resize_(0)


class Shards:
    """The weights of one bucket."""

    def __init__(
        self, bucket: Bucket, weights: Sequence[nn.Parameter], wires: Wires, *, views: bool, gradient_views: bool, dtype: torch.dtype | None
    ) -> None:
        self.bucket, self.weights, self.wires = bucket, list(weights), wires
        self.views, self.gradient_views = views, gradient_views
        full = weights[0].dtype
        self.dtype = dtype or full
        self.copied = 0
        local = torch.zeros(bucket.shard, dtype=full)
        for i, piece in bucket.pieces(wires.rank):
            local[piece.at : piece.at + piece.size].copy_(weights[i].detach().reshape(-1)[piece.start : piece.stop])
        #: This rank's shard; optimizers work on it and on its gradient.
        self.local = nn.Parameter(local)
        self.gradient = torch.zeros(bucket.shard, dtype=full)
        self.local.grad = self.gradient
        #: What the weights are while they are gathered, if the memory behind it is freed in between; empty otherwise.
        self._shown: list[Tensor] = []
        #: Memory of gathered weights where they are not views of the gathered buffer.
        self.separate: list[Storage] = []
        self._sent: Tensor | None = None
        self._transfer: Transfer | None = None
        self.whole: Tensor | None = None
        self.reduced: Tensor | None = None
        if not views and not isinstance(bucket, Whole):
            self.separate = [Storage(w.numel(), self.dtype) for w in weights]
            self._shown = [storage.tensor.view(weight.shape) for weight, storage in zip(self.weights, self.separate)]
            for storage in self.separate:
                storage.free()
            self._hide()

    # Weights

    def point_at(self, buffer: Tensor, *, lasting: bool) -> None:
        """Make the weights views of this buffer, which is the gathered one or (where all ranks hold everything) the shard.

        Where its memory is not `lasting`, weights are empty while they are not gathered.
        """
        if not isinstance(self.bucket, Flat | Whole):
            raise TypeError("weights that are interleaved cannot be views")
        for weight, shape, at in zip(self.weights, self.bucket.weights, self.bucket.offsets):
            weight.data = buffer[at : at + shape.size].view(weight.shape)
        if not lasting:
            self._shown = [weight.data for weight in self.weights]
            self._hide()

    def _hide(self) -> None:
        """Leave nothing that could be read by mistake. Autograd keeps what it saved, the memory of which comes back before it is used."""
        for weight in self.weights:
            weight.data = torch.empty(0, dtype=weight.dtype)

    def gather(self, whole: Tensor) -> None:
        """Begin to gather all shards into `whole`."""
        mine = self.local.detach()
        if self.dtype != mine.dtype:
            mine = self._sent = mine.to(self.dtype)
        elif not self.views:
            # The shares of the parameters stand apart in these systems, and are joined for the collective.
            mine = self._sent = mine.clone()
            self.copied += mine.nbytes
        self.whole = whole
        self._transfer = self.wires.gather(whole, mine)

    def arrive(self) -> None:
        """End the gathering; the weights hold their values from then on."""
        if self._transfer is None:
            return
        self._transfer.wait()
        self._transfer = self._sent = None
        assert self.whole is not None
        for weight, view in zip(self.weights, self._shown):
            weight.data = view
        if not self.views:
            for i, storage in enumerate(self.separate):
                self._move(i, storage.allocate(), self.whole, out=True)

    def release(self) -> None:
        """Give up the gathered weights."""
        if self._shown:
            self._hide()
        for storage in self.separate:
            storage.free()
        self.whole = None

    # Gradients

    def accumulate_in(self, buffer: Tensor) -> None:
        """Let autograd add the gradients into this buffer, which is zeroed."""
        assert isinstance(self.bucket, Flat | Whole)
        buffer.zero_()
        for weight, shape, at in zip(self.weights, self.bucket.weights, self.bucket.offsets):
            weight.grad = buffer[at : at + shape.size].view(weight.shape)

    def collect(self, buffer: Tensor) -> None:
        """Copy the gradients into this buffer and drop them."""
        buffer.zero_()
        for i, weight in enumerate(self.weights):
            if weight.grad is not None:
                self._move(i, weight.grad.reshape(-1), buffer, out=False)
                weight.grad = None

    def reduce(self, buffer: Tensor) -> Transfer:
        """Begin to average the gradients in the buffer into this rank's gradient."""
        for weight in self.weights:
            weight.grad = None
        self.reduced = buffer
        if isinstance(self.bucket, Whole):
            return self.wires.mean(buffer)
        return self.wires.scatter(self.gradient, buffer)

    def _move(self, i: int, flat: Tensor, buffer: Tensor, *, out: bool) -> None:
        """Copy weight i between its own memory and its places in a gathered buffer."""
        bucket, size = self.bucket, flat.numel()
        pairs: list[tuple[Tensor, Tensor]] = []
        if isinstance(bucket, Interleaved):
            table, chunk, start = buffer.view(bucket.n, -1), bucket.chunks[i], bucket.starts[i]
            full = size // chunk
            pairs.append((flat[: full * chunk].view(full, chunk), table[:full, start : start + chunk]))
            if size % chunk:
                pairs.append((flat[full * chunk :], table[full, start : start + size % chunk]))
        else:
            assert isinstance(bucket, Flat)
            at = bucket.offsets[i]
            pairs.append((flat, buffer[at : at + size]))
        for own, there in pairs:
            if out:
                own.copy_(there)
            else:
                there.copy_(own)
        self.copied += flat.nbytes

    def held(self) -> list[Tensor]:
        """The tensors that live now: shard, gradients, buffers in use, gathered weights."""
        found = [self.local.detach(), self.gradient, *(storage.tensor for storage in self.separate)]
        found += [x for x in (self._sent, self.whole, self.reduced) if x is not None]
        return found + [w.grad for w in self.weights if w.grad is not None]
