"""One rank's part of the grid: its fields, where their halos lie, and their first values.

Every field has the same shape, (rows + 5) × (columns + 5): two layers of halo on each side, and one more line at the end for values that
stand on nodes or faces. Cell (k, j) stands at [k + 2, j + 2], and so does the node or face at its lower left.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from armillary.errors import InputError

from .deck import Deck, State

#: The layers of halo.
HALO = 2
#: Lines beyond the cells: a halo on both sides, and one line for nodes.
EXTRA = 2 * HALO + 1


@dataclass(frozen=True)
class Field:
    """Where the values of a field stand, and how a wall mirrors them.

    `extra` is (rows, columns) of values beyond the cells: 1 for those on nodes or faces of that direction. `sign` is what a mirrored value
    is multiplied by at walls (below and above, left and right). A flux is mirrored along its wall about the centre of the last cell.
    """

    name: str
    extra: tuple[int, int] = (0, 0)
    sign: tuple[int, int] = (1, 1)
    flux: bool = False

    def mirrors(self, axis: int) -> tuple[int, int]:
        """Where mirrors stand along an axis, as (what is left out at the near end, at the far end): 1 if the value on the mirror is not
        repeated, counted from the last value of the field or, for fluxes along a wall, of the cells."""
        if self.extra[axis]:
            return 1, 1
        return (1, 1) if self.flux else (0, 0)


_CELLS = [Field(name) for name in ("density0", "density1", "energy0", "energy1", "pressure", "viscosity", "soundspeed")]
_NODES = [Field(f"{axis}vel{time}", (1, 1), (1, -1) if axis == "x" else (-1, 1)) for axis in "xy" for time in "01"]
_FLUXES = [
    Field(f"{what}_flux_{axis}", (0, 1) if axis == "x" else (1, 0), (1, -1) if axis == "x" else (-1, 1), flux=True)
    for what in ("vol", "mass") for axis in "xy"
]  # fmt: skip
#: The fifteen fields that CloverLeaf exchanges.
FIELDS = {field.name: field for field in (*_CELLS, *_NODES, *_FLUXES)}
#: Arrays that no other rank reads.
WORK = ("energy_flux", "node_flux", "mass_post", "mass_pre", "momentum_x", "momentum_y")


@dataclass(frozen=True)
class Block:
    """The cells [row0, row1) × [column0, column1) of a deck; `walls` are the sides (below, above, left, right) where the box ends."""

    deck: Deck
    row0: int
    row1: int
    column0: int
    column1: int
    walls: tuple[bool, bool, bool, bool]

    @property
    def rows(self) -> int:
        """Rows of cells."""
        return self.row1 - self.row0

    @property
    def columns(self) -> int:
        """Columns of cells."""
        return self.column1 - self.column0

    @property
    def shape(self) -> tuple[int, int]:
        """The shape of every field."""
        return self.rows + EXTRA, self.columns + EXTRA

    def start(self) -> dict[str, np.ndarray[Any, Any]]:
        """Return all fields and work arrays, with the states of the deck in density, energy and velocity."""
        fields = {name: np.zeros(self.shape) for name in (*FIELDS, *WORK)}
        x, y = self._lows(1), self._lows(0)
        first, *others = self.deck.states
        for name, value in (("density0", first.density), ("energy0", first.energy), ("xvel0", first.xvel), ("yvel0", first.yvel)):
            fields[name][...] = value
        for state in others:
            inside = _inside(state, self.deck, x, y)
            nodes = np.zeros(self.shape, bool)
            for rows in (slice(0, -1), slice(1, None)):
                for columns in (slice(0, -1), slice(1, None)):
                    nodes[rows, columns] |= inside
            cells = np.zeros(self.shape, bool)
            cells[:-1, :-1] = inside
            fields["density0"][cells], fields["energy0"][cells] = state.density, state.energy
            fields["xvel0"][nodes], fields["yvel0"][nodes] = state.xvel, state.yvel
        return fields

    def _lows(self, axis: int) -> np.ndarray[Any, Any]:
        """The coordinates at which the cells begin along an axis, halo included; around a periodic box they repeat."""
        deck = self.deck
        if axis == 0:
            low, size, cells, first, n = deck.ymin, deck.dy, deck.y_cells, self.row0, self.rows
        else:
            low, size, cells, first, n = deck.xmin, deck.dx, deck.x_cells, self.column0, self.columns
        index = np.arange(first - HALO, first + n + HALO)
        return low + size * (index % cells if deck.periodic[axis] else index)


def _inside(state: State, deck: Deck, low_x: np.ndarray[Any, Any], low_y: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return which cells, halo included, a state fills."""
    if state.geometry == "point":
        return (low_y == state.ymin)[:, None] & (low_x == state.xmin)[None, :]
    if state.geometry == "circle":
        across, along = low_x + deck.dx / 2 - state.xmin, low_y + deck.dy / 2 - state.ymin
        return np.sqrt((along * along)[:, None] + (across * across)[None, :]) <= state.radius
    # The sides are drawn in by a hundredth of a cell, so that rounding cannot put a side that runs between two cells into the next one.
    dx, dy = deck.dx / 100, deck.dy / 100
    columns = (low_x + deck.dx >= state.xmin + dx) & (low_x < state.xmax - dx)
    rows = (low_y + deck.dy >= state.ymin + dy) & (low_y < state.ymax - dy)
    return rows[:, None] & columns[None, :]


def block(deck: Deck, dims: tuple[int, int] = (1, 1), at: tuple[int, int] = (0, 0)) -> Block:
    """Return the part of a deck that stands at a place (row, column) of a grid of ranks."""
    from armillary.network.halo.exchange.geometry import share

    cells = (deck.y_cells, deck.x_cells)
    for axis, (n, parts) in enumerate(zip(cells, dims)):
        if n // parts < HALO:
            raise InputError(f"dimension {axis}: found {n} cells for {parts} ranks; expected at least {HALO} for each")
    spans = [share(n, parts, place) for n, parts, place in zip(cells, dims, at)]
    walls = [end for axis in (0, 1) for end in (at[axis] == 0, at[axis] == dims[axis] - 1)]
    walls = [wall and not deck.periodic[number // 2] for number, wall in enumerate(walls)]
    return Block(deck, *spans[0], *spans[1], (walls[0], walls[1], walls[2], walls[3]))
