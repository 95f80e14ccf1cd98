"""The tokens that an iteration keeps when the words of siblings are drafts, from published means or from token streams.

The published means (Seer) are about 1.70 tokens per iteration with a request's own history only, 2.04 with one sibling, 2.32 with five and
2.53 with fifteen, on one path; several paths add 0.1 to 0.3. If each draft is right with probability a, drafts of length γ keep
(1 − a^(γ+1))/(1 − a) tokens. So a(n) follows from the published means for long drafts, and is linear in ln(1 + n) between them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from armillary.errors import InputError

from ..simulation.stepping import MOST_DRAFT, MOST_PATHS

SIBLINGS = (0, 1, 5, 15)
PUBLISHED = (1.70, 2.04, 2.32, 2.53)
#: The tokens that each of up to three further paths adds, which is the lower end of what is published.
PATH_BONUS = 0.1


def chances(most_siblings: int, means: Sequence[float] = PUBLISHED, siblings: Sequence[int] = SIBLINGS) -> npt.NDArray[np.float64]:
    """The probabilities that a draft is right with 0, 1, …, `most_siblings` siblings ahead."""
    if min(means) < 1:
        raise InputError(f"means: found {min(means)}; expected at least 1 token per iteration")
    known = [1 - 1 / m for m in means]
    return np.interp(np.log1p(np.arange(most_siblings + 1)), np.log1p(siblings), known)


def table(chance: npt.NDArray[np.float64], most: int = MOST_DRAFT, paths: int = MOST_PATHS) -> npt.NDArray[np.float64]:
    """The tokens kept per iteration [siblings, drafts 0 … most, paths - 1], which is exactly one without drafts."""
    a = np.clip(chance, 0.0, 0.999)[:, None]
    one = (1 - a ** (np.arange(most + 1) + 1)) / (1 - a)
    more = PATH_BONUS * np.arange(paths) * (np.arange(most + 1) > 0)[:, None]
    return np.ascontiguousarray(np.minimum(one[:, :, None] + more[None], np.arange(most + 1)[None, :, None] + 1.0))


def measured(
    streams: Mapping[str, Sequence[tuple[str, npt.NDArray[np.int32]]]], *, most_siblings: int = 15, draft: int = MOST_DRAFT,
    max_suffix: int = 24, every: int = 64,
) -> npt.NDArray[np.float64]:  # fmt: skip
    """The mean tokens kept with 0, 1, … known siblings, found by drafting: each stream of a group is replayed after those before it.

    A replay drafts up to `draft` tokens from the group's structure, and keeps those that the stream has next and one more that the model
    gives. The request's own tokens join the structure every `every` tokens. If no group has so many siblings, the last known mean is used.
    """
    from .group_draft import GroupDraft

    kept, steps = np.zeros(most_siblings + 1), np.zeros(most_siblings + 1)
    for group, members in streams.items():
        for n in range(min(len(members), most_siblings + 1)):
            drafts = GroupDraft(max_suffix)
            for name, tokens in members[:n]:
                drafts.add(group, name, tokens)
            name, tokens = members[n]
            a, b = drafts.replay(group, name, tokens, draft, every)
            kept[n], steps[n] = kept[n] + a, steps[n] + b
    if steps[0] == 0:
        raise InputError("no stream to measure on")
    means = np.divide(kept, steps, out=np.zeros_like(kept), where=steps > 0)
    for n in range(1, len(means)):
        if steps[n] == 0:
            means[n] = means[n - 1]
    return means
