"""Simulated time: an event loop, pools that activities share, networks of flows, and timelines.

`Simulation` advances time; `Pool`, `Activity` and `Network` share bandwidth max-min fairly; `Timeline` records what happened.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
