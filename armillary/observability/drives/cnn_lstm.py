"""A convolution over three days and an LSTM behind it, one network per model of drive, trained with a focal loss of fixed weights.

Making Disk Failure Predictions SMARTer!, FAST 2020, found this order of layers best for disks; sizes are **our design**.
"""

from __future__ import annotations

from dataclasses import dataclass

from .judging.network import NetworkTechnique


@dataclass(frozen=True)
class CnnLstm(NetworkTechnique):
    """Scores a window by a convolution and an LSTM."""

    kind = "cnn-lstm"
