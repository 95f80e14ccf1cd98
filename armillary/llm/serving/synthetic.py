"""Synthetic requests from a seed: arrivals, lengths, sessions and shared prefixes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from armillary.errors import InputError, unknown

from .requests import BLOCK, Requests, chained

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

#: The quantiles at which the tables below give lengths.
SHARES = (0.0, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99, 1.0)
#: Prompt and output lengths, in tokens, of the public Azure traces of 2023 at SHARES; the two are nearly independent there. Lengths are
#: interpolated linearly, so the outputs of azure-code have a mean of 35, while the trace, which is sparse in its tail, has 28.
AZURE_CONV = (
    (2, 181, 207, 387, 403, 703, 1020, 1071, 1130, 1315, 2734, 4083, 4142, 14050),
    (7, 41, 54, 77, 91, 103, 129, 177, 384, 400, 424, 451, 601, 1000),
)
AZURE_CODE = (
    (3, 75, 147, 385, 770, 1075, 1469, 1909, 2433, 3192, 5187, 7303, 7436, 7437),
    (6, 6, 7, 8, 9, 11, 13, 16, 20, 29, 55, 90, 251, 1899),
)
LENGTHS = ("azure-conv", "azure-code", "sharegpt")


def poisson(n: int, rate: float, rng: np.random.Generator) -> Floats:
    """Independent arrivals in seconds, `rate` per second on average."""
    return np.cumsum(rng.exponential(1.0 / _positive("rate", rate), n))


def gamma(n: int, rate: float, cv: float, rng: np.random.Generator) -> Floats:
    """Arrivals with gamma-distributed gaps of coefficient of variation `cv`."""
    shape = 1.0 / _positive("cv", cv) ** 2
    return np.cumsum(rng.gamma(shape, 1.0 / (_positive("rate", rate) * shape), n))


def mmpp(n: int, rate: float, burst: float, on_s: float, off_s: float, rng: np.random.Generator) -> Floats:
    """Arrivals at `rate` per second on average, `burst` times faster in bursts of `on_s` seconds, which are `off_s` apart (both
    exponential).
    """
    _positive("burst", burst)
    calm = _positive("rate", rate) * (_positive("on_s", on_s) + _positive("off_s", off_s)) / (burst * on_s + off_s)
    out: list[Floats] = []
    count, t, bursting = 0, 0.0, False
    while count < n:
        length = rng.exponential(on_s if bursting else off_s)
        here = np.sort(rng.random(rng.poisson(length * calm * (burst if bursting else 1.0)))) * length + t
        out.append(here)
        count, t, bursting = count + len(here), t + length, not bursting
    return np.concatenate(out)[:n]


def diurnal(n: int, rate: float, swing: float, rng: np.random.Generator, day_s: float = 86400.0) -> Floats:
    """Arrivals whose rate rises and falls once per day, rate·(1 + swing·sin), drawn by thinning."""
    if not 0 <= swing <= 1:
        raise InputError(f"swing: found {swing}; expected 0 to 1")
    most, t = _positive("rate", rate) * (1 + swing), 0.0
    out: list[float] = []
    while len(out) < n:
        t += rng.exponential(1.0 / most)
        if rng.random() * most <= rate * (1 + swing * np.sin(2 * np.pi * t / day_s)):
            out.append(t)
    return np.array(out)


def batch(n: int) -> Floats:
    """All requests arrive at once."""
    return np.zeros(n)


def quantiles(table: Sequence[float], shares: Sequence[float], n: int, rng: np.random.Generator) -> Ints:
    """Lengths whose distribution has the quantiles `table` at `shares`, interpolated linearly."""
    return np.maximum(1, np.interp(rng.random(n), shares, table)).astype(np.int64)


def lognormal(median: float, sigma: float, n: int, rng: np.random.Generator, low: int = 1, high: int = 1 << 20) -> Ints:
    """Lengths with this median, whose logarithm has the standard deviation `sigma`, clipped to [low, high]."""
    return np.clip(np.rint(_positive("median", median) * np.exp(sigma * rng.standard_normal(n))), low, high).astype(np.int64)


def uniform(low: int, high: int, n: int, rng: np.random.Generator) -> Ints:
    """Uniform lengths from low to high, both included."""
    if not 1 <= low <= high:
        raise InputError(f"uniform: found {low} to {high}; expected 1 or more, with the smaller number first")
    return rng.integers(low, high + 1, n)


def zipf(exponent: float, high: int, n: int, rng: np.random.Generator) -> Ints:
    """Numbers from 1 to `high`, where k is k^exponent times rarer than 1."""
    if high < 1:
        raise InputError(f"high: found {high}; expected at least 1")
    share = np.arange(1, high + 1) ** -float(exponent)
    return np.minimum(np.searchsorted(np.cumsum(share / share.sum()), rng.random(n)) + 1, high).astype(np.int64)


def lengths(name: str, n: int, rng: np.random.Generator) -> tuple[Ints, Ints]:
    """(prompt, output) tokens like those of a public trace: azure-conv, azure-code or sharegpt."""
    if name == "sharegpt":
        return lognormal(110, 1.4, n, rng, 4, 1024), lognormal(130, 0.95, n, rng, 4, 1024)
    if name not in LENGTHS:
        raise unknown("table of lengths", name, LENGTHS)
    prompt, output = AZURE_CONV if name == "azure-conv" else AZURE_CODE
    return quantiles(prompt, SHARES, n, rng), quantiles(output, SHARES, n, rng)


def generate(
    n: int, *, arrivals: str = "poisson", rate: float = 1.0, like: str = "azure-conv", prompt: Any = None, output: Any = None,
    cv: float = 1.0, burst: float = 10.0, on_s: float = 10.0, off_s: float = 90.0, swing: float = 0.5, concurrency: int = 0,
    think_s: float = 0.0,
    turns: int = 1, shared_prefixes: Sequence[tuple[int, float]] = (), samples: int = 1,
    block: int = BLOCK, seed: int = 0, **columns: Any,
) -> Requests:  # fmt: skip
    """`n` requests from a seed.

    `arrivals` is poisson, gamma (`cv`), mmpp (`burst`, `on_s`, `off_s`), diurnal (`swing`), closed (`concurrency` requests at a time, each
    `think_s` after the previous one ends) or batch. Lengths are drawn `like` a public trace, or given as `prompt` and `output` (one number
    or n numbers). With `turns` > 1 requests form sessions: a turn arrives `think_s` after the previous one ends, and its prompt begins with
    the whole conversation so far. `shared_prefixes` lists (tokens, probability) of system prompts before the prompt. Every prompt is
    sampled `samples` times, and these requests form a group.
    """
    if n < 1 or turns < 1 or samples < 1:
        raise InputError(f"n, turns, samples: found {n}, {turns}, {samples}; expected at least 1")
    rng = np.random.default_rng(seed)
    heads = -(-n // (turns * samples))
    ask, answer = lengths(like, heads * turns, rng)
    ask = ask if prompt is None else np.resize(np.asarray(prompt, np.int64), heads * turns)
    answer = answer if output is None else np.resize(np.asarray(output, np.int64), heads * turns)
    times = _arrivals(arrivals, heads, rate, cv, burst, on_s, off_s, swing, rng)
    system = _system_prompts(heads, shared_prefixes, rng)
    rows: list[tuple[float, int, int, Any, int, int, int, int]] = []
    at: dict[tuple[int, int, int], int] = {}
    for i in range(heads):
        own = slice(i * turns, (i + 1) * turns)
        for k, (t, p, o, chain) in enumerate(_session(i, times[i], ask[own], answer[own], system[i], block)):
            for j in range(samples):
                at[i, k, j] = len(rows)
                rows.append((t, p, o, chain, i, k, i * turns + k if samples > 1 else -1, at[i, k - 1, j] if k else -1))
    time, tokens, out, names, session, turn, group, follows = (list(column) for column in zip(*rows[:n], strict=True))
    if arrivals == "closed":
        if concurrency < 1:
            raise InputError(f"concurrency: found {concurrency}; expected at least 1")
        follows = [q - concurrency if q >= concurrency else -1 for q in range(len(time))]
    wants_names = bool(shared_prefixes) or turns > 1 or samples > 1
    return Requests.of(
        time, tokens, out, session=session, turn=turn, group=group, follows=follows, think_s=think_s,
        prefixes=names if wants_names else None, block=block, **columns,
    )  # fmt: skip


def _arrivals(name: str, n: int, rate: float, cv: float, burst: float, on_s: float, off_s: float, swing: float, rng: Any) -> Floats:
    if name == "poisson":
        return poisson(n, rate, rng)
    if name == "gamma":
        return gamma(n, rate, cv, rng)
    if name == "mmpp":
        return mmpp(n, rate, burst, on_s, off_s, rng)
    if name == "diurnal":
        return diurnal(n, rate, swing, rng)
    if name in ("batch", "closed"):
        return batch(n)
    raise unknown("arrivals", name, ("poisson", "gamma", "mmpp", "diurnal", "closed", "batch"))


def _system_prompts(n: int, shared: Sequence[tuple[int, float]], rng: Any) -> list[tuple[int, int]]:
    """(number, tokens) of each session's system prompt; (-1, 0) for none."""
    chances = [p for _, p in shared]
    if any(t < 1 for t, _ in shared) or any(p < 0 for p in chances) or sum(chances) > 1 + 1e-9:
        raise InputError("shared_prefixes: expected (tokens of at least 1, probability), with probabilities that add up to at most 1")
    which = np.searchsorted(np.cumsum(chances), rng.random(n), side="right")
    return [(int(k), shared[k][0]) if k < len(shared) else (-1, 0) for k in which]


def _session(i: int, t: float, ask: Ints, answer: Ints, system: tuple[int, int], block: int) -> list[tuple[float, int, int, Any]]:
    """(arrival, prompt, output, names) of each turn; the names include the output, because the next turn begins with it."""
    out = []
    said = system[1]
    for a, o in zip(ask.tolist(), answer.tolist(), strict=True):
        prompt = said + a
        said = prompt + o
        full = said // block
        ids = np.arange(full, dtype=np.uint64) + np.uint64((i + 1) << 24)
        shared = system[1] // block
        ids[:shared] = np.arange(shared, dtype=np.uint64) + np.uint64((system[0] + 1) << 44)
        out.append((t, prompt, o, chained(ids)))
    return out


def _positive(name: str, value: float) -> float:
    if not value > 0 or not np.isfinite(value):
        raise InputError(f"{name}: found {value}; expected a positive number")
    return float(value)
