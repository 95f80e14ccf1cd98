"""The explorer: Armillary's questions, papers, studies and machines as pages on this machine, for its user alone."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
