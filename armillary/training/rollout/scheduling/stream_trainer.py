"""Training begins on half of the devices while the other half still generates; the combined gradient is that of synchronous training.

RollPacker (arXiv 2509.21009, 2025), stream trainer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from armillary.errors import InputError


def half(gpus: int, rollout_tp: int, training_replica: int) -> int | None:
    """The number of devices that may leave: half, if that cuts no rollout instance and no data-parallel copy in training, and else None."""
    if gpus % 2:
        return None
    freed = gpus // 2
    whole = freed % rollout_tp == 0 and freed % training_replica == 0 and freed >= max(rollout_tp, training_replica)
    return freed if whole else None


def combine_gradients(gradients: Sequence[Any], samples: Sequence[int]) -> Any:
    """The gradient of the mean loss over all samples, from each replica's gradient of its own mean: Σ nᵢ·gᵢ / Σ nᵢ.

    `gradients` are arrays or tensors of one shape. `samples` are the numbers of samples of the replicas, which differ when work is handed
    out as it arrives.
    """
    if len(gradients) != len(samples) or not gradients:
        raise InputError(f"found {len(gradients)} gradients and {len(samples)} counts; expected one count for each, and at least one")
    total = sum(samples)
    if total <= 0 or min(samples) < 0:
        raise InputError("samples: expected counts of 0 or more, not all 0")
    out = gradients[0] * (samples[0] / total)
    for gradient, count in zip(gradients[1:], samples[1:], strict=True):
        out = out + gradient * (count / total)
    return out


def streamed(ready_s: npt.NDArray[np.float64], work_s: npt.NDArray[np.float64], start_s: float, end_s: float, share: float) -> float:
    """Seconds of work, as all devices would take them, that `share` of the devices does between `start_s` and `end_s`.

    Pieces of `work_s` are done one after another as they become ready; a piece that is cut off at the end counts as far as it got.
    """
    if share <= 0 or end_s <= start_s:
        return 0.0
    order = np.argsort(ready_s, kind="stable")
    now, done = start_s, 0.0
    for i in order:
        now = max(now, float(ready_s[i]))
        if now >= end_s:
            break
        part = min(float(work_s[i]), (end_s - now) * share)
        now += part / share
        done += part
    return done


@dataclass
class StreamTrainer:
    """Decides when half of the devices may go, once per share `every` of the responses between `least` and `most`.

    They may go if the KV that the remaining requests are expected to need fits the devices that stay. The expectation comes from the
    lengths of earlier rounds (`history`), given what each request has made already; without a history, all devices stay.
    """

    least: float = 0.2
    most: float = 0.5
    every: float = 0.05
    history: npt.NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))
    _looked: float = field(default=-1.0, init=False)

    def looks(self, finished: float) -> bool:
        """Whether the share of responses that ended calls for a decision."""
        if not self.least <= finished <= self.most or (self._looked >= 0 and finished < self._looked + self.every - 1e-12):
            return False
        self._looked = finished
        return True

    def expected(self, made: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """The mean length of those in the history that got beyond `made` tokens, or `made` itself if none did."""
        known = np.sort(self.history)
        above = np.concatenate([np.cumsum(known[::-1])[::-1], [0.0]])
        at = np.searchsorted(known, made, side="right")
        count = len(known) - at
        return np.where(count > 0, above[at] / np.maximum(count, 1), made)

    def accepts(self, prompt: npt.NDArray[Any], made: npt.NDArray[np.float64], kv_tokens: float) -> bool:
        """Whether the projected KV of the remaining requests fits `kv_tokens`."""
        return len(self.history) > 0 and float((prompt + self.expected(made)).sum()) <= kv_tokens
