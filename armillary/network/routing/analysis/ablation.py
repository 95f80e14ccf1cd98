"""PIAR with one part switched off at a time."""

from __future__ import annotations

from ..fabric.network import Network
from ..piar import Piar
from ..simulation.play import simulate

VARIANTS = {
    "piar": Piar(),
    "class A only": Piar(classes="a"),
    "class B only": Piar(classes="b"),
    "raw credits": Piar(raw_credits=True),
    "local status only": Piar(exchange=False),
    "not progressive": Piar(progressive=False),
    "no local detour": Piar(local_detour=False),
    "hops ignored": Piar(weigh_hops=False),
    "one cycle per decision": Piar(decision_cycles=1),
    "T = 25": Piar(t=25.0),
    "theta = 8, T = 25": Piar(theta=8.0, t=25.0),
}


def ablation(net: Network, traffic: str, load: float, *, cycles: int = 6000, seed: int = 0) -> dict[str, tuple[float, float, float]]:
    """Accepted load, mean latency and mean hops of each variant."""
    found = {}
    for name, routing in VARIANTS.items():
        played = simulate(net, routing, traffic, load, cycles=cycles, seed=seed, until_arrived=load < 1)
        found[name] = (played.accepted, played.latency_at_least, played.hops)
    return found
