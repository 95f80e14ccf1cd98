"""Adam with 8-bit moments: each block stores its moments in bytes, with its largest absolute value as the scale.

The first moment is stored linearly, m ≈ s·(q − 128)/127; the second through its root, v ≈ s·(q/255)², and at least as q = 1 unless it is
zero, since a second moment that is lost would divide by nothing. Vectors keep their moments in full precision, as such optimizers usually
do.

Where no block is cut, every rank works on its own. A rank that holds a fragment of a block needs the largest value of the whole block,
so all ranks exchange the maxima of all cut blocks in one all-reduce per step. The moments are then those of a single process too.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ..layouts.bucket import Piece
from ..ragged.granularity import Weight
from .blocks import Fragment, Region, fragments, regions

if TYPE_CHECKING:
    from ..runtime.sharded import Sharded


@dataclass
class _Bytes:
    """The two moments of some elements in bytes, with their scales, one per block."""

    m: Tensor
    v: Tensor
    m_scale: Tensor
    v_scale: Tensor


@dataclass
class _Share:
    weight: Weight
    piece: Piece
    values: Tensor
    gradient: Tensor
    #: Whole blocks: the flat range of the whole strips, their regions, and the moments of each.
    start: int = 0
    stop: int = 0
    whole: list[tuple[Region, _Bytes]] = field(default_factory=list)
    #: Fragments, each with its moments and its place among all cut blocks.
    parts: list[tuple[Fragment, _Bytes, slice]] = field(default_factory=list)
    #: Moments of a vector.
    exact: tuple[Tensor, Tensor] | None = None


class Adam8bit:
    """Adam on shares of weights, with moments in bytes. Parameters are those of `torch.optim.AdamW`."""

    def __init__(
        self, sharded: Sharded, lr: float = 1e-3, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8, weight_decay: float = 0.01
    ) -> None:
        self.lr, self.betas, self.eps, self.weight_decay = lr, betas, eps, weight_decay
        self._wires = sharded.wires
        self._steps = 0
        self._shares: list[_Share] = []
        places, self._exchanged = _places(sharded)
        for weight, piece, values, gradient in sharded.shares():
            if piece.size:
                self._shares.append(_share(weight, piece, values, gradient, places))

    @torch.no_grad()
    def step(self) -> None:
        """Make one step with the gradients that are there."""
        self._steps += 1
        fresh: list[tuple[_Share, Fragment, _Bytes, slice, Tensor, Tensor]] = []
        largest = torch.zeros(2, self._exchanged, dtype=self._shares[0].values.dtype if self._shares else torch.float32)
        for share in self._shares:
            if share.exact is not None:
                m, v = share.exact
                self._moments(m, v, share.gradient)
                self._apply(share.values, m, v)
                continue
            self._whole_blocks(share)
            for part, stored, place in share.parts:
                cut = slice(part.start, part.stop)
                m, v = _linear(stored.m, _each(stored.m_scale, part)), _squared(stored.v, _each(stored.v_scale, part))
                self._moments(m, v, share.gradient[cut])
                self._apply(share.values[cut], m, v)
                largest[0, place], largest[1, place] = (_maxima(x, part, place.stop - place.start) for x in (m.abs(), v))
                fresh.append((share, part, stored, place, m, v))
        if self._exchanged:
            self._wires.largest(largest)
        for _, part, stored, place, m, v in fresh:
            stored.m_scale.copy_(largest[0, place])
            stored.v_scale.copy_(largest[1, place])
            stored.m.copy_(_to_linear(m, _each(stored.m_scale, part)))
            stored.v.copy_(_to_squared(v, _each(stored.v_scale, part)))

    def _whole_blocks(self, share: _Share) -> None:
        columns = share.weight.columns
        gradient, values = (x[share.start : share.stop].view(-1, columns) for x in (share.gradient, share.values))
        for region, stored in share.whole:
            m = _linear(stored.m, stored.m_scale[:, None, :, None])
            v = _squared(stored.v, stored.v_scale[:, None, :, None])
            self._moments(m, v, region.of(gradient))
            self._apply(region.of(values), m, v)
            torch.amax(m.abs(), (1, 3), out=stored.m_scale)
            torch.amax(v, (1, 3), out=stored.v_scale)
            stored.m.copy_(_to_linear(m, stored.m_scale[:, None, :, None]))
            stored.v.copy_(_to_squared(v, stored.v_scale[:, None, :, None]))

    def _moments(self, m: Tensor, v: Tensor, gradient: Tensor) -> None:
        m.mul_(self.betas[0]).add_(gradient, alpha=1 - self.betas[0])
        v.mul_(self.betas[1]).addcmul_(gradient, gradient, value=1 - self.betas[1])

    def _apply(self, values: Tensor, m: Tensor, v: Tensor) -> None:
        first, second = 1 - self.betas[0] ** self._steps, 1 - self.betas[1] ** self._steps
        values.mul_(1 - self.lr * self.weight_decay)
        values.addcdiv_(m, (v / second).sqrt_().add_(self.eps), value=-self.lr / first)

    def states(self) -> Iterator[Tensor]:
        """All tensors of the optimizer's state."""
        for share in self._shares:
            yield from share.exact or ()
            for stored in [b for _, b in share.whole] + [b for _, b, _ in share.parts]:
                yield from (stored.m, stored.v, stored.m_scale, stored.v_scale)

    def moments(self) -> dict[str, tuple[Tensor, Tensor]]:
        """The bytes of both moments of this rank's share of each weight, as two flat tensors; of vectors the moments themselves."""
        found = {}
        for share in self._shares:
            if share.exact is not None:
                found[share.weight.name] = share.exact
                continue
            flat = torch.zeros(2, share.piece.size, dtype=torch.uint8)
            for both, name in zip(flat, ("m", "v")):
                matrix = both[share.start : share.stop].view(-1, share.weight.columns)
                for region, stored in share.whole:
                    region.of(matrix).copy_(getattr(stored, name))
                for part, stored, _ in share.parts:
                    both[part.start : part.stop] = getattr(stored, name)
            found[share.weight.name] = (flat[0], flat[1])
        return found


def _places(sharded: Sharded) -> tuple[dict[tuple[str, int], slice], int]:
    """The place of every cut strip's blocks in the exchange, equal on all ranks, and its length."""
    places, at = {}, 0
    for bucket in sharded.buckets():
        for i, weight in enumerate(bucket.weights):
            for strip in bucket.cut(i).tolist():
                count = -(-weight.columns // weight.block_shape[1])
                places[weight.name, strip] = slice(at, at + count)
                at += count
    return places, at


def _share(weight: Weight, piece: Piece, values: Tensor, gradient: Tensor, places: dict[tuple[str, int], slice]) -> _Share:
    made = _Share(weight, piece, values, gradient)
    if not weight.matrix or weight.grain == 1:
        made.exact = (torch.zeros_like(values), torch.zeros_like(values))
        return made
    parts, made.start, made.stop = fragments(weight, piece)
    for part in parts:
        place = places[weight.name, part.strip]
        made.parts.append((part, _bytes((part.stop - part.start,), (place.stop - place.start,), values.dtype), place))
    high, wide = weight.block_shape
    for region in regions((made.stop - made.start) // weight.columns, weight.columns, high, wide):
        down, across = region.blocks
        made.whole.append((region, _bytes((down, region.high, across, region.wide), (down, across), values.dtype)))
    return made


def _bytes(shape: tuple[int, ...], scales: tuple[int, ...], dtype: torch.dtype) -> _Bytes:
    m, v = torch.full(shape, 128, dtype=torch.uint8), torch.zeros(shape, dtype=torch.uint8)
    return _Bytes(m, v, torch.zeros(scales, dtype=dtype), torch.zeros(scales, dtype=dtype))


def _each(scale: Tensor, part: Fragment) -> Tensor:
    return scale if part.block is None else scale[part.block]


def _maxima(values: Tensor, part: Fragment, count: int) -> Tensor:
    """The largest value of each block of the strip in the fragment; 0 for blocks that it does not reach."""
    if part.block is None:
        return values.amax()
    return torch.zeros(count, dtype=values.dtype).scatter_reduce_(0, part.block, values, "amax")


def _linear(stored: Tensor, scale: Tensor) -> Tensor:
    return (stored.to(scale.dtype) - 128) * (scale / 127)


def _squared(stored: Tensor, scale: Tensor) -> Tensor:
    root = stored.to(scale.dtype) / 255
    return root * root * scale


def _to_linear(m: Tensor, scale: Tensor) -> Tensor:
    return torch.where(scale > 0, m / scale, 0.0).mul_(127).round_().add_(128).clamp_(1, 255).to(torch.uint8)


def _to_squared(v: Tensor, scale: Tensor) -> Tensor:
    return torch.where(v > 0, (v / scale).sqrt_().mul_(255).round_().clamp_(1, 255), 0.0).to(torch.uint8)
