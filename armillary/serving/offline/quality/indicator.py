"""How sensitive is a layer to fewer bits? The published indicator ω is computed from real tensors, read from a table, or stood in for.

For a linear operator with weights W and inputs X

    ω(b) = d_W · S(b)² · G(X),   S(b) = (max W − min W) / (2^(b−1) − 1),
    G = Var[X]/4 for rounding to nearest, (E[X]² + Var[X])/6 for stochastic rounding,

where d_W is the operator's input width (the wide one in the feed-forward part). A layer's ω is the sum over its operators, and ω(16) = 0.
SplitQuant, IEEE CLUSTER 2025; LLM-PQ, arXiv 2403.01136.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from armillary.errors import InputError
from armillary.files import Column, read_table

from ..planning.problem import LEGAL_BITS, checked_bits

if TYPE_CHECKING:
    from armillary.llm import Tiny

MOST_LAYERS = 10_000
#: Sequences and tokens of calibration, as published.
SEQUENCES, TOKENS = 128, 2048
Rounding = Literal["nearest", "stochastic"]


@dataclass(frozen=True)
class OmegaTable:
    """ω by layer and bits: values [layers, bits]; `source` says where they come from."""

    bits: tuple[int, ...]
    values: npt.NDArray[np.float64]
    source: str = ""

    @property
    def layers(self) -> int:
        """The number of layers."""
        return len(self.values)

    def of(self, bits: Sequence[int]) -> npt.NDArray[np.float64]:
        """Returns the columns of these bits, [layers, bits]; 16 bits cost nothing."""
        wanted = checked_bits(bits)
        missing = [b for b in wanted if b != 16 and b not in self.bits]
        if missing:
            raise InputError(f"no omega for {missing[0]} bits; the table has {', '.join(map(str, self.bits))}", where=self.source or None)
        return np.stack([np.zeros(self.layers) if b == 16 else self.values[:, self.bits.index(b)] for b in wanted], axis=1)

    def total(self, bits: Sequence[int]) -> float:
        """Returns Σω for one precision per layer."""
        if len(bits) != self.layers:
            raise InputError(f"bits for {len(bits)} layers; the omega table has {self.layers}")
        return float(sum(0.0 if b == 16 else self.of((b,))[i, 0] for i, b in enumerate(bits)))

    def write(self, path: str | Path) -> None:
        """Writes the table as CSV with the columns layer,bits,omega."""
        rows = ["layer,bits,omega"]
        rows += [f"{i},{b},{self.values[i, k]:.12g}" for i in range(self.layers) for k, b in enumerate(self.bits)]
        Path(path).write_text("\n".join(rows) + "\n")


def read_omega(path: str | Path) -> OmegaTable:
    """Reads a table from CSV `layer,bits,omega`, which has every layer from 0 on at the same bits; 16 bits may be left out."""
    columns = [
        Column("layer", "int", least=0, most=MOST_LAYERS - 1),
        Column("bits", "int", choices=LEGAL_BITS),
        Column("omega", least=0),
    ]
    table = read_table(path, columns, format="csv", unique=["layer", "bits"])
    found = {(layer, bits): value for layer, bits, value in table.frame.iter_rows()}
    layers, bits_there = 1 + int(table["layer"].max()), tuple(sorted({bits for _, bits in found}))
    for layer in range(layers):
        for b in bits_there:
            if (layer, b) not in found:
                raise InputError(f"no omega of layer {layer} at {b} bits", where=str(path))
    return OmegaTable(bits_there, np.array([[found[i, b] for b in bits_there] for i in range(layers)]), str(path))


def indicator(spread: float, inputs: int, mean: float, variance: float, bits: int, rounding: Rounding = "nearest") -> float:
    """Returns ω of one operator. `spread` is max W − min W, `inputs` the input width, and mean and variance are those of the inputs."""
    if bits == 16:
        return 0.0
    step = spread / (2 ** (bits - 1) - 1)
    felt = variance / 4 if rounding == "nearest" else (mean * mean + variance) / 6
    return inputs * step * step * felt


def omega(
    model: str | Path | Tiny, text: str | bytes | Sequence[Sequence[int]], *, bits: Sequence[int] = (3, 4, 8, 16),
    rounding: Rounding = "nearest", sequences: int = SEQUENCES, tokens: int = TOKENS,
) -> OmegaTable:  # fmt: skip
    """Computes ω of every layer of a real model from its tensors and their inputs on a text.

    model: a Hugging Face folder of a Llama-like model (config.json, *.safetensors) or a `Tiny`. text: the calibration text as characters,
    which the folder's tokenizer.json turns into tokens (bytes where there is none), or lists of tokens. At most `sequences` pieces of
    `tokens` tokens are used.
    """
    wanted = checked_bits(bits)
    stats, spreads, layers = measured(model, text, sequences=sequences, tokens=tokens)
    values = np.zeros((layers, len(wanted)))
    for name, (mean, variance) in stats.items():
        layer, (spread, inputs) = int(name.split(".")[2]), spreads[name]
        for k, b in enumerate(wanted):
            values[layer, k] += indicator(spread, inputs, mean, variance, b, rounding)
    return OmegaTable(wanted, values, f"omega of {model if isinstance(model, str | Path) else model.name}, {rounding} rounding")


def measured(
    model: str | Path | Tiny, text: str | bytes | Sequence[Sequence[int]], *, sequences: int, tokens: int
) -> tuple[dict[str, tuple[float, float]], dict[str, tuple[float, int]], int]:
    """Returns (mean, variance) of every operator's inputs, (max − min, input width) of its weights, and the number of layers."""
    import torch

    from armillary.llm import Tiny

    loaded = model if isinstance(model, Tiny) else Tiny.load(model)
    if loaded.shape.experts:
        raise InputError("omega is not measured for experts; expected a dense model", where=loaded.name)
    pieces = _pieces(loaded, model, text, sequences, min(tokens, loaded.shape.positions))
    seen: dict[str, list[float]] = {}

    class Listening(Tiny):
        def _linear(self, name: str, x: Any, places: Any) -> Any:
            wide = x.double()
            sums = seen.setdefault(name, [0.0, 0.0, 0.0])
            for k, value in enumerate((float(wide.sum()), float((wide * wide).sum()), float(wide.numel()))):
                sums[k] += value
            return super()._linear(name, x, places)

    listening = Listening(loaded.shape, loaded.weights, loaded.name)
    with torch.no_grad():
        for piece in pieces:
            listening.logits(piece)
    stats = {n: (s / c, max(0.0, q / c - (s / c) ** 2)) for n, (s, q, c) in seen.items()}
    spreads = {}
    for name in stats:
        weight = loaded.weights[f"{name}.weight"]
        spreads[name] = (float(weight.max() - weight.min()), int(weight.shape[1]))
    return stats, spreads, loaded.shape.layers


def _pieces(
    loaded: Tiny, model: str | Path | Tiny, text: str | bytes | Sequence[Sequence[int]], sequences: int, tokens: int
) -> list[list[int]]:
    if isinstance(text, str | bytes):
        ids = _tokens(model, text)
        whole = max(1, min(sequences, len(ids) // tokens))
        pieces = [ids[i * tokens : (i + 1) * tokens] for i in range(whole)]
    else:
        pieces = [list(piece)[:tokens] for piece in text[:sequences]]
    pieces = [piece for piece in pieces if len(piece) > 1]
    if not pieces:
        raise InputError("the calibration text is empty")
    most = max(max(piece) for piece in pieces)
    if most >= loaded.shape.vocab or min(min(piece) for piece in pieces) < 0:
        raise InputError(f"token {most} of the calibration text; {loaded.name} has {loaded.shape.vocab:,}")
    return pieces


def _tokens(model: str | Path | Tiny, text: str | bytes) -> list[int]:
    at = Path(model) / "tokenizer.json" if isinstance(model, str | Path) else None
    if at is not None and at.is_file():
        try:
            from tokenizers import Tokenizer
        except ImportError:
            raise InputError(
                "the package tokenizers is not installed; expected it, or the text as lists of tokens", where=str(at)
            ) from None
        return list(Tokenizer.from_file(str(at)).encode(text if isinstance(text, str) else text.decode("utf-8", "replace")).ids)
    return list(text.encode() if isinstance(text, str) else text)


@functools.cache
def _shape_over_depth() -> tuple[float, ...]:
    """Returns ω of the layers of a trained 8-layer model at 4 bits, by depth and with mean 1."""
    table = read_omega(Path(__file__).parents[1] / "data" / "omega-tiny.csv").of((4,))[:, 0]
    return tuple(float(x) for x in table / table.mean())


def stand_in_omega(layers: int, bits: Sequence[int]) -> OmegaTable:
    """Returns ω for a model without weights: the depth profile of a small trained model, with an average layer at 4 bits as the unit.

    Between precisions it falls like the indicator, as 1/(2^(b−1) − 1)².
    """
    shape = np.array(_shape_over_depth())
    depth = np.interp(np.linspace(0, 1, layers), np.linspace(0, 1, len(shape)), shape) if layers > 1 else np.ones(1)
    depth = depth / depth.mean()
    wanted = checked_bits(bits)
    factor = np.array([0.0 if b == 16 else (7 / (2 ** (b - 1) - 1)) ** 2 for b in wanted])
    return OmegaTable(wanted, depth[:, None] * factor, "stand-in: the depth profile of a small trained model")


def quantised_weights(weights: Mapping[str, Any], bits: Sequence[int], group: int = 128) -> dict[str, Any]:
    """Returns the weights of a Llama-like model with each layer's matrices rounded to its bits and back.

    Rounding is symmetric and to the nearest value, with one scale per output channel, or one per `group` of inputs at 4 bits or fewer.
    """
    import torch

    out = dict(weights)
    for name, weight in weights.items():
        parts = name.split(".")
        if len(parts) < 4 or parts[1] != "layers" or not name.endswith("proj.weight"):
            continue
        b = bits[int(parts[2])]
        if b == 16:
            continue
        top, wide = 2 ** (b - 1) - 1, weight.shape[1]
        size = group if b <= 4 else wide
        pieces = []
        for start in range(0, wide, size):
            piece = weight[:, start : start + size]
            scale = (piece.abs().amax(1, keepdim=True) / top).clamp_min(1e-12)
            pieces.append(torch.clamp(torch.round(piece / scale), -top, top) * scale)
        out[name] = torch.cat(pieces, 1)
    return out
