"""Rebuilding lost blocks of an erasure-coded store: which plan is soonest with the bandwidth that is free now?

from armillary.storage.repair import Bandwidth, plan_repair, read_placement
plan = plan_repair(read_placement("stripes.csv"), "node-7", Bandwidth.read("free.csv"))
plan.to_json()
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
