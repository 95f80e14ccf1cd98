"""The error of one estimate, by its parts, and the bounds on skew that follow.

For a link e, δ_e bounds the error of an estimate of L_w − L_v:

    two-way:  δ_e = asymmetry_e/2 + jitter_e/2 + q + (ρ + μ)·T + ρ·turnaround/2
    one-way:  δ_e = uncertainty_e/2 + asymmetry_e/2 + jitter_e/2 + q + (ρ + μ)·T

and κ_e = c·δ_e with c > 2. With σ = μ/ρ and the weighted diameter W = max over pairs of the least Σ κ_e,

    global skew  G ≤ 2 W σ/(σ − 1)
    local skew   on e at most κ_e (2 ⌈log_σ(G/κ_e)⌉ + 1)

The 2 in the first is needed, because nobody runs fast before a link shows 2 κ − δ. The form of the second is the literature's.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from armillary.errors import InputError
from armillary.network.clocks.graph.network import ClockNetwork, Floats


@dataclass(frozen=True)
class Budget:
    """The parts of δ_e in seconds, one value per link each."""

    asymmetry: Floats
    jitter: Floats
    grain: Floats
    drift: Floats
    turnaround: Floats
    uncertainty: Floats

    @property
    def total(self) -> Floats:
        """δ_e."""
        return self.asymmetry + self.jitter + self.grain + self.drift + self.turnaround + self.uncertainty

    def table(self) -> list[dict[str, float | str]]:
        """The parts as rows: their mean, their largest, and their share of the mean."""
        whole = max(float(self.total.mean()), 1e-300)
        return [
            {"part": name, "mean_s": float(x.mean()), "largest_s": float(x.max()), "share": float(x.mean()) / whole}
            for name, x in ((name, getattr(self, name)) for name in self.__dataclass_fields__)
        ]


def error_budget(
    network: ClockNetwork, *, rho: float, mu: float, period: float, grain: float = 0.0, turnaround: float = 0.0,
    one_way: float | None = None, declared: float = 1.0,
) -> Budget:  # fmt: skip
    """What one estimate may be wrong by on each link.

    `one_way` is the share of the delay that a one-way receiver does not know; None for exchanges in both directions. `declared` scales what
    is known of links and stamps, for studies of wrong data sheets.
    """
    if not period > 0:
        raise InputError(f"found {period:g}; expected a period of more than 0 seconds", where="period")
    if grain < 0 or turnaround < 0:
        raise InputError(f"found {min(grain, turnaround):g}; expected at least 0 seconds", where="grain" if grain < 0 else "turnaround")
    each = np.ones(network.links)
    return Budget(
        declared * network.asymmetry / 2, declared * network.jitter / 2, declared * grain * each, (rho + mu) * period * each,
        (0.0 if one_way is not None else rho * turnaround / 2) * each, declared * (one_way or 0.0) * network.delay / 2,
    )  # fmt: skip


def checked_kappa(delta: Floats, c: float) -> Floats:
    """κ_e = c·δ_e; c must exceed 2, so that a clock never has reason to run fast and slow at once."""
    if not c > 2:
        raise InputError(f"found {c:g}; expected more than 2, because κ must exceed 2 δ", where="c")
    return np.maximum(c * delta, 1e-15)


def weighted_diameter(network: ClockNetwork, kappa: Floats, exact_up_to: int = 5000) -> tuple[float, bool]:
    """(W, whether it is exact); larger networks get an upper bound, twice the least eccentricity of a few nodes."""
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import dijkstra

    n = network.nodes
    ends = (np.concatenate([network.a, network.b]), np.concatenate([network.b, network.a]))
    graph = csr_array((np.concatenate([kappa, kappa]), ends), shape=(n, n))
    if n <= exact_up_to:
        most = max(float(dijkstra(graph, indices=np.arange(i, min(i + 256, n))).max()) for i in range(0, n, 256))
        return most, True
    far = dijkstra(graph, indices=[0])[0]
    tried = dijkstra(graph, indices=[0, int(np.argmax(far)), int(np.argsort(far)[n // 2]), n // 2])
    return 2 * float(tried.max(1).min()), False


@dataclass(frozen=True)
class Bounds:
    """What the skew cannot exceed once initial skew is gone, in seconds."""

    global_skew: float
    #: One value per link.
    local_skew: npt.NDArray[np.float64]
    diameter: float
    #: Whether the weighted diameter is exact or an upper bound.
    exact: bool


def bounds(network: ClockNetwork, kappa: Floats, rho: float, mu: float, initial: float = 0.0) -> Bounds:
    """The bounds of gradient clock synchronisation; `initial` is the global skew at the start, which is worked off at the rate μ − ρ."""
    if not mu > rho:
        raise InputError(f"found mu = {mu:g} and rho = {rho:g}; expected mu above rho, or slow clocks cannot catch up", where="mu")
    sigma = mu / rho
    diameter, exact = weighted_diameter(network, kappa)
    most = max(2 * diameter * sigma / (sigma - 1), initial)
    steps = np.array([math.ceil(math.log(max(most / k, 1.0)) / math.log(sigma) - 1e-12) for k in kappa.tolist()])
    return Bounds(most, kappa * (2 * steps + 1), diameter, exact)
