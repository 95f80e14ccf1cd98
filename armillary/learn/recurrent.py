"""Networks that read a sequence: `Lstm` and `Gru` over PyTorch's own, the two xLSTM cells, and `GruDecay` for irregular times.

All read [batch, time, inputs] and put the last state through a linear head.
"""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as fn

from .kinds import GruDecayConfig, RecurrentConfig, XlstmConfig
from .perceptron import Block


class _Recurrent(Block[RecurrentConfig]):
    kind: Literal["lstm", "gru"]

    def __init__(self, inputs: int | RecurrentConfig, hidden: int = 32, outputs: int = 1, *, layers: int = 1, seed: int = 0) -> None:
        made = inputs if isinstance(inputs, RecurrentConfig) else RecurrentConfig(
            kind=self.kind, inputs=inputs, hidden=hidden, layers=layers, outputs=outputs
        )  # fmt: skip
        super().__init__(made, seed)

    def _build(self, config: RecurrentConfig) -> None:
        make = nn.LSTM if config.kind == "lstm" else nn.GRU
        self.encoder = make(config.inputs, config.hidden, config.layers, batch_first=True)
        self.head = nn.Linear(config.hidden, config.outputs)

    def features(self, x: Tensor) -> Tensor:
        """The hidden state after the last step, [batch, hidden]."""
        found: Tensor = self.encoder(x)[0][:, -1]
        return found

    def forward(self, x: Tensor) -> Tensor:
        """[batch, outputs]."""
        found: Tensor = self.head(self.features(x))
        return found


class Lstm(_Recurrent):
    """PyTorch's LSTM with a linear head on the last hidden state."""

    kind = "lstm"


class Gru(_Recurrent):
    """PyTorch's GRU with a linear head on the last hidden state."""

    kind = "gru"


class GruDecay(Block[GruDecayConfig]):
    """A GRU for irregular times: the state fades by `exp(−max(0, w·Δt + b))` before each step, with w and b per hidden unit."""

    def __init__(self, inputs: int | GruDecayConfig, hidden: int = 32, outputs: int = 1, *, seed: int = 0) -> None:
        made = inputs if isinstance(inputs, GruDecayConfig) else GruDecayConfig(inputs=inputs, hidden=hidden, outputs=outputs)
        super().__init__(made, seed)

    def _build(self, config: GruDecayConfig) -> None:
        self.decay_weight = nn.Parameter(torch.empty(config.hidden))
        self.decay_bias = nn.Parameter(torch.empty(config.hidden))
        self.encoder = nn.GRUCell(config.inputs, config.hidden)
        self.head = nn.Linear(config.hidden, config.outputs)

    def features(self, x: Tensor, gaps: Tensor) -> Tensor:
        """The state after the last step of [batch, time, inputs]; `gaps` [batch, time] is the time since the step before."""
        h = x.new_zeros(len(x), self.config.hidden)
        for t in range(x.shape[1]):
            h = h * torch.exp(-torch.relu(self.decay_weight * gaps[:, t, None] + self.decay_bias))
            h = self.encoder(x[:, t], h)
        return h

    def forward(self, x: Tensor, gaps: Tensor) -> Tensor:
        """[batch, outputs]."""
        found: Tensor = self.head(self.features(x, gaps))
        return found


def _log_forget(raw: Tensor, form: str) -> Tensor:
    return fn.logsigmoid(raw) if form == "sigmoid" else raw


class SLstm(Block[XlstmConfig]):
    """The sLSTM cell: exponential input gate, stabiliser m, and recurrent gate inputs that are block-diagonal over heads.

    `m_t = max(log f + m, log i)`, `i' = exp(log i − m_t)`, `f' = exp(log f + m − m_t)`, `c = f' c + i' z`, `n = f' n + i'`, `h = o·c/n`.
    """

    def __init__(
        self, inputs: int | XlstmConfig, hidden: int = 32, outputs: int = 1, *, heads: int = 4,
        forget: Literal["sigmoid", "exp"] = "sigmoid", seed: int = 0,
    ) -> None:  # fmt: skip
        made = inputs if isinstance(inputs, XlstmConfig) else XlstmConfig(
            kind="slstm", inputs=inputs, hidden=hidden, heads=heads, outputs=outputs, forget=forget
        )  # fmt: skip
        super().__init__(made, seed)

    def _build(self, config: XlstmConfig) -> None:
        per = config.hidden // config.heads
        self.weight = nn.Parameter(torch.empty(4 * config.hidden, config.inputs))
        self.recurrent = nn.Parameter(torch.empty(4, config.heads, per, per))
        self.bias = nn.Parameter(torch.empty(4 * config.hidden))
        self.head = nn.Linear(config.hidden, config.outputs)

    def start(self, x: Tensor) -> tuple[Tensor, ...]:
        """The state (h, c, n, m) before the first step."""
        zero = x.new_zeros(len(x), self.config.hidden)
        return zero, zero, zero, torch.full_like(zero, -torch.inf)

    def step(self, x: Tensor, state: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """The state after one more input [batch, inputs]."""
        h, c, n, m = state
        heads = self.config.heads
        back = torch.einsum("bhj,ghij->bghi", h.view(len(h), heads, -1), self.recurrent).reshape(len(h), -1)
        z, log_i, f, o = (fn.linear(x, self.weight, self.bias) + back).chunk(4, -1)
        log_f = _log_forget(f, self.config.forget)
        new = torch.maximum(log_f + m, log_i)
        i, kept = torch.exp(log_i - new), torch.exp(log_f + m - new)
        c, n = kept * c + i * torch.tanh(z), kept * n + i
        return torch.sigmoid(o) * c / n, c, n, new

    def features(self, x: Tensor) -> Tensor:
        """The hidden state after the last step of [batch, time, inputs]."""
        state = self.start(x)
        for t in range(x.shape[1]):
            state = self.step(x[:, t], state)
        return state[0]

    def forward(self, x: Tensor) -> Tensor:
        """[batch, outputs]."""
        found: Tensor = self.head(self.features(x))
        return found


class MLstm(Block[XlstmConfig]):
    """The mLSTM cell, a matrix memory per head: `C = f' C + i' v kᵀ`, `n = f' n + i' k`, `h = o ⊙ (C q)/max(|nᵀq|, exp(−m))`.

    It has no recurrent gate inputs, so all steps can be computed at once (`parallel`), in time quadratic in their number.
    """

    def __init__(
        self, inputs: int | XlstmConfig, hidden: int = 32, outputs: int = 1, *, heads: int = 4,
        forget: Literal["sigmoid", "exp"] = "sigmoid", seed: int = 0,
    ) -> None:  # fmt: skip
        made = inputs if isinstance(inputs, XlstmConfig) else XlstmConfig(
            kind="mlstm", inputs=inputs, hidden=hidden, heads=heads, outputs=outputs, forget=forget
        )  # fmt: skip
        super().__init__(made, seed)

    def _build(self, config: XlstmConfig) -> None:
        self.qkv = nn.Parameter(torch.empty(3 * config.hidden, config.inputs))
        self.output = nn.Parameter(torch.empty(config.hidden, config.inputs))
        self.gates = nn.Parameter(torch.empty(2 * config.heads, config.inputs))
        self.gate_bias = nn.Parameter(torch.empty(2 * config.heads))
        self.head = nn.Linear(config.hidden, config.outputs)

    def _inputs(self, x: Tensor) -> tuple[Tensor, ...]:
        """q, k, v [..., heads, per], log i and log f [..., heads], o [..., hidden]."""
        heads = self.config.heads
        q, k, v = (part.reshape(*part.shape[:-1], heads, -1) for part in fn.linear(x, self.qkv).chunk(3, -1))
        log_i, f = fn.linear(x, self.gates, self.gate_bias).chunk(2, -1)
        return q, k / math.sqrt(k.shape[-1]), v, log_i, _log_forget(f, self.config.forget), torch.sigmoid(fn.linear(x, self.output))

    def start(self, x: Tensor) -> tuple[Tensor, ...]:
        """The state (C, n, m) before the first step."""
        heads, per = self.config.heads, self.config.hidden // self.config.heads
        matrix = x.new_zeros(len(x), heads, per, per)
        return matrix, matrix[..., 0], torch.full_like(matrix[..., 0, 0], -torch.inf)

    def step(self, x: Tensor, state: tuple[Tensor, ...]) -> tuple[Tensor, tuple[Tensor, ...]]:
        """(hidden state, state) after one more input [batch, inputs]."""
        matrix, n, m = state
        q, k, v, log_i, log_f, o = self._inputs(x)
        new = torch.maximum(log_f + m, log_i)
        i, kept = torch.exp(log_i - new)[..., None], torch.exp(log_f + m - new)[..., None]
        matrix = kept[..., None] * matrix + i[..., None] * v[..., :, None] * k[..., None, :]
        n = kept * n + i * k
        under = torch.maximum((n * q).sum(-1).abs(), torch.exp(-new))
        h = (matrix @ q[..., None])[..., 0] / under[..., None]
        return o * h.flatten(-2), (matrix, n, new)

    def parallel(self, x: Tensor) -> Tensor:
        """The hidden states of all steps at once, [batch, time, hidden]."""
        q, k, v, log_i, log_f, o = self._inputs(x)
        total = log_f.cumsum(1).transpose(1, 2)
        decay = total[..., :, None] - total[..., None, :] + log_i.transpose(1, 2)[..., None, :]
        time = x.shape[1]
        decay = decay.masked_fill(~torch.ones(time, time, dtype=torch.bool, device=x.device).tril(), -torch.inf)
        m = decay.amax(-1, keepdim=True)
        weights = torch.einsum("bshd,bthd->bhst", q, k) * torch.exp(decay - m)
        under = torch.maximum(weights.sum(-1, keepdim=True).abs(), torch.exp(-m))
        h = torch.einsum("bhst,bthd->bshd", weights / under, v)
        return o * h.flatten(-2)

    def features(self, x: Tensor) -> Tensor:
        """The hidden state after the last step of [batch, time, inputs]."""
        state = self.start(x)
        h = x.new_zeros(len(x), self.config.hidden)
        for t in range(x.shape[1]):
            h, state = self.step(x[:, t], state)
        return h

    def forward(self, x: Tensor) -> Tensor:
        """[batch, outputs], by the parallel form."""
        found: Tensor = self.head(self.parallel(x)[:, -1])
        return found
