"""TRACE's network in PyTorch: a tower for VMs, a tower for hosts with the set of their VMs, a bilinear interaction, and the gate."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as fn

from armillary.learn import CrossDeep, SetTransformer
from armillary.learn.determinism import initialise
from armillary.scheduling.vm.problem.state import WIDTH_P, WIDTH_V

OUT = 32


class TraceNetwork(nn.Module):
    """q̂(v, p) = σ(e_vᵀ G e_p + u·e_v + w·e_p + b), and g = σ(k·(τ − cos(e_s, e_p)))."""

    def __init__(self, *, cross: bool = True, sets: bool = True, seed: int = 0) -> None:
        super().__init__()
        layers = 2 if cross else 0
        self.vm = CrossDeep(WIDTH_V, layers, (128, 64), OUT, seed=seed)
        self.host = CrossDeep(WIDTH_P, layers, (128, 64), OUT, seed=seed + 1)
        if sets:
            self.set = SetTransformer(WIDTH_V, OUT, 4, isab=2, inducing=8, seeds=1, seed=seed + 2)
            self.join = nn.Linear(2 * OUT, OUT)
        self.matrix = nn.Parameter(torch.empty(OUT, OUT))
        self.u = nn.Parameter(torch.empty(OUT))
        self.w = nn.Parameter(torch.empty(OUT))
        self.bias = nn.Parameter(torch.empty(1))
        self.gate = nn.Parameter(torch.tensor([5.0, 1.0]))
        own = nn.Module()
        for name in ("matrix", "u", "w", "bias"):
            own.register_parameter(name, getattr(self, name))
        initialise(own, seed + 3)
        if sets:
            initialise(self.join, seed + 4)

    def encode_host(self, x: Tensor, sets: Tensor, real: Tensor) -> Tensor:
        """e_p, [hosts, 32], from features [hosts, 24] and the VMs on each host, [hosts, n, 20]."""
        found: Tensor = self.host(x)
        if hasattr(self, "set"):
            found = self.join(torch.cat([found, self.set(sets, real)], -1))
        return found

    def logit(self, e_v: Tensor, e_p: Tensor) -> Tensor:
        """The logit of q̂ of pairs whose rows agree, [..., 32] each."""
        return ((e_v @ self.matrix) * e_p).sum(-1) + e_v @ self.u + e_p @ self.w + self.bias

    def openness(self, e_s: Tensor, e_p: Tensor) -> Tensor:
        """g: how far the gate is open for a move from s to p."""
        return torch.sigmoid(self.gate[0] * (self.gate[1] - fn.cosine_similarity(e_s, e_p, dim=-1)))
