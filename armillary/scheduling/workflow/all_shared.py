"""Everything on the shared file system, as most workflows run: the more stages are on it the better.

Nothing is staged and nothing can be lost with a node. More nodes come first whatever the tiers, which orders better
than the reverse.

It is how workflow systems such as Pegasus run on a cluster with a shared file system (Future Generation Computer Systems 2015).
"""

from __future__ import annotations

from dataclasses import dataclass

from .planning.ranker import Planning, Ranker, Ranking, ranks


@dataclass(frozen=True)
class AllShared(Ranker):
    """Prefers configurations with more stages on the shared tier."""

    def rank(self, planning: Planning) -> Ranking:
        """The order of the candidates."""
        local = (planning.options.tier != planning.layout.shared).sum(1)
        return Ranking(ranks(-planning.options.nodes, local))
