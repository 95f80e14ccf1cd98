"""The operators: what is computed, what must cross the links, and the built-in shapes.

Shapes are per device where a device has its own part: `gemm_rs` and `gemm_ar` multiply M × K by K × N on every device and add up the
products; `ag_gemm` has M/n rows of an M × K matrix on every device and multiplies all of them by K × N. Attention has B sequences of S
tokens in all with H heads of D elements, cut along S. The mixture of experts has `tokens` per device, each for `top_k` of `experts`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from armillary.errors import InputError, unknown

from .machine.mechanisms import Gpu

GEMMS = ("gemm_rs", "ag_gemm", "gemm_ar")
ATTENTIONS = ("ring_attention", "ulysses_attention")
PLAIN = ("all_gather", "reduce_scatter", "all_reduce", "all_to_all")
OPS = (*GEMMS, *ATTENTIONS, "moe_dispatch_gemm", *PLAIN)
WIDTH = {"bf16": 2, "fp16": 2, "fp8": 1}
MOST_DEVICES = 72
MOST = 1 << 22
#: The most multiply-adds of one device: an hour of an H100.
#: The most parts of an operator on all devices, which bound the memory of a simulation to a few GiB.
MOST_PARTS = 1 << 20
MOST_FLOPS = 4e18


def sizes_of(op: str) -> tuple[str, ...]:
    """The names of an operator's sizes."""
    if op not in OPS:
        raise unknown("operator", op, OPS)
    if op in GEMMS:
        return ("m", "n", "k")
    if op in PLAIN:
        return ("m", "n")
    return ("batch", "heads", "sequence", "width") if op in ATTENTIONS else ("tokens", "experts", "top_k", "hidden", "ffn")


@dataclass(frozen=True)
class Operator:
    """One fused operator on `devices` equal devices; sizes that it does not have are 0."""

    op: str
    devices: int = 8
    dtype: str = "bf16"
    m: int = 0
    n: int = 0
    k: int = 0
    batch: int = 0
    heads: int = 0
    sequence: int = 0
    width: int = 0
    causal: bool = False
    tokens: int = 0
    experts: int = 0
    top_k: int = 0
    hidden: int = 0
    ffn: int = 0
    #: Tokens of each device for each expert (devices × experts), for the mixture of experts.
    counts: tuple[tuple[int, ...], ...] = ()

    def __post_init__(self) -> None:
        if self.op not in OPS:
            raise unknown("operator", self.op, OPS)
        if self.dtype not in WIDTH:
            raise unknown("dtype", self.dtype, WIDTH)
        if not 1 <= self.devices <= MOST_DEVICES:
            raise InputError(f"{self.op}: devices: found {self.devices}; expected 1 to {MOST_DEVICES}")
        for name in self.sizes:
            size = getattr(self, name)
            if not 1 <= size <= MOST:
                raise InputError(f"{self.op}: {name}: found {size}; expected 1 to {MOST}")
        for name in self.split:
            if getattr(self, name) % self.devices:
                raise InputError(f"{self.op}: {name}: found {getattr(self, name)}; expected a multiple of the {self.devices} devices")
        if self.op == "moe_dispatch_gemm":
            self._check_counts()
        if self.parts > MOST_PARTS:
            found = f"{self.parts:,} tiles, heads or groups of tokens"
            raise InputError(f"{self.op}: found {found} on all devices; expected at most {MOST_PARTS:,}")
        if self.flops > MOST_FLOPS:
            raise InputError(f"{self.op}: {self.flops:.3g} flops per device; expected at most {MOST_FLOPS:g}")

    def _check_counts(self) -> None:
        if self.top_k > self.experts:
            raise InputError(f"{self.op}: top_k: found {self.top_k} of {self.experts} experts; expected at most all of them")
        found = np.asarray(self.counts)
        if found.shape != (self.devices, self.experts) or (found < 0).any() or (found.sum(1) != self.tokens * self.top_k).any():
            raise InputError(f"{self.op}: counts: expected {self.devices} × {self.experts} numbers, tokens · top_k in each row")

    @property
    def sizes(self) -> tuple[str, ...]:
        """The names of its sizes."""
        return sizes_of(self.op)

    @property
    def split(self) -> tuple[str, ...]:
        """The sizes that are cut over the devices."""
        own = {"gemm_ar": (), "ring_attention": ("sequence",), "ulysses_attention": ("sequence", "heads"),
               "moe_dispatch_gemm": ("experts",), "all_reduce": ()}  # fmt: skip
        return own.get(self.op, ("m",))

    @property
    def bytes_per_element(self) -> int:
        """Bytes of one element."""
        return WIDTH[self.dtype]

    @property
    def parts(self) -> int:
        """What a schedule grows with, on all devices: tiles of 128 × 128, pairs of sequence and head, or groups of 16 tokens."""
        if self.op in ATTENTIONS:
            return self.devices * self.batch * self.heads
        if self.op == "moe_dispatch_gemm":
            return self.devices * (-(-self.tokens * self.top_k // 16) + -(-self.tokens * self.top_k // 128) * -(-self.ffn // 128))
        return self.devices * -(-self.m // 128) * -(-self.n // 128)

    @property
    def flops(self) -> float:
        """Floating-point operations of the busiest device."""
        if self.op in GEMMS:
            return 2.0 * self.m * self.n * self.k
        if self.op in ATTENTIONS:
            pairs = 4.0 * self.batch * self.heads * self.sequence**2 * self.width / self.devices
            # Contiguous chunks: with a causal mask the last device of a ring has everything before it, and heads have half of the pairs.
            if not self.causal:
                return pairs
            return pairs * (1 - 0.5 / self.devices) if self.op == "ring_attention" else pairs / 2
        if self.op == "moe_dispatch_gemm":
            return 2.0 * float(self.received.max()) * self.hidden * self.ffn
        return 0.0

    @property
    def received(self) -> npt.NDArray[np.int64]:
        """Rows of the mixture of experts that each device computes."""
        return np.asarray(self.counts, np.int64).sum(0).reshape(self.devices, -1).sum(1)

    @property
    def payload(self) -> float:
        """Bytes of the whole tensor that crosses: the product, the gathered rows, one chunk of K and V, or everything exchanged."""
        s, n = self.bytes_per_element, self.devices
        if self.op in ("gemm_rs", "gemm_ar", *PLAIN):
            return float(s) * self.m * self.n
        if self.op == "ag_gemm":
            return float(s) * self.m * self.k
        chunk = float(s) * self.batch * self.heads * (self.sequence // n) * self.width
        if self.op == "ring_attention":
            return 2 * chunk
        return 4 * chunk if self.op == "ulysses_attention" else float(s) * self.tokens * self.top_k * self.hidden

    @property
    def crossing(self) -> npt.NDArray[np.float64]:
        """Bytes that must come down the link of each device without reductions in the fabric: what any schedule moves at least."""
        n = self.devices
        if self.op == "moe_dispatch_gemm":
            counts = np.asarray(self.counts, np.float64).reshape(n, n, -1).sum(2)
            return np.asarray((counts.sum(0) - np.diag(counts)) * self.hidden * self.bytes_per_element)
        if self.op in ("gemm_ar", "all_reduce"):
            share = 2 * (n - 1) / n
        elif self.op == "ring_attention":
            share = float(n - 1)
        else:
            share = (n - 1) / n
        return np.full(n, share * self.payload)

    def facts(self) -> dict[str, Any]:
        """Its sizes, for the description of a case."""
        return {"op": self.op, "devices": self.devices, "dtype": self.dtype} | {name: getattr(self, name) for name in self.sizes}


def routed(operator_facts: dict[str, Any], rng: np.random.Generator, skew: float = 0.0) -> Operator:
    """A mixture of experts whose tokens choose experts at random, without repetition, with popularity (rank + 1)^−skew."""
    p = dict(operator_facts)
    if not 1 <= p["top_k"] <= p["experts"]:
        raise InputError(f"{p['op']}: top_k: found {p['top_k']} of {p['experts']} experts; expected 1 to all of them")
    popularity = (1.0 + np.arange(p["experts"])) ** -skew
    popularity = rng.permutation(popularity)
    counts = [tuple(np.bincount(chosen(p["tokens"], p["top_k"], popularity, rng).ravel(), minlength=p["experts"]).tolist())
              for _ in range(p["devices"])]  # fmt: skip
    return Operator(**p, counts=tuple(counts))


def chosen(tokens: int, top_k: int, popularity: npt.NDArray[np.float64], rng: np.random.Generator) -> npt.NDArray[np.int64]:
    """The experts of each token (tokens × top_k), drawn without repetition by Gumbel's trick."""
    gumbel = -np.log(-np.log(rng.uniform(1e-12, 1.0, (tokens, len(popularity)))))
    scores = np.log(popularity / popularity.sum()) + gumbel
    return np.sort(np.argpartition(-scores, top_k - 1, axis=1)[:, :top_k], axis=1)


@dataclass(frozen=True)
class OverlapWork:
    """An operator on devices; `slow` is how much longer than planned each device's computation takes, and empty where plans are right."""

    operator: Operator
    gpu: Gpu
    slow: tuple[float, ...] = ()
    notes: tuple[str, ...] = ()

    def misfit(self, rng: np.random.Generator, sigma: float = 0.1) -> OverlapWork:
        """The same work on devices that are slower or faster than planned (lognormal)."""
        return OverlapWork(self.operator, self.gpu, tuple(np.exp(sigma * rng.standard_normal(self.operator.devices)).tolist()), self.notes)
