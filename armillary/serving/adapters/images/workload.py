"""Requests for images from the production trace GenTD26, from a public text-to-image trace, or drawn from a seed to resemble the first."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from armillary.errors import InputError
from armillary.workloads import window

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
MOST_STEPS, MOST_IMAGES, MOST_ROWS, MOST_LORAS = 1000, 1000, 10_000_000, 64
KINDS = ("TXT_2_IMG", "IMG_2_IMG", "INPAINTING")
STATUSES = ("SUCCEED", "FAILED", "CANCELED", "TIMEOUT", "RUNNING", "QUEUED")
#: Shares of GenTD26's requests: LoRAs per request, the first five base models, and images (value, share).
LORAS = ((0, 0.777), (1, 0.207), (2, 0.011), (3, 0.005))
BASES = (0.27, 0.20, 0.10, 0.07, 0.06)
IMAGES = ((1, 0.60), (2, 0.12), (4, 0.14), (6, 0.05), (8, 0.09))
LORA_COUNT, BASE_COUNT, LORA_EXPONENT = 874, 105, 0.91
#: GenTD26's requests per second: 16.5 in ten minutes on average.
MEAN_RATE = 16.5 / 600
#: Load times in GenTD26, (median, p99) in seconds.
LOAD_S = {"lora": (4.4, 8.2), "base": (22.7, 51.9), "controlnet": (3.9, 16.7)}


@dataclass(frozen=True)
class ImageTrace:
    """Requests by arrival. Request i has the LoRAs `lora[off[i]:off[i + 1]]`; `dropped` rows of the file had not succeeded."""

    arrival_s: Floats
    kind: Ints
    steps: Ints
    images: Ints
    base: Ints
    off: Ints
    lora: Ints
    bases: int
    loras: int
    dropped: int = 0
    #: Measured load times of LoRAs and base models in seconds; if empty, they are drawn around the medians above.
    lora_load_s: Floats = field(default_factory=lambda: np.empty(0))
    base_load_s: Floats = field(default_factory=lambda: np.empty(0))
    #: What the file lacked and was drawn.
    notes: tuple[str, ...] = ()

    def faster(self, factor: float) -> ImageTrace:
        """Returns the same requests with arrivals `factor` times as close together."""
        return replace(self, arrival_s=self.arrival_s / factor)

    def __len__(self) -> int:
        return len(self.arrival_s)

    def loras_of(self, i: int) -> tuple[int, ...]:
        """Returns the LoRAs of a request."""
        return tuple(int(a) for a in self.lora[self.off[i] : self.off[i + 1]])


def of(rows: list[tuple[float, int, int, int, int, tuple[int, ...]]], bases: int, loras: int, dropped: int = 0) -> ImageTrace:
    """Makes a trace from (arrival, kind, steps, images, base, LoRAs), sorted by arrival."""
    rows = sorted(rows, key=lambda r: r[0])
    first = rows[0][0] if rows else 0.0
    off = np.concatenate([[0], np.cumsum([len(r[5]) for r in rows])]).astype(np.int64)
    kind, steps, images, base = (np.array([r[i] for r in rows], np.int64) for i in (1, 2, 3, 4))
    times = np.array([r[0] - first for r in rows], float)
    return ImageTrace(times, kind, steps, images, base, off, np.array([a for r in rows for a in r[5]], np.int64), bases, loras, dropped)


def synthetic(
    rate_per_s: float, window_s: float, rng: np.random.Generator, *, loras: int = LORA_COUNT, bursts: bool = False, swing: float = 0.0
) -> ImageTrace:
    """Draws requests like those of GenTD26, `rate_per_s` on average including bursts.

    Each LoRA belongs to one base model. `swing` is the coefficient of variation of the rate between intervals of ten minutes. With
    `bursts`, one LoRA is requested 90 times as often for two to five minutes in every twenty (at most half of all requests).
    """
    tail = np.arange(1, BASE_COUNT - len(BASES) + 1) ** -1.0
    share = np.concatenate([BASES, tail / tail.sum() * (1 - sum(BASES))])
    base_of = rng.choice(BASE_COUNT, loras, p=share)
    base_of[: len(BASES)] = np.arange(min(loras, len(BASES)))
    weight = np.arange(1, loras + 1) ** -LORA_EXPONENT
    weight /= weight.sum()
    bins = max(1, math.ceil(window_s / 600))
    factor = rng.gamma(1 / swing**2, swing**2, bins) if swing else np.ones(bins)
    factor /= factor.mean()
    plan = []
    if bursts:
        for start in np.arange(600.0, window_s, 1200.0):
            hot, length = int(rng.choice(loras, p=weight)), min(float(rng.uniform(120, 300)), window_s - start)
            plan.append((start, length, hot, min(89.0 * rate_per_s * (1 - LORAS[0][1]) * float(weight[hot]), 0.5 * rate_per_s)))
    calm = rate_per_s - sum(length * extra for _, length, _, extra in plan) / window_s
    rows: list[tuple[float, int, int, int, int, tuple[int, ...]]] = []

    def draw(times: Floats, chosen: Ints | None) -> None:
        n = len(times)
        count = rng.choice([c for c, _ in LORAS], n, p=[p for _, p in LORAS])
        base = rng.choice(BASE_COUNT, n, p=share)
        steps = np.where(rng.random(n) < 0.98, 30, np.where(rng.random(n) < 0.5, 50, 20))
        images = rng.choice([i for i, _ in IMAGES], n, p=[p for _, p in IMAGES])
        kind = rng.choice(3, n, p=(0.91, 0.08, 0.01))
        first = rng.choice(loras, n, p=weight) if chosen is None else chosen
        for i in range(n):
            wanted: tuple[int, ...] = ()
            home = int(base[i])
            if count[i] or chosen is not None:
                home = int(base_of[first[i]])
                mine = np.flatnonzero(base_of == home)
                extra: Any = rng.choice(mine, min(len(mine), max(0, int(count[i]) - 1)), replace=False) if count[i] > 1 else []
                wanted = tuple(dict.fromkeys([int(first[i]), *(int(a) for a in extra)]))
            rows.append((float(times[i]), int(kind[i]), int(steps[i]), int(images[i]), home, wanted))

    for k in range(bins):
        length = min(600.0, window_s - 600.0 * k)
        draw(window(rng, calm * factor[k] * length, length, 600.0 * k), None)
    for start, length, hot, extra_rate in plan:
        times = window(rng, extra_rate * length, length, start)
        draw(times, np.full(len(times), hot))
    if not rows:
        raise InputError(f"rate: {rate_per_s:g} requests per second make none in {window_s:g} s")
    return of(rows, BASE_COUNT, loras)
