"""Describes a machine: nodes, sockets, cores, devices, memory tiers, links and power, from presets, from files, or as detected here.

`load("my.toml")`, `preset("frontier")` and `here()` return a `Cluster`, which answers how many parts there are, how fast they are, and how
they are connected.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
