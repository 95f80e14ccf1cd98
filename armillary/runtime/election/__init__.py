"""Self-stabilising leader election and ranking: anonymous agents that meet at random find a leader again from any corrupted state.

from armillary.runtime.election import Tradeoff, simulate
result = simulate(Tradeoff(rho=32), n=4096, start="one-duplicate", seed=1)
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
