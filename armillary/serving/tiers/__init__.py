"""Where should a model be cut that is split over edge boxes, a fog server and the cloud, and which node gets the next request?"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
