"""Predictors: the CPU that instances of one server use, by attention, by trees, by core-level scores, or by the truth.

A predictor answers the inflation of CPU over that alone on the same server. The truth is for oracles alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from armillary.kernels import loop
from armillary.kernels.exponential import exp
from armillary.learn.attention_rows import AttentionRows, rows
from armillary.learn.trees import walk_rows
from armillary.scheduling.contention import Applications, Model, Topology
from armillary.scheduling.contention.settled import climb, couple

from .tokens import COLUMNS, columns, hardware, token_arrays, tokens

Array = npt.NDArray[Any]
Floats = npt.NDArray[np.float64]


class Predictor(Protocol):
    """Answers log(CPU under co-location / CPU alone on this server) of some instances of one server, [targets]."""

    def inflation(
        self, topology: Topology, ids: Array, near: Array, far: Array, targets: Array, feats: Array, load: Array, app: Array
    ) -> Floats:
        """ids: the server's instances, [n]. near, far: their `overlap`, [n, n]. targets: which of them, as places in `ids`.

        feats, load: of all instances, by `tokens.features`. app: the application of all instances.
        """
        ...


@loop
def _softplus(raw):  # type: ignore[no-untyped-def]
    """log(1 + eˣ) by the series of the logarithm of 1 + z, with the same bits everywhere; right to 1e-9."""
    out = np.empty(len(raw))
    for r in range(len(raw)):
        x = float(raw[r, 0])
        z = exp(-abs(x))
        # ln(1 + z) = 2·artanh(z/(2 + z)), whose argument is at most 1/3.
        y = z / (2.0 + z)
        square, term, total = y * y, y, 0.0
        for n in range(12):
            total += term / (2 * n + 1)
            term *= square
        out[r] = max(x, 0.0) + 2.0 * total
    return out


@dataclass(frozen=True)
class Attention:
    """Hestia's network."""

    network: AttentionRows
    with_hardware: bool = True

    def inflation(
        self, topology: Topology, ids: Array, near: Array, far: Array, targets: Array, feats: Array, load: Array, app: Array
    ) -> Floats:
        """By tokens."""
        most = 2 + 2 * len(ids)
        x, types, counts = token_arrays(len(targets), min(24, most))
        tokens(ids, near, far, targets, feats, load, hardware(topology), self.with_hardware, x, types, counts)
        return self.of_tokens(x, types, counts)

    def of_tokens(self, x: Array, types: Array, counts: Array) -> Floats:
        """Of ready token sets."""
        out = np.empty((len(x), 1), np.float32)
        rows(self.network, x, types, counts, out)
        found: Floats = _softplus(out)
        return found


@dataclass(frozen=True)
class Trees:
    """Boosted trees over the same numbers."""

    start: float
    arrays: tuple[Array, ...]

    def inflation(
        self, topology: Topology, ids: Array, near: Array, far: Array, targets: Array, feats: Array, load: Array, app: Array
    ) -> Floats:
        """By sums over neighbours."""
        x = np.empty((len(targets), COLUMNS))
        columns(ids, near, far, targets, feats, load, hardware(topology), x)
        return self.of_columns(x)

    def of_columns(self, x: Array) -> Floats:
        """Of ready rows."""
        out = np.full((len(x), 1), self.start, np.float32)
        walk_rows(np.ascontiguousarray(x, np.float32), *self.arrays, out)
        return np.maximum(out[:, 0].astype(np.float64), 0.0)


@dataclass(frozen=True)
class CoreScores:
    """A symmetric score per shared core, linear in the CPI and MPKI of both; blind to the socket, the direction and the hardware."""

    #: Weights of 1, CPI_a + CPI_b and MPKI_a + MPKI_b.
    weights: Floats

    def inflation(
        self, topology: Topology, ids: Array, near: Array, far: Array, targets: Array, feats: Array, load: Array, app: Array
    ) -> Floats:
        """The shared threads times the scores."""
        found = np.zeros(len(targets))
        for r, i in enumerate(targets.tolist()):
            for j in np.flatnonzero(near[i] > 0).tolist():
                found[r] += near[i, j] * self.score(feats[ids[i]], feats[ids[j]])
        return np.maximum(found, 0.0)

    def score(self, one: Floats, other: Floats) -> float:
        """The score of two instances that share a core."""
        w = self.weights
        return float(w[0] + w[1] * (one[3] + other[3]) + w[2] * (one[4] + other[4]))


@dataclass(frozen=True)
class Truth:
    """The contention model itself."""

    apps: Applications
    model: Model

    def inflation(
        self, topology: Topology, ids: Array, near: Array, far: Array, targets: Array, feats: Array, load: Array, app: Array
    ) -> Floats:
        """The settled use over that alone."""
        return _true(
            app[ids], load[ids] / topology.speed, near, far, self.apps.pressure, self.apps.sensitivity, tuple(self.model), targets
        )


@loop
def _true(app, alone, near, far, pressure, sensitivity, model, targets):  # type: ignore[no-untyped-def]
    n = len(app)
    by_core, by_socket = near.copy(), far.copy()
    couple(app, pressure, sensitivity, model, by_core, by_socket)
    use, loads, core, socket = np.empty(n), np.empty(n), np.empty(n), np.empty(n)
    climb(alone, by_core, by_socket, model, use, loads, core, socket)
    out = np.empty(len(targets))
    for r in range(len(targets)):
        i = targets[r]
        out[r] = np.log(use[i] / min(1.0, alone[i])) if alone[i] > 0.0 else 0.0
    return out
