"""A light presolve, for where HiGHS's is not installed: rules that a scan of rows and columns finds, each with an exact way back.

Passes over the program are repeated until none changes it. A pass

- drops empty rows, and rows that the bounds of their columns satisfy;
- turns a row with one entry into a bound, whose price is the column's reduced cost when the bound holds the column;
- merges rows that are multiples of each other;
- fixes the columns of a row that only one point of their bounds satisfies, and the columns that no row stops from going to their better
  bound;
- takes columns whose bounds are equal out of the program;
- lets a column without cost in one row widen that row;
- solves a row for a column that stands in no other row and whose bounds the row implies, which fixes the row's price.

The rules are textbook ones (Andersen, Andersen: Presolving in linear programming. 1995), and the passes over arrays are ours.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.sparse import csr_array

from ..program.problem import Array, LinearProgram
from .reduction import Finding, Reduction

#: The largest number of passes, and the rounding, relative to the numbers compared, that does not count as a contradiction.
_PASSES, _ROUNDING = 30, 1e-9
#: The smallest entry for which a row is solved, relative to the row's largest, because what is divided by it grows.
_PIVOT = 0.01

#: A step back: completes the vectors x, y and z = cost − Aᵀy of the original program in place.
Undo = Callable[[Array, Array, Array], None]


class _NoPointError(Exception):
    """The program has no optimum; the argument is the finding."""


def reduced_lightly(lp: LinearProgram) -> Reduction:
    """Returns what the rules make of the program."""
    work = _Work(lp)
    try:
        work.run()
    except _NoPointError as why:
        finding: Finding = why.args[0]
        return Reduction(finding)
    if work.rows.all() and work.columns.all():
        return Reduction("nothing")
    return Reduction("smaller", work.program(), work.restore)


class _Work:
    """The program while it shrinks. `rows` and `columns` mark what is left; sides, bounds and costs are those of the smaller program."""

    def __init__(self, lp: LinearProgram) -> None:
        self._lp = lp
        m, n = lp.shape
        self._matrix = lp.matrix
        self._at = np.repeat(np.arange(m), np.diff(lp.matrix.indptr)), lp.matrix.indices.astype(np.int64)
        self.rows, self.columns = np.ones(m, bool), np.ones(n, bool)
        self._low, self._high = lp.row_lower.copy(), lp.row_upper.copy()
        self._lower, self._upper = lp.lower.copy(), lp.upper.copy()
        self._cost, self._constant = lp.cost.copy(), lp.constant
        #: The values of columns that are out, and the prices of rows that were solved for a column.
        self._x, self._y = np.zeros(n), np.zeros(m)
        self._undo: list[Undo] = []
        self._look()

    def run(self) -> None:
        """Applies the rules until nothing changes."""
        self._merge_multiples()
        for _ in range(_PASSES):
            before = int(self.rows.sum()) + int(self.columns.sum())
            for rule in (self._singleton_rows, self._rows_by_bounds, self._better_bounds, self._fixed, self._slacks, self._free_columns):
                rule()
                self._look()
            if int(self.rows.sum()) + int(self.columns.sum()) == before:
                break
        self._merge_multiples()

    def program(self) -> LinearProgram:
        """Returns what is left."""
        lp, rows, columns = self._lp, self.rows, self.columns
        matrix = csr_array(csr_array(self._matrix[rows])[:, columns])
        return LinearProgram(
            self._cost[columns], matrix, self._low[rows], self._high[rows], self._lower[columns], self._upper[columns],
            constant=self._constant, sense=lp.sense,
        )  # fmt: skip

    def restore(self, x: Array, y: Array) -> tuple[Array, Array]:
        """Returns the point of the original program that belongs to one of the smaller program."""
        whole_x, whole_y = self._x.copy(), self._y.copy()
        whole_x[self.columns], whole_y[self.rows] = x, y
        reduced_costs = self._lp.cost - self._lp.gradient(whole_y)
        for undo in reversed(self._undo):
            undo(whole_x, whole_y, reduced_costs)
        return whole_x, whole_y

    def _look(self) -> None:
        """Takes stock of the entries that are left: their rows `r`, columns `c` and values `v`, and how many rows and columns have."""
        kept = self.rows[self._at[0]] & self.columns[self._at[1]] & (self._matrix.data != 0)
        self._r, self._c, self._v = self._at[0][kept], self._at[1][kept], self._matrix.data[kept]
        self._in_row = np.bincount(self._r, minlength=len(self.rows))
        self._in_column = np.bincount(self._c, minlength=len(self.columns))

    def _entries(self, row: int) -> tuple[Array, Array]:
        """Returns the columns and values of a row that are left."""
        begin, end = np.searchsorted(self._r, (row, row + 1))
        return self._c[begin:end], self._v[begin:end]

    def _meet(self, low: Array, high: Array) -> tuple[Array, Array]:
        """Returns sides that do not cross: what crosses by rounding becomes equal, and more is a contradiction."""
        crossed = low > high
        with np.errstate(invalid="ignore"):
            if (crossed & (low - high > _ROUNDING * (1 + np.abs(low)))).any():
                raise _NoPointError("infeasible")
        return low, np.where(crossed, low, high)

    def _singleton_rows(self) -> None:
        """Turns rows with one entry into bounds."""
        one = self._in_row[self._r] == 1
        r, c, v = self._r[one], self._c[one], self._v[one]
        if not len(r):
            return
        a, b = self._low[r] / v, self._high[r] / v
        low, high = np.where(v > 0, a, b), np.where(v > 0, b, a)
        lower, upper = self._lower.copy(), self._upper.copy()
        np.maximum.at(lower, c, low)
        np.minimum.at(upper, c, high)
        # One row for each bound that became tighter.
        sets_low, sets_high = (low == lower[c]) & (low > self._lower[c]), (high == upper[c]) & (high < self._upper[c])
        lows, highs = (dict(zip(c[sets].tolist(), zip(r[sets].tolist(), v[sets].tolist()))) for sets in (sets_low, sets_high))
        self._lower, self._upper = self._meet(lower, upper)
        self.rows[r] = False

        def undo(x: Array, y: Array, z: Array) -> None:
            for column in lows.keys() | highs.keys():
                row, value = (lows if z[column] > 0 else highs).get(column, (-1, 0.0))
                if row >= 0:
                    self._pay(y, z, row, z[column] / value)

        self._undo.append(undo)

    def _pay(self, y: Array, z: Array, row: int, price: float) -> None:
        """Gives a row a price, and takes the change out of the reduced costs of its columns, those that are out included."""
        begin, end = self._matrix.indptr[row], self._matrix.indptr[row + 1]
        z[self._matrix.indices[begin:end]] -= (price - y[row]) * self._matrix.data[begin:end]
        y[row] = price

    def _activities(self) -> tuple[Array, Array]:
        """Returns the least and the greatest activity of each row within the bounds."""
        up = self._v > 0
        least = self._v * np.where(up, self._lower[self._c], self._upper[self._c])
        most = self._v * np.where(up, self._upper[self._c], self._lower[self._c])
        count = len(self.rows)
        return np.bincount(self._r, least, minlength=count), np.bincount(self._r, most, minlength=count)

    def _rows_by_bounds(self) -> None:
        """Drops sides that the bounds satisfy, finds contradictions, and fixes the columns of rows that leave them one point."""
        least, most = self._activities()
        room = _ROUNDING * (1 + np.minimum(np.abs(self._low), np.abs(self._high)))
        if (self.rows & ((least > self._high + room) | (most < self._low - room))).any():
            raise _NoPointError("infeasible")
        self._low = np.where(least >= self._low, -np.inf, self._low)
        self._high = np.where(most <= self._high, np.inf, self._high)
        self.rows &= (self._in_row > 0) & (np.isfinite(self._low) | np.isfinite(self._high))
        forced = self.rows & ((least >= self._high) | (most <= self._low))
        taken = np.zeros(len(self.columns), bool)
        for row in np.flatnonzero(forced).tolist():
            c, v = self._entries(row)
            if not taken[c].any():
                self._force(row, c, v, bool(least[row] >= self._high[row]))
                taken[c] = True

    def _force(self, row: int, c: Array, v: Array, at_least: bool) -> None:
        """Fixes the columns of a row whose least (greatest) activity is its upper (lower) side."""
        fixed = np.where((v > 0) == at_least, self._lower[c], self._upper[c])
        self._lower[c] = self._upper[c] = fixed
        self.rows[row] = False

        def undo(x: Array, y: Array, z: Array) -> None:
            # The price must leave every column a reduced cost of the sign that its bound carries.
            prices = z[c] / v
            price = min(float(prices.min()), 0.0) if at_least else max(float(prices.max()), 0.0)
            if price:
                self._pay(y, z, row, price)

        self._undo.append(undo)

    def _better_bounds(self) -> None:
        """Fixes columns at the bound that costs less where no row stops them from going there."""
        up, n = self._v > 0, len(self.columns)
        bounded_low, bounded_high = np.isfinite(self._low[self._r]), np.isfinite(self._high[self._r])
        stops_down = np.bincount(self._c, np.where(up, bounded_low, bounded_high), minlength=n)
        stops_up = np.bincount(self._c, np.where(up, bounded_high, bounded_low), minlength=n)
        down, rise = self.columns & (stops_down == 0), self.columns & (stops_up == 0)
        if ((down & (self._cost > 0) & np.isneginf(self._lower)) | (rise & (self._cost < 0) & np.isposinf(self._upper))).any():
            raise _NoPointError("no optimum")
        down &= (self._cost >= 0) & np.isfinite(self._lower)
        rise &= (self._cost <= 0) & np.isfinite(self._upper) & ~down
        idle = self.columns & (self._in_column == 0) & (self._cost == 0) & ~down & ~rise
        self._lower[idle] = self._upper[idle] = 0.0
        self._upper[down] = self._lower[down]
        self._lower[rise] = self._upper[rise]

    def _fixed(self) -> None:
        """Takes columns whose bounds are equal out of the program."""
        out = self.columns & (self._lower == self._upper)
        self._x[out] = self._lower[out]
        self._constant += float((self._cost[out] * self._x[out]).sum())
        moved = out[self._c]
        shift = np.bincount(self._r[moved], self._v[moved] * self._x[self._c[moved]], minlength=len(self.rows))
        self._low, self._high = self._low - shift, self._high - shift
        self.columns &= ~out

    def _alone(self) -> Array:
        """Returns the places of entries that are the only one of their column and not the only one of their row."""
        return np.flatnonzero((self._in_column[self._c] == 1) & (self._in_row[self._r] > 1))

    def _slacks(self) -> None:
        """Lets columns without cost in one row widen its sides."""
        place = self._alone()
        place = place[self._cost[self._c[place]] == 0]
        rows, first = np.unique(self._r[place], return_index=True)
        place = place[first]
        if not len(place):
            return
        columns, values = self._c[place], self._v[place]
        low, high = self._low[rows], self._high[rows]
        lower, upper = self._lower[columns], self._upper[columns]
        self._low[rows] = low - np.where(values > 0, values * upper, values * lower)
        self._high[rows] = high - np.where(values > 0, values * lower, values * upper)
        self.columns[columns] = False
        rest = self._rest(rows)

        def undo(x: Array, y: Array, z: Array) -> None:
            others = rest @ x
            price = y[rows]
            near = np.clip(others + values * np.clip(0.0, lower, upper), low, high)
            wanted = np.where((price > 0) & np.isfinite(low), low, np.where((price < 0) & np.isfinite(high), high, near))
            x[columns] = np.clip((wanted - others) / values, lower, upper)

        self._undo.append(undo)

    def _rest(self, rows: Array) -> csr_array:
        """Returns some rows over the columns that are left after the present rule."""
        number = np.full(len(self.rows), -1)
        number[rows] = np.arange(len(rows))
        kept = (number[self._r] >= 0) & self.columns[self._c]
        return csr_array((self._v[kept], (number[self._r[kept]], self._c[kept])), shape=(len(rows), len(self.columns)))

    def _free_columns(self) -> None:
        """Solves rows for a column that stands in no other row and that the row keeps within its bounds."""
        place = self._alone()
        if not len(place):
            return
        place = place[self._implied(place)]
        rows, first = np.unique(self._r[place], return_index=True)
        place = place[first]
        columns, values = self._c[place], self._v[place]
        price = self._cost[columns] / values
        side = np.where(price > 0, self._low[rows], self._high[rows])
        if (~np.isfinite(side) & (price != 0)).any():
            raise _NoPointError("no optimum")
        low, high = self._low[rows], self._high[rows]
        self._constant += float((price * np.where(price != 0, side, 0.0)).sum())
        self._y[rows] = price
        self.columns[columns], self.rows[rows] = False, False
        change = np.bincount(self._c, self._y[self._r] * self._v * np.isin(self._r, rows), minlength=len(self.columns))
        cost = self._cost - change
        # What rounding leaves of a cost must not send a column to infinity.
        self._cost = np.where(np.abs(cost) <= 1e-13 * (np.abs(self._cost) + np.abs(change)), 0.0, cost)
        rest = self._rest(rows)

        def undo(x: Array, y: Array, z: Array) -> None:
            others = rest @ x
            wanted = np.where(price > 0, low, np.where(price < 0, high, np.clip(others, low, high)))
            x[columns] = (wanted - others) / values

        self._undo.append(undo)

    def _implied(self, place: Array) -> Array:
        """Says which columns a row keeps within their bounds, whatever the other columns of the row are within theirs."""
        up = self._v > 0
        least = self._v * np.where(up, self._lower[self._c], self._upper[self._c])
        most = self._v * np.where(up, self._upper[self._c], self._lower[self._c])
        count, r, c, v = len(self.rows), self._r[place], self._c[place], self._v[place]
        # Infinite terms are counted apart, because the column's own must be taken out of the sum.
        ends = []
        for terms in (least, most):
            finite = np.where(np.isfinite(terms), terms, 0.0)
            total = np.bincount(self._r, finite, minlength=count)[r] - finite[place]
            infinite = np.bincount(self._r, ~np.isfinite(terms), minlength=count)[r] - ~np.isfinite(terms[place])
            ends.append((total, infinite > 0))
        (low_sum, low_open), (high_sum, high_open) = ends
        first = np.where(high_open, -np.inf, self._low[r] - high_sum) / v
        second = np.where(low_open, np.inf, self._high[r] - low_sum) / v
        lower, upper = np.where(v > 0, first, second), np.where(v > 0, second, first)
        largest = np.zeros(count)
        np.maximum.at(largest, self._r, np.abs(self._v))
        return (np.abs(v) >= _PIVOT * largest[r]) & (lower >= self._lower[c]) & (upper <= self._upper[c])

    def _merge_multiples(self) -> None:
        """Merges rows that are multiples of each other into the first of them."""
        row, start = np.unique(self._r, return_index=True)
        if len(row) < 2:
            return
        lead = np.zeros(len(self.rows))
        lead[row] = self._v[start]
        shape = self._v / lead[self._r]
        # Equal rows have equal sums of their entries with random weights; what is equal by chance is told apart below.
        weights = np.random.default_rng(0).uniform(1, 2, len(self.columns))
        mark = np.bincount(self._r, shape * weights[self._c], minlength=len(self.rows))[row]
        order = np.lexsort((row, mark))
        group = np.flatnonzero(np.diff(mark[order], prepend=np.nan) != 0)
        for begin, end in zip(group.tolist(), np.append(group[1:], len(order)).tolist()):
            if end - begin > 1:
                self._merge(row[order[begin:end]].tolist(), lead)
        self._look()

    def _merge(self, rows: list[int], lead: Array) -> None:
        kept = rows[0]
        c, v = self._entries(kept)
        givers = {True: (kept, 1.0), False: (kept, 1.0)}
        for row in rows[1:]:
            columns, values = self._entries(row)
            scale = float(lead[row] / lead[kept])
            if not np.array_equal(c, columns) or not np.array_equal(values, scale * v):
                continue
            a, b = self._low[row] / scale, self._high[row] / scale
            low, high = (a, b) if scale > 0 else (b, a)
            if low > self._low[kept]:
                self._low[kept], givers[True] = low, (row, scale)
            if high < self._high[kept]:
                self._high[kept], givers[False] = high, (row, scale)
            self.rows[row] = False
        if self.rows[rows].all():
            return
        bounds = self._meet(self._low[kept : kept + 1], self._high[kept : kept + 1])
        self._low[kept], self._high[kept] = float(bounds[0][0]), float(bounds[1][0])

        def undo(x: Array, y: Array, z: Array) -> None:
            row, scale = givers[bool(y[kept] > 0)]
            if row != kept:
                price = float(y[kept])
                self._pay(y, z, kept, 0.0)
                self._pay(y, z, row, price / scale)

        self._undo.append(undo)
