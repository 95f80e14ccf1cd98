"""The settings of networks over windows."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Settings:
    """What a network is and how it is trained; `kind` is lstm, xlstm, both, gru-attention or cnn-lstm."""

    kind: str
    width: int = 32
    heads: int = 4
    #: Days of a window.
    length: int = 30
    epochs: int = 30
    patience: int = 5
    ensemble: int = 3
    batch: int = 128
    rate: float = 3e-3
    #: Exponent of the focal loss, and how fast its class weight follows the recall.
    gamma: float = 2.0
    eta: float = 0.5
    divide: bool = True
    guidance: bool = True
    dynamic: bool = True
