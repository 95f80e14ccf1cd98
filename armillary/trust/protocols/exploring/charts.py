"""A counterexample as a sequence chart (SVG): one line per role, one arrow per message, and what went wrong at the end."""

from __future__ import annotations

from collections.abc import Sequence
from xml.sax.saxutils import escape

from .explorer import Counterexample
from .system import Move

LANE, ROW, TOP = 160, 26, 50
#: Steps that are drawn; of a longer trace the last ones.
MOST_ROWS = 200
_STYLE = "text{font:12px sans-serif}line{stroke:#333}.gone{stroke:#d55e00;stroke-dasharray:4}.wrong{fill:#d55e00;font-weight:bold}"


def chart(roles: Sequence[str], found: Counterexample) -> str:
    """The text of an SVG. An arrow begins where a message is sent and ends where it is received; one that never is ends in the open."""
    moves = found.trace[-MOST_ROWS:]
    lane = {role: LANE // 2 + LANE * i for i, role in enumerate(roles)}
    height = TOP + ROW * (len(moves) + 3)
    width = LANE * len(roles)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}">',
        f"<style>{_STYLE}</style>",
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="8" markerHeight="8" orient="auto">'
        '<path d="M0 0 8 4 0 8z"/></marker></defs>',
    ]
    for role, x in lane.items():
        parts.append(f'<text x="{x}" y="20" text-anchor="middle">{escape(role)}</text>')
        parts.append(f'<line x1="{x}" y1="30" x2="{x}" y2="{height - 2 * ROW}"/>')
    for begin, end, move in _arrows(moves):
        x1, y1 = lane[move.role], TOP + ROW * begin
        x2 = lane[move.peer]
        received = end is not None
        y2 = TOP + ROW * end if end is not None else y1 + ROW
        x2 = x2 if received else x1 + (x2 - x1) * 2 // 3
        gone = "" if received and moves[end or 0].kind == "receive" else ' class="gone"'
        parts.append(f'<line x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}"{gone} marker-end="url(#tip)"/>')
        parts.append(f'<text x="{(x1 + x2) // 2}" y="{(y1 + y2) // 2 - 4}" text-anchor="middle">{escape(move.label)}</text>')
    said = f"{found.kind}: {found.role} {found.message}"
    parts.append(f'<text class="wrong" x="8" y="{height - ROW // 2}">{escape(said)}</text></svg>')
    return "\n".join(parts) + "\n"


def _arrows(moves: Sequence[Move]) -> list[tuple[int, int | None, Move]]:
    """(row where it was sent, row where it was taken or None, the send)."""
    waiting: dict[tuple[str, str], list[int]] = {}
    ends: dict[int, int] = {}
    sends: list[int] = []
    for row, move in enumerate(moves):
        if move.kind == "send":
            waiting.setdefault((move.role, move.peer), []).append(row)
            sends.append(row)
        elif waiting.get((move.peer, move.role)):
            ends[waiting[move.peer, move.role].pop(0)] = row
    return [(row, ends.get(row), moves[row]) for row in sends]
