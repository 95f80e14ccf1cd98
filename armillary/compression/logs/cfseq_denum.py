"""CFseq's order in front of denum.

CFseq: A Framework for Constructing Compression-Friendly Field Sequences for Network Logs, IEEE CLUSTER 2025.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from armillary.claim import Claim, Gain
from armillary.parameters import parameter

from .cfseq import CFseq


@dataclass(frozen=True)
class CFseqDenum(CFseq):
    """CFseq's order in front of denum."""

    compressor: str = parameter("denum-6", "what compresses the reordered log")

    claims: ClassVar[tuple[Claim, ...]] = (
        Claim("ratio", over="denum", by=Gain(percent=(20, None)), aggregate="max", honest=(12, 25), part=5,
              why="denum here is our own implementation, and so are the logs; over 25 % would be other work",
              says="up to 20 % higher ratio under an advanced log compressor", source="abstract"),
    )  # fmt: skip

    @classmethod
    def claims_with(cls, settings: Mapping[str, str]) -> tuple[Claim, ...]:
        """Returns the claim of this pair, over denum alone."""
        return cls.claims
