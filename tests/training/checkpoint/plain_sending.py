"""An independent sender in plain Python: chunk by chunk, with a clock."""

from __future__ import annotations


def plain_send(
    spans: list[float], room: list[float], total: float, chunk: float, alpha: float, beta: float
) -> tuple[list[float], list[float], float]:
    """Bytes per span, seconds by which each span's traffic outlasts it, and bytes left."""
    sent, over, left = [], [], total
    for span, most in zip(spans, room, strict=True):
        clock, here = 0.0, 0.0
        allowed = min(left, most)
        while allowed - here > 1e-6 and clock < span - 1e-12:
            size = min(chunk, allowed - here)
            clock += alpha + size / beta
            here += size
        sent.append(here)
        over.append(max(0.0, clock - span))
        left -= here
    return sent, over, left
