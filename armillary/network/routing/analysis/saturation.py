"""The saturation point of a routing by simulation."""

from __future__ import annotations

from armillary.errors import InputError

from ..fabric.network import Network
from ..simulation.play import simulate
from ..simulation.routing import Routing
from ..traffic.synthetic import Traffic

#: A load is carried if at least this share of what is offered arrives.
CARRIED = 0.95


def saturation(
    net: Network, routing: Routing, traffic: str | Traffic = "uniform", *, cycles: int = 6000, seed: int = 0, within: float = 0.01
) -> float:
    """The highest load, bisected to `within`, at which at least 95 % of the offered flits arrive; 1 if all loads are carried."""
    if not 1e-4 <= within < 1:
        raise InputError(f"found {within}; expected at least 0.0001 and less than 1", where="within")

    def carried(load: float) -> bool:
        played = simulate(net, routing, traffic, load, cycles=cycles, seed=seed, until_arrived=False)
        return played.accepted >= CARRIED * played.offered

    low, high = 0.0, 1.0
    if carried(high):
        return high
    while high - low > within:
        middle = (low + high) / 2
        low, high = (middle, high) if carried(middle) else (low, middle)
    return low
