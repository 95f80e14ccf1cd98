"""The PyTorch class of every kind of network."""

from __future__ import annotations

from typing import Any

from armillary.errors import InputError

from .attention import TypedAttention
from .images import Cnn2, Cnn3, CnnEncoder
from .kinds import Config
from .perceptron import Block, Mlp
from .policies import ActorCritic
from .recurrent import Gru, GruDecay, Lstm, MLstm, SLstm
from .sets import SetTransformer
from .towers import CrossDeep, DualTower

MODULES: dict[str, Any] = {
    "mlp": Mlp, "cross-deep": CrossDeep, "dual-tower": DualTower, "lstm": Lstm, "gru": Gru, "gru-decay": GruDecay, "slstm": SLstm,
    "mlstm": MLstm, "typed-attention": TypedAttention, "set-transformer": SetTransformer, "cnn2": Cnn2, "cnn3": Cnn3,
    "cnn-encoder": CnnEncoder, "actor-critic": ActorCritic,
}  # fmt: skip


def module_of(config: Config, seed: int = 0) -> Block[Any]:
    """A module of this configuration with fresh weights."""
    if config.kind not in MODULES:
        raise InputError(f'found the kind "{config.kind}"; expected one that has a PyTorch module ({", ".join(sorted(MODULES))})')
    made: Block[Any] = MODULES[config.kind](config, seed=seed)
    return made
