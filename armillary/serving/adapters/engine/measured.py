"""Measured runs of adapters on one H100 under vLLM: 74 runs of an hour, and the constants that twelve of them give.

The rows were measured with Llama-3.1-8B on an H100 with 64 GB, adapters of rank 8 and 16 in equal numbers under a largest rank of 16, three
request rates in equal thirds, and lengths of ShareGPT. They come from the public artifact of arXiv 2508.08343 (Apache-2.0).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from armillary.errors import InputError
from armillary.files import Column, read_table

if TYPE_CHECKING:
    from armillary.llm import Model, Replica, Requests

    from .gpu_engine import GpuEngine
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
    #: The largest rank that the engine was started for, and the ranks of the adapters in turn, each with every rate.
    max_rank: int = MAX_RANK
    ranks: tuple[int, ...] = (8, 16)
    #: Tokens of KV that the engine reported; 0 where they are computed.
    kv_tokens: int = 0

    @property
    def tok_s(self) -> float:
        """The prompt and output tokens per second."""
        return self.input_tok_s + self.output_tok_s

    @property
    def served(self) -> float:
        """The share of the offered requests that were finished in the hour."""
        return min(1.0, self.finished / (self.offered * HOUR_S))

    @functools.cached_property
    def offered(self) -> float:
        """The requests per second of all adapters together."""
        return float(self.rate_of.sum())

    @functools.cached_property
    def having(self) -> npt.NDArray[np.int64]:
        """The number of adapters with each of the rates."""
        return np.array([len(range(i, self.adapters, len(self.rates))) for i in range(len(self.rates))])

    @property
    def passed_over(self) -> float:
        """The share of waiting requests whose adapter has no slot, so that the engine looks at them in vain: 1 − slots/adapters."""
        return max(0.0, 1.0 - self.slots / self.adapters)

    @functools.cached_property
    def rate_of(self) -> npt.NDArray[np.float64]:
        """Requests per second of each adapter: the rates in turn."""
        return np.resize(np.asarray(self.rates), self.adapters)

    @property
    def rank_of(self) -> list[int]:
        """The rank of each adapter: the ranks in equal numbers, each with every rate."""
        return [self.ranks[(a // len(self.rates)) % len(self.ranks)] for a in range(self.adapters)]


@functools.cache
def rows() -> tuple[Row, ...]:
    """Returns all 74 measured runs."""
    return read_rows(Path(__file__).parents[1] / "data" / "vllm_h100_64.csv")


def read_rows(path: str | Path) -> tuple[Row, ...]:
    """Reads measured runs of an hour from a CSV file, one per row.

    Its columns are `rates` (requests per second, `0.1/0.05` for two in turn), `slots`, `adapters`, `mean_in` and `mean_out` (tokens per
    request), `finished` (requests), `input_tok_s`, `output_tok_s`, `mean_tpot_ms`, `mean_itl_ms`, and optionally `max_rank`, `ranks`
    (`8/16`) and `kv_tokens` (as the engine reports them).
    """
    columns = [
        Column("rates", "str"), Column("slots", "int", least=1, most=4096), Column("adapters", "int", least=1, most=100_000),
        *(Column(name, least=1, most=1e6) for name in ("mean_in", "mean_out")), Column("finished", "int", least=1, most=10**9),
        *(Column(name, above=0, most=1e9) for name in ("input_tok_s", "output_tok_s", "mean_tpot_ms", "mean_itl_ms")),
        Column("max_rank", "int", least=1, most=512, default=MAX_RANK), Column("ranks", "str", default="8/16"),
        Column("kv_tokens", "int", least=0, most=10**12, default=0),
    ]  # fmt: skip
    table = read_table(path, columns, row_limit=100_000)
    found = []
    for i, row in enumerate(table.frame.iter_rows(named=True)):
        try:
            rates = tuple(float(r) for r in row["rates"].split("/"))
            ranks = tuple(int(r) for r in row["ranks"].split("/"))
        except ValueError:
            raise table.error(i, "rates, ranks: expected numbers separated by /") from None
        if not all(0 < r <= 1e4 for r in rates) or not all(1 <= r <= row["max_rank"] for r in ranks):
            raise table.error(i, "rates, ranks: expected rates from 0 to 10,000 per second, and ranks from 1 to max_rank")
        found.append(Row(**{**row, "rates": rates, "ranks": ranks}))
    return tuple(found)


def split() -> tuple[tuple[Row, ...], tuple[Row, ...]]:
    """Returns (the twelve rows that constants are fitted on, the 62 others).

    For each triple of rates these are 8, 32 and the most slots, with the fewest and the most adapters. The fit must see high rates on many
    slots that never change adapters, because such engines process a fifth more tokens than one that loads adapters all the time suggests.
    """
    chosen = set()
    for rates in {row.rates for row in rows()}:
        mine = [(i, row) for i, row in enumerate(rows()) if row.rates == rates]
        for slots in (8, 32, max(row.slots for _, row in mine)):
            few = [(row.adapters, i) for i, row in mine if row.slots == slots]
            chosen |= {min(few)[1], max(few)[1]}
    return tuple(rows()[i] for i in sorted(chosen)), tuple(row for i, row in enumerate(rows()) if i not in chosen)


def batch(row: Row, itl_ms: float | None = None) -> tuple[float, float, float, float]:
    """Returns (running requests, new tokens, distinct adapters, requests passed over) of a row's mean iteration, by Little's law.

    With `itl_ms` they are those of iterations that take that long and produce the same tokens.
    """
    from .twin import MOST_WAITING

    itl = row.mean_itl_ms if itl_ms is None else itl_ms
    running = row.output_tok_s * itl / 1e3
    inside = row.mean_out * row.mean_tpot_ms / 1e3 * itl / row.mean_itl_ms
    distinct = min(float(row.slots), -float(np.dot(row.having, np.expm1(-row.served * inside * np.asarray(row.rates)))))
    waiting = min(MOST_WAITING, max(0.0, row.offered * HOUR_S - row.finished) / 2) * row.passed_over
    return running, running + row.input_tok_s * itl / 1e3, distinct, waiting


@functools.cache
def token_ms(model: str | Model = MODEL, device: str = DEVICE) -> float:
    """Milliseconds that one more token of a prompt takes, by the model's matrix products on the device."""
    from armillary.llm import StepCost

    cost = StepCost.build(model, device)
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
            before, itl = itl, min(4 * row.mean_itl_ms, 0.5 * (itl + found)) if row.served > KEEPS_UP else found
            if abs(itl - before) < 1e-10 * before:
                break
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


def replica(slots: int, max_rank: int = MAX_RANK, adapters: int | None = None) -> Replica:
    """Returns the engine of the measured runs, with constants from the twelve rows of `split`."""
    from .gpu_engine import GpuEngine

    return GpuEngine().replica(slots, max_rank, adapters)


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
    fleet = Fleet([engine or replica(row.slots, adapters=row.adapters)], most_waiting=MOST_WAITING)
    found = fleet.run(work, until_s=HOUR_S, adapters=Adapters(row.rank_of, host_s=loads, disk_s=loads))
    if len(work) == 300_000 and np.isfinite(found.arrived[-1]):
        raise InputError("the engine took in all 300,000 requests; expected that some stay outside")
    summary = found.summary(until_s=HOUR_S)
    return Agreement(row, summary["token_per_s"], 1e3 * summary["mean_tpot_s"])


def twin_agreement(row: Row, model: TwinModel, seed: int = 0, *, engine: GpuEngine | None = None) -> Agreement:
    """Returns a row's hour on the twin of an engine; Llama-3.1-8B on an H100 with 64 GB by default."""
    from .gpu_engine import GpuEngine
    from .twin import Twin

    on = engine or GpuEngine()
    tokens = row.kv_tokens or on.kv_tokens(row.slots, row.max_rank)
    if not tokens:
        raise InputError(f"{on.name} on {on.device}: {row.slots} slots of rank {row.max_rank} leave no KV; give the kv_tokens of the run")
    twin = Twin(model, tokens, row.slots, row.max_rank)
    found = twin.run(requests(row, seed), row.rank_of, until_s=HOUR_S)
    return Agreement(row, found.tokens_per_s, 1e3 * found.mean_tpot_s)


@dataclass(frozen=True)
class FittedTwin:
    """A twin fitted to all rows, and its error on rows that were left out of a fit: the SMAPE of the tokens per second, in percent."""

    model: TwinModel
    error: float
    by_row: tuple[float, ...]


def fit_twin(rows: Sequence[Row], model: str | Model = MODEL, device: str = DEVICE, *, folds: int = 5) -> FittedTwin:
    """Fits a twin to anyone's measured rows of any model, with its error by cross-validation.

    Row i is left out in fold i mod `folds`, and the twin fitted to the others is asked about it. `read_rows` reads rows from a file, and
    `GpuEngine(model, device, fitted=found.model)` places adapters with the result.
    """
    from .gpu_engine import GpuEngine
    from .twin import TwinModel

    if not 2 <= folds <= len(rows):
        raise InputError(f"folds: found {folds}; expected 2 to the number of rows, {len(rows)}")
    engine = GpuEngine(model, device)
    errors = [0.0] * len(rows)
    for fold in range(folds):
        others = TwinModel.fit([row for i, row in enumerate(rows) if i % folds != fold], model, device=device)
        for i in range(fold, len(rows), folds):
            errors[i] = twin_agreement(rows[i], others, engine=engine).smape
    return FittedTwin(TwinModel.fit(rows, model, device=device), float(np.mean(errors)), tuple(errors))
