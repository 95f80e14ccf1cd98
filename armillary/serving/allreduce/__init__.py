"""All-reduce across servers for tensor-parallel serving: by ring, through NVLink first, by the switch, or by several at once.

from armillary.serving.allreduce import HeroServe, split
split(16 << 20, servers=4, nic=12.5e9, switch_share=6.5e9)      # (share through the switch, seconds)
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
