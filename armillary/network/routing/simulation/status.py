"""Status that the routers of a group send each other: one number per global channel, which arrives one local latency later."""

from __future__ import annotations

from armillary.kernels import part

from .state import CYCLE, LOCAL_CYCLES, STATUS_CYCLES

#: Columns of `status`: what is known of a channel, and what is on its way.
KNOWN, SENT = 0, 1


@part
def due(s):  # type: ignore[no-untyped-def]
    """Whether routers send their status in this cycle; what was sent before arrives first."""
    period = s.n[STATUS_CYCLES]
    phase = s.n[CYCLE] % period
    if phase == s.n[LOCAL_CYCLES] % period:
        for i in range(len(s.channels)):
            s.status[s.channels[i], KNOWN] = s.status[s.channels[i], SENT]
    return phase == 0
