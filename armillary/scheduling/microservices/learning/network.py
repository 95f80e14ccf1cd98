"""The predictor as a PyTorch module: an LSTM per service, attention over services that knows who calls whom, two logits."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from armillary.learn.attention import TypedAttention
from armillary.learn.recurrent import Lstm
from armillary.scheduling.microservices.application.application import Application

from .features import FACTS, PROPOSED

HIDDEN, D, HEADS, LAYERS, FFN = 32, 64, 4, 2, 64
KINDS, EDGES = 3, 5


class Network(nn.Module):
    """Logits of a violation in the next window and within five, of histories and proposed quotas of one application."""

    def __init__(self, app: Application, seed: int = 0, relations: bool = True) -> None:
        super().__init__()
        self.lstm = Lstm(FACTS, HIDDEN, 1, seed=seed)
        for weight in self.lstm.head.parameters():
            weight.requires_grad_(False)
        self.attention = TypedAttention(
            HIDDEN + PROPOSED, D, HEADS, LAYERS, ffn=FFN, types=KINDS, pair_bias="edges", edges=EDGES, readout="attention", outputs=2,
            seed=seed + 1,
        )  # fmt: skip
        self._kinds = torch.from_numpy(app.kinds)[None]
        self._edges = torch.from_numpy(app.edges)[None] if relations else torch.full((1, len(app.services), len(app.services)), -1)

    def tokens(self, history: Tensor, proposed: Tensor) -> Tensor:
        """[batch, services, hidden + 3] from [batch, services, windows, facts] and [batch, services, 3]."""
        batch, services = history.shape[:2]
        seen = self.lstm.features(history.flatten(0, 1)).view(batch, services, -1)
        return torch.cat([seen, proposed], -1)

    def forward(self, history: Tensor, proposed: Tensor) -> Tensor:
        """[batch, 2]."""
        batch, services = history.shape[:2]
        edges = self._edges.expand(batch, services, services)
        found: Tensor = self.attention(self.tokens(history, proposed), self._kinds.expand(batch, services), None, edges)
        return found
