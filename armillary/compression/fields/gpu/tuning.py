"""The search of `interp` on a device: all plans that `tuning` could ask for are tried in two batches, and the host chooses by its rules.

The entropies come from the device's logarithm, which may differ from the host's in the last bit. A plan is therefore chosen with a margin
that is a little larger and with one that is a little smaller; where the two choices differ, the host computes the bits again from the
counts of the codes, and the choice is the one of `tuning.tuned`.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from ..stages import tuning
from ..stages.interpolation import STRIDES, Interp, Plan, code_bits
from ..stages.stage import Context
from .interpolation import Batch, Run, Shape

#: Bits of both kinds of logarithm differ by less than this factor.
CLOSE = 1e-9


@dataclass(frozen=True)
class Subject:
    """A chunk whose plan is looked for: where it starts, its absolute bound, and whether quantised values take 64 bits."""

    start: int
    eps: float
    wide: bool


@dataclass(frozen=True)
class _Part:
    """Points of a chunk that are tried: their extents as (batch, z, y, x), and where they lie among those that were taken out."""

    shape: Shape
    first: int


@dataclass(frozen=True)
class _Parts:
    """What is taken out of a chunk of one shape: the sample, blocks at the ends of lines, and the usual anchors; `index` are places."""

    sample: _Part
    ends: tuple[_Part, ...]
    coarse: _Part
    size: int
    index: Any


class Search:
    """Looks for the plans of chunks of one shape."""

    def __init__(self, stage: Interp, shape: Shape, dtype: np.dtype, mode: str, device: Any) -> None:
        self.stage, self.device = stage, device
        self.ctx = Context(shape, dtype, mode)
        self.parts = _parts(shape, str(device))
        self.factors = tuning.coarse_factors(self.ctx, self.parts.coarse.shape[1:])
        self.scale = self.ctx.size / int(np.prod(self.parts.sample.shape))

    def plans(self, flat: Any, subjects: Sequence[Subject]) -> list[Plan]:
        """Returns the plan of each chunk of `flat`."""
        starts = torch.tensor([subject.start for subject in subjects], dtype=torch.int64).to(self.device)
        taken = flat[starts[:, None] + self.parts.index[None, :]].reshape(-1)
        fine = self._splines(taken, subjects)
        plans = [fine.decided(functools.partial(self._with_splines, fine, k)) for k in range(len(subjects))]
        coarse = self._levels(taken, subjects, [plan for plan, _ in plans])
        return [
            coarse.decided(functools.partial(self._with_levels, fine, coarse, k, subject, *found))
            for k, (subject, found) in enumerate(zip(subjects, plans, strict=True))
        ]

    def _splines(self, taken: Any, subjects: Sequence[Subject]) -> _Tried:
        """Tries both orders with all choices of linear levels."""
        base = self.stage.plan
        masks = [0]
        for level in tuning.tuned_levels(STRIDES[self.ctx.dimensions]):
            masks += [mask | 1 << level for mask in masks]
        plans = [replace(base, order=order, linear=base.linear ^ mask) for order in range(1 + (self.ctx.dimensions > 1)) for mask in masks]
        asked = [
            (k, plan, self._run(self.parts.sample, k, plan, subject, subject.eps)) for k, subject in enumerate(subjects) for plan in plans
        ]
        return _Tried(self.stage, taken, asked, [], self.ctx.dtype.itemsize)

    def _with_splines(self, tried: _Tried, k: int, margin: float) -> tuple[Plan, float]:
        return tuning.with_splines(self.ctx, self.stage.plan, lambda plan: tried.bits(k, plan), margin)

    def _levels(self, taken: Any, subjects: Sequence[Subject], plans: Sequence[Plan]) -> _Tried:
        """Tries copied and extrapolated ends of lines, and for both of them all level bounds and anchors."""
        asked: list[tuple[int, Any, Run]] = []
        coded: list[tuple[int, Any, Run]] = []
        for k, (subject, plan) in enumerate(zip(subjects, plans, strict=True)):
            both = plan, replace(plan, extrapolate=1)
            for n, end in enumerate(self.parts.ends):
                asked += [(k, (n, tried), self._run(end, k, tried, subject, subject.eps)) for tried in both]
            if not self.factors:
                continue
            coded.append((k, (subject.eps, 0), self._coarse(k, plan, subject, subject.eps, 0)))
            for tried in both[: 1 + bool(self.parts.ends)]:
                levels = tuning.level_plans(self.ctx, tried, subject.eps)
                asked += [(k, found, self._run(self.parts.sample, k, found, subject, own)) for found, own in levels]
                for own in dict.fromkeys(own for _, own in levels):
                    coded += [
                        (k, (tried.extrapolate, own, factor), self._coarse(k, tried, subject, own, factor)) for factor in self.factors
                    ]
        return _Tried(self.stage, taken, asked, coded, self.ctx.dtype.itemsize)

    def _with_levels(self, first: _Tried, tried: _Tried, k: int, subject: Subject, best: Plan, least: float, margin: float) -> Plan:
        if tried.exact:
            least = first.exact_bits(k, best)
        ends = [(tried.bits(k, (n, best)), tried.bits(k, (n, replace(best, extrapolate=1)))) for n in range(len(self.parts.ends))]
        best = tuning.with_ends(best, ends, margin)
        if not self.factors:
            return best
        fine = [((plan, own), tried.bits(k, plan)) for plan, own in tuning.level_plans(self.ctx, best, subject.eps)]

        def coarse(own: float, factor: int) -> float:
            return tried.bits(k, (best.extrapolate, own, factor) if factor else (own, 0))

        return tuning.with_anchors(self.ctx, best, least, self.scale, subject.eps, fine, coarse, self.factors, margin)

    def _run(self, part: _Part, k: int, plan: Plan, subject: Subject, own: float) -> Run:
        return Run(part.shape, plan, k * self.parts.size + part.first, subject.eps, own)

    def _coarse(self, k: int, plan: Plan, subject: Subject, own: float, factor: int) -> Run:
        part = self.parts.coarse
        source = k * self.parts.size + part.first
        return Run(part.shape, tuning.coarse_plan(plan, factor), source, own, own, narrow=not subject.wide, whole=True)


class _Tried:
    """Runs that were tried, and the bits that each takes; a run is known by its chunk and a key."""

    def __init__(
        self, stage: Interp, taken: Any, asked: Sequence[tuple[int, Any, Run]], coded: Sequence[tuple[int, Any, Run]], itemsize: int
    ) -> None:
        self.places = {(k, key): n for n, (k, key, _) in enumerate([*asked, *coded])}
        self.trials, self.itemsize, self.exact = len(asked), itemsize, False
        runs = [run for _, _, run in [*asked, *coded]]
        self.narrow = [run.narrow for run in runs]
        if not runs:
            return
        batch = Batch(runs, taken.device, stage.radius, in_place=False)
        size = int(batch.sizes.sum())
        recon = torch.empty(size, dtype=taken.dtype, device=taken.device)
        codes = torch.empty(size, dtype=torch.int16, device=taken.device)
        batch.put_trials(taken, recon, len(asked))
        outside = torch.zeros((2, len(runs)), dtype=torch.int64, device=taken.device)
        if coded:
            outside[:, len(asked) :] = batch.put_anchors(taken, recon, codes, len(asked)).sum(2)
        batch.predict(taken, recon, codes)
        self.counts, self.outside = batch.tally(codes), outside
        # A trial pays for its points without a code; a coarse run pays for anchors without one, too, and for violators among them.
        narrow = torch.tensor([4 if run.narrow else 8 for run in runs]).to(taken.device)
        stored = (self.counts[:, 0] - outside[0]) * itemsize + outside[0] * narrow + outside[1] * itemsize
        often = self.counts.double()
        surprise = often * torch.log2(often / often.sum(1, keepdim=True))
        entropy = torch.where(often > 0, surprise, torch.zeros_like(often)).sum(1)
        self.found = (8.0 * stored - entropy).tolist()

    def bits(self, k: int, key: Any) -> float:
        """Returns the bits of one run."""
        return self.exact_bits(k, key) if self.exact else float(self.found[self.places[k, key]])

    def exact_bits(self, k: int, key: Any) -> float:
        """Returns them by the host's own arithmetic."""
        n = self.places[k, key]
        counts = self.counts[n].cpu().numpy().astype(np.int64)
        if n < self.trials:
            return float(code_bits(counts, int(counts.sum()), self.itemsize)) if counts.any() else 0.0
        far, bad = (int(v) for v in self.outside[:, n].tolist())
        stored = (int(counts[0]) - far) * self.itemsize + far * (4 if self.narrow[n] else 8) + bad * self.itemsize
        return tuning.coarse_bits(counts[counts > 0], stored)

    def decided(self, decide: Any) -> Any:
        """Returns what `decide` returns with the bits that the host would have found."""
        high, low = decide(tuning.MARGIN * (1 + CLOSE)), decide(tuning.MARGIN * (1 - CLOSE))
        if high == low:
            return high
        self.exact = True
        try:
            return decide(tuning.MARGIN)
        finally:
            self.exact = False


@functools.lru_cache(maxsize=8)
def _parts(shape: Shape, device: str) -> _Parts:
    ctx = Context(shape, np.dtype("<f4"))
    usual = STRIDES[ctx.dimensions]
    cut = tuning.sample_cut(ctx)
    found: list[tuple[Shape, np.ndarray]] = [(shape, np.arange(ctx.size)) if cut is None else _places(shape, cut)]
    found += [_places(shape, end) for end in tuning.end_cuts(ctx)]
    axes = [np.arange(0, n, step) for n, step in zip(shape, (1, usual, usual, usual), strict=True)]
    extents = axes[0].size, axes[1].size, axes[2].size, axes[3].size
    found.append((extents, np.ravel_multi_index(np.ix_(*axes), shape).reshape(-1)))
    firsts = np.cumsum([0, *(index.size for _, index in found)])
    parts = [_Part(extents, int(first)) for (extents, _), first in zip(found, firsts[:-1], strict=True)]
    index = torch.from_numpy(np.concatenate([index for _, index in found])).to(device)
    return _Parts(parts[0], tuple(parts[1:-1]), parts[-1], int(firsts[-1]), index)


def _places(shape: Shape, cut: tuning.Cut) -> tuple[Shape, np.ndarray]:
    """Returns the extents of all blocks, and the places of their points."""
    first = np.ravel_multi_index(tuple(cut.starts.T), shape)
    inside = np.ravel_multi_index(np.ix_(*(np.arange(n) for n in cut.extents)), shape[1:])
    return (len(first), *cut.extents), (first[:, None] + inside.reshape(1, -1)).reshape(-1)
