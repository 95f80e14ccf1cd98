"""Measured runs of adapters on one H100 under vLLM: 74 runs of an hour, and the constants that ten of them give.

The rows were measured with Llama-3.1-8B on an H100 with 64 GB, adapters of rank 8 and 16 in equal numbers under a largest rank of 16, three
request rates in equal thirds, and lengths of ShareGPT. They come from the public artifact of arXiv 2508.08343 (Apache-2.0).
"""

from __future__ import annotations

import csv
import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from armillary.errors import InputError

if TYPE_CHECKING:
    from armillary.llm import Replica, Requests

    from .twin import TwinModel

MODEL, DEVICE, MAX_RANK = "llama-3.1-8b", "h100-64", 16
HOUR_S = 3600.0
#: An engine that finished this share of the offered requests kept up.
KEEPS_UP = 0.97
#: Spread of the logarithm of output lengths: rows of the fit that are short of KV hold 377 tokens per running request, of which 223 are
#: prompt; outputs of this spread have been running for the other 154 tokens on average.
OUTPUT_SIGMA = 0.70
#: KV tokens that vLLM reported, by (largest rank, slots): the same artifact.
KV_TOKENS = {
    (8, 8): 305104, (8, 16): 301520, (8, 32): 295232, (8, 64): 282640, (8, 128): 253568, (8, 192): 230976, (8, 384): 154240,
    (16, 8): 302000, (16, 16): 296000, (16, 32): 284176, (16, 64): 256640, (16, 128): 212032, (16, 192): 163456,
    (32, 8): 296352, (32, 16): 284944, (32, 32): 258176, (32, 64): 215104, (32, 96): 168064,
}  # fmt: skip


@dataclass(frozen=True)
class Row:
    """One measured run of an hour."""

    rates: tuple[float, ...]
    slots: int
    adapters: int
    mean_in: float
    mean_out: float
    finished: int
    input_tok_s: float
    output_tok_s: float
    mean_tpot_ms: float
    mean_itl_ms: float

    @property
    def tok_s(self) -> float:
        """The prompt and output tokens per second."""
        return self.input_tok_s + self.output_tok_s

    @property
    def served(self) -> float:
        """The share of the offered requests that were finished in the hour."""
        return min(1.0, self.finished / (float(self.rate_of.sum()) * HOUR_S))

    @property
    def rate_of(self) -> npt.NDArray[np.float64]:
        """Requests per second of each adapter: the rates in turn."""
        return np.resize(np.asarray(self.rates), self.adapters)

    @property
    def rank_of(self) -> list[int]:
        """The rank of each adapter: 8 and 16 in equal numbers, each with every rate."""
        return [8 if (a // len(self.rates)) % 2 == 0 else 16 for a in range(self.adapters)]


@functools.cache
def rows() -> tuple[Row, ...]:
    """Returns all 74 measured runs."""
    found = []
    with files("armillary.serving.adapters").joinpath("data/vllm_h100_64.csv").open(encoding="utf-8") as file:
        for row in csv.DictReader(file):
            rates = tuple(float(r) for r in row["rates"].split("/"))
            found.append(
                Row(
                    rates, int(row["slots"]), int(row["adapters"]), float(row["mean_in"]), float(row["mean_out"]), int(row["finished"]),
                    float(row["input_tok_s"]), float(row["output_tok_s"]), float(row["mean_tpot_ms"]), float(row["mean_itl_ms"]),
                )
            )  # fmt: skip
    return tuple(found)


def split() -> tuple[tuple[Row, ...], tuple[Row, ...]]:
    """Returns (the ten rows that constants are fitted on, the 64 others).

    For each triple of rates these are 8 and 32 slots with the fewest and the most adapters, and the most slots with the most adapters.
    """
    chosen = set()
    for rates in {row.rates for row in rows()}:
        mine = [(i, row) for i, row in enumerate(rows()) if row.rates == rates]
        for slots in (8, 32):
            few = [(row.adapters, i) for i, row in mine if row.slots == slots]
            chosen |= {min(few)[1], max(few)[1]}
        chosen.add(max((row.slots, row.adapters, i) for i, row in mine)[2])
    return tuple(rows()[i] for i in sorted(chosen)), tuple(row for i, row in enumerate(rows()) if i not in chosen)


def batch(row: Row, itl_ms: float | None = None) -> tuple[float, float, float, float]:
    """Returns (running requests, new tokens, distinct adapters, waiting requests) of a row's mean iteration, by Little's law.

    With `itl_ms` they are those of iterations that take that long and produce the same tokens.
    """
    from .twin import MOST_WAITING

    itl = row.mean_itl_ms if itl_ms is None else itl_ms
    running = row.output_tok_s * itl / 1e3
    offered = float(row.rate_of.sum())
    inside = row.mean_out * row.mean_tpot_ms / 1e3 * itl / row.mean_itl_ms
    distinct = min(float(row.slots), float(np.sum(-np.expm1(-row.rate_of * row.served * inside))))
    waiting = min(MOST_WAITING, max(0.0, offered * HOUR_S - row.finished) / 2)
    return running, running + row.input_tok_s * itl / 1e3, distinct, waiting


@functools.cache
def token_ms() -> float:
    """Milliseconds that one more token of a prompt takes, by the model's matrix products on the device."""
    from armillary.llm import StepCost

    cost = StepCost.build(MODEL, DEVICE)
    return 1e3 * (cost.prefill(2048, 0) - cost.prefill(512, 0)) / 1536


Known = Callable[[Row, float, float], float]
Constants = tuple[float, float, float, float, float]


def fit_step(
    chosen: Sequence[Row], known_ms: Known, *, per_token: bool = False, simulate: Callable[[Constants], list[Agreement]] | None = None,
    rounds: int = 0,
) -> Constants:  # fmt: skip
    """Fits the milliseconds of an iteration: (fixed, per running request, per adapter, per adapter and request, per waiting request).

    The fit is nonnegative least squares of the relative error of the time between tokens beyond `known_ms(row, running, new tokens)`. For
    an engine that keeps up, the steady state is compared, in which iterations last as long as the requests that pile up make them; for
    one that does not, the iteration at the measured load is compared. `per_token` takes adapter times new tokens instead of adapter
    times request. A mean iteration is not the mean of all iterations, so in each of `rounds` the rows are simulated with the constants
    and the times to fit are corrected by the error.
    """
    from scipy.optimize import least_squares

    if len(chosen) < 5:
        raise InputError(f"rows: found {len(chosen)}; expected at least 5 to fit as many constants")
    correction = np.ones(len(chosen))

    def off(constants: npt.NDArray[np.float64], row: Row) -> float:
        itl = row.mean_itl_ms
        for _ in range(40 if row.served > KEEPS_UP else 1):
            running, tokens, adapters, waiting = batch(row, itl)
            own = np.dot(constants, (1.0, running, adapters, adapters * (tokens if per_token else running), waiting))
            found = known_ms(row, running, tokens) + float(own)
            itl = min(4 * row.mean_itl_ms, 0.5 * (itl + found)) if row.served > KEEPS_UP else found
        return float(itl / row.mean_itl_ms)

    def solve() -> Constants:
        def errors(c: npt.NDArray[np.float64]) -> list[float]:
            return [off(c, row) / right - 1.0 for row, right in zip(chosen, correction, strict=True)]

        found = least_squares(
            errors, (3.0, 0.03, 0.4, 1e-4, 1e-4),
            bounds=(0, np.inf), x_scale=(1.0, 0.01, 0.1, 1e-4, 1e-4), loss="soft_l1", f_scale=0.1,
        )  # fmt: skip
        return tuple(float(x) for x in found.x)  # type: ignore[return-value]

    constants = solve()
    for _ in range(rounds if simulate is not None else 0):
        assert simulate is not None
        correction *= [a.row.mean_tpot_ms / a.tpot_ms for a in simulate(constants)]
        constants = solve()
    return constants


def requests(row: Row, seed: int = 0, most: int = 300_000) -> Requests:
    """Returns an hour of requests like a row's: Poisson at its rates, ShareGPT's lengths at the row's means; the first `most` of them."""
    from armillary.llm import Requests
    from armillary.llm.serving.synthetic import lengths, tokens

    rng = np.random.default_rng(seed)
    total = float(row.rate_of.sum())
    n = min(most, int(rng.poisson(total * HOUR_S)))
    arrival = np.cumsum(rng.exponential(1.0 / total, n))
    adapter = rng.choice(row.adapters, n, p=row.rate_of / total)
    prompt, _ = lengths("sharegpt", n, rng)
    output = tokens(rng, n, 150, OUTPUT_SIGMA, 4, 1024)
    return Requests.of(arrival, _to_mean(prompt, row.mean_in), _to_mean(output, row.mean_out), adapter=adapter)


def _to_mean(lengths: npt.NDArray[np.int64], mean: float) -> npt.NDArray[np.int64]:
    return np.clip(np.rint(lengths * (mean / lengths.mean())), 1, 2048).astype(np.int64)


def replica(slots: int, max_rank: int = MAX_RANK) -> Replica:
    """Returns the engine of the measured runs, with constants from the ten rows of `split`."""
    from .gpu_engine import GpuEngine

    return GpuEngine().replica(slots, max_rank)


@dataclass(frozen=True)
class Agreement:
    """A simulated run compared with the measured one: tokens per second and milliseconds per token."""

    row: Row
    tok_s: float
    tpot_ms: float

    @property
    def smape(self) -> float:
        """|simulated − measured| over their mean for the tokens per second, in percent."""
        return 200.0 * abs(self.tok_s - self.row.tok_s) / (self.tok_s + self.row.tok_s)

    @property
    def tpot_error(self) -> float:
        """The relative error of the mean time per output token, in percent."""
        return 100.0 * abs(self.tpot_ms / self.row.mean_tpot_ms - 1.0)


def simulate(row: Row, seed: int = 0, engine: Replica | None = None) -> Agreement:
    """Returns a row's hour on the ground simulator."""
    from armillary.llm import Adapters, Fleet

    from .twin import MOST_WAITING, load_ms

    work = requests(row, seed)
    loads = [load_ms(MODEL, MAX_RANK, r) / 1e3 for r in row.rank_of]
    fleet = Fleet([engine or replica(row.slots)], most_waiting=MOST_WAITING)
    found = fleet.run(work, until_s=HOUR_S, adapters=Adapters(row.rank_of, host_s=loads, disk_s=loads))
    if len(work) == 300_000 and np.isfinite(found.arrived[-1]):
        raise InputError("the engine took in all 300,000 requests; expected that some stay outside")
    summary = found.summary(until_s=HOUR_S)
    return Agreement(row, summary["token_per_s"], 1e3 * summary["mean_tpot_s"])


def twin_agreement(row: Row, model: TwinModel, seed: int = 0) -> Agreement:
    """Returns a row's hour on the twin."""
    from .gpu_engine import GpuEngine
    from .twin import Twin

    twin = Twin(model, GpuEngine().kv_tokens(row.slots, MAX_RANK), row.slots, MAX_RANK)
    found = twin.run(requests(row, seed), row.rank_of, until_s=HOUR_S)
    return Agreement(row, found.tokens_per_s, 1e3 * found.mean_tpot_s)
