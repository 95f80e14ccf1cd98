"""What a sharding decides, which the runtime and the cost model both follow: the buckets of each group, and what has to be copied."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from armillary.arena import Technique

from ..ragged.granularity import Weight
from .bucket import Bucket, renamed


@dataclass(frozen=True)
class Group:
    """Neighbouring modules that are gathered and released together: the number of modules, and their buckets."""

    modules: int
    buckets: tuple[Bucket, ...]


class Sharding(Technique):
    """A technique of this arena. The flags say where the tensors of a gathered group live."""

    #: Whether gathered weights are views of the communication buffer; otherwise they are copied out of it.
    views: ClassVar[bool] = False
    #: Whether gradients are accumulated in the buffer that is reduced; otherwise they are copied into it.
    gradient_views: ClassVar[bool] = False
    #: Whether two buffers serve all groups in turn; otherwise each group allocates its own and frees it.
    pooled: ClassVar[bool] = False
    #: Whether every rank holds everything.
    replicated: ClassVar[bool] = False

    @property
    def prefetches(self) -> bool:
        """Whether the next group is gathered while the current one computes."""
        return True

    @property
    def has_views(self) -> bool:
        """`views`, unless a parameter says otherwise."""
        return self.views

    @property
    def has_gradient_views(self) -> bool:
        """`gradient_views`, unless a parameter says otherwise."""
        return self.gradient_views

    def on_ranks(self) -> Sharding:
        """The variant that the runtime can train with: every share is contiguous."""
        return self

    def buckets(self, weights: Sequence[Weight], n: int, align: int) -> list[Bucket]:
        """The buckets of one module over `n` ranks; `align` is the alignment of a shard in elements."""
        raise NotImplementedError

    def groups(self, modules: Sequence[Sequence[Weight]], n: int, align: int) -> list[Group]:
        """The groups of all modules in the order of the forward pass; equal modules are laid out once."""
        known: dict[object, list[Bucket]] = {}
        found = []
        for weights in modules:
            # Laid out under numbers, so that equal modules can take the result over with names of their own.
            numbered = tuple(Weight(str(i), w.shape, w.block) for i, w in enumerate(weights))
            if numbered not in known:
                known[numbered] = self.buckets(numbered, n, align)
            found.append(Group(1, tuple(renamed(b, [weights[int(w.name)] for w in b.weights]) for b in known[numbered])))
        return found
