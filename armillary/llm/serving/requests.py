"""Requests to a language model, as arrays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from armillary.errors import InputError

#: Tokens per block in the hash chain of a prefix.
BLOCK = 16
MOST = 10**8


@dataclass(frozen=True)
class Requests:
    """Requests in order of arrival; each array has one entry per request."""

    arrival_s: npt.NDArray[np.float64]
    prompt: npt.NDArray[np.int32]  # tokens
    output: npt.NDArray[np.int32]  # tokens that will be generated; only oracles may read it
    adapter: npt.NDArray[np.int32]  # number of the adapter, -1 for none
    session: npt.NDArray[np.int32]
    turn: npt.NDArray[np.int16]
    group: npt.NDArray[np.int32]  # number of the group of samples that share a prompt, -1 for none
    priority: npt.NDArray[np.int16]  # lower is more important
    slo_class: npt.NDArray[np.int16]
    prefix_off: npt.NDArray[np.int64]  # [n + 1]
    prefix_hash: npt.NDArray[np.uint64]  # chained hashes of the full blocks of the prompt and, where given, of the output
    follows: npt.NDArray[np.int32]  # the request after whose end this one arrives, or -1 if it arrives at its own time
    think_s: npt.NDArray[np.float64]  # seconds after that end
    block: int = BLOCK  # tokens per hash
    dropped: int = 0  # rows of the file that were failed requests

    def __len__(self) -> int:
        return len(self.arrival_s)

    @classmethod
    def of(
        cls, arrival_s: Any, prompt: Any, output: Any, *, adapter: Any = -1, session: Any = None, turn: Any = 0, group: Any = -1,
        priority: Any = 0, slo_class: Any = 0, prefixes: Sequence[npt.NDArray[np.uint64]] | None = None, follows: Any = -1,
        think_s: Any = 0.0, block: int = BLOCK, dropped: int = 0,
    ) -> Requests:  # fmt: skip
        """Requests from arrays or numbers, checked and put in the order of arrival (equal times keep their order).

        `prefixes[i]` are the chained hashes of request i's full blocks; without them no prompt shares a prefix.
        """
        arrival = np.atleast_1d(np.asarray(arrival_s, np.float64))
        n = len(arrival)
        if n > MOST:
            raise InputError(f"requests: found {n:,}; expected at most {MOST:,} (give a limit)")

        def column(name: str, values: Any, dtype: Any) -> Any:
            try:
                got = np.broadcast_to(np.asarray(values), (n,))
            except ValueError:
                raise InputError(f"{name}: found {np.shape(values)} values; expected {n}, one per request") from None
            info = np.iinfo(dtype)
            if len(got) and (not np.all(np.isfinite(got.astype(np.float64))) or got.min() < info.min or got.max() > info.max):
                raise InputError(f"{name}: expected whole numbers from {info.min} to {info.max}")
            return got.astype(dtype)

        if not np.all(np.isfinite(arrival)):
            raise InputError(f"arrival_s: request {int(np.argmin(np.isfinite(arrival)))} has no arrival time; expected seconds")
        for name, values in (("prompt", prompt), ("output", output)):
            found = np.atleast_1d(np.asarray(values))
            if len(found) and (not np.all(np.isfinite(found.astype(np.float64))) or found.min() < 1):
                raise InputError(f"{name}: request {int(np.argmin(found >= 1))} has {found.min()} tokens; expected at least 1")
        order = np.argsort(arrival, kind="stable")
        back = np.empty(n, np.int64)
        back[order] = np.arange(n)
        chains = [np.empty(0, np.uint64)] * n if prefixes is None else [np.asarray(x, np.uint64) for x in prefixes]
        if len(chains) != n:
            raise InputError(f"prefixes: found {len(chains)}; expected {n}, one per request")
        after = column("follows", follows, np.int32)
        if n and (after.max() >= n or np.any(after == np.arange(n))):
            raise InputError(f"follows: found {int(after.max())}; expected another request's number or -1")
        offsets = np.zeros(n + 1, np.int64)
        np.cumsum([len(chains[i]) for i in order], out=offsets[1:])
        think = np.broadcast_to(np.asarray(think_s, np.float64), (n,))
        if n and not (np.all(np.isfinite(think)) and think.min() >= 0):
            raise InputError(f"think_s: found {float(think.min())}; expected seconds, 0 or more")
        return cls(
            arrival[order], column("prompt", prompt, np.int32)[order], column("output", output, np.int32)[order],
            column("adapter", adapter, np.int32)[order], column("session", np.arange(n) if session is None else session, np.int32)[order],
            column("turn", turn, np.int16)[order], column("group", group, np.int32)[order],
            column("priority", priority, np.int16)[order], column("slo_class", slo_class, np.int16)[order], offsets,
            np.concatenate([chains[i] for i in order]) if offsets[-1] else np.empty(0, np.uint64),
            np.where(after[order] >= 0, back[after[order]], -1).astype(np.int32), think[order].copy(), block, dropped,
        )  # fmt: skip

    def take(self, chosen: Any) -> Requests:
        """Some of the requests, chosen by a mask or by increasing numbers; a request that follows one left out arrives at its own time."""
        index = np.arange(len(self))[chosen]
        new = np.full(len(self) + 1, -1, np.int32)
        new[index] = np.arange(len(index))
        lengths = np.diff(self.prefix_off)[index]
        offsets = np.concatenate([[0], np.cumsum(lengths)])
        at = np.repeat(self.prefix_off[index] - offsets[:-1], lengths) + np.arange(offsets[-1])
        changed = {f.name: getattr(self, f.name)[index] for f in fields(self) if f.name not in _NOT_COLUMNS}
        changed["follows"] = new[self.follows[index]]
        return replace(self, **changed, prefix_off=offsets, prefix_hash=self.prefix_hash[at])

    @classmethod
    def read(cls, path: str, **options: Any) -> Requests:
        """Reads requests from a file in any of the known formats; see `request_files`."""
        from .request_files import read

        return read(path, **options)

    def tokens_per_s(self) -> float:
        """Prompt and output tokens offered per second, over the time of the arrivals."""
        span = float(self.arrival_s[-1] - self.arrival_s[0]) if len(self) > 1 else 0.0
        return float(self.prompt.sum(dtype=np.int64) + self.output.sum(dtype=np.int64)) / span if span > 0 else float("inf")


_NOT_COLUMNS = {"prefix_off", "prefix_hash", "block", "dropped"}


def chained(parts: npt.NDArray[np.uint64], start: int = 0) -> npt.NDArray[np.uint64]:
    """Chained hashes of blocks: entry i stands for parts[0..i] and `start`; never 0."""
    out = np.empty(len(parts), np.uint64)
    state = int(start) & _MASK
    for i, value in enumerate(parts.tolist()):
        state = _mix(state ^ _mix(value + 0x9E3779B97F4A7C15))
        out[i] = state or 1
    return out


_MASK = (1 << 64) - 1


def _mix(x: int) -> int:
    x &= _MASK
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & _MASK
    return x ^ (x >> 31)
