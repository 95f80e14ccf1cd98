"""One question over all arenas: which of these techniques would change most on this machine and this work, over what people do today?"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
