"""A matrix in crossbar arrays, which is cut into tiles, written once, and multiplied in place.

A weight is the difference of two cells, g⁺ − g⁻ = w·(g_max − g_min), with the unused one at g_min. Tiles without any weight are not made. A
read drives the rows of all tiles with the voltages of the inputs and converts the currents of the columns; the results of tiles for the
same outputs are added digitally. With `correct`, further arrays hold the scaled-up errors of the first ones.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from armillary.errors import InputError
from armillary.kernels import kernel

from .cells import Array, Device, program
from .cells import device as find_device
from .prices import Bill, Prices

#: The number of ranges that are compared for a correction array.
_RANGES = 64


def _products(driven: Array, held: Array) -> Array:
    """The currents of all columns: tiles × rows times tiles × rows × columns, summed over the rows.

    A BLAS would add in an order that depends on the processor, and simulated values must have the same bits everywhere.
    """
    out = np.zeros((held.shape[0], held.shape[2]))
    _add_products(driven, held, out)
    return out


@kernel
def _add_products(driven: Array, held: Array, out: Array) -> None:
    for tile in range(held.shape[0]):
        for row in range(held.shape[1]):
            voltage = driven[tile, row]
            if voltage != 0.0:
                for column in range(held.shape[2]):
                    out[tile, column] += voltage * held[tile, row, column]


@dataclass(frozen=True)
class Converters:
    """The bits of the converters in and out, where None means exact. The full scale of the ADC is this quantile of the currents in
    calibration.
    """

    dac_bits: int | None = 8
    adc_bits: int | None = 8
    quantile: float = 0.999

    def __post_init__(self) -> None:
        for what, bits in (("dac_bits", self.dac_bits), ("adc_bits", self.adc_bits)):
            if bits is not None and not 1 <= bits <= 32:
                raise InputError(f"{what}: found {bits}; expected 1 to 32, or None")
        if not 0 < self.quantile <= 1:
            raise InputError(f"quantile: found {self.quantile}; expected more than 0 and at most 1")


@dataclass
class _Layer:
    """One set of tiles: the weights that the cells really hold, the sums of their conductances, and the scale of their contribution."""

    #: tiles × rows × columns, in units of g_max − g_min.
    held: Array
    #: tiles × columns: Σ over rows of the squares of both conductances, in those units, for the noise of reads.
    total: Array
    #: tiles × columns: Σ of both conductances in siemens, for energy.
    siemens: Array
    scale: float
    full: float = 1.0
    _parts: dict[tuple[int, ...], _Layer] = field(default_factory=dict)

    def of(self, live: list[int]) -> _Layer:
        """A subset of the tiles, which is cached because the same halves of a matrix are read repeatedly."""
        key = tuple(live)
        if key not in self._parts:
            if len(self._parts) > 3:
                self._parts.clear()
            self._parts[key] = _Layer(self.held[live], self.total[live], self.siemens[live], self.scale, self.full)
        return self._parts[key]


class Crossbar:
    """y = matrix·x by analogue products.

    `matrix` is m×n, and its largest entry sets the scale. It is programmed on creation, and `multiply` reads it. `bill` holds the cost of
    both so far, and `tiles` the number of arrays that hold weights. `exact_noise` draws noise for every cell of a read instead of every
    column, which is slow and has the same distribution. `comm` are ranks over which the tiles are distributed; all multiply together and
    get the same answer.
    """

    def __init__(
        self,
        matrix: Array,
        device: str | Device = "EpiRAM",
        tile: int = 256,
        converters: Converters | None = None,
        correct: int = 0,
        verify: int = 10,
        seed: int = 0,
        prices: Prices | None = None,
        exact_noise: bool = False,
        comm: Any = None,
    ) -> None:
        matrix = np.asarray(matrix, np.float64)
        if matrix.ndim != 2 or not np.isfinite(matrix).all():
            raise InputError("matrix: expected two dimensions and finite numbers")
        if tile < 1:
            raise InputError(f"tile: found {tile}; expected at least 1")
        if correct not in (0, 1, 2):
            raise InputError(f"correct: found {correct}; expected 0, 1 or 2")
        self.shape: tuple[int, int] = matrix.shape
        self.tile, self.correct, self.verify, self.exact_noise = tile, correct, verify, exact_noise
        self.converters = converters or Converters()
        self.bill = Bill(prices=prices or Prices())
        self._kind = find_device(device)
        self._seed = seed
        self._comm = comm
        self._rng = self._stream(0, 0 if comm is None else comm.rank)
        self._unit = float(np.abs(matrix).max(initial=0.0)) or 1.0
        #: The (row, column) of each tile of this rank, and the total number of tiles.
        self._own: list[tuple[int, int]] = []
        self.tiles = 0
        self._layers = self._write(self._lay_out(matrix / self._unit))

    def _stream(self, *key: int) -> np.random.Generator:
        return np.random.Generator(np.random.PCG64DXSM(np.random.SeedSequence(self._seed, spawn_key=key)))

    def _largest(self, value: float) -> float:
        """The largest number over all ranks."""
        if self._comm is None:
            return value
        from armillary.comm import MAX

        return float(self._comm.allreduce(np.array([value]), op=MAX)[0])

    # Writing

    def _lay_out(self, weights: Array) -> Array:
        """The tiles with weights, distributed over the ranks block by block: tiles × inputs × outputs."""
        t = self.tile
        m, n = weights.shape
        across, down = -(-n // t), -(-m // t)
        padded = np.zeros((down * t, across * t))
        padded[:m, :n] = weights
        # Inputs drive the rows of a tile and outputs are read from its columns, so a tile holds the transposed matrix.
        tiles = padded.reshape(down, t, across, t).transpose(0, 2, 3, 1)
        used = [(i, j) for i in range(down) for j in range(across) if tiles[i, j].any()]
        ranks, rank = (1, 0) if self._comm is None else (self._comm.size, self._comm.rank)
        block = -(-len(used) // ranks)
        self.tiles = len(used)
        self._own = used[rank * block : (rank + 1) * block]
        self._padded = (down * t, across * t)
        return np.array([tiles[i, j] for i, j in self._own]).reshape(-1, t, t)

    def _write(self, missing: Array) -> list[_Layer]:
        layers: list[_Layer] = []
        scale = 1.0
        for number in range(self.correct + 1):
            if number:
                size = self._correction_range(missing, last=number == self.correct)
                if size == 0.0:
                    break
                missing, scale = missing / size, scale * size
            layer = self._layer(np.clip(missing, -1.0, 1.0), scale, number)
            layers.append(layer)
            missing = missing - layer.held
        self._calibrate(layers)
        return layers

    def _correction_range(self, missing: Array, last: bool) -> float:
        """The error that a further array holds at full scale, in units of the full scale of the array before it.

        How close a cell comes to its target is a share of the full scale, so a small range is better; but an error beyond the range is
        corrected only up to it. A range s leaves an expected square error of s²·Σe² + Σ max(|e| − s, 0)², because the errors e show what
        writing leaves of a full scale of one, and the last array takes the s for which that is least. The largest error, which the worst
        of tens of thousands of cells decides, is the range of an array that another one corrects.
        """
        sizes = np.abs(missing[missing != 0])
        largest = self._largest(float(sizes.max(initial=0.0)))
        if largest == 0.0 or not last:
            return largest
        ranges = largest * np.arange(1, _RANGES + 1) / _RANGES
        beyond = [float((np.maximum(sizes - s, 0.0) ** 2).sum()) for s in ranges]
        square, *sums = self._total(np.array([float((sizes**2).sum()), *beyond]))
        return float(ranges[int(np.argmin(square * ranges**2 + np.array(sums)))])

    def _total(self, values: Array) -> Array:
        """The sums of numbers over all ranks."""
        return values if self._comm is None else np.asarray(self._comm.allreduce(values, order="rank"))

    def _layer(self, wanted: Array, scale: float, number: int) -> _Layer:
        kind = self._kind
        span = kind.g_max - kind.g_min
        held, total, siemens = (np.empty(shape) for shape in (wanted.shape, wanted.shape[::2], wanted.shape[::2]))
        for index, weights in enumerate(wanted):
            # Every tile draws from its own stream, so the distribution of tiles over ranks changes nothing.
            rng = self._stream(1, number, *self._own[index])
            plus = program(kind, kind.g_min + span * np.maximum(weights, 0), rng, self.verify)
            minus = program(kind, kind.g_min + span * np.maximum(-weights, 0), rng, self.verify)
            held[index] = (plus.conductance - minus.conductance) / span
            total[index] = ((plus.conductance / span) ** 2 + (minus.conductance / span) ** 2).sum(axis=0)
            siemens[index] = (plus.conductance + minus.conductance).sum(axis=0)
            self._charge_write(kind, plus, minus)
        return _Layer(held, total, siemens, scale)

    def _charge_write(self, kind: Device, *written: Any) -> None:
        bill = self.bill
        for cells in written:
            bill.pulses += int(cells.up.sum() + cells.down.sum())
            bill.cells += int(((cells.up + cells.down) > 0).sum())
            mean = (cells.conductance + kind.g_min) / 2
            bill.write_joules += float(((cells.up * kind.write_up**2 + cells.down * kind.write_down**2) * mean).sum()) * kind.pulse
            # Rows are written one after another, the cells of a row together, and pulses up before pulses down.
            bill.write_seconds += float(cells.up.max(axis=1).sum() + cells.down.max(axis=1).sum()) * kind.pulse

    def _calibrate(self, layers: list[_Layer]) -> None:
        """Sets the full scale of each layer to the quantile of the currents of random inputs at full voltage."""
        # The voltages are full and of either sign, because the largest current of a sparse column must not be clipped.
        inputs = self._stream(2).choice([-1.0, 1.0], (16, self.tile))
        for layer in layers:
            currents = [np.abs(_products(np.broadcast_to(given, layer.held.shape[:2]).copy(), layer.held)) for given in inputs]
            found = float(np.quantile(np.array(currents), self.converters.quantile)) if layer.held.size else 0.0
            layer.full = self._largest(found) or 1.0

    # Reading

    def multiply(self, x: Array, replicates: int = 1) -> Array:
        """matrix·x as the arrays compute it, as the mean of `replicates` reads; every call draws new noise."""
        x = np.asarray(x, np.float64)
        if x.shape != (self.shape[1],):
            raise InputError(f"x: found the shape {x.shape}; expected ({self.shape[1]},)")
        if replicates < 1:
            raise InputError(f"replicates: found {replicates}; expected at least 1")
        largest = float(np.abs(x).max(initial=0.0))
        if largest == 0.0:
            return np.zeros(self.shape[0])
        inputs = np.zeros(self._padded[1])
        inputs[: len(x)] = self._to_voltage(x / largest)
        pieces = inputs.reshape(-1, self.tile)
        out = np.zeros(self._padded[0]).reshape(-1, self.tile)
        for _ in range(replicates):
            self._read(pieces, out)
        answer = out.reshape(-1)[: self.shape[0]]
        if self._comm is not None:
            answer = self._comm.allreduce(np.ascontiguousarray(answer), order="rank")
        return answer * (largest * self._unit / replicates)

    def _to_voltage(self, share: Array) -> Array:
        bits = self.converters.dac_bits
        if bits is None:
            return share
        steps = 2 ** (bits - 1) - 1 or 1
        return np.rint(share * steps) / steps

    def _read(self, pieces: Array, out: Array) -> None:
        own = self._own
        if not own:
            return
        # Arrays that nothing drives are not read.
        live = [index for index, (_, j) in enumerate(own) if pieces[j].any()]
        driven = np.array([pieces[own[index][1]] for index in live]).reshape(-1, self.tile)
        for layer in self._layers:
            part = layer if len(live) == len(own) else layer.of(live)
            current = _products(driven, part.held)
            current += self._noise(driven, part)
            current = self._converted(current, layer.full)
            for index, output in zip(live, current):
                out[own[index][0]] += layer.scale * output
            self._charge_read(driven, part)

    def _noise(self, driven: Array, layer: _Layer) -> Array | float:
        kind = self._kind
        if kind.read_noise == 0.0:
            return 0.0
        if self.exact_noise:
            # Both cells of a pair get the same share of the total, because their conductances are not stored separately.
            cells = np.sqrt(layer.total[:, None, :] / self.tile) * self._rng.normal(size=layer.held.shape)
            return kind.read_noise * _products(driven, cells)
        power = (driven**2).mean(axis=1, keepdims=True)
        return kind.read_noise * np.sqrt(power * layer.total) * self._rng.normal(size=layer.total.shape)

    def _converted(self, current: Array, full: float) -> Array:
        bits = self.converters.adc_bits
        if bits is None:
            return current
        steps = 2 ** (bits - 1) - 1 or 1
        return np.clip(np.rint(current / full * steps), -steps, steps) / steps * full

    def _charge_read(self, driven: Array, layer: _Layer) -> None:
        kind = self._kind
        bill = self.bill
        bits_in, bits_out = self.converters.dac_bits or 8, self.converters.adc_bits or 8
        power = (driven**2).mean(axis=1)
        bill.read_joules += float((power[:, None] * layer.siemens).sum()) * kind.read_voltage**2 * kind.read_time * bits_in
        conversions = driven.shape[0] * self.tile * bits_in
        bill.conversions += conversions
        bill.read_joules += conversions * self.bill.prices.conversion(bits_out) * (1 + self.bill.prices.dac_share)
        # All tiles are read at once, and the bits of the inputs come one after another.
        bill.read_seconds += bits_in * (kind.read_time + -(-self.tile // self.bill.prices.adcs_per_tile) * self.bill.prices.adc_seconds)
        bill.reads += 1

    def as_linear_operator(self) -> Any:
        """The crossbar as SciPy's LinearOperator; each product is a read."""
        from scipy.sparse.linalg import LinearOperator

        return LinearOperator(shape=self.shape, matvec=lambda x: self.multiply(np.ravel(x)), dtype=np.float64)
