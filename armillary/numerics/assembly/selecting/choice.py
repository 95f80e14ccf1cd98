"""Chooses a strategy for a mesh and says why: `choose(points, cells).table`."""

from __future__ import annotations

import functools
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from armillary.timing import Stopwatch

from ..assembling.strategy import STRATEGIES, Problem, Strategy, strategy
from ..meshes.mesh import checked
from .features import Features, features
from .network import HERE, Network, load
from .table import Table, load_table, machine


@dataclass(frozen=True)
class Choice:
    """The strategy named, predicted seconds of all, and the reason."""

    strategy: str
    #: Strategy to predicted seconds of one numeric assembly.
    numeric: dict[str, float]
    #: Strategy to predicted seconds of preparation.
    setup: dict[str, float]
    why: str
    #: Seconds that features and inference took.
    prediction_s: float = 0.0
    reuse: int = 0
    made: Strategy = field(default_factory=lambda: strategy("row-gather"), compare=False)

    @property
    def table(self) -> list[dict[str, Any]]:
        """One row a strategy, the fastest first: predicted numeric and setup seconds and their sum per assembly; the first says why."""
        total = {name: self.numeric[name] + (self.setup[name] / self.reuse if self.reuse else 0.0) for name in self.numeric}
        order = sorted(total, key=total.__getitem__)
        return [
            {
                "strategy": name, "seconds": total[name], "numeric_s": self.numeric[name], "setup_s": self.setup[name],
                "why": self.why if name == self.strategy else "",
            }
            for name in order
        ]  # fmt: skip

    def first_two(self) -> list[Strategy]:
        """Returns the two predicted fastest, the choice first."""
        names = [line["strategy"] for line in self.table]
        second = next(name for name in names if name != self.strategy)
        return [self.made, strategy(second)]


def choose(
    points: Any, cells: Any, element: str = "P1", physics: str = "poisson", *, reuse: int = 0, weights: Path | str | None = None
) -> Choice:
    """Returns the strategy predicted fastest for this mesh on this machine's CPU.

    `reuse` is how many assemblies share one symbolic phase; 0 leaves that phase out. `weights` is an .npz that `train` wrote, for a machine
    other than the one whose weights come with the package.
    """
    from ..assembling.assembler import problem_of

    return choose_for(problem_of(checked(points, cells, element), physics), reuse=reuse, weights=weights)


def choose_for(problem: Problem, *, reuse: int = 0, weights: Path | str | None = None, family: str = "", hybrid: bool = False) -> Choice:
    """Does the same for a problem; where `family` names a family of ours, the weights never saw it."""
    from .hybrid import split

    with Stopwatch() as watch:
        network = load(weights, "cpu") if weights is not None else shipped(family)
        found = features(problem)
        numeric, setup = network.seconds(found)
        times, setups = dict(zip(STRATEGIES, map(float, numeric))), dict(zip(STRATEGIES, map(float, setup)))
        total = {name: times[name] + (setups[name] / reuse if reuse else 0.0) for name in times}
        best = min(total, key=total.__getitem__)
        made = strategy(best)
        why = _reason(found, best, network)
        other = split(problem, found, network, total[best], reuse) if hybrid else None
    if other is not None:
        made, gain = other
        why = f"two strategies, predicted to take {100 * gain:.0f} % less than {best} alone; {why}"
    return Choice(best, times, setups, why, watch.seconds, reuse, made)


def shipped(family: str = "") -> Network:
    """Returns the weights that come with the package; for a family of ours, they are those trained without it."""
    from .table import fold_of

    fold = fold_of(family)
    return _shipped(f"fold{fold}" if fold >= 0 else "all")


@functools.cache
def _shipped(name: str) -> Network:
    return load(HERE / "cpu" / f"{name}.npz", "cpu")


@functools.cache
def shipped_table() -> Table:
    """Returns the measured table that comes with the package."""
    return load_table(HERE / "cpu" / "table.npz", "cpu")


def _reason(found: Features, best: str, network: Network) -> str:
    valence, spread = np.expm1(found["valence most"]), found["distance mean"]
    facts = f"largest valence {valence:.0f}, nodes of an element {100 * spread:.2g} % of the matrix apart"
    facts += f", pattern of {np.expm1(found['matrix bytes']) / 1e6:.3g} MB"
    other = "" if network.facts.get("machine") == machine() else f"; learned on another machine ({network.facts.get('machine')})"
    return f"{best} is predicted fastest: {facts}{other}"
