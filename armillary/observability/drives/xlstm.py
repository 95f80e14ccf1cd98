"""The xLSTM alone: the hybrid without its LSTM, all else as in `gmppredictor`.

xLSTM: Extended Long Short-Term Memory, NeurIPS 2024.
"""

from __future__ import annotations

from dataclasses import dataclass

from .judging.network import NetworkTechnique


@dataclass(frozen=True)
class XlstmAlone(NetworkTechnique):
    """Scores a window by an mLSTM block and an sLSTM block."""

    kind = "xlstm"
    rival = False
