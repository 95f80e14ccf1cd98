"""Synthetic requests from a seed: arrivals, lengths, sessions and shared prefixes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from armillary.errors import InputError, unknown
from armillary.workloads import diurnal, gamma, lognormal, mmpp, poisson, quantiles, whole

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
TABLES = {"azure-conv": AZURE_CONV, "azure-code": AZURE_CODE}
LENGTHS = (*TABLES, "sharegpt")


def lengths(name: str, n: int, rng: np.random.Generator) -> tuple[Ints, Ints]:
    """Draws (prompt, output) tokens like those of a public trace: azure-conv, azure-code or sharegpt."""
    if name == "sharegpt":
        return tokens(rng, n, 110, 1.4, 4, 1024), tokens(rng, n, 130, 0.95, 4, 1024)
    if name not in LENGTHS:
        raise unknown("table of lengths", name, LENGTHS)
    prompt, output = (np.maximum(1, quantiles(rng, n, table, SHARES)).astype(np.int64) for table in TABLES[name])
    return prompt, output


def tokens(rng: np.random.Generator, n: int, median: float, sigma: float, low: int, high: int) -> Ints:
    """Draws lengths with this median, whose logarithm has the standard deviation `sigma`, clipped to [low, high]."""
    return whole(lognormal(rng, n, median=median, sigma=sigma), low, high)


def generate(
    n: int, *, arrivals: str = "poisson", rate: float = 1.0, like: str = "azure-conv", prompt: Any = None, output: Any = None,
    cv: float = 1.0, burst: float = 10.0, on_s: float = 10.0, off_s: float = 90.0, swing: float = 0.5, concurrency: int = 0,
    think_s: float = 0.0,
    turns: int = 1, shared_prefixes: Sequence[tuple[int, float]] = (), samples: int = 1,
    block: int = BLOCK, seed: int = 0, **columns: Any,
) -> Requests:  # fmt: skip
    """Draws `n` requests from a seed.

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
        return poisson(rng, n, rate)
    if name == "gamma":
        return gamma(rng, n, rate, cv)
    if name == "mmpp":
        return mmpp(rng, n, rate, burst=burst, on_s=on_s, off_s=off_s)
    if name == "diurnal":
        return diurnal(rng, n, rate, swing)
    if name in ("batch", "closed"):
        return np.zeros(n)
    raise unknown("arrivals", name, ("poisson", "gamma", "mmpp", "diurnal", "closed", "batch"))


def _system_prompts(n: int, shared: Sequence[tuple[int, float]], rng: Any) -> list[tuple[int, int]]:
    """Returns (number, tokens) of each session's system prompt, or (-1, 0) for none."""
    chances = [p for _, p in shared]
    if any(t < 1 for t, _ in shared) or any(p < 0 for p in chances) or sum(chances) > 1 + 1e-9:
        raise InputError("shared_prefixes: expected (tokens of at least 1, probability), with probabilities that add up to at most 1")
    which = np.searchsorted(np.cumsum(chances), rng.random(n), side="right")
    return [(int(k), shared[k][0]) if k < len(shared) else (-1, 0) for k in which]


def _session(i: int, t: float, ask: Ints, answer: Ints, system: tuple[int, int], block: int) -> list[tuple[float, int, int, Any]]:
    """Returns (arrival, prompt, output, names) of each turn; the names include the output, because the next turn begins with it."""
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
