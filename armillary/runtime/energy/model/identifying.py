"""Which powers the intervals can tell apart: types that cannot are reported as one group, never with numbers of their own."""

from __future__ import annotations

import numpy as np

from armillary.runtime.energy.traces.tasks import Real

from .observed import Observed
from .solving import reduced, relative_weights

#: Columns are one group above this cosine; a type in fewer intervals than this, or than half of all, joins the others that are as rare.
COLLINEAR, FEWEST = 0.999, 5
#: A singular value below this share of the largest stands for a combination of columns that the intervals do not show.
UNSEEN = 1e-7


def groups(observed: Observed) -> list[list[int]]:
    """The columns of each group; most groups have one. Idle stays alone unless it is in proportion to a type."""
    p = len(observed.columns)
    label = list(range(p))

    def join(a: int, b: int) -> None:
        old, new = max(label[a], label[b]), min(label[a], label[b])
        for i, one in enumerate(label):
            if one == old:
                label[i] = new

    weighted = observed.seconds * relative_weights(observed.energy)[:, None]
    norm = np.sqrt((weighted**2).sum(axis=0))
    for a in range(p):
        for b in range(a + 1, p):
            if norm[a] > 0 and norm[b] > 0 and float((weighted[:, a] * weighted[:, b]).sum()) > COLLINEAR * norm[a] * norm[b]:
                join(a, b)
    least = min(FEWEST, (len(observed.energy) + 1) // 2)
    rare = [j for j in range(p - 1) if int((observed.seconds[:, j] > 0).sum()) < least]
    common = [j for j in range(p - 1) if j not in rare]
    if rare and (len(rare) > 1 or common):
        # One rare type alone has nobody to share with but the type that ran most.
        partner = rare[0] if len(rare) > 1 else max(common, key=lambda j: float(observed.seconds[:, j].sum()))
        for j in rare:
            join(j, partner)
    made = _collect(label)
    while len(made) > 1:
        worst = _hidden(merged(observed.seconds, made), observed.energy)
        if len(worst) < 2:
            break
        keep = made[worst[0]]
        for i in worst[1:]:
            keep = sorted(keep + made[i])
        made = sorted([one for i, one in enumerate(made) if i not in worst] + [keep])
    return made


def _collect(label: list[int]) -> list[list[int]]:
    return [[i for i, one in enumerate(label) if one == name] for name in sorted(set(label))]


def _hidden(a: Real, energy: Real) -> list[int]:
    """The columns that take part in a combination that is zero in every interval; none if there is no such combination."""
    r, _, _ = reduced(a, energy, relative_weights(energy))
    _, singular, right = np.linalg.svd(r)
    if singular[-1] > UNSEEN * singular[0]:
        return []
    share = np.abs(right[-1])
    return [int(i) for i in np.flatnonzero(share > 0.05 * share.max())]


def merged(seconds: Real, made: list[list[int]]) -> Real:
    """The sums of each group's columns."""
    return np.column_stack([seconds[:, one].sum(axis=1) for one in made])
