"""What a replacement would save, seen from the future: for the oracle, the labels of the classifier, and the regret of decisions."""

# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

import numpy as np

from armillary.kernels import loop
from armillary.training.prefetch.buffers.scored import Exchange, Found, ScoredBuffer
from armillary.training.prefetch.workload import Trainer


def saving(trainer: Trainer, offer: Exchange, buffer: ScoredBuffer, found: Found, minibatch: int, window: int) -> int:
    """Vertices that this exchange would save over the `window` minibatches after this one, less those that it fetches.

    Newcomers that the minibatch misses anyway are fetched with it and cost nothing. Scores move on alike either way, so the difference
    is what those minibatches ask of the newcomers, less what they ask of those that leave.
    """
    if not len(offer):
        return 0
    worth = np.zeros(len(trainer.halo), np.int8)
    worth[offer.entering] = 1
    leaving = buffer.ids[offer.out[offer.out < len(buffer.ids)]]
    worth[leaving] = -1
    missing = np.zeros(len(trainer.halo), bool)
    missing[found.missed] = True
    cost = int((~missing[offer.entering]).sum())
    first, last = trainer.start[minibatch + 1], trainer.start[min(minibatch + 1 + window, trainer.minibatches)]
    return int(_summed(worth, trainer.asked[first:last])) - cost


@loop
def _summed(worth, asked):
    total = 0
    for position in asked:
        total += worth[position]
    return total
