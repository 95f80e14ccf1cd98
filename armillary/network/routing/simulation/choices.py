"""The choice of the UGAL family: a minimal path or one random detour, by the queues at their first ports times hops."""

from __future__ import annotations

import numpy as np

from armillary.kernels import part

from .paths import detour_hops, first_port, go_detour, go_minimal, minimal_hops, queued, random_detour
from .state import DST_ROUTER, ROUTER


@part
def chosen(s, r, p, channel, taken, bias, far):  # type: ignore[no-untyped-def]
    """Puts the packet on its minimal path over `channel` iff q_min·H_min ≤ q_val·H_val + bias; otherwise on the detour that was drawn.

    H are the hops of the concrete paths plus `taken`. With `far`, the true queues of first channels that other routers own are added.
    Where no detour works, the path is minimal.
    """
    first, second = random_detour(s, r, p)
    if first < 0:
        go_minimal(s, p, channel)
        return
    target = s.packet[p, DST_ROUTER]
    direct = queued(s, first_port(s, r, channel))
    around = queued(s, first_port(s, r, first))
    if far:
        if s.port[channel, ROUTER] != r:
            direct += queued(s, channel)
        if s.port[first, ROUTER] != r:
            around += queued(s, first)
    if direct * (minimal_hops(s, r, channel, target) + taken) <= around * (detour_hops(s, r, first, second, target) + taken) + bias:
        go_minimal(s, p, channel)
    else:
        go_detour(s, p, first, second)


@part
def drawn_detour(s, r, p, channel):  # type: ignore[no-untyped-def]
    """Puts the packet on a random detour; on its minimal path where none works."""
    first, second = random_detour(s, r, p)
    if first < 0:
        go_minimal(s, p, np.int64(channel))
    else:
        go_detour(s, p, first, second)
