"""Auto: a controller tries PIAR, PAR and minimal routing for a window each, keeps the best for a while, and tries again.

The best is the one with the highest ejection rate in its window; among those within 2 % and three standard deviations of it, the one with
the least mean latency. The first window after a change is not scored, because packets of the routing before are still on their way.
Minimal routing is tried only if PAR sent at most 30 % of the packets around, because it fills queues under adversarial traffic that take
long to empty. When the ejection rate of a later window falls by more than a tenth, the traffic has changed and all three are tried at
once. The controller sees the whole network, which a real one would have to collect. Our design (2026); compare its results with the best
of the three to see what trying costs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from armillary.arena import parameter
from armillary.kernels import part

from .fabric.network import Network
from .min import decide as _min
from .par import Par
from .par import decide as _par
from .piar import Piar, tick
from .piar import decide as _piar
from .simulation.routing import Routing
from .simulation.state import ALL_DETOURED, ALL_FLITS, ALL_LATENCY, ARRIVED, MODE, State

MODES = ("piar", "par", "min")
#: Columns of `own`: the step, windows left, flits, latency and arrivals at the last look, the best rate, detours at the last look, then by
#: mode: flits, latency per thousand packets, windows used.
STEP, LEFT, FLITS, LATENCY, PACKETS, RATE, DETOURS, SCORES = range(8)
_LOOKED_AT = ((ALL_FLITS, FLITS), (ALL_LATENCY, LATENCY), (ARRIVED, PACKETS), (ALL_DETOURED, DETOURS))
#: A routing counts as equal to the best within this share, and as fallen below this one.
NEAR, FALLEN = 0.98, 0.9
#: Minimal routing is tried if PAR's share of detours was at most this.
FEW_DETOURS = 0.3


@part
def decide(s, r, p):  # type: ignore[no-untyped-def]
    """The next hop by the routing whose turn it is."""
    if s.n[MODE] == 0:
        return _piar(s, r, p)
    if s.n[MODE] == 1:
        return _par(s, r, p)
    return _min(s, r, p)


@dataclass(frozen=True)
class Auto(Routing):
    """PIAR, PAR or minimal, whichever did best lately."""

    window: int = parameter(400, "cycles of a window", range=(10, 1_000_000))
    keep: int = parameter(40, "windows for which the best is kept", range=(1, 1_000_000))

    decide, tick = decide, tick

    def settings(self, net: Network, flits: int) -> list[int]:
        """PAR's, which PIAR leaves free, and PIAR's."""
        own = Par().settings(net, flits)
        return [*own, *Piar().settings(net, flits)[len(own) :]]

    def status_cycles(self, net: Network) -> int:
        """PIAR's."""
        return Piar().status_cycles(net)

    def memory(self, net: Network) -> tuple[int, int]:
        """The controller's notes."""
        return SCORES + 3 * len(MODES), 0

    def window_cycles(self) -> int:
        """A window."""
        return self.window

    def adapt(self, state: State) -> None:
        """Scores the window that ended, and chooses the routing of the next one."""
        n, own = state.n, state.own
        flits, latency, packets, detours = (int(n[c] - own[at]) for c, at in _LOOKED_AT)
        for column, at in _LOOKED_AT:
            own[at] = n[column]
        mode, step = int(n[MODE]), int(own[STEP])
        own[SCORES + 6 + mode] += 1
        if step < 2 * len(MODES):
            if step % 2:
                own[SCORES + mode] = flits
                own[SCORES + 3 + mode] = 1000 * latency // max(1, packets)
            own[STEP] = step + 1
            n[MODE] = (step + 1) // 2
            tried = 3
            if step == 3 and detours > FEW_DETOURS * packets:
                own[STEP], tried = 2 * len(MODES), 2
            if own[STEP] == 2 * len(MODES):
                most = int(own[SCORES : SCORES + tried].max())
                # A window's count varies by chance, so three standard deviations of it are no difference.
                near = [m for m in range(tried) if own[SCORES + m] >= NEAR * most - 3 * math.sqrt(most)]
                n[MODE] = min(near, key=lambda m: int(own[SCORES + 3 + m]))
                own[LEFT], own[RATE] = self.keep, most
            return
        own[LEFT] -= 1
        if own[LEFT] <= 0 or (own[LEFT] < self.keep - 1 and flits < FALLEN * own[RATE]):
            own[STEP], n[MODE] = 0, 0

    def used(self, state: State) -> dict[str, int]:
        """How many windows each routing was used for."""
        return {name: int(state.own[SCORES + 6 + i]) for i, name in enumerate(MODES)}
