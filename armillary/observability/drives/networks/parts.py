"""The networks in PyTorch: an LSTM, a stack of two xLSTM blocks, their fusion, and two rivals. The cells are those of `armillary.learn`.

All take windows [batch, days, features] and give one logit each.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as fn

from armillary.learn.determinism import initialise
from armillary.learn.perceptron import Mlp
from armillary.learn.recurrent import Gru, Lstm, MLstm, SLstm


class Xlstm(nn.Module):
    """An mLSTM block and an sLSTM block, each with layer norm and residual; projections widen by two."""

    def __init__(self, inputs: int, width: int, heads: int) -> None:
        super().__init__()
        self.embed = nn.Linear(inputs, width)
        self.norm1 = nn.LayerNorm(width)
        self.up = nn.Linear(width, 4 * width)
        self.mlstm = MLstm(2 * width, 2 * width, heads=heads)
        self.down = nn.Linear(2 * width, width)
        self.norm2 = nn.LayerNorm(width)
        self.slstm = SLstm(width, width, heads=heads)
        self.norm3 = nn.LayerNorm(width)
        self.ffn1 = nn.Linear(width, 2 * width)
        self.ffn2 = nn.Linear(2 * width, width)

    def features(self, x: Tensor) -> Tensor:
        """What the blocks hold after the last day, [batch, width]."""
        x = self.embed(x)
        inner, gate = self.up(self.norm1(x)).chunk(2, -1)
        x = x + self.down(self.mlstm.parallel(inner) * fn.silu(gate))
        last = x[:, -1] + self.slstm.features(self.norm2(x))
        found: Tensor = last + self.ffn2(fn.silu(self.ffn1(self.norm3(last))))
        return found


class Hybrid(nn.Module):
    """An LSTM and an xLSTM side by side, mixed by a learned gate; or one of them alone."""

    def __init__(self, inputs: int, width: int, heads: int, branches: str, seed: int) -> None:
        super().__init__()
        if branches != "xlstm":
            self.lstm = Lstm(inputs, width)
        if branches != "lstm":
            self.xlstm = Xlstm(inputs, width, heads)
        if branches == "both":
            self.gate = nn.Linear(2 * width, width)
        self.top = Mlp(width, (width,), 1)
        self.branches = branches
        initialise(self, seed)
        for name, parameter in self.named_parameters():
            # A memory that begins by keeping: the forget gates start open.
            if name.endswith("mlstm.gate_bias"):
                _open(parameter, len(parameter) // 2, len(parameter))
            elif name.endswith("slstm.bias"):
                _open(parameter, len(parameter) // 2, 3 * len(parameter) // 4)
            elif name.endswith("bias_ih_l0"):
                _open(parameter, len(parameter) // 4, len(parameter) // 2)

    def forward(self, x: Tensor) -> Tensor:
        """[batch] logits."""
        if self.branches == "lstm":
            mixed = self.lstm.features(x)
        elif self.branches == "xlstm":
            mixed = self.xlstm.features(x)
        else:
            short, long = self.lstm.features(x), self.xlstm.features(x)
            share = torch.sigmoid(self.gate(torch.cat([short, long], -1)))
            mixed = share * short + (1 - share) * long
        found: Tensor = self.top(mixed)[:, 0]
        return found


class GruAttention(nn.Module):
    """A GRU whose states are averaged with learned attention."""

    def __init__(self, inputs: int, width: int, seed: int) -> None:
        super().__init__()
        self.gru = Gru(inputs, width)
        self.attend = nn.Linear(width, width)
        self.query = nn.Parameter(torch.empty(width))
        self.top = Mlp(2 * width, (width,), 1)
        initialise(self, seed)

    def forward(self, x: Tensor) -> Tensor:
        """[batch] logits."""
        states = self.gru.encoder(x)[0]
        share = torch.softmax(torch.tanh(self.attend(states)) @ self.query, -1)
        found: Tensor = self.top(torch.cat([(share[..., None] * states).sum(1), states[:, -1]], -1))[:, 0]
        return found


class CnnLstm(nn.Module):
    """A convolution over three days, which looks back only, and an LSTM over its channels."""

    def __init__(self, inputs: int, width: int, seed: int) -> None:
        super().__init__()
        self.taps = nn.Linear(3 * inputs, width)
        self.lstm = Lstm(width, width)
        self.top = Mlp(width, (width,), 1)
        initialise(self, seed)

    def forward(self, x: Tensor) -> Tensor:
        """[batch] logits."""
        padded = fn.pad(x, (0, 0, 2, 0))
        joined = torch.cat([padded[:, i : i + x.shape[1]] for i in range(3)], -1)
        found: Tensor = self.top(self.lstm.features(torch.relu(self.taps(joined))))[:, 0]
        return found


def _open(parameter: nn.Parameter, first: int, last: int) -> None:
    with torch.no_grad():
        parameter[first:last] = 2.0


def made(kind: str, inputs: int, width: int, heads: int, seed: int) -> Any:
    """A fresh network: lstm, xlstm, both, gru-attention or cnn-lstm."""
    if kind == "gru-attention":
        return GruAttention(inputs, width, seed)
    if kind == "cnn-lstm":
        return CnnLstm(inputs, width, seed)
    return Hybrid(inputs, width, heads, kind, seed)
