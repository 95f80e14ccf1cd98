"""Adapters and the requests for them, from tables, request files, folders of PEFT adapters, traces without adapters, or a seed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from armillary.errors import InputError, one_line
from armillary.workloads import draw, spread, whole

if TYPE_CHECKING:
    from armillary.llm import Model, Requests

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
MOST_RANK = 512
MOST_ADAPTERS = 100_000
MOST_ROWS = 10_000_000
#: Mean tokens of ShareGPT's prompts and outputs.
PROMPT_MEAN, OUTPUT_MEAN = 223.0, 197.0
#: The papers' rates, requests per second.
RATES = (3.2, 1.6, 0.8, 0.4, 0.1, 0.05, 0.025, 0.0125, 0.00625, 0.003125)
RANKS = (8, 16, 32)


@dataclass(frozen=True)
class AdapterTable:
    """Adapters by number, with name, rank, requests per second, mean prompt and output tokens; `base` is the model they were made for."""

    names: tuple[str, ...]
    rank: Ints
    rate: Floats
    prompt: Floats
    output: Floats
    base: str = ""
    bytes: Ints | None = None

    def __len__(self) -> int:
        return len(self.names)

    @classmethod
    def of(
        cls, rank: Any, rate: Any, *, names: Sequence[str] | None = None, prompt: Any = PROMPT_MEAN, output: Any = OUTPUT_MEAN,
        base: str = "", size: Any = None, where: str | None = None,
    ) -> AdapterTable:  # fmt: skip
        """Checks arrays or numbers and makes a table of them."""
        rates = np.atleast_1d(np.asarray(rate, float))
        n = len(rates)
        names = tuple(f"adapter-{i}" for i in range(n)) if names is None else tuple(names)
        if not n:
            raise InputError("found no adapters; expected at least one", where=where)
        if len(names) != n:
            raise InputError(f"found {len(names)} names and {n} rates; expected as many", where=where)
        if len(set(names)) != n:
            twice = next(name for i, name in enumerate(names) if name in names[:i])
            raise InputError(f'adapter "{one_line(twice, 60)}" is there twice; expected each name once', where=where)
        ranks = np.broadcast_to(np.asarray(rank, float), (n,))
        for i in np.flatnonzero(~((ranks >= 1) & (ranks <= MOST_RANK) & (ranks == np.floor(ranks))))[:1]:
            found = f'adapter "{one_line(names[i], 60)}": rank {ranks[i]:g}'
            raise InputError(f"{found}; expected a whole number from 1 to {MOST_RANK}", where=where)
        for name, values in (("rate_per_s", rates), ("prompt_mean", np.asarray(prompt, float)), ("output_mean", np.asarray(output, float))):
            wide = np.broadcast_to(values, (n,))
            low = 0.0 if name == "rate_per_s" else 1.0
            for i in np.flatnonzero(~(np.isfinite(wide) & (wide >= low)))[:1]:
                raise InputError(f'adapter "{one_line(names[i], 60)}": {name} {wide[i]:g}; expected {low:g} or more', where=where)
        means = [np.broadcast_to(np.asarray(x, float), (n,)).copy() for x in (prompt, output)]
        return cls(
            names, ranks.astype(np.int64), rates.copy(), means[0], means[1], base, None if size is None else np.asarray(size, np.int64)
        )

    @property
    def token_rate(self) -> Floats:
        """The prompt and output tokens per second requested from each adapter."""
        return np.asarray(self.rate * (self.prompt + self.output))

    def scaled(self, factor: float) -> AdapterTable:
        """Returns the same adapters with every rate times `factor`."""
        if not (math.isfinite(factor) and factor >= 0):
            raise InputError(f"factor: found {factor}; expected 0 or more")
        return replace(self, rate=self.rate * factor)

    def take(self, chosen: Sequence[int] | Ints) -> AdapterTable:
        """Returns some of the adapters, in this order."""
        index = np.asarray(chosen, np.int64)
        return replace(
            self, names=tuple(self.names[i] for i in index), rank=self.rank[index], rate=self.rate[index], prompt=self.prompt[index],
            output=self.output[index], bytes=None if self.bytes is None else self.bytes[index],
        )  # fmt: skip


@dataclass(frozen=True)
class AdapterWork:
    """Requests over a window for the adapters of a table; `notes` say what was assumed."""

    adapters: AdapterTable
    requests: Requests
    window_s: float
    model: str | Model = "llama-3.1-8b"
    device: str = "h100-64"
    notes: tuple[str, ...] = field(default=())


def synthetic(
    n: int, rates: Sequence[float], window_s: float, rng: np.random.Generator, *, ranks: Sequence[int] = RANKS, unpredictable: bool = False,
    model: str = "llama-3.1-8b", device: str = "h100-64",
) -> AdapterWork:  # fmt: skip
    """Draws adapters with ranks and rates in equal shares, Poisson arrivals, and ShareGPT's lengths.

    If `unpredictable`, each adapter's rate is multiplied every five minutes by a factor from 1/4 to 4 (log-uniform), and about a third
    of the time it is silent.
    """
    order = rng.permutation(n)
    table = AdapterTable.of(np.resize(np.asarray(ranks), n)[order], np.resize(np.asarray(rates, float), n)[rng.permutation(n)])
    return AdapterWork(table, requests_for(table, window_s, rng, unpredictable=unpredictable), window_s, model, device)


PERIOD_S = 300.0


def requests_for(table: AdapterTable, window_s: float, rng: np.random.Generator, *, unpredictable: bool = False) -> Requests:
    """Draws Poisson requests at the table's rates for `window_s` seconds, with ShareGPT's lengths scaled to each adapter's means."""
    from armillary.llm import Requests

    periods = max(1, math.ceil(window_s / PERIOD_S)) if unpredictable else 1
    length = window_s / periods
    factor = np.ones((periods, len(table)))
    if unpredictable:
        factor = 4.0 ** rng.uniform(-1, 1, (periods, len(table))) * (rng.random((periods, len(table))) < 2 / 3)
    expected = float((factor * table.rate).sum() * length)
    if expected > MOST_ROWS:
        raise InputError(f"rates: {expected:,.0f} requests in {window_s:g} s; expected at most {MOST_ROWS:,}")
    arrival, adapter = spread(rng, rng.poisson(factor * table.rate * length), length)
    prompt, output = drawn_lengths(table, adapter, rng)
    return Requests.of(arrival, prompt, output, adapter=adapter)


def drawn_lengths(table: AdapterTable, adapter: Ints, rng: np.random.Generator) -> tuple[Ints, Ints]:
    """Draws (prompt, output) tokens of requests for these adapters, with ShareGPT's shape scaled to each adapter's means."""
    from armillary.llm.serving.synthetic import lengths

    prompt, output = lengths("sharegpt", len(adapter), rng)
    return whole(prompt * (table.prompt[adapter] / PROMPT_MEAN), 1), whole(output * (table.output[adapter] / OUTPUT_MEAN), 1)


def with_adapters(
    requests: Requests, rng: np.random.Generator, *, table: AdapterTable | None = None, count: int = 128, exponent: float = 1.0,
    ranks: Sequence[int] = RANKS,
) -> AdapterWork:  # fmt: skip
    """Draws an adapter for each request of a trace that names none, in the table's shares, or with the k-th k^exponent times rarer.

    Ranks cycle through `ranks`. The work's notes say what was assumed.
    """
    n = len(requests)
    window = float(requests.arrival_s[-1]) or 1.0
    if table is not None:
        if not table.rate.sum() > 0:
            raise InputError("rate_per_s: found only zeros; expected an adapter that is asked for")
        share, rank, names = table.rate / table.rate.sum(), table.rank, table.names
        note = f"the trace names no adapters; requests were spread over the {len(share)} adapters of the table in the shares of their rates"
    else:
        if not 1 <= count <= MOST_ADAPTERS:
            raise InputError(f"adapters: found {count}; expected 1 to {MOST_ADAPTERS:,}")
        share = np.arange(1, count + 1) ** -float(exponent)
        share, rank, names = share / share.sum(), np.resize(np.asarray(ranks), count), tuple(f"adapter-{i}" for i in range(count))
        note = f"the trace names no adapters; each request drew one of {count}, the k-th k^{exponent:g} times less often than the first, "
        note += f"with ranks {'/'.join(map(str, ranks))} in turn"
    adapter = draw(rng, np.cumsum(share), n, side="left")
    seen = np.bincount(adapter, minlength=len(share))
    means = [np.bincount(adapter, x, len(share)) / np.maximum(1, seen) for x in (requests.prompt, requests.output)]
    means = [np.where(seen > 0, m, x.mean()) for m, x in zip(means, (requests.prompt, requests.output), strict=True)]
    made = AdapterTable.of(rank, seen / window, names=names, prompt=means[0], output=means[1])
    return AdapterWork(made, replace(requests, adapter=adapter.astype(np.int32)), window, notes=(note,))
