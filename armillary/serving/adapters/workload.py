"""Adapters and the requests for them: tables, request files, folders of PEFT adapters, traces without adapters, and work from a seed."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from armillary.errors import InputError, one_line

if TYPE_CHECKING:
    from armillary.llm import Requests

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
MOST_RANK = 512
MOST_ADAPTERS = 100_000
MOST_ROWS = 10_000_000
HEADER_BYTES = 100 << 20
#: Mean tokens of ShareGPT's prompts and outputs.
PROMPT_MEAN, OUTPUT_MEAN = 223.0, 197.0
#: The papers' rates, requests a second.
RATES = (3.2, 1.6, 0.8, 0.4, 0.1, 0.05, 0.025, 0.0125, 0.00625, 0.003125)
RANKS = (8, 16, 32)


@dataclass(frozen=True)
class AdapterTable:
    """Adapters by number: name, rank, requests a second, mean prompt and output tokens; `base` is the model they were made for."""

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
        """A table from arrays or numbers, checked."""
        rates = np.atleast_1d(np.asarray(rate, float))
        n = len(rates)
        names = tuple(f"adapter-{i}" for i in range(n)) if names is None else tuple(names)
        if not n:
            raise InputError("found no adapters; expected at least one", where=where)
        if len(names) != n:
            raise InputError(f"found {len(names)} names and {n} rates; expected as many", where=where)
        if len(set(names)) != n:
            twice = next(name for i, name in enumerate(names) if name in names[:i])
            raise InputError(f'adapter "{one_line(twice, 60)}" stands there twice; expected each name once', where=where)
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
        """Prompt and output tokens a second that each adapter is asked for."""
        return np.asarray(self.rate * (self.prompt + self.output))

    def scaled(self, factor: float) -> AdapterTable:
        """The same adapters with every rate times `factor`."""
        if not (math.isfinite(factor) and factor >= 0):
            raise InputError(f"factor: found {factor}; expected 0 or more")
        return replace(self, rate=self.rate * factor)

    def take(self, chosen: Sequence[int] | Ints) -> AdapterTable:
        """Some of the adapters, in this order."""
        index = np.asarray(chosen, np.int64)
        return replace(
            self, names=tuple(self.names[i] for i in index), rank=self.rank[index], rate=self.rate[index], prompt=self.prompt[index],
            output=self.output[index], bytes=None if self.bytes is None else self.bytes[index],
        )  # fmt: skip


@dataclass(frozen=True)
class AdapterWork:
    """Requests over a window for the adapters of a table, as the engines will meet them; `notes` say what was assumed."""

    adapters: AdapterTable
    requests: Requests
    window_s: float
    model: str = "llama-3.1-8b"
    device: str = "h100-64"
    notes: tuple[str, ...] = field(default=())


def synthetic(
    n: int, rates: Sequence[float], window_s: float, rng: np.random.Generator, *, ranks: Sequence[int] = RANKS, unpredictable: bool = False,
    model: str = "llama-3.1-8b", device: str = "h100-64",
) -> AdapterWork:  # fmt: skip
    """Adapters with ranks and rates in equal shares, Poisson arrivals, ShareGPT's lengths.

    `unpredictable`: every five minutes each adapter's rate is drawn anew, by a factor from 1/4 to 4 (log-uniform), and about a third of
    the time it is silent.
    """
    order = rng.permutation(n)
    table = AdapterTable.of(np.resize(np.asarray(ranks), n)[order], np.resize(np.asarray(rates, float), n)[rng.permutation(n)])
    return AdapterWork(table, requests_for(table, window_s, rng, unpredictable=unpredictable), window_s, model, device)


PERIOD_S = 300.0


def requests_for(table: AdapterTable, window_s: float, rng: np.random.Generator, *, unpredictable: bool = False) -> Requests:
    """Poisson requests at the table's rates for `window_s` seconds; lengths of ShareGPT's shape at each adapter's means."""
    from armillary.llm import Requests

    periods = max(1, math.ceil(window_s / PERIOD_S)) if unpredictable else 1
    length = window_s / periods
    factor = np.ones((periods, len(table)))
    if unpredictable:
        factor = 4.0 ** rng.uniform(-1, 1, (periods, len(table))) * (rng.random((periods, len(table))) < 2 / 3)
    expected = float((factor * table.rate).sum() * length)
    if expected > MOST_ROWS:
        raise InputError(f"rates: {expected:,.0f} requests in {window_s:g} s; expected at most {MOST_ROWS:,}")
    counts = rng.poisson(factor * table.rate * length)
    period, adapter = np.nonzero(counts)
    period, adapter = np.repeat(period, counts[period, adapter]), np.repeat(adapter, counts[period, adapter])
    arrival = (period + rng.random(len(period))) * length
    prompt, output = drawn_lengths(table, adapter, rng)
    return Requests.of(arrival, prompt, output, adapter=adapter)


def drawn_lengths(table: AdapterTable, adapter: Ints, rng: np.random.Generator) -> tuple[Ints, Ints]:
    """(prompt, output) tokens of requests for these adapters: ShareGPT's shape, scaled to each adapter's means."""
    from armillary.llm.synthetic import lengths

    prompt, output = lengths("sharegpt", len(adapter), rng)
    scale = table.prompt[adapter] / PROMPT_MEAN, table.output[adapter] / OUTPUT_MEAN
    return (
        np.maximum(1, np.rint(prompt * scale[0])).astype(np.int64),
        np.maximum(1, np.rint(output * scale[1])).astype(np.int64),
    )


# -- files --


def read_table(path: Path) -> AdapterTable:
    """(a) `adapter,rank,rate_per_s[,prompt_mean,output_mean]`: one row an adapter."""
    rows = list(_rows(path, ("adapter", "rank", "rate_per_s"), MOST_ADAPTERS))
    columns: dict[str, list[float]] = {name: [] for name in ("rank", "rate_per_s", "prompt_mean", "output_mean")}
    default = {"prompt_mean": PROMPT_MEAN, "output_mean": OUTPUT_MEAN}
    for line, row in rows:
        for name, values in columns.items():
            text = row.get(name)
            values.append(default[name] if name in default and (text is None or not text.strip()) else _number(text, path, line, name))
    return AdapterTable.of(
        columns["rank"], columns["rate_per_s"], names=[row["adapter"].strip() for _, row in rows], prompt=columns["prompt_mean"],
        output=columns["output_mean"], where=str(path),
    )  # fmt: skip


def read_requests(path: Path, rank: int, *, limit: int = MOST_ROWS) -> AdapterWork:
    """(b) `arrival_s,adapter,prompt_tokens,output_tokens[,rank]`: one row a request; rates are what the file shows."""
    from armillary.llm import Requests

    number: dict[str, int] = {}
    ranks: list[float] = []
    at: list[float] = []
    which: list[int] = []
    prompt: list[float] = []
    output: list[float] = []
    before = -math.inf
    for line, row in _rows(path, ("arrival_s", "adapter", "prompt_tokens", "output_tokens"), limit):
        arrival = _number(row["arrival_s"], path, line, "arrival_s")
        if not before <= arrival:
            raise InputError(
                f'column "arrival_s": found {arrival:g} after {before:g}; expected seconds that do not decrease', where=f"{path}:{line}"
            )
        before = arrival
        name = row["adapter"].strip()
        if name not in number:
            number[name] = len(number)
            ranks.append(_number(row["rank"], path, line, "rank") if row.get("rank") else rank)
        at.append(arrival)
        which.append(number[name])
        for tokens, column in ((prompt, "prompt_tokens"), (output, "output_tokens")):
            found = _number(row[column], path, line, column)
            if not (1 <= found <= 10**7) or found != int(found):
                raise InputError(f'column "{column}": found {found:g}; expected a whole number of tokens', where=f"{path}:{line}")
            tokens.append(found)
    if not at:
        raise InputError("no request in it", where=str(path))
    times = np.asarray(at) - at[0]
    window = float(times[-1]) or 1.0
    count = np.bincount(which, minlength=len(number))
    table = AdapterTable.of(
        ranks, count / window, names=list(number), prompt=np.bincount(which, prompt) / count, output=np.bincount(which, output) / count,
        where=str(path),
    )  # fmt: skip
    return AdapterWork(table, Requests.of(times, prompt, output, adapter=which), window)


def read_peft(path: Path, rate: float) -> AdapterTable:
    """(c) A folder of PEFT adapters: `adapter_config.json` in each subfolder says the rank, the safetensors header the bytes.

    Tensors are not read. Rates: `rates.csv` (`adapter,rate_per_s`) in the folder, or `rate` for every adapter.
    """
    folders = sorted(p.parent for p in path.glob("*/adapter_config.json")) or ([path] if (path / "adapter_config.json").is_file() else [])
    if not folders:
        raise InputError("found no adapter_config.json below it; expected a folder with one folder for each adapter", where=str(path))
    if len(folders) > MOST_ADAPTERS:
        raise InputError(f"found {len(folders):,} adapters; expected at most {MOST_ADAPTERS:,}", where=str(path))
    ranks, sizes, bases = [], [], set()
    for folder in folders:
        config = _json(folder / "adapter_config.json")
        rank = config.get("r")
        if not isinstance(rank, int) or isinstance(rank, bool):
            raise InputError(
                f"r: found {one_line(repr(rank), 40)}; expected the rank, a whole number", where=str(folder / "adapter_config.json")
            )
        ranks.append(rank)
        sizes.append(_safetensors_bytes(folder))
        bases.add(str(config.get("base_model_name_or_path") or ""))
    if len(bases) > 1:
        raise InputError(f"found adapters of several base models ({', '.join(sorted(bases))}); expected one", where=str(path))
    rates = dict.fromkeys((f.name for f in folders), rate)
    if (path / "rates.csv").is_file():
        for line, row in _rows(path / "rates.csv", ("adapter", "rate_per_s"), MOST_ADAPTERS):
            if row["adapter"].strip() not in rates:
                raise InputError(f'adapter "{one_line(row["adapter"], 60)}" has no folder', where=f"{path / 'rates.csv'}:{line}")
            rates[row["adapter"].strip()] = _number(row["rate_per_s"], path / "rates.csv", line, "rate_per_s")
    names = [f.name for f in folders]
    return AdapterTable.of(ranks, [rates[name] for name in names], names=names, base=bases.pop(), size=sizes, where=str(path))


def with_adapters(
    requests: Requests, rng: np.random.Generator, *, table: AdapterTable | None = None, count: int = 128, exponent: float = 1.0,
    ranks: Sequence[int] = RANKS,
) -> AdapterWork:  # fmt: skip
    """(d) A trace that names no adapters: each request draws one, in the table's shares of requests or the k-th k^exponent times rarer.

    Ranks go round over `ranks`. What was assumed stands in the work's notes.
    """
    n = len(requests)
    window = float(requests.arrival_s[-1]) or 1.0
    if table is not None:
        if not table.rate.sum() > 0:
            raise InputError("rate_per_s: found only zeros; expected an adapter that is asked for")
        share, rank, names = table.rate / table.rate.sum(), table.rank, table.names
        note = (
            f"the trace names no adapters: requests were spread over the {len(share)} adapters of the table, in the shares of their rates"
        )
    else:
        if not 1 <= count <= MOST_ADAPTERS:
            raise InputError(f"adapters: found {count}; expected 1 to {MOST_ADAPTERS:,}")
        share = np.arange(1, count + 1) ** -float(exponent)
        share, rank, names = share / share.sum(), np.resize(np.asarray(ranks), count), tuple(f"adapter-{i}" for i in range(count))
        note = (
            f"the trace names no adapters: each request drew one of {count}, the k-th asked for k^{exponent:g} times less often "
            "than the first, "
            f"ranks {'/'.join(map(str, ranks))} in turn"
        )
    adapter = np.minimum(np.searchsorted(np.cumsum(share), rng.random(n)), len(share) - 1)
    seen = np.bincount(adapter, minlength=len(share))
    means = [np.bincount(adapter, x, len(share)) / np.maximum(1, seen) for x in (requests.prompt, requests.output)]
    means = [np.where(seen > 0, m, x.mean()) for m, x in zip(means, (requests.prompt, requests.output), strict=True)]
    made = AdapterTable.of(rank, seen / window, names=names, prompt=means[0], output=means[1])
    return AdapterWork(made, replace(requests, adapter=adapter.astype(np.int32)), window, notes=(note,))


def _rows(path: Path, wanted: Iterable[str], limit: int) -> Iterator[tuple[int, dict[str, str]]]:
    """(line, row) of a CSV with a header that has the wanted columns."""
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            reader = csv.DictReader(file, strict=True)
            missing = [c for c in wanted if c not in (reader.fieldnames or ())]
            if missing:
                found = one_line(", ".join(reader.fieldnames or ()) or "nothing", 120)
                raise InputError(f"found the columns {found}; expected {', '.join(wanted)}", where=str(path))
            for i, row in enumerate(reader):
                if i >= limit:
                    raise InputError(f"more than {limit:,} rows", where=str(path))
                if None in row or any(row[c] is None for c in wanted):
                    raise InputError(
                        f"expected as many values as columns ({len(reader.fieldnames or ())})", where=f"{path}:{reader.line_num}"
                    )
                yield reader.line_num, row
    except (OSError, UnicodeDecodeError, csv.Error) as problem:
        raise InputError(f"not a CSV file: {one_line(str(problem), 120)}", where=str(path)) from None


def _number(text: Any, path: Path, line: int, name: str) -> float:
    try:
        found = float(text)
    except (TypeError, ValueError):
        found = math.nan
    if not math.isfinite(found):
        raise InputError(f'column "{name}": found "{one_line(str(text), 40)}"; expected a number', where=f"{path}:{line}")
    return found


def _json(path: Path) -> dict[str, Any]:
    if path.stat().st_size > 1 << 20:
        raise InputError("more than 1 MiB; expected an adapter's configuration", where=str(path))
    try:
        found = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as problem:
        raise InputError(f"not JSON: {one_line(str(problem), 120)}", where=str(path)) from None
    if not isinstance(found, dict):
        raise InputError(f"found {type(found).__name__}; expected an object", where=str(path))
    return found


def _safetensors_bytes(folder: Path) -> int:
    """Bytes of an adapter's tensors, from the header alone."""
    path = folder / "adapter_model.safetensors"
    if not path.is_file():
        return 0
    size = path.stat().st_size
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if not 2 <= length <= min(HEADER_BYTES, size - 8):
            raise InputError(f"header of {length:,} bytes in a file of {size:,}; expected a safetensors file", where=str(path))
        try:
            header = json.loads(file.read(length))
            ends = [tuple(v["data_offsets"]) for k, v in header.items() if k != "__metadata__"]
            total = sum(int(b) - int(a) for a, b in ends)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            raise InputError("expected a safetensors header: names with data_offsets", where=str(path)) from None
    if any(not (0 <= a <= b <= size - 8 - length) for a, b in ends):
        raise InputError("data_offsets reach beyond the file", where=str(path))
    return total
