"""Four bits per element: a sign and three bits of exponent, without a mantissa, scaled by the largest value of each block.

Code 0 is zero and code e from 1 to 7 is 2^(e − 7) times the block's largest absolute value, so that seven octaves below it are
kept. An element takes the nearest of these values. Two elements share a byte, and each block has one float32 for its scale.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

#: Elements that share a scale.
BLOCK = 256
#: The absolute values that codes stand for, relative to the scale.
LEVELS = (0.0, *(2.0 ** (e - 7) for e in range(1, 8)))
_SIGN = 8


def encoded(values: Tensor) -> Tensor:
    """The bytes of a flat float tensor: one byte per two elements, then the scales; see `encoded_bytes`."""
    import torch

    flat = values.detach().float()
    padded = torch.nn.functional.pad(flat, (0, -flat.numel() % BLOCK)).view(-1, BLOCK)
    scale = padded.abs().amax(1, keepdim=True)
    share = padded.abs() / torch.where(scale > 0, scale, torch.ones_like(scale))
    middles = torch.tensor([(a + b) / 2 for a, b in itertools.pairwise(LEVELS)], device=flat.device)
    codes = torch.bucketize(share, middles).to(torch.uint8) | (padded < 0).to(torch.uint8) * _SIGN
    pairs = codes.view(-1, 2)
    packed = (pairs[:, 0] | pairs[:, 1] << 4)[: (flat.numel() + 1) // 2]
    return torch.cat([packed, scale.flatten().contiguous().view(torch.uint8)])


def decoded(data: Tensor, count: int) -> Tensor:
    """The float32 tensor of `count` elements whose bytes these are."""
    import torch

    half = (count + 1) // 2
    packed, scale = data[:half], data[half:].clone().view(torch.float32)
    codes = torch.stack([packed & 15, packed >> 4], 1).flatten()[:count].long()
    levels = torch.tensor([*LEVELS, *(-level for level in LEVELS)], device=data.device)
    return levels[codes] * scale.repeat_interleave(BLOCK)[:count]


def encoded_bytes(count: int) -> int:
    """The number of bytes in which `count` elements travel."""
    return (count + 1) // 2 + 4 * -(-count // BLOCK)
