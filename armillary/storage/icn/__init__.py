"""Networks of caching routers, in which a copy must pay for itself at its node and on its memory tier.

from armillary.storage.icn import CostBased, built_in, generate, Prices
network = generate(built_in("abilene"), Prices(), rng, contents=1000, requests=100_000, warm=20_000, alpha=0.8, share=0.01)
CostBased().simulate(network).cost_per_GB
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
