"""Models tensor-train decomposition on a small edge processor, with a matrix accelerator alone and with TT-Edge's engine beside it.

The model takes the shapes of the unfoldings and the sweeps that the split SVD really took. Every constant is ours and a parameter; the
engine's power is the paper's figure and enters as an input. Times are cycles of one clock; units do not overlap.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Literal

from armillary.errors import InputError

Kind = Literal["gemm-only", "tt-edge"]
PHASES = ("reduce", "accumulate", "diagonalise", "sort", "truncate", "product")
_BYTES = 4


@dataclass(frozen=True)
class EdgeProcessor:
    """The constants: an in-order core, a matrix accelerator with a scratchpad, DMA, and the engine on the scratchpad."""

    #: Hz; cycles for a flop on the core, loads included.
    clock: float = 100e6
    core_cycles: float = 2.5
    #: Multiply–adds per cycle in products; bytes per cycle that feed matrix–vector work.
    macs: float = 64.0
    feed: float = 8.0
    #: Bytes per cycle, and cycles to set up a transfer or a call of the accelerator.
    dma: float = 4.0
    setup: float = 600.0
    scratchpad: float = 65536.0
    #: The engine: flops per cycle for norms, scaling and dots; cycles for a compare of the sort and a value of the truncation.
    engine_flops: float = 16.0
    engine_sort: float = 2.0
    engine_truncate: float = 1.0
    #: The same on the core.
    core_sort: float = 20.0
    core_truncate: float = 5.0
    #: Reflections that share one pass over the trailing matrix in the engine.
    panel: int = 32
    #: mW at 45 nm.
    core_active: float = 30.0
    core_idle: float = 6.0
    accelerator: float = 60.0
    memory: float = 40.0
    rest: float = 30.0
    #: The share of the whole power that the engine adds, which is the paper's figure.
    engine_power: float = 0.04

    def __post_init__(self) -> None:
        for of in fields(self):
            if not getattr(self, of.name) >= 0 or (
                of.name in ("clock", "macs", "feed", "dma", "engine_flops", "panel") and not getattr(self, of.name) > 0
            ):
                raise InputError(f"EdgeProcessor.{of.name}: found {getattr(self, of.name)}; expected a number above 0")


@dataclass
class Phase:
    """Cycles of one phase by the unit that is busy."""

    core: float = 0.0
    accelerator: float = 0.0
    engine: float = 0.0
    moving: float = 0.0

    @property
    def cycles(self) -> float:
        """The sum over all units, because they take turns."""
        return self.core + self.accelerator + self.engine + self.moving


@dataclass(frozen=True)
class Estimate:
    """Milliseconds and millijoules in all, and milliseconds by phase."""

    ms: float
    mj: float
    phases: dict[str, float]

    @property
    def mw(self) -> float:
        """Mean power."""
        return 1e3 * self.mj / self.ms if self.ms else 0.0


def decomposition(m: int, n: int, sweeps: int, rank: int, kind: Kind, p: EdgeProcessor) -> dict[str, Phase]:
    """Returns the phases of one truncated SVD of an m×n unfolding (turned where m < n) and of the product that goes on to the next."""
    if m < n:
        m, n = n, m
    made = {name: Phase() for name in PHASES}
    for i in range(n):
        # The column's reflection on (m−i)×(n−i), then the row's on (m−i−1)×(n−i−1); to U and V they are applied once more.
        _reflect(made["reduce"], m - i, n - i - 1, i, kind, p)
        if i < n - 1:
            _reflect(made["reduce"], n - i - 1, m - i - 1, i, kind, p)
        _apply(made["accumulate"], m - i, n - i, i, kind, p)
        if 0 < i < n:
            _apply(made["accumulate"], n - i, n - i, i, kind, p)
    # Each sweep turns about half of the columns of U and V, deflation taken into account: 6 flops per pair of values.
    made["diagonalise"].core = sweeps * 3.0 * n * (m + n) * p.core_cycles / 2
    compares = n * math.log2(max(2, n))
    if kind == "gemm-only":
        made["sort"].core = compares * p.core_sort
        made["sort"].moving = 2 * _moved(_BYTES * rank * (m + n), p)
        made["truncate"].core = n * p.core_truncate
    else:
        made["sort"].engine = compares * p.engine_sort
        made["truncate"].engine = n * p.engine_truncate
    # The product diag(σ)·Vᵀ of what is kept and the reshape go through the accelerator in both.
    made["product"].accelerator = rank * n / p.macs + p.setup
    made["product"].moving = 2 * _moved(_BYTES * rank * n, p)
    return made


def _moved(count: float, p: EdgeProcessor) -> float:
    return count / p.dma + p.setup if count else 0.0


def _reflect(phase: Phase, length: int, width: int, i: int, kind: Kind, p: EdgeProcessor) -> None:
    """Returns the cycles of one reflection, made from a vector of `length` and applied to length×width."""
    if kind == "gemm-only":
        phase.core += 3.0 * length * p.core_cycles
        phase.moving += _moved(_BYTES * length, p)
    else:
        phase.engine += 3.0 * length / p.engine_flops
    _apply(phase, length, width, i, kind, p)


def _apply(phase: Phase, rows: int, columns: int, i: int, kind: Kind, p: EdgeProcessor) -> None:
    """Returns the cycles of applying a reflection to rows×columns: a matrix–vector product and a rank-one update, each fed through once."""
    if rows <= 0 or columns <= 0:
        return
    size = _BYTES * rows * columns
    calls = 2 * p.setup if kind == "gemm-only" else 0.0
    phase.accelerator += 2 * size / p.feed + calls
    if size <= p.scratchpad:
        return
    if kind == "gemm-only":
        phase.moving += 3 * _moved(size, p)
    elif i % p.panel == 0:
        phase.moving += 2 * _moved(size, p)


def total(phases: Iterable[dict[str, Phase]], kind: Kind, p: EdgeProcessor) -> Estimate:
    """Returns time and energy of decompositions in a row."""
    cycles = dict.fromkeys(PHASES, 0.0)
    energy = 0.0
    # A core that waits for another unit is charged alike on both processors; clock gating is no merit of the engine.
    waiting = p.core_idle
    for made in phases:
        for name, phase in made.items():
            cycles[name] += phase.cycles
            energy += phase.core * (p.core_active + p.rest)
            energy += phase.accelerator * (p.accelerator + waiting + p.rest)
            energy += phase.engine * (p.accelerator / 2 + waiting + p.rest)
            energy += phase.moving * (p.memory + waiting + p.rest)
    energy *= 1 + (p.engine_power if kind == "tt-edge" else 0.0)
    each = {name: 1e3 * value / p.clock for name, value in cycles.items()}
    return Estimate(sum(each.values()), energy / p.clock, each)


def estimate(tensors: Sequence[Any], eps: float = 0.3, kind: Kind = "tt-edge", processor: EdgeProcessor | None = None) -> Any:
    """Returns a Polars table of the milliseconds that decomposing these tensors would take, by layer and phase.

    The split SVD is really run.
    """
    import polars as pl

    from ..decomposition.tensor_train import tt_svd

    p = processor or EdgeProcessor()
    rows = []
    for layer, tensor in enumerate(tensors):
        found = tt_svd(tensor, eps, engine="plain")
        made = of_train(found, kind, p)
        took = total(made, kind, p)
        rows += [(layer, name, took.phases[name]) for name in PHASES]
    return pl.DataFrame(rows, schema={"layer": pl.Int64, "phase": pl.String, "ms": pl.Float64}, orient="row")


def of_train(found: Any, kind: Kind, p: EdgeProcessor) -> list[dict[str, Phase]]:
    """Returns the phases of every unfolding of a tensor train that the split SVD made."""
    ranks = found.ranks[1:-1]
    return [decomposition(m, n, sweeps, rank, kind, p) for (m, n), sweeps, rank in zip(found.unfoldings, found.sweeps, ranks)]


def sensitivity(trains: Sequence[Any], processor: EdgeProcessor | None = None) -> Any:
    """Returns a Polars table of how the speed-up over gemm-only changes when each constant is doubled and halved."""
    import polars as pl

    p = processor or EdgeProcessor()

    def gain(of: EdgeProcessor) -> float:
        both = [total([made for t in trains for made in of_train(t, kind, of)], kind, of).ms for kind in ("gemm-only", "tt-edge")]
        return both[0] / both[1]

    rows = [
        (
            name.name,
            gain(replace(p, **{name.name: _scaled(getattr(p, name.name), 0.5)})),
            gain(replace(p, **{name.name: _scaled(getattr(p, name.name), 2)})),
        )
        for name in fields(p)
        if name.name not in ("core_active", "core_idle", "accelerator", "memory", "rest", "engine_power", "clock")
    ]
    return pl.DataFrame(rows, schema={"constant": pl.String, "halved": pl.Float64, "doubled": pl.Float64}, orient="row")


def _scaled(value: Any, by: float) -> Any:
    return max(1, int(value * by)) if isinstance(value, int) else value * by
