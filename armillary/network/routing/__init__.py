"""Routing on Dragonflies: minimal, Valiant, the UGAL family and PIAR on a cycle-accurate network of packets.

from armillary.network.routing import Dragonfly, Piar, simulate
net = Dragonfly(p=4, a=8, h=4)
r = simulate(net, Piar(theta=2), traffic="adversarial:1", load=0.3, cycles=20_000, seed=1)
r.latency, r.accepted, r.channel_load
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
