"""reodedup-append: ReoDedup whose updates go to the end of the log, with which remapping is compared.

Relocation is the same, but overwritten content is appended as in any log, so the files that it belongs to are torn again until the next
round of relocation.

Revisiting Fragmentation for Deduplication in Clustered Primary Storage Systems (ReoDedup), IEEE CLUSTER 2025; this variant is our design.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from armillary.arena import Claim
from armillary.parameters import parameter

from .reodedup import Reodedup


@dataclass(frozen=True)
class ReodedupAppend(Reodedup):
    """Reodedup without remapping (CLUSTER 2025)."""

    remap: bool = parameter(False, "whether updates keep their place; otherwise they go to the end of the log")

    claims: ClassVar[tuple[Claim, ...]] = ()
