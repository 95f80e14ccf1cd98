"""Linear programs of the kinds that people bring, each from a seed; sizes by one number."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.sparse import block_array, coo_array, csr_array, eye_array, kron, random_array

from armillary.errors import unknown

from .program.problem import LinearProgram

_INF = np.inf
#: SciPy's types ask for more of these than SciPy does.
_stack: Any = block_array
_random: Any = random_array


def planted(n: int, rng: np.random.Generator, density: float = 0.1) -> tuple[LinearProgram, np.ndarray, np.ndarray]:
    """Returns a feasible, bounded program of n columns and ⅔·n rows with its optimum x*, y*; half of the variables are strictly inside."""
    m = max(1, 2 * n // 3)
    matrix = csr_array(_random((m, n), density=max(density, 2 / n), rng=rng, data_sampler=lambda size: rng.normal(size=size)))
    matrix = csr_array(matrix + csr_array(coo_array((np.ones(m), (np.arange(m), rng.permutation(n)[:m])), shape=(m, n))))
    x = np.where(rng.uniform(size=n) < 0.5, rng.uniform(0.5, 2, n), 0.0)
    y = np.where(rng.uniform(size=m) < 0.5, rng.normal(size=m), 0.0)
    activity = matrix @ x
    slack = rng.uniform(0.5, 2, m)
    # Rows with a price hold with equality on the side of its sign, the others have room on both.
    low = np.where(y > 0, activity, np.where(y < 0, -_INF, activity - slack))
    high = np.where(y < 0, activity, np.where(y > 0, _INF, activity + slack))
    reduced = np.where(x == 0, rng.uniform(0.1, 1, n), 0.0)
    lp = LinearProgram(matrix.T @ y + reduced, matrix, low, high, np.zeros(n), np.full(n, _INF), name="planted")
    return lp, x, y


def transportation(n: int, rng: np.random.Generator) -> LinearProgram:
    """Returns transportation from n sources to n sinks at least cost."""
    supply, demand = rng.uniform(1, 2, n), rng.uniform(0.2, 1, n)
    cost = rng.uniform(1, 10, n * n)
    rows = _stack([[kron(eye_array(n), np.ones((1, n)))], [kron(np.ones((1, n)), eye_array(n))]], format="csr")
    low = np.concatenate([np.full(n, -_INF), demand])
    high = np.concatenate([supply, np.full(n, _INF)])
    return LinearProgram(cost, csr_array(rows), low, high, np.zeros(n * n), np.full(n * n, _INF), name="transportation")


def multicommodity(n: int, rng: np.random.Generator, goods: int = 4) -> LinearProgram:
    """Returns several goods on the links of an n×n grid with shared capacities; what cannot be carried is bought dearly."""
    places = np.arange(n * n).reshape(n, n)
    right = np.stack([places[:, :-1].ravel(), places[:, 1:].ravel()], axis=1)
    down = np.stack([places[:-1].ravel(), places[1:].ravel()], axis=1)
    links = np.concatenate([right, right[:, ::-1], down, down[:, ::-1]])
    e = len(links)
    flow = coo_array(
        (np.concatenate([np.ones(e), -np.ones(e)]), (np.concatenate([links[:, 1], links[:, 0]]), np.tile(np.arange(e), 2))),
        shape=(n * n, e),
    )
    demand = np.zeros((goods, n * n))
    bought = []
    for g in range(goods):
        source, sink = rng.choice(n * n, 2, replace=False)
        demand[g, sink], demand[g, source] = 1.0, -1.0
        bought.append(coo_array(([1.0, -1.0], ([sink, source], [0, 0])), shape=(n * n, 1)))
    each = [csr_array(_stack([[flow, buy]])) for buy in bought]
    balance = _stack([[each[g] if g == h else None for h in range(goods)] for g in range(goods)])
    shared = _stack([[eye_array(e), csr_array((e, 1))] * goods])
    rows = csr_array(_stack([[balance], [shared]]))
    capacity = rng.uniform(0.3, 1.0, e)
    low = np.concatenate([demand.ravel(), np.full(e, -_INF)])
    high = np.concatenate([demand.ravel(), capacity])
    cost = np.concatenate([np.append(rng.uniform(1, 3, e), 100.0) for _ in range(goods)])
    return LinearProgram(cost, rows, low, high, np.zeros(len(cost)), np.full(len(cost), _INF), name="multicommodity")


def pagerank(n: int, rng: np.random.Generator) -> LinearProgram:
    """Returns the ranks of a random directed graph as the optimum of a program: maximise Σx over x ≤ 0.85·Sx + 0.15/n."""
    source = np.repeat(np.arange(n), 4)
    target = rng.integers(0, n, len(source))
    links = csr_array(coo_array((np.full(len(source), 0.25), (target, source)), shape=(n, n)))
    rows = csr_array(eye_array(n) - 0.85 * links)
    return LinearProgram(-np.ones(n), rows, np.full(n, -_INF), np.full(n, 0.15 / n), np.zeros(n), np.full(n, _INF), name="pagerank")


def regression(n: int, rng: np.random.Generator) -> LinearProgram:
    """Returns regression by least absolute deviations with n points and n/8 coefficients."""
    features = max(1, n // 8)
    data = rng.normal(size=(n, features))
    # A sparse product, because a BLAS gives other last bits on other processors.
    target = csr_array(data) @ rng.normal(size=features) + rng.laplace(size=n)
    rows = csr_array(_stack([[csr_array(data), eye_array(n), -eye_array(n)]]))
    cost = np.concatenate([np.zeros(features), np.ones(2 * n)])
    lower = np.concatenate([np.full(features, -_INF), np.zeros(2 * n)])
    return LinearProgram(cost, rows, target, target, lower, np.full(len(cost), _INF), name="regression")


def commitment(n: int, rng: np.random.Generator, hours: int = 24) -> LinearProgram:
    """Returns relaxed unit commitment: n units for a day, with ramps and a cost of being on; unserved load costs most."""
    size = n * hours
    most, least = rng.uniform(20, 100, n), rng.uniform(0.2, 0.5, n)
    load = 0.7 * most.sum() * (0.6 + 0.4 * np.sin(np.arange(hours) / hours * 2 * np.pi) ** 2)
    power, on = eye_array(size), eye_array(size)
    later = csr_array(
        kron(eye_array(n), coo_array((np.ones(hours - 1), (np.arange(hours - 1), np.arange(1, hours))), shape=(hours - 1, hours)))
    )
    before = csr_array(
        kron(eye_array(n), coo_array((np.ones(hours - 1), (np.arange(hours - 1), np.arange(hours - 1))), shape=(hours - 1, hours)))
    )
    ceiling = csr_array(np.repeat(most, hours)[:, None] * on)
    floor = csr_array(np.repeat(most * least, hours)[:, None] * on)
    serve = csr_array(kron(np.ones((1, n)), eye_array(hours)))
    rows = csr_array(
        _stack(
            [
                [serve, None, eye_array(hours)],
                [power, -ceiling, None],
                [power, -floor, None],
                [later - before, None, None],
            ]
        )
    )
    ramp = np.repeat(0.3 * most, hours - 1)
    low = np.concatenate([load, np.full(size, -_INF), np.zeros(size), -ramp])
    high = np.concatenate([np.full(hours, _INF), np.zeros(size), np.full(size, _INF), ramp])
    cost = np.concatenate([np.repeat(rng.uniform(10, 40, n), hours), np.repeat(rng.uniform(50, 200, n), hours), np.full(hours, 1000.0)])
    upper = np.concatenate([np.full(size, _INF), np.ones(size), np.full(hours, _INF)])
    return LinearProgram(cost, rows, low, high, np.zeros(len(cost)), upper, name="commitment")


def staircase(n: int, rng: np.random.Generator, stages: int = 10) -> LinearProgram:
    """Returns a plan over several stages: stocks link each to the next."""
    blocks: list[list[object]] = [[None] * stages for _ in range(stages)]
    rows = max(1, n // 2)
    for stage in range(stages):
        blocks[stage][stage] = csr_array(abs(_random((rows, n), density=0.2, rng=rng)) + csr_array(eye_array(rows, n)))
        if stage:
            blocks[stage][stage - 1] = -0.5 * csr_array(eye_array(rows, n, k=1))
    matrix = csr_array(_stack(blocks))
    total = stages * n
    return LinearProgram(
        rng.uniform(1, 2, total), matrix, rng.uniform(0.5, 1.5, matrix.shape[0]), np.full(matrix.shape[0], _INF), np.zeros(total),
        np.full(total, 10.0), name="staircase",
    )  # fmt: skip


def covering(n: int, rng: np.random.Generator) -> LinearProgram:
    """Returns relaxed set covering with n/2 things and n sets, where each thing is in a fifth of the sets."""
    m = max(2, n // 2)
    member = rng.uniform(size=(m, n)) < 0.2
    member[np.arange(m), rng.integers(0, n, m)] = True
    return LinearProgram(
        rng.uniform(1, 2, n), csr_array(member.astype(np.float64)), np.ones(m), np.full(m, _INF), np.zeros(n), np.ones(n), name="covering"
    )


FAMILIES = ("planted", "transportation", "multicommodity", "pagerank", "regression", "commitment", "staircase", "covering")


def family(name: str, n: int, rng: np.random.Generator) -> LinearProgram:
    """Returns a program of a family; n sets its size, about n columns."""
    if name == "planted":
        return planted(n, rng)[0]
    if name == "transportation":
        return transportation(max(2, round(n**0.5)), rng)
    if name == "multicommodity":
        return multicommodity(max(2, round((n / 16) ** 0.5)), rng)
    if name == "pagerank":
        return pagerank(n, rng)
    if name == "regression":
        return regression(max(2, n // 2), rng)
    if name == "commitment":
        return commitment(max(1, n // 48), rng)
    if name == "staircase":
        return staircase(max(2, n // 10), rng)
    if name == "covering":
        return covering(n, rng)
    raise unknown("family", name, FAMILIES)
