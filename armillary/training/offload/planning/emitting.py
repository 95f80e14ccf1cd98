"""How compiled planners write down a move that waits for no other one."""

# Kernels carry their types in the arrays that they are given.
# mypy: disable-error-code="no-untyped-def, no-untyped-call"

from __future__ import annotations

from armillary.kernels import loop
from armillary.training.offload.simulation.schedule import NOTHING


@loop
def put(out, count, slot, kind, tensor):
    """Adds a move to `out` [slot, kind, tensor, after; moves]; the caller has made room for it."""
    m = count[0]
    out[0, m], out[1, m], out[2, m], out[3, m] = slot, kind, tensor, NOTHING
    count[0] += 1
