"""Small networks trained with sums in a fixed order, so that the same seed gives the same weights on every processor."""

from __future__ import annotations

from typing import Any

import numpy as np

from armillary.learn.products import product

from ..counters.logarithm import exponential

Array = np.ndarray[Any, Any]
BATCH, RATE = 128, 3e-3


class Dense:
    """x W + b, with the gradients of the last pass and Adam's moments."""

    def __init__(self, inputs: int, outputs: int, rng: np.random.Generator) -> None:
        bound = (6 / inputs) ** 0.5
        self.weights = [rng.uniform(-bound, bound, (inputs, outputs)), np.zeros(outputs)]
        self._moments = [[np.zeros_like(one), np.zeros_like(one)] for one in self.weights]
        self._step = 0

    def forward(self, x: Array) -> Array:
        """[rows, outputs]."""
        self._x = x
        found: Array = product(x, self.weights[0]) + self.weights[1]
        return found

    def backward(self, slope: Array, rate: float) -> Array:
        """The slope with respect to the input; the weights take one step of Adam."""
        back: Array = product(slope, self.weights[0].T)
        ones = np.ones((1, len(slope)))
        gradients = product(self._x.T, slope), product(ones, slope)[0]
        self._step += 1
        for weight, gradient, moment in zip(self.weights, gradients, self._moments):
            moment[0] += 0.1 * (gradient - moment[0])
            moment[1] += 0.001 * (gradient * gradient - moment[1])
            first = moment[0] / (1 - 0.9**self._step)
            second = moment[1] / (1 - 0.999**self._step)
            weight -= rate * first / (np.sqrt(second) + 1e-8)
        return back


class Perceptron:
    """Dense layers with rectifiers between them."""

    def __init__(self, sizes: tuple[int, ...], rng: np.random.Generator) -> None:
        self.layers = [Dense(a, b, rng) for a, b in zip(sizes, sizes[1:])]  # noqa: RUF007
        self._active: list[Array] = []

    def forward(self, x: Array) -> Array:
        """[rows, outputs]."""
        self._active = []
        for layer in self.layers[:-1]:
            x = layer.forward(x)
            self._active.append(x > 0)
            x = np.where(x > 0, x, 0.0)
        return self.layers[-1].forward(x)

    def backward(self, slope: Array, rate: float) -> Array:
        """One step of all layers."""
        slope = self.layers[-1].backward(slope, rate)
        for layer, active in zip(self.layers[-2::-1], self._active[::-1]):
            slope = layer.backward(np.where(active, slope, 0.0), rate)
        return slope


class Convolutions:
    """Two convolutions of width 3 over time, the mean over what remains, and a head; [rows, time, features] to [rows, 1]."""

    def __init__(self, features: int, width: int, rng: np.random.Generator) -> None:
        self.first, self.second, self.head = Dense(3 * features, width, rng), Dense(3 * width, width, rng), Dense(width, 1, rng)
        self._active: list[Array] = []

    def forward(self, x: Array) -> Array:
        """[rows, 1]."""
        self._active = []
        for layer in (self.first, self.second):
            rows, time, features = x.shape
            three = np.concatenate([x[:, :-2], x[:, 1:-1], x[:, 2:]], 2).reshape(-1, 3 * features)
            z = layer.forward(three).reshape(rows, time - 2, -1)
            self._active.append(z > 0)
            x = np.where(z > 0, z, 0.0)
        self._time = x.shape[1]
        total = x[:, 0]
        for t in range(1, self._time):
            total = total + x[:, t]
        return self.head.forward(total / self._time)

    def backward(self, slope: Array, rate: float) -> None:
        """One step of all layers."""
        rows = len(slope)
        back = np.repeat(self.head.backward(slope, rate)[:, None, :] / self._time, self._time, 1)
        inner = self.second.backward(np.where(self._active[1], back, 0.0).reshape(rows * self._time, -1), rate)
        three = inner.reshape(rows, self._time, 3, -1)
        back = np.zeros((rows, self._time + 2, three.shape[3]))
        for shift in range(3):
            back[:, shift : shift + self._time] += three[:, :, shift]
        self.first.backward(np.where(self._active[0], back, 0.0).reshape(rows * (self._time + 2), -1), rate)


def sigmoid(z: Array) -> Array:
    """1 / (1 + e^-z)."""
    found: Array = 1 / (1 + exponential(-np.clip(z, -50, 50)))
    return found


def train(network: Any, x: Array, wanted: Array, weight: Array, epochs: int, rng: np.random.Generator, *, logistic: bool) -> None:
    """Trains by Adam in batches of 128, with a rate that falls linearly to zero: cross-entropy, or squared error."""
    steps = epochs * -(-len(x) // BATCH)
    done = 0
    for _ in range(epochs):
        order = rng.permutation(len(x))
        for at in range(0, len(x), BATCH):
            rows = order[at : at + BATCH]
            z = network.forward(x[rows])
            off = (sigmoid(z) if logistic else z) - wanted[rows]
            network.backward(off * weight[rows] / len(rows), RATE * (1 - done / steps))
            done += 1


def balanced(labels: Array) -> Array:
    """Weights by which both classes count the same."""
    bad = max(1, int(labels.sum()))
    good = max(1, len(labels) - bad)
    return np.where(labels == 1, len(labels) / (2 * bad), len(labels) / (2 * good))
