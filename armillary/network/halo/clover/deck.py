"""Decks: what a CloverLeaf run starts from, as `clover.in` says it.

The background is state 1; each further state fills a rectangle, a circle or the cell at a point. Where a key is left out, CloverLeaf's own
defaults count (a box of 100 × 100 with 10 × 10 cells, time steps of at most 1, an end at time 10).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

GEOMETRIES = ("rectangle", "circle", "point")
#: An end that no run reaches.
FOREVER = 1e300


@dataclass(frozen=True)
class State:
    """Density, specific energy and velocity inside a shape; the centre of circles and points is (xmin, ymin)."""

    density: float
    energy: float
    xvel: float = 0.0
    yvel: float = 0.0
    geometry: str = "rectangle"
    xmin: float = 0.0
    xmax: float = 0.0
    ymin: float = 0.0
    ymax: float = 0.0
    radius: float = 0.0


@dataclass(frozen=True)
class Deck:
    """The states, the grid, and how the time step is chosen. `periodic` (across, along) is ours; CloverLeaf's walls reflect."""

    states: tuple[State, ...]
    x_cells: int = 10
    y_cells: int = 10
    xmin: float = 0.0
    xmax: float = 100.0
    ymin: float = 0.0
    ymax: float = 100.0
    initial_timestep: float = 0.1
    max_timestep: float = 1.0
    timestep_rise: float = 1.5
    end_time: float = 10.0
    end_step: int = 1 << 30
    #: The number of CloverLeaf's own test problem, whose kinetic energy at the end is known; 0 for none.
    test_problem: int = 0
    periodic: tuple[bool, bool] = (False, False)

    @property
    def dx(self) -> float:
        """The width of a cell."""
        return (self.xmax - self.xmin) / self.x_cells

    @property
    def dy(self) -> float:
        """The height of a cell."""
        return (self.ymax - self.ymin) / self.y_cells

    def sized(self, cells: int, steps: int, periodic: bool = False) -> Deck:
        """Return the same deck on a square grid, for a number of steps."""
        return replace(self, x_cells=cells, y_cells=cells, end_step=steps, end_time=FOREVER, periodic=(periodic, periodic))

    def given(self) -> dict[str, Any]:
        """The deck as numbers and names, for ranks in other processes."""
        return asdict(self)


def deck_of(given: Mapping[str, Any]) -> Deck:
    """Return the deck that `given` described."""
    states = tuple(State(**state) for state in given["states"])
    across, along = given["periodic"]
    return Deck(**{**given, "states": states, "periodic": (bool(across), bool(along))})


#: What CloverLeaf takes for nothing, so that no kernel divides by zero, and for a step without a limit.
SMALL, BIG = 1e-16, 1e21
#: CloverLeaf's kinetic energy at the end of its test problems, and by how many per cent a run may differ.
KINETIC = {1: 1.82280367310258, 2: 1.19316898756307, 3: 2.58984003503994, 4: 0.307475452287895, 5: 4.85350315783719}
WITHIN_PERCENT = 0.001

_AIR = State(0.2, 1.0)
_BOX = Deck((), xmax=10.0, ymax=10.0, initial_timestep=0.04, max_timestep=0.04)


def _of(*states: State) -> Deck:
    return replace(_BOX, states=(_AIR, *states))


#: `corner` is the states of CloverLeaf's benchmark deck; the others are ours.
DECKS = {
    "corner": _of(State(1.0, 2.5, xmax=5.0, ymax=2.0)),
    "blast": _of(State(1.0, 2.5, xmin=3.0, xmax=7.0, ymin=3.0, ymax=7.0)),
    "disc": _of(State(1.0, 2.5, geometry="circle", xmin=4.0, ymin=6.0, radius=2.0)),
    "layers": _of(State(1.0, 2.5, xmax=10.0, ymax=2.0), State(0.6, 1.5, xmin=2.0, xmax=4.0, ymin=5.0, ymax=9.0)),
}
#: CloverLeaf's `clover_bm_short.in`, which is its test problem 2.
BENCHMARK = replace(DECKS["corner"], x_cells=960, y_cells=960, end_step=87, test_problem=2)
