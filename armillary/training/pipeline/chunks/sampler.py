"""Chunks as a sampler for PyTorch's data loaders."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from .polynomial import Polynomial
from .processor import process


class ChunkSampler:
    """Yields the chunks of a batch of sequences, each as a list of (sequence, first token, tokens).

    It has what `torch.utils.data.DataLoader` asks of a `batch_sampler`: it can be iterated over and has a length.
    """

    def __init__(self, lengths: npt.ArrayLike, cost: Polynomial, target_s: float, tokens: int) -> None:
        self.chunks = process(np.asarray(lengths, np.int64), cost, target_s, tokens)

    def __len__(self) -> int:
        return len(self.chunks)

    def __iter__(self) -> Iterator[list[tuple[int, int, int]]]:
        for chunk in self.chunks:
            yield [(i, chunk.context if n == 0 else 0, count) for n, (i, count) in enumerate(chunk.slices)]
