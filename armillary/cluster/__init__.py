"""The machine: nodes, sockets, cores, devices, memory tiers, links, power; presets, files, and what is here.

`load("my.toml")`, `preset("frontier")` and `here()` give a `Cluster`, which answers how many, how fast and which way.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
