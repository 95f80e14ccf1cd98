"""An LSTM alone: the hybrid without its xLSTM, all else as in `gmppredictor`.

Long Short-Term Memory, Neural Computation 1997.
"""

from __future__ import annotations

from dataclasses import dataclass

from .judging.network import NetworkTechnique


@dataclass(frozen=True)
class LstmAlone(NetworkTechnique):
    """Scores a window by an LSTM."""

    kind = "lstm"
    rival = False
