"""Balanced co-clustering of tokens and experts assigns each expert of a layer a device and each token number a home.

It maximises Σ_v n_v Σ_e P(e|v)·[device of e = home of v] with equally many experts on every device, the homes' token mass within 5 % of
even, and a penalty on devices whose experts get more tokens than others. Cross-entropy search finds the start, and alternation and
exchanges of two experts improve it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.optimize import linear_sum_assignment

from armillary.kernels import kernel

Floats = npt.NDArray[np.floating[Any]]
Ints = npt.NDArray[np.int64]
#: Starts and exchanges are judged on this number of token numbers, the most frequent ones; the rest follows.
HEAD = 512
#: The number of starts that are improved.
STARTS = 2
#: The largest deviation of a device's token mass from the mean, and the steps to find the prices that keep it.
SLACK, PRICES = 0.05, 30
#: The relative gain of a round of improvement from which another round follows.
ENOUGH = 1e-3


def token_weights(counts: Any, k: int) -> Any:
    """Returns n_v·P(e|v), sparse [token numbers, experts], where P has half a count added to every expert.

    The half counts add the same to every expert, so they change no decision and are left out.
    """
    experts = counts.shape[1]
    seen = np.asarray(counts.sum(axis=1)).ravel() / k
    factor = np.divide(seen, k * seen + experts / 2, out=np.zeros(len(seen)), where=seen > 0)
    return counts.multiply(factor[:, None]).tocsr()


def cluster_experts(
    weights: Any, devices: int, rng: np.random.Generator, *, samples: int = 200, elite: float = 0.1, smoothing: float = 0.7,
    rounds: int = 50, penalty: float = 0.1,
) -> Ints:  # fmt: skip
    """Returns the device of each expert, with equally many per device to within one; weights is [token numbers, experts]."""
    real = weights.shape[1]
    experts = -(-real // devices) * devices
    total = np.asarray(weights.sum(axis=1)).ravel()
    head = np.sort(np.argsort(-total, kind="stable")[:HEAD])
    dense = weights[head]
    dense = (dense.toarray() if hasattr(dense, "toarray") else np.asarray(dense)).astype(np.float32)
    # If devices do not divide the experts, unused experts fill up.
    dense = np.pad(dense, ((0, 0), (0, experts - real)))
    load = np.pad(np.asarray(weights.sum(axis=0)).ravel(), (0, experts - real))
    judge = _Judge(dense, load * (dense.sum() / max(load.sum(), 1e-30)), total[head], devices, penalty)
    index = np.repeat(np.arange(devices), experts // devices)
    if devices == 1 or not dense.any():
        return index[:real]
    starts = [index, *_cross_entropy(judge, experts, devices, rng, samples, elite, smoothing, rounds)]
    polished = [_polish(judge, start) for start in starts]
    return max(polished, key=judge.value)[:real]


def homes(scores: Floats, mass: Floats, slack: float = SLACK) -> tuple[Ints, Floats]:
    """Returns the home of each token number and the mass at home on each device; homes are the best that keep within `slack` of even.

    scores is [token numbers, devices], mass is [token numbers]. If a device has too much or too little, what loses least moves. A token
    number that is too frequent for one device is split, and its home is where most of it is.
    """
    tokens, devices = scores.shape
    per_token = scores / np.maximum(mass, 1e-30)[:, None]
    part = np.zeros((tokens, devices))
    part[np.arange(tokens), np.argmax(scores, axis=1)] = mass
    even = float(mass.sum()) / devices
    low, high = (1 - slack) * even, (1 + slack) * even
    # What is over goes first, to wherever there is room; then what is under gets what others can spare. Either move fills or empties
    # a device to its limit, or moves all there is.
    for limit, first in ((high, True), (low, False)):
        for _ in range(devices * devices):
            held = part.sum(axis=0)
            off = held - limit if first else limit - held
            worst = int(np.argmax(off))
            if off[worst] <= 1e-9 * even:
                break
            other = np.where(held < high if first else held > low)[0]
            other = other[other != worst]
            if first:
                _move(part, per_token, [worst], other, held, low=high, high=high)
            else:
                _move(part, per_token, other.tolist(), np.array([worst]), held, low=low, high=low)
    return np.argmax(part, axis=1), part.sum(axis=0)


def _move(part: Floats, per_token: Floats, givers: list[int], takers: Ints, held: Floats, *, low: float, high: float) -> None:
    """Moves mass from givers down to `low` to takers up to `high`, starting with what loses least per token."""
    tokens, giver = np.nonzero(part[:, givers] > 0)
    giver = np.asarray(givers)[giver]
    best = np.argmax(per_token[tokens][:, takers], axis=1)
    taker = takers[best]
    loss = per_token[tokens, giver] - per_token[tokens, taker]
    for at in np.argsort(loss, kind="stable"):
        v, a, b = tokens[at], giver[at], taker[at]
        moved = min(part[v, a], held[a] - low, high - held[b])
        if moved <= 0:
            if (len(takers) == 1 and held[b] >= high) or (len(givers) == 1 and held[a] <= low):
                break
            continue
        part[v, a] -= moved
        part[v, b] += moved
        held[a] -= moved
        held[b] += moved


class _Judge:
    """Values an assignment of experts if token numbers go where most of their experts are while mass stays even.

    The value is Σ_v max_d (score[v, d] − price_d·mass_v) + Σ_d price_d·(most mass of a device) at the prices that minimise it. By duality
    this is the best that any even assignment can reach, with token numbers split where necessary.
    """

    def __init__(self, weights: npt.NDArray[np.float32], load: Floats, mass: Floats, devices: int, penalty: float) -> None:
        self.weights, self.load, self.mass, self.devices, self.penalty = weights, load, mass, devices, penalty
        self.columns = np.ascontiguousarray(weights.T)

    def scores(self, device: Ints) -> npt.NDArray[np.float32]:
        """Returns the weight of the experts on each device, [tokens, devices]."""
        return self.weights @ np.eye(self.devices, dtype=np.float32)[device]

    def prices(self, scores: npt.NDArray[np.float32]) -> tuple[Floats, float]:
        """Returns the prices [devices] and the value, by subgradients."""
        most = (1 + SLACK) * float(self.mass.sum()) / self.devices
        price, best, step = np.zeros(self.devices), (np.zeros(self.devices), np.inf), 0.3
        for _ in range(PRICES):
            net = scores - self.mass[:, None] * price
            home = np.argmax(net, axis=1)
            total = float(net[np.arange(len(net)), home].sum() + most * price.sum())
            if total < best[1]:
                best = price, total
            over = np.bincount(home, weights=self.mass, minlength=self.devices) / most - 1
            price = np.maximum(price + step * over, 0.0)
            step *= 0.9
        return best

    def value(self, device: Ints) -> float:
        """Returns the weight at home less the penalty."""
        loads = np.bincount(device, weights=self.load, minlength=self.devices).astype(float)
        return self.prices(self.scores(device))[1] - self.penalty * float(self.uneven(loads))

    def values(self, device: Ints) -> Floats:
        """Returns the values [samples] of device [samples, experts] without prices."""
        local = np.full((len(self.weights), len(device)), -np.inf, np.float32)
        loads = np.empty((len(device), self.devices))
        for d in range(self.devices):
            here = np.equal(device.T, d).astype(np.float32)
            np.maximum(local, self.weights @ here, out=local)
            loads[:, d] = self.load @ here
        return local.sum(axis=0, dtype=np.float64) - self.penalty * self.uneven(loads)

    def uneven(self, loads: Floats) -> Floats:
        """Returns Σ |load − mean| over the last axis."""
        return np.abs(loads - loads.mean(axis=-1, keepdims=True)).sum(axis=-1)


def _cross_entropy(
    judge: _Judge, experts: int, devices: int, rng: np.random.Generator, samples: int, elite: float, smoothing: float, rounds: int
) -> list[Ints]:
    """Returns the best assignments of a search that learns for each expert how likely each device is."""
    chance = np.full((experts, devices), 1.0 / devices)
    # Devices are interchangeable, so the first expert gets the first one.
    chance[0] = np.arange(devices) == 0
    keep = max(2, round(elite * samples))
    best: list[tuple[float, Ints]] = []
    quiet = 0
    for _ in range(rounds):
        drawn = _draw(chance, samples, rng)
        values = judge.values(drawn)
        order = np.argsort(-values, kind="stable")[:keep]
        before = best[0][0] if best else -np.inf
        best = sorted([*best, *((float(values[i]), drawn[i]) for i in order[:STARTS])], key=lambda one: -one[0])[:STARTS]
        quiet = 0 if best[0][0] > before else quiet + 1
        seen = (drawn[order][:, :, None] == np.arange(devices)).mean(axis=0)
        chance = smoothing * seen + (1 - smoothing) * chance
        if quiet >= 8 or chance.max(axis=1).min() > 0.98:
            break
    return [device for _, device in best]


def _draw(chance: Floats, samples: int, rng: np.random.Generator) -> Ints:
    """Draws devices [samples, experts] with equally many experts on each, in random order and where there is room."""
    experts, devices = chance.shape
    out = np.empty((samples, experts), np.int64)
    # The largest of log chance + Gumbel noise is a draw by chance, also among those that have room.
    keys = np.log(np.maximum(chance, 1e-12))[None] + rng.gumbel(size=(samples, experts, devices))
    order = np.argsort(rng.random((samples, experts)), axis=1)
    _fill(keys, order, np.empty(devices, np.int64), out)
    return out


@kernel
def _fill(keys: Any, order: Any, room: Any, out: Any) -> None:
    samples, experts, devices = keys.shape
    for s in range(samples):
        room[:] = experts // devices
        for e in order[s]:
            best = -1
            for d in range(devices):
                if room[d] > 0 and (best < 0 or keys[s, e, d] > keys[s, e, best]):
                    best = d
            out[s, e] = best
            room[best] -= 1


def _polish(judge: _Judge, device: Ints) -> Ints:
    """Alternates homes and experts, then exchanges experts between two devices, until nothing improves."""
    value = judge.value(device)
    while True:
        better = _exchange(judge, _alternate(judge, device))
        found = judge.value(better)
        if found <= value + ENOUGH * abs(value):
            return device if found <= value else better
        device, value = better, found


def _alternate(judge: _Judge, device: Ints) -> Ints:
    value = judge.value(device)
    slots = np.repeat(np.arange(judge.devices), len(device) // judge.devices)
    while True:
        scores = judge.scores(device)
        at_home = np.argmax(scores - judge.mass[:, None] * judge.prices(scores)[0], axis=1)
        benefit = np.stack([judge.weights[at_home == d].sum(axis=0) for d in range(judge.devices)], axis=1)
        rows, columns = linear_sum_assignment(-benefit[:, slots])
        new = np.empty_like(device)
        new[rows] = slots[columns]
        found = judge.value(new)
        if found <= value * (1 + 1e-9):
            return device
        device, value = new, found


def _exchange(judge: _Judge, device: Ints) -> Ints:
    """Exchanges two experts of two devices wherever that pays at the present prices, until it pays nowhere."""
    device = device.copy()
    scores = judge.scores(device)
    net = np.ascontiguousarray((scores - judge.mass[:, None] * judge.prices(scores)[0]).T.astype(np.float32))
    least = 1e-6 * max(1e-30, float(judge.load.sum()))
    loads = np.bincount(device, weights=judge.load, minlength=judge.devices)
    _swap(judge.columns, judge.load, device, net, loads, np.empty(len(judge.weights), np.float32), judge.penalty, least)
    return device


@kernel
def _swap(weights: Any, load: Any, device: Any, scores: Any, loads: Any, rest: Any, penalty: Any, least: Any) -> None:
    # weights [experts, tokens]; scores [devices, tokens] of the experts on each, less its price; rest [tokens]: the best of the others.
    experts, tokens = weights.shape
    devices = scores.shape[0]
    mean = 0.0
    for d in range(devices):
        mean += loads[d] / devices
    changed = True
    while changed:
        changed = False
        for a in range(devices):
            for b in range(a + 1, devices):
                for v in range(tokens):
                    rest[v] = -np.inf
                    for d in range(devices):
                        if d != a and d != b:
                            rest[v] = max(rest[v], scores[d, v])
                for i in range(experts):
                    if device[i] != a:
                        continue
                    for j in range(experts):
                        if device[j] != b:
                            continue
                        gain = 0.0
                        for v in range(tokens):
                            move = weights[i, v] - weights[j, v]
                            if move != 0.0:
                                top = max(max(scores[a, v] - move, scores[b, v] + move), rest[v])
                                gain += top - max(max(scores[a, v], scores[b, v]), rest[v])
                        shift = load[i] - load[j]
                        uneven = abs(loads[a] - shift - mean) + abs(loads[b] + shift - mean)
                        gain -= penalty * (uneven - abs(loads[a] - mean) - abs(loads[b] - mean))
                        if gain > least:
                            for v in range(tokens):
                                move = weights[i, v] - weights[j, v]
                                scores[a, v] -= move
                                scores[b, v] += move
                            loads[a] -= shift
                            loads[b] += shift
                            device[i], device[j] = b, a
                            changed = True
                            break
