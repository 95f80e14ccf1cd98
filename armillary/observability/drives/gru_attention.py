"""A GRU with attention over its states, one network per model of drive, trained with a focal loss of fixed weights.

Learning Phrase Representations using RNN Encoder-Decoder, EMNLP 2014; attention after Neural Machine Translation by Jointly Learning to
Align and Translate, ICLR 2015.
"""

from __future__ import annotations

from dataclasses import dataclass

from .judging.network import NetworkTechnique


@dataclass(frozen=True)
class GruAttention(NetworkTechnique):
    """Scores a window by a GRU whose states are averaged with learned attention."""

    kind = "gru-attention"
